"""CAST: the value in another type, NULL where it has none there.

- number to whole number: floats round half to even, decimals half away from zero (both as in DuckDB)
- number to decimal: half away from zero; to a smaller float: NULL where only infinity would do
- truth to number: 1 and 0; number to truth: whether it is not zero
- text is read by ``read_text``, written by ``write_text``
- dates and timestamps: see ``temporal``; between wall clock time and instant, the clock is UTC's

>>> convert(pa.array([2.5, 3.5, 1e30, float("nan")]), pa.int64()).to_pylist()
[2, 4, None, None]
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from midstream.algebra.types import is_binary, is_string
from midstream.engine.expressions.arrow_values import (
    build,
    build_integers,
    either_null,
    null_rows,
    values,
    with_nulls,
    working_type,
)
from midstream.engine.expressions.decimals import divide_half_away, from_unscaled, to_decimal, unscaled
from midstream.engine.expressions.read_text import read_text
from midstream.engine.expressions.rounding import round_half_away
from midstream.engine.expressions.temporal import convert_ticks
from midstream.engine.expressions.write_text import write_text

__all__ = ["convert"]

_EXACT_DOUBLE = 2**53
_EXACT_POWER = 22  # 10**22 is the last power of ten that a double holds exactly


def convert(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """The array, which has a working type, as the working type of another type."""
    source, target = array.type, working_type(data_type)
    if pat.is_null(source):
        return pa.nulls(len(array), target)
    if source == target and target == data_type:
        return array
    if is_string(target):
        return pc.cast(array if is_string(source) else write_text(array), target)
    if is_string(source):
        return read_text(array, data_type)
    if is_binary(target):
        return _to_binary(array, target)
    if pat.is_boolean(source):
        return array if pat.is_boolean(target) else _to_number(pc.cast(array, pa.int8()), data_type)
    if pat.is_boolean(target):
        return _to_truth(array)
    if pat.is_temporal(target):
        return convert_ticks(array, target)
    return _to_number(array, data_type)


def _to_number(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    if pat.is_integer(data_type):
        return _to_integer(array, data_type)
    return _to_float(array, data_type) if pat.is_floating(data_type) else _number_to_decimal(array, data_type)


def _to_integer(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    if pat.is_decimal(array.type):
        numbers = divide_half_away(unscaled(array), 10**array.type.scale)
    elif pat.is_floating(array.type):
        numbers = np.rint(values(array).astype(np.float64))
    else:
        try:
            return pc.cast(array, data_type)
        except pa.ArrowInvalid:
            numbers = values(array)
    return build_integers(numbers, null_rows(array), data_type)


def _to_float(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    if pat.is_decimal(array.type):
        array = _decimal_to_double(array)
    numbers = values(array)
    dtype = np.dtype(data_type.to_pandas_dtype())
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        narrowed = numbers.astype(dtype)
        nulls = null_rows(array)
        if dtype.itemsize < 8:
            nulls = either_null(nulls, np.isinf(narrowed) & np.isfinite(numbers.astype(np.float64)))
    target = working_type(data_type)
    return build(narrowed.astype(target.to_pandas_dtype()), nulls, target)


def _decimal_to_double(array: pa.Array) -> pa.Array:
    """The nearest double, which a single rounding gives: of a quotient of exact doubles, else of the digits."""
    stored, scale = unscaled(array), array.type.scale
    exact = stored.dtype != object and scale <= _EXACT_POWER
    if exact and bool(((stored >= -_EXACT_DOUBLE) & (stored <= _EXACT_DOUBLE)).all()):
        return build(stored / 10.0**scale, null_rows(array), pa.float64())
    return pc.cast(pc.cast(array, pa.string()), pa.float64())


def _number_to_decimal(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    target = working_type(data_type)
    if pat.is_decimal(array.type):
        return to_decimal(array, target)
    if pat.is_integer(array.type):
        return to_decimal(pc.cast(array, pa.decimal128(20, 0)), target)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = round_half_away(values(array).astype(np.float64) * 10.0**target.scale)
    beyond = ~(np.abs(scaled) < 10.0**target.precision)
    scaled = np.where(beyond, 0.0, scaled)
    small = bool((np.abs(scaled) < 2.0**63).all())
    stored = scaled.astype(np.int64) if small else np.array([int(number) for number in scaled], object)
    return from_unscaled(stored, either_null(null_rows(array), beyond), target)


def _to_truth(array: pa.Array) -> pa.Array:
    numbers = unscaled(array) if pat.is_decimal(array.type) else values(array)
    return build((numbers != 0).astype(np.bool_), null_rows(array), pa.bool_())


def _to_binary(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pat.is_fixed_size_binary(target):
        # Only values of exactly that many bytes have a counterpart.
        plain = pc.cast(array, pa.large_binary())
        fits = values(pc.cast(pc.equal(pc.binary_length(plain), target.byte_width).fill_null(False), pa.bool_()))
        return pc.cast(with_nulls(plain, ~fits), target)
    return pc.cast(array, target)
