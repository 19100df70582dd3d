"""How far the streams of a query have come in event time, and the watermark that follows from it.

The watermark is the least over all streams of the latest event time seen, less the stream's lateness; it never moves
back. A stream that is silent holds it, until it is declared idle: it then counts for nothing until its next row.

>>> time = EventTime({"orders": 0, "payments": 5})
>>> time.see("orders", 100); time.advance() == BEGINNING
True
>>> time.see("payments", 90); time.advance()
85
>>> time.declare_idle("payments"); time.advance()
100
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.types as pat

from midstream.algebra.stream import TimeDomain
from midstream.algebra.window_spec import BEGINNING, NEVER
from midstream.errors import PushedTypeMismatch
from midstream.runtime.messages import EventTimeProgress

__all__ = ["EventTime", "watermark_ticks"]


class EventTime:
    """The latest event time of each stream, and the watermark. ``lateness`` is in ticks, by stream."""

    def __init__(self, lateness: Mapping[str, int]) -> None:
        self.lateness = dict(lateness)
        self.latest = dict.fromkeys(lateness, BEGINNING)
        self.idle: set[str] = set()
        self.watermark = BEGINNING

    def see(self, stream: str, latest: int) -> None:
        """Note the latest event time among new rows of a stream."""
        self.latest[stream] = max(self.latest[stream], latest)
        self.idle.discard(stream)

    def declare_idle(self, stream: str) -> None:
        """Let the watermark pass without the stream, until its next row."""
        self.idle.add(stream)

    def advance(self, at_least: int = BEGINNING) -> int:
        """Move the watermark: to what the rows say, or to what the caller says if that is later."""
        said = min((self._said(stream) for stream in self.latest if stream not in self.idle), default=BEGINNING)
        self.watermark = max(self.watermark, said, at_least)
        return self.watermark

    def _said(self, stream: str) -> int:
        latest = self.latest[stream]
        return BEGINNING if latest == BEGINNING else max(BEGINNING, latest - self.lateness[stream])

    def progress(self) -> EventTimeProgress:
        """For ``restore``."""
        return EventTimeProgress(latest=dict(self.latest), idle=sorted(self.idle), watermark=self.watermark)

    def restore(self, progress: EventTimeProgress) -> None:
        """Continue from there."""
        self.latest.update(progress.latest)
        self.idle = set(progress.idle)
        self.watermark = progress.watermark


def watermark_ticks(watermark: int | datetime.datetime | None, domain: TimeDomain) -> int | None:
    """A watermark that a caller gives, in ticks; raises if it does not fit the event times."""
    if watermark is None:
        return None
    if isinstance(watermark, int) and not isinstance(watermark, bool):
        if not BEGINNING < watermark < NEVER:
            raise PushedTypeMismatch(
                f"the watermark {watermark} is outside int64 ticks", hint="Use finish() to end the streams."
            )
        return watermark
    if isinstance(watermark, datetime.datetime) and pat.is_timestamp(domain.type):
        zones_agree = (watermark.tzinfo is None) == (domain.type.tz is None)
        if zones_agree:
            return int(pa.scalar(watermark, pa.timestamp("us", domain.type.tz)).value)
    raise PushedTypeMismatch(
        f"the watermark {watermark!r} does not fit event times of type {domain.type}",
        hint="Give ticks, or a datetime with a time zone exactly if the event times have one.",
    )
