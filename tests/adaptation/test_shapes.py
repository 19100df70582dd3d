"""Where distinct and partial aggregates stand: the sizes of the joins are derived for each place, and the cheapest is
taken, by the query itself."""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.adaptation import Adaptation, decision_text
from midstream.adaptation.measured_sizes import MeasuredSizes, sizes_over_cells
from midstream.adaptation.reductions import reducers
from midstream.adaptation.statistics import QueryStatistics
from midstream.planning.cost import CostCoefficients, PlanSizes, plan_cost
from midstream.planning.cost.derived_sizes import sizes_of_block
from midstream.planning.join_order.reorder_joins import join_blocks
from midstream.planning.shapes import shape_text
from midstream.testing import assert_snapshot_equivalent, snapshots

POLICY = Adaptation(measure_share=1.0, coefficients=CostCoefficients())
STREAMS = [Stream(name, pa.schema({"ts": pa.int64(), "k": pa.int64(), "x": pa.int64()}), "ts") for name in "abc"]

DISTINCT = "SELECT DISTINCT a.x AS x, b.x AS y FROM a [{0}], b [{0}] WHERE a.k = b.k"
COUNT = "SELECT b.x AS x, COUNT(*) AS n FROM a [{0}], b [{0}] WHERE a.k = b.k GROUP BY b.x"
THREE = "SELECT DISTINCT a.x AS x FROM a [{0}], b [{0}], c [{0}] WHERE a.k = b.k AND b.x = c.x AND a.x > 0"


def query(text: str, window: str = "RANGE 400") -> ContinuousQuery:
    names = [name for name in "abc" if f" {name} [" in text]
    return ContinuousQuery(text.format(window), [stream for stream in STREAMS if stream.name in names])


def rows(query: ContinuousQuery, generator: np.random.Generator, push: int, count: int, keys: int, values: int):
    return {
        stream.name: pa.table(
            {
                "ts": np.sort(generator.integers(100 * push, 100 * push + 100, count)),
                "k": generator.integers(0, keys, count),
                "x": generator.integers(0, values, count),
            }
        )
        for stream in query.streams
    }


def measured(query: ContinuousQuery, plan, keys: int, values: int) -> PlanSizes:
    run, statistics, generator = query.run_locally(plan), QueryStatistics(), np.random.default_rng(1)
    for push in range(12):
        run.push(rows(query, generator, push, 300, keys, values))
        statistics.follow(run._cell.executor)
    return statistics.measure(256, np.random.default_rng(0))


@pytest.mark.parametrize("window", ["RANGE 400", "RANGE 400 SLIDE 50"])
@pytest.mark.parametrize(
    ("text", "keys", "values"),
    [(DISTINCT, 20, 3), (DISTINCT, 200, 50), (COUNT, 20, 3), (COUNT, 200, 50), (THREE, 50, 20), (THREE, 200, 50)],
)
def test_sizes_that_are_derived_are_those_that_the_other_shape_has(text, keys, values, window):
    """In both directions, whichever shape is in force; per arriving row, within a factor of 1.5 of what is counted."""
    asked = query(text, window)
    above, below = asked.shapes()
    assert (shape_text(above), shape_text(below)[-15:]) == ("", "below the joins")
    sizes = {plan: measured(asked, plan, keys, values) for plan in (above, below)}
    for known, other in ((above, below), (below, above)):
        (block,) = join_blocks(other)
        derived, real = (sizes_of_block(block, sizes[plan]) for plan in (known, other))
        assert derived is not None and real is not None
        assert (derived.is_derived, real.is_derived) == (True, False)
        assert derived.names == real.names
        expected = {1 << place: float(real.increments[1 << place].mean()) for place in range(len(real.names))}
        assert real.counted and not derived.counted
        expected |= real.counted
        for inputs, count in expected.items():
            found = float(derived.increments[inputs].mean()) * sizes[other].rows / sizes[known].rows
            assert count / 1.5 < found < count * 1.5, (shape_text(other), inputs)


def test_a_plan_of_the_other_shape_is_sorted_by_its_derived_cost():
    asked = query(DISTINCT)
    above, below = asked.shapes()
    many, few = (measured(asked, above, keys, values) for keys, values in ((20, 2), (2_000, 1_000)))
    # Fixed costs per operator are left out: the span is short.
    coefficients = CostCoefficients(operator=0.0)
    assert next(asked.plans(statistics=many, coefficients=coefficients)) == below
    assert next(asked.plans(statistics=few, coefficients=coefficients)) == above
    explained = asked.explain(below, statistics=many)
    assert "(derived)" in explained and "counted" not in explained
    assert "counted" in asked.explain(above, statistics=many)


def test_rows_that_enter_a_distinct_below_joins_are_those_that_arrive():
    asked = query(DISTINCT, "RANGE 400 SLIDE 50")
    for plan in asked.shapes():
        sizes = measured(asked, plan, 20, 2)
        cost = plan_cost(asked.shapes()[1], sizes, CostCoefficients())
        assert cost is not None
        entering = sum(float(node.rows.mean()) for node in cost.nodes[:2] if not node.inputs)
        assert entering == pytest.approx(sizes.rows, rel=0.15)


def test_a_query_without_distinct_and_aggregates_has_one_shape_and_measures_nothing_for_others():
    asked = query("SELECT a.x AS x, b.x AS y FROM a [{0}], b [{0}] WHERE a.k = b.k")
    assert asked.shapes() == (asked.plan(),)
    assert reducers(asked.plan()) == []
    assert measured(asked, None, 20, 2).reductions == {}


def test_a_partial_aggregate_over_several_inputs_is_not_compared():
    asked = query(
        "SELECT c.x AS x, SUM(a.x + b.x) AS n FROM a [{0}], b [{0}], c [{0}] WHERE a.k = b.k AND b.x = c.x GROUP BY c.x"
    )
    above, below = asked.shapes()
    assert shape_text(below) == "partial aggregates below the joins"
    assert plan_cost(below, measured(asked, above, 500, 100), CostCoefficients()) is None
    assert plan_cost(above, measured(asked, below, 500, 100), CostCoefficients()) is None


def test_reductions_travel_with_the_sizes_and_are_averaged_over_cells():
    asked = query(DISTINCT)
    sizes = measured(asked, None, 20, 2)
    sent = msgspec.json.decode(msgspec.json.encode(MeasuredSizes.of(sizes)), type=MeasuredSizes).sizes()
    together = sizes_over_cells([sent, sizes])
    (block,) = join_blocks(asked.shapes()[1])
    expected = sizes_of_block(block, sizes)
    assert expected is not None
    for found, factor in ((sizes_of_block(block, sent), 1), (sizes_of_block(block, together), 2)):
        assert found is not None
        assert found.held == pytest.approx([factor * held for held in expected.held])
        assert found.increments[3] == pytest.approx(factor * expected.increments[3])


def played(text: str, phases, window: str = "RANGE 400", adapt=POLICY):
    """Pushes of 1,000 rows for each stream; a phase has so many pushes, keys and values."""
    asked = query(text, window)
    run, generator = asked.run_locally(adapt=adapt), np.random.default_rng(2)
    sizes = [(keys, values) for pushes, keys, values in phases for _ in range(pushes)]
    results = [run.push(rows(asked, generator, push, 1_000, *size)) for push, size in enumerate(sizes)]
    return run, pa.concat_tables([*results, run.finish()])


def changes(run):
    return [decision for decision in run.decisions() if decision.outcome == "changed"]


@pytest.mark.parametrize(
    ("text", "window", "below"),
    [
        (DISTINCT, "RANGE 400", "distinct below the joins"),
        (COUNT, "RANGE 400 SLIDE 100", "partial aggregates below the joins"),
    ],
)
def test_what_stands_above_the_joins_moves_below_them_and_back(text, window, below):
    """While there are many copies, they are removed before the join; when there are none, that is for nothing."""
    phases = [(8, 100, 2), (32, 20_000, 1_000)]
    run, results = played(text, phases, window)
    there, back = changes(run)
    assert (there.plan, there.best) == ("a b", f"a b, {below}")
    assert there.push <= 4
    assert (back.plan, back.best) == (f"a b, {below}", "a b")
    assert back.push > 8
    assert all(migration.state == "completed" for migration in run.history())
    assert f'to "a b, {below}" by' in decision_text(there)
    assert "in the other plan" in decision_text(there)
    (old,) = (join for join in there.joins if join.in_force)
    (new,) = (join for join in there.joins if join.in_best)
    assert (old.is_measured, new.is_measured) == (True, False)
    assert old.counted is not None and new.counted is None
    assert_snapshot_equivalent(results, played(text, phases, window, "off")[1])


@pytest.mark.parametrize(
    ("text", "window"), [(DISTINCT, "RANGE 40"), (COUNT, "RANGE 40 SLIDE 10"), (THREE, "RANGE 40")]
)
def test_results_of_changes_are_what_duckdb_says(text, window):
    eager = Adaptation(
        measure_share=1e6, measure_every=0, least_rows=1, deviations=0, regret=0, least_saving=0, least_gain=1,
        coefficients=CostCoefficients(operator=0.0, replacement=0.0), longest_pause=1e6,
    )  # fmt: skip
    asked = query(text, window)
    run, generator = asked.run_locally(adapt=eager), np.random.default_rng(5)
    results, pushed = [], {stream.name: [] for stream in asked.streams}
    for push in range(12):
        tables = rows(asked, generator, push, 40, *((3, 3) if push % 6 < 3 else (200, 100)))
        for name, table in tables.items():
            pushed[name].append(table)
        results.append(run.push(tables))
    results.append(run.finish())
    whole = {name: pa.concat_tables(tables) for name, tables in pushed.items()}
    assert len(changes(run)) >= 2
    assert_snapshot_equivalent(pa.concat_tables(results), snapshots(asked.text, asked.streams, whole))


def test_with_few_copies_a_distinct_stays_where_it_is():
    run, _ = played(DISTINCT, [(12, 20_000, 1_000)])
    assert run.decisions() and changes(run) == []
    assert {decision.reason for decision in run.decisions()} == {"The plan in force is the cheapest."}


def test_a_shape_that_a_person_chose_is_judged_like_others():
    asked = query(DISTINCT)
    run, generator = asked.run_locally(asked.shapes()[1], adapt=POLICY), np.random.default_rng(2)
    for push in range(24):
        run.push(rows(asked, generator, push, 1_000, 20_000, 1_000))
    assert [decision.best for decision in changes(run)] == ["a b"]
    assert run.plan == asked.plan()
