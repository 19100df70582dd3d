"""Arithmetic and the functions of numbers, and sums and differences of timestamps and intervals.

Integers stay within int64, decimals within 38 digits; what does not fit is NULL. Floats follow IEEE 754, except that
division by zero is NULL.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from midstream.testing.brute_force.bound import Bound, Function, any_null_type, cast, null, strict
from midstream.testing.brute_force.casts import in_unit, round_half_away
from midstream.testing.brute_force.syntax import BruteForceError
from midstream.testing.brute_force.value_types import (
    DOUBLE,
    EXACT,
    INTEGER,
    Type,
    common_type,
    decimal_of,
    fits,
)

__all__ = ["ARITHMETIC"]

_DECIMAL_DIGITS = 38
"""How many digits a computed decimal has at most; what needs more is NULL."""


def _in_int64(number: int) -> int | None:
    return number if -(2**63) <= number < 2**63 else None


def _needs_numbers(name: str, *arguments: Bound) -> None:
    if not all(argument.type.is_number for argument in arguments):
        raise BruteForceError(f"{name} takes numbers, not {', '.join(argument.type.kind for argument in arguments)}")


def _decimals(scale: int, function: Callable[..., Decimal], *arguments: Bound) -> Bound:
    """A function of exact numbers whose result is a decimal of 38 digits with this scale."""

    def compute(*values: Any) -> Decimal | None:
        result = function(*map(Decimal, values))
        # The sum with 0 makes 0 of -0, which no decimal column knows.
        return EXACT.add(result, Decimal(0)) if fits(result, _DECIMAL_DIGITS, scale) else None

    return strict(Type("decimal", precision=_DECIMAL_DIGITS, scale=scale), compute, *arguments)


def _arithmetic(
    symbol: str,
    integers: Callable[[int, int], int | None],
    floats: Callable[[float, float], float | None],
    decimals: Callable[[Decimal, Decimal], Decimal],
) -> Callable[..., Bound]:
    def bind(left: Bound, right: Bound) -> Bound:
        if symbol in "+-" and not (left.type.is_number or right.type.is_number):
            return _with_times(symbol, left, right)
        if any_null_type((left, right)):
            return null(right.type if left.type.kind == "null" and right.type.is_number else left.type)
        _needs_numbers(symbol, left, right)
        if "float" in (left.type.kind, right.type.kind):
            return strict(DOUBLE, floats, cast(left, DOUBLE), cast(right, DOUBLE))
        if left.type.kind == right.type.kind == "integer":

            def compute(one: int, other: int) -> int | None:
                number = integers(one, other)
                return None if number is None else _in_int64(number)

            return strict(INTEGER, compute, left, right)
        scales = decimal_of(left.type).scale, decimal_of(right.type).scale
        if symbol == "%":
            divisor = right.evaluate
            right = Bound(right.type, lambda rows: divisor(rows) or None, right.relations)
        return _decimals(sum(scales) if symbol == "*" else max(scales), decimals, left, right)

    return bind


def _remainder(one: int, other: int) -> int | None:
    if other == 0:
        return None
    rest = abs(one) % abs(other)
    return -rest if one < 0 else rest


def _float_remainder(one: float, other: float) -> float | None:
    if other == 0:
        return None
    return math.nan if math.isinf(one) or one != one or other != other else math.fmod(one, other)


def _divide(left: Bound, right: Bound) -> Bound:
    if not any_null_type((left, right)):
        _needs_numbers("/", left, right)
    return strict(DOUBLE, lambda one, other: one / other if other else None, cast(left, DOUBLE), cast(right, DOUBLE))


def _with_times(symbol: str, left: Bound, right: Bound) -> Bound:
    """Sums and differences of timestamps and intervals."""
    if any_null_type((left, right)):
        return null(right.type if left.type.kind == "null" else left.type)
    sign = 1 if symbol == "+" else -1
    scales = {"date": 86_400 * 10**9, "timestamp": 1, "duration": 1}
    kinds = left.type.kind, right.type.kind
    if not set(kinds) <= set(scales):
        raise BruteForceError(f"{symbol} does not take {kinds[0]} and {kinds[1]}")
    if left.type.is_moment and right.type.is_moment:
        if symbol == "+" or common_type(left.type, right.type) is None:
            raise BruteForceError("these timestamps have no sum or difference")
        units, result = (left.type.unit, right.type.unit), "duration"
    else:
        moment = left.type if left.type.is_moment else right.type
        units, result = (left.type.unit, right.type.unit), "timestamp" if moment.is_moment else "duration"
    unit = next((name for name in ("ns", "us", "ms") if name in units), "s")
    first, second = scales[kinds[0]], scales[kinds[1]]
    zoned = result == "timestamp" and (left.type.zoned or right.type.zoned)
    return strict(
        Type(result, unit=unit, zoned=zoned),
        lambda one, other: in_unit(one * first + sign * other * second, unit),
        left,
        right,
    )


def _numeric(
    name: str,
    integers: Callable[[int], int],
    floats: Callable[[float], float],
    decimals: Callable[[Decimal], Decimal],
    scale: Callable[[int], int] = lambda scale: scale,
) -> Callable[..., Bound]:
    """A function of one number that keeps the family of its argument."""

    def bind(argument: Bound) -> Bound:
        kind = argument.type
        if kind.kind == "null":
            return null(INTEGER)
        if kind.kind == "duration" and name == "-":
            return strict(kind, lambda value: in_unit(-value, kind.unit), argument)
        _needs_numbers(name, argument)
        if kind.kind == "float":
            return strict(DOUBLE, floats, argument)
        if kind.kind == "decimal":
            return _decimals(scale(kind.scale), decimals, argument)
        return strict(INTEGER, lambda value: _in_int64(integers(value)), argument)

    return bind


def _sign(argument: Bound) -> Bound:
    if argument.type.kind != "null":
        _needs_numbers("SIGN", argument)
    return strict(INTEGER, lambda value: (value > 0) - (value < 0), argument)


def _whole(rounding: Callable[[float], int]) -> Callable[[float], float]:
    return lambda value: float(rounding(value)) if math.isfinite(value) else value


def _round(argument: Bound, digits: Bound | None = None) -> Bound:
    if argument.type.kind == "null" or (digits is not None and digits.type.kind == "null"):
        return null(argument.type)
    _needs_numbers("ROUND", argument)
    kind = argument.type
    places = digits or Bound(INTEGER, lambda rows: 0, literal=True)
    if places.type.kind != "integer":
        raise BruteForceError("ROUND takes a whole number of digits")
    if kind.kind == "float":
        return strict(DOUBLE, _round_float, argument, places)
    if kind.kind != "decimal":
        return strict(
            INTEGER, lambda value, places: _in_int64(int(_round_exact(Decimal(value), places))), argument, places
        )
    scale = kind.scale
    if places.literal:
        scale = max(min(scale, places.evaluate(())), min(scale, 0))

    def compute(value: Decimal, places: int) -> Decimal | None:
        rounded = _round_exact(value, places)
        return rounded if fits(rounded, _DECIMAL_DIGITS, scale) else None

    return strict(Type("decimal", precision=_DECIMAL_DIGITS, scale=scale), compute, argument, places)


def _round_exact(value: Decimal, places: int) -> Decimal:
    if places < -100:
        return Decimal(0)
    return value if places > 100 else EXACT.add(round_half_away(value, places), Decimal(0))


def _round_float(value: float, places: int) -> float:
    if not math.isfinite(value) or places > 308:
        return value
    if places < -308:
        return 0.0
    # As for CAST, the digits are counted in doubles.
    power = 10.0 ** abs(places)
    scaled = value * power if places >= 0 else value / power
    if not math.isfinite(scaled):
        return value
    whole = float(round_half_away(Decimal(scaled), 0))
    return whole / power if places >= 0 else whole * power


def _doubles(function: Callable[..., float | None]) -> Callable[..., Bound]:
    def compute(*values: float) -> float | None:
        try:
            return function(*values)
        except OverflowError:
            return math.inf

    def bind(*arguments: Bound) -> Bound:
        if not any_null_type(arguments):
            _needs_numbers("a function of doubles", *arguments)
        return strict(DOUBLE, compute, *(cast(argument, DOUBLE) for argument in arguments))

    return bind


def _power(base: float, exponent: float) -> float | None:
    if base < 0 and math.isfinite(exponent) and exponent != math.floor(exponent):
        return None
    if base == 0 and exponent < 0:
        return None
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and math.fmod(exponent, 2) else math.inf


ARITHMETIC: dict[str, Function] = {
    "+": Function(2, 2, _arithmetic("+", operator.add, operator.add, EXACT.add)),
    "-": Function(2, 2, _arithmetic("-", operator.sub, operator.sub, EXACT.subtract)),
    "*": Function(2, 2, _arithmetic("*", operator.mul, operator.mul, EXACT.multiply)),
    "%": Function(2, 2, _arithmetic("%", _remainder, _float_remainder, EXACT.remainder)),
    "/": Function(2, 2, _divide),
    "sign -": Function(1, 1, _numeric("-", operator.neg, operator.neg, EXACT.minus)),
    "ABS": Function(1, 1, _numeric("ABS", abs, abs, EXACT.abs)),
    "SIGN": Function(1, 1, _sign),
    "FLOOR": Function(
        1,
        1,
        _numeric("FLOOR", int, _whole(math.floor), lambda x: Decimal(math.floor(x)), lambda scale: min(scale, 0)),
    ),
    "CEIL": Function(
        1,
        1,
        _numeric("CEIL", int, _whole(math.ceil), lambda x: Decimal(math.ceil(x)), lambda scale: min(scale, 0)),
    ),
    "ROUND": Function(1, 2, _round),
    "SQRT": Function(1, 1, _doubles(lambda value: None if value < 0 else math.sqrt(value))),
    "LN": Function(1, 1, _doubles(lambda value: None if value <= 0 else math.log(value))),
    "EXP": Function(1, 1, _doubles(math.exp)),
    "POWER": Function(2, 2, _doubles(_power)),
}
