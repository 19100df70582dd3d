"""What multi-way joins cost: against counted work, in the cheapest probe orders, and beside trees."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.adaptation.statistics import QueryStatistics, join_blocks
from midstream.engine.operators.multi_join import MultiJoinOperator
from midstream.planning.cost import BlockSizes, CostCoefficients, PlanSizes, cheapest_plan, plan_cost, probe_search
from midstream.planning.cost.join_cost import MeanJoinCosts
from midstream.planning.cost.multi_join_cost import MultiJoinSizes
from midstream.planning.cost.plan_cost import block_cost, mean_block_seconds
from midstream.planning.cost.probe_search import cheapest_probe_orders
from midstream.planning.join_order.join_graph import JoinGraph
from midstream.planning.join_order.join_order import parse_join_order
from midstream.planning.shapes import join_orders_text
from tests.planning.test_join_search import block, random_sizes

NOTHING = {name: 0.0 for name in CostCoefficients.__struct_fields__}
CHAIN = ContinuousQuery(
    "SELECT a.t AS t FROM a [RANGE 1000], b [RANGE 1000], c [RANGE 1000], d [RANGE 1000]"
    " WHERE a.x = b.x AND b.y = c.y AND c.z = d.z",
    [
        Stream(name, pa.schema([(column, pa.int64()) for column in ("t", *columns)]), "t")
        for name, columns in {"a": "x", "b": "xy", "c": "yz", "d": "z"}.items()
    ],
)


def steady(plan, rates=(1, 1, 1, 1), pushes: int = 30):
    """A chain with keys of its own for each join, for three windows: its run, and the sizes of the latest pushes."""
    run, statistics, generator = CHAIN.run_locally(plan), QueryStatistics(), np.random.default_rng(2)
    values = {"x": 300, "y": 1_500, "z": 500}
    counts = []
    for push in range(pushes):
        tables = {}
        for stream, rate in zip(CHAIN.streams, rates, strict=True):
            times = np.arange(100 * push, 100 * push + 100).repeat(rate)
            keys = {c: generator.integers(0, values[c], len(times)) for c in stream.schema.names[1:]}
            tables[stream.name] = pa.table({"t": times, **keys})
        run.push(tables)
        statistics.follow(run._cell.executor)
        counts.append(counted(run))
    return statistics.measure(1 << 20, generator, least_span=2_000), counts


def counted(run) -> np.ndarray:
    box = next(run._cell.executor.boxes())
    (join,) = [operator for operator in box.operators if isinstance(operator, MultiJoinOperator)]
    counters = join.counters
    return np.array([counters.rows_in, counters.probes, counters.probes - counters.rows_in + counters.rows_out])


def predicted(plan, sizes: PlanSizes, **seconds: float) -> float:
    """The steps of one kind, if only these cost something."""
    cost = plan_cost(plan, sizes, CostCoefficients(**(NOTHING | seconds)))
    assert cost is not None
    return float(cost.seconds.mean())


@pytest.mark.parametrize("rates", [(1, 1, 1, 1), (4, 1, 2, 1)])
@pytest.mark.parametrize("orders", [None, {"a": "b c d", "b": "a c d", "c": "b a d", "d": "c b a"}, {"b": "c a d"}])
def test_the_steps_are_those_that_the_operator_counts(orders, rates):
    plan = CHAIN.plan("{a b c d}", probe_orders=orders)
    sizes, counts = steady(plan, rates)
    per_row = (counts[-1] - counts[9]) / (counts[-1] - counts[9])[0]
    assert predicted(plan, sizes, probe=1.0) / sizes.rows == pytest.approx(per_row[1], rel=0.1)
    assert predicted(plan, sizes, tuple_out=1.0) / sizes.rows == pytest.approx(per_row[2], rel=0.15)
    # b and c have two indexes each.
    inserted = sum(rate * indexes for rate, indexes in zip(rates, (1, 2, 2, 1), strict=True)) / sum(rates)
    assert predicted(plan, sizes, tuple_in=1.0) / sizes.rows == pytest.approx(inserted, rel=0.01)


def test_state_bytes_are_those_that_operators_hold():
    for order in ("{a b c d}", "a b c d", "b c a d", "{a b c} d"):
        plan = CHAIN.plan(order)
        run, generator, statistics = CHAIN.run_locally(plan), np.random.default_rng(1), QueryStatistics()
        for push in range(30):
            times = np.arange(100 * push, 100 * push + 100).repeat(3)
            run.push(
                {
                    s.name: pa.table(
                        {"t": times, **{c: generator.integers(0, 400, len(times)) for c in s.schema.names[1:]}}
                    )
                    for s in CHAIN.streams
                }
            )
            statistics.follow(run._cell.executor)
        cost = plan_cost(plan, statistics.measure(1 << 20, generator), CostCoefficients())
        held = sum(operator.state_bytes for operator in next(run._cell.executor.boxes()).operators)
        assert cost is not None
        assert cost.state_bytes == pytest.approx(held, rel=0.35), order


@pytest.mark.parametrize("shape", ["chain", "star", "clique", "cycle"])
@pytest.mark.parametrize("count", [3, 4, 5])
def test_no_probe_order_is_cheaper(shape, count):
    graph, _ = block(count, shape)
    costs = CostCoefficients()
    for seed in range(4):
        join = MultiJoinSizes(graph, random_sizes(graph, seed), tuple(1 << place for place in range(count)))
        chosen = cheapest_probe_orders(join, costs)
        for root in range(count):
            others = [place for place in range(count) if place != root]
            least = min(seconds_of(join, root, order, costs) for order in itertools.permutations(others))
            assert seconds_of(join, root, chosen[root], costs) == pytest.approx(least)


def seconds_of(join: MultiJoinSizes, root: int, order, costs: CostCoefficients) -> float:
    return sum(float(join.lookup(visited, place, costs).mean()) for visited, place in join.way(root, order))


def test_pairs_that_only_one_of_two_keys_finds_are_compared():
    """In a cycle of three, the last input is looked up by the key of one of the others."""
    graph, _ = block(3, "cycle")
    singles = {1 << place: np.array([100.0]) for place in range(3)}
    pairs = {0b011: np.array([400.0]), 0b110: np.array([600.0]), 0b101: np.array([1_000.0]), 0b111: np.array([10.0])}
    join = MultiJoinSizes(graph, BlockSizes(graph.names, (1_000.0,) * 3, singles | pairs), (1, 2, 4))
    compared = CostCoefficients(**(NOTHING | {"candidate": 1.0}))
    # A tenth is new: 2,000 pairs of the first two, each with 5 partners by the key of the first.
    assert join.lookup(0b011, 2, compared) == pytest.approx(2_000 * 5)
    assert join.mean_lookup(0b011, 2, compared) == pytest.approx(2_000 * 5)
    assert join.lookup(0b001, 1, compared) == pytest.approx(0)


def test_many_inputs_get_probe_orders_with_bounded_work(monkeypatch):
    graph, _ = block(16, "clique")
    sizes = BlockSizes(graph.names, (100.0,) * 16, {1 << place: np.array([10.0]) for place in range(16)})
    looked_up = []
    lookup = MultiJoinSizes.mean_lookup

    def counting(*arguments) -> float:
        looked_up.append(1)
        assert len(looked_up) <= 2 * probe_search.MOST_LOOKUPS
        return lookup(*arguments)

    monkeypatch.setattr(MultiJoinSizes, "mean_lookup", counting)
    orders = cheapest_probe_orders(MultiJoinSizes(graph, sizes, tuple(1 << i for i in range(16))), CostCoefficients())
    assert looked_up
    assert all(sorted((root, *order)) == list(range(16)) for root, order in enumerate(orders))


@pytest.mark.parametrize("text", ["s0 s1 s2 s3", "(s0 s1) (s2 s3)", "{s0 s1 s2} s3", "s0 {s1 s2 s3}", "{s0 s1 s2 s3}"])
def test_the_search_compares_means_of_what_plans_cost(text):
    graph, _ = block(4, "chain")
    sizes, costs = random_sizes(graph, 5), CostCoefficients()
    graph = replace(graph, order=parse_join_order(text, graph.names))
    whole = sum(float(node.seconds.mean()) for node in block_cost("", graph, sizes, costs))
    assert mean_block_seconds(graph.order, MeanJoinCosts(graph, sizes, costs)) == pytest.approx(whole)


def sizes_of_chain(**increments: float) -> PlanSizes:
    """A tenth of 10,000 rows of each window is new; sets that are not named have few tuples."""
    (top,) = join_blocks(CHAIN.plan("a b c d"))
    graph = JoinGraph.of(top)
    found = {mask: increments.get("".join(sorted(_names(graph, mask))), 10.0) for mask in range(1, 16)}
    found |= {1 << place: increments.get(name, 1_000.0) for place, name in enumerate(graph.names)}
    block_sizes = BlockSizes(graph.names, (10_000.0,) * 4, {mask: np.array([count]) for mask, count in found.items()})
    return PlanSizes(4_000, {top.identity: block_sizes})


def _names(graph: JoinGraph, mask: int) -> list[str]:
    return [name for place, name in enumerate(graph.names) if mask >> place & 1]


def chosen(sizes: PlanSizes, plan: str = "a b c d", **options) -> str:
    return join_orders_text(cheapest_plan(CHAIN.plan(plan), sizes, CostCoefficients(), **options))


MANY_PAIRS = {"ab": 2e6, "bc": 2e6, "cd": 2e6}


def test_braces_are_chosen_where_every_tree_keeps_many_tuples_of_which_nothing_comes():
    """Each intermediate result is inserted for nothing. Only one pair in two belongs to the first of its inputs."""
    assert "{" in chosen(sizes_of_chain(**MANY_PAIRS, b=10.0, c=10.0))
    assert "{" not in chosen(sizes_of_chain(ab=2e6, bc=500, cd=500))


def test_braces_are_chosen_where_memory_is_short():
    sizes = sizes_of_chain(ab=3e5, bc=3e5, cd=3e5, abc=1e6, bcd=1e6)
    needed = plan_cost(CHAIN.plan("{a b c d}"), sizes, CostCoefficients())
    assert needed is not None
    assert "{" not in chosen(sizes)
    assert chosen(sizes, most_state_bytes=2 * needed.state_bytes) == "{a b c d}"
    # If nothing fits, what takes the least.
    assert chosen(sizes, most_state_bytes=1.0) == "{a b c d}"
    # The results of b, c and d are few: a tree above the braces fits, too.
    assert chosen(sizes_of_chain(**MANY_PAIRS), most_state_bytes=2 * needed.state_bytes) == "a {b c d}"


def test_braces_are_chosen_where_trees_are_changed_all_the_time():
    sizes = sizes_of_chain(ab=50_000, bc=500, cd=500)
    assert "{" not in chosen(sizes)
    assert chosen(sizes, changing=1.0) == "{a b c d}"


def test_braces_in_force_get_other_probe_orders_and_keep_what_is_as_good():
    sizes = sizes_of_chain(ab=500_000, bc=500, cd=500)
    costs = CostCoefficients()
    in_force = CHAIN.plan("{d c b a}", probe_orders={"b": "a c d"})
    better = cheapest_plan(in_force, sizes, costs, changing=1.0)
    assert "b probes c" in str(better)
    assert cheapest_plan(better, sizes, costs, changing=1.0) == better
    for order in ("a b c d", "b c a d", "d (a (b c))"):
        # As many tuples of a and b as of b and c.
        assert chosen(sizes_of_chain(cd=1e5, bcd=1e5), order) == order


def test_routing_by_an_eddy_stays():
    sizes = sizes_of_chain(ab=50_000, bc=500, cd=500)
    plan = CHAIN.plan("{a b c d}", routing="eddy")
    assert cheapest_plan(plan, sizes, CostCoefficients(), CHAIN.shapes()) == plan
    assert plan_cost(CHAIN.plan("{a b c d}", routing="stairs"), sizes, CostCoefficients()) is not None


def test_plans_by_cost_and_explain_have_braces():
    sizes = sizes_of_chain(ab=50_000, bc=500, cd=500)
    plans = list(CHAIN.plans(statistics=sizes))
    assert sum("{" in join_orders_text(plan) for plan in plans) == 1
    text = CHAIN.explain("{a b c} d", statistics=sizes)
    assert "of join states" in text.splitlines()[0]
    (line,) = [line for line in text.splitlines() if "MultiJoin" in line]
    assert "% of the cost" in line and "rows ±" in line
