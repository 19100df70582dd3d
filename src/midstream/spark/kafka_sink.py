"""The Kafka sink: each result becomes a message, with headers by which a consumer drops repeats.

    results of a micro-batch ─▶ JSON, numbered ─▶ files in the checkpoint ─▶ messages with headers ─▶ files removed

A micro-batch that Spark runs again is sent again: at least once. The messages must be the same each time, or a consumer
could not recognise repeats. Equivalent results are not enough: a query that recovers may split the validity of a result
at different times (for example a DISTINCT over a join), so half of one attempt and half of another do not fit together.
Hence a micro-batch's messages are stored before the first of them is sent, and always sent from there; computing them
again only restores the state. If two drivers run on one checkpoint by mistake, both send the messages that one of them
has stored. Keys do not change either, so copies go to the same partition of the topic.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from midstream.errors import BadOption, DuplicateName, did_you_mean, quoted
from midstream.kafka.result_headers import BATCH, NUMBER, QUERY
from midstream.kafka.topic import KafkaTopic
from midstream.spark.catalyst import column_name
from midstream.spark.file_systems import exists, file_names, read_text, remove, write_once

__all__ = ["JSON_OPTIONS", "KafkaSink", "kafka_options"]

JSON_OPTIONS = {
    # Spark writes milliseconds and leaves out NULLs by default.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}
"""How results, and dead letters, are written as JSON."""
_UNSAFE = ("kafka.partitioner.class", "kafka.partitioner.ignore.keys")
"""Producer options with which equal keys may go to different partitions."""
_STORED = "number long, key string, value string"
"""The columns of stored messages."""
_CHOSEN = "chosen"
"""The file that names the attempt whose messages are sent; it is written once, when they are complete."""


class KafkaSink:
    """A function for ``foreachBatch``: sends the results of a micro-batch."""

    def __init__(
        self,
        topic: KafkaTopic,
        columns: Sequence[str],
        checkpoint: str,
        key: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        if len(set(columns)) < len(columns):
            repeated = sorted({name for name in columns if list(columns).count(name) > 1})
            raise DuplicateName(
                f"a message cannot have two columns with the name {quoted(repeated[:1])}",
                hint="Give them different names in the select list: expression AS name.",
            )
        if key is not None and key not in columns:
            raise BadOption(
                f'the key "{key}" is not a column of the results',
                detail=f"They have the columns {quoted(columns)}.",
                hint=did_you_mean(str(key), columns),
            )
        self._columns = columns
        self._folder = f"{checkpoint}/kafka_results"
        self._key = key
        if options is not None and not isinstance(options, Mapping):
            raise BadOption(f"options is {options!r}", hint='Give a dict: {"kafka.compression.type": "zstd"}.')
        for name in options or {}:
            if name.lower() in _UNSAFE:
                raise BadOption(
                    f"the option {name} cannot be used for results",
                    detail="With it, copies of a result may go to other partitions, where they cannot be told apart.",
                    hint="Leave it out; Spark's own Kafka sink takes it.",
                )
        self._options = kafka_options(topic, options)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        spark = frame.sparkSession
        query = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query is not None, "Spark tells which streaming query a micro-batch is of"
        place = f"{self._folder}/{batch}"
        chosen = f"{place}/{_CHOSEN}"
        if exists(spark, chosen):
            # Spark did not commit the micro-batch: its state must be computed again.
            frame.write.format("noop").mode("overwrite").save()
        else:
            attempt = uuid.uuid4().hex
            self._numbered(frame).write.parquet(f"{place}/{attempt}")
            write_once(spark, chosen, attempt)
        stored = spark.read.schema(_STORED).parquet(f"{place}/{read_text(spark, chosen)}")
        self._send(_messages(stored, query, batch))
        # Earlier micro-batches are committed.
        for name in file_names(spark, self._folder):
            if int(name) < batch:
                remove(spark, f"{self._folder}/{name}")

    def _send(self, messages: DataFrame) -> None:
        messages.write.format("kafka").options(**self._options).save()

    def _numbered(self, frame: DataFrame) -> DataFrame:
        """Results as they are stored, with their numbers."""
        value = F.to_json(F.struct(*map(column_name, self._columns)), JSON_OPTIONS)
        key = F.lit(None) if self._key is None else F.col(column_name(self._key))
        # The number of the partition in the upper bits, the position within it in the lower ones.
        number = F.monotonically_increasing_id()
        return frame.select(number.alias("number"), key.cast("string").alias("key"), value.alias("value"))


def kafka_options(topic: KafkaTopic, options: Mapping[str, str] | None = None) -> dict[str, str]:
    """The options of Spark's Kafka sink, with the topic."""
    return {**(options or {}), "kafka.bootstrap.servers": topic.servers, "topic": topic.topic}


def _messages(stored: DataFrame, query: str, batch: int) -> DataFrame:
    """Stored messages in the form that Spark's Kafka sink accepts."""
    number = F.col("number").cast("string")
    headers = F.array(_header(QUERY, F.lit(query)), _header(BATCH, F.lit(str(batch))), _header(NUMBER, number))
    key = F.coalesce(F.col("key"), F.concat(F.lit(f"{query}/{batch}/"), number))
    return stored.select(key.alias("key"), "value", headers.alias("headers"))


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))
