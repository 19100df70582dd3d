"""Keys of any type as int64 codes: equal keys have equal codes.

Where different keys have different codes too, the code is *exact* and a match of codes is a match of keys: integers,
booleans, dates, times, timestamps, floats (−0.0 taken as 0.0, all NaN as one), decimals of up to 18 digits. Longer
decimals, text, binary and keys of several columns are hashed to 64 bits: a match of codes is a candidate that must
be compared once more. Nobody relies on hashes not colliding.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from midstream.algebra.types import decimal_type, is_binary, is_string
from midstream.engine.fixed_width import fixed_width_values, storage_dtype, wrap_values
from midstream.engine.kernels import Flags, Ints, compiled

__all__ = [
    "combine_codes",
    "comparable",
    "encode",
    "has_order_codes",
    "is_exact",
    "is_own_code",
    "mixed",
    "order_codes",
    "values_of_order_codes",
]

_CANONICAL_NAN = np.float64("nan").view(np.int64)


@cache
def is_exact(data_type: pa.DataType) -> bool:
    """Whether different values of the type have different codes."""
    if pat.is_decimal128(data_type):
        return bool(data_type.precision <= 18)
    return not (pat.is_decimal(data_type) or is_string(data_type) or is_binary(data_type))


@cache
def is_own_code(data_type: pa.DataType) -> bool:
    """Whether the word that states store for a value (the first one, of a decimal) is the value's code."""
    if pat.is_decimal128(data_type):
        return bool(data_type.precision <= 18)
    return storage_dtype(data_type) is not None and not (
        pat.is_floating(data_type) or pat.is_unsigned_integer(data_type)
    )


def encode(array: pa.Array) -> tuple[Ints, Flags | None]:
    """The codes of the values, and which are not NULL (None: all). The codes of NULLs are all 0."""
    valid = None if array.null_count == 0 else np.asarray(array.is_valid())
    data_type = array.type
    if pat.is_null(data_type):
        return np.zeros(len(array), np.int64), np.zeros(len(array), np.bool_)
    if pat.is_floating(data_type):
        # Adding 0.0 turns -0.0 into it; signalling NaN would warn.
        with np.errstate(invalid="ignore"):
            values = np.asarray(array.cast(pa.float64()).fill_null(0.0)) + 0.0
        codes = values.view(np.int64)
        missing = np.isnan(values)
        if missing.any():
            codes = np.where(missing, _CANONICAL_NAN, codes)
    elif pat.is_decimal128(data_type):
        words = np.ascontiguousarray(fixed_width_values(array)[0], np.int64)
        codes = words[:, 0] if data_type.precision <= 18 else _mix_words(words)
    elif is_string(data_type) or is_binary(data_type) or pat.is_decimal256(data_type):
        codes = _hash_bytes(array)
    else:
        values = fixed_width_values(array)[0]
        if pat.is_unsigned_integer(data_type):
            values = values.view(f"u{values.itemsize}")
        codes = values.astype(np.int64, copy=False)
    if valid is not None:
        codes = np.where(valid, codes, 0)
    return np.ascontiguousarray(codes, np.int64), valid


def comparable(array: pa.Array) -> pa.Array:
    """The array in a type whose values Arrow compares: it has no kernel for decimals of negative scale."""
    if pat.is_decimal(array.type) and array.type.scale < 0:
        return array.view(decimal_type(array.type.precision, 0))
    return array


def combine_codes(parts: Sequence[Ints]) -> Ints:
    """One code for a key of several columns."""
    combined = parts[0]
    for part in parts[1:]:
        out = np.empty(len(part), np.int64)
        _combine(combined, part, out)
        combined = out
    return combined


def has_order_codes(data_type: pa.DataType) -> bool:
    """Whether the type's values have codes in their order."""
    return is_exact(data_type) and not (pat.is_uint64(data_type) or pat.is_null(data_type))


def order_codes(array: pa.Array) -> tuple[Ints, Flags | None]:
    """Exact codes in the order of the values (NaN last), and which are not NULL (None: all)."""
    assert has_order_codes(array.type)
    codes, valid = encode(array)
    return (_flipped(codes) if pat.is_floating(array.type) else codes), valid


def values_of_order_codes(codes: Ints, valid: Flags, data_type: pa.DataType) -> pa.Array:
    """The inverse of :func:`order_codes`."""
    codes = np.where(valid, codes, 0)
    if pat.is_floating(data_type):
        return wrap_values(_flipped(codes).view(np.float64), valid, pa.float64()).cast(data_type)
    if pat.is_decimal(data_type):
        return wrap_values(np.stack([codes, codes >> 63], axis=1), valid, data_type)
    dtype = storage_dtype(data_type)
    assert dtype is not None
    return wrap_values(codes.astype(dtype), valid, data_type)


def _flipped(bits: Ints) -> Ints:
    """The bits of floats, as integers of the same order; and back."""
    return np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)


def _hash_bytes(array: pa.Array) -> Ints:
    if pat.is_decimal256(array.type):
        width = 32
        data = np.frombuffer(array.buffers()[1], np.uint8)
        offsets = np.arange(array.offset, array.offset + len(array) + 1) * width
    else:
        flat = pc.cast(array, pa.large_binary()) if array.type != pa.large_binary() else array
        _, offset_buffer, data_buffer = flat.buffers()
        offsets = np.frombuffer(offset_buffer, np.int64)[flat.offset : flat.offset + len(flat) + 1]
        data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    out = np.empty(len(array), np.int64)
    _hash_slices(data, np.ascontiguousarray(offsets), out)
    return out


@compiled
def mixed(word):  # type: ignore[no-untyped-def]
    """A word whose bits all depend on all bits of the given one."""
    word = np.uint64(word)
    word ^= word >> np.uint64(32)
    word *= np.uint64(0xD6E8FEB86659FD93)
    word ^= word >> np.uint64(32)
    word *= np.uint64(0xD6E8FEB86659FD93)
    return word ^ (word >> np.uint64(32))


@compiled
def _combine(left, right, out):  # type: ignore[no-untyped-def]
    for i in range(out.shape[0]):
        out[i] = np.int64(mixed(np.uint64(left[i]) * np.uint64(0x9E3779B97F4A7C15) + mixed(right[i])))


@compiled
def _mix_words(words):  # type: ignore[no-untyped-def]
    out = np.empty(words.shape[0], np.int64)
    for i in range(words.shape[0]):
        out[i] = np.int64(mixed(np.uint64(words[i, 0]) * np.uint64(0x9E3779B97F4A7C15) + mixed(words[i, 1])))
    return out


@compiled
def _hash_slices(data, offsets, out):  # type: ignore[no-untyped-def]
    """FNV-1a over eight bytes at a time, mixed at the end."""
    for i in range(out.shape[0]):
        state = np.uint64(0xCBF29CE484222325) ^ np.uint64(offsets[i + 1] - offsets[i])
        place = offsets[i]
        end = offsets[i + 1]
        while place < end:
            word = np.uint64(0)
            for shift in range(min(8, end - place)):
                word |= np.uint64(data[place + shift]) << np.uint64(8 * shift)
            state = (state ^ mixed(word)) * np.uint64(0x100000001B3)
            place += 8
        out[i] = np.int64(mixed(state))
