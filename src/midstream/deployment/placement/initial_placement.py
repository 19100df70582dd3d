"""The first placement of a query. Every source must reach its sink; only a query that is placed waits for links."""

from __future__ import annotations

from midstream.deployment.placement.free_slots import FreeSlots
from midstream.deployment.placement.global_plan import GlobalPlan, StageId
from midstream.deployment.placement.placement import Placement, QueryPlacement
from midstream.deployment.placement.placement_strategy import BottomUp, PlacementStrategy
from midstream.deployment.placement.stage_placement import place_stages
from midstream.deployment.topology.topology import Topology
from midstream.errors import SinkUnreachable, UnknownNode, did_you_mean

__all__ = ["initial_placement", "place_query"]


def place_query(
    plan: GlobalPlan,
    query: str,
    topology: Topology,
    placement: Placement,
    strategy: PlacementStrategy | None = None,
) -> QueryPlacement:
    """Place a query beside those that are placed; if that is impossible, an error says why and nothing changes."""
    stages = [plan.stages[stage] for stage in plan.stages_of(query)]
    nodes = {stage.id: stage.pinned_to for stage in stages if stage.pinned_to is not None}
    slots = FreeSlots(topology, placement)
    for stage, node in nodes.items():
        if node not in topology.nodes:
            raise UnknownNode(
                f'stage "{stage}" is pinned to node "{node}", which does not exist',
                hint=did_you_mean(node, topology.nodes),
            )
    for stage, node in nodes.items():
        slots.take(node, plan.stages[stage])
    for stage, node in nodes.items():
        above = _next_pinned(plan, stage)
        if above is not None and topology.path(node, nodes[above]) is None:
            raise SinkUnreachable(
                f'query "{query}": no path leads from "{node}" to "{nodes[above]}"',
                detail=f'Rows of stage "{stage}" are needed by stage "{above}".',
                hint="Add the missing link first.",
            )
    moving = {stage.id for stage in stages} - nodes.keys()
    place_stages(plan, query, moving, nodes, topology, slots, strategy or BottomUp())
    routes = {}
    for edge in plan.stages_of(query):
        consumer = plan.consumer_of(edge)
        if consumer is None:
            continue
        route = topology.path(nodes[edge], nodes[consumer]) if edge in nodes and consumer in nodes else None
        if route is None:
            raise SinkUnreachable(f'query "{query}": stage "{consumer}" can be placed on no node that its inputs reach')
        routes[edge] = route
    placed = QueryPlacement(query, nodes, routes)
    placement.put(placed)
    return placed


def initial_placement(plan: GlobalPlan, topology: Topology, strategy: PlacementStrategy | None = None) -> Placement:
    """All queries of a plan, placed one after the other."""
    placement = Placement()
    for query in plan.queries:
        place_query(plan, query, topology, placement, strategy)
    return placement


def _next_pinned(plan: GlobalPlan, stage: StageId) -> StageId | None:
    above = plan.consumer_of(stage)
    while above is not None and plan.stages[above].pinned_to is None:
        above = plan.consumer_of(above)
    return above
