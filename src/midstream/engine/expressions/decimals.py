"""Decimals as the whole numbers they are stored as.

A decimal with scale s is stored as the integer ``value * 10**s`` of 128 or 256 bits. Where these integers fit 64
bits, which is what most data does whatever precision its type has, functions compute with int64; else with Python
integers in an object array, by the same code. Either way the result is exact, and NULL where the type cannot hold it.

>>> from decimal import Decimal
>>> prices = pa.array([Decimal("2.55"), Decimal("-2.55"), None])
>>> unscaled(prices)[:2]
array([ 255, -255])
>>> to_decimal(prices, pa.decimal128(2, 1)).to_pylist()
[Decimal('2.6'), Decimal('-2.6'), None]
>>> to_decimal(prices, pa.decimal128(2, 2)).to_pylist()
[None, None, None]
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from midstream.engine.expressions.arrow_values import Values, either_null, null_rows

__all__ = ["divide_half_away", "from_unscaled", "multiply_exactly", "rescale", "to_decimal", "unscaled"]

_LIMB = 2**64
_INT64_MAX = 2**63 - 1


def unscaled(array: pa.Array) -> Values:
    """The stored integers of a decimal array, as int64 if all fit, else as Python integers."""
    width = array.type.bit_width // 64
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array), np.int64)
    limbs = np.frombuffer(buffer, np.int64, len(array) * width, array.offset * width * 8).reshape(-1, width)
    low, nulls = limbs[:, 0], null_rows(array)
    wide = (limbs[:, 1:] != (low >> 63)[:, None]).any(axis=1)
    if nulls is not None:
        wide &= ~nulls
    if not wide.any():
        return np.ascontiguousarray(low)
    result: Values = limbs[:, -1].astype(object)
    for place in range(width - 2, -1, -1):
        result = result * _LIMB + limbs[:, place].view(np.uint64).astype(object)
    return result


def from_unscaled(stored: Values, nulls: npt.NDArray[np.bool_] | None, data_type: pa.DataType) -> pa.Array:
    """A decimal array from its stored integers; NULL where the precision does not hold them."""
    limit, width = 10**data_type.precision, data_type.bit_width // 64
    if stored.dtype == object or limit <= _INT64_MAX:
        beyond = ((stored >= limit) | (stored <= -limit)).astype(np.bool_)
        if beyond.any():
            stored, nulls = np.where(beyond, 0, stored), either_null(nulls, beyond)
    limbs = np.empty((len(stored), width), np.int64)
    if stored.dtype == object:
        if nulls is not None:
            stored = np.where(nulls, 0, stored)
        for place in range(width):
            limbs[:, place] = ((stored >> 64 * place) & (_LIMB - 1)).astype(np.uint64).view(np.int64)
    else:
        limbs[:, 0] = stored
        limbs[:, 1:] = (stored >> 63)[:, None]
    validity = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(data_type, len(stored), [validity, pa.py_buffer(limbs)])


def divide_half_away(stored: Values, divisor: int) -> Values:
    """The quotient rounded to a whole number, halves away from zero."""
    if divisor == 1:
        return stored
    if divisor > _INT64_MAX:
        stored = stored.astype(object)
    quotient = stored // divisor
    remainder = stored - quotient * divisor
    # The quotient is rounded down, so a half is to go up above zero and to stay below it.
    up = np.where(stored >= 0, remainder >= divisor - remainder, remainder > divisor - remainder)
    result: Values = quotient + up.astype(np.int64)
    return result


def multiply_exactly(stored: Values, factor: int) -> Values:
    """The product, as Python integers where int64 might not hold it."""
    if stored.dtype != object and len(stored):
        most = max(abs(int(stored.max())), abs(int(stored.min())))
        if factor > _INT64_MAX or most * factor > _INT64_MAX:
            stored = stored.astype(object)
    result: Values = stored * factor
    return result


def rescale(stored: Values, scale: int, new_scale: int) -> Values:
    """The stored integers of the same numbers at another scale, rounded half away from zero."""
    if new_scale < scale:
        return divide_half_away(stored, 10 ** (scale - new_scale))
    return multiply_exactly(stored, 10 ** (new_scale - scale))


def to_decimal(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """A decimal array in another decimal type: rounded half away from zero, NULL where it does not fit."""
    if array.type == data_type:
        return array
    try:
        return pc.cast(array, data_type)
    except pa.ArrowInvalid:
        stored = rescale(unscaled(array), array.type.scale, data_type.scale)
        return from_unscaled(stored, null_rows(array), data_type)
