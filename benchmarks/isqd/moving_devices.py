"""A published trace at the scale of this machine: a few queries over four devices each, one of which moves.

Each query joins what two pairs of its devices send; the rows of a pair of one round meet, so a result says when its
rows arose. One more query, with devices, an edge node and a site of its own, is touched by no change.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from midstream import ContinuousQuery, Stream
from midstream.deployment.placement.stage_plans import StagePlan, stage_plans
from midstream.deployment.topology.published_traces import SETUPS
from midstream.deployment.topology.topology import Link, Node, Topology
from midstream.deployment.topology.topology_events import TopologyEvent
from midstream.deployment.topology.topology_files import CLOUD

__all__ = ["STILL", "WINDOW_MS", "Feeder", "Latencies", "MovingDevices", "Outcome", "summary"]

SETUP = SETUPS["stateless_4_sources_1_mobile"]
WINDOW_MS = 20_000
SETTLED_S = 10.0
SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64()})
STREAMS = [Stream(name, SCHEMA, event_time="ts") for name in "ab"]
TEXT = f"SELECT a.k AS k FROM a [RANGE {WINDOW_MS}], b [RANGE {WINDOW_MS}] WHERE a.k = b.k"
STILL = "still"
STILL_EDGE, STILL_DEVICES = "still edge", ("still 1", "still 2")


class MovingDevices:
    """Topology, queries and changes."""

    def __init__(self, queries: int) -> None:
        trace = SETUP.trace()
        self.topology: Topology = trace.topology
        self.topology.add_node(Node(STILL_EDGE))
        self.topology.add_link(Link(STILL_EDGE, CLOUD))
        for device in STILL_DEVICES:
            self.topology.add_node(Node(device, 1))
            self.topology.add_link(Link(device, STILL_EDGE))
        by_group: dict[int, list[str]] = {}
        for device, group in trace.groups.items():
            by_group.setdefault(group, []).append(device)
        chosen = sorted(by_group.items())[:queries]
        self.devices: dict[str, list[str]] = {f"query {group}": devices for group, devices in chosen}
        """Of each query that moves. The first two are a pair, and the last two."""
        self.devices[STILL] = list(STILL_DEVICES)
        self.changes: list[tuple[TopologyEvent, ...]] = [batch.events for batch in trace.batches]

    def sources(self, query: str) -> dict[str, list[str]]:
        devices = self.devices[query]
        return {"a": devices[::2], "b": devices[1::2]}

    def plans(self, query: str) -> Sequence[StagePlan]:
        return stage_plans(query, ContinuousQuery(TEXT, STREAMS).plan(), self.sources(query), CLOUD)

    def sites(self) -> dict[str, list[str]]:
        """The cloud, two sites with the edge nodes and the devices that move, and one for the query that does not."""
        sites: dict[str, list[str]] = {"centre": [CLOUD], "west": [], "east": []}
        for place, edge in enumerate(SETUP.edge_nodes):
            sites[("west", "east")[place % 2]].append(str(edge))
        moving = [device for query, devices in self.devices.items() if query != STILL for device in devices]
        for place, device in enumerate(moving):
            sites[("west", "east")[place % 2]].append(device)
        sites["south"] = [STILL_EDGE, *STILL_DEVICES]
        return sites

    def moved(self, change: int) -> set[str]:
        """The devices of our queries that a change moves."""
        children = {str(getattr(event, "child", "")) for event in self.changes[change]}
        return {device for devices in self.devices.values() for device in devices if device in children}


class Feeder(threading.Thread):
    """Lets rows arise at all devices, a round at a time, until :meth:`end`. ``write`` gets device, stream and round."""

    def __init__(
        self, devices: MovingDevices, write: Callable[[str, str, int, pa.Table], None], every_s: float
    ) -> None:
        super().__init__(daemon=True)
        self._devices = devices
        self._write = write
        self._every_s = every_s
        self._ended = threading.Event()
        self._began = time.time()
        self.arose: dict[tuple[str, int], float] = {}
        """When the rows of a query's pair arose, by query and key: 2 × round, and 1 more for the second pair."""

    def run(self) -> None:
        number = 0
        while not self._ended.wait(max(0.0, self._began + number * self._every_s - time.time())):
            for query, devices in self._devices.devices.items():
                for place, device in enumerate(devices):
                    key = 2 * number + place // 2
                    now = time.time()
                    # The second row of a pair is the later one: a result arises with it.
                    self.arose[query, key] = now
                    table = pa.table([[int(1000 * (now - self._began))], [key]], schema=SCHEMA)
                    self._write(device, "ab"[place % 2], number, table)
            number += 1

    def end(self) -> None:
        self._ended.set()
        self.join()


@dataclass
class Latencies:
    """When the rows of results arose and when they arrived, by query."""

    rows: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    missing: int = 0
    repeated: int = 0

    @classmethod
    def of(cls, arose: dict[tuple[str, int], float], results: dict[str, Iterable[tuple[float, pa.Table]]]) -> Latencies:
        found = cls()
        for query, files in results.items():
            arrived: dict[int, float] = {}
            for moment, table in files:
                for key in table["k"].to_pylist():
                    found.repeated += key in arrived
                    arrived.setdefault(key, moment)
            due = {key: moment for (owner, key), moment in arose.items() if owner == query}
            found.rows[query] = sorted((due[key], moment) for key, moment in arrived.items() if key in due)
            found.missing += len(set(due) - set(arrived))
        return found

    def between(self, begin: float, end: float, queries: Iterable[str]) -> list[float]:
        """Latencies of rows that arose in a time, in seconds."""
        return [arrival - arose for query in queries for arose, arrival in self.rows[query] if begin <= arose < end]

    def are_settled(self, now: float) -> bool:
        """Whether results of the last seconds came no faster than those before: the backlog of the start is gone."""
        for rows in self.rows.values():
            before, last = (
                [arrival - arose for arose, arrival in rows if begin <= now - arrival < begin + SETTLED_S]
                for begin in (SETTLED_S, 0.0)
            )
            if not before or not last or np.median(last) < 0.9 * np.median(before):
                return False
        return True


@dataclass
class Outcome:
    """What one approach did; times in seconds."""

    quiet: list[float]
    during: list[float]
    """Event-time latencies of the queries whose devices move: while nothing changes, and during the changes."""
    still_quiet: list[float]
    still_during: list[float]
    """Of the query that no change touches."""
    deployments: list[float]
    """Of each change: until all that runs has confirmed."""
    flows: list[float]
    """Of each change: until the first rows of the slowest query that arose after it have given a result."""
    touched: float
    """Fragments stopped, started or updated per change."""
    messages: float
    """Between coordinator and sites per change; for native Spark calls of stop and start."""
    missing: int
    repeated: int

    @classmethod
    def of(
        cls,
        latencies: Latencies,
        quiet: tuple[float, float],
        changes: list[tuple[float, float]],
        counts: tuple[float, float],
    ) -> Outcome:
        """``changes``: when each was asked for, and when it was done."""
        moving = [query for query in latencies.rows if query != STILL]
        span = changes[0][0], changes[-1][1]
        flows = []
        for asked, _ in changes:
            first = [min((a for t, a in latencies.rows[q] if t >= asked), default=float("nan")) for q in moving]
            flows.append(max(first) - asked)
        return cls(
            latencies.between(*quiet, moving),
            latencies.between(*span, moving),
            latencies.between(*quiet, [STILL]),
            latencies.between(*span, [STILL]),
            [done - asked for asked, done in changes],
            flows,
            counts[0] / len(changes),
            counts[1] / len(changes),
            latencies.missing,
            latencies.repeated,
        )


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Mean, median, 95th percentile and number of values."""
    if not values:
        return {"mean": None, "median": None, "p95": None, "values": 0}
    found = np.asarray(values)
    return {
        "mean": float(found.mean()),
        "median": float(np.median(found)),
        "p95": float(np.percentile(found, 95)),
        "values": len(found),
    }
