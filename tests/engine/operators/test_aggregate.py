"""Aggregation: every aggregate over every type it takes, at every instant."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream import ContinuousQuery, Stream

examples = settings(derandomize=True, deadline=None, max_examples=40, database=None)

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
LARGEST = 1.7976931348623157e308
Row = tuple[int, Any, Any]


def decimals(*texts: str) -> list[Decimal]:
    return [Decimal(text) for text in texts]


NUMBERS: dict[pa.DataType, list[Any]] = {
    pa.int8(): [-128, -1, 0, 1, 127],
    pa.int16(): [-(2**15), -1, 0, 2**15 - 1],
    pa.int32(): [-(2**31), -1, 0, 1, 2**31 - 1],
    pa.int64(): [INT64_MIN, -1, 0, 1, 2**32, -(2**32) - 1, INT64_MAX],
    pa.uint8(): [0, 1, 128, 255],
    pa.uint16(): [0, 1, 2**15, 2**16 - 1],
    pa.uint32(): [0, 1, 2**31, 2**32 - 1],
    pa.uint64(): [0, 1, 2**63 - 1, 2**63, 2**64 - 1],
    pa.float16(): [np.float16(v) for v in (-65504, -0.5, 0.25, 65504)],
    pa.float32(): [-0.5, 0.25, 2.0**127, -(2.0**127), 2.0**-149],
    pa.float64(): [-1.5, 0.1, 0.2, 1e16, -1e16, 1e300, -1e300, 5e-324, -0.0],
    pa.decimal128(5, 2): decimals("-999.99", "-0.01", "0.00", "0.01", "999.99"),
    pa.decimal128(18, 0): decimals("-999999999999999999", "-1", "0", "7", "999999999999999999"),
    pa.decimal128(30, 10): decimals("-99999999999999999999.9999999999", "-0.0000000001", "0", "1.5", "12345.678"),
    pa.decimal128(38, 3): decimals("-99999999999999999999999999999999999.999", "-1.5", "0", "0.001", "7"),
}
OTHERS: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [False, True],
    pa.string(): ["", "a", "ab", "b", "ä", "\0"],
    pa.large_string(): ["", "a", "B", "b"],
    pa.binary(): [b"", b"\0", b"a", b"\xff"],
    pa.binary(2): [b"\0\0", b"ab", b"\xff\0"],
    pa.date32(): [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)],
    pa.date64(): [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)],
    pa.time32("s"): [datetime.time(0), datetime.time(12, 30), datetime.time(23, 59, 59)],
    pa.time64("us"): [datetime.time(0), datetime.time(12, 30, 0, 1), datetime.time(23, 59, 59)],
    pa.timestamp("us"): [datetime.datetime(1, 1, 1), datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)],
    pa.timestamp("ms", "UTC"): [
        datetime.datetime(1960, 1, 1, tzinfo=datetime.UTC),
        datetime.datetime.now(datetime.UTC),
    ],
    pa.duration("us"): [datetime.timedelta(microseconds=-1), datetime.timedelta(0), datetime.timedelta(days=3)],
    pa.decimal256(60, 5): decimals("-" + "9" * 55 + ".99999", "0", "1.5"),
}
OTHERS[pa.timestamp("ms", "UTC")][1] = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


def results_of(select: str, data_type: pa.DataType, pushes: list[list[Row]], group: str = "GROUP BY k") -> list[dict]:
    """The results over rows (ts, k, x); each is valid for 5 ticks."""
    schema = pa.schema({"ts": pa.int64(), "k": pa.string(), "x": data_type})
    run = ContinuousQuery(f"SELECT {select} FROM s [RANGE 4] {group}", [Stream("s", schema, "ts")]).run_locally()
    tables = []
    for rows in pushes:
        columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
        tables.append(run.push({"s": pa.Table.from_arrays(columns, schema=schema)}))
    results = pa.concat_tables([*tables, run.finish()])
    results.validate(full=True)
    assert run.metrics()["state_rows"] == 0
    return results.to_pylist()


def over(function: str, values: list[Any], data_type: pa.DataType) -> Any:
    """One aggregate over values that all come at once."""
    (row,) = results_of(f"{function} AS y", data_type, [[(1, "k", value) for value in values]], group="")
    assert (row["valid_from"], row["valid_to"]) == (1, 6)
    return row["y"]


def exact_sum(values: list[Any], data_type: pa.DataType) -> Any:
    """The sum as the language defines it: exact, rounded once for floats, NULL where the type cannot hold it."""
    if not values:
        return None
    if pa.types.is_floating(data_type):
        total = sum((Fraction(float(v)) for v in values), Fraction(0))
        try:
            return float(total)
        except OverflowError:
            return math.inf if total > 0 else -math.inf
    total = sum(map(Fraction, values), Fraction(0))
    if pa.types.is_decimal(data_type) or pa.types.is_uint64(data_type):
        scale = getattr(data_type, "scale", 0)
        whole = int(total * 10**scale)
        return Decimal(f"{whole}E-{scale}") if abs(whole) < 10**38 else None
    return int(total) if INT64_MIN <= total <= INT64_MAX else None


def mean(values: list[Any]) -> float | None:
    fractions = [Fraction(float(v) if isinstance(v, np.floating) else v) for v in values]
    return float(sum(fractions, Fraction(0)) / len(fractions)) if fractions else None


def check_aggregates(rows: list[Row], results: list[dict], data_type: pa.DataType, is_number: bool) -> None:
    """Every instant of every group against recomputation."""
    for instant in range(-1, 40):
        found = {}
        for row in results:
            if row["valid_from"] <= instant < row["valid_to"]:
                assert row["k"] not in found
                found[row["k"]] = row
        valid: dict[Any, list[Any]] = {}
        for time, key, value in rows:
            if time <= instant <= time + 4:
                valid.setdefault(key, []).append(value)
        assert set(found) == set(valid)
        for key, values in valid.items():
            there = [v for v in values if v is not None]
            different = list(dict.fromkeys(there))
            row = found[key]
            assert (row["n"], row["nx"], row["dx"]) == (len(values), len(there), len(different))
            assert row["low"] == min(there, default=None)
            assert row["high"] == max(there, default=None)
            if is_number:
                assert row["s"] == exact_sum(there, data_type)
                assert row["ds"] == exact_sum(different, data_type)
                for name, of in (("a", there), ("da", different)):
                    expected = mean(of)
                    assert row[name] == (None if expected is None else pytest.approx(expected, rel=1e-15))


ORDERED = "k, COUNT(*) AS n, COUNT(x) AS nx, COUNT(DISTINCT x) AS dx, MIN(x) AS low, MAX(x) AS high"
SUMMED = ", SUM(x) AS s, SUM(DISTINCT x) AS ds, AVG(x) AS a, AVG(DISTINCT x) AS da"


@pytest.mark.parametrize("data_type", [*NUMBERS, *OTHERS], ids=str)
def test_every_aggregate_of_every_type_is_that_of_the_rows_valid_at_each_instant(data_type):
    is_number = data_type in NUMBERS
    values = [*(NUMBERS if is_number else OTHERS)[data_type], None]
    if data_type == pa.float64():
        values = [v for v in values if v != 0]
    random = np.random.default_rng(7)
    pushes = []
    for now in range(0, 30, 5):
        count = int(random.integers(0, 9))
        chosen = [values[i] for i in random.integers(0, len(values), count)]
        times = random.integers(now, now + 6, count).tolist()
        keys = [["a", "b", None][i] for i in random.integers(0, 3, count)]
        pushes.append(list(zip(times, keys, chosen, strict=True)))
    results = results_of(ORDERED + (SUMMED if is_number else ""), data_type, pushes)
    # A push may hold rows that an earlier one has made late.
    watermark, in_time = -1, []
    for rows in pushes:
        in_time += [row for row in rows if row[0] >= watermark]
        watermark = max([watermark, *(row[0] for row in rows)])
    assert len(in_time) > 10
    check_aggregates(in_time, results, data_type, is_number)


@pytest.mark.parametrize(
    "data_type", [pa.int64(), pa.float64(), pa.decimal128(38, 3), pa.string(), pa.uint64()], ids=str
)
def test_any_history_is_aggregated_as_if_recomputed(data_type):
    is_number = data_type in NUMBERS
    value = st.sampled_from([*(NUMBERS if is_number else OTHERS)[data_type], None])
    push = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["a", "b"]), value), max_size=7)

    @examples
    @given(st.lists(push, min_size=1, max_size=5))
    def check(offsets):
        pushes = [[(6 * i + time, k, x) for time, k, x in rows] for i, rows in enumerate(offsets)]
        results = results_of(ORDERED + (SUMMED if is_number else ""), data_type, pushes)
        check_aggregates([row for rows in pushes for row in rows], results, data_type, is_number)

    check()


@pytest.mark.parametrize(
    ("function", "data_type", "expected"),
    [
        ("SUM(x)", pa.int8(), pa.int64()),
        ("SUM(x)", pa.uint32(), pa.int64()),
        ("SUM(x)", pa.uint64(), pa.decimal128(38, 0)),
        ("SUM(x)", pa.float32(), pa.float64()),
        ("SUM(x)", pa.decimal128(5, 2), pa.decimal128(38, 2)),
        ("AVG(x)", pa.int64(), pa.float64()),
        ("AVG(x)", pa.decimal128(5, 2), pa.float64()),
        ("MIN(x)", pa.decimal128(5, 2), pa.decimal128(5, 2)),
        ("MAX(x)", pa.float16(), pa.float16()),
        ("MAX(x)", pa.binary(2), pa.binary(2)),
        ("COUNT(DISTINCT x)", pa.string(), pa.int64()),
    ],
)
def test_aggregates_have_the_types_the_language_says(function, data_type, expected):
    stream = Stream("s", pa.schema({"ts": pa.int64(), "x": data_type}), "ts")
    run = ContinuousQuery(f"SELECT {function} AS y FROM s [NOW]", [stream]).run_locally()
    assert run.output_schema.field("y").type == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([INT64_MAX], INT64_MAX),
        ([INT64_MAX, 1], None),
        ([INT64_MAX, 1, -1], INT64_MAX),
        ([INT64_MIN, -1], None),
        ([INT64_MIN, INT64_MAX], -1),
        ([INT64_MAX] * 7, None),
        ([INT64_MIN] * 7, None),
        ([INT64_MIN, INT64_MIN, INT64_MAX, INT64_MAX, 2], 0),
    ],
)
def test_a_sum_of_integers_that_does_not_fit_is_null(values, expected):
    assert over("SUM(x)", values, pa.int64()) == expected
    assert over("AVG(x)", values, pa.int64()) == pytest.approx(mean(values), rel=1e-15)


def test_a_sum_that_does_not_fit_recovers_when_rows_go():
    results = results_of("SUM(x) AS y", pa.int64(), [[(1, "k", INT64_MAX), (3, "k", 1), (6, "k", -5)]])
    told = [(row["y"], row["valid_from"], row["valid_to"]) for row in results]
    assert told == [(INT64_MAX, 1, 3), (None, 3, 6), (-4, 6, 8), (-5, 8, 11)]


NINES = int("9" * 38)


def scaled(number: int | None, scale: int) -> Decimal | None:
    """Not computed but written: Python's decimals would round it."""
    return None if number is None else Decimal(f"{number}E-{scale}")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([NINES], NINES),
        ([NINES, 1], None),  # 39 digits, though 128 bits hold it
        ([NINES, 1, -1], NINES),
        ([-NINES, -1], None),
        ([-NINES, -1, 1], -NINES),
        ([-NINES], -NINES),
        ([NINES - 1, 1], NINES),
        ([NINES, NINES], None),
        ([NINES] * 5, None),
        ([NINES] * 5 + [-NINES] * 4, NINES),
        ([-NINES, NINES], 0),
    ],
)
@pytest.mark.parametrize("scale", [0, 5, 38])
def test_a_sum_of_decimals_has_38_digits_or_is_null(values, expected, scale):
    data_type = pa.decimal128(38, scale)
    assert over("SUM(x)", [scaled(value, scale) for value in values], data_type) == scaled(expected, scale)


@pytest.mark.parametrize("scale", [0, 5, 38])
@pytest.mark.parametrize("values", [[NINES, 1], [NINES, NINES], [NINES] * 5 + [7], [-NINES] * 1000, [NINES, NINES, -3]])
def test_a_mean_of_decimals_has_a_value_where_their_sum_has_none(values, scale):
    numbers = [Decimal(f"{value}E{-scale}") for value in values]
    assert over("SUM(x)", numbers, pa.decimal128(38, scale)) is None
    assert over("AVG(x)", numbers, pa.decimal128(38, scale)) == mean(numbers)


def test_a_mean_of_decimals_follows_the_rows_that_remain():
    numbers = [Decimal(NINES), Decimal(NINES), Decimal(3)]
    assert over("AVG(DISTINCT x)", numbers, pa.decimal128(38, 0)) == mean(numbers[1:])


def test_sums_of_unsigned_integers_are_exact():
    assert over("SUM(x)", [2**64 - 1] * 3, pa.uint64()) == Decimal(3 * (2**64 - 1))
    assert over("SUM(x)", [2**32 - 1] * 3, pa.uint32()) == 3 * (2**32 - 1)
    assert over("AVG(x)", [2**64 - 1, 0], pa.uint64()) == 2.0**63


@pytest.mark.parametrize(
    ("values", "total", "average"),
    [
        ([0.1] * 10, 1.0, 0.1),
        ([1e300, 1.0, -1e300], 1.0, 1 / 3),
        ([math.inf, 1.0], math.inf, math.inf),
        ([-math.inf, 1.0], -math.inf, -math.inf),
        ([LARGEST, LARGEST], math.inf, math.inf),
        ([1e308] * 4, math.inf, math.inf),
        ([-LARGEST] * 9, -math.inf, -math.inf),
        ([LARGEST] * 9 + [-LARGEST] * 8, LARGEST, LARGEST / 17),
    ],
)
def test_sums_of_floats_are_exact_and_rounded_once(values, total, average):
    assert over("SUM(x)", values, pa.float64()) == total
    assert over("AVG(x)", values, pa.float64()) == pytest.approx(average, rel=1e-15)


def test_nan_is_the_greatest_float_and_makes_sums_nan():
    values = [1.0, math.nan, -math.inf]
    assert math.isnan(over("MAX(x)", values, pa.float64()))
    assert over("MIN(x)", values, pa.float64()) == -math.inf
    assert math.isnan(over("MIN(x)", [math.nan, None], pa.float64()))
    assert math.isnan(over("SUM(x)", values, pa.float64()))
    assert math.isnan(over("SUM(x)", [math.inf, -math.inf], pa.float64()))
    assert over("COUNT(DISTINCT x)", [math.nan, -math.nan, 0.0, -0.0, None], pa.float64()) == 2


@pytest.mark.parametrize("data_type", [*NUMBERS, *OTHERS, pa.null()], ids=str)
def test_aggregates_of_nothing_but_nulls_are_null_and_count_none(data_type):
    names = ["MIN", "MAX"] + (["SUM", "AVG"] if data_type in NUMBERS or pa.types.is_null(data_type) else [])
    select = ", ".join(f"{name}(x) AS {name}" for name in names)
    (row,) = results_of(
        f"COUNT(*) AS n, COUNT(x) AS c, COUNT(DISTINCT x) AS d, {select}", data_type, [[(1, "k", None)] * 3]
    )
    assert (row["n"], row["c"], row["d"]) == (3, 0, 0)
    assert [row[name] for name in names] == [None] * len(names)


def test_groups_vanish_with_their_last_row_and_return_with_their_next():
    results = results_of("k, MIN(x) AS y", pa.string(), [[(1, "a", "p"), (3, "b", "r")], [(20, "a", "q")]])
    assert [(row["k"], row["y"], row["valid_from"], row["valid_to"]) for row in results] == [
        ("a", "p", 1, 6),
        ("b", "r", 3, 8),
        ("a", "q", 20, 25),
    ]


def test_no_rows_give_no_row_even_without_groups():
    assert results_of("COUNT(*) AS n", pa.int64(), [[]], group="") == []
    results = results_of("COUNT(*) AS n", pa.int64(), [[(1, "a", 1), (10, "a", 1)]], group="")
    assert [(row["n"], row["valid_from"], row["valid_to"]) for row in results] == [(1, 1, 6), (1, 10, 15)]


def test_null_is_a_group_of_its_own():
    results = results_of("k, COUNT(*) AS n", pa.int64(), [[(1, None, 1), (1, "", 1), (1, None, 1)]])
    assert {row["k"]: row["n"] for row in results} == {None: 2, "": 1}


@pytest.mark.parametrize("data_type", [pa.int64(), pa.string(), pa.decimal128(38, 3)], ids=str)
def test_extremes_of_many_rows_follow_those_that_remain(data_type):
    """The extremes go first, then last: heaps must forget both those on top and those below."""
    make = {pa.int64(): int, pa.string(): "{:03}".format, pa.decimal128(38, 3): Decimal}[data_type]
    for order in (range(100), range(100)[::-1]):
        rows = [(time, "k", make(value)) for time, value in enumerate(order)]
        results = results_of("MIN(x) AS low, MAX(x) AS high, COUNT(*) AS n", data_type, [rows[:37], rows[37:]])
        for row in results:
            instant = row["valid_from"]
            valid = [value for time, _, value in rows if time <= instant <= time + 4]
            assert (row["low"], row["high"], row["n"]) == (min(valid), max(valid), len(valid))


def test_distinct_aggregates_of_different_columns_are_kept_apart():
    schema = pa.schema({"ts": pa.int64(), "x": pa.int64(), "y": pa.string(), "z": pa.float64()})
    text = (
        "SELECT COUNT(DISTINCT x) AS x, COUNT(DISTINCT y) AS y, SUM(DISTINCT z) AS z, SUM(DISTINCT x) AS sx,"
        " SUM(x) AS s FROM s [RANGE 4]"
    )
    run = ContinuousQuery(text, [Stream("s", schema, "ts")]).run_locally()
    rows = [(1, 1, "a", 0.5), (1, 1, "b", 0.5), (2, 2, "a", 0.25), (3, 1, "c", None), (6, 2, "a", 0.5)]
    pushed = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
    results = pa.concat_tables([run.push({"s": pushed}), run.finish()])
    told = [tuple(row.values()) for row in results.to_pylist()]
    assert told == [
        (1, 2, 0.5, 1, 2, 1, 2),
        (2, 2, 0.75, 3, 4, 2, 3),
        (2, 3, 0.75, 3, 5, 3, 6),
        (2, 2, 0.75, 3, 5, 6, 7),
        (2, 2, 0.5, 3, 3, 7, 8),
        (1, 1, 0.5, 2, 2, 8, 11),
    ]
