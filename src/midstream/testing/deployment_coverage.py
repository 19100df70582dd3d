"""What deployment cases met: which of the hard things that can happen to a deployment did happen.

`KINDS` lists them. A `DeploymentWatcher` counts them while a simulation runs; counters of several runs are added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from midstream.deployment.placement.global_plan import NodeId, StageId
from midstream.deployment.protocol.coordinator import Generation
from midstream.deployment.protocol.messages import (
    Control,
    EnterMarker,
    Envelope,
    Installed,
    ProvideState,
    Report,
    RerouteState,
    Resumed,
    StageMigrated,
    StateChunk,
)
from midstream.deployment.simulation import Simulation, Watcher

__all__ = ["KINDS", "DeploymentWatcher", "missing_kinds", "moments"]

MOMENTS = ("quiet", "prepare", "mark", "transfer", "commit")
"""What a deployment is doing: nothing, or a phase of a generation; "transfer" if a state is on its way, too."""

KINDS = (
    "state moved",
    "state moved in several chunks",
    "chunks resent",
    "state sent on another path",
    "state rescued from a lost node",
    "generation given up",
    "stage called back and resumed",
    "marker entered behind a cut",
    "generations of two queries at once",
    *(f"batch during {moment}" for moment in MOMENTS if moment != "quiet"),
    "batch reverted",
    "node removed",
    "request refused",
    "node lost",
    "node added",
    "source lost",
    "source came back",
    "query waited for room",
    "query found room",
    *(f"node lost during {moment}" for moment in MOMENTS if moment != "quiet"),
    *(f"node crashed during {moment}" for moment in MOMENTS),
    *(f"coordinator crashed during {moment}" for moment in MOMENTS),
    "link flapped",
    "control messages lost and doubled",
    "plan replaced",
    "plan replaced where stages have moved",
)
"""Everything that is counted."""


def missing_kinds(met: Counter[str]) -> list[str]:
    """The kinds that have not been met."""
    return [kind for kind in KINDS if not met[kind]]


def moments(simulation: Simulation) -> set[str]:
    """What the deployment is doing."""
    generations: Iterable[Generation] = simulation.coordinator.under_way()
    found = {generation.phase for generation in generations}
    if "mark" in found:
        for node in simulation.nodes.values():
            for stage, awaiting in node.awaiting.items():
                if awaiting.chunks or any(stage in other.held for other in simulation.nodes.values()):
                    found.add("transfer")
    return found or {"quiet"}


class DeploymentWatcher(Watcher):
    """Counts what happens in a simulation."""

    def __init__(self) -> None:
        self.met: Counter[str] = Counter()
        self.generations_begun = 0
        self._chunks: set[tuple[NodeId, StageId, int, int]] = set()
        self._resumed: set[tuple[StageId, int]] = set()
        self._installed: set[tuple[StageId, int]] = set()
        self._several: set[tuple[StageId, int]] = set()
        self._without_room: set[str] = set()
        """The queries that wait for room."""

    def watch(self, simulation: Simulation) -> None:
        """Watch this one."""
        self.simulation = simulation
        simulation.watcher = self

    def meet(self, kind: str) -> None:
        """Count one thing."""
        assert kind in KINDS, kind
        self.met[kind] += 1

    def meet_during(self, what: str) -> None:
        """Count something with what the deployment is doing."""
        for moment in moments(self.simulation):
            if f"{what} during {moment}" in KINDS:
                self.meet(f"{what} during {moment}")

    def heard(self, node: NodeId, message: Control) -> None:
        match message:
            case ProvideState(stage, generation, _):
                awaiting = self.simulation.nodes[node].awaiting.get(stage)
                if awaiting is not None and awaiting.generation == generation:
                    self.meet("state rescued from a lost node")
            case RerouteState(stage, generation, path):
                held = self.simulation.nodes[node].held.get(stage)
                if held is not None and held.generation == generation and held.path != path:
                    self.meet("state sent on another path")
            case EnterMarker(marker, stages):
                contexts = self.simulation.nodes[node].contexts.get((marker.query, marker.generation), {})
                for under_way in self.simulation.coordinator.under_way():
                    if (under_way.query, under_way.number) == (marker.query, marker.generation):
                        entries = under_way.entry_stages.get(node, ())
                        for stage in stages:
                            if stage in contexts and stage not in entries:
                                self.meet("marker entered behind a cut")

    def reported(self, report: Report) -> None:
        match report:
            case Installed(query=query, generation=number, stage=stage):
                for generation in self.simulation.coordinator.under_way():
                    moves = generation.query == query and generation.number == number and stage in generation.moves
                    if moves and (stage, number) not in self._installed:
                        self._installed.add((stage, number))
                        self.meet("state moved")
                        if (stage, number) in self._several:
                            self.meet("state moved in several chunks")
            case Resumed(generation=number, stage=stage):
                if (stage, number) not in self._resumed:
                    self._resumed.add((stage, number))
                    self.meet("stage called back and resumed")
            case StageMigrated(refusal=None):
                self.meet("plan replaced")
                if self._installed:
                    self.met["plan replaced where stages have moved"] += 1

    def sent(self, envelope: Envelope) -> None:
        chunk = envelope.message
        if isinstance(chunk, StateChunk) and envelope.place == 1:
            key = (envelope.origin, chunk.stage, chunk.generation, chunk.number)
            if key in self._chunks:
                self.meet("chunks resent")
            self._chunks.add(key)
            if chunk.count > 1:
                self._several.add((chunk.stage, chunk.generation))

    def passed(self) -> None:
        coordinator = self.simulation.coordinator
        if len(list(coordinator.under_way())) > 1:
            self.met["generations of two queries at once"] |= 1
        waiting = {query for query in coordinator.plan.queries if coordinator.problem(query) is not None}
        self.met["query waited for room"] += len(waiting - self._without_room)
        self.met["query found room"] += len(self._without_room - waiting)
        self._without_room = waiting
