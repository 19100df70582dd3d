"""The cheapest join order of a block: dynamic programming over its connected sets of inputs, greedy for large blocks.

Every set of inputs that conditions connect is split in all ways into two connected sets that a condition links
(Moerkotte and Neumann 2006); the cost of a join depends on its two sides only, so the cheapest order of a set consists
of the cheapest orders of its parts. Parts that no condition links are joined last, the smallest first. Where there are
more splits than :data:`MOST_SPLITS`, the pair whose join is cheapest is joined first, again and again (greedy operator
ordering, Fegaras 1998).
"""

from __future__ import annotations

from collections.abc import Iterator

from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.join_cost import MeanJoinCosts
from midstream.planning.cost.sizes import BlockSizes
from midstream.planning.join_order.join_graph import JoinGraph, bits
from midstream.planning.join_order.join_order import JoinOrder

__all__ = ["MOST_SPLITS", "cheapest_join_order", "cheapest_order_of", "connected_sets"]

MOST_SPLITS = 20_000
"""Splits that dynamic programming tries: a chain of 30 inputs, a star of 11, eight inputs on one key."""


def cheapest_join_order(graph: JoinGraph, sizes: BlockSizes, coefficients: CostCoefficients) -> JoinOrder:
    """The order with the least mean cost, without avoidable cross products; of equals, the first found."""
    sizes = sizes.of_graph(graph)
    parts = graph.components(graph.everything)
    chosen = [(_held(part, graph, sizes), cheapest_order_of(part, graph, sizes, coefficients)) for part in parts]
    return JoinOrder.left_deep(order for _, order in sorted(chosen, key=lambda pair: pair[0]))


def connected_sets(graph: JoinGraph, within: int, most: int) -> list[int] | None:
    """All sets of at least two inputs that conditions connect, the small ones first; None if there are more."""
    found: set[int] = set()
    layer = {1 << place for place in bits(within)}
    while layer:
        following: set[int] = set()
        for inputs in layer:
            for place in bits(within & ~inputs):
                larger = inputs | 1 << place
                if larger not in following and graph.are_linked(inputs, 1 << place):
                    following.add(larger)
        found |= following
        if len(found) > most:
            return None
        layer = following
    return sorted(found, key=lambda inputs: (inputs.bit_count(), inputs))


def cheapest_order_of(part: int, graph: JoinGraph, sizes: BlockSizes, coefficients: CostCoefficients) -> JoinOrder:
    """The cheapest order of a set of inputs that conditions connect; its places are those of the sizes."""
    if part & (part - 1) == 0:
        return JoinOrder.leaf(graph.names[part.bit_length() - 1])
    costs = MeanJoinCosts(graph, sizes, coefficients)
    sets = connected_sets(graph, part, MOST_SPLITS // 4)
    if sets is None or sum(1 << inputs.bit_count() - 1 for inputs in sets) > 64 * MOST_SPLITS:
        return _greedy(part, graph, costs)
    return _by_dynamic_programming(part, sets, graph, costs) or _greedy(part, graph, costs)


def _by_dynamic_programming(part: int, sets: list[int], graph: JoinGraph, costs: MeanJoinCosts) -> JoinOrder | None:
    """The cheapest order; None if there are too many splits."""
    best: dict[int, tuple[float, JoinOrder]] = {
        1 << place: (0.0, JoinOrder.leaf(graph.names[place])) for place in bits(part)
    }
    splits = 0
    for inputs in sets:
        for left, right in _splits(inputs):
            if left not in best or right not in best or not graph.are_linked(left, right):
                continue
            splits += 1
            if splits > MOST_SPLITS:
                return None
            below = best[left][0] + best[right][0]
            if inputs in best and below >= best[inputs][0]:
                continue
            cost = below + costs.of(left, right)
            if inputs not in best or cost < best[inputs][0]:
                best[inputs] = (cost, JoinOrder.join(best[left][1], best[right][1]))
    return best[part][1] if part in best else None


def _splits(inputs: int) -> Iterator[tuple[int, int]]:
    """Both parts of each split, once: the lowest input is in the left one."""
    lowest = inputs & -inputs
    rest = inputs ^ lowest
    right = rest
    while right:
        yield inputs ^ right, right
        right = (right - 1) & rest


def _greedy(part: int, graph: JoinGraph, costs: MeanJoinCosts) -> JoinOrder:
    orders = {1 << place: JoinOrder.leaf(graph.names[place]) for place in bits(part)}
    while len(orders) > 1:
        pairs = [
            (costs.of(left, right), left, right)
            for left in orders
            for right in orders
            if left < right and graph.are_linked(left, right)
        ]
        _, left, right = min(pairs)
        joined = JoinOrder.join(orders.pop(left), orders.pop(right))
        orders[left | right] = joined
    ((_, order),) = orders.items()
    return order


def _held(part: int, graph: JoinGraph, sizes: BlockSizes) -> float:
    return float(sizes.held_tuples(part, graph).mean())
