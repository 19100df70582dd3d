"""Late rows, and what is counted of a stream's rows: the same locally and in the cells of a Spark query.

A row is late if it is older than the watermark that was in force before its batch. Late rows are dropped and counted.
On Spark a row may be sent to several cells: each counts it as late, and :meth:`StreamCounters.over_cells` divides by
the number of copies. A stream that a query reads in several windows is counted in one of them (:func:`counted_in`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from midstream.algebra.plan import Plan
from midstream.engine.kernels import Flags, Ints

__all__ = ["StreamCounters", "counted_in", "in_time"]


class StreamCounters(msgspec.Struct, forbid_unknown_fields=True):
    """What happened to a stream's rows."""

    rows: int = 0
    without_event_time: int = 0
    event_time_out_of_range: int = 0
    late: int = 0
    bad_messages: int = 0
    """Rows of a source that could not be read as what the stream declares: see ``spark/kafka_source``."""

    @property
    def in_time(self) -> int:
        """The rows that have an event time that counts, and are not late."""
        dropped = self.without_event_time + self.event_time_out_of_range + self.late + self.bad_messages
        return self.rows - dropped

    def count(self, rows: int, without_event_time: int, event_time_out_of_range: int, bad_messages: int = 0) -> None:
        """Count the rows of one batch, late ones included."""
        self.rows += rows
        self.without_event_time += without_event_time
        self.event_time_out_of_range += event_time_out_of_range
        self.bad_messages += bad_messages

    def count_late(self, timely: Flags, among: Flags | None = None) -> None:
        """Count the rows that are not in time, among those that have an event time if that is given."""
        late = ~timely if among is None else among & ~timely
        self.late += int(np.count_nonzero(late))

    @classmethod
    def over_cells(cls, cells: Sequence[StreamCounters], copies: int) -> StreamCounters:
        """The counters of a whole query: every cell knows of all rows, and counts the late ones it was sent."""
        return cls(
            max((counters.rows for counters in cells), default=0),
            max((counters.without_event_time for counters in cells), default=0),
            max((counters.event_time_out_of_range for counters in cells), default=0),
            sum(counters.late for counters in cells) // copies,
            max((counters.bad_messages for counters in cells), default=0),
        )


def in_time(times: Ints, watermark: int) -> Flags:
    """Which rows are not late, by the watermark that was in force before their batch."""
    return times >= watermark


def counted_in(default_plan: Plan) -> dict[str, str]:
    """By stream, the window whose late rows are counted: one, because its rows may go to other cells in another."""
    counted: dict[str, str] = {}
    for window in default_plan.windows():
        counted.setdefault(window.stream.name, window.identity)
    return counted
