"""Queries on three Spark sites whose processes are killed while devices move; their results are compared with DuckDB's.

The topology and its changes follow the rule of ISQD's published set-ups: ten edge nodes below the cloud, and the two
devices of each query move from edge node to edge node, with the join of their streams. Three sites run the nodes, each
a Spark application of its own: the cloud is on one, edge nodes alternate between the other two, so that every move
takes state from one site to another. A *conductor* writes rows to the devices' feeds, gives topology events to the
coordinator, and meanwhile

- kills a site (driver, Java and Python workers) or the coordinator with ``kill -9``, and starts it again after a while;
- interrupts the connection from one site to another for some seconds: all files of messages on the way are lost;
- cuts the link of an edge node to the cloud, and restores it later.

At the end no result may be missing and none repeated.

    python -m tests.spark.chaos_sites --kills 20
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from midstream import ContinuousQuery, Stream
from midstream.deployment.placement.stage_plans import stage_plans
from midstream.deployment.protocol.coordinator_requests import ChangeTopology, DeployQuery
from midstream.deployment.sites.deployment_directory import DeploymentDirectory
from midstream.deployment.topology.published_traces import PublishedSetup
from midstream.deployment.topology.topology import Link
from midstream.deployment.topology.topology_events import AddLink, RemoveLink, TopologyEvent
from midstream.deployment.topology.topology_files import CLOUD
from midstream.testing import join_intervals
from tests.spark.running_sites import COORDINATOR, RunningSites

SETUP = PublishedSetup("chaos", sources=2, mobile=2, batches=10_000, is_stateful=True)
SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "id": pa.int64()})
STREAMS = [Stream(name, SCHEMA, event_time="ts") for name in "ab"]
TEXT = "SELECT a.id AS a, b.id AS b FROM a [RANGE 400], b [RANGE 400] WHERE a.k = b.k"
ROWS, KEYS, TICKS = 30, 25, 300
"""Of a device in one round: so many rows, with keys up to this, over so many ticks."""
ROUND_SECONDS = 4.0
KILLS_PER_MOVE = 2
LONGEST_MOVE_SECONDS = 120.0
SITES = ("centre", "west", "east")


class Conductor:
    """One run."""

    def __init__(self, folder: Path, kills: int, seed: int, queries: int = 10, patience_seconds: float = 900.0) -> None:
        self.folder = folder
        self.kills = kills
        self.patience_seconds = patience_seconds
        self.chance = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.trace = SETUP.trace()
        self.batches = iter(self.trace.batches)
        self.killed: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.rounds = 0
        self.batches_before: dict[str, int] = {}
        """How many micro-batches each site had committed when it was last killed."""
        self.restored_links: list[tuple[float, TopologyEvent]] = []
        self.interrupted: list[tuple[float, str, str]] = []
        """Connections between sites that lose everything, and until when."""
        by_query: dict[int, list[str]] = {}
        for device, group in self.trace.groups.items():
            by_query.setdefault(group, []).append(device)
        self.devices = {f"query {group}": devices for group, devices in sorted(by_query.items())[:queries]}
        self.fed: dict[str, list[pa.Table]] = {device: [] for own in self.devices.values() for device in own}
        self.directory = DeploymentDirectory.create(folder / "deployment", self.trace.topology, self._sites())

    def _sites(self) -> dict[str, list[str]]:
        sites: dict[str, list[str]] = {site: [] for site in SITES}
        sites["centre"].append(CLOUD)
        for place, edge in enumerate(SETUP.edge_nodes):
            sites[("west", "east")[place % 2]].append(str(edge))
        for place, device in enumerate(self.trace.groups):
            sites[SITES[place % 3]].append(device)
        return sites

    def run(self) -> dict[str, object]:
        began = time.monotonic()
        with RunningSites(self.directory, self.folder / "logs") as self.running:
            self.running.start()
            query = ContinuousQuery(TEXT, STREAMS)
            for name, devices in self.devices.items():
                sources = dict(zip("ab", ([device] for device in devices), strict=True))
                plans = stage_plans(name, query.plan(), sources, CLOUD)
                self.running.ask(DeployQuery(tuple(plans), ("a", "b")))
            self.running.wait_until_idle(600)
            print(f"deployed after {time.monotonic() - began:.0f} s", flush=True)
            self._disturb()
            self._restore()
            for devices in self.devices.values():
                for stream, device in zip("ab", devices, strict=True):
                    self.directory.end_feed(device, stream)
            self._wait_for_the_end()
            status = self.running.wait_until_idle(self.patience_seconds)
        report = self._compare()
        report["generations carried out"] = status.committed
        report["seconds"] = round(time.monotonic() - began)
        return report

    # What happens

    def _disturb(self) -> None:
        """Move devices, and kill while the stages follow them; the next move comes when they have, or after a while."""
        next_round = next_move = next_kill = time.monotonic()
        next_fault = next_move + self.chance.uniform(5, 20)
        latest_move = 0.0
        kills = 0
        due: dict[str, float] = {}
        victim = self._next_victim()
        while sum(self.killed.values()) < self.kills or due:
            now = time.monotonic()
            if now >= next_round:
                next_round = now + ROUND_SECONDS
                self._feed()
            if now >= next_move and (self._is_idle() or now > latest_move + LONGEST_MOVE_SECONDS):
                self._submit(next(self.batches).events)
                latest_move, next_move = now, now + self.chance.uniform(1, 3) * ROUND_SECONDS
                kills, next_kill = KILLS_PER_MOVE, now + self.chance.uniform(0, 8)
            if now >= next_fault:
                next_fault = now + self.chance.uniform(5, 20)
                self.chance.choice([self._interrupt, self._cut_link])()
            for name in [name for name, moment in due.items() if now >= moment]:
                del due[name]
                self.running.start(name)
            if kills and now >= next_kill and victim not in due and self._has_worked(victim):
                self.running.kill(victim)
                self.killed["coordinator" if victim == COORDINATOR else "site"] += 1
                self._say(f"killed {victim}")
                self.batches_before[victim] = self._batches(victim)
                due[victim] = now + self.chance.uniform(0, 6)
                next_kill = now + self.chance.uniform(1, 8)
                victim = self._next_victim()
                kills = min(kills - 1, self.kills - sum(self.killed.values()))
            self._restore(now)
            self._lose_messages(now)
            self.running.check()
            time.sleep(0.05)

    def _is_idle(self) -> bool:
        status = self.running.status()
        return status is not None and status.is_idle

    def _next_victim(self) -> str:
        return self.chance.choice([COORDINATOR, *SITES, *SITES])

    def _has_worked(self, name: str) -> bool:
        """Whether a process has done something since it was started: one that never comes to work proves nothing."""
        process = self.running.processes.get(name)
        if process is None or process.poll() is not None:
            return False
        if name == COORDINATOR:
            return time.time() > self.running.started[name] + 10
        return self._batches(name) >= self.batches_before.get(name, 0) + 3

    def _batches(self, site: str) -> int:
        """How many micro-batches a site has committed; the coordinator has none."""
        if site == COORDINATOR:
            return 0
        commits = self.directory.checkpoint(site) / "commits"
        return max((int(path.name) for path in commits.glob("[0-9]*")), default=-1) + 1

    def _feed(self) -> None:
        begin = self.rounds * TICKS
        for devices in self.devices.values():
            for stream, device in zip("ab", devices, strict=True):
                times = np.sort(self.numbers.integers(begin, begin + TICKS, ROWS))
                ids = np.arange(ROWS) + self.rounds * ROWS
                table = pa.table([times, self.numbers.integers(0, KEYS, ROWS), ids], schema=SCHEMA)
                self.fed[device].append(table)
                self.directory.write_feed(device, stream, self.rounds, table)
        self.rounds += 1

    def _submit(self, events: tuple[TopologyEvent, ...]) -> None:
        self.directory.submit(ChangeTopology(events))
        self.faults["topology batches"] += 1

    def _interrupt(self) -> None:
        sender, receiver = self.chance.sample(SITES, 2)
        self.interrupted.append((time.monotonic() + self.chance.uniform(0.5, 5), sender, receiver))
        self.faults["interrupted connections"] += 1

    def _lose_messages(self, now: float) -> None:
        self.interrupted = [each for each in self.interrupted if each[0] > now]
        for _, sender, receiver in self.interrupted:
            for path in self.directory.inbox(receiver, sender).glob("[!_]*.parquet"):
                path.unlink(missing_ok=True)
                self.faults["lost files of messages"] += 1

    def _cut_link(self) -> None:
        edge = str(self.chance.choice(SETUP.edge_nodes))
        if any(event.link.child == edge for _, event in self.restored_links if isinstance(event, AddLink)):
            return
        self.faults["cut links"] += 1
        self.directory.submit(ChangeTopology((RemoveLink(edge, CLOUD),)))
        back = time.monotonic() + self.chance.uniform(1, 12)
        self.restored_links.append((back, AddLink(Link(edge, CLOUD))))

    def _restore(self, now: float = float("inf")) -> None:
        for moment, event in list(self.restored_links):
            if now >= moment:
                self.restored_links.remove((moment, event))
                self.directory.submit(ChangeTopology((event,)))

    def _say(self, text: str) -> None:
        status = self.running.status()
        done = 0 if status is None else status.committed
        print(
            f"{text}: {sum(self.killed.values())} of {self.kills}; round {self.rounds}, {done} generations", flush=True
        )

    # The result

    def _expected(self) -> dict[str, pa.Table]:
        return {
            name: join_intervals(
                TEXT, STREAMS, {s: pa.concat_tables(self.fed[d]) for s, d in zip("ab", devices, strict=True)}
            )
            for name, devices in self.devices.items()
        }

    def _wait_for_the_end(self) -> None:
        expected = sum(table.num_rows for table in self._expected().values())
        until = time.monotonic() + self.patience_seconds
        last = -1
        while (found := sum(self.running.result_count(name) for name in self.devices)) < expected:
            if found != last:
                print(f"{found} of {expected} results", flush=True)
                last = found
            self.running.check()
            if time.monotonic() > until:
                print("the rest does not come", flush=True)
                return
            time.sleep(2)
        # What is repeated would come now.
        time.sleep(10)

    def _compare(self) -> dict[str, object]:
        totals: Counter[str] = Counter()
        for name, wanted in self._expected().items():
            results = self.directory.read_results(name)
            found = wanted.slice(0, 0) if results is None else results
            database = duckdb.connect()
            database.register("found", found.select(["a", "b", "valid_from", "valid_to"]))
            database.register("wanted", wanted.select(["a", "b", "valid_from", "valid_to"]))
            for what, text in (
                ("results", "FROM found"),
                ("missing", "FROM wanted EXCEPT ALL FROM found"),
                ("repeated", "FROM found EXCEPT ALL FROM wanted"),
            ):
                totals[what] += int(database.execute(f"SELECT count(*) FROM ({text})").fetchall()[0][0])
            database.close()
        return {
            **totals,
            "missing": totals["missing"],
            "repeated": totals["repeated"],
            "queries": len(self.devices),
            "killed": dict(self.killed),
            "faults": dict(self.faults),
            "rounds": self.rounds,
            "micro-batches": {site: self._batches(site) for site in SITES},
            "starts": self.running.starts,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--queries", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    # Most of what the sites' Java does is starting: it need not compile well.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    folder = Path(tempfile.mkdtemp(prefix="midstream-chaos-sites-"))
    print(folder, flush=True)
    report = Conductor(folder, chosen.kills, chosen.seed, chosen.queries).run()
    print(json.dumps(report, indent=2))
    if report["missing"] or report["repeated"]:
        sys.exit(f"the result is wrong; everything is kept in {folder}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
