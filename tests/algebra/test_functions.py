"""Which arguments functions take and what they give."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from midstream.algebra.aggregates import aggregate_call
from midstream.algebra.expressions import Cast, Column, Literal
from midstream.algebra.functions import FUNCTIONS, call, cast
from midstream.errors import MidstreamError, TypeMismatch, UnknownFunction


def column(data_type: pa.DataType, name: str = "c") -> Column:
    return Column("", name, data_type)


INT32, INT64, UINT64 = column(pa.int32()), column(pa.int64()), column(pa.uint64())
DOUBLE, MONEY, TEXT = column(pa.float64()), column(pa.decimal128(10, 2)), column(pa.string())
DAY, STAMP = column(pa.date32()), column(pa.timestamp("us"))
INSTANT = column(pa.timestamp("us", "UTC"), "i")
LIST = column(pa.list_(pa.int64()))


@pytest.mark.parametrize(
    ("function", "arguments", "result"),
    [
        ("+", (INT32, INT32), pa.int64()),
        ("*", (INT64, DOUBLE), pa.float64()),
        ("+", (MONEY, INT32), pa.decimal128(13, 2)),
        ("*", (MONEY, MONEY), pa.decimal128(20, 4)),
        ("%", (INT32, INT64), pa.int64()),
        ("/", (INT32, INT32), pa.float64()),
        ("/", (MONEY, INT32), pa.float64()),
        ("-", (STAMP, STAMP), pa.duration("us")),
        ("+", (STAMP, column(pa.duration("s"))), pa.timestamp("us")),
        ("=", (INT32, DOUBLE), pa.bool_()),
        ("coalesce", (INT32, DOUBLE), pa.float64()),
        ("greatest", (INT32, INT64), pa.int64()),
        ("nullif", (TEXT, TEXT), pa.string()),
        ("abs", (INT32,), pa.int64()),
        ("round", (MONEY, Literal(1, pa.int64())), pa.decimal128(10, 1)),
        ("floor", (MONEY,), pa.decimal128(9, 0)),
        ("sqrt", (INT32,), pa.float64()),
        ("length", (TEXT,), pa.int64()),
        ("substring", (TEXT, INT64, INT64), pa.string()),
        ("concat", (TEXT, TEXT, TEXT), pa.string()),
        ("year", (DAY,), pa.int64()),
        ("hour", (STAMP,), pa.int64()),
    ],
)
def test_function_gives_its_type(function: str, arguments: tuple[Column, ...], result: pa.DataType) -> None:
    assert call(function, *arguments).type == result


def test_arguments_are_cast_to_what_the_function_takes() -> None:
    assert call("=", INT32, DOUBLE).operands == (Cast(INT32, pa.float64()), Cast(DOUBLE, pa.float64()).argument)
    assert call("=", INT32, Literal(3, pa.int64())).text == "CAST(c AS int64) = 3"


def test_literals_are_converted_at_once_where_that_is_exact() -> None:
    assert call("<", DOUBLE, Literal(3, pa.int64())).operands[1] == Literal(3.0, pa.float64())
    big = Literal(2**53 + 1, pa.int64())
    assert call("<", DOUBLE, big).operands[1] == Cast(big, pa.float64())


def test_texts_meeting_dates_and_timestamps_are_read_as_such() -> None:
    assert call("<", DAY, Literal("2020-01-02", pa.string())).operands[1] == Literal(
        datetime.date(2020, 1, 2), pa.date32()
    )
    with_zone = call("<", INSTANT, Literal("2020-01-02 03:04:05", pa.string())).operands[1]
    assert with_zone == Literal(datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), INSTANT.type)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        ("=", (INT32, TEXT),
         "[M1007] cannot compare c (int32) with c (string)\n  hint: Cast one side to the other's type."),
        ("coalesce", (INT32, TEXT),
         "[M1007] cannot combine c (int32) with c (string)\n  hint: Cast one side to the other's type."),
        ("<", (STAMP, INSTANT),
         "[M1007] cannot compare c (timestamp[us]) with i (timestamp[us, tz=UTC])\n"
         "  detail: One is an instant, the other a wall clock time without a time zone.\n"
         "  hint: Cast one side to the other's type."),
        ("<", (STAMP, Literal("yesterday", pa.string())),
         "[M1007] cannot read 'yesterday' as a timestamp\n"
         "  hint: Write it as 'YYYY-MM-DD' or 'YYYY-MM-DD HH:MM:SS'."),
        ("=", (LIST, LIST), "[M1007] cannot compare c (list<item: int64>) with c (list<item: int64>)\n"
         "  hint: Cast one side to the other's type."),
        ("and", (INT32, INT32), "[M1007] AND takes conditions, not c (int32), c (int32)"),
        ("+", (TEXT, INT32), "[M1007] + takes numbers, not c (string), c (int32)"),
        ("lower", (INT32,), "[M1007] LOWER takes text, not c (int32)"),
        ("like", (TEXT, TEXT), "[M1007] LIKE takes text and a constant pattern, not c (string), c (string)"),
        ("hour", (DAY,), "[M1007] HOUR takes a timestamp, not c (date32[day])"),
        ("abs", (INT32, INT32), "[M1007] function ABS takes 1 argument, not 2"),
        ("substring", (TEXT,), "[M1007] function SUBSTRING takes 2 to 3 arguments, not 1"),
        ("coalesce", (), "[M1007] function COALESCE takes at least 1 argument, not 0"),
        ("roudn", (INT32,), "[M1006] function ROUDN does not exist\n  hint: Did you mean \"round\"?"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(function: str, arguments: tuple[Column, ...], message: str) -> None:
    with pytest.raises((TypeMismatch, UnknownFunction)) as raised:
        call(function, *arguments)
    assert str(raised.value) == message


def test_cast_of_types_without_counterparts_is_refused() -> None:
    assert cast(INT64, pa.int64()) is INT64
    assert cast(TEXT, pa.date32()).type == pa.date32()
    with pytest.raises(TypeMismatch) as raised:
        cast(DAY, pa.int64())
    assert str(raised.value) == "[M1007] cannot cast c (date32[day]) to int64"


def test_every_function_refuses_too_many_arguments_or_takes_any_number() -> None:
    for name, (low, high, _) in FUNCTIONS.items():
        assert low <= high, name
        if high < 10:
            with pytest.raises(MidstreamError, match=r"arguments?, not"):
                call(name, *[INT32] * (high + 1))


@pytest.mark.parametrize(
    ("function", "argument", "result"),
    [
        ("count", None, pa.int64()),
        ("count", LIST, pa.int64()),
        ("sum", INT32, pa.int64()),
        ("sum", UINT64, pa.decimal128(38, 0)),
        ("sum", MONEY, pa.decimal128(38, 2)),
        ("sum", DOUBLE, pa.float64()),
        ("avg", INT32, pa.float64()),
        ("min", TEXT, pa.string()),
        ("max", STAMP, pa.timestamp("us")),
    ],
)
def test_aggregate_gives_its_type(function: str, argument: Column | None, result: pa.DataType) -> None:
    assert aggregate_call(function, argument).type == result


@pytest.mark.parametrize(
    ("function", "argument", "message"),
    [
        ("sum", TEXT, "[M1007] SUM takes numbers, not c (string)"),
        ("avg", DAY, "[M1007] AVG takes numbers, not c (date32[day])"),
        ("min", LIST, "[M1007] MIN takes comparable values, not c (list<item: int64>)"),
    ],
)
def test_aggregate_of_a_wrong_type_is_refused(function: str, argument: Column, message: str) -> None:
    with pytest.raises(TypeMismatch) as raised:
        aggregate_call(function, argument)
    assert str(raised.value) == message


def test_distinct_changes_nothing_for_extremes() -> None:
    assert aggregate_call("min", INT32, distinct=True) == aggregate_call("min", INT32)
    assert str(aggregate_call("count", INT32, distinct=True)) == "COUNT(DISTINCT c)"
    with pytest.raises(TypeMismatch, match="cannot count different values of c"):
        aggregate_call("count", LIST, distinct=True)


def test_arithmetic_of_integers_gives_int64_and_with_uint64_a_decimal() -> None:
    assert call("+", INT32, INT64).type == pa.int64()
    assert call("*", UINT64, UINT64).type == pa.int64()
    assert pa.types.is_decimal(call("+", UINT64, INT32).type)
    assert pa.types.is_decimal(call("-", UINT64, Literal(1, pa.int64())).type)
