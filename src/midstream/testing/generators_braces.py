"""Plans with braces, made of the plans of a query: multi-way joins of all or some of its inputs, in every routing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import get_args

from midstream.algebra.plan import Plan, Routing
from midstream.migration.stairs import StairsBox
from midstream.planning.join_order.join_order import JoinOrder
from midstream.planning.join_order.reorder_joins import join_graphs, map_join_blocks

__all__ = ["in_braces", "plans_with_braces", "restless_stairs"]


def plans_with_braces(plans: Sequence[Plan]) -> list[Plan]:
    """A plan with braces for each of a query's plans with a join, in turns of each kind and routing."""
    with_joins = [plan for plan in plans if any(True for _ in join_graphs(plan))]
    kinds = [(braces, routing) for braces in (_all, _lower, _upper) for routing in get_args(Routing)]
    found = [in_braces(plan, *kinds[number % len(kinds)]) for number, plan in enumerate(with_joins * 2)]
    return list(dict.fromkeys(found))


def in_braces(plan: Plan, braces: Callable[[JoinOrder], JoinOrder], routing: Routing) -> Plan:
    """The plan with some of the joins of each block made one."""
    changed = map_join_blocks(plan, lambda graph: braces(graph.order).routed(routing))
    changed.mark_as_derived_from(plan.derived_from)
    return changed


def _all(order: JoinOrder) -> JoinOrder:
    """Of a, b, c, d: {a b c d}."""
    return JoinOrder.braces(JoinOrder.leaf(alias) for alias in order.aliases)


def _lower(order: JoinOrder) -> JoinOrder:
    """Of a b c d: {a b c} d."""
    if order.sides is None or len(order.aliases) == 2:
        return _all(order)
    left, right = order.sides
    if left.alias is None:
        return JoinOrder.join(_all(left), right)
    return JoinOrder.join(left, _all(right))


def _upper(order: JoinOrder) -> JoinOrder:
    """Of a b c d: {(a b) c d}."""
    if order.sides is None or len(order.aliases) == 2:
        return _all(order)
    left, right = order.sides
    parts = (*left.inputs, right) if left.alias is None else (left, *right.inputs)
    return JoinOrder.braces(parts)


@contextmanager
def restless_stairs() -> Iterator[None]:
    """Let STAIRs change their order as soon as another one seems better, also on a few rows."""
    before = StairsBox.least_rows, StairsBox.largest_share
    StairsBox.least_rows, StairsBox.largest_share = 1, 1.0
    try:
        yield
    finally:
        StairsBox.least_rows, StairsBox.largest_share = before
