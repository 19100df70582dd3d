"""The brute force against results worked out by hand: windows, clauses, names and text."""

import datetime
from typing import Any

import pyarrow as pa
import pytest

from midstream.testing import BruteForceError, brute_force_snapshots
from tests.testing.declared import NUMBERS, Declaration, R, S, T, at_one, bag, history, rows

A, A2, B = (1, "a", 1), (1, "a", 2), (1, "b", 3)


# Windows


def test_range_holds_a_row_for_its_length_and_one_tick() -> None:
    assert history("SELECT k FROM s [RANGE 3]", rows((-1, "a", 1))) == {-1: [("a",)], 3: []}


def test_now_holds_a_row_for_one_tick() -> None:
    assert history("SELECT k FROM s [NOW]", rows((5, "a", 1))) == {5: [("a",)], 6: []}


@pytest.mark.parametrize("window", ["", "[RANGE UNBOUNDED]", "[range unbounded]"])
def test_unbounded_never_ends(window: str) -> None:
    series = brute_force_snapshots(f"SELECT k FROM s {window}", [S], {"s": rows((5, "a", 1))})
    assert series.instants == (5,)
    assert series.at(4) == [] and series.at(10**12) == [("a",)]


@pytest.mark.parametrize(
    ("event_time", "validity"),
    [(-7, (-5, 5)), (-5, (-5, 5)), (-1, (0, 10)), (0, (0, 10)), (1, (5, 15)), (5, (5, 15)), (6, (10, 20))],
)
def test_slide_rounds_both_ends_up(event_time: int, validity: tuple[int, int]) -> None:
    begin, end = validity
    assert history("SELECT k FROM s [RANGE 10 SLIDE 5]", rows((event_time, "a", 1))) == {begin: [("a",)], end: []}


def test_slide_longer_than_range_may_see_a_row_at_no_instant() -> None:
    found = history("SELECT k FROM s [RANGE 3 SLIDE 10]", rows((2, "a", 1), (8, "b", 1)))
    assert found == {10: [("b",)], 20: []}


def test_slide_need_not_divide_the_range() -> None:
    assert history("SELECT k FROM s [RANGE 5 SLIDE 3]", rows((1, "a", 1))) == {3: [("a",)], 6: []}


def test_rows_without_an_event_time_are_not_seen() -> None:
    assert history("SELECT k FROM s [NOW]", rows((None, "a", 1), (1, "b", 1))) == {1: [("b",)], 2: []}


def test_validity_beyond_the_last_tick_never_ends() -> None:
    series = brute_force_snapshots("SELECT k FROM s [RANGE 10]", [S], {"s": rows((2**63 - 5, "a", 1))})
    assert series.instants == (2**63 - 5,)


def test_given_instants_are_sampled() -> None:
    series = brute_force_snapshots("SELECT k FROM s [RANGE 3]", [S], {"s": rows((1, "a", 1))}, instants=[4, 0, 5])
    assert series.sampled and series.instants == (0, 4, 5)
    assert [series.at(instant) for instant in series.instants] == [[], [("a",)], []]
    with pytest.raises(KeyError):
        series.at(1)


# Clocks


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize("resolution", ["s", "ms", "us", "ns"])
def test_ticks_of_timestamps_are_microseconds(zone: str | None, resolution: str) -> None:
    stream = Declaration("s", pa.schema([("ts", pa.timestamp(resolution, zone)), ("k", pa.string())]))
    moment = datetime.datetime(1969, 12, 31, 23, 59, 59, tzinfo=datetime.UTC if zone else None)
    table = rows((moment, "a"), schema=stream.schema)
    series = brute_force_snapshots("SELECT ts, k FROM s [RANGE 2 SECONDS]", [stream], {"s": table})
    assert series.instants == (-1_000_000, 1_000_001)
    ((event_time, key),) = series.at(0)
    assert (event_time, key) == (moment, "a")


def test_nanoseconds_lie_in_the_microsecond_before_them() -> None:
    stream = Declaration("s", pa.schema([("ts", pa.timestamp("ns")), ("k", pa.string())]))
    table = rows((-1, "a"), (1_999, "b"), schema=stream.schema)
    series = brute_force_snapshots("SELECT k FROM s [NOW]", [stream], {"s": table})
    assert {instant: series.at(instant) for instant in series.instants} == {-1: [("a",)], 0: [], 1: [("b",)], 2: []}


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32()])
def test_event_times_may_be_any_integers(kind: pa.DataType) -> None:
    stream = Declaration("s", pa.schema([("ts", kind)]))
    table = rows((7,), schema=stream.schema)
    assert brute_force_snapshots("SELECT ts FROM s [RANGE 2]", [stream], {"s": table}).instants == (7, 10)


@pytest.mark.parametrize(
    ("length", "ticks"),
    [
        ("1 MICROSECOND", 1),
        ("2 MILLISECONDS", 2_000),
        ("1 SECOND", 10**6),
        ("2 minutes", 120 * 10**6),
        ("1 Hour", 3_600 * 10**6),
        ("1 DAYS", 86_400 * 10**6),
        ("2 WEEKS", 14 * 86_400 * 10**6),
    ],
)
def test_lengths_have_units(length: str, ticks: int) -> None:
    stream = Declaration("s", pa.schema([("ts", pa.timestamp("us"))]))
    table = rows((datetime.datetime(1970, 1, 1),), schema=stream.schema)
    assert brute_force_snapshots(f"SELECT 1 FROM s [RANGE {length}]", [stream], {"s": table}).instants == (0, ticks + 1)
    sliding = f"SELECT 1 FROM s [RANGE {length} SLIDE {length}]"
    assert brute_force_snapshots(sliding, [stream], {"s": table}).instants == (0, ticks)


# Selection, projection, joins


def test_where_keeps_what_is_true() -> None:
    table = rows((1, "a", 1), (1, "b", 2), (1, None, 3))
    assert at_one("SELECT v * 10 AS w, k FROM s [NOW] WHERE k <> 'a'", table) == [(20, "b")]
    assert at_one("SELECT k FROM s [NOW] WHERE NULL", table) == []
    assert at_one("SELECT k FROM s [NOW] WHERE 1 = 2", table) == []


def test_join_meets_where_validities_intersect() -> None:
    found = history(
        "SELECT s.k, s.v, r.v FROM s [RANGE 2], r [RANGE 4] WHERE s.k = r.k",
        rows((1, "a", 1), (1, None, 9)),
        rows((3, "a", 2), (4, "a", 3), (2, None, 9)),
    )
    assert {instant: snapshot for instant, snapshot in found.items() if snapshot} == {3: [("a", 1, 2)]}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT x.v, y.v FROM s [NOW] x, s [NOW] y WHERE x.k = y.k AND x.v < y.v",
        "SELECT x.v, y.v FROM s [NOW] x JOIN s [NOW] AS y ON x.k = y.k AND x.v < y.v",
        "SELECT x.v, y.v FROM s [NOW] x INNER JOIN s [NOW] y ON x.k = y.k WHERE x.v < y.v",
        "SELECT x.v, y.v FROM s [NOW] x CROSS JOIN s [NOW] y WHERE x.k = y.k AND x.v < y.v",
        "SELECT x.v, y.v FROM s [NOW] x JOIN s [NOW] y WHERE NOT (x.k <> y.k OR x.v >= y.v)",
        "SELECT x.v, y.v FROM (SELECT * FROM s [NOW]) x, (SELECT k, v FROM s [NOW]) AS y WHERE x.k = y.k AND x.v < y.v",
    ],
)
def test_join_in_every_spelling(text: str) -> None:
    assert at_one(text, rows(A, A2, B)) == [(1, 2)]


def test_joins_of_many_relations_keep_duplicates() -> None:
    text = "SELECT a.v FROM s [NOW] a, s [NOW] b, s [NOW] c JOIN s [NOW] d ON c.k = d.k WHERE a.k = b.k AND b.k = c.k"
    assert at_one(text, rows(A, A, B)) == [(1,)] * 16 + [(3,)]


def test_condition_on_a_relation_in_the_middle() -> None:
    text = "SELECT a.k FROM s [NOW] a, r [NOW] b, t [NOW] c WHERE b.v = 2 AND a.v + c.v = 4"
    assert at_one(text, rows(A, B), rows(A2), rows(A, B)) == [("a",), ("b",)]
    assert at_one(text, rows(A, B), rows(B), rows(A, B)) == []


# Distinct, grouping, set operations


def test_distinct_counts_nulls_as_equal() -> None:
    table = rows((1, None, 1), (2, None, 2), (2, "a", 3))
    found = history("SELECT DISTINCT k FROM s [RANGE 2]", table)
    assert found == {1: [(None,)], 2: [("a",), (None,)], 4: [("a",), (None,)], 5: []}


def test_grouping_with_every_aggregate() -> None:
    table = rows((1, "a", 5), (1, "a", 5), (1, "a", 2), (1, "a", None), (1, None, None))
    text = """SELECT k, COUNT(*), COUNT(v), COUNT(DISTINCT v), SUM(v), SUM(DISTINCT v), AVG(v), AVG(DISTINCT v),
              MIN(v), MAX(v), MIN(DISTINCT v) FROM s [NOW] GROUP BY k"""
    expected = [("a", 4, 3, 2, 12, 7, 4.0, 3.5, 2, 5, 2), (None, 1, 0, 0, *[None] * 7)]
    assert at_one(text, table) == bag(expected)


@pytest.mark.parametrize("key", ["v % 2", "odd", "1", "ODD", "s.V % 2"])
def test_group_by_takes_expression_name_and_position(key: str) -> None:
    text = f"SELECT v % 2 AS odd, COUNT(*) AS n FROM s [NOW] GROUP BY {key}"
    assert at_one(text, rows(A, A2, B)) == [(0, 1), (1, 2)]


def test_group_by_prefers_a_column_to_an_output_name() -> None:
    assert at_one("SELECT MAX(v) AS k, COUNT(*) FROM s [NOW] GROUP BY k", rows(A, A2, B)) == [(2, 2), (3, 1)]


def test_groups_without_aggregates_are_the_different_keys() -> None:
    assert at_one("SELECT k || '!' FROM s [NOW] GROUP BY k HAVING k > 'a'", rows(A, B, B)) == [("b!",)]


@pytest.mark.parametrize("having", ["SUM(v) > 2", "n > 1", "COUNT(*) = 2 AND k IS NOT NULL", "total > 2 AND k = 'a'"])
def test_having_uses_keys_aggregates_and_output_names(having: str) -> None:
    text = f"SELECT k, COUNT(*) AS n, SUM(v) AS total FROM s [NOW] GROUP BY k HAVING {having}"
    assert at_one(text, rows(A, A2, (1, "b", 1))) == [("a", 2, 3)]


@pytest.mark.parametrize("items", ["COUNT(*)", "COUNT(*) + 0", "COUNT(*), SUM(v)"])
def test_aggregation_of_an_empty_snapshot_yields_no_row(items: str) -> None:
    found = history(f"SELECT {items} FROM s [NOW] WHERE k = 'a'", rows((1, "a", 1), (5, "b", 1)))
    assert [len(found[instant]) for instant in (1, 2, 5, 6)] == [1, 0, 0, 0]


def test_aggregation_of_an_empty_join_yields_no_row() -> None:
    text = "SELECT COUNT(*), SUM(s.v) FROM s [NOW], r [NOW] WHERE s.v > r.v"
    assert at_one(text, rows(A), rows(B)) == []
    assert at_one(text, rows(B), rows(A)) == [(1, 3)]


def test_having_alone_makes_one_group() -> None:
    assert at_one("SELECT 1 AS one FROM s [NOW] HAVING TRUE", rows(A, B)) == [(1,)]
    assert at_one("SELECT 1 AS one FROM s [NOW] HAVING COUNT(*) > 2", rows(A, B)) == []


def test_union_all_adds_and_union_does_not() -> None:
    s, r = rows(A, A), rows(A, B)
    assert at_one("SELECT k FROM s [NOW] UNION ALL SELECT k FROM r [NOW]", s, r) == [("a",)] * 3 + [("b",)]
    assert at_one("SELECT k FROM s [NOW] UNION SELECT k FROM r [NOW]", s, r) == [("a",), ("b",)]


def test_except_all_takes_away_one_copy_each_and_except_all_of_them() -> None:
    s, r = rows((1, "a", 1), (1, "a", 1), (1, None, 1), (1, "c", 1)), rows((1, "a", 1), (2, "c", 1), (1, None, 2))
    text = "SELECT k FROM s [RANGE 1] EXCEPT{} SELECT k FROM r [NOW]"
    assert history(text.format(" ALL"), s, r) == {1: [("a",), ("c",)], 2: [("a",), ("a",), (None,)], 3: []}
    assert history(text.format(""), s, r) == {1: [("c",)], 2: [("a",), (None,)], 3: []}


def test_set_operations_are_worked_off_from_left_to_right() -> None:
    one, two = "SELECT k FROM s [NOW]", "SELECT k FROM r [NOW]"
    s, r = rows(A), rows(B)
    assert at_one(f"{one} EXCEPT {one} UNION ALL {two}", s, r) == [("b",)]
    assert at_one(f"{one} EXCEPT ({one} UNION ALL {two})", s, r) == []
    assert at_one(f"{one} UNION ALL {two} EXCEPT {two}", s, r) == [("a",)]
    assert at_one(f"(({one}) UNION ({two}))", s, r) == [("a",), ("b",)]


def test_columns_meet_at_their_common_type_and_keep_the_left_names() -> None:
    text = "SELECT q.n FROM (SELECT v AS n FROM s [NOW] UNION SELECT v + 0.0 FROM r [NOW]) q"
    assert at_one(text, rows(A), rows(A, B)) == [(1.0,), (3.0,)]
    assert at_one("SELECT NULL AS x FROM s [NOW] UNION ALL SELECT k FROM s [NOW]", rows(A)) == [("a",), (None,)]


def test_subqueries_nest() -> None:
    text = """SELECT q.n, COUNT(*)
              FROM (SELECT k, COUNT(*) AS n FROM (SELECT DISTINCT k, v FROM s [NOW]) d GROUP BY k) AS q
              GROUP BY q.n"""
    assert at_one(text, rows(A, A, A2, B)) == [(1, 1), (2, 1)]


# Names and text


def test_names_are_found_whatever_their_case_unless_quoted() -> None:
    assert at_one("SELECT K, Q.v, \"k\" FROM S [now] AS q WHERE q.K = 'a'", rows(A)) == [("a", 1, "a")]
    both = 'SELECT x, X, "X" FROM (SELECT v AS "x", k AS "X" FROM s [NOW]) q'
    assert at_one(both, rows(A)) == [(1, "a", "a")]
    for text in ('SELECT "K" FROM s [NOW]', 'SELECT 1 FROM "S" [NOW]', 'SELECT "Q".k FROM s [NOW] q'):
        with pytest.raises(BruteForceError):
            at_one(text, rows(A))


def test_stars_and_repeated_names() -> None:
    text = "SELECT q.k_1, q.v FROM (SELECT s.*, r.k FROM s [NOW], r [NOW]) q"
    assert at_one(text, rows(A), rows(B)) == [("b", 1)]
    assert at_one("SELECT * FROM s [NOW], r [NOW]", rows(A), rows(B)) == [(1, "a", 1, 1, "b", 3)]
    numbered = "SELECT q.x, q.x_1, q.x_2 FROM (SELECT v AS x, v + 1 AS x, v + 2 AS x_1 FROM s [NOW]) q"
    assert at_one(numbered, rows(A)) == [(1, 3, 2)]


def test_words_of_clauses_may_name_columns() -> None:
    text = 'SELECT date, "as", left FROM (SELECT k date, v AS "as", 5 AS left FROM s [NOW]) range'
    assert at_one(text, rows(A)) == [("a", 1, 5)]


def test_brackets_and_quotes_in_literals_and_comments_mean_nothing() -> None:
    text = """-- s [NOW]
    SELECT 'it''s [NOW] -- no' AS "from", k /* FROM r [RANGE 1] ' /* and more */ */ FROM "s"[ range 2 ]AS "the ""where"
    WHERE "the ""where".k <> '--';"""
    assert at_one(text, rows(A)) == [("it's [NOW] -- no", "a")]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k FROM s [NOW] WHERE",
        "SELECT k FROM s [NOW] ORDER BY k",
        "SELECT k FROM s [NOW] LIMIT 1",
        "SELECT k FROM q [NOW]",
        "SELECT nothing FROM s [NOW]",
        "SELECT k FROM s [NOW], r [NOW]",
        "SELECT x.k FROM s [NOW]",
        "SELECT 1 FROM s [NOW], s [NOW]",
        "SELECT 1 FROM s [NOW] a JOIN r [NOW] b ON c.k = b.k JOIN t [NOW] c ON TRUE",
        "SELECT k FROM s [ROWS 5]",
        "SELECT k FROM s [RANGE 5 SLIDE 0]",
        "SELECT k FROM s [RANGE 5 MONTHS]",
        "SELECT k FROM (SELECT k FROM s [NOW])",
        "SELECT MEDIAN(v) FROM s [NOW]",
        "SELECT k FROM s [NOW] WHERE k > 5",
        "SELECT k FROM s [NOW] WHERE v",
        "SELECT k FROM s [NOW] WHERE SUM(v) > 1",
        "SELECT SUM(COUNT(*)) FROM s [NOW]",
        "SELECT SUM(k) FROM s [NOW]",
        "SELECT k FROM s [NOW] GROUP BY 2",
        "SELECT k FROM s [NOW] UNION SELECT v FROM s [NOW]",
        "SELECT k FROM s [NOW] UNION SELECT k, v FROM s [NOW]",
        "SELECT v < 1 < 2 FROM s [NOW]",
        "SELECT ABS(v, 1) FROM s [NOW]",
        "SELECT CAST(v AS JSON) FROM s [NOW]",
        "SELECT 1abc FROM s [NOW]",
        "SELECT 'open FROM s [NOW]",
        "SELECT k /* open FROM s [NOW]",
        "SELECT k LIKE k FROM s [NOW]",
        "SELECT k INTERSECT SELECT k FROM s [NOW]",
    ],
)
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(BruteForceError):
        at_one(text, rows(A), rows(A), rows(A))


def test_tables_may_come_in_parts_and_with_columns_in_another_order() -> None:
    parts: list[Any] = [rows(A), rows(B).to_batches()[0], pa.table({"v": [5], "k": ["c"], "ts": [1]})]
    series = brute_force_snapshots("SELECT k, v FROM s [NOW]", [S], {"s": parts})
    assert bag(series.at(1)) == [("a", 1), ("b", 3), ("c", 5)]


def test_streams_without_rows_have_snapshots_with_columns() -> None:
    series = brute_force_snapshots("SELECT k, v FROM s [NOW] UNION ALL SELECT k, v FROM r [NOW]", [S, R, T], {})
    assert series.instants == () and series.table.num_columns == len(NUMBERS)
