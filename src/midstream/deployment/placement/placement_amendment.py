"""Amends a placement after a batch of topology events: only what the events broke is placed anew.

1. All events are applied to the topology.
2. An edge is *affected* if its route uses a link or node that is gone, or if it was cut off and a new link or node
   may restore it. Queries without affected edges are not looked at.
3. If the consumer of an affected edge can still be reached, only the route changes. Otherwise the plan is followed
   upwards until a stage whose node can be reached; every stage passed on the way moves, and its other producers stay
   where they are. (ISQD calls the stages that stay the upstream and downstream pins.) Stages of a removed or lost
   node always move.
4. The stages that move are placed by a strategy, between the pins.
5. If nothing above can be reached, nothing moves: the edge is *cut off* and waits for a link. The same holds if a
   stage would have to move and its state could not follow.

New links improve nothing by themselves: a stage stays where it is as long as its rows get through.

A removal is a request: it is refused if it would lose state, or if no node has room for a stage that must move.
Whatever is refused, topology and placement stay as they were. Everything else is a fact. The stages on a lost node have
lost their state, and the amendment lists them. If no node has room, the query *waits for room*: its stages stay where
they are, those of a lost node run nowhere, and edges without a route are cut off, until it is reconsidered.

The cost follows the size of the affected queries and the number of nodes between them and the cloud, not the size of
the topology. Queries do not depend on each other, except that they compete for slots, in the order of their names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from midstream.deployment.placement.free_slots import FreeSlots
from midstream.deployment.placement.global_plan import GlobalPlan, NodeId, StageId
from midstream.deployment.placement.moving_stages import MovingStages, moving_stages, staying_stages
from midstream.deployment.placement.placement import Placement, QueryPlacement
from midstream.deployment.placement.placement_strategy import BottomUp, PlacementStrategy
from midstream.deployment.placement.stage_placement import place_stages
from midstream.deployment.topology.topology import Route, Topology
from midstream.deployment.topology.topology_events import (
    AddLink,
    AddNode,
    LoseNode,
    RemoveLink,
    RemoveNode,
    TopologyEvent,
    apply_events,
)
from midstream.errors import NoFreeSlot, StateOutOfReach, TopologyError

__all__ = ["Amendment", "QueryAmendment", "StageMove", "amend"]


@dataclass(frozen=True)
class StageMove:
    """A stage runs elsewhere than before."""

    stage: StageId
    source: NodeId | None
    """Where it ran; None: nowhere, it was waiting for a node."""
    target: NodeId | None
    """Where it runs now; None: nowhere, it waits for a node."""
    state_path: Route | None = None
    """The way of its state from source to target; None if it has none, or none any more."""


@dataclass(frozen=True)
class QueryAmendment:
    """What changes for one query."""

    query: str
    before: QueryPlacement
    after: QueryPlacement
    moves: tuple[StageMove, ...] = ()
    rerouted: Mapping[StageId, tuple[Route, Route]] = field(default_factory=dict)
    """The old and the new route of edges that had and have one."""
    cut_off: tuple[StageId, ...] = ()
    """Edges that have no route any more."""
    restored: tuple[StageId, ...] = ()
    """Edges that were cut off and have a route again."""
    lost_state: tuple[StageId, ...] = ()
    """Stages whose state was on a node that is lost."""

    def __bool__(self) -> bool:
        """Whether anything changes."""
        return bool(self.moves or self.rerouted or self.cut_off or self.restored)


@dataclass(frozen=True)
class Amendment:
    """What a batch of events changes: the queries that it affects, and how."""

    queries: Mapping[str, QueryAmendment]
    waiting: Mapping[str, str] = field(default_factory=dict)
    """The queries that wait for room, and which stage has none."""

    @property
    def moves(self) -> Iterator[StageMove]:
        for query in self.queries.values():
            yield from query.moves

    @property
    def rerouted(self) -> Mapping[StageId, tuple[Route, Route]]:
        return {edge: routes for query in self.queries.values() for edge, routes in query.rerouted.items()}

    @property
    def cut_off(self) -> list[StageId]:
        return [edge for query in self.queries.values() for edge in query.cut_off]

    @property
    def restored(self) -> list[StageId]:
        return [edge for query in self.queries.values() for edge in query.restored]

    @property
    def lost_state(self) -> list[StageId]:
        return [stage for query in self.queries.values() for stage in query.lost_state]


def amend(
    plan: GlobalPlan,
    topology: Topology,
    placement: Placement,
    events: Sequence[TopologyEvent],
    strategy: PlacementStrategy | None = None,
    reconsider: Iterable[str] = (),
    leave_alone: Collection[str] = (),
) -> Amendment:
    """Apply a batch of events to the topology and amend the placement.

    ``leave_alone`` names queries that keep their placement whatever the events: they are reconsidered later.
    ``reconsider`` names queries to look at whatever the events: they wait for room, or their placement was put back to
    an earlier one (a redeployment was given up), which the topology may no longer allow. Slots that others have taken
    meanwhile are not taken from them: until the query has moved, a node may run more stages than it has slots.
    """
    reconsidered = set(reconsider)
    waiting: dict[str, str] = {}
    with topology.transaction():
        affected = _affected_edges(topology, placement, events)
        affected = {query: edges for query, edges in affected.items() if query not in leave_alone}
        for query in reconsidered:
            affected.setdefault(query, set()).update(placement.of(query).routes)
        has_left = frozenset(topology.leaving)
        apply_events(topology, events)
        while True:
            changes = [
                staying_stages(plan, placement.of(query), topology)
                if query in waiting
                else moving_stages(plan, placement.of(query), topology, edges)
                for query, edges in sorted(affected.items())
            ]
            try:
                amendments = _amend_queries(plan, topology, placement, changes, affected, strategy, has_left)
                break
            except _CannotBePlaced as found:
                is_asked_for = any(isinstance(event, RemoveNode) for event in events)
                if is_asked_for and found.query not in reconsidered:
                    raise found.problem from None
                # Those that took its slots are placed anew: it keeps them.
                waiting[found.query] = str(found.problem)
    # Nothing can fail from here on.
    for amendment in amendments:
        placement.put(amendment.after)
    return Amendment({amendment.query: amendment for amendment in amendments if amendment}, waiting)


class _CannotBePlaced(Exception):
    """A query must move, and cannot."""

    def __init__(self, query: str, problem: TopologyError) -> None:
        self.query, self.problem = query, problem


def _amend_queries(
    plan: GlobalPlan,
    topology: Topology,
    placement: Placement,
    changes: Sequence[MovingStages],
    affected: Mapping[str, set[StageId]],
    strategy: PlacementStrategy | None,
    has_left: Collection[NodeId],
) -> list[QueryAmendment]:
    """Place the stages that move, of all queries; _CannotBePlaced if this is impossible for one of them."""
    slots = FreeSlots(topology, placement)
    for change in changes:
        for stage in change.moving:
            if (node := change.before.nodes.get(stage)) is not None:
                slots.release(node)
    query = ""
    amendments = []
    try:
        for change in changes:
            query = change.before.query
            for stage in change.returned:
                slots.take(change.staying[stage], plan.stages[stage])
        for change in changes:
            query = change.before.query
            examined = affected[query]
            amendments.append(_amend_query(plan, topology, slots, change, examined, strategy or BottomUp(), has_left))
    except (NoFreeSlot, StateOutOfReach) as problem:
        raise _CannotBePlaced(query, problem) from problem
    return amendments


def _affected_edges(
    topology: Topology, placement: Placement, events: Iterable[TopologyEvent]
) -> dict[str, set[StageId]]:
    """The edges to look at, by query; asked before the events are applied."""
    affected: dict[str, set[StageId]] = {}

    def add(edges: Mapping[StageId, str]) -> None:
        for edge, query in edges.items():
            affected.setdefault(query, set()).add(edge)

    def add_link(one: NodeId, other: NodeId) -> None:
        add(placement.edges_over(one, other))
        add(placement.edges_over(other, one))

    for event in events:
        match event:
            case RemoveLink(child, parent):
                add_link(child, parent)
            case RemoveNode(node) | LoseNode(node):
                for other in {*topology.next_hops(node), *topology.previous_hops(node)}:
                    add_link(node, other)
                for query in placement.stages_on(node).values():
                    affected.setdefault(query, set())
            case AddLink(link):
                for place in (link.child, link.parent if link.is_peer else link.child, None):
                    add(placement.waiting_at(place))
            case AddNode(node):
                for place in (node.id, None):
                    add(placement.waiting_at(place))
    return affected


def _amend_query(
    plan: GlobalPlan,
    topology: Topology,
    slots: FreeSlots,
    change: MovingStages,
    examined: set[StageId],
    strategy: PlacementStrategy,
    has_left: Collection[NodeId],
) -> QueryAmendment:
    before = change.before
    nodes = dict(change.staying)
    place_stages(plan, before.query, change.moving, nodes, topology, slots, strategy)
    routes = _routes(plan, before, nodes, topology, examined)
    after = QueryPlacement(before.query, nodes, routes, _cut_off(plan, change, nodes, routes, topology))
    moves, lost_state = _moves(plan, topology, before, after, has_left)
    return QueryAmendment(
        before.query,
        before,
        after,
        moves,
        {
            edge: (before.routes[edge], route)
            for edge, route in routes.items()
            if edge in before.routes and before.routes[edge] != route
        },
        tuple(edge for edge in after.cut_off if edge not in before.cut_off),
        tuple(edge for edge in routes if edge in before.cut_off),
        lost_state,
    )


def _routes(
    plan: GlobalPlan,
    before: QueryPlacement,
    nodes: Mapping[StageId, NodeId],
    topology: Topology,
    examined: set[StageId],
) -> dict[StageId, Route]:
    """The routes that are still possible, and shortest ones for the other edges."""
    routes = {}
    for edge in plan.stages_of(before.query):
        consumer = plan.consumer_of(edge)
        if consumer is None or edge not in nodes or consumer not in nodes:
            continue
        route = before.routes.get(edge)
        is_between = route is not None and (route[0], route[-1]) == (nodes[edge], nodes[consumer])
        if not is_between or (edge in examined and route is not None and not topology.is_route(route)):
            route = topology.path(nodes[edge], nodes[consumer])
        if route is not None:
            routes[edge] = route
    return routes


def _cut_off(
    plan: GlobalPlan,
    change: MovingStages,
    nodes: Mapping[StageId, NodeId],
    routes: Mapping[StageId, Route],
    topology: Topology,
) -> dict[StageId, frozenset[NodeId] | None]:
    """The edges without a route, and where a change may restore them."""
    stages = plan.stages_of(change.before.query)
    homes = {plan.stages[stage].pinned_to for stage in stages if stage not in nodes} - {None}
    cut_off: dict[StageId, frozenset[NodeId] | None] = {}
    for edge in stages:
        if plan.consumer_of(edge) is None or edge in routes:
            continue
        reached = topology.reachable_from(nodes[edge]) if edge in nodes else ()
        cut_off[edge] = None if edge in change.waiting else frozenset({*reached, *filter(None, homes)})
    return cut_off


def _moves(
    plan: GlobalPlan, topology: Topology, before: QueryPlacement, after: QueryPlacement, has_left: Collection[NodeId]
) -> tuple[tuple[StageMove, ...], tuple[StageId, ...]]:
    """The stages that move, with the way of their state, and those whose state is lost.

    The state of a node that was leaving before may have no way any more: it waits for a link, or for the report that
    the node is lost.
    """
    moves, lost = [], []
    for stage in plan.stages_of(before.query):
        source, target = before.nodes.get(stage), after.nodes.get(stage)
        if source == target:
            continue
        path = None
        if plan.stages[stage].is_stateful and source is not None:
            if source not in topology.nodes and source not in topology.leaving:
                lost.append(stage)
            else:
                path = None if target is None else topology.state_path(source, target)
                if path is None and (target is None or source not in has_left):
                    raise StateOutOfReach(
                        f'the state of stage "{stage}" cannot be brought away from node "{source}"',
                        detail=f'The stage would run on "{target}".' if target else "No other node can run the stage.",
                        hint="Add links first, or report the node as lost to continue without its state.",
                    )
        moves.append(StageMove(stage, source, target, path))
    return tuple(moves), tuple(lost)
