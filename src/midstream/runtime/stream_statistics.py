"""Statistics of the streams of a running query, derived from what is counted anyway.

A :class:`StreamMeter` is told what was counted until now, after every push or micro-batch: the rows of the streams and
how far they are in event time, and the rows that entered the windows. Differences over the latest of them give rates
and shares. The same in this process and in the driver of a query on Spark, where cells count, and the driver adds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from midstream.algebra.plan import Plan, Window
from midstream.algebra.window_spec import BEGINNING
from midstream.planning.cost.statistics import StreamStatistics
from midstream.runtime.stream_counters import StreamCounters

__all__ = ["MOST_PUSHES", "StreamMeter", "StreamsSeen"]

MOST_PUSHES = 64
"""Pushes or micro-batches that the statistics are about, the latest ones."""
_TICKS_PER_SECOND = 1_000_000


@dataclass(frozen=True)
class StreamsSeen:
    """What was counted of a query's streams until some moment. Nobody may change it afterwards."""

    streams: Mapping[str, StreamCounters] = field(default_factory=dict)
    latest: Mapping[str, int] = field(default_factory=dict)
    """By stream: the latest event time, in ticks."""
    received: Mapping[str, float] = field(default_factory=dict)
    """By the fingerprint of a window: how many different rows have entered it. Conditions on one stream alone stand
    right above its window in every plan, and are applied before that."""


class StreamMeter:
    """Remembers what was counted over the latest pushes."""

    def __init__(self) -> None:
        self._seen: deque[StreamsSeen] = deque(maxlen=MOST_PUSHES + 1)

    def note(self, seen: StreamsSeen, is_same_push: bool = False) -> None:
        """So much was counted after a push or a micro-batch; or after the same as last time, of which more is known."""
        if is_same_push and self._seen:
            self._seen.pop()
        self._seen.append(seen)

    def statistics(self, plan: Plan) -> tuple[StreamStatistics, ...]:
        """Of each window of the plan in force; after the first push, since the beginning."""
        # Another thread may note something meanwhile.
        span = list(self._seen)
        return tuple(_of(window, span) for window in plan.windows()) if span else ()


def _of(window: Window, span: Sequence[StreamsSeen]) -> StreamStatistics:
    name, now, before = window.stream.name, span[-1], span[0] if len(span) > 1 else StreamsSeen()
    counted, earlier = (seen.streams.get(name) or StreamCounters() for seen in (now, before))
    rows, late = counted.rows - earlier.rows, counted.late - earlier.late
    in_time = counted.in_time - earlier.in_time
    entered = now.received.get(window.fingerprint, 0) - before.received.get(window.fingerprint, 0)
    is_known = in_time > 0 and window.fingerprint in now.received
    return StreamStatistics(
        alias=window.alias,
        stream=name,
        rows=rows,
        rate=_rate(window, span),
        late_share=late / rows if rows else 0.0,
        selectivity=min(1.0, entered / in_time) if is_known else None,
    )


def _rate(window: Window, span: Sequence[StreamsSeen]) -> float | None:
    """Rows in time per unit of event time, since the first push after which the stream had an event time."""
    name, now = window.stream.name, span[-1]
    before = next((seen for seen in span if seen.latest.get(name, BEGINNING) != BEGINNING), now)
    ticks = now.latest.get(name, BEGINNING) - before.latest.get(name, BEGINNING)
    if ticks <= 0:
        return None
    rows = now.streams[name].in_time - before.streams[name].in_time
    return rows / ticks * (1 if window.time_domain.timestamp is None else _TICKS_PER_SECOND)
