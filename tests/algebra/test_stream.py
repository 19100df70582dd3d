"""Declarations of streams."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from midstream.algebra.stream import Stream
from midstream.errors import BadStreamDeclaration

STAMPED = pa.schema({"ts": pa.timestamp("us"), "price": pa.int64()})
COUNTED = pa.schema({"n": pa.int32(), "price": pa.int64()})


@pytest.mark.parametrize(
    ("schema", "event_time", "lateness", "ticks"),
    [
        (STAMPED, "ts", 0, 0),
        (STAMPED, "ts", "30 seconds", 30_000_000),
        (STAMPED, "ts", "1 WEEK", 604_800_000_000),
        (STAMPED, "ts", "5 milliseconds", 5_000),
        (STAMPED, "ts", datetime.timedelta(minutes=1), 60_000_000),
        (COUNTED, "n", 7, 7),
    ],
)
def test_lateness_in_ticks(schema: pa.Schema, event_time: str, lateness: Any, ticks: int) -> None:
    assert Stream("bids", schema, event_time, lateness).lateness_ticks == ticks


@pytest.mark.parametrize(
    ("schema", "event_time", "lateness", "message"),
    [
        ({"ts": "int64"}, "ts", 0,
         "[M1011] the schema of stream \"bids\" is a dict, not a pyarrow schema\n"
         "  hint: Write pa.schema({'ts': pa.timestamp('us'), ...})."),
        (STAMPED, "tss", 0,
         '[M1011] event time column "tss" does not exist in stream "bids"\n'
         '  detail: The stream has the columns "ts", "price".\n  hint: Did you mean "ts"?'),
        (pa.schema({"ts": pa.string()}), "ts", 0,
         '[M1011] event time column "ts" of stream "bids" is of type string\n'
         "  hint: Event times are timestamps or whole numbers."),
        (pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("x", pa.int64())]), "ts", 0,
         '[M1011] stream "bids" declares "x" more than once'),
        (STAMPED, "ts", "soon",
         '[M1011] cannot read lateness "soon" of stream "bids"\n'
         '  hint: Give "30 seconds" or a timedelta.'),
        (STAMPED, "ts", 1.5,
         '[M1011] lateness 1.5 of stream "bids" is not a duration\n'
         '  hint: Give "30 seconds" or a timedelta.'),
        (STAMPED, "ts", True,
         '[M1011] lateness True of stream "bids" is not a duration\n'
         '  hint: Give "30 seconds" or a timedelta.'),
        (COUNTED, "n", -1, '[M1011] lateness of stream "bids" is -1\n  hint: Give 0 or more.'),
        (STAMPED, "ts", 5,
         '[M1011] lateness 5 of stream "bids" does not fit its event time\n'
         '  detail: Event time "ts" is of type timestamp[us].\n'
         '  hint: Give "30 seconds" or a timedelta.'),
        (COUNTED, "n", "5 seconds",
         '[M1011] lateness \'5 seconds\' of stream "bids" does not fit its event time\n'
         '  detail: Event time "n" is of type int32.\n'
         '  hint: Give a whole number: the event time is one.'),
    ],
)  # fmt: skip
def test_bad_declarations_are_refused(schema: Any, event_time: str, lateness: Any, message: str) -> None:
    with pytest.raises(BadStreamDeclaration) as raised:
        Stream("bids", schema, event_time, lateness)
    assert str(raised.value) == message


def test_time_domain() -> None:
    assert Stream("bids", STAMPED, "ts").time_domain.type == pa.timestamp("us")
    assert Stream("bids", COUNTED, "n").time_domain.type == pa.int64()
    zoned = pa.schema({"ts": pa.timestamp("ns", "Europe/Berlin")})
    assert Stream("bids", zoned, "ts").time_domain.type == pa.timestamp("us", "Europe/Berlin")


def test_encoded_columns_have_the_type_of_their_values() -> None:
    schema = pa.schema({"ts": pa.int64(), "kind": pa.dictionary(pa.int32(), pa.string())})
    assert Stream("bids", schema, "ts").column_type("kind") == pa.string()
