"""Whether the rules can make one plan of another: is this a plan of that query?

A plan that comes as data says which query it belongs to, and may be wrong. What it computes decides: its identity
(``algebra/identity``) must be that of a plan that the rules reach. Most plans of a query have the same identity,
because that is independent of join orders. Only the variants (DISTINCT or a partial aggregate below a join) have
others; these are made again, with the join order of the plan itself: how many join orders there are does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from midstream.algebra.plan import Join, MultiJoin, Plan
from midstream.planning.default_plan import default_plan, simplified_plan
from midstream.planning.equivalents import equivalent_plans, variants
from midstream.planning.join_order.join_graph import JoinGraph
from midstream.planning.join_order.join_order import JoinOrder
from midstream.planning.join_order.reorder_joins import map_join_blocks

__all__ = ["is_derivable"]

MOST_PLANS = 200
"""Plans that are tried in turn where the plan's own join order does not say which: a wrong plan must not keep a query
busy."""

Windows = frozenset[str]


def is_derivable(plan: Plan, query: Plan) -> bool:
    """Whether the rules make the plan of the query's plan as it was bound, or one that differs in join orders only."""
    candidates = chain([default_plan(query)], _variants_in_order_of(plan, query), _first_plans(query))
    return any(plan.identity == candidate.identity and plan.schema == candidate.schema for candidate in candidates)


def _first_plans(query: Plan) -> Iterator[Plan]:
    yield from islice(equivalent_plans(query), MOST_PLANS)


def _variants_in_order_of(plan: Plan, query: Plan) -> Iterator[Plan]:
    """The variants of the query's plan with the join orders that another plan has, as far as it has them."""
    joins = {_windows(node): node for node in plan.walk() if isinstance(node, Join | MultiJoin)}

    def order(leaves: dict[Windows, str]) -> JoinOrder | None:
        if len(leaves) == 1:
            return JoinOrder.leaf(*leaves.values())
        join = joins.get(frozenset[str]().union(*leaves))
        if join is None:
            return None
        below = [
            {windows: name for windows, name in leaves.items() if windows <= _windows(child)} for child in join.inputs
        ]
        if not all(below) or sum(map(len, below)) != len(leaves):
            return None
        inputs = [order(part) for part in below]
        known = [one for one in inputs if one is not None]
        # The variants are those of a tree.
        return JoinOrder.left_deep(known) if len(known) == len(inputs) else None

    def choose(graph: JoinGraph) -> JoinOrder:
        leaves = {_windows(leaf): name for leaf, name in zip(graph.leaves, graph.names, strict=True)}
        return (order(leaves) if len(leaves) == len(graph.leaves) else None) or graph.order

    yield from variants(map_join_blocks(simplified_plan(query), choose))


def _windows(plan: Plan) -> Windows:
    return frozenset(window.identity for window in plan.windows())
