"""What one join of two sets of a block's inputs costs, and how many pairs it must compare."""

from __future__ import annotations

from dataclasses import dataclass, field

from midstream.algebra.expressions import Call
from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.sizes import BlockSizes, Replicates
from midstream.planning.join_order.join_graph import JoinGraph

__all__ = ["MeanJoinCosts", "has_range_key", "join_cost"]

_COMPARISONS = frozenset({"<", "<=", ">", ">="})


def join_cost(graph: JoinGraph, sizes: BlockSizes, left: int, right: int, coefficients: CostCoefficients) -> Replicates:
    """The cost of a join of two sets of a block's inputs over the span, apart from what it costs in every push."""
    both = left | right
    produced = sizes.increment(both, graph)
    seconds = produced * coefficients.per_tuple_out(both.bit_count())
    for side in (left, right):
        entering = sizes.increment(side, graph)
        seconds = seconds + entering * coefficients.per_tuple_in(side.bit_count())
    if not graph.are_linked_by_equality(left, right):
        seconds = seconds + coefficients.candidate * _candidates(graph, sizes, left, right)
    return seconds


@dataclass(frozen=True)
class MeanJoinCosts:
    """The means of the costs of joins, for a search that compares many of them.

    The mean of a sum is the sum of the means, so what a set of inputs costs as the result and as a side of a join is
    computed once for all joins that it is part of.
    """

    graph: JoinGraph
    sizes: BlockSizes
    coefficients: CostCoefficients
    _increments: dict[int, float] = field(default_factory=dict, repr=False)

    def of(self, left: int, right: int) -> float:
        """The mean of :func:`join_cost`."""
        both = left | right
        seconds = self._increment(both) * self.coefficients.per_tuple_out(both.bit_count())
        for side in (left, right):
            seconds += self._increment(side) * self.coefficients.per_tuple_in(side.bit_count())
        if not self.graph.are_linked_by_equality(left, right):
            seconds += self.coefficients.candidate * float(_candidates(self.graph, self.sizes, left, right).mean())
        return seconds

    def _increment(self, inputs: int) -> float:
        if inputs not in self._increments:
            self._increments[inputs] = float(self.sizes.increment(inputs, self.graph).mean())
        return self._increments[inputs]


def _candidates(graph: JoinGraph, sizes: BlockSizes, left: int, right: int) -> Replicates:
    """Pairs whose conditions are evaluated where no equality finds partners."""
    if has_range_key(graph, left, right):
        # Partners are found by a range of keys: mostly those that the condition lets through.
        return 2 * sizes.increment(left | right, graph)
    held = [sizes.held_tuples(side, graph) for side in (left, right)]
    return sizes.increment(left, graph) * held[1] + sizes.increment(right, graph) * held[0]


def has_range_key(graph: JoinGraph, left: int, right: int) -> bool:
    """Whether a comparison of something on one side with something on the other finds partners by a range of keys."""
    return any(_is_range(predicate, graph, left, right) for predicate in graph.predicates(left, right))


def _is_range(predicate: object, graph: JoinGraph, left: int, right: int) -> bool:
    if not (isinstance(predicate, Call) and predicate.function in _COMPARISONS):
        return False
    read = [_mask(operand.relations, graph) for operand in predicate.operands]
    return all(mask and (not mask & ~left or not mask & ~right) for mask in read)


def _mask(relations: frozenset[str], graph: JoinGraph) -> int:
    return sum(
        1 << place
        for place, base in enumerate(graph.bases)
        if any(field.relation in relations for field in base.schema)
    )
