"""Dead letters: bad messages, written to a topic or to files by a separate streaming query.

It reads the topics once more and has its own checkpoint, so the query over the good messages does not depend on it. In
a topic, a dead letter has the message's original key and value, and headers with its origin and the reason. Files are
JSON lines. Each dead letter is in the files once, in a topic at least once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from midstream.errors import BadOption
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
    if not frames:
        raise BadOption(
            "there are no DataFrames whose bad messages are to be written", hint="Give those of read_kafka."
        )
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
    """The headers of a dead letter."""
    names = ("reason", "topic", "partition", "offset", "timestamp")
    return F.array(
        *(
            F.struct(F.lit(f"midstream-{name}").alias("key"), _text(name).cast("binary").alias("value"))
            for name in names
        )
    )


def _text(name: str) -> Column:
    """A column as text; a timestamp with its time zone, as in files."""
    if name == "timestamp":
        return F.date_format(name, JSON_OPTIONS["timestampFormat"])
    return F.col(name).cast("string")


def _texts(name: str) -> list[Column]:
    """Bytes as text, if they are valid UTF-8, and in Base64."""
    text = F.col(name).cast("string")
    return [
        F.when(F.expr(f"is_valid_utf8(CAST({name} AS STRING))"), text).alias(name),
        F.base64(name).alias(f"{name}_base64"),
    ]
