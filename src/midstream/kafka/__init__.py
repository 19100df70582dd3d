"""Kafka, without Spark: how topics are named, which headers results have, and how a consumer drops repeats.

    messages ─▶ spark/kafka_source (decodes them) ─▶ query ─▶ spark/kafka_sink ─▶ messages with headers ─▶ consumer

Results are written at least once: a micro-batch that is run again after a crash is sent again. Each result carries the
query, the micro-batch and a number in it (``result_headers``), the same each time; a :class:`RepeatFilter` drops the
copies. See ``docs/kafka.md``.
"""

from midstream.kafka.repeats import RepeatFilter
from midstream.kafka.result_headers import ResultId, result_id
from midstream.kafka.topic import KafkaTopic

__all__ = ["KafkaTopic", "RepeatFilter", "ResultId", "result_id"]
