"""The schema of a table that holds a query's results, and what cannot be stored.

Delta has Spark's types except times of day and intervals. Unsigned integers become the next wider signed type
(uint64: decimal(20, 0)), instants become UTC microseconds, timestamps without a time zone become ``timestamp_ntz``.

>>> delta_schema(pa.schema({"n": pa.uint8(), "at": pa.timestamp("ms", "Europe/Paris")}))
n: int16
at: timestamp[us, tz=UTC]
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as pat

from midstream.algebra.types import dense_type, type_name
from midstream.engine.portable_types import portable_type
from midstream.errors import BadOption, DuplicateName, UnstorableResult, did_you_mean, quoted

__all__ = ["check_partition_columns", "delta_schema"]

_SCALARS = (
    pat.is_boolean,
    pat.is_signed_integer,
    pat.is_float32,
    pat.is_float64,
    pat.is_decimal128,
    pat.is_string,
    pat.is_binary,
    pat.is_date32,
    pat.is_timestamp,
)
_PARTITIONS = (
    pat.is_boolean,
    pat.is_signed_integer,
    pat.is_decimal128,
    pat.is_string,
    pat.is_date32,
    pat.is_timestamp,
)
_FORBIDDEN = " ,;{}()\n\t="
"""Characters that Delta does not allow in column names."""


def delta_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of a table for these results; raises ``UnstorableResult`` for types that Delta lacks."""
    by_lower: dict[str, str] = {}
    fields: list[pa.Field] = []
    for field in schema:
        if any(letter in field.name for letter in _FORBIDDEN) or not field.name:
            raise UnstorableResult(
                f'a Delta table cannot have a column with the name "{field.name}"',
                detail="Names must not have spaces or any of , ; { } ( ) =.",
                hint="Give it another name in the select list: expression AS name.",
            )
        alike = by_lower.setdefault(field.name.lower(), field.name)
        if alike != field.name or field.name in [other.name for other in fields]:
            raise DuplicateName(
                f"a Delta table cannot have two columns with the names {quoted([alike, field.name])}",
                detail="The case of names is ignored.",
                hint="Give them different names in the select list: expression AS name.",
            )
        fields.append(pa.field(field.name, _delta_type(field.name, field.type)))
    return pa.schema(fields)


def check_partition_columns(schema: pa.Schema, partition_by: Sequence[str]) -> None:
    """Refuse columns by which a table with this schema cannot be partitioned."""
    is_list = isinstance(partition_by, list | tuple) and all(isinstance(name, str) for name in partition_by)
    if not is_list or len(set(partition_by)) < len(partition_by):
        raise BadOption(f"partition_by is {partition_by!r}", hint='Give each column once, as in ["room", "day"].')
    for name in partition_by:
        if name not in schema.names:
            raise BadOption(
                f'partition column "{name}" is not a column of the result',
                detail=f"The result has the columns {quoted(schema.names)}.",
                hint=did_you_mean(name, schema.names),
            )
        data_type = schema.field(name).type
        if not any(is_kind(data_type) for is_kind in _PARTITIONS):
            raise BadOption(
                f'a table cannot be partitioned by "{name}", which is {type_name(data_type)}',
                hint="Use a column of integers, text, dates, timestamps, decimals or booleans.",
            )
    if partition_by and len(partition_by) == len(schema):
        raise BadOption("a table cannot be partitioned by all its columns", hint="Leave one out.")


def _delta_type(name: str, data_type: pa.DataType) -> pa.DataType:
    stored = portable_type(dense_type(data_type), _is_opaque)
    if not _is_storable(stored):
        raise UnstorableResult(
            f'column "{name}" is {type_name(data_type)}, which Delta tables lack',
            hint="Convert it in the select list: CAST(expression AS VARCHAR) AS name.",
        )
    return stored


def _is_storable(data_type: pa.DataType) -> bool:
    if pat.is_list(data_type):
        return _is_storable(data_type.value_type)
    if pat.is_map(data_type):
        return _is_storable(data_type.key_type) and _is_storable(data_type.item_type)
    if pat.is_struct(data_type):
        parts = [data_type.field(place) for place in range(data_type.num_fields)]
        return not _is_opaque(data_type) and bool(parts) and all(_is_storable(part.type) for part in parts)
    return any(is_kind(data_type) for is_kind in _SCALARS)


def _is_opaque(data_type: pa.DataType) -> bool:
    """Whether the struct is a Spark type of its own, not just its fields (variant, geometry, geography)."""
    fields = [data_type.field(place) for place in range(data_type.num_fields)]
    marks = {key for field in fields for key in field.metadata or {}}
    return bool(marks & {b"variant", b"geometry", b"geography"})
