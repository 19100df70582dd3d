"""What the driver knows of a running query: the figures that its cells send with each micro-batch, put together.

Cells tell of every command what became of it, so that a figure that was lost (the driver died) is told again with the
next batch. A row that was sent to several cells is late in each of them: counts are divided by the number of copies.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from midstream.algebra.plan import Plan
from midstream.algebra.windows import BEGINNING, NEVER
from midstream.planning.partitioning import Partitioning
from midstream.spark.durable_cell import counted_in

__all__ = ["Progress", "Rates"]

_SUMS = (
    "results",
    "window_rows",
    "state_rows",
    "state_bytes",
    "buffered",
    "segments",
    "segment_rows",
    "bytes_written",
)


class Progress:
    """The latest figures of every cell. Thread-safe: Spark tells from a thread of its own.

    ``directory`` is the mark of the control directory whose commands are meant (see ``control``).
    """

    def __init__(self, plan: Plan, partitioning: Partitioning, directory: str = "") -> None:
        self._lock = threading.Lock()
        self._cells: dict[int, dict[str, Any]] = {}
        self._plans: dict[int, dict[str, Any]] = {}
        self._outcomes: dict[int, dict[int, dict[str, Any]]] = {}
        self.cells = partitioning.cells
        self._rebuilds = 0
        windows = counted_in(plan)
        self._copies = {stream: partitioning.replication(identity) for stream, identity in windows.items()}
        self._last_rows = dict.fromkeys(windows, 0)
        self._last_seen: dict[str, float] = {}
        self._asked: dict[str, int] = {}
        self._directory = directory

    def take(self, cells: list[dict[str, Any]]) -> None:
        """New figures of some cells, after a micro-batch."""
        with self._lock:
            for figures in cells:
                self._rebuilds += figures["rebuild_seconds"] is not None
                self._plans[figures["cell"]] = figures.pop("plan_json")
                self._cells[figures["cell"]] = figures
                for command in figures["commands"]:
                    if command["directory"] != self._directory:
                        continue
                    told = self._outcomes.setdefault(command["id"], {})
                    told[figures["cell"]] = {"cell": figures["cell"], **command}
            for stream, counts in self._streams().items():
                # Time begins to count with the first micro-batch: it may have been long in coming.
                if counts["rows"] > self._last_rows[stream] or stream not in self._last_seen:
                    self._last_rows[stream] = counts["rows"]
                    self._last_seen[stream] = time.monotonic()

    @property
    def has_begun(self) -> bool:
        """Whether any cell has told anything: after a restart the figures of an earlier run are still the latest."""
        with self._lock:
            return bool(self._cells)

    def fallen_silent(self, seconds: float) -> dict[str, int]:
        """Streams without a row for so long, while others had some, that :meth:`asked` does not know of yet; and how
        many rows they had."""
        with self._lock:
            now = time.monotonic()
            idle = {stream for figures in self._cells.values() for stream in figures["idle"]}
            silent = [stream for stream, seen in self._last_seen.items() if now - seen > seconds]
            if len(silent) == len(self._last_seen):
                return {}
            return {s: self._last_rows[s] for s in silent if s not in idle and self._asked.get(s) != self._last_rows[s]}

    def asked(self, stream: str, rows: int) -> None:
        """The stream with so many rows was declared idle: that is done once."""
        with self._lock:
            self._asked[stream] = rows

    def metrics(self) -> dict[str, Any]:
        """The figures of all cells together, and each cell's own."""
        with self._lock:
            cells = [self._cells[number] for number in sorted(self._cells)]
            watermark = min((figures["watermark"] for figures in cells), default=BEGINNING)
            return {
                "watermark": None if watermark in (BEGINNING, NEVER) else watermark,
                "finished": watermark == NEVER and len(cells) == self.cells,
                "query": cells[-1]["query"] if cells else None,
                "streams": self._streams(),
                **{name: sum(figures[name] for figures in cells) for name in _SUMS},
                "migrating": any(figures["migrating"] for figures in cells),
                "rebuilds": self._rebuilds,
                "batches": max((figures["batches"] for figures in cells), default=0),
                "seconds": max((figures["seconds"] for figures in cells), default=0.0),
                "cells": cells,
            }

    def outcomes(self) -> dict[int, list[dict[str, Any]]]:
        """By the command's number: what each cell said of it last."""
        with self._lock:
            return {number: [told[cell] for cell in sorted(told)] for number, told in self._outcomes.items()}

    def plan(self) -> dict[str, Any] | None:
        """The plan in force as JSON, if the cells have told and agree."""
        with self._lock:
            plans = list(self._plans.values())
            return plans[0] if plans and all(plan == plans[0] for plan in plans) else None

    def _streams(self) -> dict[str, dict[str, int]]:
        streams: dict[str, dict[str, int]] = {}
        for stream, copies in self._copies.items():
            told = [figures["streams"][stream] for figures in self._cells.values()]
            streams[stream] = {
                "rows": max((counts["rows"] for counts in told), default=0),
                "without_event_time": max((counts["without_event_time"] for counts in told), default=0),
                "event_time_out_of_range": max((counts["event_time_out_of_range"] for counts in told), default=0),
                "late": sum(counts["late"] for counts in told) // copies,
            }
        return streams


RATE_SECONDS = 10.0
"""Over how long rates are taken: shorter, and one slow micro-batch is all they tell; longer, and a change of the plan
shows too late."""


class Rates:
    """Rows and results per second, over the last micro-batches. Thread-safe, as figures come from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: deque[tuple[float, int, int]] = deque()

    def after(self, metrics: Mapping[str, Any], now: float | None = None) -> dict[str, float | None]:
        """The rates, now that these are the metrics; None until a second micro-batch has been told of."""
        now = time.monotonic() if now is None else now
        rows = sum(counts["rows"] for counts in metrics["streams"].values())
        with self._lock:
            if not self._seen or self._seen[-1][1:] != (rows, metrics["results"]):
                self._seen.append((now, rows, metrics["results"]))
            while len(self._seen) > 2 and self._seen[1][0] <= now - RATE_SECONDS:
                self._seen.popleft()
            (before, old_rows, old_results), (after, new_rows, new_results) = self._seen[0], self._seen[-1]
        seconds = after - before
        if seconds <= 0:
            return {"rows": None, "results": None}
        if now - after > max(RATE_SECONDS, 2 * seconds):
            # Longer than the micro-batches took: nothing comes any more.
            return {"rows": 0.0, "results": 0.0}
        return {"rows": (new_rows - old_rows) / seconds, "results": (new_results - old_results) / seconds}
