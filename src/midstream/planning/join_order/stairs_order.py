"""The tree that a multi-way join by STAIRs follows at the moment: a left-deep order of each of its braces.

STAIRs (Deshpande and Hellerstein 2004) keep intermediate results as a tree of joins does. So a plan with braces routed
by STAIRs is run as a plan without them, which changes from time to time.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from midstream.algebra.plan import MultiJoin, Plan
from midstream.planning.join_order.join_order import JoinOrder
from midstream.planning.join_order.reorder_joins import map_join_blocks

__all__ = ["STAIRS", "StairsOrders", "has_stairs", "without_stairs"]

STAIRS = ("stairs", "eager-stairs")

StairsOrders = Mapping[frozenset[str], tuple[int, ...]]
"""By the aliases inside braces: their parts, by place, in the order in which they are joined."""


def has_stairs(plan: Plan) -> bool:
    """Whether a multi-way join of the plan is routed by STAIRs."""
    return any(isinstance(node, MultiJoin) and node.routing in STAIRS for node in plan.walk())


def without_stairs(plan: Plan, orders: StairsOrders) -> Plan:
    """The plan with a left-deep tree for each braces by STAIRs; in the order of the text where none is given."""

    def replaced(order: JoinOrder) -> JoinOrder:
        if order.alias is not None:
            return order
        inputs = tuple(replaced(part) for part in order.inputs)
        if order.sides is not None:
            return JoinOrder.join(*inputs)
        if order.routing not in STAIRS:
            return JoinOrder.braces(inputs, order.routing, order.probe_orders)
        places = orders.get(frozenset(order.aliases), range(len(inputs)))
        return reduce(JoinOrder.join, (inputs[place] for place in places))

    return map_join_blocks(plan, lambda graph: replaced(graph.order))
