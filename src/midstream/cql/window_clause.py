"""Windows: from brackets in the text to a :class:`WindowSpec` that fits the stream's event time."""

from __future__ import annotations

from sqlglot import exp

from midstream.algebra.stream import Stream
from midstream.algebra.types import type_name
from midstream.algebra.window_spec import NEVER, WindowSpec
from midstream.cql.dialect import Length, StreamReference, start
from midstream.cql.literals import unit_microseconds
from midstream.errors import BadWindow, QueryError

__all__ = ["window_spec"]


def window_spec(reference: StreamReference, stream: Stream, text: str) -> WindowSpec:
    """The window of a stream in FROM; without brackets its rows are valid for ever."""
    node = reference.window
    if node is None:
        return WindowSpec(None, declared=False)
    try:
        if node.kind == "NOW":
            return WindowSpec(0)
        if node.slide is not None and node.width is None:
            raise BadWindow("a window that never ends cannot slide", hint="Write [RANGE UNBOUNDED].")
        slide = None if node.slide is None else _ticks(node.slide, stream, text)
        return WindowSpec(None if node.width is None else _ticks(node.width, stream, text), slide)
    except QueryError as error:
        raise error.at(text, start(node)) from None


def _ticks(length: Length, stream: Stream, text: str) -> int:
    amount, unit = length.amount, length.unit
    try:
        if not amount.isdecimal():
            raise BadWindow(f"the length {amount} is not a whole number", hint="Give the length in a smaller unit.")
        _check_unit(unit, amount, stream)
        # Python refuses to read thousands of digits; forty are too many already.
        ticks = int(amount.lstrip("0")[:40] or 0) * (
            1 if unit is None else unit_microseconds(str(unit.this), start(unit))
        )
        if ticks >= NEVER:
            raise BadWindow("the window is too long", hint="Write [RANGE UNBOUNDED] for rows that stay for ever.")
        return ticks
    except QueryError as error:
        error.text = text
        if error.position is None:
            error.position = start(length)
        raise


def _check_unit(unit: exp.Expr | None, amount: str, stream: Stream) -> None:
    is_timestamp = stream.time_domain.timestamp is not None
    if is_timestamp == (unit is not None):
        return
    event_type = type_name(stream.column_type(stream.event_time))
    detail = f'Its event time "{stream.event_time}" is of type {event_type}.'
    if is_timestamp:
        message = f'the window of stream "{stream.name}" needs a unit of time'
        raise BadWindow(message, detail=detail, hint=f"Write a unit, as in [RANGE {amount[:20]} SECONDS].")
    message = f'the window of stream "{stream.name}" cannot have a unit of time'
    raise BadWindow(message, detail=detail, hint=f"Write the number alone: [RANGE {amount[:20]}].")
