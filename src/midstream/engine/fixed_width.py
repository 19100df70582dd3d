"""Arrow arrays of fixed width as the words that states store, and back, without copies.

Every type is a signed integer of its width here, a decimal two of them, since states copy and compare words. But
expressions compute with values of the type itself, and with scalars: ``engine/expressions/arrow_values``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from midstream.engine.kernels import Flags

__all__ = ["Values", "fixed_width_values", "new_array", "storage_dtype", "wrap_values"]

Values = npt.NDArray[Any]


def new_array(shape: int | tuple[int, int], dtype: npt.DTypeLike = np.int64) -> Values:
    """An uninitialised array in Arrow's memory pool, which keeps freed memory mapped: fresh pages are slow."""
    size = (shape if isinstance(shape, int) else shape[0] * shape[1]) * np.dtype(dtype).itemsize
    return np.frombuffer(pa.allocate_buffer(size), dtype).reshape(shape)


@cache
def storage_dtype(data_type: pa.DataType) -> np.dtype[Any] | None:
    """How a column of fixed width is stored; None for all others. Two int64 make a decimal."""
    if pat.is_boolean(data_type):
        return np.dtype(np.uint8)
    if pat.is_decimal128(data_type):
        return np.dtype(np.int64)
    if pat.is_primitive(data_type) and not pat.is_interval(data_type) and data_type.bit_width in (8, 16, 32, 64):
        return np.dtype(f"i{data_type.bit_width // 8}")
    return None


def fixed_width_values(array: pa.Array) -> tuple[Values, Flags | None]:
    """The raw values of a fixed width array (shape (n, 2) for decimals) and which are not NULL (None: all)."""
    dtype = storage_dtype(array.type)
    assert dtype is not None
    valid = None if array.null_count == 0 else np.asarray(array.is_valid())
    if pat.is_boolean(array.type):
        return np.asarray(array.fill_null(False)).view(np.uint8), valid
    if len(array) == 0:
        return np.empty((0, 2) if pat.is_decimal(array.type) else 0, dtype), valid
    width = 2 if pat.is_decimal(array.type) else 1
    values = np.frombuffer(array.buffers()[1], dtype)[array.offset * width : (array.offset + len(array)) * width]
    return (values.reshape(-1, 2) if width == 2 else values), valid


def wrap_values(values: Values, valid: Flags | None, data_type: pa.DataType) -> pa.Array:
    """The inverse of :func:`fixed_width_values`; takes the memory over without a copy."""
    bitmap = None
    nulls = 0
    if valid is not None:
        nulls = len(valid) - int(np.count_nonzero(valid))
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None
    if pat.is_boolean(data_type):
        data = pa.py_buffer(np.packbits(values.view(np.bool_), bitorder="little"))
    else:
        data = pa.py_buffer(values)
    return pa.Array.from_buffers(data_type, len(values), [bitmap, data], nulls)
