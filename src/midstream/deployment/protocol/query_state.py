"""What the coordinator knows of a deployed query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from midstream.algebra.plan import Plan
from midstream.deployment.placement.fragments import DeployedQuery
from midstream.deployment.placement.global_plan import NodeId, StageId
from midstream.deployment.placement.stage_plans import StagePlan
from midstream.deployment.protocol.generation import Generation
from midstream.deployment.protocol.messages import MigrateStage

__all__ = ["QueryState"]


@dataclass
class QueryState:
    """A deployed query, and what is being changed."""

    plans: Mapping[StageId, StagePlan]
    deployed: DeployedQuery
    generation: int = 0
    running: Generation | None = None
    begun: set[StageId] = field(default_factory=set)
    """The stages that have run: one that begins without a source of its state ran on a node that is lost."""
    lost_with: dict[StageId, NodeId] = field(default_factory=dict)
    """The lost nodes that have the states of stages which have not begun elsewhere."""
    current: dict[StageId, Plan] = field(default_factory=dict)
    """The plan that each stage has, or is changing to."""
    migrations: int = 0
    migrating: dict[StageId, MigrateStage] = field(default_factory=dict)
    """Changes of plans that have not been confirmed."""
    refusals: dict[StageId, str] = field(default_factory=dict)
    given_up: dict[tuple[int, StageId], NodeId] = field(default_factory=dict)
    """Stages of generations that were given up, and the nodes that have not confirmed it."""
    is_stale: bool = False
    """Whether the topology has changed since the generation under way was planned."""
    problem: str | None = None
    """Why it waits for room; it is tried again whenever the topology or another query's placement changes."""

    def uses(self, node: NodeId) -> bool:
        """Whether the query's deployment, or a change of it, refers to a node."""
        generation = self.running
        moves = () if generation is None else generation.moves.values()
        used = {fragment.node for fragment in self.deployed.fragments.values()}
        used |= {*self.given_up.values(), *(() if generation is None else generation.nodes)}
        used |= {end for move in moves for end in (move.source, move.target) if end is not None}
        return node in used
