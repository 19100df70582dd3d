"""The brute force against results worked out by hand: expressions and values of every type."""

import datetime
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from midstream.testing import BruteForceError, brute_force_snapshots
from tests.testing.declared import bag, column, evaluated, selected

NAN, INF = math.nan, math.inf
MONEY = pa.decimal128(10, 2)
UTC = datetime.UTC


def same(found: Any, expected: Any) -> bool:
    """Equal in value and kind; NaN is itself."""
    if isinstance(expected, float):
        return isinstance(found, float) and (found == expected or (math.isnan(found) and math.isnan(expected)))
    return type(found) is type(expected) and found == expected


EXPRESSIONS: list[tuple[str, Any]] = [
    # Precedence
    ("1 + 2 * 3 - 4", 3),
    ("(1 + 2) * 3", 9),
    ("1 - 2 - 3", -4),
    ("8 / 4 / 2", 1.0),
    ("- 2 * 3", -6),
    ("2 - - 3", 5),
    ("7 % 4 * 2", 6),
    ("TRUE OR TRUE AND FALSE", True),
    ("NOT FALSE AND FALSE", False),
    ("NOT 1 = 2", True),
    ("1 = 2 IS NULL", False),
    ("NOT 1 = NULL IS NULL", False),
    ("2 BETWEEN 1 AND 3 AND FALSE", False),
    ("1 + 1 BETWEEN 2 AND 1 + 1", True),
    ("'a' || 'b' LIKE 'ab'", True),
    ("'a' LIKE 'b' = FALSE", True),
    # Literals
    ("007", 7),
    (".5 + 5.", 5.5),
    ("1e3", 1000.0),
    ("-9223372036854775808", -(2**63)),
    ("9223372036854775808", Decimal(2**63)),
    ("'it''s'", "it's"),
    ("DATE '2026-01-31'", datetime.date(2026, 1, 31)),
    ("TIMESTAMP '2026-01-31 12:00:00.5'", datetime.datetime(2026, 1, 31, 12, 0, 0, 500_000)),
    ("TIMESTAMP '2026-01-31 12:00:00+01:00'", datetime.datetime(2026, 1, 31, 11, tzinfo=UTC)),
    ("INTERVAL '5' MINUTE", datetime.timedelta(minutes=5)),
    ("INTERVAL 90 seconds", datetime.timedelta(seconds=90)),
    ("INTERVAL '1.5 hours'", datetime.timedelta(minutes=90)),
    # Arithmetic is total
    ("7 / 2", 3.5),
    ("7 / 0", None),
    ("7.5 / 0", None),
    ("7 % 0", None),
    ("7.5 % 0.0", None),
    ("-7 % 3", -1),
    ("7 % -3", 1),
    ("-7.5 % 2", -1.5),
    ("9223372036854775807 + 1", None),
    ("-9223372036854775807 - 2", None),
    ("4611686018427387904 * 2", None),
    ("ABS(-9223372036854775808)", None),
    ("-(-9223372036854775808)", None),
    ("9007199254740993 - 1", 2**53),
    ("9007199254740993 = 9007199254740992.0", True),
    ("9007199254740993 = 9007199254740992", False),
    ("1.5 + 1", 2.5),
    ("1e308 * 10", INF),
    ("1e308 * 10 - 1e308 * 10", NAN),
    # Functions of numbers
    ("SIGN(-3)", -1),
    ("FLOOR(9007199254740993)", 2**53 + 1),
    ("FLOOR(-1.5)", -2.0),
    ("CEIL(1.2)", 2.0),
    ("CEILING(-1.5)", -1.0),
    ("ROUND(2.5)", 3.0),
    ("ROUND(-2.5)", -3.0),
    ("ROUND(0.49999999999999994)", 0.0),
    ("ROUND(-17, -1)", -20),
    ("ROUND(9223372036854775807, -1)", None),
    ("ROUND(1250.0, -2)", 1300.0),
    ("MOD(7, 4)", 3),
    ("SQRT(4)", 2.0),
    ("SQRT(-1)", None),
    ("LN(0)", None),
    ("EXP(0)", 1.0),
    ("EXP(1000)", INF),
    ("POWER(2, 10)", 1024.0),
    ("POW(0, -1)", None),
    ("POWER(-8, 0.5)", None),
    ("POWER(-10, 309)", -INF),
    # NULL
    ("NULL = NULL", None),
    ("NULL IS NULL", True),
    ("1 IS NOT NULL", True),
    ("NULL + 1", None),
    ("FALSE AND NULL", False),
    ("TRUE AND NULL", None),
    ("TRUE OR NULL", True),
    ("FALSE OR NULL", None),
    ("NOT (NULL = 1)", None),
    ("2 IN (1, NULL)", None),
    ("1 IN (1, NULL)", True),
    ("2 NOT IN (1, NULL)", None),
    ("2 NOT IN (1, 3)", True),
    ("NULL IN (1)", None),
    ("2 BETWEEN 3 AND NULL", False),
    ("2 NOT BETWEEN 1 AND NULL", None),
    ("'a' || NULL", None),
    ("CONCAT('a', NULL, 'b')", "ab"),
    ("COALESCE(NULL, 5, 6)", 5),
    ("COALESCE(7 / 0, 2)", 2.0),
    ("IFNULL(NULL, 5)", 5),
    ("NULLIF(3, 3)", None),
    ("NULLIF(3, NULL)", 3),
    ("GREATEST(1, NULL, 3)", 3),
    ("LEAST(NULL, 2, 1.5)", 1.5),
    ("GREATEST(NULL, NULL)", None),
    # Choice
    ("CASE WHEN NULL THEN 1 WHEN TRUE THEN 2 ELSE 3 END", 2),
    ("CASE WHEN FALSE THEN 1 END", None),
    ("CASE NULL WHEN NULL THEN 'a' ELSE 'b' END", "b"),
    ("CASE 2 WHEN 1 THEN 'a' WHEN 2.0 THEN 'b' END", "b"),
    ("CASE WHEN TRUE THEN 1 ELSE 2.5 END", 1.0),
    ("IF(NULL > 0, 1, 2)", 2),
    # Text
    ("LENGTH('aé😀')", 3),
    ("CHAR_LENGTH('')", 0),
    ("UPPER('aé')", "AÉ"),
    ("LOWER('AÉ')", "aé"),
    ("TRIM('  x y ')", "x y"),
    ("LTRIM('  x ')", "x "),
    ("RTRIM('  x ')", "  x"),
    ("SUBSTRING('midstream', 4, 6)", "stream"),
    ("SUBSTR('a😀b', 2)", "😀b"),
    ("SUBSTRING('hello', -3, 2)", "ll"),
    ("SUBSTRING('hello', 0, 2)", "h"),
    ("SUBSTRING('hello', 10, 2)", ""),
    ("REPLACE('banana', 'an', 'x')", "bxxa"),
    ("REPLACE('banana', '', 'x')", "banana"),
    ("STARTS_WITH('abc', 'ab')", True),
    ("STARTS_WITH('abc', NULL)", None),
    ("'a\nb' LIKE 'a%b'", True),
    ("'😀' LIKE '_'", True),
    ("'a.c' LIKE 'a.c'", True),
    ("'abc' LIKE 'a.c'", False),
    ("'abc' NOT LIKE 'b%'", True),
    (r"'\x' LIKE '\_'", True),
    ("'' LIKE '%%'", True),
    # Dates and timestamps
    ("EXTRACT(YEAR FROM DATE '1969-12-31')", 1969),
    ("extract(second from TIMESTAMP '2020-01-01 10:20:30.9')", 30),
    ("HOUR(TIMESTAMP '1969-12-31 23:59:59')", 23),
    ("MONTH(DATE '2024-02-29') * 100 + DAY(DATE '2024-02-29')", 229),
    ("MINUTE(TIMESTAMP '2020-01-01 00:59:00+02:00')", 59),
    ("TIMESTAMP '2026-01-31 12:00:00' - TIMESTAMP '2026-01-31 11:55:00'", datetime.timedelta(minutes=5)),
    ("TIMESTAMP '2024-02-28 12:00:00' + INTERVAL '1' DAY", datetime.datetime(2024, 2, 29, 12)),
    ("INTERVAL '1' DAY + TIMESTAMP '2024-02-28 12:00:00'", datetime.datetime(2024, 2, 29, 12)),
    ("DATE '2024-03-01' - INTERVAL '1' HOUR", datetime.datetime(2024, 2, 29, 23)),
    ("INTERVAL '1' DAY - INTERVAL '1' HOUR", datetime.timedelta(hours=23)),
    ("TIMESTAMP '2024-03-01 00:00:00' = DATE '2024-03-01'", True),
    ("TIMESTAMP '2024-03-01 00:00:00' > '2024-02-29'", True),
    ("DATE '2024-03-01' IN ('2024-03-01')", True),
    # Casts
    ("CAST('12' AS INT)", 12),
    ("CAST('twelve' AS INT)", None),
    ("CAST('2.5' AS BIGINT)", 3),
    ("CAST('1e999999999' AS BIGINT)", None),
    ("CAST(300 AS TINYINT)", None),
    ("CAST(-32768 AS SMALLINT)", -32768),
    ("CAST(1e30 AS BIGINT)", None),
    ("CAST('x' AS DOUBLE)", None),
    ("CAST('inf' AS DOUBLE)", INF),
    ("CAST(0.1 AS REAL)", float(np.float32(0.1))),
    ("CAST(1e39 AS FLOAT)", None),
    ("CAST('1.55' AS DECIMAL(10, 1))", Decimal("1.6")),
    ("CAST(1234 AS DECIMAL(5, 2))", None),
    ("CAST(2.675 AS DECIMAL(5, 2))", Decimal("2.68")),
    ("CAST(TRUE AS INT)", 1),
    ("CAST('t' AS BOOLEAN)", True),
    ("CAST('maybe' AS BOOLEAN)", None),
    ("CAST(12 AS VARCHAR)", "12"),
    ("CAST(1e20 AS TEXT)", "1e+20"),
    ("CAST(-0.0 AS STRING)", "-0.0"),
    ("CAST(TRUE AS VARCHAR)", "true"),
    ("CAST(DATE '2024-02-29' AS VARCHAR)", "2024-02-29"),
    ("CAST(TIMESTAMP '2024-02-29 01:02:03.120' AS VARCHAR)", "2024-02-29 01:02:03.12"),
    ("CAST('2024-02-30' AS DATE)", None),
    ("CAST('2024-02-29 10:00:00' AS DATE)", datetime.date(2024, 2, 29)),
    ("CAST(DATE '2024-02-29' AS TIMESTAMP)", datetime.datetime(2024, 2, 29)),
    ("CAST('2020-01-01 10:00:00+02' AS TIMESTAMPTZ)", datetime.datetime(2020, 1, 1, 8, tzinfo=UTC)),
    ("CAST(TIMESTAMP '1969-12-31 23:00:00' AS DATE)", datetime.date(1969, 12, 31)),
]


@pytest.mark.parametrize(("expression", "expected"), EXPRESSIONS, ids=[text for text, _ in EXPRESSIONS])
def test_expression(expression: str, expected: Any) -> None:
    found = evaluated(expression)
    assert same(found, expected), found


# Integers


def test_small_integers_do_not_overflow_their_own_type() -> None:
    assert evaluated("x * x", pa.int8(), 127) == 16129
    assert evaluated("-x", pa.uint8(), 255) == -255
    assert evaluated("x - 1", pa.uint32(), 0) == -1


def test_unsigned_64_bit_integers_are_exact() -> None:
    kind, top = pa.uint64(), 2**64 - 1
    assert evaluated("x", kind, top) == top
    assert evaluated("x + 1", kind, top) == Decimal(2**64)
    assert evaluated("x % 10", kind, top) == Decimal(5)
    assert selected("x > 9223372036854775807", kind, 2**63 - 1, 2**63, None) == [1]
    assert selected("x = 18446744073709551615", kind, top - 1, top) == [1]


def test_sums_of_integers_are_null_if_they_do_not_fit() -> None:
    for kind, values, total in (
        (pa.int64(), (2**63 - 1, 1), None),
        (pa.int64(), (2**63 - 1, 1, -1), 2**63 - 1),
        (pa.uint64(), (2**64 - 1, 1), Decimal(2**64)),
        (pa.uint32(), (2**32 - 1, 1), 2**32),
    ):
        stream, table = column(kind, *values)
        series = brute_force_snapshots("SELECT SUM(x), AVG(x) FROM s [NOW]", [stream], {"s": table})
        assert series.at(1) == [(total, sum(values) / len(values))]


# Floats


def test_nan_equals_itself_and_is_above_all() -> None:
    floats = (NAN, INF, -INF, 0.0, -0.0, 1.5, None)
    for kind in (pa.float64(), pa.float32()):
        assert selected("x = x", kind, *floats) == [0, 1, 2, 3, 4, 5]
        assert selected("x > 1.5", kind, *floats) == [0, 1]
        assert selected("x <= x + 0 AND x >= 1e308", kind, *floats) == [0, 1]
        assert selected("x = 0", kind, *floats) == [3, 4]
        assert selected("x IN (1.5, 0.0)", kind, *floats) == [3, 4, 5]
        assert selected("x BETWEEN -0.0 AND 0.0", kind, *floats) == [3, 4]


def test_extremes_follow_the_order_of_floats() -> None:
    stream, table = column(pa.float64(), INF, NAN, None, 1.5, -0.0)
    ((most, least),) = brute_force_snapshots("SELECT MAX(x), MIN(x) FROM s [NOW]", [stream], {"s": table}).at(1)
    assert math.isnan(most) and least == 0
    assert math.isnan(evaluated("GREATEST(x, 1e308)", pa.float64(), NAN))
    assert evaluated("LEAST(x, 1e308)", pa.float64(), NAN) == 1e308


def test_nan_is_one_value_and_so_is_zero() -> None:
    stream, table = column(pa.float64(), NAN, NAN, 0.0, -0.0, None, None)
    found = brute_force_snapshots("SELECT DISTINCT x FROM s [NOW]", [stream], {"s": table}).at(1)
    assert [str(value).lstrip("-") for (value,) in bag(found)] in (["0.0", "None", "nan"], ["None", "0.0", "nan"])
    counted = brute_force_snapshots(
        "SELECT COUNT(*), COUNT(DISTINCT x) FROM s [NOW] GROUP BY x", [stream], {"s": table}
    )
    assert bag(counted.at(1)) == [(2, 0), (2, 1), (2, 1)]
    rest = "SELECT x FROM s [NOW] EXCEPT ALL SELECT x FROM s [NOW] WHERE n IN (1, 3, 5)"
    assert len(brute_force_snapshots(rest, [stream], {"s": table}).at(1)) == 3


def test_sums_of_floats_are_rounded_once() -> None:
    for values, total in (
        ((1e16, 1.0, -1e16), 1.0),
        ((0.1,) * 10, 1.0),
        ((1e308, 1e308, -1e308), 1e308),
        ((1e308, 1e308), INF),
        ((INF, 1.0), INF),
        ((INF, -INF), NAN),
        ((NAN, 1.0), NAN),
        ((None,), None),
    ):
        stream, table = column(pa.float64(), *values)
        ((found,),) = brute_force_snapshots("SELECT SUM(x) FROM s [NOW]", [stream], {"s": table}).at(1)
        assert same(found, total)


def test_small_floats_have_their_own_text() -> None:
    assert evaluated("CAST(x AS VARCHAR)", pa.float32(), 0.1) == "0.1"
    assert evaluated("CAST(x AS VARCHAR)", pa.float32(), 16777216.0) == "16777216.0"
    assert evaluated("x = 0.1", pa.float32(), 0.1) is False
    assert evaluated("x + x", pa.float16(), np.float16(1.5)) == 3.0


# Decimals


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("x * x", "0.0100"),
        ("x + 1", "1.10"),
        ("x % 0", None),
        ("-x", "-0.10"),
        ("FLOOR(x)", "0"),
        ("CEIL(-x)", "0"),
        ("CEIL(x)", "1"),
        ("ROUND(x + 2.5 * 0 + 0, 1)", 0.1),
        ("ROUND(x, 1)", "0.1"),
        ("ROUND(x, -1)", "0"),
        ("x / 2", 0.05),
        ("x + 0.5", 0.6),
        ("x = 0.1", True),
        ("CAST(x AS INT)", 0),
        ("CAST(x * x AS VARCHAR)", "'0.0100'"),
        ("CAST(x - x AS VARCHAR)", "'0.00'"),
        ("CAST(-(x - x) AS VARCHAR)", "'0.00'"),
        ("GREATEST(x, 1)", "1"),
        ("x IN (CAST('0.1' AS DECIMAL(3, 1)))", True),
        ("SIGN(-x)", -1),
    ],
)
def test_decimals_are_exact(expression: str, expected: Any) -> None:
    found = evaluated(expression, MONEY, Decimal("0.10"))
    if isinstance(expected, str):
        expected = expected.strip("'") if expected.startswith("'") else Decimal(expected)
    assert type(found) is type(expected) and found == expected


def test_decimals_have_38_digits_and_more_is_null() -> None:
    kind, top = pa.decimal128(38, 0), Decimal(10**38 - 1)
    assert evaluated("x", kind, top) == top
    assert evaluated("-x", kind, top) == top.copy_negate()
    assert evaluated("x - 1", kind, top) == Decimal(10**38 - 2)
    assert evaluated("x + 1", kind, top) is None
    assert evaluated("x * x", kind, top) is None
    stream, table = column(kind, top, Decimal(1))
    assert brute_force_snapshots("SELECT SUM(x) FROM s [NOW]", [stream], {"s": table}).at(1) == [(None,)]


def test_scales_may_be_negative_or_all_the_digits() -> None:
    tens, parts = pa.decimal128(5, -1), pa.decimal128(38, 38)
    assert evaluated("x", tens, Decimal(12350)) == 12350
    assert evaluated("x + 1", tens, Decimal(12350)) == 12351
    assert evaluated("CAST(x AS VARCHAR)", tens, Decimal(12350)) == "12350"
    assert evaluated("ROUND(x, -2)", tens, Decimal(12350)) == 12400
    assert evaluated("ROUND(x, 1)", parts, Decimal("0." + "5" * 38)) == Decimal("0.6")
    stream, table = column(tens, Decimal(10), Decimal(20), Decimal(10))
    text = "SELECT SUM(x), SUM(DISTINCT x), COUNT(DISTINCT x), AVG(x) FROM s [NOW]"
    assert brute_force_snapshots(text, [stream], {"s": table}).at(1) == [(40, 30, 2, 40 / 3)]


def test_decimals_of_256_bits_are_carried_along() -> None:
    wide = Decimal("-1" + "0" * 50)
    assert evaluated("x", pa.decimal256(60, 3), wide) == wide
    assert evaluated("ABS(x)", pa.decimal256(60, 3), wide) is None
    assert evaluated("x < 0", pa.decimal256(60, 3), wide) is True


# Text and binary

TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
TEXTS += [pa.run_end_encoded(pa.int32(), pa.string())]


@pytest.mark.parametrize("kind", TEXTS, ids=str)
def test_text_of_every_layout(kind: pa.DataType) -> None:
    values = ("", "a", "😀", "a\0b", "é", "ﬀ", None)
    assert selected("x = 'a\0b' OR x LIKE '😀'", kind, *values) == [2, 3]
    assert selected("x > 'é'", kind, *values) == [2, 5]
    assert selected("LENGTH(x) = 3", kind, *values) == [3]
    assert selected("x IS NULL", kind, *values) == [6]
    stream, table = column(kind, *values)
    found = brute_force_snapshots("SELECT MIN(x), MAX(x), COUNT(DISTINCT x) FROM s [NOW]", [stream], {"s": table})
    assert found.at(1) == [("", "😀", 6)]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
def test_binary_of_every_layout(kind: pa.DataType) -> None:
    stream, table = column(kind, b"", b"\0", b"\xff\0", b"\xff", b"\0", None)
    found = brute_force_snapshots("SELECT MIN(x), MAX(x), COUNT(DISTINCT x) FROM s [NOW]", [stream], {"s": table})
    assert found.at(1) == [(b"", b"\xff\0", 4)]


def test_binary_of_fixed_size_meets_other_binary() -> None:
    assert evaluated("x = CAST(x AS BLOB)", pa.binary(2), b"ab") is True
    assert evaluated("x", pa.binary(2), b"a\0") == b"a\0"


# Times


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_parts_of_timestamps_are_those_of_utc(unit: str, zone: str | None) -> None:
    kind = pa.timestamp(unit, zone)
    moment = datetime.datetime(1969, 12, 31, 23, 59, 58, tzinfo=UTC if zone else None)
    parts = "YEAR(x) * 10000000000 + MONTH(x) * 100000000 + DAY(x) * 1000000 + HOUR(x) * 10000 + MINUTE(x) * 100"
    assert evaluated(f"{parts} + SECOND(x)", kind, moment) == 19691231235958
    assert evaluated("x", kind, moment) == moment
    assert evaluated("CAST(x AS VARCHAR)", kind, moment) == "1969-12-31 23:59:58" + "+00" * bool(zone)


def test_nanoseconds_are_kept() -> None:
    kind = pa.timestamp("ns")
    assert selected("x = TIMESTAMP '1970-01-01 00:00:00.000001'", kind, 999, 1_000, 1_001) == [1]
    assert evaluated("CAST(x AS VARCHAR)", kind, 1_001) == "1970-01-01 00:00:00.000001001"
    stream, table = column(kind, 1_000, 1_001, 1_001)
    series = brute_force_snapshots("SELECT DISTINCT x FROM s [NOW]", [stream], {"s": table})
    assert sorted(series.table.column("x").cast(pa.int64()).to_pylist()) == [1_000, 1_001]


def test_instants_and_wall_clock_times_are_not_compared() -> None:
    with pytest.raises(BruteForceError):
        evaluated("x = TIMESTAMP '2020-01-01 00:00:00'", pa.timestamp("us", "UTC"), 0)
    assert evaluated("x = '1970-01-01 01:00:00+01:00'", pa.timestamp("us", "Asia/Tokyo"), 0) is True


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()], ids=str)
def test_dates(kind: pa.DataType) -> None:
    leap = datetime.date(2024, 2, 29)
    assert evaluated("x", kind, leap) == leap
    assert selected("x >= '2024-02-29'", kind, datetime.date(1969, 12, 31), leap, None) == [1]
    assert evaluated("x - DATE '2024-02-01'", kind, leap) == datetime.timedelta(days=28)


def test_durations_and_times_of_day() -> None:
    minute = datetime.timedelta(minutes=1)
    assert evaluated("x + INTERVAL '1' SECOND", pa.duration("s"), minute) == datetime.timedelta(seconds=61)
    assert selected("x < INTERVAL '1' HOUR", pa.duration("ns"), minute, 60 * minute) == [0]
    for kind in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")):
        stream, table = column(kind, datetime.time(1, 2, 3), datetime.time(0, 0), None)
        found = brute_force_snapshots("SELECT MAX(x), MIN(x) FROM s [NOW]", [stream], {"s": table})
        assert found.at(1) == [(datetime.time(1, 2, 3), datetime.time(0, 0))]


def test_timestamps_out_of_range_are_null() -> None:
    assert evaluated("x + INTERVAL '1' MICROSECOND", pa.timestamp("us"), 2**63 - 1) is None
    assert evaluated("YEAR(x)", pa.timestamp("us"), 2**63 - 1) == 294247


# Nested and boolean


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.list_(pa.int32()), [1, None]),
        (pa.struct({"x": pa.int64(), "y": pa.string()}), {"x": None, "y": "a"}),
        (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    ],
    ids=str,
)
def test_nested_values_are_carried_along_and_not_compared(kind: pa.DataType, value: Any) -> None:
    assert evaluated("x", kind, value) == value
    assert evaluated("CASE WHEN n = 0 THEN x END", kind, value) == value
    assert evaluated("x IS NULL", kind, None) is True
    stream, table = column(kind, value, None)
    found = brute_force_snapshots("SELECT COUNT(x), COUNT(*) FROM s [NOW]", [stream], {"s": table})
    assert found.at(1) == [(1, 2)]
    both = brute_force_snapshots("SELECT x FROM s [NOW] UNION ALL SELECT x FROM s [NOW]", [stream], {"s": table})
    assert bag(both.at(1)) == bag([(value,), (value,), (None,), (None,)])
    for text in (
        "SELECT DISTINCT x FROM s [NOW]",
        "SELECT n FROM s [NOW] WHERE x = x",
        "SELECT 1 FROM s [NOW] GROUP BY x",
    ):
        with pytest.raises(BruteForceError):
            brute_force_snapshots(text, [stream], {"s": table})


def test_booleans_are_conditions_and_values() -> None:
    assert selected("x", pa.bool_(), True, False, None) == [0]
    assert selected("NOT x", pa.bool_(), True, False, None) == [1]
    assert selected("x > FALSE", pa.bool_(), True, False, None) == [0]
    stream, table = column(pa.bool_(), True, False, None)
    assert brute_force_snapshots("SELECT MIN(x), MAX(x) FROM s [NOW]", [stream], {"s": table}).at(1) == [(False, True)]
