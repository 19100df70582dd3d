"""A stream's declaration: name, schema, which column is the event time, how late a row may come.

>>> schema = pa.schema({"ts": pa.timestamp("us"), "price": pa.int64()})
>>> Stream("bids", schema, event_time="ts", lateness="30 seconds").lateness_ticks
30000000
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.types as pat

from midstream.algebra.durations import UNIT_MICROSECONDS, duration_text
from midstream.algebra.types import dense_type, type_name
from midstream.algebra.window_spec import NEVER
from midstream.errors import BadStreamDeclaration, did_you_mean, quoted

__all__ = ["Stream", "TimeDomain"]


@dataclass(frozen=True)
class TimeDomain:
    """What a tick is: None for integer event times, else microseconds shown as this timestamp type."""

    timestamp: pa.DataType | None

    @property
    def type(self) -> pa.DataType:
        """The type of ``valid_from`` and ``valid_to``."""
        return pa.int64() if self.timestamp is None else self.timestamp

    def length(self, ticks: int) -> str:
        """So many ticks as query text."""
        return str(ticks) if self.timestamp is None else duration_text(ticks)


@dataclass(frozen=True)
class Stream:
    """A stream as the user declares it. ``lateness``: ticks for integer event times, else text or timedelta."""

    name: str
    schema: pa.Schema
    event_time: str
    lateness: int | str | datetime.timedelta = 0
    lateness_ticks: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        for what, name in (("name", self.name), ("event time column", self.event_time)):
            if not isinstance(name, str):
                raise BadStreamDeclaration(
                    f"the {what} of a stream is of type {type(name).__name__}, not text",
                    hint='Write Stream("orders", schema, event_time="ts").',
                )
        if not isinstance(self.schema, pa.Schema):
            raise BadStreamDeclaration(
                f'the schema of stream "{self.name}" is a {type(self.schema).__name__}, not a pyarrow schema',
                hint="Write pa.schema({'ts': pa.timestamp('us'), ...}).",
            )
        names = list(self.schema.names)
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise BadStreamDeclaration(f'stream "{self.name}" declares {quoted(repeated)} more than once')
        if self.event_time not in names:
            raise BadStreamDeclaration(
                f'event time column "{self.event_time}" does not exist in stream "{self.name}"',
                detail=f"The stream has the columns {quoted(names)}.",
                hint=did_you_mean(self.event_time, names),
            )
        event_type = self.column_type(self.event_time)
        if not (pat.is_timestamp(event_type) or pat.is_integer(event_type)):
            raise BadStreamDeclaration(
                f'event time column "{self.event_time}" of stream "{self.name}" is of type {type_name(event_type)}',
                hint="Event times are timestamps or whole numbers.",
            )
        object.__setattr__(self, "lateness_ticks", self._lateness_ticks())

    def column_type(self, name: str) -> pa.DataType:
        """The column's type without an encoding."""
        return dense_type(self.schema.field(name).type)

    @property
    def time_domain(self) -> TimeDomain:
        event_type = self.column_type(self.event_time)
        if pat.is_timestamp(event_type):
            return TimeDomain(pa.timestamp("us", event_type.tz))
        return TimeDomain(None)

    def _lateness_ticks(self) -> int:
        is_timestamp = self.time_domain.timestamp is not None
        lateness = self.lateness
        hint = 'Give "30 seconds" or a timedelta.' if is_timestamp else "Give a whole number: the event time is one."
        if isinstance(lateness, bool) or not isinstance(lateness, int | str | datetime.timedelta):
            raise BadStreamDeclaration(f'lateness {lateness!r} of stream "{self.name}" is not a duration', hint=hint)
        if isinstance(lateness, str):
            matched = re.fullmatch(r"\s*(\d+)\s*([a-zA-Z]+?)[sS]?\s*", lateness)
            if matched is None or matched[2].upper() not in UNIT_MICROSECONDS:
                raise BadStreamDeclaration(
                    f'cannot read lateness "{lateness}" of stream "{self.name}"',
                    hint=hint,
                )
            ticks = int(matched[1]) * UNIT_MICROSECONDS[matched[2].upper()]
        elif isinstance(lateness, datetime.timedelta):
            ticks = lateness // datetime.timedelta(microseconds=1)
        else:
            ticks = lateness
        if not 0 <= ticks < NEVER:
            raise BadStreamDeclaration(f'lateness of stream "{self.name}" is {lateness!r}', hint="Give 0 or more.")
        if ticks and isinstance(lateness, int) == is_timestamp:
            raise BadStreamDeclaration(
                f'lateness {lateness!r} of stream "{self.name}" does not fit its event time',
                detail=f'Event time "{self.event_time}" is of type {type_name(self.column_type(self.event_time))}.',
                hint=hint,
            )
        return ticks
