"""Running on Spark: the only folder that knows pyspark.

``query.run_on_spark(frames)`` gives a :class:`LiveQuery`; :func:`stream` declares a stream by a DataFrame, a
:class:`FileStream` is one of files that midstream reads itself, and :func:`session` makes a session with the settings
that suit. :func:`read_kafka` gives the messages of a Kafka topic as a DataFrame, :func:`bad_messages` those that could
not be read, and :func:`write_dead_letters` keeps them.
"""

from typing import TYPE_CHECKING

from midstream.lazy_names import lazy_names

# Imported at once: the submodule of the same name would hide it.
from midstream.spark.session import session

if TYPE_CHECKING:
    from midstream.spark.dead_letters import write_dead_letters
    from midstream.spark.file_stream import FileStream
    from midstream.spark.kafka_source import bad_messages, read_kafka
    from midstream.spark.live_query import LiveQuery
    from midstream.spark.spark_types import stream

__all__ = ["FileStream", "LiveQuery", "bad_messages", "read_kafka", "session", "stream", "write_dead_letters"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "FileStream": "midstream.spark.file_stream",
        "LiveQuery": "midstream.spark.live_query",
        "bad_messages": "midstream.spark.kafka_source",
        "read_kafka": "midstream.spark.kafka_source",
        "stream": "midstream.spark.spark_types",
        "write_dead_letters": "midstream.spark.dead_letters",
    },
)
