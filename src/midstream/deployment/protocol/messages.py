"""What nodes send each other, what the coordinator sends nodes, and what nodes report.

    producer → consumer     Connect, Numbered                 along an edge's route
    consumer → producer     Cursor                            the same way back
    old node → new node     StateChunk                        along the path of a migration query (ISQD §5.2)
    new node → old node     StateCursor                       the same way back
    coordinator → node      Prepare, EnterMarker, Commit, Abort, Resume, RerouteState,
                            RescueState, InspectLostNode, ProvideState, MigrateStage
    node → coordinator      Prepared, Acted, Installed, Committed, Aborted, Resumed, StageMigrated

Every message may be lost, delayed or doubled: who waits for an answer asks again, and every message can be taken twice.
A message between nodes travels in an ``Envelope`` that names all nodes of its path, so nodes in between need to know
nothing about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from midstream.deployment.placement.global_plan import NodeId, StageId
from midstream.deployment.placement.stage_plans import StagePlan
from midstream.engine.state.window_store import ReceivedRows

__all__ = [
    "Abort",
    "Aborted",
    "Acted",
    "Commit",
    "Committed",
    "Connect",
    "Content",
    "Control",
    "Cursor",
    "Data",
    "DeployStage",
    "DrainStage",
    "EnterMarker",
    "Envelope",
    "InspectLostNode",
    "Installed",
    "Marker",
    "MigrateStage",
    "Numbered",
    "Path",
    "Prepare",
    "Prepared",
    "ProvideState",
    "Report",
    "RerouteState",
    "RescueState",
    "Resume",
    "Resumed",
    "StageContext",
    "StageMigrated",
    "StateChunk",
    "StateCursor",
    "UpdateStage",
]

Path = tuple[NodeId, ...]
"""Nodes, each linked with the next. A path of one node stays there."""


# Along edges


@dataclass(frozen=True)
class Data:
    """What a stage made of one batch: rows with their validities, and its frontier after them."""

    rows: ReceivedRows
    frontier: int


@dataclass(frozen=True)
class Marker:
    """A reconfiguration marker: passes along the edges of one query and makes stages act on their contexts.

    What fragments are to do (ISQD's marker lists it), the nodes know from their deployment contexts.
    """

    query: str
    generation: int
    passed_on_by: frozenset[StageId]
    """The stages that have others after them which are to act: the marker goes no further than needed."""


Content = Data | Marker


@dataclass(frozen=True)
class Connect:
    """A producer asks where to begin."""

    edge: StageId
    generation: int


@dataclass(frozen=True)
class Numbered:
    """One message of an edge's log."""

    edge: StageId
    generation: int
    number: int
    content: Content


@dataclass(frozen=True)
class Cursor:
    """The consumer has taken, durably, all messages before this number."""

    edge: StageId
    generation: int
    next: int
    answers_connect: bool = False


@dataclass(frozen=True)
class StateChunk:
    """A part of a stage's snapshot on its way to where the stage goes on."""

    stage: StageId
    generation: int
    number: int
    count: int
    data: bytes


@dataclass(frozen=True)
class StateCursor:
    """The new node has all chunks before this number."""

    stage: StageId
    generation: int
    next: int


@dataclass(frozen=True)
class Envelope:
    """A message on its way: it is at, or about to reach, the node at this place of its path."""

    path: Path
    message: Connect | Numbered | Cursor | StateChunk | StateCursor
    place: int = 1

    @property
    def origin(self) -> NodeId:
        return self.path[0]

    @property
    def node(self) -> NodeId:
        """The node that it reaches next."""
        return self.path[self.place]


# From the coordinator


@dataclass(frozen=True)
class DeployStage:
    """A stage begins on this node; if it has run elsewhere, once its state has come."""

    plan: StagePlan
    route: Path
    """The way to its consumer; empty for a sink."""
    awaits_state: bool = False

    @property
    def stage(self) -> StageId:
        return self.plan.stage.id


@dataclass(frozen=True)
class UpdateStage:
    """A stage of this node gets another way to its consumer, or other producers."""

    stage: StageId
    route: Path


@dataclass(frozen=True)
class DrainStage:
    """A stage ends on this node and hands over to where it goes on: its state, how far it has come, its outbox."""

    stage: StageId
    state_path: Path
    """The way to the new node; empty as long as there is none."""


StageContext = DeployStage | UpdateStage | DrainStage
"""A deployment context, as far as it concerns one stage on one node."""


@dataclass(frozen=True)
class Prepare:
    """Contexts to keep until the marker comes. Only new stages without a past begin at once."""

    query: str
    generation: int
    contexts: tuple[StageContext, ...]


@dataclass(frozen=True)
class EnterMarker:
    """Let the marker enter the query at these stages."""

    marker: Marker
    stages: tuple[StageId, ...]


@dataclass(frozen=True)
class Commit:
    """All stages run where they should: forget contexts and snapshots of this generation."""

    query: str
    generation: int


@dataclass(frozen=True)
class Abort:
    """Do not begin these stages. Those that have begun stay."""

    query: str
    generation: int
    stages: tuple[StageId, ...]


@dataclass(frozen=True)
class Resume:
    """Go on with a stage that was to end here: it has not begun elsewhere, and never will in that generation."""

    query: str
    generation: int
    stage: StageId


@dataclass(frozen=True)
class RescueState:
    """Look for the snapshot of a stage in what a lost node has stored. For whoever runs the node that gets it."""

    stage: StageId
    generation: int
    lost_node: NodeId
    losses: int
    """How often the node has been lost: what it had stored at an earlier loss does not count."""


@dataclass(frozen=True)
class InspectLostNode:
    """Look whether a stage has begun on a lost node. For whoever runs the node that gets it.

    The answer is that of the lost node to an ``Abort``.
    """

    query: str
    generation: int
    stage: StageId
    lost_node: NodeId
    losses: int
    """As in ``RescueState``."""


@dataclass(frozen=True)
class ProvideState:
    """The snapshot of a stage whose old node is lost, rescued from what the node had stored."""

    stage: StageId
    generation: int
    files: Mapping[str, bytes]


@dataclass(frozen=True)
class RerouteState:
    """Another path for a stage's snapshot."""

    stage: StageId
    generation: int
    path: Path


@dataclass(frozen=True)
class MigrateStage:
    """Replace the plan of a stage, where it runs, by an equivalent one."""

    query: str
    stage: StageId
    number: int
    """Counts the changes of the query's plans."""
    plan: dict[str, Any]
    strategy: str
    options: Mapping[str, Any] = field(default_factory=dict)


Control = (
    Prepare
    | EnterMarker
    | Commit
    | Abort
    | Resume
    | RerouteState
    | RescueState
    | InspectLostNode
    | ProvideState
    | MigrateStage
)


# To the coordinator


@dataclass(frozen=True)
class Prepared:
    node: NodeId
    query: str
    generation: int


@dataclass(frozen=True)
class Acted:
    """A stage has updated its route, or ended here."""

    node: NodeId
    query: str
    generation: int
    stage: StageId


@dataclass(frozen=True)
class Installed:
    """A stage that was deployed runs."""

    node: NodeId
    query: str
    generation: int
    stage: StageId


@dataclass(frozen=True)
class Committed:
    node: NodeId
    query: str
    generation: int


@dataclass(frozen=True)
class Aborted:
    """The stage will not begin here in this generation."""

    node: NodeId
    query: str
    generation: int
    stage: StageId


@dataclass(frozen=True)
class Resumed:
    node: NodeId
    query: str
    generation: int
    stage: StageId


@dataclass(frozen=True)
class StageMigrated:
    """The plan of a stage has been replaced, or the strategy has refused it."""

    node: NodeId
    query: str
    stage: StageId
    number: int
    refusal: str | None = None


Report = Prepared | Acted | Installed | Committed | Aborted | Resumed | StageMigrated
