"""How many tuples the joins of a query produce: measured for the subsets of a join block, derived for the others.

The cost of an incremental join tree follows from its *increments*: how many tuples each node produces for the rows that
arrive. The increment of a join over a set of inputs is the same in every join order, so a block of joins is described
by one number per subset of its inputs. All sizes of a block are counted over the same *span*: some of the latest
pushes. What matters are ratios and tuples per arriving row, so the length of the span does not.

Sizes are estimates. Each is a vector of *replicates*: as many independent estimates of the same number, made from
disjoint parts of the sample. Their mean is the estimate. Since costs are linear in sizes, every cost, and every
difference of two costs, has replicates too, and their spread says how certain it is, correlations included.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from midstream.planning.join_order.join_graph import JoinGraph, bits

__all__ = ["BlockSizes", "PlanSizes", "Reduction", "Replicates", "added", "lower_bound", "standard_error"]

T = TypeVar("T")
Replicates = npt.NDArray[np.float64]
"""Independent estimates of one number."""


def standard_error(replicates: Replicates) -> float:
    """How far the mean of the replicates is typically from the truth."""
    if len(replicates) < 2:
        return 0.0
    return float(replicates.std(ddof=1)) / math.sqrt(len(replicates))


def added(numbers: Iterable[Replicates]) -> Replicates:
    """The sum of several numbers; one that is known exactly may have a single replicate.

    >>> added([np.array([1.0, 2.0]), np.array([10.0])]).tolist()
    [11.0, 12.0]
    """
    return reduce(np.add, numbers, np.zeros(1))


def lower_bound(replicates: Replicates, deviations: float) -> float:
    """The mean less so many standard errors."""
    return float(replicates.mean()) - deviations * standard_error(replicates)


@dataclass
class BlockSizes:
    """The sizes of one block of joins over a span of pushes."""

    names: tuple[str, ...]
    """The aliases of the block's inputs; a set of inputs is a bit mask over them."""
    held: tuple[float, ...]
    """How many tuples of each input are inside their windows at the end of the span."""
    increments: Mapping[int, Replicates]
    """By set of inputs: how many tuples its join produced in the span. All single inputs are there."""
    counted: Mapping[int, int] = field(default_factory=dict)
    """By set of inputs that the plan in force joins: how many tuples the join really produced in the span."""
    held_sets: Mapping[int, float] = field(default_factory=dict)
    """By set of several inputs: how many tuples of its join are valid at the end of the span."""
    growth: Mapping[int, float] = field(default_factory=dict)
    """By pair of inputs: how many times as many tuples its join will produce in such a span when all rows in the
    windows are like the latest. Known after a sudden change only."""
    unreduced: str = ""
    """The fingerprint of the block without distinct and partial aggregates at its inputs; empty if one of them cannot
    be measured (``planning/cost/derived_sizes``)."""
    leaves: tuple[str, ...] = ()
    """The fingerprints of the block's inputs."""
    is_derived: bool = False
    """Whether all of this follows from the sizes of another block."""
    _derived: dict[int, Replicates] = field(default_factory=dict, repr=False)

    def of_graph(self, graph: JoinGraph) -> BlockSizes:
        """The same sizes with the inputs in the order of a graph, which another join order may have changed."""
        if graph.names == self.names:
            return self
        places = {name: place for place, name in enumerate(graph.names)}
        bit = [1 << places[name] for name in self.names]

        def moved(by_inputs: Mapping[int, T]) -> dict[int, T]:
            return {sum(bit[place] for place in bits(inputs)): value for inputs, value in by_inputs.items()}

        return replace(
            self,
            names=graph.names,
            held=tuple(self.held[self.names.index(name)] for name in graph.names),
            increments=moved(self.increments),
            counted=moved(self.counted),
            held_sets=moved(self.held_sets),
            growth=moved(self.growth),
            leaves=tuple(self.leaves[self.names.index(name)] for name in graph.names) if self.leaves else (),
            _derived={},
        )

    def later(self, spans: float) -> BlockSizes:
        """What the increments will be so many spans later, if the rows that arrive are like the latest.

        With every span, the windows have one more span of such rows, until they have no others, after ``math.inf``
        spans at the latest. A set grows with the pairs that link its inputs, as if these were independent of each
        other.
        """
        if not self.growth:
            return self
        growth = {pair: self._growth_within(spans, pair) for pair in self.growth}
        increments = {inputs: found * _product_over_links(inputs, growth) for inputs, found in self.increments.items()}
        return replace(self, increments=increments, growth={}, _derived={})

    def _growth_within(self, spans: float, pair: int) -> float:
        """The part of a pair's growth that so many spans bring, of those that its window has.

        At most two further times the present increment per span: rows of two spans meet twice as often, in either
        order, as those of one.
        """
        if math.isinf(spans):
            return self.growth[pair]
        share_of_window = math.sqrt(math.prod(self._turnovers[place] for place in bits(pair)))
        return min(1 + 2 * spans, 1 + (self.growth[pair] - 1) * min(1.0, spans * share_of_window))

    def is_measured(self, inputs: int) -> bool:
        """Whether the increment of the set was measured, and not derived from others."""
        return inputs in self.increments and not self.is_derived

    def increment(self, inputs: int, graph: JoinGraph) -> Replicates:
        """How many tuples the join of the set produces in the span: measured, or else derived."""
        if inputs in self.increments:
            return self.increments[inputs]
        if inputs not in self._derived:
            held = self._held_of_larger(inputs, graph)
            self._derived[inputs] = held * self.turnover(inputs)
        return self._derived[inputs]

    def held_tuples(self, inputs: int, graph: JoinGraph) -> Replicates:
        """How many tuples of the join of the set are valid at the end of the span.

        Where it was not measured: in a steady state as many end as begin, each after its life (Little's law), and a
        combined tuple ends with the first of its parts.
        """
        if inputs in self.held_sets:
            return np.full_like(self.increments[inputs], self.held_sets[inputs])
        turnover = self.turnover(inputs)
        increment = self.increment(inputs, graph)
        return increment / turnover if turnover > 0 else np.zeros_like(increment)

    def life(self, inputs: int) -> float:
        """How many spans a tuple of the set lives."""
        turnover = self.turnover(inputs)
        return 1 / turnover if turnover > 0 else math.inf

    def turnover(self, inputs: int) -> float:
        """The share of a set's held tuples that begins (and ends) in the span: the sum of its inputs' shares."""
        return sum(self._turnovers[place] for place in bits(inputs))

    @cached_property
    def _turnovers(self) -> list[float]:
        """The turnover of each single input."""
        means = [float(self.increments[1 << place].mean()) for place in range(len(self.held))]
        return [mean / held if held > 0 else 0.0 for mean, held in zip(means, self.held, strict=True)]

    def _held_of_larger(self, inputs: int, graph: JoinGraph) -> Replicates:
        """The tuples of a set that was not measured.

        Without two of its inputs, x and y, the set is known. If, given the others, partners of x and of y are
        independent, |S| = |S - x| · |S - y| / |S - x - y|. Where a condition links x and y directly, this is a guess,
        so a pair without one is preferred. Parts that no condition links multiply.
        """
        parts = graph.components(inputs)
        if len(parts) > 1:
            return np.asarray(np.prod([self.held_tuples(part, graph) for part in parts], axis=0))
        best: tuple[int, int] | None = None
        ends: list[int] = []
        for second in (1 << place for place in bits(inputs)):
            if not graph.is_connected(inputs ^ second):
                continue
            for first in ends:
                if not graph.is_connected(inputs ^ first ^ second):
                    continue
                if not graph.are_linked(first, second):
                    return self._combined(inputs, first, second, graph)
                best = best or (first, second)
            ends.append(second)
        if best is None:
            # A condition of several inputs at once, and nothing smaller was measured: as many as the largest input.
            return np.asarray(np.max([self.held_tuples(1 << place, graph) for place in bits(inputs)], axis=0))
        return self._combined(inputs, *best, graph)

    def _combined(self, inputs: int, first: int, second: int, graph: JoinGraph) -> Replicates:
        common = inputs ^ first ^ second
        without = [self.held_tuples(inputs ^ one, graph) for one in (first, second)]
        if not common:
            return without[0] * without[1]
        shared = self.held_tuples(common, graph)
        product = without[0] * without[1]
        return np.divide(product, shared, out=np.zeros_like(product), where=shared > 0)


@dataclass(frozen=True)
class Reduction:
    """What a distinct or partial aggregate makes of an input's rows: see ``planning/cost/derived_sizes``."""

    passing: Replicates
    """How many rows it produces for one that enters."""
    density: Replicates
    """How many of its rows are valid at an instant for each row of the input that is."""
    held: float
    """How many rows of the input are valid at the end of the span."""
    occupancy: float = 0.0
    """The share of the instants at which a row can begin at which one of the same key does."""


@dataclass
class PlanSizes:
    """The sizes of a query's blocks of joins, measured in one place over the same span."""

    rows: int
    """How many rows arrived in the span, in all windows."""
    blocks: Mapping[str, BlockSizes]
    """By the identity of the block's joins."""
    silent: Sequence[str] = ()
    """The aliases of inputs of which no row arrived in the span: sizes say nothing about them."""
    reductions: Mapping[str, Reduction] = field(default_factory=dict)
    """By the fingerprint of an input of joins: of a distinct or partial aggregate there, in force or possible."""
    are_of_windows: bool = False
    """Whether the span is a whole window, because the latest pushes do not say what the next ones are like."""
    derived: dict[str, BlockSizes | None] = field(default_factory=dict, repr=False)
    """By the identity of a block that was not measured: what follows from these sizes, as far as it was asked for."""

    @property
    def are_changing(self) -> bool:
        """Whether streams are not known to be steady, so that later sizes may differ."""
        return any(block.growth for block in self.blocks.values())

    def later(self, spans: float) -> PlanSizes:
        """What the sizes will be so many spans later, if the rows that arrive are like the latest."""
        blocks = {identity: block.later(spans) for identity, block in self.blocks.items()}
        return replace(self, blocks=blocks, derived={})


def _product_over_links(inputs: int, growth: Mapping[int, float]) -> float:
    """The growth of a set: the product over pairs that link all inputs, those that change most first."""
    factor, parts = 1.0, [1 << place for place in bits(inputs)]
    for pair in sorted(growth, key=lambda pair: -abs(math.log(growth[pair]))):
        linked = [part for part in parts if part & pair]
        if not pair & ~inputs and len(linked) == 2:
            factor *= growth[pair]
            parts = [part for part in parts if part not in linked] + [linked[0] | linked[1]]
    return factor
