"""The cheapest join order: dynamic programming finds what trying all orders finds; large blocks get a good one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.planning.cost import BlockSizes, CostCoefficients, PlanSizes, cheapest_join_order, join_search, plan_cost
from midstream.planning.cost.join_cost import MeanJoinCosts, join_cost
from midstream.planning.cost.join_search import connected_sets
from midstream.planning.join_order.join_enumeration import enumerate_join_orders
from midstream.planning.join_order.join_graph import JoinGraph

COSTS = CostCoefficients()


def block(count: int, shape: str):
    """A block of joins, its graph and its topmost plan node."""
    names = [f"s{i}" for i in range(count)]
    pairs = {
        "chain": [(i, i + 1) for i in range(count - 1)],
        "star": [(0, i) for i in range(1, count)],
        "clique": [(i, j) for i in range(count) for j in range(i + 1, count)],
        "cycle": [(i, (i + 1) % count) for i in range(count)],
    }[shape]
    columns: dict[str, list[str]] = {name: [] for name in names}
    for i, j in pairs:
        columns[names[i]].append(f"k{i}_{j}")
        columns[names[j]].append(f"k{i}_{j}")
    streams = [Stream(n, pa.schema([(c, pa.int64()) for c in ("t", *cs)]), "t") for n, cs in columns.items()]
    windows = ", ".join(f"{name} [RANGE 10]" for name in names)
    conditions = " AND ".join(f"s{i}.k{i}_{j} = s{j}.k{i}_{j}" for i, j in pairs)
    plan = ContinuousQuery(f"SELECT s0.t AS t FROM {windows} WHERE {conditions}", streams).plan()
    top = next(node for node in plan.walk() if type(node).__name__ == "Join")
    return JoinGraph.of(top), top


def random_sizes(graph: JoinGraph, seed: int) -> BlockSizes:
    generator = np.random.default_rng(seed)
    sets = [1 << place for place in range(len(graph.names))]
    sets += connected_sets(graph, graph.everything, 1 << 16) or []
    increments = {inputs: np.array([10 ** generator.uniform(0, 4)]) for inputs in sets}
    return BlockSizes(graph.names, tuple(generator.uniform(10, 1000, len(graph.names))), increments)


@pytest.mark.parametrize("shape", ["chain", "star", "clique", "cycle"])
@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_no_order_is_cheaper(shape, count):
    graph, top = block(count, shape)
    for seed in range(8):
        sizes = random_sizes(graph, seed)
        chosen = cheapest_join_order(graph, sizes, COSTS)
        assert seconds(graph, top, sizes, chosen) == pytest.approx(
            min(seconds(graph, top, sizes, order) for order in enumerate_join_orders(graph) if is_linked(graph, order))
        )


def seconds(graph, top, sizes, order) -> float:
    cost = plan_cost(graph.build(order), PlanSizes(100, {top.identity: sizes}), COSTS)
    assert cost is not None
    return float(cost.seconds.mean())


def is_linked(graph, order) -> bool:
    pending = [order]
    while pending:
        node = pending.pop()
        if node.sides is not None:
            if not graph.are_linked(*(graph.mask_of(side) for side in node.sides)):
                return False
            pending += node.sides
    return True


@pytest.mark.parametrize(("shape", "count"), [("chain", 30), ("star", 30), ("clique", 14), ("star", 12), ("chain", 12)])
def test_large_blocks_are_ordered_with_bounded_work(shape, count, monkeypatch):
    graph, top = block(count, shape)
    generator = np.random.default_rng(1)
    singles = {1 << place: np.array([100.0]) for place in range(count)}
    pairs = {
        1 << i | 1 << j: np.array([10 ** generator.uniform(0, 3)])
        for i in range(count)
        for j in range(i + 1, count)
        if graph.are_linked(1 << i, 1 << j)
    }
    sizes = BlockSizes(graph.names, (1000.0,) * count, singles | pairs)
    costed, tested = [], []
    of = MeanJoinCosts.of
    monkeypatch.setattr(MeanJoinCosts, "of", lambda *arguments: costed.append(1) or of(*arguments))
    linked = JoinGraph.are_linked
    monkeypatch.setattr(JoinGraph, "are_linked", lambda *arguments: tested.append(1) or linked(*arguments))
    order = cheapest_join_order(graph, sizes, COSTS)
    monkeypatch.undo()
    # Dynamic programming that is given up costs at most so many; greedy ordering, a pair of each two of what is left.
    assert len(costed) <= join_search.MOST_SPLITS + count**3
    # Each set that is found is extended by each input, until there are too many sets.
    assert len(tested) <= 2 * count * join_search.MOST_SPLITS // 4
    assert sorted(order.aliases) == sorted(graph.names)
    assert is_linked(graph, order)
    in_text_order = seconds(graph, top, sizes, graph.order)
    assert seconds(graph, top, sizes, order) <= in_text_order * 1.0001


@pytest.mark.parametrize("shape", ["chain", "clique"])
def test_mean_costs_are_the_means_of_costs(shape):
    graph, _ = block(5, shape)
    generator = np.random.default_rng(3)
    sets = [1 << place for place in range(5)] + (connected_sets(graph, graph.everything, 1 << 16) or [])
    sizes = BlockSizes(graph.names, (1000.0,) * 5, {inputs: generator.uniform(1, 100, 20) for inputs in sets})
    costs = MeanJoinCosts(graph, sizes, COSTS)
    for left, right in [(0b00001, 0b00010), (0b00011, 0b01100), (0b00111, 0b11000), (0b00001, 0b00100)]:
        assert costs.of(left, right) == pytest.approx(join_cost(graph, sizes, left, right, COSTS).mean())


def test_a_set_that_was_not_measured_is_derived_from_smaller_ones():
    """A chain a - b - c with independent conditions: |abc| = |ab| |bc| / |b|."""
    graph, _ = block(3, "chain")
    held = (1000.0, 2000.0, 500.0)
    singles = {1 << place: np.array([count / 10]) for place, count in enumerate(held)}
    pairs = {0b011: np.array([600.0]), 0b110: np.array([80.0])}
    sizes = BlockSizes(graph.names, held, singles | pairs)
    assert not sizes.is_measured(0b111)
    # A tenth of each window is new: of a pair's tuples a fifth begins in the span, of three parts' three tenths.
    assert sizes.held_tuples(0b011, graph) == pytest.approx(3000)
    assert sizes.held_tuples(0b111, graph) == pytest.approx(3000 * 400 / 2000)
    assert sizes.increment(0b111, graph) == pytest.approx(600 * 0.3)
