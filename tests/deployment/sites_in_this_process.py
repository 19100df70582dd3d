"""Sites without Spark: the same groups of nodes, files and micro-batches, which can be interrupted between two steps.

A micro-batch of Spark: the input is fixed and logged, the operator runs on the state that was committed last, its
output is staged, the batch is committed. A site in this process has exactly this order in common with one on Spark.
"""

from __future__ import annotations

import zlib
from dataclasses import asdict
from pathlib import Path
from random import Random

import pyarrow as pa

from midstream.deployment.protocol.coordinator_log import CoordinatorLog
from midstream.deployment.protocol.lost_nodes import LostNodeQuestion, answer_for_lost_node
from midstream.deployment.protocol.messages import Report
from midstream.deployment.protocol.wire_format import message_from_bytes, message_to_bytes
from midstream.deployment.sites.coordinator_process import CoordinatorProcess
from midstream.deployment.sites.deployment_directory import DeploymentDirectory
from midstream.deployment.sites.durable_files import unique_name
from midstream.deployment.sites.message_file import (
    CONTROL,
    REPORT,
    TICK,
    WAKE,
    MessageRow,
    read_messages,
    spread,
    write_messages,
)
from midstream.deployment.sites.node_group import NodeGroup, stored_by_lost_node
from midstream.deployment.sites.site_input import FEED, InputRow, group_input
from midstream.deployment.sites.site_output import OUTPUT_SCHEMA, RESCUE, SiteOutput, group_output
from midstream.deployment.sites.transit import Transit


class Interrupted(Exception):
    """The process was killed here."""


class SiteInThisProcess:
    """A site: what is on disk survives :meth:`kill`, what is in memory does not."""

    def __init__(self, directory: DeploymentDirectory, name: str, random: Random | None = None) -> None:
        self.directory = directory
        self.name = name
        self.layout = directory.layout()
        self.commits = directory.checkpoint(name) / "commits"
        self.commits.mkdir(parents=True, exist_ok=True)
        self.output = SiteOutput(directory, name)
        self.transit = Transit(directory, name)
        self.random = random
        self.is_lost = False
        self.groups: dict[int, NodeGroup] = {}
        # On disk:
        self.state: dict[int, dict[str, bytes]] = {group: {} for group in range(self.layout.groups)}
        self.planned: list[Path] | None = None
        """The input of the micro-batch that has begun and is not committed."""
        self.taken: set[Path] = set()
        self.batch = 0

    def kill(self) -> None:
        self.groups = {}

    def work(self, others: dict[str, SiteInThisProcess], *, tick: bool = False) -> None:
        """Publish, and do a micro-batch if something has come."""
        self._publish(others)
        self.transit.pass_on()
        if tick:
            write_messages(self._own_inbox() / f"{unique_name()}.parquet", [MessageRow(TICK, "", b"")])
        if self.planned is None:
            self.planned = [path for path in self._files() if path not in self.taken]
        if self.planned:
            self._micro_batch(self.planned)
            self.taken |= set(self.planned)
        self.planned = None
        self._interruption(0.05)
        self._publish(others)

    def _micro_batch(self, files: list[Path]) -> None:
        rows = [row for path in files for row in self._rows(path)]
        changes, output = {}, []
        for number in range(self.layout.groups):
            group = self.groups.pop(number, None) or NodeGroup.restored(
                self._hosts(number), self.state[number], 1 << 10
            )
            own = [row for row, group_number in rows if group_number in (None, number)]
            output += group_output(group.step(group_input(own)), self.layout)
            changes[number] = group.changes()
            self.groups[number] = group
        self._interruption(0.1)
        table = pa.Table.from_pylist([asdict(row) for row in output], schema=OUTPUT_SCHEMA)
        self.output.stage(self.batch, table)
        self._interruption(0.1)
        for number, changed in changes.items():
            for key, data in changed.items():
                if data is None:
                    self.state[number].pop(key, None)
                else:
                    self.state[number][key] = data
        (self.commits / str(self.batch)).touch()
        self.batch += 1
        if any(group.has_more_to_send for group in self.groups.values()):
            write_messages(self._own_inbox() / f"{unique_name()}.parquet", [MessageRow(WAKE, "", b"")])

    def _publish(self, others: dict[str, SiteInThisProcess]) -> None:
        for row in self.output.publish():
            question = message_from_bytes(row.blob) if row.kind == RESCUE else None
            if isinstance(question, LostNodeQuestion):
                old = others[self.layout.site_of(question.lost_node)]
                stored = old.state[self.layout.group_of(question.lost_node)]
                files = stored_by_lost_node(stored, question.lost_node, question.losses, is_gone=old.is_lost)
                found = None if files is None else answer_for_lost_node(question, files)
                name = f"{unique_name()}.parquet"
                if isinstance(found, Report):
                    reports = self.directory.reports(self.name) / name
                    write_messages(reports, [MessageRow(REPORT, found.node, message_to_bytes(found))])
                elif found is not None:
                    answer = MessageRow(CONTROL, row.node, message_to_bytes(found))
                    write_messages(self._own_inbox() / name, [answer])

    def _files(self) -> list[Path]:
        messages = self.directory.inbox(self.name, "x").parent.glob("*/[!_]*.parquet")
        return sorted([*messages, *self.directory.feeds(self.name).glob("*/*/[!_]*")])

    def _rows(self, path: Path) -> list[tuple[InputRow, int | None]]:
        """The rows of a file, with the group that each is for; None: all."""
        if path.is_relative_to(self.directory.feeds(self.name)):
            group = spread_of_directory(path) % self.layout.groups
            return [(InputRow(str(path), 0, FEED, "", path.read_bytes()), group)]
        if not path.exists():
            return []
        return [
            (InputRow(str(path), place, *row), spread(row.node) % self.layout.groups if row.node else None)
            for place, row in enumerate(read_messages(path))
        ]

    def _hosts(self, number: int):
        return lambda node: self.layout.site_of(node) == self.name and self.layout.group_of(node) == number

    def _own_inbox(self) -> Path:
        return self.directory.inbox(self.name, "site")

    def _interruption(self, chance: float) -> None:
        if self.random is not None and self.random.random() < chance:
            self.kill()
            raise Interrupted


def spread_of_directory(path: Path) -> int:
    """As Spark computes it: from the name of the node's directory."""
    return zlib.crc32(path.parent.parent.name.encode())


class DeploymentInThisProcess:
    """A coordinator and its sites, which work in turn."""

    def __init__(self, directory: DeploymentDirectory, random: Random | None = None) -> None:
        self.directory = directory
        self.random = random
        self.sites = {name: SiteInThisProcess(directory, name, random) for name in directory.layout().sites}
        self.rounds = 0
        self.killed = 0
        self.coordinator = self._coordinator()

    def _coordinator(self) -> CoordinatorProcess:
        self._log = CoordinatorLog.open(self.directory.log)
        return CoordinatorProcess(self.directory, self._log)

    def close(self) -> None:
        self._log.__exit__()

    def restart_coordinator(self) -> None:
        self.close()
        self.coordinator = self._coordinator()

    def work(self, rounds: int = 1) -> None:
        """Everybody works a little."""
        for _ in range(rounds):
            self.rounds += 1
            self.coordinator.look()
            if self.rounds % 5 == 0:
                self.coordinator.ask_again()
            for site in self.sites.values():
                if not site.is_lost:
                    try:
                        site.work(self.sites, tick=self.rounds % 2 == 0)
                    except Interrupted:
                        self.killed += 1
            if self.random is not None and self.random.random() < 0.05:
                self.restart_coordinator()
                self.killed += 1

    def work_until_quiet(self, at_most: int = 600) -> None:
        """Work until no generation is under way and nothing waits in an outbox."""
        for _ in range(at_most):
            self.work()
            groups = [group for site in self.sites.values() for group in site.groups.values() if not site.is_lost]
            are_there = all(len(s.groups) == s.layout.groups for s in self.sites.values() if not s.is_lost)
            if self.coordinator.coordinator.is_idle and are_there and not any(group.is_busy for group in groups):
                return
        raise AssertionError("the deployment does not come to rest")
