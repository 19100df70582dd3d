"""What a plan costs: seconds of work for the rows of a span, node by node, from sizes and cost coefficients.

A join pays for every tuple that enters it (looked up on the other side, inserted, merged), for every tuple that it
produces, and for every pair that it must compare because no key finds partners. A multi-way join pays for inserts into
its indexes and for each lookup on the way of a tuple (``multi_join_cost``). What an eddy does is taken to be what the
cheapest probe orders do, and STAIRs to be the cheapest tree. Operators on keys with slots (distinct, aggregate,
difference) pay for each row that enters. Stateless operators are so much cheaper that they do not count.
Sizes of blocks that were not measured are derived where that is possible (``planning/cost/derived_sizes``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from midstream.algebra.plan import Aggregate, Difference, Distinct, Join, Leaf, MultiJoin, Plan, Union
from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.derived_sizes import reducer_of, sizes_of_block
from midstream.planning.cost.join_cost import MeanJoinCosts, join_cost
from midstream.planning.cost.join_search import cheapest_order_of
from midstream.planning.cost.multi_join_cost import MultiJoinSizes, ProbeOrder
from midstream.planning.cost.probe_search import cheapest_probe_orders
from midstream.planning.cost.sizes import BlockSizes, PlanSizes, Replicates, added
from midstream.planning.join_order.join_graph import JoinGraph, is_join_block
from midstream.planning.join_order.join_order import JoinOrder
from midstream.planning.join_order.stairs_order import STAIRS

__all__ = ["InputState", "NodeCost", "PlanCost", "block_cost", "mean_block_seconds", "plan_cost"]

_WORD_BYTES = 8
_INDEX_WORDS = 1.25
"""Of each tuple in a join's state: the code of its key, and its share of the directory."""
_ENDED = 1.15
"""How many times the tuples that are valid a state holds: those that have ended are dropped when runs are merged."""


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
    is_index: bool = False
    """Whether it is an index of a multi-way join: it is complete as soon as the plan is in force."""

    @property
    def bytes(self) -> float:
        """What the state takes."""
        return _ENDED * self.held * _WORD_BYTES * (2 + self.inputs + _INDEX_WORDS)


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
    block: str = ""
    """The fingerprint of a join's block; empty for other nodes."""
    operators: float = 1.0
    """How many operators it counts for, in every push and when it is made."""


@dataclass(frozen=True)
class PlanCost:
    """The cost of a plan over the span of the sizes that it was computed from."""

    nodes: tuple[NodeCost, ...]
    """The nodes that cost something, inputs first."""

    @property
    def seconds(self) -> Replicates:
        return added(node.seconds for node in self.nodes)

    @property
    def state_bytes(self) -> float:
        """What the states of the joins take, apart from the rows in their windows, which are there in every plan."""
        return sum(state.bytes for node in self.nodes for state in node.states)

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
            nodes += block_cost(node.fingerprint, graph, block.of_graph(graph), coefficients, pushes)
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


def _join_key(block: str, order: JoinOrder) -> str:
    """The key of the topmost join of an order, in the block with this fingerprint. Its inputs may be exchanged."""
    return f"{block} {sorted(sorted(part.aliases) for part in order.inputs)}"


def block_cost(
    block: str, graph: JoinGraph, sizes: BlockSizes, coefficients: CostCoefficients, pushes: int = 1
) -> Iterator[NodeCost]:
    """The joins of a block, the topmost first. ``block`` is its name in the keys of nodes and states."""
    pending: list[JoinOrder] = [graph.order]
    while pending:
        order = pending.pop()
        if order.alias is not None:
            continue
        if order.parts is not None and order.routing in STAIRS:
            order = cheapest_order_of(graph.mask_of(order), graph, sizes, coefficients)
        if order.sides is None:
            yield _multi_join(block, order, graph, sizes, coefficients, pushes)
        else:
            yield _join(block, order, graph, sizes, coefficients, pushes)
        pending += order.inputs


def mean_block_seconds(order: JoinOrder, costs: MeanJoinCosts) -> float:
    """The mean cost of a block in some order with one push, for a search that compares orders; not for STAIRs."""
    graph, sizes, coefficients = costs.graph, costs.sizes, costs.coefficients
    total, pending = 0.0, [order]
    while pending:
        part = pending.pop()
        pending += part.inputs
        if part.sides is not None:
            total += costs.of(*(graph.mask_of(side) for side in part.sides)) + coefficients.operator
        elif part.parts is not None:
            join, orders = _probing(part, graph, sizes, coefficients)
            total += float(join.seconds(orders, coefficients).mean()) + coefficients.operator * join.steps(orders)
    return total


def _join(
    block: str, order: JoinOrder, graph: JoinGraph, sizes: BlockSizes, coefficients: CostCoefficients, pushes: int
) -> NodeCost:
    assert order.sides is not None
    left, right = (graph.mask_of(side) for side in order.sides)
    both = left | right
    return NodeCost(
        _join_key(block, order),
        tuple(_input_states(block, graph, sizes, order.sides)),
        order.aliases,
        sizes.increment(both, graph),
        sizes.held_tuples(both, graph),
        join_cost(graph, sizes, left, right, coefficients) + pushes * coefficients.operator,
        sizes.is_measured(both),
        counted=sizes.counted.get(both),
        block=block,
    )


def _multi_join(
    block: str, order: JoinOrder, graph: JoinGraph, sizes: BlockSizes, coefficients: CostCoefficients, pushes: int
) -> NodeCost:
    assert order.parts is not None
    names = [sorted(part.aliases) for part in order.parts]
    join, orders = _probing(order, graph, sizes, coefficients)
    # What counts is the way, not how the plan describes it.
    ways = sorted((names[root], [names[place] for _, place in join.way(root, way)]) for root, way in enumerate(orders))
    whole, operators = graph.mask_of(order), join.steps(orders)
    return NodeCost(
        f"{block} {order.routing} {ways if order.routing == 'fixed' else sorted(names)}",
        tuple(_indexes(block, names, join, join.index_keys(orders))),
        order.aliases,
        sizes.increment(whole, graph),
        sizes.held_tuples(whole, graph),
        join.seconds(orders, coefficients) + pushes * coefficients.operator * operators,
        sizes.is_measured(whole),
        counted=sizes.counted.get(whole),
        block=block,
        operators=operators,
    )


def _probing(
    order: JoinOrder, graph: JoinGraph, sizes: BlockSizes, coefficients: CostCoefficients
) -> tuple[MultiJoinSizes, tuple[ProbeOrder, ...]]:
    """The sizes of a multi-way join, and the probe orders that it has; the cheapest ones if it names none."""
    assert order.parts is not None
    join = MultiJoinSizes(graph, sizes, tuple(graph.mask_of(part) for part in order.parts))
    if not order.probe_orders:
        return join, cheapest_probe_orders(join, coefficients)
    place_of = {alias: place for place, part in enumerate(order.parts) for alias in part.aliases}
    named = {place_of[root]: tuple(place_of[name] for name in others) for root, others in order.probe_orders}
    return join, tuple(named[place] for place in range(len(order.parts)))


def _indexes(
    block: str, names: list[list[str]], join: MultiJoinSizes, keys: list[list[tuple[int, ...]]]
) -> Iterator[InputState]:
    for name, mask, by in zip(names, join.masks, keys, strict=True):
        held = float(join.sizes.held_tuples(mask, join.graph).mean())
        for key in by:
            yield InputState(f"{block} {name}", key, mask.bit_count(), held, held, 0.0, is_index=True)


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
