"""What a plan costs: seconds of work for the rows of a span, node by node, from sizes and cost coefficients.

A join pays for every tuple that enters it (looked up on the other side, inserted, merged), for every tuple that it
produces, and for every pair that it must compare because no key finds partners. Operators on keys with slots (distinct,
aggregate, difference) pay for each row that enters. Stateless operators are so much cheaper that they do not count.
Sizes of blocks that were not measured are derived where that is possible (``planning/cost/derived_sizes``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from midstream.algebra.expressions import Call
from midstream.algebra.plan import Aggregate, Difference, Distinct, Join, Leaf, MultiJoin, Plan, Union
from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.derived_sizes import reducer_of, sizes_of_block
from midstream.planning.cost.sizes import BlockSizes, PlanSizes, Replicates, added
from midstream.planning.join_order.join_graph import JoinGraph, is_join_block
from midstream.planning.join_order.join_order import JoinOrder

__all__ = ["InputState", "NodeCost", "PlanCost", "join_cost", "join_key", "plan_cost"]

_COMPARISONS = frozenset({"<", "<=", ">", ">="})


@dataclass(frozen=True)
class InputState:
    """The tuples of one input of a join, as the join keeps them."""

    tuples: str
    """What they are: equal for states of two plans with the same tuples."""
    key: tuple[int, ...]
    """What they are sorted by: the equality classes of the block."""
    inputs: int
    """How many streams or subqueries a tuple is combined from."""
    held: float
    looked_for: float
    """How many of the tuples held now partners will look for that are yet to arrive, at most."""
    partners: float
    """How many partners arrive before the tuples held now have ended."""


@dataclass(frozen=True)
class NodeCost:
    """One node of a plan: how many tuples it produces in the span, how many it holds, and what that costs."""

    key: str
    """Equal for nodes of two plans that do the same work."""
    states: tuple[InputState, ...]
    """What a join keeps of its inputs."""
    inputs: tuple[str, ...]
    """The aliases below a join; empty for other nodes."""
    rows: Replicates
    held: Replicates
    seconds: Replicates
    is_measured: bool
    """Whether the rows were measured, and not derived from other joins."""
    rebuilding: float = 0.0
    """The seconds it takes to compute the state of an operator on keys from what its input holds."""
    counted: int | None = None
    """How many tuples the join over these inputs really produced; None for other nodes, and if the plan in force does
    not join them."""


@dataclass(frozen=True)
class PlanCost:
    """The cost of a plan over the span of the sizes that it was computed from."""

    nodes: tuple[NodeCost, ...]
    """The nodes that cost something, inputs first."""

    @property
    def seconds(self) -> Replicates:
        return added(node.seconds for node in self.nodes)

    def seconds_apart_from(self, other: PlanCost) -> Replicates:
        """The cost of the nodes that the other plan does not have."""
        shared = {node.key for node in other.nodes}
        return added(node.seconds for node in self.nodes if node.key not in shared)


def plan_cost(plan: Plan, sizes: PlanSizes, coefficients: CostCoefficients, pushes: int = 1) -> PlanCost | None:
    """The cost of the plan over the span, which had so many pushes; None if sizes of one of its blocks are missing."""
    nodes: list[NodeCost] = []
    entering: dict[str, _Flow] = {}
    pending: list[Plan] = [plan]
    while pending:
        node = pending.pop()
        if is_join_block(node):
            graph = JoinGraph.of(node)
            block = sizes_of_block(node, sizes)
            if block is None:
                return None
            nodes += _block_cost(node.fingerprint, graph, block.of_graph(graph), coefficients, pushes)
            entering |= _entering_inputs(graph, block.of_graph(graph), sizes)
            pending += graph.leaves
            continue
        pending += node.inputs
        if isinstance(node, Distinct | Aggregate | Difference):
            flow = entering.get(node.fingerprint) or _Flow.together([_flow(child, sizes) for child in node.inputs])
            seconds = flow.rows * coefficients.row + pushes * coefficients.operator
            # What joins have produced is not kept: it is computed again.
            computing = coefficients.per_tuple_out(flow.parts) if flow.parts > 1 else 0.0
            rebuilding = float(flow.held.mean()) * (coefficients.row + computing)
            nodes.append(NodeCost(node.fingerprint, (), (), flow.rows, flow.held, seconds, True, rebuilding))
    return PlanCost(tuple(reversed(nodes)))


def join_key(block: str, order: JoinOrder) -> str:
    """The key of the topmost join of an order, in the block with this fingerprint. Its inputs may be exchanged."""
    return f"{block} {sorted(sorted(part.aliases) for part in order.inputs)}"


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


def _candidates(graph: JoinGraph, sizes: BlockSizes, left: int, right: int) -> Replicates:
    """Pairs whose conditions are evaluated where no equality finds partners."""
    if any(_is_range(predicate, graph, left, right) for predicate in graph.predicates(left, right)):
        # Partners are found by a range of keys: mostly those that the condition lets through.
        return 2 * sizes.increment(left | right, graph)
    held = [sizes.held_tuples(side, graph) for side in (left, right)]
    return sizes.increment(left, graph) * held[1] + sizes.increment(right, graph) * held[0]


def _is_range(predicate: object, graph: JoinGraph, left: int, right: int) -> bool:
    """Whether the predicate compares something of one side with something of the other."""
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


def _block_cost(
    block: str, graph: JoinGraph, sizes: BlockSizes, coefficients: CostCoefficients, pushes: int
) -> Iterator[NodeCost]:
    """The joins of a block, the topmost first."""
    pending: list[JoinOrder] = [graph.order]
    while pending:
        order = pending.pop()
        if order.sides is None:
            continue
        left, right = (graph.mask_of(side) for side in order.sides)
        both = left | right
        yield NodeCost(
            join_key(block, order),
            tuple(_input_states(block, graph, sizes, order.sides)),
            order.aliases,
            sizes.increment(both, graph),
            sizes.held_tuples(both, graph),
            join_cost(graph, sizes, left, right, coefficients) + pushes * coefficients.operator,
            sizes.is_measured(both),
            counted=sizes.counted.get(both),
        )
        pending += order.sides


def _input_states(
    block: str, graph: JoinGraph, sizes: BlockSizes, sides: tuple[JoinOrder, JoinOrder]
) -> Iterator[InputState]:
    left, right = (graph.mask_of(side) for side in sides)
    key = graph.linking_classes(left, right)
    pairs = float(sizes.increment(left | right, graph).mean()) if key else np.inf
    for side, mask in zip(sides, (left, right), strict=True):
        held = float(sizes.held_tuples(mask, graph).mean())
        # A tuple that is there now is in the middle of its life, on average.
        looked_for = min(held, pairs * sizes.life(mask) / 2)
        partners = float(sizes.increment(left ^ right ^ mask, graph).mean()) * sizes.life(mask)
        yield InputState(f"{block} {sorted(side.aliases)}", key, mask.bit_count(), held, looked_for, partners)


@dataclass(frozen=True)
class _Flow:
    """Rows that enter an operator in the span, and how many of them are valid at its end."""

    rows: Replicates
    held: Replicates
    parts: int = 1
    """How many inputs of joins a row is combined from."""

    @staticmethod
    def together(flows: list[_Flow]) -> _Flow:
        rows, held = added(flow.rows for flow in flows), added(flow.held for flow in flows)
        return _Flow(rows, held, max(flow.parts for flow in flows))


def _flow(plan: Plan, sizes: PlanSizes) -> _Flow:
    """What enters an operator above the plan; all rows where nothing was measured."""
    if is_join_block(plan):
        block = sizes_of_block(plan, sizes)
        graph = JoinGraph.of(plan)
        if block is not None:
            block, everything = block.of_graph(graph), graph.everything
            held = block.held_tuples(everything, graph)
            return _Flow(block.increment(everything, graph), held, everything.bit_count())
    if isinstance(plan, Leaf) or not plan.inputs:
        rows = np.full(1, float(sizes.rows))
        return _Flow(rows, rows)
    if isinstance(plan, Union | Join | MultiJoin):
        return _Flow.together([_flow(child, sizes) for child in plan.inputs])
    return _flow(plan.inputs[0], sizes)


def _entering_inputs(graph: JoinGraph, block: BlockSizes, sizes: PlanSizes) -> dict[str, _Flow]:
    """What enters the distinct and partial aggregates at the inputs of joins, by their fingerprints."""
    found: dict[str, _Flow] = {}
    for place, leaf in enumerate(graph.leaves):
        reducer, reduction = reducer_of(leaf), sizes.reductions.get(leaf.fingerprint)
        if reducer is not None and reduction is not None:
            passing = max(1e-9, float(reduction.passing.mean()))
            held = np.full(1, reduction.held)
            found[reducer.node.fingerprint] = _Flow(block.increments[1 << place] / passing, held)
    return found
