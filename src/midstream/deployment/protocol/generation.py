"""A change of one query's deployment under way: what it is to reach, and what it still waits for.

``stage_contexts`` turns the deployment contexts of fragments, which the planner gives, into what nodes are told about
each stage.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from midstream.deployment.placement.deployment_context import Redeployment, ToBeDeployed, ToBeUndeployed, ToBeUpdated
from midstream.deployment.placement.fragments import Fragment
from midstream.deployment.placement.global_plan import NodeId, StageId
from midstream.deployment.placement.placement import QueryPlacement
from midstream.deployment.placement.placement_amendment import StageMove
from midstream.deployment.placement.stage_plans import StagePlan
from midstream.deployment.protocol.messages import (
    DeployStage,
    DrainStage,
    Marker,
    Path,
    StageContext,
    UpdateStage,
)

__all__ = ["Generation", "stage_contexts"]


@dataclass
class Generation:
    """A change of one query's deployment under way."""

    query: str
    number: int
    before: QueryPlacement
    after: QueryPlacement
    redeployment: Redeployment
    moves: Mapping[StageId, StageMove]
    contexts: Mapping[NodeId, tuple[StageContext, ...]]
    marker: Marker
    entry_stages: Mapping[NodeId, tuple[StageId, ...]]
    unprepared: set[NodeId]
    unacted: dict[StageId, NodeId]
    """Stages that the marker has not reached, and where they run."""
    uninstalled: dict[StageId, NodeId]
    """Stages that have not begun where they should."""
    state_paths: dict[StageId, Path]
    """The ways of the states that move."""
    uncommitted: set[NodeId] = field(default_factory=set)
    called_back: dict[StageId, NodeId] = field(default_factory=dict)
    """Stages that are not to begin on these nodes, which have not confirmed it yet."""
    resuming: dict[StageId, NodeId] = field(default_factory=dict)
    """Stages that are to go on where they were, which has not been confirmed yet."""
    returned: set[StageId] = field(default_factory=set)
    """Stages that go on where they were."""
    phase: str = "prepare"
    """What is under way: prepare, mark or commit."""
    seen: tuple[object, ...] = ()
    """What was open when questions were last to be repeated."""

    def is_stuck(self) -> bool:
        """One more look: whether nothing has been answered since the last one."""
        before, self.seen = (
            self.seen,
            (
                self.phase,
                len(self.unprepared),
                len(self.unacted),
                len(self.uninstalled),
                len(self.uncommitted),
                len(self.called_back),
                len(self.resuming),
            ),
        )
        return self.seen == before

    def begins(self, begun: Collection[StageId]) -> bool:
        """Whether stages begin that have not begun before: at once, so the generation cannot be given up any more."""
        return not self.before.nodes or any(stage not in begun for stage in self.uninstalled)

    @property
    def nodes(self) -> set[NodeId]:
        return set(self.contexts)

    @property
    def reached(self) -> QueryPlacement:
        """Where the stages of the query really are after some were called back."""
        nodes = dict(self.after.nodes)
        routes = dict(self.after.routes)
        for stage in self.returned:
            nodes[stage] = self.before.nodes[stage]
            if stage in self.before.routes:
                routes[stage] = self.before.routes[stage]
        return replace(self.after, nodes=nodes, routes=routes)

    @property
    def left_the_rest_alone(self) -> bool:
        """I6: whether fragments without a context are as they were."""
        contexts = self.redeployment.contexts
        touched = {c.fragment.id if isinstance(c, ToBeDeployed) else c.fragment_id for c in contexts}
        before, after = self.redeployment.before.fragments, self.redeployment.after.fragments
        return all(fragment == before.get(id) for id, fragment in after.items() if id not in touched)


def stage_contexts(
    plans: Mapping[StageId, StagePlan],
    after: QueryPlacement,
    redeployment: Redeployment,
    state_paths: Mapping[StageId, Path],
    begun: Collection[StageId],
) -> dict[NodeId, tuple[StageContext, ...]]:
    """The contexts of fragments as contexts of stages, by node."""
    contexts: dict[NodeId, list[StageContext]] = {}
    before = redeployment.before.fragments
    known_before = {stage: fragment for fragment in before.values() for stage in fragment.stages}

    def add(node: NodeId, context: StageContext) -> None:
        contexts.setdefault(node, []).append(context)

    def add_staying_and_new(node: NodeId, fragment: Fragment) -> None:
        for stage in fragment.stages:
            route = after.routes.get(stage)
            if route is None:
                # The edge is cut off: the stage keeps the route that its fragment keeps.
                route = (fragment.route or ()) if stage == fragment.output else ()
            if stage in known_before and known_before[stage].node == node:
                add(node, UpdateStage(stage, route))
            else:
                add(node, DeployStage(plans[stage], route, awaits_state=stage in begun))

    def add_leaving(node: NodeId, stages: Iterable[StageId]) -> None:
        for stage in stages:
            if after.nodes.get(stage) != node and stage in state_paths:
                add(node, DrainStage(stage, state_paths[stage]))

    for context in redeployment.contexts:
        match context:
            case ToBeDeployed(node, fragment):
                add_staying_and_new(node, fragment)
            case ToBeUpdated(node, fragment_id, _, fragment):
                add_staying_and_new(node, fragment)
                add_leaving(node, before[fragment_id].stages)
            case ToBeUndeployed(node, fragment_id, _):
                add_leaving(node, before[fragment_id].stages)
    return {node: tuple(own) for node, own in contexts.items()}
