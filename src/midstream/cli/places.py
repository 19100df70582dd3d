"""Places of sources and sinks: paths on this machine or on a file system that only Spark can access, and topics."""

from __future__ import annotations

from midstream.errors import BadArgument, BadOption
from midstream.kafka.topic import KafkaTopic

__all__ = ["checked_topic", "is_remote"]


def is_remote(path: str) -> bool:
    """Whether only Spark can access the path: anything with a scheme, even ``file:``."""
    return "://" in path or path.startswith(("hdfs:", "file:"))


def checked_topic(text: str, refusal: str, hint: str) -> str:
    """A topic, written as ``HOST:PORT/TOPIC``; what is not one is refused in these words."""
    try:
        return str(KafkaTopic.parse(text))
    except BadOption as problem:
        raise BadArgument(refusal, detail=problem.detail, hint=hint) from None
