"""Any query, any input, any batching, any equivalent plan: the result is what DuckDB says."""

from itertools import islice

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream import ContinuousQuery
from midstream.testing import (
    JOIN_OPERATORS,
    Push,
    Scenario,
    assert_same_bag,
    assert_snapshot_equivalent,
    play,
    scenarios,
)

EXAMPLES = settings().max_examples


def _ordered_by_valid_from(table: pa.Table) -> bool:
    begins = table.column("valid_from").cast(pa.int64()).to_pylist()
    return begins == sorted(begins)


class _OrderChecked:
    """A run that checks the order of each push's results."""

    def __init__(self, run):
        self.run = run

    def push(self, rows, watermark=None):
        return self._checked(self.run.push(rows, watermark=watermark))

    def finish(self):
        return self._checked(self.run.finish())

    @staticmethod
    def _checked(table):
        assert _ordered_by_valid_from(table)
        return table


def run_scenario(scenario: Scenario, plan=None, **options) -> pa.Table:
    query = ContinuousQuery(scenario.query_text, scenario.streams)
    run = query.run_locally(plan, **options)
    result = play(_OrderChecked(run), scenario.pushes)
    assert all(counts["late"] == 0 for counts in run.metrics()["streams"].values())
    return result


@settings(max_examples=4 * EXAMPLES)
@given(scenarios())
def test_results_equal_the_oracle(scenario):
    assert_snapshot_equivalent(run_scenario(scenario), scenario.expected())


@settings(max_examples=2 * EXAMPLES)
@given(scenarios(operators=JOIN_OPERATORS))
def test_joins_give_the_exact_bag_of_intervals(scenario):
    assert_same_bag(run_scenario(scenario), scenario.expected_intervals())


@given(scenarios(), st.integers(0, 12), st.sampled_from([1, 2, 7, 1 << 20]))
def test_every_equivalent_plan_equals_the_oracle(scenario, number, chunk_rows):
    plans = list(islice(ContinuousQuery(scenario.query_text, scenario.streams).plans(), number + 1))
    assert_snapshot_equivalent(run_scenario(scenario, plans[-1], chunk_rows=chunk_rows), scenario.expected())


@given(scenarios(), st.integers(1, 12))
def test_plan_invariance(scenario, number):
    """Two plans of one query agree with each other, without an oracle between them."""
    plans = list(islice(ContinuousQuery(scenario.query_text, scenario.streams).plans(), number + 1))
    assert_snapshot_equivalent(run_scenario(scenario, plans[-1]), run_scenario(scenario, plans[0]))


@given(scenarios(), st.integers(1, 4))
def test_batch_invariance(scenario, size):
    """All rows in one push, or a few at a time: the same result."""
    whole = Scenario(scenario.query_text, scenario.streams, (_one_push(scenario),))
    pieces = Scenario(scenario.query_text, scenario.streams, tuple(_pieces(scenario, size)))
    assert_snapshot_equivalent(run_scenario(pieces), run_scenario(whole))


def _one_push(scenario):
    return Push(scenario.tables, None)


def _pieces(scenario, size):
    for push in scenario.pushes:
        for name, table in push.rows.items():
            for start in range(0, table.num_rows, size):
                yield Push({name: table.slice(start, size)}, None)
