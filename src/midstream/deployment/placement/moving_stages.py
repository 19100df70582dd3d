"""Which stages of a query must move after the topology changed, and which stay: the pinning rule of ISQD.

From the producer of a broken edge, the plan is followed upwards until a stage whose node the producer's rows can
reach; the stages passed must move. Moving a stage concerns its other producers, too: the same is asked of each of
their edges, until nothing more moves. An edge from which no stage above can be reached moves nothing.

Edges are examined from the sources upwards: a stage that moves anyway does not make the stages above it move for the
sake of where it was.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from midstream.deployment.placement.global_plan import GlobalPlan, NodeId, StageId
from midstream.deployment.placement.placement import QueryPlacement
from midstream.deployment.topology.topology import Topology

__all__ = ["MovingStages", "moving_stages", "staying_stages"]


@dataclass(frozen=True)
class MovingStages:
    """What stays and what moves of one query."""

    before: QueryPlacement
    staying: dict[StageId, NodeId]
    """The stages that have a node and keep it."""
    moving: frozenset[StageId]
    """The stages for which a node is to be found."""
    returned: tuple[StageId, ...]
    """Of those that stay, the ones that were waiting for the node they are pinned to, which is there again."""
    waiting: frozenset[StageId]
    """Edges that stay cut off because a stage would have to move that has no room, or whose state cannot follow."""


def moving_stages(
    plan: GlobalPlan, before: QueryPlacement, topology: Topology, broken: Collection[StageId]
) -> MovingStages:
    """Decide for one query. ``broken`` are the edges that may have lost or regained their route in the topology."""
    search = _Search(plan, before, topology, {*broken, *before.cut_off})
    moving = search.run()
    staying = {stage: node for stage, node in search.nodes.items() if stage not in moving}
    returned = tuple(stage for stage in staying if stage not in before.nodes)
    return MovingStages(before, staying, frozenset(moving), returned, frozenset(search.waiting_for_state))


def staying_stages(plan: GlobalPlan, before: QueryPlacement, topology: Topology) -> MovingStages:
    """A query that must move and has no room: what is there stays, also on a leaving node; the rest runs nowhere."""
    staying = {s: node for s, node in before.nodes.items() if node in topology.nodes or node in topology.leaving}
    return MovingStages(before, staying, frozenset(), (), frozenset(plan.stages_of(before.query)))


class _Search:
    def __init__(self, plan: GlobalPlan, before: QueryPlacement, topology: Topology, broken: set[StageId]) -> None:
        self._plan = plan
        self._topology = topology
        self._broken = broken
        self._stages = plan.stages_of(before.query)
        self._reachable: dict[NodeId, dict[NodeId, int]] = {}
        self.nodes: dict[StageId, NodeId] = {}
        """Where stages are, as far as their nodes still exist or exist again."""
        self._homeless: set[StageId] = set()
        for stage in self._stages:
            pinned_to = plan.stages[stage].pinned_to
            node = before.nodes.get(stage) if pinned_to is None else pinned_to
            if node is not None and node in topology.nodes:
                self.nodes[stage] = node
            elif pinned_to is None:
                self._homeless.add(stage)
        self.waiting_for_state: set[StageId] = set()

    def run(self) -> set[StageId]:
        hopeless: set[StageId] = set()
        while True:
            moving = set(self._homeless)
            counted_on: set[StageId] = set()
            settled = restart = False
            while not settled and not restart:
                settled = True
                for edge in self._stages:
                    if edge in hopeless or edge in moving or not self._is_in_question(edge, moving):
                        continue
                    passed = self._passed(edge, moving)
                    if passed is None:
                        hopeless.add(edge)
                        # It made stages move for a pin that then moved itself: without it they may stay.
                        restart = edge in counted_on
                    elif not moving.issuperset(passed):
                        moving.update(passed)
                        counted_on.add(edge)
                        settled = False
                    if restart:
                        break
            if not restart:
                return moving

    def _is_in_question(self, edge: StageId, moving: set[StageId]) -> bool:
        return edge in self.nodes and (edge in self._broken or self._plan.consumer_of(edge) in moving)

    def _passed(self, edge: StageId, moving: set[StageId]) -> list[StageId] | None:
        """The stages below the next one that stays and that the edge's rows can reach; None if there is none."""
        start = self.nodes[edge]
        reachable = self._reachable.get(start)
        if reachable is None:
            reachable = self._reachable[start] = self._topology.reachable_from(start)
        passed: list[StageId] = []
        above = self._plan.consumer_of(edge)
        while above is not None:
            if above not in moving:
                node = self.nodes.get(above)
                if node is not None and node in reachable:
                    return passed if self._states_can_follow(edge, passed) else None
                if self._plan.stages[above].pinned_to is not None:
                    return None
            passed.append(above)
            above = self._plan.consumer_of(above)
        return None

    def _states_can_follow(self, edge: StageId, passed: list[StageId]) -> bool:
        """Whether the states of these stages can get to the edge's rows, and so to wherever they will meet."""
        states = [self.nodes[stage] for stage in passed if self._plan.stages[stage].is_stateful and stage in self.nodes]
        if all(self._topology.state_path(node, self.nodes[edge]) is not None for node in states):
            return True
        self.waiting_for_state.add(edge)
        return False
