"""CAST: how a value of one type becomes one of another, or NULL where it cannot.

The same functions bring values to the common type at which they meet.

>>> from midstream.testing.brute_force.value_types import DOUBLE, INTEGER, TEXT
>>> cast_between(TEXT, INTEGER)("12"), cast_between(TEXT, INTEGER)("twelve"), cast_between(INTEGER, DOUBLE)(2**53 + 1)
(12, None, 9007199254740992.0)
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any, TypeAlias

from midstream.testing.brute_force import calendar
from midstream.testing.brute_force.value_types import EXACT, NANOSECONDS, Type, fits

__all__ = ["Conversion", "cast_between", "in_unit", "round_half_away", "single"]

Conversion: TypeAlias = Callable[[Any], Any]
"""A function of a value that is not NULL; None where it has no value."""

_NUMBER = re.compile(r"[ \t\n\r\v\f]*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[ \t\n\r\v\f]*", re.ASCII)
_NOT_FINITE = re.compile(r"\s*([+-]?(?:inf|infinity|nan))\s*", re.ASCII | re.IGNORECASE)
_TRUTHS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}
_SINGLE = struct.Struct("<f")
_HALF = struct.Struct("<e")


@cache
def cast_between(source: Type, target: Type) -> Conversion | None:
    """The conversion from one type to the other; None if there is none."""
    if source.kind == "null" or source == target:
        return _same
    if source.kind == target.kind and source.kind in ("text", "binary", "boolean", "date"):
        return _same
    make = {
        "integer": _to_integer,
        "unsigned": _to_integer,
        "float": _to_float,
        "decimal": _to_decimal,
        "text": _to_text,
        "boolean": _to_boolean,
    }.get(target.kind)
    if make is not None and (source.is_number or source.kind in ("text", "boolean") or target.kind == "text"):
        return make(source, target)
    if target.is_moment and (source.is_moment or source.kind == "text"):
        return _to_moment(source, target)
    if source.kind == target.kind and target.kind in ("duration", "time"):
        return lambda value: in_unit(value, target.unit)
    return None


def _same(value: Any) -> Any:
    return value


def round_half_away(value: Decimal, scale: int) -> Decimal:
    """The number with so many decimals; halves are taken away from zero.

    >>> round_half_away(Decimal("-2.5"), 0), round_half_away(Decimal("1250"), -2)
    (Decimal('-3'), Decimal('1.3E+3'))
    """
    return EXACT.quantize(value, Decimal((0, (1,), -scale)))


def in_unit(nanoseconds: int, unit: str) -> int | None:
    """The time rounded to the unit, halves away from zero; None if int64 does not hold it in that unit.

    >>> in_unit(1_500, "us"), in_unit(-1_500, "us"), in_unit(2**63, "ns")
    (2000, -2000, None)
    """
    step = NANOSECONDS[unit]
    count = (2 * abs(nanoseconds) + step) // (2 * step)
    count = -count if nanoseconds < 0 else count
    return count * step if -(2**63) <= count < 2**63 else None


def single(value: float, bits: int) -> float | None:
    """The nearest float of this many bits; None if a finite number is too large for it."""
    if bits == 64 or not math.isfinite(value):
        return value
    layout = _SINGLE if bits == 32 else _HALF
    try:
        return float(layout.unpack(layout.pack(value))[0])
    except OverflowError:
        return None


def _decimal_of_text(text: str) -> Decimal | None:
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    mantissa, _, exponent = match[1].lower().partition("e")
    if len(exponent) < 5:
        return Decimal(match[1])
    # Beyond the exponents that Decimal knows only the direction matters.
    number = Decimal(mantissa)
    return EXACT.scaleb(number, -400 if exponent.startswith("-") else 400) if number else Decimal(0)


def _to_integer(source: Type, target: Type) -> Conversion:
    least, most = (
        (0, 2**64 - 1) if target.kind == "unsigned" else (-(2 ** (target.bits - 1)), 2 ** (target.bits - 1) - 1)
    )

    def convert(value: Any) -> int | None:
        if source.kind == "float":
            if not math.isfinite(value):
                return None
            number = round(value)
        elif source.kind in ("decimal", "text"):
            exact = _decimal_of_text(value) if source.kind == "text" else value
            if exact is None or not fits(exact, 21, 0):
                return None
            number = int(round_half_away(exact, 0))
        else:
            number = int(value)
        return number if least <= number <= most else None

    return convert


def _to_float(source: Type, target: Type) -> Conversion:
    def convert(value: Any) -> float | None:
        if source.kind == "text":
            match = _NUMBER.fullmatch(value) or _NOT_FINITE.fullmatch(value)
            if match is None:
                return None
            number = float(match[1])
            rounded = single(number, target.bits)
            return math.copysign(math.inf, number) if rounded is None else rounded
        return single(float(value), target.bits)

    return convert


def _to_decimal(source: Type, target: Type) -> Conversion:
    def convert(value: Any) -> Decimal | None:
        if source.kind == "float":
            if not math.isfinite(value):
                return None
            # The decimals are counted in doubles, so that 2.675 becomes 2.68 although the double lies below it.
            scaled = value * 10.0**target.scale
            if not math.isfinite(scaled):
                return None
            number = EXACT.scaleb(round_half_away(Decimal(scaled), 0), -target.scale)
        else:
            exact = _decimal_of_text(value) if source.kind == "text" else Decimal(value)
            if exact is None or not fits(exact, 80, 0):
                return None
            number = round_half_away(exact, target.scale)
        # The sum with 0 makes 0 of -0, which no decimal column knows.
        return EXACT.add(number, Decimal(0)) if fits(number, target.precision, target.scale) else None

    return convert


def _to_text(source: Type, target: Type) -> Conversion | None:
    match source.kind:
        case "integer" | "unsigned":
            return str
        case "boolean":
            return lambda value: "true" if value else "false"
        case "float":
            return repr if source.bits == 64 else lambda value: _short_text(value, source.bits)
        case "decimal":
            return lambda value: f"{round_half_away(value, max(source.scale, 0)):f}"
        case "date":
            return calendar.date_text
        case "timestamp":
            return lambda value: calendar.timestamp_text(value, source.zoned)
    return None


def _short_text(value: float, bits: int) -> str:
    """The fewest digits that name this float among those of its size."""
    if not math.isfinite(value):
        return repr(value)
    shorter = (float(f"{value:.{digits}g}") for digits in range(1, 18))
    return repr(next(number for number in shorter if single(number, bits) == value))


def _to_boolean(source: Type, target: Type) -> Conversion:
    if source.kind == "text":
        return lambda value: _TRUTHS.get(value.lower())
    return bool


def _to_moment(source: Type, target: Type) -> Conversion:
    def of_nanoseconds(moment: int) -> int | None:
        if target.kind == "timestamp":
            return in_unit(moment, target.unit)
        days = moment // calendar.DAY
        return days if -(2**31) <= days < 2**31 else None

    if source.kind == "date":
        return lambda value: of_nanoseconds(value * calendar.DAY)
    if source.kind == "timestamp":
        return of_nanoseconds

    def of_text(text: str) -> int | None:
        read = calendar.read_moment(text)
        if read is None:
            return None
        clock, offset = read
        clock -= offset if target.zoned else 0
        if target.kind == "timestamp" and target.unit == "us":
            clock -= clock % NANOSECONDS["us"]
        return of_nanoseconds(clock)

    return of_text
