"""The Kafka sink: each result a message, with headers by which a consumer drops repeats.

    results of a micro-batch ─▶ JSON ─▶ sorted in each partition, numbered ─▶ messages with headers

A micro-batch that Spark runs again is sent again: at least once. The numbers are the same each time, because results
are sorted before they are numbered (``midstream.kafka.result_headers``): however the rows of a micro-batch were
ordered, its results are the same. A message's key does not change either, so that copies go to the same partition of
the topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from midstream.errors import BadOption, DuplicateName, did_you_mean, quoted
from midstream.kafka.result_headers import BATCH, NUMBER, QUERY
from midstream.kafka.topic import KafkaTopic

__all__ = ["JSON_OPTIONS", "KafkaSink", "kafka_options"]

JSON_OPTIONS = {
    # Spark writes milliseconds and leaves out NULLs by default.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}
"""How results, and dead letters, are written as JSON."""


class KafkaSink:
    """A function for ``foreachBatch``: sends the results of a micro-batch."""

    def __init__(
        self,
        topic: KafkaTopic,
        columns: Sequence[str],
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
                hint=did_you_mean(key, columns),
            )
        self._topic = topic
        self._columns = columns
        self._key = key
        self._options = kafka_options(topic, options)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        query = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query is not None, "Spark tells which streaming query a micro-batch is of"
        self.messages(frame, query, batch).write.format("kafka").options(**self._options).save()

    def messages(self, frame: DataFrame, query: str, batch: int) -> DataFrame:
        """The results of a micro-batch as Spark's Kafka sink takes them."""
        columns = [_quoted(name) for name in self._columns]
        value = F.to_json(F.struct(*columns), JSON_OPTIONS)
        key = F.lit(None).cast("string") if self._key is None else F.col(_quoted(self._key)).cast("string")
        sent = frame.select(F.col("valid_from").alias("time"), key.alias("key"), value.alias("value"))
        # The partition's number in the upper bits, the place in it in the lower ones.
        numbered = sent.sortWithinPartitions("time", "value").withColumn("number", F.monotonically_increasing_id())
        number = F.col("number").cast("string")
        headers = F.array(_header(QUERY, F.lit(query)), _header(BATCH, F.lit(str(batch))), _header(NUMBER, number))
        key = F.concat(F.lit(f"{query}/{batch}/"), number) if self._key is None else F.col("key")
        return numbered.select(key.alias("key"), "value", headers.alias("headers"))


def kafka_options(topic: KafkaTopic, options: Mapping[str, str] | None = None) -> dict[str, str]:
    """The options of Spark's Kafka sink, with the topic."""
    return {**(options or {}), "kafka.bootstrap.servers": topic.servers, "topic": topic.topic}


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
