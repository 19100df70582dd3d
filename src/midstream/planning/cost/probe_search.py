"""The cheapest probe orders of a multi-way join: for new tuples of each input, in which order they visit the others.

The cost of one more input depends on which were visited before, not on their order, and is the same for all inputs'
tuples but for a factor (``multi_join_cost``). So dynamic programming over sets of inputs finds the cheapest way: that
of a set consists of the cheapest way to the set without its last input, and that input. What no condition links with
the inputs visited waits, as in the operator. Where there are more than :data:`MOST_LOOKUPS` lookups to compare, the
cheapest one is next, again and again.

Which indexes the orders need is not part of the search: an input has one for each key by which a neighbour looks it up,
and nearly all of these are needed whatever the orders are.
"""

from __future__ import annotations

from collections.abc import Callable

from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.multi_join_cost import MultiJoinSizes, ProbeOrder
from midstream.planning.cost.sizes import BlockSizes
from midstream.planning.join_order.join_graph import JoinGraph
from midstream.planning.join_order.join_order import JoinOrder

__all__ = ["MOST_LOOKUPS", "cheapest_probe_orders", "with_cheapest_probe_orders"]

MOST_LOOKUPS = 4_000
"""Pairs of a set of inputs and one more that dynamic programming compares: nine inputs on one key, a chain of 22."""

Seconds = Callable[[int, int], float]
"""What a lookup of one more place costs tuples that have visited a set of places."""


def cheapest_probe_orders(join: MultiJoinSizes, coefficients: CostCoefficients) -> tuple[ProbeOrder, ...]:
    """For each input the order with the least mean cost; of equals, the first found."""
    known: dict[tuple[int, int], float] = {}

    def seconds(visited: int, place: int) -> float:
        if (visited, place) not in known:
            known[visited, place] = join.mean_lookup(visited, place, coefficients)
        return known[visited, place]

    roots = range(len(join.masks))
    by_programming = [_by_dynamic_programming(join, root, seconds, known) for root in roots]
    return tuple(order or _greedy(join, root, seconds) for root, order in zip(roots, by_programming, strict=True))


def with_cheapest_probe_orders(
    order: JoinOrder, graph: JoinGraph, sizes: BlockSizes, coefficients: CostCoefficients
) -> JoinOrder:
    """The join order with the cheapest probe orders in all its braces that have fixed routing."""
    if order.alias is not None:
        return order
    inputs = tuple(with_cheapest_probe_orders(part, graph, sizes, coefficients) for part in order.inputs)
    if order.sides is not None:
        return JoinOrder.join(*inputs)
    if order.routing != "fixed":
        return JoinOrder.braces(inputs, order.routing)
    join = MultiJoinSizes(graph, sizes, tuple(graph.mask_of(part) for part in inputs))
    first = [part.aliases[0] for part in inputs]
    orders = zip(first, cheapest_probe_orders(join, coefficients), strict=True)
    named = tuple((name, tuple(first[place] for place in probed)) for name, probed in orders)
    return JoinOrder.braces(inputs, "fixed", named)


def _by_dynamic_programming(
    join: MultiJoinSizes, root: int, seconds: Seconds, known: dict[tuple[int, int], float]
) -> ProbeOrder | None:
    """The cheapest order; None if there are too many lookups to compare."""
    layer: dict[int, tuple[float, ProbeOrder]] = {1 << root: (0.0, ())}
    for _ in range(len(join.masks) - 1):
        following: dict[int, tuple[float, ProbeOrder]] = {}
        for visited, (spent, order) in layer.items():
            for place in join.candidates(visited):
                total = spent + seconds(visited, place)
                larger = visited | 1 << place
                if larger not in following or total < following[larger][0]:
                    following[larger] = (total, (*order, place))
            if len(known) > MOST_LOOKUPS:
                return None
        layer = following
    ((_, order),) = layer.values()
    return order


def _greedy(join: MultiJoinSizes, root: int, seconds: Seconds) -> ProbeOrder:
    visited, order = 1 << root, list[int]()
    while visited != join.everything:
        order.append(min(join.candidates(visited), key=lambda place: seconds(visited, place)))
        visited |= 1 << order[-1]
    return tuple(order)
