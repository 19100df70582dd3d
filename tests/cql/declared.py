"""The streams that the tests of this folder query, and short ways to look at a plan or an error."""

from __future__ import annotations

import pyarrow as pa
import pytest

from midstream.algebra.stream import Stream
from midstream.cql import parse
from midstream.errors import QueryError

MICROSECONDS = pa.timestamp("us")

BIDS = Stream(
    "bids",
    pa.schema(
        {
            "ts": MICROSECONDS,
            "auction": pa.int64(),
            "price": pa.int64(),
            "bidder": pa.string(),
            "rate": pa.float64(),
            "fee": pa.decimal128(10, 2),
            "small": pa.int16(),
            "day": pa.date32(),
            "ok": pa.bool_(),
            "tags": pa.list_(pa.string()),
        }
    ),
    event_time="ts",
)
AUCTIONS = Stream("auctions", pa.schema({"ts": MICROSECONDS, "id": pa.int64(), "Seller": pa.string()}), "ts")
PEOPLE = Stream("people", pa.schema({"ts": MICROSECONDS, "id": pa.int64(), "name": pa.string()}), "ts")
TICKS = Stream("ticks", pa.schema({"at": pa.int64(), "x": pa.int64(), "y": pa.int64()}), "at")
ZONED = Stream("zoned", pa.schema({"ts": pa.timestamp("us", "UTC"), "x": pa.int64()}), "ts")
STREAMS = [BIDS, AUCTIONS, PEOPLE, TICKS, ZONED]

MARK = "⟦"


def explained(query: str) -> str:
    """The plan of the query as a tree."""
    return parse(query, STREAMS).explain()


def item(expression: str, stream: str = "bids") -> str:
    """The expression as the plan has it, over one stream."""
    first, *_ = explained(f"SELECT {expression} AS it FROM {stream}").split("\n")
    return first.removeprefix("Project ").removesuffix(" AS it")


def type_of(expression: str, stream: str = "bids") -> pa.DataType:
    """The type of the expression over one stream."""
    (field,) = parse(f"SELECT {expression} AS it FROM {stream}", STREAMS).schema
    return field.type


def refusal(marked: str, streams: list[Stream] = STREAMS) -> QueryError:
    """The error of a query whose mark stands where the error must point."""
    assert marked.count(MARK) == 1
    text = marked.replace(MARK, "")
    with pytest.raises(QueryError) as caught:
        parse(text, streams)
    error = caught.value
    assert error.text == text
    assert error.position == marked.index(MARK), str(error)
    return error
