"""What a multi-way join costs: inserts into the indexes of its inputs, and lookups along their probe orders.

The increment of a set of inputs is known in total. Which share of it begins with new rows of one of them, and is
therefore found along that one's probe order, follows from the turnover: in a steady state as many tuples of a set end
as begin, and each input begins as large a share of them as of its own rows is new (Little's law, as in ``sizes``). So
along the probe order of input i, a set S costs what its increment costs, times turnover(i) / turnover(S). Apart from
the factor turnover(i), a lookup costs the same whoever's probe order it is on.

Where an input is linked with several of those visited by different keys, the operator looks it up by the key of one of
them and compares the others (``engine/operators/multi_join``): these pairs are counted as candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.join_cost import has_range_key
from midstream.planning.cost.sizes import BlockSizes, Replicates, added
from midstream.planning.join_order.join_graph import JoinGraph, bits

__all__ = ["MultiJoinSizes", "ProbeOrder"]

ProbeOrder = tuple[int, ...]
"""For one input, the places of the others in the order in which its rows visit them."""


_Number = TypeVar("_Number", float, Replicates)


@dataclass(frozen=True)
class MultiJoinSizes:
    """A multi-way join of sets of a block's inputs, and the sizes of the block."""

    graph: JoinGraph
    sizes: BlockSizes
    masks: tuple[int, ...]
    """The inputs of the multi-way join, each a set of the block's inputs."""
    _means: dict[int, float] = field(default_factory=dict, repr=False)
    _linking: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict, repr=False)
    _candidates: dict[int, list[int]] = field(default_factory=dict, repr=False)

    def seconds(self, orders: Sequence[ProbeOrder], coefficients: CostCoefficients) -> Replicates:
        """The cost over the span with these probe orders, apart from what it costs in every push."""
        keys = self.index_keys(orders)
        parts = [
            self.sizes.increment(mask, self.graph) * (len(keys[place]) * coefficients.per_tuple_in(mask.bit_count()))
            for place, mask in enumerate(self.masks)
        ]
        for root, order in enumerate(orders):
            turnover = self.sizes.turnover(self.masks[root])
            parts += [turnover * self.lookup(visited, place, coefficients) for visited, place in self.way(root, order)]
        return added(parts)

    def steps(self, orders: Sequence[ProbeOrder]) -> float:
        """How many operators it is in every push: a lookup on a way, and an index, are half of one each."""
        ways = {step for root, order in enumerate(orders) for step in self.way(root, order)}
        return (len(ways) + sum(map(len, self.index_keys(orders)))) / 2

    def way(self, root: int, order: ProbeOrder) -> Iterator[tuple[int, int]]:
        """Which places new tuples of one visit, each with the set of places visited before.

        As the operator does it: what no condition links with those visited waits as long as there is something else.
        """
        visited = 1 << root
        while visited != self.everything:
            candidates = self.candidates(visited)
            place = next(place for place in order if place in candidates)
            yield visited, place
            visited |= 1 << place

    def candidates(self, visited: int) -> list[int]:
        """The places that may be visited next."""
        if visited not in self._candidates:
            left = {place: self.masks[place] for place in bits(self.everything & ~visited)}
            self._candidates[visited] = self.graph.visitable(self.inputs_of(visited), left)
        return self._candidates[visited]

    def lookup(self, visited: int, place: int, coefficients: CostCoefficients) -> Replicates:
        """One more place for tuples that have visited some: for a root whose turnover is one."""
        before, there = self.inputs_of(visited), self.masks[place]
        entering, found = self.begun(before), self.begun(before | there)
        compared = self._compared(visited, place, entering, found, self.begun)
        return _lookup_seconds(entering, found, compared, before, there, coefficients)

    def mean_lookup(self, visited: int, place: int, coefficients: CostCoefficients) -> float:
        """The same by the means of all sizes, for a search that compares many lookups."""
        before, there = self.inputs_of(visited), self.masks[place]
        entering, found = self._mean_begun(before), self._mean_begun(before | there)
        compared = self._compared(visited, place, entering, found, self._mean_begun)
        return float(_lookup_seconds(entering, found, compared, before, there, coefficients))

    def begun(self, inputs: int) -> Replicates:
        """How many tuples of the set begin in the span for a turnover of one."""
        turnover = self.sizes.turnover(inputs)
        increment = self.sizes.increment(inputs, self.graph)
        return increment / turnover if turnover > 0 else np.zeros_like(increment)

    def index_keys(self, orders: Sequence[ProbeOrder]) -> list[list[tuple[int, ...]]]:
        """For each place, by which equality classes it is looked up: an index for each."""
        found: list[dict[tuple[int, ...], None]] = [{} for _ in self.masks]
        for root, order in enumerate(orders):
            for visited, place in self.way(root, order):
                found[place].setdefault(self._key(visited, place)[0])
        return [list(keys) for keys in found]

    @property
    def everything(self) -> int:
        """The set of all places."""
        return (1 << len(self.masks)) - 1

    def inputs_of(self, places: int) -> int:
        """The block's inputs at a set of places."""
        return sum(self.masks[place] for place in bits(places))

    def _mean_begun(self, inputs: int) -> float:
        if inputs not in self._means:
            self._means[inputs] = float(self.begun(inputs).mean())
        return self._means[inputs]

    def _key(self, visited: int, place: int) -> tuple[tuple[int, ...], int, bool]:
        """The equality classes by which the place is looked up, the set of inputs that has the other side, and whether
        there are further classes, by which pairs are compared."""
        by_neighbour = [(self._classes(one, place), self.masks[one]) for one in bits(visited)]
        classes, neighbour = max(by_neighbour, key=lambda pair: len(pair[0]))
        if classes:
            return classes, neighbour, any(not set(found) <= set(classes) for found, _ in by_neighbour)
        before = self.inputs_of(visited)
        return self.graph.linking_classes(before, self.masks[place]), before, False

    def _classes(self, one: int, other: int) -> tuple[int, ...]:
        if (one, other) not in self._linking:
            self._linking[one, other] = self.graph.linking_classes(self.masks[one], self.masks[other])
        return self._linking[one, other]

    def _compared(
        self, visited: int, place: int, entering: _Number, found: _Number, begun: Callable[[int], _Number]
    ) -> _Number:
        """Pairs whose conditions are evaluated because no key, or not all of it, finds partners."""
        before, there = self.inputs_of(visited), self.masks[place]
        classes, neighbour, has_others = self._key(visited, place)
        if not classes:
            return 2 * found if has_range_key(self.graph, before, there) else entering * self._mean_held(there)
        if not has_others:
            return 0 * found
        without = self._mean_begun(neighbour)
        return entering * begun(neighbour | there) / without if without > 0 else found

    def _mean_held(self, inputs: int) -> float:
        return float(self.sizes.held_tuples(inputs, self.graph).mean())


def _lookup_seconds(
    entering: _Number, found: _Number, compared: _Number, before: int, there: int, coefficients: CostCoefficients
) -> _Number:
    return (
        entering * coefficients.per_probe(before.bit_count())
        + found * coefficients.per_tuple_out((before | there).bit_count())
        + coefficients.candidate * compared
    )
