"""Spark's types and Arrow's: which stream a DataFrame can be, and what results look like to Spark.

Spark's timestamps are instants, shown in the session's time zone; Arrow writes a zone into the type. A stream may
declare any zone, as long as it declares one: the instants are the same. Unsigned and half-precision numbers, which
Spark lacks, become the next wider type. What Arrow has no type for is lost: all intervals of days and smaller come out
as ``interval day to second``, all times of day with six digits.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.types as pat
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_type, is_geography, is_geometry, is_variant, to_arrow_type
from pyspark.sql.types import DataType, StringType, StructField, StructType

from midstream.algebra.stream import Stream
from midstream.algebra.types import dense_type, type_name
from midstream.engine.portable_types import AS_LARGE, as_type, inside, portable_type
from midstream.errors import (
    BadStreamDeclaration,
    MissingColumn,
    NotStreaming,
    PushedTypeMismatch,
    UnknownStreamPushed,
    did_you_mean,
    quoted,
)
from midstream.runtime.pack import BAD_MESSAGE
from midstream.spark.file_stream import FileStream

__all__ = ["as_type", "check_frame", "check_frames", "spark_schema", "stream", "type_for_spark"]


def stream(
    name: str, frame: DataFrame | FileStream, event_time: str, lateness: int | str | datetime.timedelta = 0
) -> Stream:
    """A stream with the columns of a DataFrame, to declare a query with."""
    if not isinstance(frame, DataFrame | FileStream):
        raise BadStreamDeclaration(f'stream "{name}" is a {type(frame).__name__}', hint="Give a DataFrame.")
    fields = []
    for field in frame.schema:
        if field.name == BAD_MESSAGE:
            # Says what a row is, and is not part of it.
            continue
        found = _arrow_type(frame, field.dataType)
        if isinstance(found, str):
            raise BadStreamDeclaration(
                f'column "{field.name}" of stream "{name}" is {field.dataType.simpleString()} in the DataFrame',
                detail=found,
                hint="Cast the column, or leave it out: frame.drop(...).",
            )
        fields.append(pa.field(field.name, found))
    return Stream(name, pa.schema(fields), event_time, lateness)


def check_frame(declared: Stream, frame: DataFrame | FileStream) -> None:
    """Refuse a DataFrame that is not what the stream declares."""
    names = frame.schema.names
    folded = str if frame.sparkSession.conf.get("spark.sql.caseSensitive") == "true" else str.lower
    for field in declared.schema:
        if field.name.startswith("__"):
            raise BadStreamDeclaration(
                f'column "{field.name}" of stream "{declared.name}" begins with two underscores',
                detail="On Spark such names are kept for columns of midstream's own.",
                hint=f'Rename it: frame.withColumnRenamed("{field.name}", "{field.name.lstrip("_")}").',
            )
        alike = [name for name in names if folded(name) == folded(field.name)]
        if field.name not in alike or len(alike) > 1:
            raise MissingColumn(
                f'column "{field.name}" of stream "{declared.name}" is '
                + ("missing from" if field.name not in alike else "there more than once in")
                + " the DataFrame",
                detail=f"The DataFrame has the columns {quoted(names)}.",
                hint=did_you_mean(field.name, names),
            )
        spark_type = frame.schema[field.name].dataType
        given = _arrow_type(frame, spark_type)
        if isinstance(given, str):
            detail, hint = given, "Cast the column."
        elif not _same(given, dense_type(field.type)):
            detail = f"The stream declares it as {type_name(field.type)}."
            hint = "Cast the column, or declare the stream by midstream.spark.stream(name, frame, event_time)."
        else:
            continue
        raise PushedTypeMismatch(
            f'column "{field.name}" of stream "{declared.name}" is {spark_type.simpleString()} in the DataFrame',
            detail=detail,
            hint=hint,
        )


def check_frames(
    streams: Mapping[str, Stream], frames: Mapping[str, DataFrame | FileStream]
) -> tuple[SparkSession, bool]:
    """The session of the DataFrames, and whether they are streams; refuses what does not fit the query."""
    if not isinstance(frames, Mapping) or not all(
        isinstance(frame, DataFrame | FileStream) for frame in frames.values()
    ):
        raise PushedTypeMismatch(
            "run_on_spark takes a mapping from stream names to DataFrames", hint='Write {"orders": orders_df, ...}.'
        )
    for name in frames:
        if name not in streams:
            raise UnknownStreamPushed(
                f'stream "{name}" is not one of the query\'s streams',
                detail=f"The query reads {quoted(streams)}.",
                hint=did_you_mean(str(name), streams),
            )
    missing = [name for name in streams if name not in frames]
    if missing:
        raise UnknownStreamPushed(
            f"there is no DataFrame for {quoted(missing)}", detail=f"The query reads {quoted(streams)}."
        )
    for name, stream in streams.items():
        check_frame(stream, frames[name])
    kinds = {frame.isStreaming for frame in frames.values()}
    if len(kinds) > 1:
        batches = [name for name, frame in frames.items() if not frame.isStreaming]
        raise NotStreaming(
            f"{quoted(batches)} are batches, the others streams",
            hint="Read all with spark.readStream, or all with spark.read.",
        )
    return next(iter(frames.values())).sparkSession, kinds.pop()


def _arrow_type(frame: DataFrame | FileStream, spark_type: DataType) -> pa.DataType | str:
    """The type as Arrow's, timestamps in the session's time zone; or why it has none."""
    if isinstance(spark_type, StringType) and spark_type != StringType():
        return "Strings are compared by their bytes, whatever their collation."
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    try:
        found = to_arrow_type(spark_type, timezone=zone, error_on_duplicated_field_names_in_struct=True)
    except PySparkException as problem:
        return f"Spark cannot hand it to Python: {problem}"
    return _nullable(found)


def _same(given: pa.DataType, declared: pa.DataType) -> bool:
    """Whether values of both are the same, apart from time zones and from what may be NULL inside."""
    if pat.is_timestamp(given) and pat.is_timestamp(declared):
        return declared.unit == "us" and (given.tz is None) == (declared.tz is None)
    if pat.is_nested(given) and given.id == declared.id and given.num_fields == declared.num_fields:
        pairs = [(given.field(place), declared.field(place)) for place in range(given.num_fields)]
        return all(
            _same(one.type, other.type) and (one.name == other.name or not pat.is_struct(given)) for one, other in pairs
        )
    return bool(given == AS_LARGE.get(declared, declared))


def type_for_spark(data_type: pa.DataType) -> pa.DataType:
    """The Arrow type that results of a type are handed to Spark as."""
    return portable_type(data_type, _is_opaque)


def spark_schema(schema: pa.Schema) -> StructType:
    """Results as Spark sees them."""
    return StructType(
        [
            StructField(field.name, from_arrow_type(type_for_spark(field.type), prefer_timestamp_ntz=True))
            for field in schema
        ]
    )


def _nullable(data_type: pa.DataType) -> pa.DataType:
    """The type whose parts may be NULL."""
    return inside(data_type, _nullable, _is_opaque)


def _is_opaque(data_type: pa.DataType) -> bool:
    """Whether Spark means more by the struct than its fields: it knows it by their metadata."""
    return bool(is_variant(data_type) or is_geometry(data_type) or is_geography(data_type))
