"""The headers of a result's message: which query, which micro-batch, and a number in it.

``midstream-query`` is Spark's id of the streaming query, which stays with its checkpoint. ``midstream-batch`` is the
micro-batch, counted from 0. ``midstream-result`` is unique within the micro-batch: its upper bits are the Spark
partition that computed the result, its lower 33 bits the position among that partition's results. It is stored with the
result before anything is sent, so each copy has the same number (``spark/kafka_sink``).

>>> result_id([("midstream-query", b"9f7c"), ("midstream-batch", b"4"), ("midstream-result", b"17")])
ResultId(query='9f7c', batch=4, number=17)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from midstream.errors import MalformedMessage

__all__ = ["BATCH", "NUMBER", "QUERY", "ResultId", "result_id"]

QUERY = "midstream-query"
BATCH = "midstream-batch"
NUMBER = "midstream-result"


class ResultId(NamedTuple):
    """Identifies a result: equal for all copies of it, different for different results."""

    query: str
    batch: int
    number: int


def result_id(headers: Iterable[tuple[str, bytes]] | None) -> ResultId:
    """The id of a result, from the headers of its message in the form that Kafka's Python clients return."""
    found = {name: value for name, value in headers or () if name in (QUERY, BATCH, NUMBER)}
    try:
        return ResultId(found[QUERY].decode(), int(found[BATCH]), int(found[NUMBER]))
    except (KeyError, ValueError, TypeError, AttributeError):
        raise MalformedMessage(
            "a message lacks the headers of a result",
            detail=f"It has {', '.join(f'{name}={value!r}' for name, value in found.items()) or 'none of them'}.",
            hint="Was it written by write_kafka, or midstream run --sink kafka:...?",
        ) from None
