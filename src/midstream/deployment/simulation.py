"""A discrete-event simulation: the same nodes and the same coordinator, on a virtual clock, with links that can fail.

Nothing in here decides anything about queries: it brings messages from one to another, late or not at all. A message
takes its link's latency and the time that its bytes need, after those before it; a cut link loses everything that is on
its way. A node works on all that has come, which takes it a while (``Costs``), and takes what comes meanwhile in its
next step. Control messages do not use the links; they may be lost or doubled. A node that crashes loses its memory and
goes on from what it has stored; the coordinator goes on from its log. Everything is determined by the seed.

Times are in milliseconds.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from midstream.deployment.placement.global_plan import NodeId, StageId
from midstream.deployment.placement.stage_plans import StagePlan
from midstream.deployment.protocol.coordinator import Coordinator, Instruction
from midstream.deployment.protocol.coordinator_log import CoordinatorLog
from midstream.deployment.protocol.coordinator_requests import (
    ChangeTopology,
    CoordinatorInput,
    DeployQuery,
    InitialTopology,
    ReplacePlans,
    TakeReport,
    handle,
)
from midstream.deployment.protocol.invariants import check_at_rest, check_committed, check_retention
from midstream.deployment.protocol.lost_nodes import LostNodeQuestion, answer_for_lost_node, with_earlier_stages
from midstream.deployment.protocol.messages import (
    Control,
    EnterMarker,
    Envelope,
    Prepare,
    ProvideState,
    Report,
    RerouteState,
    RescueState,
    StateChunk,
)
from midstream.deployment.protocol.node_runtime import Arrival, NodeRuntime, Outgoing
from midstream.deployment.protocol.node_storage import restored_node, store_node
from midstream.deployment.simulation_costs import Costs, Unreliability, bytes_of, rows_arrived, rows_in
from midstream.deployment.simulation_watcher import Delivery, Figures, Watcher
from midstream.deployment.topology.topology import Link, Topology
from midstream.deployment.topology.topology_events import (
    AddLink,
    AddNode,
    LoseNode,
    RemoveLink,
    RemoveNode,
    TopologyEvent,
)
from midstream.errors import BadTopology, NotSettled

__all__ = ["Costs", "Delivery", "Figures", "Simulation", "Unreliability", "Watcher"]

_COMPACT_AFTER = 20
"""The coordinator's log is compacted when it has more entries."""


@dataclass
class _Wire:
    """One direction of a link."""

    latency: float
    bandwidth: float | None
    """Bytes per millisecond."""
    is_up: bool = True
    cuts: int = 0
    free_at: float = 0.0


@dataclass
class _Place:
    """A node in the simulation."""

    node: NodeRuntime
    control: list[Control] = field(default_factory=list)
    envelopes: list[Envelope] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    is_up: bool = True
    is_scheduled: bool = False
    crashes: int = 0
    free_at: float = 0.0
    stored: dict[str, bytes] = field(default_factory=dict)
    owned: tuple[StageId, ...] = ()
    """The stages that ran here when their owners were last checked."""


class Simulation:
    """A topology with queries on it, and its clock."""

    def __init__(
        self,
        topology: Topology,
        costs: Costs | None = None,
        unreliability: Unreliability | None = None,
        seed: int = 0,
        chunk_bytes: int = 1 << 16,
        watcher: Watcher | None = None,
        coordinators: Callable[[Topology], Coordinator] = Coordinator,
        nodes: Callable[[NodeId, int], NodeRuntime] = NodeRuntime,
        checks: bool = True,
    ) -> None:
        self.now = 0.0
        self.watcher = watcher or Watcher()
        self.costs = costs or Costs()
        self.deliveries: list[Delivery] = []
        self.figures = Figures()
        self._unreliability = unreliability or Unreliability()
        self._random = random.Random(seed)
        self._chunk_bytes = chunk_bytes
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._wires: dict[tuple[NodeId, NodeId], _Wire] = {}
        self._places: dict[NodeId, _Place] = {}
        self._log = CoordinatorLog() if coordinators is Coordinator else None
        """None for other coordinators: what they are told may have no form for a log. They must not crash."""
        self._note(InitialTopology.of(topology))
        self._untold: list[CoordinatorInput] = []
        self._disks: dict[NodeId, Mapping[str, bytes]] = {}
        """What lost nodes have stored."""
        self._lost_stages: set[StageId] = set()
        self._owners: dict[StageId, NodeId] = {}
        self._coordinators, self._nodes = coordinators, nodes
        self._checks = checks and coordinators is Coordinator
        """Whether the outboxes of all nodes are checked after every step, which takes longer than the step."""
        self.coordinator = coordinators(topology)
        self.coordinator_is_up = True
        self._threads = [0.0] * (self.costs.threads or 0)
        """When each thread of the coordinator is free again."""
        self._served_until: dict[str, float] = {}
        """When a query's thread has sent all that it has to send."""
        self._working: list[float] = []
        """When the nodes that work now will be done."""
        self._last_checked = 0
        for node in topology.nodes:
            self._add_place(node)
        for link in topology.links():
            self._raise(link)
        self._repeat(self.costs.ask_again, self._ask_again)

    # What happens, and when

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Do something at a time."""
        heapq.heappush(self._events, (max(time, self.now), next(self._order), action))

    def run_until(self, time: float) -> None:
        """Let time pass."""
        if not self.now <= time < float("inf"):
            raise BadTopology(f"time cannot pass from {self.now} ms to {time} ms")
        while self._events and self._events[0][0] <= time:
            self.now, _, action = heapq.heappop(self._events)
            action()
            self.watcher.passed()
        self.now = time

    def run_until_quiet(self, at_most: float | None = None) -> None:
        """Let time pass until all rows have reached their sinks and no generation is under way.

        NotSettled if that takes longer than ``at_most``: by default ten minutes, and more where links are slow or
        control messages are lost.
        """
        patience = self._patience() if at_most is None else at_most
        end = self.now + patience
        while not self.is_quiet:
            if self.now >= end:
                raise NotSettled(
                    f"the deployment has not come to rest within {patience:g} ms",
                    detail="Rows or messages are still on their way, or are lost again and again.",
                    hint="Look at status(). Links may be too slow, or messages lost too often.",
                )
            self.run_until(self.now + self.costs.ask_again)

    def _patience(self) -> float:
        """How long a deployment may take to come to rest that will: it grows with its slowest link, and with losses."""
        slowest = max(
            (wire.latency + (0.0 if wire.bandwidth is None else self._chunk_bytes / wire.bandwidth))
            for wire in [_Wire(0.0, None), *self._wires.values()]
        )
        arriving = max(0.03, 1.0 - self._unreliability.lost)
        return 600_000.0 + 40 * slowest + 1000 * (self.costs.ask_again + 2 * self.costs.control) / arriving**2

    @property
    def is_quiet(self) -> bool:
        """Whether nothing waits anywhere, except for rows of edges that are cut off."""
        cut_off = set(self.coordinator.placement.cut_off())
        return self.coordinator.is_idle and not any(
            place.control or place.envelopes or place.arrivals or not place.is_up or place.node.is_busy(cut_off)
            for place in self._places.values()
        )

    def deploy(self, plans: Sequence[StagePlan]) -> None:
        """Deploy a query."""
        self._tell(DeployQuery(tuple(plans)))

    def migrate(self, plans: Sequence[StagePlan], strategy: str, options: Mapping[str, Any]) -> None:
        """Replace the plans of a query's stages. The coordinator must be there: it may refuse."""
        assert self.coordinator_is_up
        self._tell(ReplacePlans(tuple(plans), strategy, options))

    def feed(self, node: NodeId, stream: str, table: pa.Table | None, at_least: int | None = None) -> None:
        """Rows arise at a source."""
        place = self._places[node]
        place.arrivals.append(Arrival(stream, table, at_least))
        self._schedule(place)

    def change_topology(self, events: Sequence[TopologyEvent]) -> None:
        """The topology changes: links and nodes at once, and the coordinator hears of it."""
        if self.costs.monitor == 0:
            # Refused at once, before anything changes.
            self._tell(ChangeTopology(tuple(events)))
        else:
            self.at(self.now + self.costs.monitor, lambda: self._tell(ChangeTopology(tuple(events))))
        for event in events:
            self._change(event)

    def request_change(self, events: Sequence[TopologyEvent]) -> None:
        """Ask the coordinator, which must be there, for a change that it may refuse: the removal of nodes. Raises if it
        does; otherwise the change is made.
        """
        assert self.coordinator_is_up
        self._tell(ChangeTopology(tuple(events)))
        for event in events:
            self._change(event)

    # Faults

    def crash(self, node: NodeId, back_after: float) -> None:
        """A node loses its memory and all that is on its way to it, and comes back."""
        place = self._places[node]
        if not place.is_up:
            return
        store_node(place.node, place.stored)
        place.is_up = False
        place.crashes += 1
        place.envelopes, place.control = [], []
        self.at(self.now + back_after, lambda: self._come_back(place))

    def crash_coordinator(self, back_after: float) -> None:
        """The coordinator loses its memory, and comes back from its log."""
        if self.coordinator_is_up:
            self.coordinator_is_up = False
            self.at(self.now + back_after, self._coordinator_comes_back)

    def flap(self, one: NodeId, other: NodeId, back_after: float) -> None:
        """A link is interrupted for a while, which nobody reports: everything on its way is lost."""
        wires = [wire for pair in ((one, other), (other, one)) if (wire := self._wires.get(pair)) is not None]
        for wire in wires:
            wire.cuts += 1
            wire.is_up = False

        def back() -> None:
            for wire in wires:
                wire.is_up = True

        self.at(self.now + back_after, back)

    # Nodes

    @property
    def nodes(self) -> Mapping[NodeId, NodeRuntime]:
        """What runs on all nodes that are not lost, also if they have crashed and not come back yet."""
        return {name: place.node for name, place in self._places.items()}

    def _add_place(self, node: NodeId) -> _Place:
        place = self._places[node] = _Place(self._nodes(node, self._chunk_bytes))
        return place

    def _schedule(self, place: _Place) -> None:
        if place.is_up and not place.is_scheduled:
            place.is_scheduled = True
            self.at(max(self.now, place.free_at), lambda: self._step(place))

    def _step(self, place: _Place) -> None:
        place.is_scheduled = False
        if not place.is_up:
            return
        control, place.control = place.control, []
        envelopes, place.envelopes = place.envelopes, []
        arrivals, place.arrivals = place.arrivals, []
        work = self.costs.step + self.costs.row * (sum(map(rows_in, envelopes)) + sum(map(rows_arrived, arrivals)))
        work += self.costs.context * sum(len(m.contexts) for m in control if isinstance(m, Prepare))
        out = place.node.step(control, envelopes, arrivals)
        self.figures.steps += 1
        self._leave(place, out, self.now + self._stretched(work))

    def _stretched(self, work: float) -> float:
        """How long work takes on a machine that others use at the same time."""
        if self.costs.cores is None:
            return work
        while self._working and self._working[0] <= self.now:
            heapq.heappop(self._working)
        work *= max(1.0, (len(self._working) + 1) / self.costs.cores)
        heapq.heappush(self._working, self.now + work)
        return work

    def _leave(self, place: _Place, out: Outgoing, time: float) -> None:
        """What a step gives leaves the node at its end; results at once, because a sink stores them with its state."""
        place.free_at = time
        self._check_owners(place)
        self.deliveries += [Delivery(time, query, rows) for query, rows in out.results]
        crashes = place.crashes

        def leave() -> None:
            if place.crashes != crashes or not place.is_up:
                return
            for envelope in out.envelopes:
                wire = self._wires.get((envelope.path[envelope.place - 1], envelope.node))
                if wire is not None:
                    self._send(wire, envelope)
                else:
                    self.figures.lost_envelopes += 1
            for report in out.reports:
                self._control_message(partial(self._take, report))

        self.at(time, leave)

    def _check_owners(self, place: _Place) -> None:
        """I1: no stage runs on two nodes. I3: nothing is missing in outboxes."""
        if self._checks:
            assert not place.node.refused_snapshots, f"I2: {place.node.last_refusal}"
            check_retention(self.coordinator.plan, self.nodes, self._lost_stages)
        name, running = place.node.name, tuple(place.node.running)
        if running == place.owned:
            return
        place.owned = running
        for stage in running:
            owner = self._owners.get(stage, name)
            if owner != name and owner in self._places:
                assert stage not in self._places[owner].node.running, f"I1: {stage} runs on {owner} and {name}"
            self._owners[stage] = name

    def check_at_rest(self) -> None:
        """The invariants of a deployment in which nothing is under way."""
        check_at_rest(self.coordinator, self.nodes)

    def _come_back(self, place: _Place) -> None:
        if self._places.get(place.node.name) is not place:
            return  # It was lost meanwhile.
        place.node = restored_node(place.node.name, place.stored, self._chunk_bytes)
        place.owned = ()
        place.is_up = True
        self._schedule(place)

    # Links

    def _raise(self, link: Link) -> None:
        bandwidth = None if link.bandwidth_mbit_per_s is None else link.bandwidth_mbit_per_s * 125.0
        for pair in ((link.child, link.parent), (link.parent, link.child)):
            self._wires[pair] = _Wire(link.latency_ms, bandwidth)

    def _cut(self, one: NodeId, other: NodeId) -> None:
        for pair in ((one, other), (other, one)):
            wire = self._wires.pop(pair, None)
            if wire is not None:
                wire.is_up = False
                wire.cuts += 1

    def _send(self, wire: _Wire, envelope: Envelope) -> None:
        self.watcher.sent(envelope)
        size = bytes_of(envelope)
        self.figures.envelopes += 1
        self.figures.bytes += size
        if isinstance(envelope.message, StateChunk):
            self.figures.state_bytes += size
        begins = max(self.now, wire.free_at)
        wire.free_at = begins + (0.0 if wire.bandwidth is None else size / wire.bandwidth)
        cuts = wire.cuts

        def arrive() -> None:
            place = self._places.get(envelope.node)
            if wire.is_up and wire.cuts == cuts and place is not None and place.is_up:
                place.envelopes.append(envelope)
                self._schedule(place)
            else:
                self.figures.lost_envelopes += 1

        self.at(wire.free_at + wire.latency, arrive)

    def _change(self, event: TopologyEvent) -> None:
        match event:
            case AddLink(link):
                self._raise(link)
            case RemoveLink(child, parent):
                self._cut(child, parent)
            case AddNode(node):
                if node.id not in self._places:
                    self._add_place(node.id)
            case RemoveNode():
                # It is switched off when its state has been fetched, which the simulation does not model.
                pass
            case LoseNode(lost):
                place = self._places.pop(lost)
                if place.arrivals:
                    # What has arisen at a source has been taken: only what arises while it is lost waits.
                    place.node.step(arrivals=place.arrivals)
                store_node(place.node, place.stored)
                place.is_up = False
                self._disks[lost] = with_earlier_stages(place.stored, self._disks.get(lost, {}))
                self._lost_stages |= place.node.running.keys()
                for pair in [pair for pair in self._wires if lost in pair]:
                    self._cut(*pair)

    # Control messages

    def _tell(self, told: CoordinatorInput) -> None:
        """The coordinator is told something that must not get lost: it waits until it is there."""
        if not self.coordinator_is_up:
            self._untold.append(told)
            return
        instructions = handle(self.coordinator, told)
        self._note(told)
        self._instruct(instructions, planned=True)

    def _note(self, told: InitialTopology | CoordinatorInput) -> None:
        if self._log is not None:
            self._log.append([("", told)])

    def _take(self, report: Report) -> None:
        if self.coordinator_is_up:
            self.watcher.reported(report)
            told = TakeReport(report)
            self._note(told)
            self._instruct(handle(self.coordinator, told))
            if self.coordinator.committed > self._last_checked:
                self._last_checked = self.coordinator.committed
                check_committed(self.coordinator, report.query, self.nodes)

    def _instruct(self, instructions: Iterable[Instruction], planned: bool = False) -> None:
        """Send messages to nodes: a thread per query, one message after the other."""
        by_query: dict[str, list[Instruction]] = {}
        for node, message in instructions:
            by_query.setdefault(_query_of(message), []).append((node, message))
        for query, own in by_query.items():
            begins = max(self.now, self._served_until.get(query, 0.0))
            if self.costs.threads is not None:
                begins = max(begins, heapq.heappop(self._threads))
            if planned and any(isinstance(message, Prepare) for _, message in own):
                begins += self.costs.plan
            for node, message in own:
                begins += self.costs.call * (len(message.contexts) if isinstance(message, Prepare) else 1)
                self.at(begins, partial(self._control_message, partial(self._hear, node, message)))
            self._served_until[query] = begins
            if self.costs.threads is not None:
                heapq.heappush(self._threads, self._served_until[query])

    def _hear(self, node: NodeId, message: Control) -> None:
        place = self._places.get(node)
        if place is None or not place.is_up:
            return
        if isinstance(message, LostNodeQuestion):
            answer = answer_for_lost_node(message, self._disks.get(message.lost_node, {}))
            if isinstance(answer, Report):
                self._control_message(partial(self._take, answer))
            if not isinstance(answer, ProvideState):
                return
            message = answer
        self.watcher.heard(node, message)
        place.control.append(message)
        self._schedule(place)

    def _control_message(self, arrive: Callable[[], None]) -> None:
        self.figures.control_messages += 1
        unreliability = self._unreliability
        if self._random.random() < unreliability.lost:
            return
        self.at(self.now + self.costs.control, arrive)
        if self._random.random() < unreliability.doubled:
            self.at(self.now + self.costs.control * (1 + self._random.random() * 5), arrive)

    def _ask_again(self) -> None:
        for place in list(self._places.values()):
            if place.is_up and place.node.is_busy():
                buffered = max((len(i.output.messages) for i in place.node.running.values()), default=0)
                self.figures.most_buffered = max(self.figures.most_buffered, buffered)
                self._leave(place, place.node.ask_again(), max(self.now, place.free_at))
        if self.coordinator_is_up:
            self._instruct(self.coordinator.ask_again())
            if self._log is not None and self._log.lines > _COMPACT_AFTER and self.coordinator.can_be_compacted:
                self._log.compact(self.coordinator)

    def _repeat(self, interval: float, action: Callable[[], None]) -> None:
        def act() -> None:
            action()
            self.at(self.now + interval, act)

        self.at(self.now + interval, act)

    def _coordinator_comes_back(self) -> None:
        """All that it was told, told again in the same order, makes the same coordinator."""
        assert self._log is not None
        self.coordinator = self._log.replay()
        self.coordinator_is_up = True
        self._instruct(self.coordinator.ask_again(everything=True))
        untold, self._untold = self._untold, []
        for told in untold:
            self._tell(told)


def _query_of(message: Control) -> str:
    """The query that a message to a node is about; of some, only the stage is known, whose thread is as good."""
    if isinstance(message, EnterMarker):
        return message.marker.query
    return message.stage if isinstance(message, RerouteState | RescueState | ProvideState) else message.query
