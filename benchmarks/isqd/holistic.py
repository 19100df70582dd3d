"""Holistic redeployment, ISQD's baselines HSQD and HCQD, on our nodes, edges and planner.

On a change, every fragment of each affected query is stopped and deployed anew, without state. Batches of changes are
handled in the order in which they come, each when the one before it is done; within a batch the queries one after the
other (HSQD: ``at_once=1``) or several at once (HCQD: 8). A fragment costs four calls, each of which is answered:

    stop         the stage is gone with its state; a sink says how far its results are final
    forget       (NebulaStream unregisters the plan)
    register     what is to run
    start        sources replay all they have kept from where the sink's results are final, less the windows' length

A device that has moved is cut off until its own batch has been handled, as in the paper's emulation: the coordinator
hears of later changes only then. The next query begins when the calls of the one before have been answered, which is
kinder to HSQD than waiting for data.

Results are exact: a source keeps its rows (upstream backup) until they are final at the sink, and the sink drops what
it has had already, by the frontier of each of its edges, and beyond it row by row. That holds for stateless stages and
joins, whose result rows are the same however rows come in batches; for aggregates only their snapshots are. This lives
with the benchmarks because nobody would want to run it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from midstream.algebra.window_spec import BEGINNING, NEVER
from midstream.deployment.placement.deployment_context import ToBeDeployed, ToBeUndeployed, redeploy_holistically
from midstream.deployment.placement.fragments import DeployedQuery
from midstream.deployment.placement.global_plan import NodeId, StageId
from midstream.deployment.placement.placement_amendment import amend
from midstream.deployment.placement.stage_plans import StagePlan
from midstream.deployment.protocol.coordinator import Coordinator, Instruction
from midstream.deployment.protocol.logical_edge import ConsumerEnd
from midstream.deployment.protocol.messages import Content, Control, Data, DeployStage, Report
from midstream.deployment.protocol.node_runtime import Arrival, NodeRuntime
from midstream.deployment.topology.topology import Topology
from midstream.deployment.topology.topology_events import TopologyEvent
from midstream.engine.state.window_store import ReceivedRows

__all__ = ["HolisticCoordinator", "HolisticNode", "longest_windows"]

PHASES = ("stop", "forget", "register", "start")


@dataclass(frozen=True)
class Call:
    """A call to a node about one fragment."""

    query: str
    generation: int
    phase: str
    fragment: str
    stages: tuple[StageId, ...]
    contexts: tuple[DeployStage, ...] = ()
    replay_from: int = BEGINNING


@dataclass(frozen=True)
class Answered:
    """A node has done what a call asked."""

    node: NodeId
    query: str
    generation: int
    phase: str
    fragment: str
    final: Mapping[StageId, int] = field(default_factory=dict)
    """For a stopped sink: how far the results of each of its edges are final."""


@dataclass
class _Redeployment:
    query: str
    generation: int
    after: DeployedQuery
    calls: dict[str, dict[str, tuple[NodeId, Call]]]
    """By phase and fragment."""
    phase: int = 0
    unanswered: set[str] = field(default_factory=set)
    final: dict[StageId, int] = field(default_factory=dict)
    seen: tuple[int, int] = (-1, 0)

    def is_stuck(self) -> bool:
        """Whether nothing has been answered since the last look."""
        before, self.seen = self.seen, (self.phase, len(self.unanswered))
        return self.seen == before


def longest_windows(plans: Mapping[StageId, StagePlan], source: StageId) -> int:
    """How long rows of a source can matter for results: the longest window of its query."""
    windows = [window for p in plans.values() if p.plan is not None for window in p.plan.windows()]
    return max((window.window.longest for window in windows), default=0)


class HolisticCoordinator(Coordinator):
    """Redeploys whole queries. ``handled`` batches are done; ``touched`` counts fragments stopped or started."""

    def __init__(
        self,
        topology: Topology,
        at_once: int,
        kept_for: Callable[[Mapping[StageId, StagePlan], StageId], int] = longest_windows,
    ) -> None:
        super().__init__(topology)
        self.handled = 0
        self.touched = 0
        self._at_once = at_once
        self._kept_for = kept_for
        self._batches: deque[Sequence[TopologyEvent]] = deque()
        self._in_hand = False
        self._waiting: deque[Any] = deque()
        self._under_way: dict[str, _Redeployment] = {}

    @property
    def is_idle(self) -> bool:
        return super().is_idle and not self._in_hand and not self._batches

    @property
    def backlog(self) -> int:
        """Batches that have not been begun."""
        return len(self._batches)

    def apply(self, events: Sequence[TopologyEvent]) -> list[Instruction]:
        self._batches.append(events)
        return self._next()

    def take(self, report: Report) -> list[Instruction]:
        if not isinstance(report, Answered):
            return super().take(report) + self._next()
        redeployment = self._under_way.get(report.query)
        if redeployment is None or redeployment.generation != report.generation:
            return []
        if PHASES[redeployment.phase] != report.phase or report.fragment not in redeployment.unanswered:
            return []
        redeployment.unanswered.discard(report.fragment)
        redeployment.final.update(report.final)
        return self._go_on_with(redeployment)

    def ask_again(self) -> list[Instruction]:
        again = [
            redeployment.calls[PHASES[redeployment.phase]][fragment]
            for redeployment in self._under_way.values()
            if redeployment.is_stuck()
            for fragment in sorted(redeployment.unanswered)
        ]
        return [*super().ask_again(), *again]  # type: ignore[list-item]

    def _next(self) -> list[Instruction]:
        """Begin the next queries, or the next batch."""
        if not super().is_idle:
            return []
        if not self._in_hand and self._batches:
            self._in_hand = True
            changes = amend(self.plan, self.topology, self.placement, self._batches.popleft(), self._strategy)
            self._waiting.extend(changes.queries.values())
        instructions: list[Instruction] = []
        while self._waiting and len(self._under_way) < self._at_once:
            instructions += self._begin_query(self._waiting.popleft())
        if self._in_hand and not self._under_way and not self._waiting:
            self._in_hand = False
            self.handled += 1
            return self._next()
        return instructions

    def _begin_query(self, change: Any) -> list[Instruction]:
        known = self.queries[change.query]
        known.generation += 1
        planned = redeploy_holistically(self.plan, known.deployed, change.after, self.topology)
        calls: dict[str, dict[str, tuple[NodeId, Call]]] = {phase: {} for phase in PHASES}
        for context in planned.contexts:
            match context:
                case ToBeUndeployed(node, fragment, _):
                    stages = known.deployed.fragments[fragment].stages
                    for phase in ("stop", "forget"):
                        call = Call(change.query, known.generation, phase, fragment, stages)
                        calls[phase][fragment] = node, call
                case ToBeDeployed(node, new):
                    deployed = tuple(DeployStage(known.plans[s], change.after.routes.get(s, ())) for s in new.stages)
                    call = Call(change.query, known.generation, "register", new.id, new.stages, deployed)
                    calls["register"][new.id] = node, call
                    calls["start"][new.id] = node, replace(call, phase="start", contexts=())
        self.touched += len(planned.contexts)
        # Consumers first: a source that starts finds them there.
        calls["start"] = dict(reversed(calls["start"].items()))
        redeployment = self._under_way[change.query] = _Redeployment(
            change.query, known.generation, planned.after, calls
        )
        return self._phase(redeployment)

    def _phase(self, redeployment: _Redeployment) -> list[Instruction]:
        phase = PHASES[redeployment.phase]
        calls = redeployment.calls[phase]
        if phase == "start":
            for fragment, (node, call) in calls.items():
                calls[fragment] = node, replace(call, replay_from=self._replay_from(redeployment, call.stages))
        redeployment.unanswered = set(calls)
        return list(calls.values()) if calls else self._go_on_with(redeployment)  # type: ignore[arg-type]

    def _go_on_with(self, redeployment: _Redeployment) -> list[Instruction]:
        if redeployment.unanswered:
            return []
        redeployment.phase += 1
        if redeployment.phase < len(PHASES):
            return self._phase(redeployment)
        del self._under_way[redeployment.query]
        self.queries[redeployment.query].deployed = redeployment.after
        self.committed += 1
        return self._next()

    def _replay_from(self, redeployment: _Redeployment, stages: Iterable[StageId]) -> int:
        """From when on a fragment's sources must give their rows again."""
        sink = self.plan.sink_of(redeployment.query)
        earliest = NEVER
        for stage in stages:
            if self.plan.stages[stage].inputs:
                continue
            edge = stage
            while (above := self.plan.consumer_of(edge)) != sink:
                assert above is not None
                edge = above
            final = redeployment.final.get(edge, BEGINNING)
            kept = self._kept_for(self.queries[redeployment.query].plans, stage)
            earliest = min(earliest, BEGINNING if final == BEGINNING or kept == NEVER else final - kept)
        return earliest


@dataclass
class _Had:
    """What a sink has had from an edge: everything that began before ``final``, and some rows beyond."""

    final: int = BEGINNING
    delivered: Counter[tuple[Any, ...]] = field(default_factory=Counter)


class _SinkEnd(ConsumerEnd):
    """The sink's end of an edge: drops rows that the sink has had before the last restart."""

    def __init__(self, generation: int, had: _Had) -> None:
        super().__init__(generation)
        self._had = had
        self._seen: Counter[tuple[Any, ...]] = Counter()

    def take(self) -> Content:
        content = super().take()
        if not isinstance(content, Data):
            return content
        rows, had = content.rows, self._had
        keep = rows.valid_from >= had.final
        if had.delivered or (len(rows) and int(rows.valid_from.max()) >= self.frontier):
            for place, row in enumerate(_tuples(rows)):
                if keep[place]:
                    self._seen[row] += 1
                    keep[place] = self._seen[row] > had.delivered[row]
                    had.delivered[row] = max(had.delivered[row], self._seen[row])
        if self.frontier > had.final:
            had.final = self.frontier
            for counter in (had.delivered, self._seen):
                for row in [row for row in counter if row[0] < had.final or not counter[row]]:
                    del counter[row]
        return content if keep.all() else Data(_filtered(rows, keep), content.frontier)


def _tuples(rows: ReceivedRows) -> Iterable[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in rows.columns if isinstance(column, pa.Array)]
    return zip(rows.valid_from.tolist(), rows.valid_to.tolist(), *columns, strict=True)


def _filtered(rows: ReceivedRows, keep: np.ndarray[Any, Any]) -> ReceivedRows:
    columns = [column.filter(pa.array(keep)) if isinstance(column, pa.Array) else column for column in rows.columns]
    return ReceivedRows(rows.valid_from[keep], rows.valid_to[keep], columns)


class HolisticNode(NodeRuntime):
    """A node whose fragments are stopped and started as a whole, and whose sources keep what they sent."""

    def __init__(self, name: NodeId, chunk_bytes: int = 1 << 20) -> None:
        super().__init__(name, chunk_bytes)
        self.backup: dict[StageId, list[Arrival]] = {}
        """What arose at each source and is not yet final at the sink."""
        self._registered: dict[str, tuple[DeployStage, ...]] = {}
        self._had: dict[StageId, dict[StageId, _Had]] = {}
        self._streams: dict[StageId, str] = {}

    def _feed(self, arrival: Arrival) -> None:
        for stage, kept in self.backup.items():
            if self._streams[stage] == arrival.stream:
                kept.append(arrival)
        super()._feed(arrival)
        # Rows that come while a source is stopped are replayed from the backup.
        self.unclaimed = []

    def _prepare(self, message: Any) -> None:
        super()._prepare(message)
        for context in message.contexts:
            self._remember(context.stage)

    def _remember(self, stage: StageId) -> None:
        """Let a sink that begins know what it has had, and let a source keep what it gives."""
        instance = self.running.get(stage)
        stream = None if instance is None else self._stream_of(instance)
        if stream is not None:
            self._streams[stage] = stream
            self.backup.setdefault(stage, [])
        if instance is not None and instance.is_sink and not isinstance(_any(instance.inputs.values()), _SinkEnd):
            had = self._had.setdefault(stage, {})
            instance.inputs = {
                edge: _SinkEnd(end.generation, had.setdefault(edge, _Had())) for edge, end in instance.inputs.items()
            }

    def _obey(self, message: Control) -> None:
        if not isinstance(message, Call):
            super()._obey(message)
            return
        final: dict[StageId, int] = {}
        if message.generation < self.generations.get(message.query, 0):
            return
        self.generations[message.query] = message.generation
        if message.phase == "stop":
            for stage in message.stages:
                instance = self.running.get(stage)
                if instance is not None and instance.output.generation < message.generation:
                    # What has come is worked off, so that a sink keeps it.
                    if instance.is_sink:
                        self._work_on(instance)
                        self._out.results += [(message.query, rows) for rows in instance.results]
                    del self.running[stage]
                final.update({edge: had.final for edge, had in self._had.get(stage, {}).items()})
        elif message.phase == "register":
            self._registered[message.fragment] = message.contexts
        elif message.phase == "start":
            self._start(message)
        answer = Answered(self.name, message.query, message.generation, message.phase, message.fragment, final)
        self._report(answer)  # type: ignore[arg-type]

    def _start(self, message: Call) -> None:
        for context in self._registered.pop(message.fragment, ()):
            stage = context.stage
            instance = self.running[stage] = self.instances(context.plan, context.route, message.generation)
            self._remember(stage)
            self._touch(stage)
            if stage in self.backup:
                kept = [a for a in self.backup[stage] if a.at_least is None or a.at_least > message.replay_from]
                self.backup[stage] = kept
                for arrival in kept:
                    instance.feed(arrival.table, arrival.at_least)

    def _stream_of(self, instance: Any) -> str | None:
        source = instance.plan.source
        return None if source is None else str(source.stream.name)


def _any(ends: Iterable[ConsumerEnd]) -> ConsumerEnd | None:
    return next(iter(ends), None)
