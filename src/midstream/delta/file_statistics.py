"""Statistics of a file for the table's log, by which readers skip files that cannot contain what they look for.

They are derived from the statistics that the parquet writer collects for each row group. Some columns cannot be
bounded: those with a NaN, which engines order differently, or with infinity, which JSON lacks. Then no column has
bounds: delta-rs skips a file in which some columns have bounds and others do not. Bounds of long strings are shortened:
the lower one is truncated, the upper one truncated and then increased.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pat

__all__ = ["columns_with_nan", "statistics_json", "with_nulls"]

MOST_COLUMNS = 100
"""Tables with more columns get no bounds, which would be repeated in the log for every file."""
MOST_LETTERS = 32
_FIRST_YEAR, _LAST_YEAR = np.datetime64("0001-01-01", "us"), np.datetime64("9999-12-31T23:59:59.999999", "us")
_JSON = msgspec.json.Encoder()


class _Statistics(msgspec.Struct, forbid_unknown_fields=True):
    """Statistics as stored in the log; bounds stay JSON text, since decimals would be rounded."""

    numRecords: int
    nullCount: dict[str, int]
    minValues: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    maxValues: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def columns_with_nan(table: pa.Table) -> set[str]:
    """The float columns that contain a NaN."""
    floats = [field.name for field in table.schema if pat.is_floating(field.type)]
    return {name for name in floats if pc.any(pc.is_nan(table.column(name))).as_py()}


def statistics_json(schema: pa.Schema, metadata: pq.FileMetaData, without_bounds: set[str]) -> str:
    """The number of records, the NULLs of each column and, if all columns have them, bounds, in Delta's format."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    # Of structs, delta-rs expects bounds as well.
    is_bounded = len(schema) <= MOST_COLUMNS and not any(pat.is_struct(field.type) for field in schema)
    # By place, not by path: "a.b" may be a column, or a part of one.
    for field, place in zip(schema, _first_leaves(schema), strict=True):
        # Parts of nested columns have paths of their own.
        if pat.is_nested(field.type):
            continue
        groups = [metadata.row_group(group).column(place).statistics for group in range(metadata.num_row_groups)]
        if all(group is not None and group.has_null_count for group in groups):
            nulls[field.name] = sum(group.null_count for group in groups)
        filled = [group for group in groups if group is None or group.has_min_max or group.num_values]
        if not filled or pat.is_binary(field.type):
            continue
        if field.name in without_bounds or not all(group and group.has_min_max for group in filled):
            is_bounded = False
            continue
        low, high = _bounds(field.type, filled)
        is_bounded &= low is not None and high is not None
        lowest[field.name], highest[field.name] = low, high
    content: dict[str, Any] = {"numRecords": metadata.num_rows, "nullCount": nulls}
    if is_bounded:
        content |= {"minValues": lowest, "maxValues": highest}
    return _JSON.encode(content).decode()


def with_nulls(statistics: str, columns: Iterable[str], rows: int) -> str:
    """The statistics of a file for a table with these additional columns, which are NULL in the file's rows.

    delta-rs treats a column without statistics as one without NULLs.
    """
    content = msgspec.json.decode(statistics, type=_Statistics)
    content.nullCount |= dict.fromkeys(columns, rows)
    return _JSON.encode(content).decode()


def _bounds(data_type: pa.DataType, groups: list[Any]) -> tuple[Any, Any]:
    if pat.is_date32(data_type) or pat.is_timestamp(data_type):
        unit = "D" if pat.is_date32(data_type) else "us"
        raw = [min(group.min_raw for group in groups), max(group.max_raw for group in groups)]
        low, high = np.array(raw, np.int64).astype(f"datetime64[{unit}]")
        if low < _FIRST_YEAR or high > _LAST_YEAR:
            return None, None
        zone = "Z" if pat.is_timestamp(data_type) and data_type.tz else ""
        return f"{low}{zone}", f"{high}{zone}"
    low, high = min(group.min for group in groups), max(group.max for group in groups)
    if pat.is_floating(data_type):
        return (low, high) if np.isfinite([low, high]).all() else (None, None)
    if pat.is_string(data_type):
        return low[:MOST_LETTERS], _upper(high)
    if pat.is_decimal(data_type):
        # Without an exponent: delta-rs would read such a bound as NULL.
        return msgspec.Raw(f"{low:f}".encode()), msgspec.Raw(f"{high:f}".encode())
    return low, high


def _first_leaves(schema: pa.Schema) -> list[int]:
    """The place of each field's first leaf among the columns of a parquet file."""
    return list(accumulate((_leaves(field.type) for field in schema), initial=0))[:-1]


def _leaves(data_type: pa.DataType) -> int:
    """How many columns of a parquet file a column of this type takes."""
    if not pat.is_nested(data_type):
        return 1
    return sum(_leaves(data_type.field(place).type) for place in range(data_type.num_fields))


def _upper(text: str) -> str | None:
    """A short string that does not sort before this one, in code point order."""
    if len(text) <= MOST_LETTERS:
        return text
    for place in range(MOST_LETTERS - 1, -1, -1):
        following = ord(text[place]) + 1
        # Code points in between are UTF-16 surrogates, not characters.
        following = 0xE000 if 0xD800 <= following <= 0xDFFF else following
        if following <= 0x10FFFF:
            return text[:place] + chr(following)
    return None
