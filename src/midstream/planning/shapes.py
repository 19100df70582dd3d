"""The shapes of a query: its plans apart from the order of their joins.

A shape says where distinct and partial aggregates stand, above the joins or below them. For each shape there is a
cheapest join order, so the cheapest plan is found shape by shape (``planning/cost/cheapest_plan``).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from midstream.algebra.plan import Aggregate, Distinct, MultiJoin, Plan, Project
from midstream.planning.default_plan import default_plan
from midstream.planning.equivalents import variants
from midstream.planning.join_order.reorder_joins import join_graphs

__all__ = [
    "MOST_SHAPES",
    "compared_texts",
    "has_several_shapes",
    "join_orders_text",
    "plan_shapes",
    "plan_text",
    "query_shapes",
    "shape_text",
]

MOST_SHAPES = 16
"""Shapes that are compared, the default plan's first."""
_MOST_VARIANTS = 128


def query_shapes(query: Plan) -> tuple[Plan, ...]:
    """One plan of each shape of a query, with its default join orders, the default plan first."""
    return plan_shapes(default_plan(query))


def plan_shapes(plan: Plan) -> tuple[Plan, ...]:
    """The plan, and one plan of each other shape that the rules make of it.

    The rules push distinct and partial aggregates down, never up: not all shapes are reached from every plan.
    """
    if not has_several_shapes(plan):
        return (plan,)
    found: dict[str, Plan] = {}
    for variant in islice(variants(plan), _MOST_VARIANTS):
        found.setdefault(variant.identity, variant)
    return tuple(found.values())[:MOST_SHAPES]


def has_several_shapes(plan: Plan) -> bool:
    """Whether there is something that can stand above joins or below them."""
    return any(isinstance(node, Distinct | Aggregate) for node in plan.walk())


def join_orders_text(plan: Plan) -> str:
    """The join orders of a plan's blocks, the outermost first."""
    return "; ".join(str(graph.order) for graph in join_graphs(plan))


def plan_text(plan: Plan) -> str:
    """A plan in words: its join orders, and what stands below the joins."""
    below = shape_text(plan)
    return f"{join_orders_text(plan)}, {below}" if below else join_orders_text(plan)


def shape_text(plan: Plan) -> str:
    """What stands below the joins, in words; empty if nothing does.

    Only what stands directly at the inputs of joins counts, not what a subquery contains.
    """
    return " and ".join(dict.fromkeys(f"{operator} below the joins" for operator in _below_joins(plan)))


def _below_joins(plan: Plan) -> Iterator[str]:
    for graph in join_graphs(plan):
        for leaf in graph.leaves:
            while isinstance(leaf, Project):
                leaf = leaf.input
            if isinstance(leaf, Distinct):
                yield "distinct"
            elif isinstance(leaf, Aggregate):
                yield "partial aggregates"


def compared_texts(plan: Plan, other: Plan) -> tuple[str, str]:
    """Two plans in words; where these are the same, with the probe orders that differ."""
    text, other_text = plan_text(plan), plan_text(other)
    if text != other_text or plan == other:
        return text, other_text
    orders, others = set(_probe_orders(plan)), set(_probe_orders(other))
    own = [order for order in _probe_orders(plan) if order not in others]
    new = [order for order in _probe_orders(other) if order not in orders]
    return ", ".join([text, *own]), ", ".join([other_text, *new])


def _probe_orders(plan: Plan) -> Iterator[str]:
    for node in plan.walk():
        if isinstance(node, MultiJoin):
            for name, order in zip(node.names, node.probe_orders, strict=False):
                yield f"{name} probes {' '.join(node.names[place] for place in order)}"
