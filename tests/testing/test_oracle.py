"""The oracle against results worked out by hand, for every window kind and every operator."""

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from midstream.testing import (
    JOIN_OPERATORS,
    OracleError,
    assert_same_bag,
    assert_snapshot_equivalent,
    join_intervals,
    scenarios,
    snapshots,
)
from tests.examples import random_examples
from tests.testing.declared import Declaration, R, S, intervals, rows


def history(text: str, s: pa.Table, r: pa.Table | None = None) -> dict[int, list[tuple[Any, ...]]]:
    """The snapshot at every critical instant, rows sorted; computed both ways."""
    tables = {"s": s, "r": rows() if r is None else r}
    series = snapshots(text, [S, R], tables)
    again = snapshots(text, [S, R], tables, one_by_one=True)
    found = {instant: sorted(series.at(instant), key=repr) for instant in series.instants}
    assert found == {instant: sorted(again.at(instant), key=repr) for instant in again.instants}
    return found


# Windows


def test_range_holds_a_row_for_its_length_and_one_tick() -> None:
    assert history("SELECT k FROM s [RANGE 3]", rows((-1, "a", 1))) == {-1: [("a",)], 3: []}


def test_now_holds_a_row_for_one_tick() -> None:
    assert history("SELECT k FROM s [NOW]", rows((5, "a", 1))) == {5: [("a",)], 6: []}


@pytest.mark.parametrize("window", ["", "[RANGE UNBOUNDED]"])
def test_unbounded_never_ends(window: str) -> None:
    series = snapshots(f"SELECT k FROM s {window}", [S], {"s": rows((5, "a", 1))})
    assert series.instants == (5,)
    assert series.at(4) == [] and series.at(10**12) == [("a",)]


@pytest.mark.parametrize(
    ("event_time", "expected"),
    [(-7, (-5, 5)), (-5, (-5, 5)), (-1, (0, 10)), (0, (0, 10)), (1, (5, 15)), (5, (5, 15))],
)
def test_slide_rounds_both_ends_up(event_time: int, expected: tuple[int, int]) -> None:
    start, end = expected
    found = history("SELECT k FROM s [RANGE 10 SLIDE 5]", rows((event_time, "a", 1)))
    assert found == {start: [("a",)], end: []}


def test_slide_longer_than_range_may_see_a_row_at_no_instant() -> None:
    assert history("SELECT k FROM s [RANGE 2 SLIDE 10]", rows((1, "a", 1), (9, "b", 1))) == {10: [("b",)], 20: []}


def test_tumbling_window_is_a_slide_of_its_own_length() -> None:
    table = rows((1, "a", 1), (4, "b", 1), (5, "c", 1), (6, "d", 1))
    assert history("SELECT COUNT(*) AS n FROM s [RANGE 5 SLIDE 5]", table) == {5: [(3,)], 10: [(1,)], 15: []}


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize("resolution", ["us", "ms", "ns"])
def test_timestamps_are_microseconds(zone: str | None, resolution: str) -> None:
    stream = Declaration("s", pa.schema([("ts", pa.timestamp(resolution, zone)), ("k", pa.string())]))
    moment = datetime.datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=datetime.UTC if zone else None)
    series = snapshots("SELECT k FROM s [RANGE 2 SECONDS]", [stream], {"s": rows((moment, "a"), schema=stream.schema)})
    assert series.instants == (-500_000, 1_500_001)


@pytest.mark.parametrize(
    ("window", "length"),
    [
        ("1 MICROSECOND", 1),
        ("2 MILLISECONDS", 2_000),
        ("1 SECOND", 10**6),
        ("2 minutes", 120 * 10**6),
        ("1 HOUR", 3_600 * 10**6),
        ("1 DAY", 86_400 * 10**6),
        ("2 WEEKS", 14 * 86_400 * 10**6),
    ],
)
def test_units(window: str, length: int) -> None:
    stream = Declaration("s", pa.schema([("ts", pa.timestamp("us"))]))
    table = rows((datetime.datetime(1970, 1, 1),), schema=stream.schema)
    assert snapshots(f"SELECT 1 FROM s [RANGE {window}]", [stream], {"s": table}).instants == (0, length + 1)


def test_rows_without_an_event_time_are_not_seen() -> None:
    assert history("SELECT k FROM s [NOW]", rows((None, "a", 1), (1, "b", 1))) == {1: [("b",)], 2: []}


def test_validity_beyond_the_last_tick_never_ends() -> None:
    series = snapshots("SELECT k FROM s [RANGE 10]", [S], {"s": rows((2**63 - 5, "a", 1))})
    assert series.instants == (2**63 - 5,)


# Operators


def test_selection_and_projection() -> None:
    table = rows((1, "a", 1), (1, "b", 2), (1, None, 3))
    found = history("SELECT v * 10 AS w, k FROM s [NOW] WHERE k <> 'a'", table)
    assert found == {1: [(20, "b")], 2: []}


def test_join_meets_where_validities_intersect() -> None:
    found = history(
        "SELECT s.k, s.v, r.v FROM s [RANGE 2], r [RANGE 4] WHERE s.k = r.k",
        rows((1, "a", 1), (1, None, 9)),
        rows((3, "a", 2), (4, "a", 3), (2, None, 9)),
    )
    assert {instant: bag for instant, bag in found.items() if bag} == {3: [("a", 1, 2)]}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT x.v FROM s [RANGE 5] x JOIN s [NOW] AS y ON x.k = y.k AND x.v < y.v",
        "SELECT x.v FROM s [RANGE 5] x INNER JOIN s [NOW] y ON x.k = y.k WHERE x.v < y.v",
        "SELECT x.v FROM s [RANGE 5] x CROSS JOIN s [NOW] y WHERE x.k = y.k AND x.v < y.v",
        "SELECT x.v FROM (SELECT * FROM s [RANGE 5]) x, (SELECT k, v FROM s [NOW]) AS y WHERE x.k = y.k AND x.v < y.v",
    ],
)
def test_self_join_with_two_windows_in_every_spelling(text: str) -> None:
    table = rows((1, "a", 1), (3, "a", 2), (4, "b", 3))
    assert {instant: bag for instant, bag in history(text, table).items() if bag} == {3: [(1,)]}
    expected = pa.table({"v": [1], "valid_from": [3], "valid_to": [4]})
    assert_same_bag(join_intervals(text, [S], {"s": table}), expected)


def test_distinct_counts_nulls_as_equal() -> None:
    table = rows((1, None, 1), (2, None, 2), (2, "a", 3))
    found = history("SELECT DISTINCT k FROM s [RANGE 2]", table)
    assert found == {1: [(None,)], 2: [("a",), (None,)], 4: [("a",), (None,)], 5: []}


def test_grouping_with_every_aggregate() -> None:
    table = rows((1, "a", 5), (1, "a", 5), (1, "a", None), (1, None, None))
    text = """SELECT k, COUNT(*), COUNT(v), COUNT(DISTINCT v), SUM(v), AVG(v), MIN(v), MAX(v)
              FROM s [NOW] GROUP BY k"""
    expected = [("a", 3, 2, 1, 10, 5.0, 5, 5), (None, 1, 0, 0, None, None, None, None)]
    assert history(text, table) == {1: sorted(expected, key=repr), 2: []}


def test_having_filters_groups() -> None:
    table = rows((1, "a", 1), (1, "a", 2), (1, "b", 1))
    assert history("SELECT k FROM s [NOW] GROUP BY k HAVING SUM(v) > 1", table) == {1: [("a",)], 2: []}


@pytest.mark.parametrize("items", ["COUNT(*)", "COUNT(*) + 0", "COUNT(*), SUM(v)"])
def test_aggregation_of_an_empty_snapshot_yields_no_row(items: str) -> None:
    table = rows((1, "a", 1), (5, "b", 1))
    found = history(f"SELECT {items} FROM s [NOW] WHERE k = 'a'", table)
    assert [len(found[instant]) for instant in (1, 2, 5, 6)] == [1, 0, 0, 0]


def test_aggregation_of_an_empty_snapshot_yields_no_row_inside_a_join() -> None:
    text = "SELECT s.k, t.n FROM s [RANGE 9], (SELECT COUNT(DISTINCT k) AS n FROM r [NOW] HAVING MAX(v) > 0) t"
    found = history(text, rows((1, "a", 1)), rows((2, "x", 1), (2, "y", 1), (3, "z", 0)))
    assert {instant: bag for instant, bag in found.items() if bag} == {2: [("a", 2)]}


def test_union_all_adds_and_union_does_not() -> None:
    s, r = rows((1, "a", 1), (1, "a", 1)), rows((1, "a", 1), (1, "b", 1))
    text = "SELECT k FROM s [NOW] UNION{} SELECT k FROM r [NOW]"
    assert history(text.format(" ALL"), s, r) == {1: [("a",)] * 3 + [("b",)], 2: []}
    assert history(text.format(""), s, r) == {1: [("a",), ("b",)], 2: []}


def test_except_all_subtracts_and_except_removes() -> None:
    s, r = rows((1, "a", 1), (1, "a", 1), (1, None, 1), (1, "c", 1)), rows((1, "a", 1), (2, "c", 1), (1, None, 2))
    text = "SELECT k FROM s [RANGE 1] EXCEPT{} SELECT k FROM r [NOW]"
    assert history(text.format(" ALL"), s, r) == {1: [("a",), ("c",)], 2: [("a",), ("a",), (None,)], 3: []}
    assert history(text.format(""), s, r) == {1: [("c",)], 2: [("a",), (None,)], 3: []}


def test_set_operations_nest_as_bracketed() -> None:
    s, r = rows((1, "a", 1)), rows((1, "b", 1))
    one, two = "SELECT k FROM s [NOW]", "SELECT k FROM r [NOW]"
    assert history(f"{one} EXCEPT {one} UNION ALL {two}", s, r)[1] == [("b",)]
    assert history(f"{one} EXCEPT ({one} UNION ALL {two})", s, r)[1] == []
    assert history(f"SELECT t.k FROM (({one}) UNION ({two})) AS t", s, r)[1] == [("a",), ("b",)]


# Text


def test_brackets_in_literals_and_comments_are_not_windows() -> None:
    text = """-- s [NOW]
    SELECT 'it''s [NOW]' AS "from", k /* FROM r [RANGE 1] ' */ FROM "s" [ range 2 ] AS "the where"
    WHERE "the where".k <> '--' AND k IS DISTINCT FROM 'z';"""
    assert history(text, rows((1, "a", 1)))[1] == [("it's [NOW]", "a")]


def test_from_inside_a_function_is_not_a_clause() -> None:
    text = "SELECT EXTRACT(YEAR FROM DATE '2020-05-06') AS y FROM s [NOW]"
    assert history(text, rows((1, "a", 1)))[1] == [(2020,)]


def test_unknown_stream_is_refused() -> None:
    with pytest.raises(OracleError, match="stream 'q' is not declared"):
        snapshots("SELECT 1 FROM q [NOW]", [S], {})


def test_what_duckdb_refuses_is_shown_with_its_sql() -> None:
    with pytest.raises(OracleError, match=r"(?s)DuckDB refuses the query.*nothing.*SQL:"):
        snapshots("SELECT nothing FROM s [NOW]", [S], {})


@pytest.mark.parametrize("text", ["SELECT DISTINCT k FROM s [NOW]", "SELECT COUNT(*) FROM s [NOW]"])
def test_exact_intervals_are_for_joins_only(text: str) -> None:
    with pytest.raises(OracleError, match="takes only joins"):
        join_intervals(text, [S], {})


# Expressions

EXPRESSIONS = [
    ("7 / 2", 3.5),
    ("7 / 0", None),
    ("7.5 / 0", None),
    ("7 % 0", None),
    ("7.5 % 0.0", None),
    ("-7 % 3", -1),
    ("7 % -3", 1),
    ("9223372036854775807 + 1", None),
    ("-9223372036854775807 - 2", None),
    ("4611686018427387904 * 2", None),
    ("ABS(-9223372036854775807 - 1)", None),
    ("tiny + tiny", 254),
    ("tiny * tiny", 16129),
    ("-tiny", -127),
    ("9007199254740993 - 1", 9007199254740992),
    ("1.5 + 1", 2.5),
    ("money * money", Decimal("0.0100")),
    ("money + 1", Decimal("1.10")),
    ("money / 2", 0.05),
    ("money + 0.5", 0.6),
    ("SQRT(-1)", None),
    ("SQRT(4)", 2.0),
    ("LN(0)", None),
    ("LN(-1)", None),
    ("POWER(0, -1)", None),
    ("POWER(-8, 0.5)", None),
    ("POWER(2, 10)", 1024.0),
    ("CAST('x' AS INTEGER)", None),
    ("CAST('12' AS INTEGER)", 12),
    ("CAST(300 AS TINYINT)", None),
    ("CAST('1.50' AS DECIMAL(10,2))", Decimal("1.50")),
    ("nothing = nothing", None),
    ("NOT (nothing = 1)", None),
    ("nothing = 1 OR TRUE", True),
    ("1 IN (2, NULL)", None),
    ("nan = nan", True),
    ("nan > 1.5", True),
    ("minus_zero = 0.0", True),
    ("CASE nothing WHEN 1 THEN 'a' ELSE 'b' END", "b"),
    ("COALESCE(7 / 0, 1.5)", 1.5),
    ("NULLIF(1, 1)", None),
    ("GREATEST(1, 3, 2)", 3),
    ("IF(nothing > 0, 1, 2)", 2),
    ("'a' || nothing_said", None),
    ("LENGTH('éa')", 2),
    ("SUBSTRING('hello', 2, 3)", "ell"),
    ("FLOOR(9007199254740993)", 9007199254740993),
    ("ROUND(2.5)", 3.0),
    ("EXTRACT(SECOND FROM TIMESTAMP '2020-01-01 10:20:30')", 30),
    ("huge", Decimal(2**64 - 1)),
]


@pytest.mark.parametrize(("expression", "expected"), EXPRESSIONS, ids=[text for text, _ in EXPRESSIONS])
def test_expressions_are_total(expression: str, expected: object) -> None:
    schema = pa.schema(
        [
            ("ts", pa.int64()),
            ("tiny", pa.int8()),
            ("huge", pa.uint64()),
            ("money", pa.decimal128(10, 2)),
            ("nan", pa.float32()),
            ("minus_zero", pa.float64()),
            ("nothing", pa.int32()),
            ("nothing_said", pa.dictionary(pa.int32(), pa.string())),
        ]
    )
    row = (1, 127, 2**64 - 1, Decimal("0.10"), float("nan"), -0.0, None, None)
    table = pa.table([pa.array([value], field.type) for value, field in zip(row, schema, strict=True)], schema=schema)
    series = snapshots(f"SELECT {expression} AS x FROM s [NOW]", [Declaration("s", schema)], {"s": table})
    assert series.at(1) == [(expected,)]


def test_sums_keep_their_type_and_overflow_to_null() -> None:
    schema = pa.schema([("ts", pa.int64()), ("i", pa.int64()), ("u", pa.uint64()), ("d", pa.decimal128(10, 2))])
    table = rows((1, 2**63 - 1, 2**64 - 1, Decimal("0.10")), (1, 1, 1, Decimal("0.20")), schema=schema)
    series = snapshots("SELECT SUM(i), SUM(u), SUM(d) FROM s [NOW]", [Declaration("s", schema)], {"s": table})
    assert series.at(1) == [(None, Decimal(2**64), Decimal("0.30"))]


# The two ways and the exact intervals must agree on anything


@random_examples()
@given(scenarios(max_streams=4))
def test_all_instants_at_once_agree_with_one_by_one(scenario: Any) -> None:
    at_once = scenario.expected()
    one_by_one = snapshots(scenario.query_text, scenario.streams, scenario.tables, one_by_one=True)
    assert at_once.instants == one_by_one.instants
    assert_snapshot_equivalent(intervals(at_once), one_by_one)


@random_examples()
@given(scenarios(max_streams=4, operators=JOIN_OPERATORS))
def test_exact_intervals_agree_with_snapshots(scenario: Any) -> None:
    assert_snapshot_equivalent(scenario.expected_intervals(), scenario.expected())
