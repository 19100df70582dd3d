"""The two judges agree on anything: they share neither a parser nor an evaluation."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.testing import (
    JOIN_OPERATORS,
    Scenario,
    assert_snapshot_equivalent,
    brute_force_snapshots,
    scenarios,
    snapshots,
)
from tests.examples import EXAMPLES, random_examples
from tests.testing.declared import Declaration, intervals, rows


@random_examples()
@given(scenarios())
def test_brute_force_agrees_with_duckdb(scenario: Scenario) -> None:
    judged, expected = (
        brute_force_snapshots(scenario.query_text, scenario.streams, scenario.tables),
        scenario.expected(),
    )
    assert judged.instants == expected.instants
    assert_snapshot_equivalent(intervals(judged), expected)


# Few values, so that rows repeat on both sides, and queries in which every copy counts.
SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.string()), ("f", pa.float64()), ("b", pa.bool_())])
STREAMS = [Declaration("s", SCHEMA), Declaration("r", SCHEMA)]
ROWS = st.lists(
    st.tuples(
        st.integers(-2, 2),
        st.sampled_from(["a", "b", None]),
        st.sampled_from([float("nan"), -0.0, 0.0, 1.5, None]),
        st.sampled_from([True, False, None]),
    ),
    min_size=3,
    max_size=8,
)
QUERIES = [
    "SELECT k FROM s [RANGE 3] EXCEPT ALL SELECT k FROM r [RANGE 1]",
    "SELECT k, f FROM s [RANGE 3] EXCEPT SELECT k, f FROM r [RANGE 3]",
    "SELECT f FROM s [RANGE 3] UNION SELECT f FROM r [RANGE 3 SLIDE 2]",
    "SELECT f, b FROM s [RANGE 3] UNION ALL SELECT f, b FROM r [NOW] EXCEPT ALL SELECT f, b FROM s [RANGE 1]",
    "SELECT DISTINCT f, b FROM s [RANGE 3]",
    "SELECT f, COUNT(*), COUNT(k), COUNT(DISTINCT k), MIN(b) FROM s [RANGE 3] GROUP BY f",
    "SELECT k, COUNT(DISTINCT f), SUM(f), SUM(DISTINCT f), MAX(f), MIN(f) FROM s [RANGE 2] GROUP BY k",
    "SELECT s.k, r.f FROM s [RANGE 2], r [RANGE 1] WHERE s.f = r.f AND s.b",
    "SELECT s.k, r.k FROM s [RANGE 2] JOIN r [RANGE 1] ON s.f <= r.f OR s.b AND r.b",
    "SELECT k FROM s [RANGE 2] WHERE NOT (b AND f > 0) OR k IN ('a', NULL)",
    "SELECT k, b OR f > 0, b AND f > 0, f IN (0, NULL), k NOT IN ('a') FROM s [NOW]",
    "SELECT COUNT(*) FROM s [NOW] WHERE b IS NOT NULL HAVING COUNT(*) > 1",
]


@pytest.mark.parametrize("text", QUERIES)
@random_examples(EXAMPLES // 2)
@given(s=ROWS, r=ROWS)
def test_brute_force_agrees_with_duckdb_where_rows_repeat(text: str, s: list[Any], r: list[Any]) -> None:
    tables = {"s": rows(*s, schema=SCHEMA), "r": rows(*r, schema=SCHEMA)}
    judged, expected = (judge(text, STREAMS, tables) for judge in (brute_force_snapshots, snapshots))
    assert judged.instants == expected.instants
    assert_snapshot_equivalent(intervals(judged), expected)


@random_examples()
@given(scenarios(operators=JOIN_OPERATORS, max_streams=4))
def test_brute_force_agrees_with_the_exact_intervals_of_joins(scenario: Scenario) -> None:
    judged = brute_force_snapshots(scenario.query_text, scenario.streams, scenario.tables)
    assert_snapshot_equivalent(scenario.expected_intervals(), judged)
