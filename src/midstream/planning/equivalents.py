"""All plans that the rules reach from one: lazily, best first, none twice.

The default plan comes first, followed by its variants: every combination of the rules that may or may not help
(``planning/rules``: VARIANTS) and other orders of the differences. Then come the other join orders, those without cross
products first, each followed by its own variants; where a query has several blocks of joins, the outermost changes
fastest.

Nothing is kept of the plans already given: different join orders give different plans, and the variants of one order
are few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice, permutations, product

from midstream.algebra.identity import difference_chain
from midstream.algebra.plan import Difference, Plan
from midstream.planning.default_plan import default_join_order, simplified_plan
from midstream.planning.join_order.join_enumeration import enumerate_join_orders
from midstream.planning.join_order.join_graph import JoinGraph
from midstream.planning.join_order.join_order import JoinOrder
from midstream.planning.join_order.reorder_joins import join_graphs, map_join_blocks
from midstream.planning.rewrite import fold, over
from midstream.planning.rules import VARIANTS
from midstream.planning.rules.reorder_differences import subtract

__all__ = ["equivalent_plans", "variants"]

MOST_DIFFERENCE_ORDERS = 24
"""Orders of differences tried per join order: more would hide the other variants behind them."""


def equivalent_plans(plan: Plan) -> Iterator[Plan]:
    """Plans whose results are snapshot-equivalent to the given one's, the default plan first."""
    simple = simplified_plan(plan)
    for ordered in _join_orders(simple):
        seen: set[Plan] = set()
        for variant in variants(ordered):
            if variant not in seen:
                seen.add(variant)
                yield variant


def _join_orders(plan: Plan) -> Iterator[Plan]:
    """The plan in every combination of its blocks' orders."""
    for orders in _combinations(list(join_graphs(plan))):
        following = iter(orders)
        yield map_join_blocks(plan, lambda _: next(following))  # noqa: B023 (called before the loop goes on)


def _combinations(graphs: list[JoinGraph]) -> Iterator[tuple[JoinOrder, ...]]:
    """One order per graph; the first graph's order changes fastest."""
    if not graphs:
        yield ()
        return
    for rest in _combinations(graphs[1:]):
        for order in _orders(graphs[0]):
            yield (order, *rest)


def _orders(graph: JoinGraph) -> Iterator[JoinOrder]:
    best = default_join_order(graph)
    known = best.without_sides()
    others = enumerate_join_orders(graph, priority=best.aliases)
    return chain([best], (order for order in others if order.without_sides() != known))


def variants(plan: Plan) -> Iterator[Plan]:
    """The plan itself, then what the variant rules and other orders of differences make of it."""
    for ordered in _difference_orders(plan):
        for used in sorted(product((False, True), repeat=len(VARIANTS)), key=sum):
            variant = ordered
            for rule, is_used in zip(VARIANTS, used, strict=True):
                variant = rule(variant) if is_used else variant
            yield variant


def _difference_orders(plan: Plan) -> Iterator[Plan]:
    """The plan with the subtracted inputs of its differences in every order, the given one first."""
    lengths = [len(subtracted) for _, subtracted in _difference_chains(plan)]
    combinations = product(*(permutations(range(length)) for length in lengths))
    for orders in islice(combinations, MOST_DIFFERENCE_ORDERS):
        yield _with_difference_orders(plan, iter(orders))


def _difference_chains(plan: Plan) -> Iterator[tuple[Plan, list[Plan]]]:
    pending = [plan]
    while pending:
        node = pending.pop()
        below: list[Plan] = list(node.inputs)
        if isinstance(node, Difference):
            base, subtracted = difference_chain(node)
            yield base, subtracted
            below = [base, *subtracted]
        pending.extend(reversed(below))


def _with_difference_orders(plan: Plan, orders: Iterator[tuple[int, ...]]) -> Plan:
    chosen: dict[int, tuple[int, ...]] = {}

    def inputs(node: Plan) -> Sequence[Plan]:
        if not isinstance(node, Difference):
            return node.inputs
        base, subtracted = difference_chain(node)
        chosen[id(node)] = next(orders)
        return [base, *subtracted]

    def rebuild(node: Plan, new: tuple[Plan, ...]) -> Plan:
        if not isinstance(node, Difference):
            return over(node, new)
        base, *subtracted = new
        return subtract(base, [subtracted[place] for place in chosen[id(node)]], node.keep)

    return fold(plan, inputs, rebuild)
