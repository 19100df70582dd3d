"""Types that other systems have: what results are converted to before they leave for Spark or for a table.

Neither Spark nor Delta has unsigned or half-precision numbers: they become the next wider type. Timestamps are
microseconds, and instants are in UTC. Text, binary and lists have one form each.

>>> portable_type(pa.uint32()), portable_type(pa.timestamp("ms", "Europe/Paris"))
(DataType(int64), TimestampType(timestamp[us, tz=UTC]))
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.types as pat

__all__ = ["AS_LARGE", "as_type", "inside", "portable_type"]

AS_LARGE = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary(), pa.date64(): pa.date32()}
_WIDER = AS_LARGE | {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
}


def portable_type(data_type: pa.DataType, is_opaque: Callable[[pa.DataType], bool] = lambda _: False) -> pa.DataType:
    """The type that results of a type leave as; structs that are opaque stay as they are."""
    data_type = _WIDER.get(data_type, data_type)
    if pat.is_timestamp(data_type):
        return pa.timestamp("us", data_type.tz and "UTC")
    if pat.is_duration(data_type):
        return pa.duration("us")
    if pat.is_fixed_size_binary(data_type):
        return pa.binary()
    return inside(data_type, lambda part: portable_type(part, is_opaque), is_opaque)


def inside(
    data_type: pa.DataType, change: Callable[[pa.DataType], pa.DataType], is_opaque: Callable[[pa.DataType], bool]
) -> pa.DataType:
    """A nested type with its parts changed, which may be NULL; other types as they are."""
    if pat.is_list(data_type):
        return pa.list_(pa.field("element", change(data_type.value_type)))
    if pat.is_map(data_type):
        return pa.map_(change(data_type.key_type), change(data_type.item_type))
    if pat.is_struct(data_type) and not is_opaque(data_type):
        fields = (data_type.field(place) for place in range(data_type.num_fields))
        return pa.struct([pa.field(field.name, change(field.type)) for field in fields])
    return data_type


def as_type(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """The array as another type that has its values."""
    # Arrow refuses to cast a NULL struct whose fields are not nullable, even to its own type.
    return array if array.type == data_type else array.cast(data_type)
