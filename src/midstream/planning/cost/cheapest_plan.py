"""The cheapest plan of a query, given the sizes of its joins: of all shapes, each in its cheapest join order.

The join order of a block is a tree, or has braces: the cheapest tree is compared with a multi-way join of the whole
block, and with what lies between. A tree is turned into the latter step by step: one of its intermediate results is
given up, by making a multi-way join of the join that produces it and the one that reads it, as long as that pays. So
braces come where an intermediate result is large, and trees stay elsewhere.

Two things count besides seconds of work. Plans whose states would take more than ``most_state_bytes`` are left out, if
another one fits; if none does, that with the least excess is taken. And ``changing`` seconds are added to plans with
intermediate results: what changes of such plans have cost lately, which plans without any do not need.

Blocks that are routed by an eddy or by STAIRs stay as they are: whoever chose these wants them to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import starmap

from midstream.algebra.plan import MultiJoin, Plan
from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.derived_sizes import sizes_of_block
from midstream.planning.cost.join_cost import MeanJoinCosts
from midstream.planning.cost.join_search import cheapest_join_order
from midstream.planning.cost.plan_cost import block_cost, mean_block_seconds, plan_cost
from midstream.planning.cost.probe_search import with_cheapest_probe_orders
from midstream.planning.cost.sizes import BlockSizes, PlanSizes
from midstream.planning.join_order.join_graph import JoinGraph
from midstream.planning.join_order.join_order import JoinOrder
from midstream.planning.join_order.reorder_joins import join_graphs, map_join_blocks

__all__ = ["braces_plan", "cheapest_plan", "cheapest_tree_plan", "has_intermediate_results", "routes_itself"]

MOST_CONTRACTED = 10
"""Blocks with more inputs are compared with braces around all of them only."""


def cheapest_plan(
    plan: Plan,
    sizes: PlanSizes,
    coefficients: CostCoefficients,
    shapes: Sequence[Plan] = (),
    most_state_bytes: float | None = None,
    changing: float = 0.0,
) -> Plan:
    """The cheapest plan of the given plan's shape and of others, of which there is one plan each (``planning/shapes``).

    Shapes whose sizes cannot be derived are left out, and of the given plan, blocks without sizes stay as they are.
    ``changing`` are seconds over the span of the sizes.
    """
    best, score = _of_shape(plan, sizes, coefficients, most_state_bytes, changing)
    if score is not None and not routes_itself(plan):
        for shape in shapes:
            if shape.identity == plan.identity:
                continue
            candidate, its_score = _of_shape(shape, sizes, coefficients, most_state_bytes, changing)
            if its_score is not None and its_score < score:
                best, score = candidate, its_score
    best.mark_as_derived_from(plan.derived_from)
    return best


def braces_plan(plan: Plan, sizes: PlanSizes, coefficients: CostCoefficients) -> Plan:
    """The plan with each block of more than two inputs as one multi-way join, with the cheapest probe orders."""

    def choose(graph: JoinGraph, block: BlockSizes) -> JoinOrder:
        return _braces(graph, block, coefficients) if len(graph.names) > 2 else graph.order

    return _with_orders(plan, sizes, choose)


def cheapest_tree_plan(plan: Plan, sizes: PlanSizes, coefficients: CostCoefficients) -> Plan:
    """The cheapest plan of this shape that has no multi-way joins, apart from those that route themselves."""
    return _with_orders(plan, sizes, lambda graph, block: cheapest_join_order(graph, block, coefficients))


def has_intermediate_results(plan: Plan) -> bool:
    """Whether a join of the plan reads what another join of its block produces."""
    return any(_reads_joins(graph.order) for graph in join_graphs(plan))


def routes_itself(plan: Plan) -> bool:
    """Whether an eddy or STAIRs decide on the order of joins while the query runs."""
    return any(isinstance(node, MultiJoin) and node.routing != "fixed" for node in plan.walk())


def _of_shape(
    plan: Plan, sizes: PlanSizes, coefficients: CostCoefficients, most_state_bytes: float | None, changing: float
) -> tuple[Plan, tuple[float, float] | None]:
    """The cheapest plan of this shape, and what it is compared by; None if its cost is not known."""

    def ordered(limit: float | None) -> Plan:
        return _with_orders(
            plan, sizes, lambda graph, block: _Choice(graph, block, coefficients, limit, changing).order()
        )

    best = ordered(most_state_bytes)
    cost = plan_cost(best, sizes, coefficients)
    if cost is not None and most_state_bytes is not None and cost.state_bytes > most_state_bytes:
        # Several blocks that fit by themselves may not fit together: each with as little state as possible.
        best = ordered(0.0)
        cost = plan_cost(best, sizes, coefficients)
    if cost is None:
        return best, None
    excess = 0.0 if most_state_bytes is None else max(0.0, cost.state_bytes - most_state_bytes)
    return best, (excess, float(cost.seconds.mean()) + changing * has_intermediate_results(best))


def _with_orders(plan: Plan, sizes: PlanSizes, choose: Callable[[JoinGraph, BlockSizes], JoinOrder]) -> Plan:
    """The plan with the join orders that are chosen for blocks whose sizes are known."""

    def ordered(graph: JoinGraph) -> JoinOrder:
        block = sizes_of_block(graph.build(graph.order), sizes)
        return graph.order if block is None or _routes_itself(graph.order) else choose(graph, block.of_graph(graph))

    return map_join_blocks(plan, ordered)


@dataclass
class _Choice:
    """The join order of one block."""

    graph: JoinGraph
    block: BlockSizes
    coefficients: CostCoefficients
    most_state_bytes: float | None
    changing: float

    @cached_property
    def _costs(self) -> MeanJoinCosts:
        return MeanJoinCosts(self.graph, self.block, self.coefficients)

    def order(self) -> JoinOrder:
        """The cheapest order that fits, or else the one with the least excess."""
        tree = cheapest_join_order(self.graph, self.block, self.coefficients)
        in_force = self.graph.order
        scores = {order: self._score(order) for order in self._candidates(tree)}
        best = min(scores, key=lambda order: scores[order])
        # The sides of a join do not matter, nor the order of braces: what is in force stays as it is.
        excess, seconds = self._score(in_force)
        is_as_good = excess <= scores[best][0] and seconds <= scores[best][1] * (1 + 1e-9)
        return in_force if is_as_good else best

    def _candidates(self, tree: JoinOrder) -> Iterator[JoinOrder]:
        """The tree, braces around all, and what becomes of the tree while it pays to give up intermediate results."""
        yield tree
        count = len(self.graph.names)
        score = self._score(tree)
        if count < 3 or (score[0] == 0 and not self.changing and not any(starmap(self._may_pay, _nested(tree)))):
            return
        yield _braces(self.graph, self.block, self.coefficients)
        order = tree
        while count <= MOST_CONTRACTED:
            may_pay = _always if score[0] > 0 else self._may_pay
            contracted = [self._probing(one) for one in _contracted(order, may_pay)]
            scores = [self._score(one) for one in contracted]
            yield from contracted
            if not scores or min(scores) >= score:
                return
            score = min(scores)
            order = contracted[scores.index(score)]

    def _may_pay(self, order: JoinOrder, part: JoinOrder) -> bool:
        """Whether giving up the results of a part could save more than the lookups that come instead.

        These are at least one for each tuple of the inputs, whose inserts are no longer lookups at the same time.
        """
        graph, block, coefficients = self.graph, self.block, self.coefficients
        inner = graph.mask_of(part)
        parts = inner.bit_count()
        saved = float(block.increment(inner, graph).mean()) * (
            coefficients.per_tuple_in(parts) + coefficients.per_tuple_out(parts)
        )
        inputs = [graph.mask_of(one) for one in (*part.inputs, *order.inputs) if one is not part]
        return saved > sum(float(block.increment(one, graph).mean()) for one in inputs) * coefficients.probe

    def _probing(self, order: JoinOrder) -> JoinOrder:
        return with_cheapest_probe_orders(order, self.graph, self.block, self.coefficients)

    def _score(self, order: JoinOrder) -> tuple[float, float]:
        """How many bytes too many the states would take, and the seconds."""
        seconds = mean_block_seconds(order, self._costs) + self.changing * _reads_joins(order)
        if self.most_state_bytes is None:
            return 0.0, seconds
        nodes = block_cost("", replace(self.graph, order=order), self.block, self.coefficients)
        return max(0.0, sum(s.bytes for node in nodes for s in node.states) - self.most_state_bytes), seconds


def _braces(graph: JoinGraph, block: BlockSizes, coefficients: CostCoefficients) -> JoinOrder:
    braces = JoinOrder.braces(JoinOrder.leaf(name) for name in graph.names)
    return with_cheapest_probe_orders(braces, graph, block, coefficients)


def _always(order: JoinOrder, part: JoinOrder) -> bool:
    return True


def _nested(order: JoinOrder) -> Iterator[tuple[JoinOrder, JoinOrder]]:
    """Each join that reads another one's results, and that one."""
    for part in order.inputs:
        if part.alias is None:
            yield order, part
            yield from _nested(part)


def _contracted(order: JoinOrder, pays: Callable[[JoinOrder, JoinOrder], bool]) -> Iterator[JoinOrder]:
    """The order without one of its intermediate results, wherever that may pay; probe orders are yet to be chosen."""
    for place, part in enumerate(order.inputs):
        before, after = order.inputs[:place], order.inputs[place + 1 :]
        if part.alias is None and pays(order, part):
            yield JoinOrder.braces((*before, *part.inputs, *after))
        for inner in _contracted(part, pays):
            inputs = (*before, inner, *after)
            yield JoinOrder.braces(inputs) if order.parts is not None else JoinOrder.left_deep(inputs)


def _reads_joins(order: JoinOrder) -> bool:
    return any(part.alias is None for part in order.inputs)


def _routes_itself(order: JoinOrder) -> bool:
    own = order.parts is not None and order.routing != "fixed"
    return own or any(_routes_itself(part) for part in order.inputs)
