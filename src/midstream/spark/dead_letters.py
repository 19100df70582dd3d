"""Dead letters: bad messages, written to a topic or to files, by a streaming query of their own.

It reads the topics once more and has a checkpoint of its own, so that the query that uses the good messages does not
depend on what it has written. In a topic, a dead letter has the message's key and value as they were, and headers that
say where it was and what is wrong with it. Files are JSON lines; each dead letter is in them once, and in a topic at
least once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from midstream.kafka.topic import KafkaTopic
from midstream.spark.checkpoints import checked_checkpoint
from midstream.spark.kafka_sink import JSON_OPTIONS, kafka_options
from midstream.spark.kafka_source import bad_messages

__all__ = ["write_dead_letters"]


def write_dead_letters(
    frames: Sequence[DataFrame],
    place: str | os.PathLike[str] | KafkaTopic,
    checkpoint: str | os.PathLike[str],
    options: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Write the bad messages of DataFrames of ``read_kafka`` to a topic (``kafka:HOST:PORT/TOPIC``) or a directory."""
    found = reduce(DataFrame.union, [bad_messages(frame) for frame in frames])
    text = str(place)
    if isinstance(place, KafkaTopic) or text.startswith("kafka:"):
        topic = KafkaTopic.parse(text.removeprefix("kafka:"))
        sent = found.select("key", "value", _headers().alias("headers"))
        writer = sent.writeStream.format("kafka").options(**kafka_options(topic, options))
    else:
        names = ("topic", "partition", "offset", "timestamp", "reason")
        readable = [*map(F.col, names), *_texts("key"), *_texts("value")]
        writer = found.select(*readable).writeStream.format("json").options(**JSON_OPTIONS, path=text)
    return writer.option("checkpointLocation", checked_checkpoint(checkpoint)).start()


def _headers() -> Column:
    """What a dead letter says of itself."""
    names = ("reason", "topic", "partition", "offset", "timestamp")
    return F.array(
        *(
            F.struct(F.lit(f"midstream-{name}").alias("key"), _text(name).cast("binary").alias("value"))
            for name in names
        )
    )


def _text(name: str) -> Column:
    """As text; a timestamp with its time zone, as in files."""
    if name == "timestamp":
        return F.date_format(name, JSON_OPTIONS["timestampFormat"])
    return F.col(name).cast("string")


def _texts(name: str) -> list[Column]:
    """Bytes as text, where they are one, and in base 64."""
    text = F.col(name).cast("string")
    return [
        F.when(F.expr(f"is_valid_utf8(CAST({name} AS STRING))"), text).alias(name),
        F.base64(name).alias(f"{name}_base64"),
    ]
