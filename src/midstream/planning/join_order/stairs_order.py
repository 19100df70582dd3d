"""The tree that a multi-way join by STAIRs follows at the moment: a left-deep order of each of its braces.

STAIRs (Deshpande and Hellerstein 2004) keep intermediate results as a tree of joins does. So a plan with braces routed
by STAIRs is run as a plan without them, which changes from time to time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

from midstream.algebra.plan import Join, MultiJoin, Plan
from midstream.planning.join_order.join_graph import JoinGraph, block_joins
from midstream.planning.join_order.join_order import JoinOrder
from midstream.planning.join_order.reorder_joins import join_graphs, map_join_blocks

__all__ = ["STAIRS", "JoinKey", "StairsOrders", "has_stairs", "joins_by_key", "without_stairs"]

STAIRS = ("stairs", "eager-stairs")

JoinKey = tuple[str, frozenset[str]]
"""A join of a plan in any join order: its block, by the fingerprint, and the aliases below it. The sides of a UNION may
have the same aliases."""
StairsOrders = Mapping[JoinKey, tuple[int, ...]]
"""By multi-way join: its parts, by place, in the order in which they are joined."""


def has_stairs(plan: Plan) -> bool:
    """Whether a multi-way join of the plan is routed by STAIRs."""
    return any(isinstance(node, MultiJoin) and node.routing in STAIRS for node in plan.walk())


def joins_by_key(plan: Plan) -> Iterator[tuple[JoinKey, Join | MultiJoin]]:
    """All joins of the plan."""
    for graph in join_graphs(plan):
        block = graph.build(graph.order)
        for join, order in block_joins(block):
            yield (block.fingerprint, frozenset(order.aliases)), join


def without_stairs(plan: Plan, orders: StairsOrders) -> Plan:
    """The plan with a left-deep tree for each multi-way join that STAIRs route; in the order of the text where none is
    given."""

    def chosen(graph: JoinGraph) -> JoinOrder:
        return replaced(graph.order, graph.build(graph.order).fingerprint)

    def replaced(order: JoinOrder, block: str) -> JoinOrder:
        if order.alias is not None:
            return order
        inputs = tuple(replaced(part, block) for part in order.inputs)
        if order.sides is not None:
            return JoinOrder.join(*inputs)
        if order.routing not in STAIRS:
            return JoinOrder.braces(inputs, order.routing, order.probe_orders)
        places = orders.get((block, frozenset(order.aliases)), range(len(inputs)))
        return reduce(JoinOrder.join, (inputs[place] for place in places))

    return map_join_blocks(plan, chosen)
