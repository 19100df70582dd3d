"""Arrow arrays as NumPy sees them: the values without their nulls, and the way back.

Most functions are a single Arrow kernel. Where Arrow has none, or has one that raises where midstream's total
functions give NULL, a function computes with NumPy on the raw values and says apart which rows are NULL. Raw values
of NULL rows are arbitrary: compute with them, never decide by them.

>>> numbers = pa.array([3, None, 5])
>>> values(numbers) * 2 >= 6, null_rows(numbers)
(array([ True, False,  True]), array([False,  True, False]))
>>> build(values(numbers) - 1, null_rows(numbers), pa.int64()).to_pylist()
[2, None, 4]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from midstream.algebra.types import decimal_type

__all__ = [
    "Datum",
    "Kernel",
    "Values",
    "array_of",
    "build",
    "build_integers",
    "either_null",
    "empty_where",
    "is_fixed_width",
    "null_rows",
    "ticks",
    "truth_of",
    "values",
    "with_nulls",
    "working_type",
]

# A column of values, or one value that stands for a column of it.
Datum: TypeAlias = pa.Array | pa.Scalar
Values: TypeAlias = npt.NDArray[Any]
# A function's operands (at least one of them an array) and the type of its result.
Kernel: TypeAlias = Callable[[Sequence[Datum], pa.DataType], Datum]

_DTYPES: dict[int, str] = {
    pa.int8().id: "i1", pa.int16().id: "i2", pa.int32().id: "i4", pa.int64().id: "i8",
    pa.uint8().id: "u1", pa.uint16().id: "u2", pa.uint32().id: "u4", pa.uint64().id: "u8",
    pa.float32().id: "f4", pa.float64().id: "f8", pa.date32().id: "i4", pa.date64().id: "i8",
    pa.timestamp("us").id: "i8", pa.duration("us").id: "i8", pa.time32("s").id: "i4", pa.time64("us").id: "i8",
}  # fmt: skip
_BOOLEAN = pa.bool_().id
_FALSE = pa.scalar(False)


def working_type(data_type: pa.DataType) -> pa.DataType:
    """The type in which values are computed: the type itself, or a wider one that more kernels know.

    >>> working_type(pa.string_view()), working_type(pa.decimal128(5, -2))
    (DataType(large_string), Decimal128Type(decimal128(7, 0)))
    """
    if data_type.id in _DTYPES:
        return data_type
    if pat.is_string_view(data_type):
        return pa.large_string()
    if pat.is_binary_view(data_type):
        return pa.large_binary()
    if pat.is_float16(data_type):
        return pa.float32()
    if pat.is_decimal(data_type) and (data_type.bit_width < 128 or data_type.scale < 0):
        return decimal_type(data_type.precision - min(data_type.scale, 0), max(data_type.scale, 0))
    return data_type


def is_fixed_width(data_type: pa.DataType) -> bool:
    """Whether :func:`values` can read the type."""
    return data_type.id in _DTYPES or data_type.id == _BOOLEAN


def values(datum: Datum) -> Values:
    """The raw values of a fixed-width array without a copy; of a scalar, a NumPy scalar."""
    if isinstance(datum, pa.Scalar):
        # Moments have their ticks as ``value``; everything else is a Python number.
        number = datum.value if hasattr(datum, "value") else datum.as_py()
        single: Values = np.dtype(_DTYPES.get(datum.type.id, "?")).type(number)
        return single
    buffer = datum.buffers()[1]
    if datum.type.id == _BOOLEAN:
        return _bits(buffer, datum.offset, len(datum))
    dtype = np.dtype(_DTYPES[datum.type.id])
    if buffer is None or len(datum) == 0:
        return np.zeros(len(datum), dtype)
    return np.frombuffer(buffer, dtype, len(datum), datum.offset * dtype.itemsize)


def null_rows(datum: Datum) -> npt.NDArray[np.bool_] | None:
    """Which rows are NULL; None for none of them (as for a scalar that is not NULL)."""
    if isinstance(datum, pa.Scalar) or datum.null_count == 0:
        return None
    if pat.is_null(datum.type):
        return np.ones(len(datum), np.bool_)
    return ~_bits(datum.buffers()[0], datum.offset, len(datum))


def either_null(*masks: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_] | None:
    """The rows that are NULL in any of the masks."""
    result = None
    for mask in masks:
        if mask is not None:
            result = mask if result is None else result | mask
    return result


def truth_of(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Where a boolean array is true; NULL is not."""
    found = _bits(array.buffers()[1], array.offset, len(array))
    nulls = null_rows(array)
    return found if nulls is None else found & ~nulls


def build(raw: Values, nulls: npt.NDArray[np.bool_] | None, data_type: pa.DataType) -> pa.Array:
    """An array of a fixed-width type from raw values, NULL in the given rows."""
    if data_type.id == _BOOLEAN:
        data = np.packbits(raw, bitorder="little")
    else:
        data = np.ascontiguousarray(raw, _DTYPES[data_type.id])
    return pa.Array.from_buffers(data_type, len(raw), [_validity(nulls), pa.py_buffer(data)])


def build_integers(numbers: Values, nulls: npt.NDArray[np.bool_] | None, data_type: pa.DataType) -> pa.Array:
    """An array of an integer type from whole numbers of any NumPy type; NULL where it does not hold them, or NaN.

    >>> build_integers(np.array([-1.0, 255.0, 256.0, np.nan]), None, pa.uint8()).to_pylist()
    [None, 255, None, None]
    """
    dtype = np.dtype(_DTYPES[data_type.id])
    least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    if numbers.dtype.kind == "f":
        # The bounds as powers of two, which floats hold exactly.
        fits = (numbers >= float(least)) & (numbers < float(most + 1))
    else:
        if numbers.dtype.kind in "iu":
            own = np.iinfo(numbers.dtype)
            least, most = max(least, int(own.min)), min(most, int(own.max))
        fits = ((numbers >= least) & (numbers <= most)).astype(np.bool_)
    if nulls is not None:
        fits &= ~nulls
    if not fits.all():
        numbers, nulls = np.where(fits, numbers, np.zeros(1, numbers.dtype)), ~fits
    return build(numbers.astype(dtype), nulls, data_type)


def with_nulls(array: pa.Array, rows: npt.NDArray[np.bool_]) -> pa.Array:
    """The array with NULL in the given rows as well."""
    if not rows.any():
        return array
    return pc.if_else(build(rows, None, pa.bool_()), pa.scalar(None, array.type), array)


def empty_where(nulls: pa.Array, datum: Datum) -> Datum:
    """The datum with NULL where the condition is true (not where it is NULL)."""
    if nulls.null_count:
        nulls = pc.coalesce(nulls, _FALSE)
    return pc.if_else(nulls, pa.scalar(None, datum.type), datum)


def array_of(datum: Datum, length: int) -> pa.Array:
    """The datum as an array."""
    if not isinstance(datum, pa.Scalar):
        return datum
    return pa.repeat(datum, length) if datum.is_valid else pa.nulls(length, datum.type)


def ticks(datum: Datum) -> Datum:
    """Timestamps, durations and the like as the integers they are stored as."""
    if isinstance(datum, pa.Scalar):
        return ticks(pa.repeat(datum, 1))[0]
    return datum.view(pa.int64()) if datum.type.bit_width == 64 else datum.view(pa.int32())


def _validity(nulls: npt.NDArray[np.bool_] | None) -> pa.Buffer | None:
    return None if nulls is None or not nulls.any() else pa.py_buffer(np.packbits(~nulls, bitorder="little"))


def _bits(buffer: pa.Buffer | None, offset: int, length: int) -> npt.NDArray[np.bool_]:
    if buffer is None or length == 0:
        return np.zeros(length, np.bool_)
    first, shift = divmod(offset, 8)
    packed = np.frombuffer(buffer, np.uint8, (shift + length + 7) // 8, first)
    return np.unpackbits(packed, bitorder="little")[shift : shift + length].view(np.bool_)
