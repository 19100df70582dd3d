"""One run of ISQD's evaluation in simulation: a published set-up, an approach, a rate of changes.

20 s without changes, 120 s with a batch of changes every so often, 10 s without. Each source gives a row every so
often, which stands for all its tuples since the one before. At each change every device that moves gives one more row:
when that reaches the sink, data flow again. These rows do not count for latencies.

Deployment latency is measured in three ways: until the calls of the coordinator return (what the paper measures for
ISQD), until the generation is committed, that is, every node has confirmed that it runs as planned (what the paper
measures for the baselines, whose calls are synchronous), and until data flow again. The first two are the time that the
coordinator is busy: a batch that waits for the one before does not count twice. The third is from the change itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.isqd.costs import CostSet
from benchmarks.isqd.holistic import HolisticCoordinator, HolisticNode
from benchmarks.isqd.stand_in_stages import StandInNode, StandInRows, stand_in_plans
from midstream.deployment.placement.global_plan import GlobalPlan
from midstream.deployment.protocol.coordinator import Coordinator, Instruction
from midstream.deployment.protocol.messages import Control, EnterMarker, Prepare, Report
from midstream.deployment.protocol.node_runtime import NodeRuntime
from midstream.deployment.simulation import Simulation
from midstream.deployment.topology.published_traces import PublishedSetup
from midstream.deployment.topology.topology import Link, Topology
from midstream.deployment.topology.topology_events import AddLink, TopologyEvent

__all__ = ["APPROACHES", "ISQD", "Approach", "Outcome", "emulate"]

WARM_UP_S, CHANGES_S, COOL_DOWN_S = 20.0, 120.0, 10.0
STATELESS_TUPLES_PER_S, STATEFUL_TUPLES_PER_S = 10_000, 100


class IncrementalCoordinator(Coordinator):
    """Ours, with a count of the fragments that it touches."""

    touched = 0

    def _begin(self, known: Any, before: Any, after: Any, redeployment: Any, moves: Any) -> list[Instruction]:
        self.touched += len(redeployment.contexts)
        return super()._begin(known, before, after, redeployment, moves)


class HolisticStandInNode(HolisticNode, StandInNode):
    """A node of the baselines."""

    def _stream_of(self, instance: Any) -> str | None:
        return None if instance.stage.inputs else str(instance.stage.id)


@dataclass(frozen=True)
class Approach:
    """How changes are handled."""

    name: str
    coordinators: Callable[[Topology], Coordinator]
    nodes: Callable[..., NodeRuntime]
    threads: int


def _kept_for(plans: Any, source: str) -> int:
    # A join's partner may be a row behind.
    return 2_000_000


ISQD = Approach("ISQD", IncrementalCoordinator, StandInNode, 8)
APPROACHES = {
    "HSQD": Approach("HSQD", partial(HolisticCoordinator, at_once=1, kept_for=_kept_for), HolisticStandInNode, 1),
    "HCQD": Approach("HCQD", partial(HolisticCoordinator, at_once=8, kept_for=_kept_for), HolisticStandInNode, 8),
    "ISQD": ISQD,
}


class _Watched(Simulation):
    """A simulation that notes when the coordinator is busy."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.busy_ms = 0.0
        self.calls_ms = 0.0
        self.handled_at: list[float] = []
        """When each batch was done."""
        self.announced = 0
        self._busy_since: float | None = None
        self._last_call = 0.0
        super().__init__(*arguments, **options)

    def change_topology(self, events: Any) -> None:
        self.announced += 1
        super().change_topology(events)

    def _tell(self, told: Any) -> None:
        super()._tell(told)
        self._look()

    def _take(self, report: Report) -> None:
        super()._take(report)
        self._look()

    def _hear(self, node: str, message: Control) -> None:
        if isinstance(message, Prepare | EnterMarker):
            self._last_call = self.now + self.costs.control
        super()._hear(node, message)

    def _look(self) -> None:
        coordinator = self.coordinator
        handled = getattr(coordinator, "handled", self.announced if coordinator.is_idle else len(self.handled_at))
        self.handled_at += [self.now] * (handled - len(self.handled_at))
        if coordinator.is_idle and self._busy_since is not None:
            self.busy_ms += self.now - self._busy_since
            self.calls_ms += max(0.0, self._last_call - self._busy_since)
            self._busy_since = None
        elif not coordinator.is_idle and self._busy_since is None:
            self._busy_since = self.now

    def busy_so_far(self) -> float:
        return self.busy_ms + (0.0 if self._busy_since is None else self.now - self._busy_since)


@dataclass
class Outcome:
    """What a run gave. Times in seconds or milliseconds, as named."""

    batches: int
    handled: int
    """Batches done when the run ended."""
    on_time: int
    """Batches done before the next one."""
    busy_s: float
    """Aggregated deployment latency within the run: until all nodes have confirmed."""
    all_s: float
    """The same for all batches; if the run ended before, at the pace until then."""
    calls_s: float
    """Until the calls return; for the baselines the same as ``all_s``."""
    flow_ms: list[float]
    """For each batch, from the change until the rows of all devices that moved reach the sink again."""
    quiet_ms: float
    latency_ms: dict[str, float]
    """Event-time latency during the changes: mean, median, p75, p95, of rows that arrived within the run."""
    by_second: list[tuple[float, float, int]]
    """For each second: when, mean latency of the rows that arrived, how many."""
    last_output_s: float
    """When rows last arrived at more than a hundredth of the quiet rate."""
    touched: int
    messages: int
    envelopes: int
    rows: int
    missing: int
    """Rows that had not arrived in the end."""
    repeated: int
    wall_s: float
    steps: int
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def completes(self) -> bool:
        """Whether all batches were handled within the run."""
        return self.handled == self.batches


def emulate(
    setup: PublishedSetup,
    approach: Approach,
    cost_set: CostSet,
    every_s: float,
    rows_per_s: float = 2.0,
    bandwidth_mbit_per_s: float | None = None,
    changes_s: float = CHANGES_S,
    warm_up_s: float = WARM_UP_S,
    settle: bool = False,
    cores: int | None = 0,
    tuples_per_s: float | None = None,
    seed: int = 0,
) -> Outcome:
    """Run it. ``settle``: go on until nothing waits, so that missing rows would be lost ones.

    ``cores``: other than the cost set's; None: any number. ``tuples_per_s``: of a source; None: as in the paper.
    """
    began = time.perf_counter()
    trace = setup.trace()
    if tuples_per_s is None:
        tuples_per_s = STATEFUL_TUPLES_PER_S if setup.is_stateful else STATELESS_TUPLES_PER_S
    tuples = tuples_per_s / rows_per_s

    def linked(link: Link) -> Link:
        return replace(link, latency_ms=cost_set.hop_ms(tuples), bandwidth_mbit_per_s=bandwidth_mbit_per_s)

    topology = Topology(trace.topology.nodes.values(), map(linked, trace.topology.links()))
    simulation = _Watched(
        topology,
        cost_set.costs(approach.threads, tuples, cost_set.cores if cores == 0 else cores),
        seed=seed,
        coordinators=approach.coordinators,
        nodes=approach.nodes,
    )
    plan = setup.plan()
    for query in plan.queries:
        simulation.deploy(stand_in_plans(plan.stages[stage] for stage in plan.stages_of(query)))
    simulation.run_until_quiet()
    start = simulation.now
    sources = _Sources(simulation, plan, 1000 / rows_per_s, int(cost_set.tuple_bytes * tuples))
    simulation.busy_ms = simulation.calls_ms = 0.0
    simulation.handled_at.clear()
    counted = getattr(simulation.coordinator, "touched", 0), simulation.figures.control_messages
    changes_at = start + 1000 * warm_up_s
    ends = changes_at + 1000 * (changes_s + COOL_DOWN_S)
    batches = [batch for batch in trace.batches if batch.time_ms * every_s < 1000 * changes_s]
    due = [changes_at + batch.time_ms * every_s for batch in batches]

    def change(number: int) -> None:
        events: list[TopologyEvent] = []
        for event in batches[number].events:
            events.append(AddLink(linked(event.link)) if isinstance(event, AddLink) else event)
        simulation.change_topology(events)
        for event in events:
            if isinstance(event, AddLink):
                sources.probe(event.link.child, -1 - number)

    for number, when in enumerate(due):
        simulation.at(when, partial(change, number))
    simulation.announced = 0
    sources.start(until=ends)
    simulation.run_until(ends)
    deliveries = list(simulation.deliveries)
    handled_at = list(simulation.handled_at)[: len(batches)]
    busy_s, calls_s = simulation.busy_so_far() / 1000, simulation.calls_ms / 1000
    counts = (
        getattr(simulation.coordinator, "touched", 0) - counted[0],
        simulation.figures.control_messages - counted[1],
    )
    if settle:
        simulation.run_until_quiet()
    arrived = _arrived(deliveries)
    missing, repeated = _differences(_arrived(simulation.deliveries)[1], sources)
    handled = len(handled_at)
    all_s = busy_s * len(batches) / max(handled, 1)
    is_holistic = approach.name != "ISQD"
    return Outcome(
        batches=len(batches),
        handled=handled,
        on_time=sum(done <= since + 1000 * every_s for done, since in zip(handled_at, due, strict=False)),
        busy_s=busy_s,
        all_s=all_s,
        calls_s=all_s if is_holistic else calls_s,
        flow_ms=_flow(arrived, due, setup.mobile),
        **_latencies(arrived, start, changes_at, ends),
        touched=counts[0],
        messages=counts[1],
        envelopes=simulation.figures.envelopes,
        rows=len(sources.numbers),
        missing=missing,
        repeated=repeated,
        wall_s=time.perf_counter() - began,
        steps=simulation.figures.steps,
        settings={"setup": setup.name, "approach": approach.name, "costs": cost_set.name, "every_s": every_s},
    )


class _Sources:
    """The devices and what they give."""

    def __init__(self, simulation: Simulation, plan: GlobalPlan, every_ms: float, bytes_each: int) -> None:
        self._simulation, self._every, self._bytes = simulation, every_ms, bytes_each
        self.numbers: list[int] = []
        """Of results that must arrive, apart from probes."""
        self._stages = {}
        """By device: its stage, the number of its first row, and its partner's place in a join."""
        group = 0
        for stage in plan.stages.values():
            if stage.inputs and not stage.id.endswith("/sink"):
                group += 1
                for side, source in enumerate(stage.inputs):
                    self._stages[plan.stages[source].pinned_to] = source, group * 1_000_000, side

    def start(self, until: float) -> None:
        for place, (device, (_, first, side)) in enumerate(self._stages.items()):
            # Partners give their rows together; the others are spread over the interval.
            phase = ((first // 1_000_000) * 0.618034 % 1.0) * self._every
            self._simulation.at(self._simulation.now + phase, partial(self._give, device, 0, until, side, place))

    def _give(self, device: str, number: int, until: float, side: int, place: int) -> None:
        stage, first, _ = self._stages[device]
        if side == 0:
            self.numbers.append(first + number)
        self._feed(device, stage, first + number)
        if self._simulation.now + self._every < until:
            self._simulation.at(
                self._simulation.now + self._every, partial(self._give, device, number + 1, until, side, place)
            )

    def probe(self, device: str, number: int) -> None:
        self._feed(device, self._stages[device][0], number)

    def _feed(self, device: str, stage: str, number: int) -> None:
        created = int(self._simulation.now * 1000)
        rows = StandInRows([created], [number], self._bytes)
        self._simulation.feed(device, stage, rows, created + 1)  # type: ignore[arg-type]


def _arrived(deliveries: Any) -> tuple[Any, Any, Any]:
    """For each row that arrived: when, its number, its latency in milliseconds."""
    lengths = [len(delivery.rows) for delivery in deliveries]
    when = np.repeat([delivery.time for delivery in deliveries], lengths)
    numbers = np.concatenate([delivery.rows.valid_to for delivery in deliveries])
    created = np.concatenate([delivery.rows.valid_from for delivery in deliveries])
    return when, numbers, when - created / 1000


def _differences(numbers: Any, sources: _Sources) -> tuple[int, int]:
    rows = numbers[numbers >= 0]
    different = len(np.unique(rows))
    return len(sources.numbers) - different, len(rows) - different


def _flow(arrived: Any, due: list[float], mobile: int) -> list[float]:
    """Until the last of the rows given at a change has arrived; infinity if it has not."""
    when, numbers, _ = arrived
    flows = []
    for number, since in enumerate(due):
        own = when[numbers == -1 - number]
        flows.append(float(own.max() - since) if len(own) else float("inf"))
    return flows


def _latencies(arrived: Any, start: float, changes_at: float, ends: float) -> dict[str, Any]:
    when, numbers, latency = arrived
    rows = (numbers >= 0) & (when <= ends)
    when, latency = when[rows], latency[rows]
    during = latency[when >= changes_at]
    seconds = np.arange(int((ends - start) / 1000))
    places = ((when - start) // 1000).astype(int)
    by_second = [
        (float(second), float(own.mean()) if len(own := latency[places == second]) else float("nan"), len(own))
        for second in seconds
    ]
    quiet = latency[when < changes_at]
    usual = np.median([count for _, _, count in by_second[1 : int((changes_at - start) / 1000)]])
    flowing = [second for second, _, count in by_second if count > usual / 100]
    return {
        "quiet_ms": float(quiet.mean()),
        "latency_ms": {
            "mean": float(during.mean()),
            **{name: float(np.percentile(during, at)) for name, at in (("median", 50), ("p75", 75), ("p95", 95))},
        },
        "by_second": by_second,
        "last_output_s": flowing[-1] + 1 if flowing else 0.0,
    }
