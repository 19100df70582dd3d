"""Text to algebra: the query language and its checks.

>>> import pyarrow as pa
>>> bids = Stream("bids", pa.schema({"ts": pa.int64(), "price": pa.int64()}), event_time="ts")
>>> print(parse("SELECT price FROM bids [RANGE 10] WHERE price > 3", [bids]))
Project bids.price AS price
└─ Select bids.price > 3
   └─ Window bids [RANGE 10]
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.errors import SqlglotError

from midstream.algebra.plan import Plan
from midstream.algebra.stream import Stream
from midstream.cql.binder import Binder
from midstream.cql.cursor import check_text
from midstream.cql.dialect import Cql
from midstream.errors import BadStreamDeclaration, NotSupported, ParseError

__all__ = ["parse"]


def parse(text: str, streams: Sequence[Stream]) -> Plan:
    """The plan a query means, over the declared streams; a :class:`QueryError` where it means none.

    Whether the plan keeps state that never ends is another question: see ``algebra/bounded_state``.
    """
    declared: dict[str, Stream] = {}
    for stream in streams:
        if declared.setdefault(stream.name, stream) is not stream:
            raise BadStreamDeclaration(f'two streams are called "{stream.name}"')
    check_text(text)
    try:
        (query,) = Cql().parse(text)
        assert query is not None
        return Binder(text, declared).plan(query)
    except SqlglotError as error:
        raise ParseError("cannot read the query", detail=str(error), text=text, position=0) from None
    except RecursionError:
        raise NotSupported("the query is nested too deeply", text=text, position=0) from None
