"""Columns of Arrow tables as Python values and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from midstream.testing.brute_force import calendar
from midstream.testing.brute_force.value_types import NANOSECONDS, Type, type_of_arrow
from midstream.testing.snapshot_series import Rows

__all__ = ["column_of", "rows_of", "ticks_of"]


def rows_of(rows: Rows, schema: pa.Schema) -> list[tuple[Any, ...]]:
    """The rows as tuples in the order of the schema's columns."""
    parts = [rows] if isinstance(rows, pa.Table | pa.RecordBatch) else list(rows)
    found: list[tuple[Any, ...]] = []
    for part in parts:
        given = part if part.schema.equals(schema) else part.select(schema.names).cast(schema)
        found += zip(*(_values(column) for column in given.columns), strict=True)
    return found


def _values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    arrow = column.type
    if pa.types.is_dictionary(arrow):
        return _values(column.cast(arrow.value_type))
    if pa.types.is_run_end_encoded(arrow):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        return [value for chunk in chunks for value in _values(pc.run_end_decode(chunk))]
    kind = type_of_arrow(arrow)
    if kind.kind in ("timestamp", "duration", "time"):
        return _scaled(column.cast(pa.int32() if pa.types.is_time32(arrow) else pa.int64()), NANOSECONDS[kind.unit])
    if pa.types.is_date64(arrow):
        return [None if value is None else value // 86_400_000 for value in _values(column.cast(pa.int64()))]
    if kind.kind == "date":
        return list(column.cast(pa.int32()).to_pylist())
    if kind.kind == "float":
        return list(column.cast(pa.float64()).to_pylist())
    if kind.kind == "nested":
        return [scalar if scalar.is_valid else None for scalar in column]
    return list(column.to_pylist())


def _scaled(integers: pa.Array | pa.ChunkedArray, factor: int) -> list[int | None]:
    return [None if value is None else value * factor for value in integers.to_pylist()]


def ticks_of(value: int | None, kind: Type) -> int | None:
    """The event time in ticks: the microsecond in which a timestamp lies, an integer itself."""
    return value // NANOSECONDS["us"] if value is not None and kind.kind == "timestamp" else value


def column_of(values: Sequence[Any], kind: Type) -> pa.Array:
    """Values as an Arrow column that can hold all of them."""
    match kind.kind:
        case "timestamp" | "duration" | "time":
            step = NANOSECONDS[kind.unit]
            counts = [None if value is None else value // step for value in values]
            if kind.kind == "timestamp":
                return pa.array(counts, pa.timestamp(kind.unit, "UTC" if kind.zoned else None))
            if kind.kind == "duration":
                return pa.array(counts, pa.duration(kind.unit))
            return pa.array(_scaled(pa.array(counts, pa.int64()), step), pa.int64()).cast(pa.time64("ns"))
        case "date":
            if all(value is None or abs(value) < 2**31 for value in values):
                return pa.array(values, pa.int32()).cast(pa.date32())
            return pa.array(_scaled(pa.array(values), calendar.DAY // 10**6), pa.int64()).cast(pa.date64())
        case "decimal":
            return pa.array(values, pa.decimal256(76, max(kind.scale, 0)))
        case "nested":
            return pa.array(values, kind.arrow)
    plain = {
        "null": pa.null(),
        "boolean": pa.bool_(),
        "integer": pa.int64(),
        "unsigned": pa.uint64(),
        "float": pa.float64(),
        "text": pa.large_string(),
        "binary": pa.large_binary(),
    }
    return pa.array(values, plain[kind.kind])
