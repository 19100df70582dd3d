"""Arithmetic: ``+ - * / %``, the sign of numbers, and moments and durations added.

Whole numbers are int64 and never pass through a float; decimals are exact. Arrow's checked kernels do the work and
raise if one row overflows; only then the rows are sorted into those with a value and those that become NULL.

>>> _ADD([pa.array([1, 2**63 - 1]), pa.scalar(1)], pa.int64()).to_pylist()
[2, None]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from midstream.engine.expressions.arrow_values import (
    Datum,
    Kernel,
    Values,
    array_of,
    build,
    either_null,
    empty_where,
    null_rows,
    ticks,
    values,
)
from midstream.engine.expressions.decimals import from_unscaled, rescale, to_decimal, unscaled

__all__ = ["KERNELS"]

_INT64_MIN = -(2**63)


def _arithmetic(
    checked: Callable[[Datum, Datum], Datum],
    wrapping: Callable[[Any, Any], Any],
    overflows: Callable[[Values, Values, Values], Values],
    floating: Callable[[Datum, Datum], Datum],
    digits: Callable[[pa.DataType, pa.DataType], int],
) -> Kernel:
    def whole(left: Datum, right: Datum) -> Datum:
        try:
            return checked(left, right)
        except pa.ArrowInvalid:
            a, b = values(left), values(right)
            with np.errstate(over="ignore", divide="ignore"):
                result = wrapping(a, b)
                beyond = overflows(a, b, result)
            return build(result, either_null(null_rows(left), null_rows(right), beyond), pa.int64())

    def decimal(left: Datum, right: Datum, result: pa.DataType) -> Datum:
        needed = digits(left.type, right.type)
        if needed <= 76:
            if needed > 38:
                left, right = _wide(left), _wide(right)
            return to_decimal(floating(left, right), result)
        # No decimal type holds every possible result: Python's integers do.
        length = max(len(d) for d in (left, right) if not isinstance(d, pa.Scalar))
        left, right = array_of(left, length), array_of(right, length)
        a, b = unscaled(left).astype(object), unscaled(right).astype(object)
        scale = left.type.scale + right.type.scale
        if floating is not pc.multiply:
            scale = max(left.type.scale, right.type.scale)
            a, b = rescale(a, left.type.scale, scale), rescale(b, right.type.scale, scale)
        stored = rescale(wrapping(a, b), scale, result.scale)
        return from_unscaled(stored, either_null(null_rows(left), null_rows(right)), result)

    def compute(operands: Sequence[Datum], result: pa.DataType) -> Datum:
        left, right = operands
        if pat.is_floating(result):
            return floating(left, right)
        if pat.is_integer(result):
            return whole(left, right)
        if pat.is_decimal(result):
            return decimal(left, right, result)
        return whole(ticks(left), ticks(right)).view(result)

    return compute


def _wide(datum: Datum) -> Datum:
    return pc.cast(datum, pa.decimal256(datum.type.precision, datum.type.scale))


def _sum_digits(left: pa.DataType, right: pa.DataType) -> int:
    """The precision Arrow gives a sum or difference."""
    return int(max(left.precision - left.scale, right.precision - right.scale) + max(left.scale, right.scale) + 1)


def _product_digits(left: pa.DataType, right: pa.DataType) -> int:
    """The precision Arrow gives a product."""
    return int(left.precision + right.precision + 1)


def _product_overflows(a: Values, b: Values, product: Values) -> Values:
    # A product that wrapped around is not divisible back; -1 alone can hide it, as its quotient wraps as well.
    factor = np.where(a == 0, 1, a)
    wrapped = (a != 0) & (product // factor != b)
    result: Values = wrapped | ((a == -1) & (b == _INT64_MIN)) | ((b == -1) & (a == _INT64_MIN))
    return result


_ADD = _arithmetic(
    pc.add_checked, lambda a, b: a + b, lambda a, b, r: ((a ^ r) & (b ^ r)) < 0, pc.add, _sum_digits
)  # fmt: skip
_SUBTRACT = _arithmetic(
    pc.subtract_checked, lambda a, b: a - b, lambda a, b, r: ((a ^ b) & (a ^ r)) < 0, pc.subtract, _sum_digits
)  # fmt: skip
_MULTIPLY = _arithmetic(
    pc.multiply_checked, lambda a, b: a * b, _product_overflows, pc.multiply, _product_digits
)  # fmt: skip


def _divide(operands: Sequence[Datum], result: pa.DataType) -> Datum:
    dividend, divisor = values(operands[0]), values(operands[1])
    with np.errstate(all="ignore"):
        return _build_unless(divisor == 0, dividend / divisor, operands, result)


def _build_unless(undefined: Values, computed: Values, operands: Sequence[Datum], result: pa.DataType) -> pa.Array:
    """What was computed from the operands, NULL where one of them is or where it is undefined."""
    nulls = either_null(*(null_rows(operand) for operand in operands))
    if undefined.any():
        nulls = either_null(nulls, np.broadcast_to(undefined, computed.shape))
    return build(computed, nulls, result)


def _modulo(operands: Sequence[Datum], result: pa.DataType) -> Datum:
    """The remainder with the sign of the dividend; NULL for a divisor of zero."""
    left, right = operands
    if not pat.is_decimal(result):
        remainder, zero = _remainder(values(left), values(right))
        return _build_unless(zero, remainder, operands, result)
    nulls = either_null(null_rows(left), null_rows(right))
    length = max(len(d) for d in operands if not isinstance(d, pa.Scalar))
    left, right = array_of(left, length), array_of(right, length)
    scale = max(left.type.scale, right.type.scale)
    a, b = rescale(unscaled(left), left.type.scale, scale), rescale(unscaled(right), right.type.scale, scale)
    remainder, zero = _remainder(a, b)
    return from_unscaled(rescale(remainder, scale, result.scale), either_null(nulls, zero), result)


def _remainder(a: Values, b: Values) -> tuple[Values, Values]:
    """The remainders, and the rows that have none."""
    zero = (b == 0).astype(np.bool_)
    if object in (a.dtype, b.dtype):
        remainder = np.abs(a.astype(object)) % np.abs(np.where(zero, 1, b.astype(object)))
        return np.where(a < 0, -remainder, remainder), zero
    with np.errstate(invalid="ignore"):
        # C has no remainder for the least integer by -1; by 1 it is the same, zero.
        return np.fmod(a, b if b.dtype.kind == "f" else np.where(zero | (b == -1), 1, b)), zero


def _negate(operands: Sequence[Datum], result: pa.DataType) -> Datum:
    (operand,) = operands
    if pat.is_decimal(result):
        return to_decimal(pc.negate(operand), result)
    return pc.negate(operand if pat.is_floating(result) else _least_to_null(operand))


def _absolute(operands: Sequence[Datum], result: pa.DataType) -> Datum:
    (operand,) = operands
    if pat.is_decimal(result):
        return to_decimal(pc.abs(operand), result)
    return pc.abs(operand if pat.is_floating(result) else _least_to_null(operand))


def _least_to_null(operand: pa.Array) -> pa.Array:
    """The least int64 has no counterpart above zero."""
    return empty_where(pc.equal(operand, _INT64_MIN), operand)


def _sign(operands: Sequence[Datum], result: pa.DataType) -> Datum:
    (operand,) = operands
    if pat.is_floating(operand.type):
        # NaN has no sign: 0, as in DuckDB.
        operand = pc.if_else(pc.is_nan(operand), 0.0, operand)
    return pc.cast(pc.sign(operand), result)


def _square_root(operands: Sequence[Datum], result: pa.DataType) -> Datum:
    number = values(operands[0])
    with np.errstate(all="ignore"):
        return _build_unless(number < 0, np.sqrt(number), operands, result)


def _logarithm(operands: Sequence[Datum], result: pa.DataType) -> Datum:
    number = values(operands[0])
    with np.errstate(all="ignore"):
        return _build_unless(number <= 0, np.log(number), operands, result)


def _exponential(operands: Sequence[Datum], result: pa.DataType) -> Datum:
    with np.errstate(all="ignore"):
        return build(np.exp(values(operands[0])), null_rows(operands[0]), result)


def _power(operands: Sequence[Datum], result: pa.DataType) -> Datum:
    """NULL for zero to a negative power, and for a negative number to a power that is not whole."""
    base, exponent = values(operands[0]), values(operands[1])
    with np.errstate(all="ignore"):
        broken = (base < 0) & (exponent != np.floor(exponent)) & ~np.isnan(exponent)
        undefined = ((base == 0) & (exponent < 0)) | broken
        return _build_unless(undefined, np.power(base, exponent), operands, result)


KERNELS: dict[str, Kernel] = {
    "+": _ADD,
    "-": _SUBTRACT,
    "*": _MULTIPLY,
    "/": _divide,
    "%": _modulo,
    "negate": _negate,
    "abs": _absolute,
    "sign": _sign,
    "sqrt": _square_root,
    "ln": _logarithm,
    "exp": _exponential,
    "power": _power,
}
