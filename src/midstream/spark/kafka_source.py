"""Messages of a Kafka topic as rows, decoded by Spark SQL, with bad ones marked.

A stream has the columns of its messages (``json``: those of a schema, by ``from_json``; ``avro``: those of an Avro
schema, by ``from_avro``; ``raw``: ``value`` unchanged, or Spark SQL expressions over it) and :data:`KAFKA_COLUMNS`. A
*bad message* has no value, cannot be decoded, or lacks its event time. It must not end the query: it becomes a row of
NULLs, marked in an additional column (``runtime.pack.BAD_MESSAGE``), by which the query counts and drops it, and
:func:`bad_messages` finds it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import StructType

from midstream.errors import BadOption, DuplicateName, MissingColumn, PackageMissing, did_you_mean, quoted
from midstream.kafka.topic import KafkaTopic
from midstream.runtime.pack import BAD_MESSAGE
from midstream.spark.catalyst import column_name
from midstream.spark.kafka_packages import kafka_packages

__all__ = ["KAFKA_COLUMNS", "PAYLOADS", "bad_messages", "payload_columns", "read_kafka"]

PAYLOADS = ("json", "avro", "raw")
KAFKA_COLUMNS = {
    "kafka_key": "key",
    "kafka_partition": "partition",
    "kafka_offset": "offset",
    "kafka_timestamp": "timestamp",
}
"""Columns that every stream of messages has, and Spark's names for them."""
_CORRUPT = "__corrupt"
_DECODED = "__decoded"
_MESSAGE = ("topic", "partition", "offset", "timestamp", "key", "value")


def read_kafka(
    spark: SparkSession,
    topic: str | KafkaTopic,
    schema: str | StructType | None = None,
    *,
    payload: str = "json",
    avro_schema: str | None = None,
    select: str | None = None,
    event_time: str | None = None,
    starting_offsets: str = "earliest",
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """A streaming DataFrame of a topic's messages, ``"HOST:PORT/TOPIC"``, for ``run_on_spark``.

    ``payload`` is the format of a message's value: "json" with the columns of ``schema`` (Spark's DDL), "avro" with
    those of ``avro_schema`` (JSON), or "raw", with the column ``value`` or the columns of ``select``, a select list of
    Spark SQL over ``key``, ``value``, ``topic``, ``partition``, ``offset`` and ``timestamp``. Messages without the
    ``event_time`` are bad. ``starting_offsets`` ("earliest", "latest" or offsets as JSON) apply when a query starts for
    the first time. ``options`` are those of Spark's Kafka source. See ``docs/kafka.md``.
    """
    source = KafkaTopic.parse(topic)
    _check(payload, schema, avro_schema, select)
    chosen = {
        "startingOffsets": starting_offsets,
        **(options or {}),
        "kafka.bootstrap.servers": source.servers,
        "subscribe": source.topic,
    }
    try:
        messages = spark.readStream.format("kafka").options(**chosen).load()
        decoded, is_decoded = _decoded(payload, schema, avro_schema, select)
        rows = messages.select(*_MESSAGE, decoded.alias("payload"))
        names = rows.schema["payload"].dataType.names  # type: ignore[attr-defined]
    except AnalysisException as problem:
        raise _explained(problem, payload, select) from problem
    columns = {name: F.col(f"payload.{column_name(name)}") for name in names if name not in (_CORRUPT, _DECODED)}
    twice = [name for name in columns if name in KAFKA_COLUMNS]
    if twice:
        raise DuplicateName(
            f'the messages have a column "{twice[0]}"',
            detail="Every stream of Kafka messages has one of this name, of the message itself.",
            hint='Read the messages as raw ones and rename it: payload="raw", select="...".',
        )
    columns |= {name: F.col(place) for name, place in KAFKA_COLUMNS.items()}
    if event_time is not None and event_time not in columns:
        raise MissingColumn(
            f'the event time "{event_time}" is not a column of the messages',
            detail=f"They have the columns {quoted(columns)}.",
            hint=did_you_mean(event_time, columns),
        )
    reason = (
        F.when(F.col("value").isNull(), "no value")
        .when(~is_decoded, "not decodable")
        .when(F.lit(False) if event_time is None else columns[event_time].isNull(), "no event time")
    )
    bad = F.when(reason.isNotNull(), F.struct(reason.alias("reason"), *_MESSAGE))
    # Bad messages have no event time, so they are dropped even if the mark is lost on the way.
    good = {
        name: column if name in ("kafka_key", "kafka_partition", "kafka_offset") else F.when(reason.isNull(), column)
        for name, column in columns.items()
    }
    return rows.select(*(column.alias(name) for name, column in good.items()), bad.alias(BAD_MESSAGE))


def bad_messages(frame: DataFrame) -> DataFrame:
    """The original bad messages of a DataFrame from :func:`read_kafka`, with the reason."""
    if BAD_MESSAGE not in frame.columns:
        raise BadOption(
            "the DataFrame does not say which messages are bad",
            hint=f'Give one of read_kafka, with its column "{BAD_MESSAGE}".',
        )
    return frame.where(F.col(BAD_MESSAGE).isNotNull()).select(f"{BAD_MESSAGE}.*")


def payload_columns(frame: DataFrame) -> dict[str, str]:
    """The columns that come from messages' values, with Spark's names of their types."""
    own = [field for field in frame.schema if field.name not in (*KAFKA_COLUMNS, BAD_MESSAGE)]
    return {field.name: field.dataType.typeName() for field in own}


def _decoded(
    payload: str, schema: str | StructType | None, avro_schema: str | None, select: str | None
) -> tuple[Column, Column]:
    """The message's value as a struct, and whether it could be decoded (for values that are not NULL)."""
    if payload == "json":
        declared = cast(StructType, StructType.fromDDL(schema) if isinstance(schema, str) else schema)
        # With a column for corrupt records, from_json reports them instead of just returning NULLs.
        whole = StructType([*declared.fields]).add(_CORRUPT, "string")
        read = F.from_json(F.col("value").cast("string"), whole, {"columnNameOfCorruptRecord": _CORRUPT})
        return read, F.col("payload").isNotNull() & F.col(f"payload.{_CORRUPT}").isNull()
    if payload == "avro":
        written = json.loads(avro_schema or "")
        # A field with a default, set if the record could be read: from_avro returns NULLs for records it cannot read.
        extra = {"name": _DECODED, "type": "boolean", "default": True}
        read_as = {**written, "fields": [*written["fields"], extra]}
        options = {"mode": "PERMISSIVE", "avroSchema": json.dumps(read_as)}
        read = from_avro(F.col("value"), json.dumps(written), options)
        return read, F.coalesce(F.col(f"payload.{_DECODED}"), F.lit(False))
    return F.expr(f"struct({select or 'value'})"), F.lit(True)


def _check(payload: str, schema: Any, avro_schema: str | None, select: str | None) -> None:
    """Refuse options that are missing or do not fit the payload."""
    if payload not in PAYLOADS:
        raise BadOption(
            f"the payload is {payload!r}",
            detail=f"It is one of {quoted(PAYLOADS)}.",
            hint=did_you_mean(payload, PAYLOADS),
        )
    needed = {"json": ("schema", schema), "avro": ("avro_schema", avro_schema), "raw": ("select", select)}
    for kind, (name, value) in needed.items():
        if kind == payload and value is None and kind != "raw":
            raise BadOption(f"{kind} messages need {name}=...", hint="It says which columns they have.")
        if kind != payload and value is not None:
            raise BadOption(f"{name} is for {kind} messages, and these are {payload}")
    if avro_schema is not None:
        try:
            written = json.loads(avro_schema)
            is_record = written["type"] == "record" and isinstance(written["fields"], list)
        except (ValueError, KeyError, TypeError):
            is_record = False
        if not is_record:
            raise BadOption(
                "the Avro schema is not that of a record", hint='Give JSON: {"type": "record", "fields": [...], ...}.'
            )


def _explained(problem: AnalysisException, payload: str, select: str | None) -> Exception:
    text = str(problem)
    lacks_kafka = "Failed to find" in text and "kafka" in text.lower()
    if lacks_kafka or "AVRO_NOT_LOADED" in text:
        return PackageMissing(
            f"Spark lacks its package for {'Kafka' if lacks_kafka else 'Avro'}",
            hint=f"Start the session with spark.jars.packages={','.join(kafka_packages(payload == 'avro'))}.",
        )
    if select is not None:
        return BadOption(f'Spark cannot read select="{select}"', detail=text.splitlines()[0])
    return problem
