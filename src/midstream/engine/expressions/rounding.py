"""Rounding: FLOOR, CEIL and ROUND, which takes halves away from zero.

>>> _round([pa.array([15, -25, 14]), pa.scalar(-1)], pa.int64()).to_pylist()
[20, -30, 10]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from midstream.engine.expressions.arrow_values import Datum, Kernel, Values, build, either_null, null_rows, values
from midstream.engine.expressions.decimals import divide_half_away, from_unscaled, multiply_exactly, rescale, unscaled

__all__ = ["KERNELS", "round_half_away"]


def round_half_away(numbers: Values) -> Values:
    """Floats rounded to whole numbers, halves away from zero.

    >>> round_half_away(np.array([2.5, -2.5, 0.49999999999999994]))
    array([ 3., -3.,  0.])
    """
    with np.errstate(invalid="ignore"):
        whole = np.trunc(numbers)
        result: Values = np.where(np.abs(numbers - whole) >= 0.5, whole + np.copysign(1.0, numbers), whole)
    return result


def _floor(operands: Sequence[Datum], result: pa.DataType) -> Datum:
    (operand,) = operands
    if pat.is_integer(result):
        return operand
    return pc.floor(operand) if pat.is_floating(result) else _round_decimal(operand, result, upwards=False)


def _ceil(operands: Sequence[Datum], result: pa.DataType) -> Datum:
    (operand,) = operands
    if pat.is_integer(result):
        return operand
    return pc.ceil(operand) if pat.is_floating(result) else _round_decimal(operand, result, upwards=True)


def _round_decimal(operand: pa.Array, result: pa.DataType, *, upwards: bool) -> pa.Array:
    stored, scale = unscaled(operand), operand.type.scale
    if scale > 18:
        stored = stored.astype(object)
    whole = stored // 10**scale
    if upwards:
        whole = whole + (stored != whole * 10**scale).astype(np.int64)
    return from_unscaled(rescale(whole, 0, result.scale), null_rows(operand), result)


def _round(operands: Sequence[Datum], result: pa.DataType) -> Datum:
    operand = operands[0]
    digits = operands[1].as_py() if len(operands) == 2 else 0
    if pat.is_integer(result):
        return _round_whole(operand, -digits) if digits < 0 else operand
    if pat.is_floating(result):
        return build(_round_float(values(operand), digits), null_rows(operand), result)
    scale = operand.type.scale
    if digits >= scale:
        stored, kept = unscaled(operand), scale
    else:
        # Beyond the 76 digits of the widest decimal everything is zero.
        kept = max(digits, -77)
        stored = divide_half_away(unscaled(operand), 10 ** (scale - kept))
    if kept < 0:
        stored, kept = multiply_exactly(stored, 10**-kept), 0
    return from_unscaled(rescale(stored, kept, result.scale), null_rows(operand), result)


def _round_whole(operand: pa.Array, zeros: int) -> pa.Array:
    """Whole numbers rounded to a power of ten; NULL where that is beyond int64."""
    numbers, nulls = values(operand), null_rows(operand)
    if zeros > 19:
        return build(np.zeros_like(numbers), nulls, pa.int64())
    if zeros == 19:
        beyond = (numbers >= 5 * 10**18) | (numbers <= -5 * 10**18)
        return build(np.zeros_like(numbers), either_null(nulls, beyond), pa.int64())
    power = 10**zeros
    whole = divide_half_away(numbers, power)
    most = (2**63 - 1) // power
    return build(whole * power, either_null(nulls, (whole > most) | (whole < -most)), pa.int64())


def _round_float(numbers: Values, digits: int) -> Values:
    """As DuckDB: scaled by a power of ten, rounded, scaled back; what has no such digits stays."""
    if digits == 0:
        return round_half_away(numbers)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        power = np.power(10.0, abs(digits))
        if digits > 0:
            rounded = round_half_away(numbers * power) / power
            return np.where(np.isfinite(rounded), rounded, numbers)
        rounded = round_half_away(numbers / power) * power
        return np.where(np.isfinite(rounded), rounded, np.where(np.isfinite(numbers), 0.0, numbers))


KERNELS: dict[str, Kernel] = {"floor": _floor, "ceil": _ceil, "round": _round}
