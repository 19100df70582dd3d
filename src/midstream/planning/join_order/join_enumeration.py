"""All orders in which the leaves of a join graph can be joined, one at a time.

Every binary tree over the leaves comes exactly once: left-deep, bushy and all shapes between. A join is the same with
its sides exchanged, so by default one of both is given, the one whose left side has the leaf that comes first; a
right-deep order then appears as the left-deep one it mirrors. With ``sided=True`` all variants are given: n leaves have
(2n − 3)!! orders without sides and (2n − 2)!/(n − 1)! with.

Orders without a cross product come first. Where the graph falls into parts that no condition links, they are those
that join each part by itself before crossing the parts.

The generator keeps one path down the tree and nothing of what it has given, so the first orders of a 100-way join come
at once and memory does not grow. ``priority`` names the leaves best first: the first order is then left-deep along it,
as far as the links allow, and the following ones change the top of the tree last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from midstream.planning.join_order.join_graph import JoinGraph, bits
from midstream.planning.join_order.join_order import JoinOrder

__all__ = ["enumerate_join_orders"]


def enumerate_join_orders(
    graph: JoinGraph, *, priority: Sequence[str] | None = None, sided: bool = False
) -> Iterator[JoinOrder]:
    """The orders of the graph's leaves, lazily, those without avoidable cross products first."""
    return _Enumeration(graph, priority or graph.names, sided).orders()


class _Enumeration:
    def __init__(self, graph: JoinGraph, priority: Sequence[str], sided: bool) -> None:
        assert sorted(priority) == sorted(graph.names)
        self.graph = graph
        self.sided = sided
        positions = {name: position for position, name in enumerate(graph.names)}
        self.ranked = [positions[name] for name in priority]

    def orders(self) -> Iterator[JoinOrder]:
        everything = self.graph.everything
        good = (order for order, _ in self.trees(everything, only_good=True))
        others = (order for order, is_good in self.trees(everything, only_good=False) if not is_good)
        return chain(good, others)

    def trees(self, leaves: int, only_good: bool) -> Iterator[tuple[JoinOrder, bool]]:
        """All trees over the leaves, each with whether it has no avoidable cross product."""
        if leaves & (leaves - 1) == 0:
            yield JoinOrder.leaf(self.graph.names[leaves.bit_length() - 1]), True
            return
        for one, other in self.good_splits(leaves) if only_good else self.all_splits(leaves):
            is_good_split = only_good or self.is_good_split(one, other)
            for left, left_good in self.trees(one, only_good):
                for right, right_good in self.trees(other, only_good):
                    is_good = is_good_split and left_good and right_good
                    yield JoinOrder.join(left, right), is_good
                    if self.sided:
                        yield JoinOrder.join(right, left), is_good

    def first(self, leaves: int) -> int:
        """The leaf that comes first, as a set."""
        return next(1 << position for position in self.ranked if leaves >> position & 1)

    def last_to_second(self, leaves: int) -> Iterator[int]:
        first = self.first(leaves)
        return (1 << p for p in reversed(self.ranked) if leaves >> p & 1 and first != 1 << p)

    def is_good_split(self, one: int, other: int) -> bool:
        """Whether joining these sets neither is nor forces an avoidable cross product."""
        components = self.graph.components(one | other)
        if len(components) > 1:
            return all(not (part & one and part & other) for part in components)
        graph = self.graph
        return graph.are_linked(one, other) and graph.is_connected(one) and graph.is_connected(other)

    def good_splits(self, leaves: int) -> Iterator[tuple[int, int]]:
        """Two parts of the leaves, the first leaf in the left one, such that no avoidable cross product follows."""
        components = self.graph.components(leaves)
        if len(components) > 1:
            base, *others = sorted(components, key=lambda part: self.ranked.index(self.first(part).bit_length() - 1))
            return self.splits_of(leaves, base, others)
        return self.linked_splits(leaves)

    def linked_splits(self, leaves: int) -> Iterator[tuple[int, int]]:
        graph = self.graph
        for single in self.last_to_second(leaves):
            if graph.are_linked(leaves ^ single, single) and graph.is_connected(leaves ^ single):
                yield leaves ^ single, single
        for part in self.connected_parts(self.first(leaves), leaves):
            rest = leaves ^ part
            if rest.bit_count() < 2 or not graph.are_linked(part, rest):
                continue
            if graph.is_connected(part) and graph.is_connected(rest):
                yield part, rest

    def connected_parts(self, start: int, leaves: int) -> Iterator[int]:
        """All sets of leaves around the start that conditions connect (those of three and more leaves included)."""
        yield start
        yield from self.grown(start, start, leaves)

    def grown(self, part: int, excluded: int, leaves: int) -> Iterator[int]:
        # Moerkotte and Neumann's enumeration: each step adds any part of the neighbourhood that is not yet excluded.
        fringe = self.loose_neighbourhood(part) & leaves & ~excluded
        for added in _nonempty_subsets(fringe):
            yield part | added
            yield from self.grown(part | added, excluded | fringe, leaves)

    def loose_neighbourhood(self, leaves: int) -> int:
        result = self.graph.neighbourhood(leaves)
        for mask in self.wide_conditions():
            if mask & leaves:
                result |= mask
        return result & ~leaves

    def wide_conditions(self) -> Iterator[int]:
        graph = self.graph
        for residual in graph.residuals:
            if residual.mask.bit_count() > 2:
                yield residual.mask
        for members in graph.classes:
            if any(member.mask.bit_count() > 1 for member in members):
                mask = 0
                for member in members:
                    mask |= member.mask
                yield mask

    def all_splits(self, leaves: int) -> Iterator[tuple[int, int]]:
        first = self.first(leaves)
        return self.splits_of(leaves, first, [1 << p for p in self.ranked if leaves >> p & 1 and first != 1 << p])

    def splits_of(self, leaves: int, base: int, parts: Sequence[int]) -> Iterator[tuple[int, int]]:
        """All ways to give the parts to the left side, which has the base, or to the right side, which needs one."""
        for part in reversed(parts):
            yield leaves ^ part, part
        for chosen in range(1, 1 << len(parts)):
            if chosen.bit_count() > 1:
                right = sum(parts[position] for position in bits(chosen))
                yield leaves ^ right, right


def _nonempty_subsets(mask: int) -> Iterator[int]:
    subset = mask
    while subset:
        yield subset
        subset = (subset - 1) & mask
