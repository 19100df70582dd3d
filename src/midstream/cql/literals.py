"""Literals and type names: from their text to values and pyarrow types."""

from __future__ import annotations

import datetime
import math
import re
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
from sqlglot import exp

from midstream.algebra.durations import UNIT_MICROSECONDS
from midstream.algebra.expressions import Literal
from midstream.algebra.functions import read_timestamp
from midstream.cql.dialect import Length, start
from midstream.errors import NotSupported, ParseError, TypeMismatch, did_you_mean

__all__ = ["arrow_type", "date", "duration", "negated", "number", "timestamp", "unit_microseconds"]

_INT64 = range(-(2**63), 2**63)
_MAX_DIGITS = 76

_TYPES = {
    exp.DType.BOOLEAN: pa.bool_(),
    exp.DType.TINYINT: pa.int8(),
    exp.DType.SMALLINT: pa.int16(),
    exp.DType.INT: pa.int32(),
    exp.DType.BIGINT: pa.int64(),
    exp.DType.FLOAT: pa.float32(),
    exp.DType.DOUBLE: pa.float64(),
    exp.DType.TEXT: pa.string(),
    exp.DType.VARBINARY: pa.binary(),
    exp.DType.DATE: pa.date32(),
    exp.DType.TIMESTAMP: pa.timestamp("us"),
    exp.DType.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
}


def number(text: str) -> Literal:
    """A number: whole ones are int64, or decimals where that is too small; others are float64.

    >>> number("9223372036854775808").type
    Decimal128Type(decimal128(19, 0))
    """
    if text.isdecimal():
        # One digit too many is enough to be refused; Python does not read thousands of them.
        return _whole(int(text.lstrip("0")[: _MAX_DIGITS + 1] or 0))
    try:
        value = float(text)
    except ValueError:
        raise ParseError(f"cannot read the number {text}") from None
    if math.isinf(value):
        raise TypeMismatch(f"the number {text} is too large for DOUBLE")
    return Literal(value, pa.float64())


def negated(literal: Literal) -> Literal | None:
    """A constant with the other sign; here, because the smallest BIGINT has no positive counterpart."""
    value = literal.value
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | datetime.timedelta):
        return None
    return _whole(-int(value)) if isinstance(value, int | Decimal) else Literal(-value, literal.type)


def _whole(value: int) -> Literal:
    if value in _INT64:
        return Literal(value, pa.int64())
    digits = len(str(abs(value)))
    if digits > _MAX_DIGITS:
        raise TypeMismatch(f"the number has more than {_MAX_DIGITS} digits")
    return Literal(Decimal(value), pa.decimal128(digits, 0) if digits <= 38 else pa.decimal256(digits, 0))


def date(text: str) -> Literal:
    try:
        return Literal(datetime.date.fromisoformat(text.strip()), pa.date32())
    except ValueError:
        raise TypeMismatch(f"cannot read '{text}' as a date", hint="Write DATE 'YYYY-MM-DD'.") from None


def timestamp(text: str) -> Literal:
    """A wall clock time, or an instant where the text has an offset from UTC."""
    try:
        moment = read_timestamp(text)
    except ValueError:
        hint = "Write TIMESTAMP 'YYYY-MM-DD HH:MM:SS', with +00:00 behind it for an instant."
        raise TypeMismatch(f"cannot read '{text}' as a timestamp", hint=hint) from None
    return Literal(moment, pa.timestamp("us") if moment.tzinfo is None else pa.timestamp("us", "UTC"))


def duration(node: Length) -> Literal:
    """INTERVAL '5' MINUTE, INTERVAL 5 MINUTES or INTERVAL '5 minutes'."""
    text, unit = node.amount.strip(), node.unit
    name = None if unit is None else str(unit.this)
    place = start(node.this if unit is None else unit)
    if name is None:
        matched = re.fullmatch(r"(\S+?)\s*([a-zA-Z]+)", text)
        if matched is None:
            raise ParseError("an interval needs a unit", hint="Write INTERVAL '5' MINUTE.")
        text, name = matched[1], matched[2].upper()
    microseconds = unit_microseconds(name, place)
    if not re.fullmatch(r"[-+]?(\d{1,30}(\.\d{0,30})?|\.\d{1,30})", text, re.ASCII):
        raise ParseError(f"cannot read '{text}' as the length of an interval")
    ticks = Fraction(text) * microseconds
    if ticks.denominator != 1:
        raise TypeMismatch("an interval is a whole number of microseconds")
    try:
        return Literal(datetime.timedelta(microseconds=int(ticks)), pa.duration("us"))
    except OverflowError:
        raise TypeMismatch(f"the interval of {text} {name} is too long") from None


def unit_microseconds(name: str, position: int) -> int:
    """How long the unit is; months and years differ in length and are refused."""
    singular = name.removesuffix("S")
    if singular in UNIT_MICROSECONDS:
        return UNIT_MICROSECONDS[singular]
    if singular in ("MONTH", "QUARTER", "YEAR"):
        error: NotSupported | ParseError = NotSupported(
            f"the unit {name} is not supported",
            detail="Months and years differ in length.",
            hint="Give the length in DAYS or WEEKS.",
        )
    else:
        error = ParseError(
            f'"{name}" is not a unit of time',
            detail=f"The units are {', '.join(f'{unit}S' for unit in UNIT_MICROSECONDS)}.",
            hint=did_you_mean(name, [f"{unit}S" for unit in UNIT_MICROSECONDS]),
        )
    error.position = position
    raise error


def arrow_type(node: exp.DataType) -> pa.DataType:
    """The pyarrow type of a type in the query text."""
    if node.this in _TYPES:
        return _TYPES[node.this]
    assert node.this == exp.DType.DECIMAL
    digits = [str(parameter.this) for parameter in node.expressions]
    if not digits:
        raise TypeMismatch("DECIMAL needs its digits", hint="Write DECIMAL(precision, scale), as in DECIMAL(10, 2).")
    if not all(text.isdecimal() for text in digits):
        raise TypeMismatch("the digits of a DECIMAL are whole numbers")
    precision, scale = int(digits[0]), int(digits[1]) if len(digits) > 1 else 0
    if not (1 <= precision <= 38 and scale <= precision):
        raise TypeMismatch(
            f"DECIMAL({precision}, {scale}) does not exist",
            detail="The precision goes from 1 to 38, the scale from 0 to the precision.",
        )
    return pa.decimal128(precision, scale)
