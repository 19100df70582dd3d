"""Types of columns and expressions: pyarrow's, plus the rules by which two of them meet.

A type belongs to one family. Two types of one family are comparable at their common type, which loses no
information except where a float takes part (as in Spark and DuckDB, an integer meets a float as float64).

>>> common_type(pa.int32(), pa.int64())
DataType(int64)
>>> common_type(pa.int64(), pa.decimal128(10, 2))
Decimal128Type(decimal128(21, 2))
>>> common_type(pa.string(), pa.int64()) is None
True
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat

__all__ = [
    "common_type",
    "decimal_type",
    "dense_type",
    "is_binary",
    "is_comparable",
    "is_integer",
    "is_numeric",
    "is_string",
    "is_temporal",
    "timestamp_zone_clash",
    "type_name",
]

_UNITS = ["s", "ms", "us", "ns"]


def dense_type(data_type: pa.DataType) -> pa.DataType:
    """The type without an encoding: that of the values for dictionary and run-end encoded columns and for views."""
    if pat.is_dictionary(data_type) or pat.is_run_end_encoded(data_type):
        return dense_type(data_type.value_type)
    if pat.is_decimal32(data_type) or pat.is_decimal64(data_type):
        return pa.decimal128(data_type.precision, data_type.scale)
    if pat.is_string_view(data_type) or pat.is_binary_view(data_type):
        return pa.string() if pat.is_string_view(data_type) else pa.binary()
    return data_type


def is_integer(data_type: pa.DataType) -> bool:
    return bool(pat.is_integer(data_type))


def is_numeric(data_type: pa.DataType) -> bool:
    return bool(pat.is_integer(data_type) or pat.is_floating(data_type) or pat.is_decimal(data_type))


def is_string(data_type: pa.DataType) -> bool:
    return bool(pat.is_string(data_type) or pat.is_large_string(data_type) or pat.is_string_view(data_type))


def is_binary(data_type: pa.DataType) -> bool:
    return bool(
        pat.is_binary(data_type)
        or pat.is_large_binary(data_type)
        or pat.is_fixed_size_binary(data_type)
        or pat.is_binary_view(data_type)
    )


def is_temporal(data_type: pa.DataType) -> bool:
    return bool(pat.is_date(data_type) or pat.is_timestamp(data_type))


def is_comparable(data_type: pa.DataType) -> bool:
    """Whether values can be compared, grouped and joined on: every scalar type, no nested one."""
    return common_type(data_type, data_type) is not None


def decimal_type(precision: int, scale: int) -> pa.DataType:
    """The narrowest of decimal128 and decimal256 that holds the precision (at most 76)."""
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(min(precision, 76), scale)


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type at which values of both types are compared; None where they are of different families."""
    if pat.is_null(left):
        return right
    if pat.is_null(right):
        return left
    if is_numeric(left) and is_numeric(right):
        return _common_numeric(left, right)
    if is_string(left) and is_string(right):
        return left if left == right else pa.large_string()
    if is_binary(left) and is_binary(right):
        return left if left == right else pa.large_binary()
    if is_temporal(left) and is_temporal(right):
        return _common_temporal(left, right)
    if pat.is_boolean(left) and pat.is_boolean(right):
        return left
    if pat.is_duration(left) and pat.is_duration(right):
        return pa.duration(_finer(left.unit, right.unit))
    if pat.is_time(left) and pat.is_time(right):
        return left if left == right else pa.time64(_finer(_finer(left.unit, right.unit), "us"))
    return None


def timestamp_zone_clash(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether one is an instant (time zone) and the other a wall clock time (none)."""
    return bool(pat.is_timestamp(left) and pat.is_timestamp(right) and (left.tz is None) != (right.tz is None))


def _finer(left: str, right: str) -> str:
    return max(left, right, key=_UNITS.index)


def _common_temporal(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if left == right:
        return left
    if pat.is_date(left) and pat.is_date(right):
        return pa.date64() if pat.is_date64(left) or pat.is_date64(right) else pa.date32()
    if timestamp_zone_clash(left, right):
        return None
    stamps = [t for t in (left, right) if pat.is_timestamp(t)]
    if len(stamps) == 1:
        # A date is a wall clock midnight: it has no meaning as an instant.
        return None if stamps[0].tz is not None else stamps[0]
    zone = None if left.tz is None else (left.tz if left.tz == right.tz else "UTC")
    return pa.timestamp(_finer(left.unit, right.unit), zone)


def _as_decimal(data_type: pa.DataType) -> tuple[int, int]:
    """Integer digits and scale that hold every value of an integer or decimal type."""
    if pat.is_decimal(data_type):
        return data_type.precision - data_type.scale, data_type.scale
    return {8: 3, 16: 5, 32: 10, 64: 20 if pat.is_unsigned_integer(data_type) else 19}[data_type.bit_width], 0


def _common_numeric(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if left == right:
        return left
    if pat.is_floating(left) or pat.is_floating(right):
        return pa.float64()
    if pat.is_integer(left) and pat.is_integer(right):
        unsigned = [t for t in (left, right) if pat.is_unsigned_integer(t)]
        if len(unsigned) == 2:
            return pa.uint64()
        if any(t.bit_width == 64 for t in unsigned):
            return pa.decimal128(20, 0)
        return pa.int64()
    (left_digits, left_scale), (right_digits, right_scale) = _as_decimal(left), _as_decimal(right)
    scale = max(left_scale, right_scale)
    return decimal_type(max(left_digits, right_digits) + scale, scale)


def type_name(data_type: pa.DataType) -> str:
    """The type as messages name it.

    >>> type_name(pa.timestamp("us", "UTC"))
    'timestamp[us, tz=UTC]'
    """
    return str(data_type)
