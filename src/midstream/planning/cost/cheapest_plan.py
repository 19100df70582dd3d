"""The cheapest plan of a query, given the sizes of its joins."""

from __future__ import annotations

from midstream.algebra.plan import Plan
from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.join_search import cheapest_join_order
from midstream.planning.cost.sizes import PlanSizes
from midstream.planning.join_order.join_graph import JoinGraph
from midstream.planning.join_order.join_order import JoinOrder
from midstream.planning.join_order.reorder_joins import map_join_blocks

__all__ = ["cheapest_plan"]


def cheapest_plan(plan: Plan, sizes: PlanSizes, coefficients: CostCoefficients) -> Plan:
    """The plan with every block of joins in its cheapest order; blocks without sizes stay as they are."""

    def choose(graph: JoinGraph) -> JoinOrder:
        block = sizes.blocks.get(graph.build(graph.order).identity)
        if block is None:
            return graph.order
        order = cheapest_join_order(graph, block, coefficients)
        # The sides of a join do not matter: what is in force stays as it is.
        return graph.order if order.without_sides() == graph.order.without_sides() else order

    best = map_join_blocks(plan, choose)
    best.mark_as_derived_from(plan.derived_from)
    return best
