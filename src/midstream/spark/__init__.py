"""Running on Spark: the only folder that knows pyspark.

``query.run_on_spark(frames)`` gives a :class:`LiveQuery`; :func:`stream` declares a stream by a DataFrame, and
:func:`session` makes a session with the settings that suit.
"""

from midstream.spark.file_stream import FileStream
from midstream.spark.live_query import LiveQuery
from midstream.spark.session import session
from midstream.spark.spark_types import stream

__all__ = ["FileStream", "LiveQuery", "session", "stream"]
