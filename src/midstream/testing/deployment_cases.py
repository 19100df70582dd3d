"""Deployment cases: queries deployed on a topology that changes while they run, with faults.

A case has a topology, queries with their rows, and steps that are made one after the other: batches of topology events,
changes of plans, crashes of nodes and of the coordinator, links that flap. A step follows the one before it after some
milliseconds, and may wait for a *moment*: until some generation is being prepared, marked, transferred or committed.
`play` runs the case in the simulation, on the same nodes and the same coordinator as everywhere; `check` compares what
reaches the sinks with the oracle. A case prints as the Python code that makes it, ready to be pasted:

>>> import pyarrow as pa
>>> from midstream import Stream
>>> schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
>>> scenario = Scenario.from_rows(
...     "SELECT x.k FROM s [RANGE 5] x, s [RANGE 3] y WHERE x.k = y.k",
...     [Stream("s", schema, "ts")], [{"s": [(1, 7), (2, 7)]}, {"s": [(3, 7)]}])
>>> case = DeploymentCase(
...     [Node("cloud"), Node("e1"), Node("e2"), Node("d", slots=2)],
...     [Link("e1", "cloud"), Link("e2", "cloud"), Link("d", "e1")],
...     [QueryCase("q", scenario, {"s": ("d",)})],
...     [Step(5.0, Change((RemoveLink("d", "e1"), AddLink(Link("d", "e2"))))), Step(0.0, CrashNode("e1", 9.0), "mark")],
... )
>>> case
DeploymentCase(
    [
        Node('cloud'),
        Node('e1'),
        Node('e2'),
        Node('d', 2),
    ],
    [
        Link('e1', 'cloud'),
        Link('e2', 'cloud'),
        Link('d', 'e1'),
    ],
    [
        QueryCase(
            "q",
            Scenario.from_rows(
                "SELECT x.k FROM s [RANGE 5] x, s [RANGE 3] y WHERE x.k = y.k",
                [
                    Stream("s", pa.schema([("ts", pa.int64()), ("k", pa.int64())]), "ts", 0),
                ],
                [
                    {"s": [(1, 7), (2, 7)]},
                    {"s": [(3, 7)]},
                ],
            ),
            {'s': ('d',)},
        ),
    ],
    [
        Step(5.0, Change((RemoveLink('d', 'e1'), AddLink(Link('d', 'e2'))))),
        Step(0.0, CrashNode('e1', 9.0), 'mark'),
    ],
)
>>> played = case.check()
>>> played.generations, played.met["state moved"], played.met["node crashed during mark"]
(2, 1, 1)
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import pyarrow as pa

from midstream.algebra.plan import Plan
from midstream.algebra.stream import Stream
from midstream.algebra.window_spec import NEVER
from midstream.deployment.placement.stage_plans import StagePlan, stage_plans
from midstream.deployment.protocol.stage_cell import concatenated
from midstream.deployment.simulation import Costs, Simulation, Unreliability
from midstream.deployment.topology.topology import Link, Node, Topology
from midstream.deployment.topology.topology_events import (
    AddLink,
    AddNode,
    LoseNode,
    RemoveLink,
    RemoveNode,
    TopologyEvent,
)
from midstream.engine.fixed_width import wrap_values
from midstream.engine.output import output_schema
from midstream.errors import MigrationRefused, TopologyError
from midstream.runtime.ingest import ticks
from midstream.testing.brute_force import brute_force_snapshots
from midstream.testing.deployment_coverage import DeploymentWatcher, moments
from midstream.testing.deployment_steps import (
    Action,
    Change,
    CrashCoordinator,
    CrashNode,
    Flap,
    Replan,
    Step,
    code_of,
    is_request,
    possible_events,
)
from midstream.testing.equivalence import assert_snapshot_equivalent
from midstream.testing.generators import Scenario
from midstream.testing.migration_cases import plans_of, scenarios_with_less
from midstream.testing.snapshot_series import SnapshotSeries

__all__ = [
    "SINK",
    "DeploymentCase",
    "PlayedDeployment",
    "QueryCase",
    "expected_of",
    "simpler_deployments",
    "with_own_lateness",
]

SINK = "cloud"
"""The node where the results of all queries are wanted."""
ROOM = "room"
"""A node that is added at the end, so that queries find room."""
MOMENT_MS = 300.0
"""A step waits for its moment as long as this."""
REST_MS = 200_000.0
"""A deployment that is not disturbed any more comes to rest within this time."""
_COSTS, _RELIABLE = Costs(), Unreliability()


@dataclass(frozen=True, eq=False, repr=False)
class QueryCase:
    """A query, its rows, and where they arise. Rows of a stream with several sources go to them in turns."""

    name: str
    scenario: Scenario
    sources: Mapping[str, Sequence[str]]
    plan: int = 0
    joins_together: bool = False

    def stage_plans(self, plan: int) -> list[StagePlan]:
        """The stages of the plan at this place among the query's plans."""
        return stage_plans(self.name, self.plan_at(plan), self.sources, SINK, joins_together=self.joins_together)

    def plan_at(self, place: int) -> Plan:
        plans = plans_of(self.scenario)[1]
        return plans[place % len(plans)]

    def __repr__(self) -> str:
        scenario = repr(self.scenario).replace("\n", "\n    ")
        lines = ["QueryCase(", f'    "{self.name}",', f"    {scenario},", f"    {dict(self.sources)!r},"]
        lines += [f"    plan={self.plan},"] * bool(self.plan)
        lines += ["    joins_together=True,"] * self.joins_together
        return "\n".join([*lines, ")"])


@dataclass
class PlayedDeployment:
    """The results of a played case by query, and what happened on the way."""

    results: Mapping[str, pa.Table]
    met: Counter[str]
    generations: int
    faults: int
    simulated_ms: float


@dataclass(frozen=True, eq=False, repr=False)
class DeploymentCase:
    """Queries on a topology, and what happens to them."""

    nodes: Sequence[Node]
    links: Sequence[Link]
    queries: Sequence[QueryCase]
    steps: Sequence[Step] = ()
    push_every: float = 10.0
    """Milliseconds between pushes."""
    costs: Costs = _COSTS
    unreliability: Unreliability = _RELIABLE
    chunk_bytes: int = 1 << 16
    seed: int = 0
    """Of what happens to control messages."""

    def play(self) -> PlayedDeployment:
        """Run the case. Raises if an invariant is broken, or if the deployment does not come to rest."""
        return _Player(self).play()

    def check(self, expected: Mapping[str, SnapshotSeries] | None = None) -> PlayedDeployment:
        """Run the case and fail unless its results are the expected ones, by default the oracle's."""
        played = self.play()
        for query in self.queries:
            series = query.scenario.expected() if expected is None else expected[query.name]
            assert_snapshot_equivalent(played.results[query.name], series)
        return played

    def __repr__(self) -> str:
        lines = ["DeploymentCase("]
        for part in (self.nodes, self.links, self.queries, self.steps):
            lines += ["    [", *(f"        {code_of(one)},".replace("\n", "\n        ") for one in part), "    ],"]
        for option in fields(self)[4:]:
            value = getattr(self, option.name)
            lines += [f"    {option.name}={code_of(value)},"] * (value != option.default)
        return "\n".join([*lines, ")"])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show falsifying examples as code too."""
        printer.text(repr(self))


def expected_of(queries: Sequence[QueryCase]) -> dict[str, SnapshotSeries]:
    """What the queries must give, by the brute force, which is quicker than the oracle where there are few rows."""
    return {
        query.name: brute_force_snapshots(query.scenario.query_text, query.scenario.streams, query.scenario.tables)
        for query in queries
    }


def with_own_lateness(scenario: Scenario) -> Scenario:
    """The scenario with streams that declare as much lateness as their own rows have.

    In a single run a row is late by the watermark of all streams, in a deployment by that of its own source.
    """
    streams = []
    for stream in scenario.streams:
        newest, most = None, 0
        for push in scenario.pushes:
            if (table := push.rows.get(stream.name)) is None:
                continue
            times, timed = ticks(pa.concat_arrays(table.column(stream.event_time).chunks))
            known = [int(time) for time in times[timed]]
            if known and newest is not None:
                most = max(most, newest - min(known))
            newest = max([*known, *([] if newest is None else [newest])], default=None)
        lateness: Any = datetime.timedelta(microseconds=most) if stream.time_domain.timestamp is not None else most
        streams.append(Stream(stream.name, stream.schema, stream.event_time, lateness))
    return replace(scenario, streams=tuple(streams))


class _Player(DeploymentWatcher):
    """Runs a case."""

    def __init__(self, case: DeploymentCase) -> None:
        super().__init__()
        self._case = case
        self._actual = Topology(case.nodes, case.links)
        """The topology as it is; the coordinator may not have heard of the latest changes."""
        self._pending = list(case.steps)
        self._due: float | None = None
        self._last_change = 0.0
        self._last_batch: set[TopologyEvent] = set()
        self._faults = 0
        self._waiting: dict[tuple[str, str], list[tuple[pa.Table | None, int | None]]] = {}
        self._all_readers: dict[tuple[str, str], int] = {}
        self._sources = {node for query in case.queries for nodes in query.sources.values() for node in nodes}
        simulation = Simulation(
            Topology(case.nodes, case.links), case.costs, case.unreliability, case.seed, case.chunk_bytes
        )
        self.watch(simulation)

    def play(self) -> PlayedDeployment:
        case, simulation = self._case, self.simulation
        pending, self._pending = self._pending, []
        for query in case.queries:
            simulation.deploy(query.stage_plans(query.plan))
        simulation.run_until_quiet(REST_MS)
        for query in case.queries:
            for stream, nodes in query.sources.items():
                self._all_readers |= {(node, stream): self._readers(node, stream) for node in nodes}
        self._last_change = simulation.now
        self._pending = pending
        for query in self._feeding():
            for number in range(len(query.scenario.pushes)):
                simulation.at(simulation.now + number * case.push_every, partial(self._feed, query, number))
        self._expect_step()
        fed = simulation.now + case.push_every * max(len(query.scenario.pushes) for query in case.queries)
        while self._pending or simulation.now < fed:
            simulation.run_until(simulation.now + 50.0)
        self._heal()
        for query in self._feeding():
            for stream, nodes in query.sources.items():
                for node in nodes:
                    self._feed_source(node, stream, None, NEVER)
        while any(self._waiting.values()):
            simulation.run_until(simulation.now + 50.0)
            assert simulation.now < fed + 10 * REST_MS, "a source does not come back"
        simulation.run_until_quiet(REST_MS)
        simulation.check_at_rest()
        unreliable = case.unreliability
        if unreliable.lost and unreliable.doubled:
            self.meet("control messages lost and doubled")
        self.met["generation given up"] += simulation.coordinator.given_up
        return PlayedDeployment(
            {query.name: self._results(query) for query in case.queries},
            self.met,
            simulation.coordinator.committed,
            self._faults,
            simulation.now,
        )

    # Rows

    def _feeding(self) -> Iterator[QueryCase]:
        """The queries whose sources are not those of an earlier one."""
        fed: set[str] = set()
        for query in self._case.queries:
            nodes = {node for own in query.sources.values() for node in own}
            if nodes.isdisjoint(fed):
                yield query
            fed |= nodes

    def _feed(self, query: QueryCase, number: int) -> None:
        push = query.scenario.pushes[number]
        for stream, nodes in query.sources.items():
            table = push.rows.get(stream)
            for place, node in enumerate(nodes):
                own = None
                if table is not None:
                    rows = [row for row in range(table.num_rows) if (row + number) % len(nodes) == place]
                    own = table.take(pa.array(rows, pa.int64()))
                self._feed_source(node, stream, own, push.watermark)

    def _feed_source(self, node: str, stream: str, table: pa.Table | None, watermark: int | None) -> None:
        """Rows arise at a source; as long as its stages do not run there they wait."""
        self._waiting.setdefault((node, stream), []).append((table, watermark))
        self._feed_waiting()

    def _feed_waiting(self) -> None:
        for (node, stream), waiting in self._waiting.items():
            if waiting and self._readers(node, stream) == self._all_readers[node, stream]:
                for table, watermark in waiting:
                    self.simulation.feed(node, stream, table, watermark)
                waiting.clear()

    def _readers(self, node: str, stream: str) -> int:
        """How many stages on a node take the rows of a stream."""
        if node not in self.simulation.nodes:
            return 0
        sources = [instance.plan.source for instance in self.simulation.nodes[node].running.values()]
        return sum(source is not None and source.stream.name == stream for source in sources)

    def _results(self, query: QueryCase) -> pa.Table:
        plan = query.plan_at(query.plan)
        pieces = [delivery.rows for delivery in self.simulation.deliveries if delivery.query == query.name]
        rows = concatenated(pieces, [column.type for column in plan.schema])
        schema = output_schema(plan)
        time_type, ends = schema.field("valid_from").type, rows.valid_to != NEVER
        valid_from = wrap_values(rows.valid_from, None, time_type)
        valid_to = wrap_values(rows.valid_to, None if ends.all() else ends, time_type)
        return pa.Table.from_arrays([*rows.columns, valid_from, valid_to], schema=schema)

    # Steps

    def _expect_step(self) -> None:
        """Make sure that something happens when the next step is due."""
        self._due = None
        if self._pending:
            self._due = self.simulation.now + self._pending[0].after
            for time in (self._due, self._due + MOMENT_MS):
                self.simulation.at(time, lambda: None)

    def passed(self) -> None:
        super().passed()
        self._feed_waiting()
        while self._pending and self._due is not None and self._is_time(self._pending[0]):
            self._make(self._pending.pop(0).action)
            self._expect_step()

    def _is_time(self, step: Step) -> bool:
        now = self.simulation.now
        assert self._due is not None
        if now < self._due:
            return False
        if is_request(step.action) and not self._can_be_asked():
            return False
        return step.moment is None or now >= self._due + MOMENT_MS or step.moment in moments(self.simulation)

    def _can_be_asked(self) -> bool:
        """Whether the coordinator is there and has heard of all that happened."""
        costs = self._case.costs
        return self.simulation.coordinator_is_up and self.simulation.now > self._last_change + costs.monitor

    def _make(self, action: Action) -> None:
        simulation = self.simulation
        match action:
            case Change(events):
                self._change(events)
            case Replan(name, plan, strategy, options):
                (query,) = (query for query in self._case.queries if query.name == name)
                try:
                    simulation.migrate(query.stage_plans(plan), strategy, options)
                except MigrationRefused:
                    assert not query.joins_together or len({*map(repr, plans_of(query.scenario)[1])}) > 1
            case CrashNode(node, back_after):
                if node in simulation.nodes:
                    self.meet_during("node crashed")
                    self._faults += 1
                    simulation.crash(node, back_after)
            case CrashCoordinator(back_after):
                self.meet_during("coordinator crashed")
                self._faults += 1
                simulation.crash_coordinator(back_after)
            case Flap(one, other, back_after):
                if self._actual.link(one, other) is not None:
                    self.meet("link flapped")
                    self._faults += 1
                    simulation.flap(one, other, back_after)

    def _change(self, events: Sequence[TopologyEvent]) -> None:
        if self._can_be_asked():
            # Removed nodes are switched off when the coordinator needs nothing of theirs any more.
            for node in set(self._actual.leaving) - set(self.simulation.coordinator.topology.leaving):
                self._actual.forget(node)
        possible: list[TopologyEvent] = []
        may_be_refused = is_request(Change(tuple(events)))
        try:
            with self._actual.transaction():
                possible = possible_events(self._actual, events)
                if may_be_refused and possible:
                    self.simulation.request_change(possible)
        except TopologyError:
            self.meet("request refused")
            return
        if not possible:
            return
        self.meet_during("batch")
        for event in possible:
            match event:
                case RemoveNode():
                    self.meet("node removed")
                case LoseNode():
                    self.meet("node lost")
                    self.meet_during("node lost")
                    if event.node in self._sources:
                        self.meet("source lost")
                    self._faults += 1
                case AddNode(returned):
                    self.meet("node added")
                    if returned.id in self._sources:
                        self.meet("source came back")
        added = {(e.link.child, e.link.parent) for e in self._last_batch if isinstance(e, AddLink)}
        if any(isinstance(event, RemoveLink) and (event.child, event.parent) in added for event in possible):
            self.meet("batch reverted")
        self._last_batch = set(possible)
        if not may_be_refused:
            self._last_change = self.simulation.now
            self.simulation.change_topology(possible)

    def _heal(self) -> None:
        """Bring sources back that are gone, connect whatever is cut off, and make room."""
        nodes = {node.id: node for node in self._case.nodes}
        until = self.simulation.now + REST_MS
        while gone := sorted(self._sources - self._actual.nodes.keys()) or not self._can_be_asked():
            assert self.simulation.now < until, "a source cannot come back"
            if self._can_be_asked() and not isinstance(gone, bool):
                self._change([AddNode(nodes[gone[0]]), AddLink(Link(gone[0], SINK))])
            self.simulation.run_until(self.simulation.now + 50.0)
        missing = [node for node in self._actual.nodes if self._actual.path(node, SINK) is None]
        events: list[TopologyEvent] = [AddLink(Link(node, SINK)) for node in missing]
        stuck = [node for node in self._actual.leaving if self._actual.state_path(node, SINK) is None]
        events += [LoseNode(node) for node in stuck]
        # Beside all nodes with few slots: also what must run between two stages there finds room.
        few = [n.id for n in self._actual.nodes.values() if n.slots is not None and n.id not in self._sources]
        if few:
            events += [AddNode(Node(ROOM)), *(AddLink(Link(ROOM, node, is_peer=True)) for node in few)]
        self._change(events)


def simpler_deployments(case: DeploymentCase) -> Iterator[DeploymentCase]:
    """The case without one of its steps, events, queries, pushes or rows, or with a simpler option."""
    steps = list(case.steps)
    for place in reversed(range(len(steps))):
        yield replace(case, steps=[*steps[:place], *steps[place + 1 :]])
    for place, step in enumerate(steps):
        if isinstance(step.action, Change):
            events = step.action.events
            for gone in range(len(events)) if len(events) > 1 else ():
                fewer = replace(step, action=Change((*events[:gone], *events[gone + 1 :])))
                yield replace(case, steps=[*steps[:place], fewer, *steps[place + 1 :]])
        if step.moment is not None:
            yield replace(case, steps=[*steps[:place], replace(step, moment=None), *steps[place + 1 :]])
    if len(case.queries) > 1:
        for query in case.queries:
            yield replace(case, queries=[query])
    for option in fields(case)[4:]:
        if getattr(case, option.name) != option.default:
            simpler: dict[str, Any] = {option.name: option.default}
            yield replace(case, **simpler)
    for place, query in enumerate(case.queries):
        for scenario in scenarios_with_less(query.scenario):
            fewer_rows = replace(query, scenario=scenario)
            yield replace(case, queries=[*case.queries[:place], fewer_rows, *case.queries[place + 1 :]])
