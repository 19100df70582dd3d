"""A deployment in this process: queries over a topology whose links are simulated, on a virtual clock.

The nodes, the coordinator and their protocol are those that run on Spark sites; only the messages between them pass
through a simulation. So a topology, its queries and a trace of events can be tried out in seconds, with the same
placements, the same fragments and the same results.

>>> import pyarrow as pa
>>> from midstream import ContinuousQuery, Stream
>>> from midstream.deployment import Deployment, Link, Node, Topology, move
>>> topology = Topology(
...     [Node("cloud"), Node("edge 1"), Node("edge 2"), Node("train", slots=1), Node("station", slots=1)],
...     [Link("edge 1", "cloud"), Link("edge 2", "cloud"), Link("train", "edge 1"), Link("station", "edge 1")])
>>> schema = pa.schema({"ts": pa.int64(), "id": pa.int64()})
>>> query = ContinuousQuery(
...     "SELECT d.id FROM doors [RANGE 10] d, tickets [RANGE 10] t WHERE d.id = t.id",
...     streams=[Stream("doors", schema, "ts"), Stream("tickets", schema, "ts")])
>>> deployment = Deployment(topology)
>>> deployment.deploy("boarding", query, sources={"doors": ["train"], "tickets": ["station"]}, sink="cloud")
>>> deployment.push("train", "doors", pa.table({"ts": [1], "id": [7]}))
>>> deployment.settle()
>>> deployment.apply([*move("train", "edge 1", "edge 2"), *move("station", "edge 1", "edge 2")])
>>> deployment.push("station", "tickets", pa.table({"ts": [3], "id": [7]}))
>>> deployment.settle()
>>> [fragment.node for fragment in deployment.fragments("boarding") if "boarding/join-1" in fragment.stages]
['edge 2']
>>> deployment.results("boarding").to_pylist()
[{'id': 7, 'valid_from': 3, 'valid_to': 12}]
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from midstream.algebra.plan import Plan
from midstream.algebra.window_spec import NEVER
from midstream.deployment.placement.fragments import Fragment
from midstream.deployment.placement.global_plan import NodeId
from midstream.deployment.placement.stage_plans import StagePlan, check_sources, stage_plans
from midstream.deployment.protocol.status import DeploymentStatus, status_of
from midstream.deployment.simulation import Costs, Delivery, Simulation, Unreliability
from midstream.deployment.topology.topology import Link, Topology, check_name, check_time
from midstream.deployment.topology.topology_events import AddLink, RemoveLink, TopologyEvent, checked_events
from midstream.engine.batch import Batch, Layout
from midstream.engine.output import output_schema, to_record_batches
from midstream.errors import (
    BadOption,
    BadTopology,
    DuplicateName,
    FinishedRun,
    NotRunning,
    UnknownNode,
    UnknownStreamPushed,
    did_you_mean,
    quoted,
)
from midstream.migration.strategy_registry import strategy_named
from midstream.planned_query import PlannedQuery
from midstream.runtime.ingest import Ingest
from midstream.runtime.watermark import watermark_ticks

__all__ = ["Deployment", "move"]

LONGEST_SETTLING_MS = 600_000.0


def move(child: NodeId, parent: NodeId, new_parent: NodeId, latency_ms: float = 0.0) -> list[TopologyEvent]:
    """The events of a node that leaves one parent and joins another."""
    return [RemoveLink(child, parent), AddLink(Link(child, new_parent, latency_ms))]


@dataclass
class _DeployedQuery:
    """A query as it was asked for."""

    query: PlannedQuery
    plan: Plan
    sources: Mapping[str, Sequence[NodeId]]
    sink: NodeId
    joins_together: bool
    results: list[Delivery] = field(default_factory=list)
    """What has reached the sink and was not fetched."""

    def stages(self, name: str) -> list[StagePlan]:
        return stage_plans(name, self.plan, self.sources, self.sink, joins_together=self.joins_together)


class Deployment:
    """Queries over a topology, in this process. Time passes in ``settle`` and ``run_for`` only."""

    def __init__(
        self,
        topology: Topology,
        *,
        costs: Costs | None = None,
        unreliability: Unreliability | None = None,
        seed: int = 0,
    ) -> None:
        for given, kind in ((topology, Topology), (costs, Costs | None), (unreliability, Unreliability | None)):
            if not isinstance(given, kind):
                needed = kind.__name__ if isinstance(kind, type) else str(kind).rpartition(".")[2]
                raise BadTopology(f"a deployment needs a {needed}, not a {type(given).__name__}")
        # A copy: what happens to it here is nobody else's business.
        topology = Topology(topology.nodes.values(), topology.links())
        self._simulation = Simulation(topology, costs, unreliability, seed, checks=False)
        self._queries: dict[str, _DeployedQuery] = {}
        self._fetched = 0
        self._is_finished = False

    @property
    def simulation(self) -> Simulation:
        """What brings messages from node to node; for faults and figures."""
        return self._simulation

    @property
    def topology(self) -> Topology:
        """The topology as the coordinator knows it."""
        return self._simulation.coordinator.topology

    @property
    def now(self) -> float:
        """The virtual time, in milliseconds."""
        return self._simulation.now

    # Queries

    def deploy(
        self,
        name: str,
        query: PlannedQuery,
        *,
        sources: Mapping[str, Sequence[NodeId]],
        sink: NodeId,
        plan: str | Plan | None = None,
        joins_together: bool = False,
    ) -> None:
        """Deploy a query. Raises, and changes nothing, if it cannot be placed.

        ``sources`` gives for each stream the nodes where its rows arise, ``sink`` is where results are wanted.
        ``joins_together`` keeps trees of joins in one stage, so that their order can be changed by ``migrate``.
        """
        check_name("a query", name)
        if not isinstance(query, PlannedQuery):
            raise BadOption(f"a {type(query).__name__} is deployed as a query", hint="Give a ContinuousQuery.")
        if not isinstance(sources, Mapping):
            raise BadOption(
                f"the sources of a query are {sources!r}", hint='Give a dictionary: {"stream": ["sensor 1"]}.'
            )
        check_name("the node for the results", sink)
        if name in self._queries:
            raise DuplicateName(f'there is a query "{name}" already', hint="Give it another name.")
        chosen = query.chosen(plan)
        check_sources(query, chosen, sources)
        if sink not in self.topology.nodes:
            raise UnknownNode(
                f"there is no node {sink!r} for the results", hint=did_you_mean(str(sink), self.topology.nodes)
            )
        sources = {stream: tuple(nodes) for stream, nodes in sources.items()}
        deployed = _DeployedQuery(query, chosen, sources, sink, joins_together)
        self._simulation.deploy(deployed.stages(name))
        self._queries[name] = deployed
        self.settle()

    def migrate(self, name: str, plan: str | Plan, strategy: str = "jisc", **options: Any) -> None:
        """Replace the plan of a deployed query inside its stages, wherever they run."""
        strategy_named(strategy, options)
        deployed = self._query(name)
        changed = replace(deployed, plan=deployed.query.chosen(plan))
        self._simulation.migrate(changed.stages(name), strategy, options)
        self._queries[name] = changed

    # Rows

    def push(
        self,
        node: NodeId,
        stream: str,
        table: pa.Table | None,
        watermark: int | datetime.datetime | None = None,
    ) -> None:
        """Rows arise at a node's source of a stream. A row older than its source's watermark is late, and dropped."""
        self._check_source(node, stream)
        declared = next(s for q in self._queries.values() for s in q.query.streams if s.name == stream)
        ticks = watermark_ticks(watermark, declared.time_domain)
        if table is not None:
            Ingest({stream: declared}).check({stream: table})
        # Nothing has changed until here.
        self._simulation.feed(node, stream, table, ticks)

    def finish(self) -> None:
        """End all streams, and let everything arrive. Sources on lost nodes cannot be ended."""
        self._check_not_finished()
        self._is_finished = True
        for node, stream in sorted(self._sources()):
            if node in self._simulation.nodes:
                self._simulation.feed(node, stream, None, NEVER)
        self.settle()

    def results(self, name: str) -> pa.Table:
        """The results of a query that have reached its sink since the last call."""
        deployed = self._query(name)
        for delivery in self._simulation.deliveries[self._fetched :]:
            self._queries[delivery.query].results.append(delivery)
        self._fetched = len(self._simulation.deliveries)
        fetched, deployed.results = deployed.results, []
        schema = output_schema(deployed.plan)
        layout = Layout(deployed.plan.schema)
        batches = [
            batch
            for rows in (delivery.rows for delivery in fetched)
            for batch in to_record_batches(
                Batch.of_arrays(layout, rows.valid_from, rows.valid_to, rows.columns), schema
            )
        ]
        return pa.Table.from_batches(batches, schema)

    # The topology

    def apply(self, events: Sequence[TopologyEvent]) -> None:
        """Change the topology. Raises, and changes nothing, if an event is refused. Queries follow as time passes."""
        self._simulation.change_topology(checked_events(events))

    def settle(self) -> None:
        """Let time pass until nothing is under way and all rows have arrived that can.

        Raises if that takes longer than ``LONGEST_SETTLING_MS`` of virtual time. What is under way goes on.
        """
        simulation, end = self._simulation, self.now + LONGEST_SETTLING_MS
        while not simulation.is_quiet:
            if self.now >= end:
                minutes = round(LONGEST_SETTLING_MS / 60_000)
                raise BadTopology(
                    f"the deployment has not come to rest within {minutes} minutes of its time",
                    detail="What is under way goes on.",
                    hint="Over links of high latency or low bandwidth, let more time pass: run_for(milliseconds).",
                )
            simulation.run_until(self.now + simulation.costs.ask_again)

    def run_for(self, milliseconds: float) -> None:
        """Let time pass."""
        check_time("time cannot pass for", milliseconds)
        self._simulation.run_until(self.now + milliseconds)

    # What is known

    def fragments(self, name: str) -> list[Fragment]:
        """The fragments of a query."""
        self._query(name)
        return list(self._simulation.coordinator.deployed(name).fragments.values())

    def status(self) -> DeploymentStatus:
        """Nodes, fragments, versions, generations and buffered rows."""
        return status_of(self._simulation.coordinator, self._simulation.nodes)

    def _query(self, name: str) -> _DeployedQuery:
        check_name("a query", name)
        if name not in self._queries:
            raise NotRunning(f'no query "{name}" is deployed', hint=did_you_mean(str(name), self._queries))
        return self._queries[name]

    def _check_not_finished(self) -> None:
        if self._is_finished:
            raise FinishedRun("the streams of the deployment have ended", hint="Start another deployment.")

    def _sources(self) -> set[tuple[NodeId, str]]:
        return {
            (node, stream)
            for deployed in self._queries.values()
            for stream, nodes in deployed.sources.items()
            for node in nodes
        }

    def _check_source(self, node: NodeId, stream: str) -> None:
        self._check_not_finished()
        check_name("a node", node)
        check_name("a stream", stream)
        known = self._sources()
        if node not in self._simulation.nodes:
            raise UnknownNode(f'there is no node "{node}"', hint=did_you_mean(str(node), self.topology.nodes))
        if (node, stream) in known:
            return
        here = sorted(of for at, of in known if at == node)
        raise UnknownStreamPushed(
            f'node "{node}" is no source of stream "{stream}"',
            detail=f"It is a source of {quoted(here)}." if here else "It is a source of no stream.",
        )
