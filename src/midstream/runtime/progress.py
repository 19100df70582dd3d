"""What the driver knows of a running query: the figures that its cells send with each micro-batch, put together.

Cells report the outcome of every command with every batch, so that a figure that was lost (the driver died) comes again
with the next one. A row that was sent to several cells is late in each of them (see ``stream_counters``).
"""

from __future__ import annotations

import threading
import time
from collections import deque

import msgspec

from midstream.algebra.plan import Plan
from midstream.algebra.window_spec import BEGINNING, NEVER
from midstream.planning.partitioning import Partitioning
from midstream.runtime.messages import (
    CellFigures,
    CellMigration,
    ClusterMetrics,
    Counts,
    OperatorFigures,
    PlanJson,
    Rates,
    RunMetrics,
)
from midstream.runtime.stream_counters import StreamCounters, counted_in
from midstream.runtime.stream_statistics import StreamsSeen

__all__ = ["Progress", "RateMeter"]

_ADDED = [
    *(name for name in Counts.__struct_fields__ if name != "operators"),
    "segments",
    "segment_rows",
    "bytes_written",
]
"""What the metrics of a query are the sums of."""


class Progress:
    """The latest figures of every cell. Thread-safe: Spark reports from a thread of its own.

    ``directory`` is the mark of the control directory whose commands are meant (see ``control``).
    """

    def __init__(self, plan: Plan, partitioning: Partitioning, directory: str = "") -> None:
        self._lock = threading.Lock()
        self._cells: dict[int, CellFigures] = {}
        self._plans: dict[int, PlanJson | None] = {}
        self._outcomes: dict[int, dict[int, CellMigration]] = {}
        self.cells = partitioning.cells
        self._rebuilds = 0
        self._query: str | None = None
        self._latest_outcome = 0
        self._copies_in = {w.fingerprint: partitioning.replication(w.identity) for w in plan.windows()}
        windows = counted_in(plan)
        self._copies = {stream: partitioning.replication(identity) for stream, identity in windows.items()}
        self._last_rows = dict.fromkeys(windows, 0)
        self._last_seen: dict[str, float] = {}
        self._asked: dict[str, int] = {}
        self._directory = directory

    def take(self, cells: list[CellFigures]) -> None:
        """New figures of some cells, after a micro-batch."""
        with self._lock:
            for figures in cells:
                self._rebuilds += figures.rebuild_seconds is not None
                self._query = figures.query
                self._plans[figures.cell] = figures.plan_json
                self._cells[figures.cell] = msgspec.structs.replace(figures, plan_json=None, sizes=None)
                for outcome in figures.commands:
                    if outcome.directory == self._directory:
                        self._latest_outcome = max(self._latest_outcome, outcome.number)
                        self._outcomes.setdefault(outcome.number, {})[figures.cell] = CellMigration(
                            cell=figures.cell, state=outcome.state, reason=outcome.reason, figures=outcome.figures
                        )
            for stream, counts in self._streams().items():
                # Time begins to count with the first micro-batch: it may have been long in coming.
                if counts.rows > self._last_rows[stream] or stream not in self._last_seen:
                    self._last_rows[stream] = counts.rows
                    self._last_seen[stream] = time.monotonic()

    @property
    def has_begun(self) -> bool:
        """Whether any cell has reported: after a restart the figures of an earlier run are still the latest."""
        with self._lock:
            return bool(self._cells)

    def fallen_silent(self, seconds: float) -> dict[str, int]:
        """Streams without a row for so long, while others had some, that :meth:`asked` does not know of yet; and how
        many rows they had."""
        with self._lock:
            now = time.monotonic()
            idle = {stream for figures in self._cells.values() for stream in figures.idle}
            silent = [stream for stream, seen in self._last_seen.items() if now - seen > seconds]
            if len(silent) == len(self._last_seen):
                return {}
            return {s: self._last_rows[s] for s in silent if s not in idle and self._asked.get(s) != self._last_rows[s]}

    def asked(self, stream: str, rows: int) -> None:
        """The stream with so many rows was declared idle: that is done once."""
        with self._lock:
            self._asked[stream] = rows

    @property
    def completed_batches(self) -> int:
        """The micro-batches that every cell has reported."""
        with self._lock:
            batches = [figures.batches for figures in self._cells.values()]
            return min(batches) if len(batches) == self.cells else 0

    def metrics(self) -> ClusterMetrics:
        """The figures of all cells together, and each cell's own."""
        with self._lock:
            cells = [self._cells[number] for number in sorted(self._cells)]
            watermark = min((figures.watermark for figures in cells), default=BEGINNING)
            return ClusterMetrics(
                watermark=None if watermark in (BEGINNING, NEVER) else watermark,
                finished=watermark == NEVER and len(cells) == self.cells,
                query=self._query,
                streams=self._streams(),
                operators=_together([operator for figures in cells for operator in figures.operators]),
                **{name: sum(getattr(figures, name) for figures in cells) for name in _ADDED},
                migrating=any(figures.migrating for figures in cells),
                rebuilds=self._rebuilds,
                just_in_time=cells[0].just_in_time if cells else None,
                batches=max((figures.batches for figures in cells), default=0),
                seconds=max((figures.seconds for figures in cells), default=0.0),
                cells=cells,
            )

    def streams_seen(self) -> StreamsSeen:
        """What was counted of the streams in all cells together, each row once."""
        metrics = self.metrics()
        latest: dict[str, int] = {}
        received: dict[str, float] = {}
        for cell in metrics.cells:
            for stream, instant in cell.latest.items():
                latest[stream] = max(latest.get(stream, BEGINNING), instant)
            for window, rows in cell.received.items():
                received[window] = received.get(window, 0.0) + rows / self._copies_in.get(window, 1)
        return StreamsSeen(metrics.streams, latest, received)

    @property
    def query(self) -> str | None:
        """The id that Spark gives the query, as far as a cell has reported."""
        with self._lock:
            return self._query

    def outcomes(self, number: int) -> dict[int, CellMigration]:
        """What became of the command of this number in each cell that has reported it."""
        with self._lock:
            return dict(self._outcomes.get(number, {}))

    @property
    def latest_outcome(self) -> int:
        """The latest command that a cell has reported the outcome of."""
        with self._lock:
            return self._latest_outcome

    def plan(self) -> PlanJson | None:
        """The plan in force as JSON, if the cells have reported and agree."""
        with self._lock:
            plans = list(self._plans.values())
            return plans[0] if plans and all(plan == plans[0] for plan in plans) else None

    def _streams(self) -> dict[str, StreamCounters]:
        return {
            stream: StreamCounters.over_cells([figures.streams[stream] for figures in self._cells.values()], copies)
            for stream, copies in self._copies.items()
        }


def _together(operators: list[OperatorFigures]) -> list[OperatorFigures]:
    """The figures of the same operator in several cells, added."""
    names = [name for name in OperatorFigures.__struct_fields__ if name not in ("operator", "kind", "subplan")]
    added: dict[tuple[str, str], OperatorFigures] = {}
    for one in operators:
        key = (one.operator, one.subplan)
        other = added.get(key)
        sums = {} if other is None else {name: getattr(one, name) + getattr(other, name) for name in names}
        added[key] = msgspec.structs.replace(one, **sums)
    return list(added.values())


RATE_SECONDS = 10.0
"""Over how long rates are taken: shorter, and one slow micro-batch decides; longer, and a change of the plan
shows too late."""


class RateMeter:
    """Rows and results per second, over the last micro-batches. Thread-safe, as figures come from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: deque[tuple[float, int, int]] = deque()

    def after(self, metrics: RunMetrics, now: float | None = None) -> Rates:
        """The rates, now that these are the metrics; None until a second micro-batch with rows has been reported.

        Time counts from the end of the first micro-batch with rows: until then Spark starts and code is compiled.
        """
        now = time.monotonic() if now is None else now
        counts = metrics.rows, metrics.results
        with self._lock:
            if counts != (0, 0) and (not self._seen or self._seen[-1][1:] != counts):
                self._seen.append((now, *counts))
            while len(self._seen) > 2 and self._seen[1][0] <= now - RATE_SECONDS:
                self._seen.popleft()
            if not self._seen:
                return Rates()
            (before, old_rows, old_results), (after, new_rows, new_results) = self._seen[0], self._seen[-1]
        seconds = after - before
        if seconds <= 0:
            return Rates()
        if now - after > max(RATE_SECONDS, 2 * seconds):
            # Longer than the micro-batches took: nothing comes any more.
            return Rates(rows=0.0, results=0.0)
        return Rates(rows=(new_rows - old_rows) / seconds, results=(new_results - old_results) / seconds)
