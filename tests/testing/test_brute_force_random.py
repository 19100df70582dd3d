"""The two judges agree on anything: they share neither a parser nor an evaluation."""

import pyarrow as pa
from hypothesis import HealthCheck, given, settings

from midstream.testing import (
    JOIN_OPERATORS,
    Scenario,
    SnapshotSeries,
    assert_snapshot_equivalent,
    brute_force_snapshots,
    scenarios,
)

RANDOM = settings(
    max_examples=150, derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)


def intervals(series: SnapshotSeries) -> pa.Table:
    """Each row of a snapshot with the time until the next one."""
    ends = dict(zip(series.instants, [*series.instants[1:], None], strict=False))
    starts = series.table.column(0)
    columns = [*series.table.columns[1:], starts, pa.array([ends[start] for start in starts.to_pylist()], pa.int64())]
    return pa.table(columns, names=[*map(str, range(len(columns) - 2)), "valid_from", "valid_to"])


@RANDOM
@given(scenarios())
def test_brute_force_agrees_with_duckdb(scenario: Scenario) -> None:
    judged, expected = (
        brute_force_snapshots(scenario.query_text, scenario.streams, scenario.tables),
        scenario.expected(),
    )
    assert judged.instants == expected.instants
    assert_snapshot_equivalent(intervals(judged), expected)


@settings(RANDOM, max_examples=50)
@given(scenarios(operators=JOIN_OPERATORS, max_streams=4))
def test_brute_force_agrees_with_the_exact_intervals_of_joins(scenario: Scenario) -> None:
    judged = brute_force_snapshots(scenario.query_text, scenario.streams, scenario.tables)
    assert_snapshot_equivalent(scenario.expected_intervals(), judged)
