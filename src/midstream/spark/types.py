"""Spark's types and Arrow's: which stream a DataFrame can be, and what results look like to Spark.

Spark's timestamps are instants, shown in the session's time zone; Arrow writes a zone into the type. A stream may
declare any zone, as long as it declares one: the instants are the same. Unsigned and half-precision numbers, which
Spark lacks, become the next wider type.
"""

from __future__ import annotations

import datetime

import pyarrow as pa
import pyarrow.types as pat
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from midstream.algebra.stream import Stream
from midstream.algebra.types import dense_type, type_name
from midstream.errors import BadStreamDeclaration, MissingColumn, PushedTypeMismatch, did_you_mean, quoted

__all__ = ["arrow_schema", "check_frame", "spark_schema", "stream", "type_for_spark"]

_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.date64(): pa.date32(),
}


def stream(name: str, frame: DataFrame, event_time: str, lateness: int | str | datetime.timedelta = 0) -> Stream:
    """A stream with the columns of a DataFrame, to declare a query with."""
    if not isinstance(frame, DataFrame):
        raise BadStreamDeclaration(f'stream "{name}" is a {type(frame).__name__}', hint="Give a DataFrame.")
    return Stream(name, arrow_schema(frame), event_time, lateness)


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """The columns of a DataFrame as Arrow types, timestamps in the session's time zone."""
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    return to_arrow_schema(frame.schema, timezone=zone, error_on_duplicated_field_names_in_struct=True)


def check_frame(declared: Stream, frame: DataFrame) -> None:
    """Refuse a DataFrame that is not what the stream declares."""
    found = arrow_schema(frame)
    for field in declared.schema:
        if found.names.count(field.name) != 1:
            raise MissingColumn(
                f'column "{field.name}" of stream "{declared.name}" is '
                + ("missing from" if field.name not in found.names else "there more than once in")
                + " the DataFrame",
                detail=f"The DataFrame has the columns {quoted(found.names)}.",
                hint=did_you_mean(field.name, found.names),
            )
        given = found.field(field.name).type
        if not _same(given, dense_type(field.type)):
            raise PushedTypeMismatch(
                f'column "{field.name}" of stream "{declared.name}" is of type {type_name(given)} in the DataFrame',
                detail=f"The stream declares it as {type_name(field.type)}.",
                hint="Cast the column, or declare the stream by midstream.spark.stream(name, frame, event_time).",
            )


def _same(given: pa.DataType, declared: pa.DataType) -> bool:
    """Whether values of both are the same, apart from the time zone in which they are shown."""
    if pat.is_timestamp(given) and pat.is_timestamp(declared):
        return declared.unit == "us" and (given.tz is None) == (declared.tz is None)
    return bool(given == _WIDER.get(declared, declared)) if not pat.is_unsigned_integer(declared) else False


def type_for_spark(data_type: pa.DataType) -> pa.DataType:
    """The Arrow type that results of a type are handed to Spark as."""
    data_type = _WIDER.get(data_type, data_type)
    if pat.is_timestamp(data_type):
        return pa.timestamp("us", data_type.tz and "UTC")
    if pat.is_duration(data_type):
        return pa.duration("us")
    if pat.is_fixed_size_binary(data_type):
        return pa.binary()
    return data_type


def spark_schema(schema: pa.Schema) -> StructType:
    """Results as Spark sees them."""
    return StructType(
        [
            StructField(field.name, from_arrow_type(type_for_spark(field.type), prefer_timestamp_ntz=True))
            for field in schema
        ]
    )
