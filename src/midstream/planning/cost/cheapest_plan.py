"""The cheapest plan of a query, given the sizes of its joins: of all shapes, each in its cheapest join order."""

from __future__ import annotations

from collections.abc import Sequence

from midstream.algebra.plan import Plan
from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.derived_sizes import sizes_of_block
from midstream.planning.cost.join_search import cheapest_join_order
from midstream.planning.cost.plan_cost import plan_cost
from midstream.planning.cost.sizes import PlanSizes
from midstream.planning.join_order.join_graph import JoinGraph
from midstream.planning.join_order.join_order import JoinOrder
from midstream.planning.join_order.reorder_joins import map_join_blocks

__all__ = ["cheapest_plan"]


def cheapest_plan(plan: Plan, sizes: PlanSizes, coefficients: CostCoefficients, shapes: Sequence[Plan] = ()) -> Plan:
    """The cheapest plan of the given plan's shape and of others, of which there is one plan each (``planning/shapes``).

    Shapes whose sizes cannot be derived are left out, and of the given plan, blocks without sizes stay as they are.
    """
    best = _in_cheapest_order(plan, sizes, coefficients)
    others = [shape for shape in shapes if shape.identity != plan.identity]
    cost = plan_cost(best, sizes, coefficients) if others else None
    if cost is not None:
        least = float(cost.seconds.mean())
        for shape in others:
            candidate = _in_cheapest_order(shape, sizes, coefficients)
            cost = plan_cost(candidate, sizes, coefficients)
            if cost is not None and float(cost.seconds.mean()) < least:
                best, least = candidate, float(cost.seconds.mean())
    best.mark_as_derived_from(plan.derived_from)
    return best


def _in_cheapest_order(plan: Plan, sizes: PlanSizes, coefficients: CostCoefficients) -> Plan:
    def choose(graph: JoinGraph) -> JoinOrder:
        block = sizes_of_block(graph.build(graph.order), sizes)
        if block is None:
            return graph.order
        order = cheapest_join_order(graph, block, coefficients)
        # The sides of a join do not matter: what is in force stays as it is.
        return graph.order if order.without_sides() == graph.order.without_sides() else order

    return map_join_blocks(plan, choose)
