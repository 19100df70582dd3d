"""The coordinator as a process: it reads requests and reports from files, and writes instructions to files.

It can be killed at any moment. What it was told is in its log before anything follows from it; a request that is in the
log is not taken twice; reports and instructions may come twice. Files are those of ``deployment_directory``.

    python -m midstream.deployment.sites.coordinator_process DIRECTORY
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from midstream.deployment.placement.global_plan import NodeId
from midstream.deployment.protocol.coordinator import Coordinator, Instruction
from midstream.deployment.protocol.coordinator_log import CoordinatorLog
from midstream.deployment.protocol.coordinator_requests import (
    Beginning,
    ChangeTopology,
    DeployQuery,
    Request,
    TakeReport,
    Told,
    request_from_json,
    request_to_json,
    tell,
)
from midstream.deployment.protocol.messages import Report
from midstream.deployment.protocol.status import QueryStatus, query_statuses
from midstream.deployment.protocol.wire_format import message_from_bytes, message_to_bytes
from midstream.deployment.sites.connectivity import Connectivity
from midstream.deployment.sites.deployment_directory import COORDINATOR, DeploymentDirectory
from midstream.deployment.sites.durable_files import held_lock, unique_name, write_whole
from midstream.deployment.sites.file_names import check_file_names
from midstream.deployment.sites.message_file import CONTROL, NETWORK, MessageRow, read_messages, write_messages
from midstream.deployment.topology.topology import Topology
from midstream.deployment.topology.topology_events import AddNode, LoseNode
from midstream.errors import BadTopology, MalformedMessage, MidstreamError

__all__ = ["CoordinatorProcess", "CoordinatorStatus", "run_coordinator"]

POLL_SECONDS = 0.05
_LOG = logging.getLogger(__name__)
KEPT_REQUESTS = 1_000
"""How many requests that were taken or refused stay, for those who asked."""
LONGEST_PAUSE_SECONDS = 20.0
"""Between two repetitions of what has not been answered."""


class CoordinatorStatus(msgspec.Struct, frozen=True):
    """What the coordinator knows, for people and tests."""

    is_idle: bool
    committed: int
    """How many generations have been carried out."""
    under_way: dict[str, str]
    """The phase of each generation under way, by query."""
    generations: dict[str, int]
    """The latest generation of each query."""
    stages: dict[str, str]
    """Where each stage is, or is to be."""
    queries: list[QueryStatus]
    topology: msgspec.Raw
    """The nodes and links that there are, as a ``Beginning``."""

    def current_topology(self) -> Topology:
        """The topology as the coordinator knows it."""
        beginning = request_from_json(bytes(self.topology))
        assert isinstance(beginning, Beginning)
        return beginning.topology()


class CoordinatorProcess:
    """The coordinator of a deployment, and what connects it with files."""

    def __init__(self, directory: DeploymentDirectory, log: CoordinatorLog) -> None:
        self._directory = directory
        self._layout = directory.layout()
        self._log = log
        if not log.entries:
            log.append([("", directory.beginning())])
        self.coordinator: Coordinator = log.replay()
        self._losses: Counter[NodeId] = Counter()
        for entry in log:
            self._count_losses(entry)
        self._announced: Connectivity | None = None
        self._announce()
        self._send(self.coordinator.ask_again(everything=True))
        self._write_status()

    def look(self) -> bool:
        """Take the requests and reports that have come; whether there were any."""
        requests = sorted(path for path in self._directory.requests.glob("[!_]*.json") if path.is_file())
        reports = sorted(
            path for site in self._layout.sites for path in self._directory.reports(site).glob("[!_]*.parquet")
        )
        told: list[tuple[str, Told]] = []
        instructions: list[Instruction] = []
        for path in requests:
            instructions += self._take_request(path, told)
        for path in reports:
            for report in _reports_in(path):
                told.append(("", TakeReport(report)))
                instructions += self.coordinator.take(report)
        self._log.append(told)
        for _, entry in told:
            self._count_losses(entry)
        self._announce()
        self._send(instructions)
        if told:
            # Before requests count as taken: who waits for that finds a status that knows of them.
            self._write_status()
        for path in requests:
            if path.exists():
                path.replace(path.with_suffix(".taken"))
        if requests:
            self._remove_old_requests()
        for path in reports:
            path.unlink(missing_ok=True)
        return bool(requests or reports)

    def ask_again(self) -> None:
        """Repeat what has not been answered."""
        self._send(self.coordinator.ask_again())

    def _take_request(self, path: Path, told: list[tuple[str, Told]]) -> list[Instruction]:
        if path.name in self._log.origins:
            return []
        try:
            request = request_from_json(path.read_bytes())
            if isinstance(request, Beginning | TakeReport):
                raise MalformedMessage(f"{path} is no request")
            self._check_names(request)
            self._check_returning(request)
            instructions = tell(self.coordinator, request)
        except (MidstreamError, RecursionError) as problem:
            write_whole(path.with_suffix(".refused"), str(problem).encode(errors="replace"))
            path.unlink()
            return []
        if isinstance(request, DeployQuery):
            self._directory.write_columns(request.plans[0].stage.query, request.columns)
        told.append((path.name, request))
        return instructions

    def _remove_old_requests(self) -> None:
        """Bound what is kept of requests. The log has them all."""
        kept = self._directory.requests
        for path in sorted([*kept.glob("*.taken"), *kept.glob("*.refused")])[:-KEPT_REQUESTS]:
            path.unlink(missing_ok=True)

    def _check_names(self, request: Request) -> None:
        """Refuse new names that make no good files, and new nodes that nobody would run."""
        if isinstance(request, DeployQuery):
            check_file_names("a query", [request.plans[0].stage.query], self.coordinator.plan.queries)
        for event in request.events if isinstance(request, ChangeTopology) else ():
            if isinstance(event, AddNode):
                check_file_names("a node", [event.node.id], self.coordinator.topology.nodes)
                site = self._layout.site_of(event.node.id)
                if self._directory.given_up(site).exists():
                    raise BadTopology(
                        f'node "{event.node.id}" would run on site "{site}", which was given up',
                        detail="Nodes that no site names run on the first one.",
                    )

    def _check_returning(self, request: Request) -> None:
        """Refuse the return of a lost node as long as its state is needed: it would be taken for having it."""
        for event in request.events if isinstance(request, ChangeTopology) else ():
            if isinstance(event, AddNode) and self.coordinator.is_rescuing_from(event.node.id):
                raise BadTopology(
                    f'node "{event.node.id}" was lost, and its stages do not run elsewhere yet',
                    hint="Add it again when they do, or under another name.",
                )

    def _announce(self) -> None:
        """Tell every site which nodes and links are there, if that has changed."""
        there = Connectivity.of(self._log.entries, self.coordinator.topology, self._losses)
        if self._announced != msgspec.structs.replace(there, version=0):
            self._announced = msgspec.structs.replace(there, version=0)
            for site in self._layout.sites:
                self._write(site, [MessageRow(NETWORK, "", there.to_bytes())])

    def _count_losses(self, entry: Beginning | Told) -> None:
        if isinstance(entry, ChangeTopology):
            self._losses.update(event.node for event in entry.events if isinstance(event, LoseNode))

    def _send(self, instructions: list[Instruction]) -> None:
        by_site: dict[str, list[MessageRow]] = {}
        for node, message in instructions:
            row = MessageRow(CONTROL, node, message_to_bytes(message))
            by_site.setdefault(self._layout.site_of(node), []).append(row)
        for site, rows in by_site.items():
            self._write(site, rows)

    def _write(self, site: str, rows: list[MessageRow]) -> None:
        if self._directory.given_up(site).exists():
            # Nobody would ever read it.
            return
        write_messages(self._directory.inbox(site, "coordinator") / f"{unique_name()}.parquet", rows)

    def _write_status(self) -> None:
        coordinator = self.coordinator
        queries = list(coordinator.plan.queries)
        status = CoordinatorStatus(
            coordinator.is_idle,
            coordinator.committed,
            {generation.query: generation.phase for generation in coordinator.under_way()},
            {query: coordinator.generation(query) for query in queries},
            {stage: node for query in queries for stage, node in coordinator.placement.of(query).nodes.items()},
            query_statuses(coordinator),
            msgspec.Raw(request_to_json(Beginning.of(coordinator.topology))),
        )
        write_whole(self._directory.status, msgspec.json.encode(status))


def _reports_in(path: Path) -> list[Report]:
    """The reports of a file. One that cannot be read is ignored: reports are repeated."""
    try:
        found = [message_from_bytes(row.blob) for row in read_messages(path)]
    except MidstreamError as problem:
        _LOG.warning("ignored %s: %s", path, problem)
        return []
    return [report for report in found if isinstance(report, Report)]


def run_coordinator(
    directory: str | os.PathLike[str],
    *,
    ask_again_seconds: float = 3.0,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Run the coordinator of a deployment until ``stop`` says so.

    Raises AlreadyRunning if another process does.
    """
    paths = DeploymentDirectory(directory)
    paths.layout()
    with (
        held_lock(paths.lock(COORDINATOR), f"the coordinator of {paths.path}"),
        CoordinatorLog.open(paths.log) as log,
    ):
        process = CoordinatorProcess(paths, log)
        asked, pause = time.monotonic(), ask_again_seconds
        while not stop():
            if process.look():
                asked, pause = time.monotonic(), ask_again_seconds
            elif time.monotonic() - asked > pause:
                process.ask_again()
                # A site that is down need not find hundreds of copies when it is back.
                asked, pause = time.monotonic(), min(2 * pause, LONGEST_PAUSE_SECONDS)
            else:
                time.sleep(POLL_SECONDS)


def main() -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    try:
        run_coordinator(sys.argv[1], stop=stopped.is_set)
    except MidstreamError as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
