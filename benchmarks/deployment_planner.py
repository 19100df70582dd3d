"""Planning a redeployment costs what the events break, not what the topology holds.

A topology of 10,000 nodes (cloud, regions, edge nodes, devices) runs 1,000 queries of four joins over eight devices
each. A batch of events moves random devices to random edge nodes (a removed and an added link each); measured is the
time to amend the placement, and to compute the deployment contexts of the affected queries. Bars: a batch of 100
events is amended in at most 1 s, and takes at most twice as long on a hundred times as many nodes.

The counts per batch of ISQD's published set-ups say how much is redeployed, incrementally and holistically, beside
the remote calls of its reference implementation: holistically 4 for each fragment, incrementally about 5m+2 for a
stateless query with m moving devices.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections import Counter
from random import Random
from typing import Any, NamedTuple

from benchmarks.measuring import Bar, save
from midstream.deployment.placement.deployment_context import (
    Redeployment,
    ToBeDeployed,
    ToBeUpdated,
    deploy,
    redeploy,
    redeploy_holistically,
)
from midstream.deployment.placement.fragments import DeployedQuery
from midstream.deployment.placement.global_plan import GlobalPlan, Stage
from midstream.deployment.placement.initial_placement import initial_placement
from midstream.deployment.placement.placement_amendment import amend
from midstream.deployment.topology.published_traces import SETUPS, PublishedSetup
from midstream.deployment.topology.topology import Link, Node, Topology
from midstream.deployment.topology.topology_events import AddLink, RemoveLink, TopologyEvent

NODES, EVENTS = 10_000, 100
SIZES = (1_000, 10_000, 100_000)
EVENT_COUNTS = (10, 100, 1_000)
BATCHES = 15
SOURCES = 8
COUNTED_BATCHES = 60


class Seconds(NamedTuple):
    """What one batch takes."""

    to_amend: float
    cpu_to_amend: float
    cpu_for_contexts: float


class World:
    """A deployment whose devices move at random."""

    def __init__(self, nodes: int) -> None:
        self.random = Random(nodes)
        regions = [f"region {number}" for number in range(10)]
        self.edges = [f"edge {number}" for number in range(nodes // 11)]
        self.devices = [f"device {number}" for number in range(nodes - 11 - len(self.edges))]
        self.topology = Topology([Node("cloud"), *map(Node, regions), *(Node(edge, 65_535) for edge in self.edges)])
        for region in regions:
            self.topology.add_link(Link(region, "cloud"))
        for number, edge in enumerate(self.edges):
            self.topology.add_link(Link(edge, regions[number % len(regions)]))
        self.parents: dict[str, str] = {}
        for number, device in enumerate(self.devices):
            # The devices of a query begin at one edge node.
            self.parents[device] = self.edges[number // SOURCES % len(self.edges)]
            self.topology.add_node(Node(device, 1))
            self.topology.add_link(Link(device, self.parents[device]))
        self.plan = GlobalPlan(
            stage for query in range(nodes // 10) for stage in self._query(f"query {query}", query * SOURCES)
        )
        self.placement = initial_placement(self.plan, self.topology)
        self.deployed = {query: deploy(self.plan, self.placement.of(query)).after for query in self.plan.queries}

    def _query(self, name: str, first: int) -> list[Stage]:
        sources = [Stage(f"{name}/{device}", name, (), device) for device in self.devices[first : first + SOURCES]]
        joins = [
            Stage(f"{name}/join {number}", name, (left.id, right.id), is_stateful=True)
            for number, (left, right) in enumerate(zip(sources[::2], sources[1::2], strict=True))
        ]
        return [*sources, *joins, Stage(f"{name}/sink", name, tuple(join.id for join in joins), "cloud")]

    def batch(self, events: int) -> list[TopologyEvent]:
        """So many events: moves of devices."""
        batch: list[TopologyEvent] = []
        for device in self.random.sample(self.devices, events // 2):
            parent = self.random.choice(self.edges)
            if parent == self.parents[device]:
                parent = self.edges[self.edges.index(parent) - 1]
            batch += [RemoveLink(device, self.parents[device]), AddLink(Link(device, parent))]
            self.parents[device] = parent
        return batch

    def measure(self, events: int) -> Seconds:
        """Amend a batch of so many events and compute the contexts of the queries that it affects."""
        batch = self.batch(events)
        start, cpu_start = time.perf_counter(), time.process_time()
        amendment = amend(self.plan, self.topology, self.placement, batch)
        amended, cpu_amended = time.perf_counter(), time.process_time()
        for query, change in amendment.queries.items():
            self.deployed[query] = redeploy(self.plan, self.deployed[query], change, self.topology).after
        return Seconds(amended - start, cpu_amended - cpu_start, time.process_time() - cpu_amended)


def medians(cases: dict[int, tuple[World, int]]) -> dict[int, Seconds]:
    """Median seconds of each world and number of events; in turns, so that a busy machine disturbs all alike."""
    measured: dict[int, list[Seconds]] = {name: [] for name in cases}
    for _ in range(BATCHES):
        for name, (world, events) in cases.items():
            measured[name].append(world.measure(events))
    return {name: Seconds(*map(statistics.median, zip(*times, strict=True))) for name, times in measured.items()}


def kinds(redeployment: Redeployment) -> Counter[str]:
    """How many contexts there are of each kind."""
    names = {ToBeDeployed: "deploy", ToBeUpdated: "update"}
    return Counter(names.get(type(context), "undeploy") for context in redeployment.contexts)


def counts(setup: PublishedSetup) -> dict[str, Any]:
    """What a batch of a published set-up redeploys, on average per query and batch."""
    trace, plan = setup.trace(), setup.plan()
    placement = initial_placement(plan, trace.topology)
    deployed: dict[str, DeployedQuery] = {q: deploy(plan, placement.of(q)).after for q in plan.queries}
    fragments = sum(len(query.fragments) for query in deployed.values()) / len(deployed)
    totals: Counter[str] = Counter()
    holistic = 0
    batches = trace.batches[:COUNTED_BATCHES]
    for batch in batches:
        amendment = amend(plan, trace.topology, placement, batch.events)
        for query, change in amendment.queries.items():
            holistic += len(redeploy_holistically(plan, deployed[query], change.after, trace.topology).contexts)
            redeployment = redeploy(plan, deployed[query], change, trace.topology)
            totals += kinds(redeployment)
            totals["entry points"] += len(redeployment.entry_points)
            totals["migrations"] += len(redeployment.migrations)
            deployed[query] = redeployment.after
    each = len(batches) * len(deployed)
    contexts = totals["deploy"] + totals["update"] + totals["undeploy"]
    return {
        "fragments": fragments,
        "contexts": contexts / each,
        **{kind: totals[kind] / each for kind in ("deploy", "update", "undeploy", "entry points", "migrations")},
        "contexts, holistic": holistic / each,
        "holistic to incremental": holistic / contexts,
        "remote calls of the reference": None if setup.is_stateful else 5 * setup.mobile + 2,
        "remote calls of the reference, holistic": 4 * (setup.sources + setup.sources // (1 + setup.is_stateful) + 1),
    }


def main() -> bool:
    """Time by events and by nodes, and counts for the published set-ups."""
    worlds = {size: World(size) for size in SIZES}
    # The worlds are large and stay: the collector would spend its time on them.
    gc.freeze()
    by_nodes = medians({size: (world, EVENTS) for size, world in worlds.items()})
    by_events = medians({events: (worlds[NODES], events) for events in EVENT_COUNTS})
    published = {name: counts(setup) for name, setup in SETUPS.items()}
    ratios = {name: figures["holistic to incremental"] for name, figures in published.items()}
    return save(
        "deployment_planner",
        {
            "nodes, queries, events": f"{NODES:,}, {NODES // 10:,}, {EVENTS}",
            "seconds to amend": by_nodes[NODES].to_amend,
            "CPU seconds by nodes": _listed(by_nodes),
            "CPU seconds by events": _listed(by_events),
            "a hundred times the nodes": by_nodes[SIZES[-1]].cpu_to_amend / by_nodes[SIZES[0]].cpu_to_amend,
            "holistic to incremental contexts": f"{min(ratios.values()):.1f} to {max(ratios.values()):.1f}",
        },
        Bar("seconds to amend", 1.0),
        Bar("a hundred times the nodes", 2.0),
        details={"published set-ups, per query and batch": published},
    )


def _listed(measured: dict[int, Seconds]) -> str:
    return ", ".join(
        f"{count:,}: {seconds.cpu_to_amend:.4f} to amend, {seconds.cpu_for_contexts:.4f} for contexts"
        for count, seconds in measured.items()
    )


if __name__ == "__main__":
    main()
