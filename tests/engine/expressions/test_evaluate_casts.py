"""Casts between numbers, truth values, text and binary."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from midstream.algebra.expressions import Cast, Column
from midstream.engine.expressions.evaluate import evaluate
from tests.engine.expressions.evaluated import run_cast, same

NAN, INF = float("nan"), float("inf")
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
EDGES = [v for bits in (7, 8, 15, 16, 31, 32, 63) for v in (-(2**bits) - 1, -(2**bits), 2**bits - 1, 2**bits)] + [
    0,
    -1,
    1,
]


def decimals(values: list[object], precision: int, scale: int) -> pa.Array:
    kind = pa.decimal128 if precision <= 38 else pa.decimal256
    return pa.array([None if v is None else Decimal(str(v)) for v in values], kind(precision, scale))


def bounds(data_type: pa.DataType) -> tuple[int, int]:
    limits = np.iinfo(data_type.to_pandas_dtype())
    return int(limits.min), int(limits.max)


@pytest.mark.parametrize("target", INTEGERS, ids=str)
@pytest.mark.parametrize("source", INTEGERS, ids=str)
def test_integers_become_integers_or_null(source: pa.DataType, target: pa.DataType) -> None:
    (low, high), (least, most) = bounds(source), bounds(target)
    values = [v for v in EDGES if low <= v <= high]
    expected = [v if least <= v <= most else None for v in values]
    assert run_cast(pa.array([*values, None], source), target) == [*expected, None]


@pytest.mark.parametrize("target", INTEGERS, ids=str)
def test_decimals_and_text_become_integers_or_null(target: pa.DataType) -> None:
    least, most = bounds(target)
    values = [*EDGES, 10**20, least, most, least - 1, most + 1]
    expected = [v if least <= v <= most else None for v in values]
    assert run_cast(decimals([*values, None], 25, 3), target) == [*expected, None]
    assert run_cast(decimals([*values, None], 50, 3), target) == [*expected, None]
    assert run_cast(pa.array([*map(str, values), None]), target) == [*expected, None]


@pytest.mark.parametrize("target", INTEGERS, ids=str)
@pytest.mark.parametrize("source", [pa.float64(), pa.float32(), pa.float16()], ids=str)
def test_floats_round_half_to_even_as_integers(source: pa.DataType, target: pa.DataType) -> None:
    least, most = bounds(target)
    values = [0.5, 1.5, 2.5, -0.5, -1.5, 0.4, 254.5, 255.5, NAN, INF, -INF, 2048.0, -2048.0]
    values += [] if source == pa.float16() else [2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 2.0**64, 1e30]
    expected = [None if v != v or v in (INF, -INF) or not least <= round(v) <= most else round(v) for v in values]
    column = pa.array(np.array(values, source.to_pandas_dtype()))
    assert run_cast(column, target) == expected


def test_decimals_round_half_away_from_zero_as_integers() -> None:
    assert run_cast(decimals(["2.5", "3.5", "-2.5", "2.49", None], 5, 2), pa.int64()) == [3, 4, -3, 2, None]
    assert run_cast(decimals(["9223372036854775807.4", "9223372036854775807.5"], 38, 10), pa.int64()) == [
        2**63 - 1,
        None,
    ]


def test_integers_become_the_nearest_float() -> None:
    assert run_cast(pa.array([2**53 + 1, 2**63 - 1, None]), pa.float64()) == [2.0**53, 2.0**63, None]
    assert run_cast(pa.array([2**64 - 1], pa.uint64()), pa.float64()) == [2.0**64]
    assert run_cast(pa.array([16777217]), pa.float32()) == [16777216.0]
    assert run_cast(pa.array([65504, 70000]), pa.float16()) == [65504.0, None]


def test_floats_become_smaller_floats_or_null() -> None:
    column = pa.array([0.1, 1e39, INF, NAN, 1e-50, None])
    expected = [float(np.float32(0.1)), None, INF, NAN, 0.0, None]
    assert same(run_cast(column, pa.float32()), expected)
    assert same(run_cast(column, pa.float16()), [float(np.float16(0.1)), None, INF, NAN, 0.0, None])
    assert run_cast(pa.array(np.array([0.1], np.float32)), pa.float64()) == [float(np.float32(0.1))]


def test_decimals_become_the_nearest_double() -> None:
    texts = ["0.3", "99999.99", "-123456789012.12345678", "0.1", "12345678901234567.89", "9007199254740993", "0"]
    assert run_cast(decimals([*texts, None], 30, 8), pa.float64()) == [*map(float, texts), None]
    assert run_cast(decimals(["0.1", "0.7"], 38, 30), pa.float64()) == [0.1, 0.7]
    assert run_cast(decimals([10**60 + 1], 70, 5), pa.float64()) == [1e60]


def test_numbers_become_decimals_or_null() -> None:
    assert run_cast(pa.array([999, 1000, -1000, None]), pa.decimal128(5, 2)) == [Decimal(999), None, None, None]
    assert run_cast(pa.array([2**64 - 1], pa.uint64()), pa.decimal128(20, 0)) == [Decimal(2**64 - 1)]
    assert run_cast(pa.array([2.675, 0.125, -0.125, NAN, INF, 1e30, None]), pa.decimal128(5, 2)) == [
        Decimal("2.68"), Decimal("0.13"), Decimal("-0.13"), None, None, None, None,
    ]  # fmt: skip
    assert run_cast(pa.array([1e30]), pa.decimal128(38, 2)) == [Decimal("1000000000000000053661622043934.72")]
    assert run_cast(pa.array([1e36]), pa.decimal128(38, 2)) == [None]
    assert run_cast(pa.array([3, 10**6], pa.int64()), pa.decimal32(5, 2)) == [Decimal(3), None]


def test_decimals_change_scale_rounding_half_away_from_zero() -> None:
    column = decimals(["0.125", "-0.125", "0.115", "999.995", None], 6, 3)
    assert run_cast(column, pa.decimal128(5, 2)) == [Decimal("0.13"), Decimal("-0.13"), Decimal("0.12"), None, None]
    assert run_cast(column, pa.decimal128(38, 38)) == [
        Decimal("0.125"),
        Decimal("-0.125"),
        Decimal("0.115"),
        None,
        None,
    ]
    assert run_cast(column, pa.decimal256(60, 30)) == column.to_pylist()
    wide = decimals([10**50, 5, None], 60, 1)
    assert run_cast(wide, pa.decimal128(38, 3)) == [None, Decimal(5), None]
    assert run_cast(decimals([10**38 - 1, 1], 38, 0), pa.decimal128(38, 1)) == [None, Decimal(1)]
    assert run_cast(decimals([12345, -12355], 5, 0), pa.decimal128(5, -1)) == [Decimal(12350), Decimal(-12360)]


def test_truth_values_are_one_and_zero() -> None:
    column = pa.array([True, False, None])
    for data_type in (*INTEGERS, pa.float32(), pa.float64(), pa.decimal128(5, 2)):
        assert run_cast(column, data_type) == [1, 0, None]
    assert run_cast(column, pa.decimal128(2, 2)) == [None, 0, None]
    assert run_cast(column, pa.string()) == ["true", "false", None]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([2, 0, None]), [True, False, None]),
        (pa.array([0.5, -0.0, NAN]), [True, False, True]),
        (decimals(["0.1", "0", None], 3, 1), [True, False, None]),
    ],
)
def test_numbers_are_true_unless_zero(array: pa.Array, expected: list[bool]) -> None:
    expression = Cast(Column("", "x", array.type), pa.bool_())
    assert evaluate(expression, lambda column: array, len(array)).to_pylist() == expected


def test_truth_values_are_read_from_text() -> None:
    texts = ["true", "TRUE", "t", "Yes", "y", "1", "false", "F", "no", "N", "0", " true", "on", "2", "", None]
    assert run_cast(pa.array(texts), pa.bool_()) == [True] * 6 + [False] * 5 + [None] * 5
    assert run_cast(pa.array(["tRuE", "x"], pa.large_string()), pa.bool_()) == [True, None]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12), (" 12\n", 12), ("+5", 5), ("-5", -5), ("007", 7), ("1.5", 2), ("2.5", 3), ("-2.5", -3), (".5", 1),
        ("5.", 5), ("1e3", 1000), ("1E+2", 100), ("15e-1", 2), ("1.25e1", 13), ("124999e-4", 12), ("-0", 0),
        ("0.4999999999999999999999", 0), ("9223372036854775807", 2**63 - 1), ("9223372036854775808", None),
        ("9223372036854775807.4", 2**63 - 1), ("9223372036854775807.5", None), ("-9223372036854775808", -(2**63)),
        ("1e18", 10**18), ("1e19", None), ("1e999999999", None), ("1e-999999999", 0), ("0e999999999", 0),
        ("1e99999999999999999999", None), ("1e-99999999999999999999", 0),
        ("", None), ("-", None), (".", None), ("1e", None), ("12abc", None), ("--1", None), ("1 2", None),
        ("0x1F", None), ("1_000", None), ("nan", None), ("\u0661", None), ("\u00a01", None),
    ],
)  # fmt: skip
def test_whole_numbers_are_read_from_text(text: str, number: int | None) -> None:
    for data_type in (pa.string(), pa.large_string(), pa.string_view()):
        assert run_cast(pa.array([text, None, "7"], data_type), pa.int64()) == [number, None, 7]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.5", 1.5), (" 1.5 ", 1.5), ("1.", 1.0), (".5", 0.5), ("+1.5", 1.5), ("-.5e-2", -0.005), ("1e5", 1e5),
        ("1e400", INF), ("-1e400", -INF), ("1e-400", 0.0), ("inf", INF), ("-Infinity", -INF), ("+inf", INF),
        ("NaN", NAN),
        ("0.1", 0.1), ("9007199254740993", 2.0**53), ("123456789012345678901234567890", 1.2345678901234568e29),
        ("", None), (".", None), ("1e", None), ("1d", None), ("0x10", None), ("1_0.5", None), ("infin", None),
        ("--5", None),
    ],
)  # fmt: skip
def test_floats_are_read_from_text(text: str, number: float | None) -> None:
    for target in (pa.float64(), pa.float32(), pa.float16()):
        dtype = target.to_pandas_dtype()
        with np.errstate(over="ignore"):
            expected = None if number is None else float(dtype(number))
        assert same(run_cast(pa.array([text, None, "7"]), target), [expected, None, 7.0])


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.5", "1.5"), ("1.55", "1.6"), ("-1.55", "-1.6"), ("1.45", "1.5"), ("1e2", "100"), (" 1.5 ", "1.5"),
        ("123456", None), (".5", "0.5"), ("5.", "5"), ("+5", "5"), ("1e-2", "0"), ("6e-2", "0.1"), ("9999.95", None),
        ("9999.94", "9999.9"), ("-9999.9", "-9999.9"), ("00000000000000000001.0", "1"), ("1.04" + "9" * 60, "1"),
        ("", None), ("1e", None), ("nan", None), ("inf", None), ("1,5", None),
    ],
)  # fmt: skip
def test_decimals_are_read_from_text(text: str, number: str | None) -> None:
    expected = None if number is None else Decimal(number)
    for target in (pa.decimal128(5, 1), pa.decimal256(5, 1), pa.decimal32(5, 1)):
        assert run_cast(pa.array([text, None, "7"]), target) == [expected, None, Decimal(7)]


def test_decimals_without_whole_digits_are_read_from_text() -> None:
    texts = pa.array(["0.25", ".255", "1", "-0.5", "0", "00.5"])
    assert run_cast(texts, pa.decimal128(2, 2)) == [
        Decimal("0.25"), Decimal("0.26"), None, Decimal("-0.5"), Decimal(0), Decimal("0.5"),
    ]  # fmt: skip
    assert run_cast(pa.array(["9" * 38, "1" + "0" * 38]), pa.decimal128(38, 0)) == [Decimal("9" * 38), None]


def test_numbers_are_written_as_text() -> None:
    floats = [1.0, 1e20, 0.1, NAN, INF, -INF, -0.0, 1e15, 1e16, 1e-5, 0.0001, 5e-324, 1.2345678901234568e17]
    shown = ["1.0", "1e+20", "0.1", "nan", "inf", "-inf", "-0.0", "1000000000000000.0", "1e+16", "1e-05", "0.0001",
             "5e-324", "1.2345678901234568e+17"]  # fmt: skip
    assert run_cast(pa.array([*floats, None]), pa.string()) == [*shown, None]
    singles = pa.array(np.array([0.1, 1e10, 16777216, 1e-5, np.nan, 1e20], np.float32))
    assert run_cast(singles, pa.string()) == ["0.1", "10000000000.0", "16777216.0", "1e-05", "nan", "1e+20"]
    assert run_cast(pa.array([-(2**63), None, 5]), pa.string()) == ["-9223372036854775808", None, "5"]
    assert run_cast(pa.array([2**64 - 1], pa.uint64()), pa.string_view()) == ["18446744073709551615"]
    assert run_cast(pa.array([], pa.float64()), pa.string()) == []


def test_decimals_are_written_with_their_scale() -> None:
    texts = ["1.50", "-0.05", "0.00", "0.50", "-999.99", None]
    assert run_cast(decimals(texts, 5, 2), pa.string()) == texts
    assert run_cast(decimals(["0.00000001"], 20, 10), pa.string()) == ["0.0000000100"]
    assert run_cast(decimals(["-" + "9" * 38, "12"], 38, 0), pa.string()) == ["-" + "9" * 38, "12"]
    assert run_cast(decimals([f"-{10**50}.5"], 60, 3), pa.large_string()) == [f"-{10**50}.500"]
    assert run_cast(decimals(["0.5", "-0.25"], 2, 2), pa.string()) == ["0.50", "-0.25"]


def test_text_and_bytes_change_their_layout() -> None:
    for source in (pa.string(), pa.large_string(), pa.string_view()):
        for target in (pa.string(), pa.large_string(), pa.string_view()):
            assert run_cast(pa.array(["a", None, ""], source), target) == ["a", None, ""]
    for source in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)):
        values = [b"ab", None] if source == pa.binary(2) else [b"ab", None, b"abc", b""]
        for target in (pa.binary(), pa.large_binary(), pa.binary_view()):
            assert run_cast(pa.array(values, source), target) == values
        assert run_cast(pa.array(values, source), pa.binary(2)) == [b"ab", None, None, None][: len(values)]


def test_nothing_casts_to_nothing() -> None:
    for target in (pa.int64(), pa.string(), pa.decimal128(5, 2), pa.timestamp("us"), pa.bool_(), pa.binary(2)):
        assert run_cast(pa.nulls(2), target) == [None, None]
