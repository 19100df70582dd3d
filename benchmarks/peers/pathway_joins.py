"""Pathway: a chain of interval joins, in an environment of its own.

Pathway has no reader of plain parquet files. A source in Python reads them with pyarrow and gives the rows of all
streams, a file of each between two commits, so that no stream runs ahead; taking rows from Python costs little beside
the joins. Rows and combinations that no later row can meet are forgotten (``common_behavior``): without, a run over
twelve batches takes a third less, but its state grows for ever. Results go to ``pw.io.null``.
"""

from __future__ import annotations

import os
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.peers.task import COLUMNS, CORES, STREAMS, Task, serve

os.environ["PATHWAY_THREADS"] = str(CORES)

import pathway as pw
import pyarrow.parquet as pq


class Event(pw.Schema):  # type: ignore[misc]
    """A row of any stream."""

    stream: str
    ts: int
    k: int
    v: float


class Files(pw.io.python.ConnectorSubject):  # type: ignore[misc]
    """The files of a task, batch by batch."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self._task = task

    def run(self) -> None:
        for number in range(self._task.batches):
            for stream in STREAMS:
                rows = pq.read_table(self._task.files(stream)[number], columns=["ts", "k", "v"])
                for ts, k, v in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                    self.next(stream=stream, ts=ts, k=k, v=v)
            self.commit()


def _join(left: Any, right: Any, streams: str, task: Task) -> Any:
    """The next stream joined to those before; all pairs of times within the window."""
    before, stream = streams[:-1], streams[-1]
    # A combined row comes up to a window after its first row's time, with each further join; a batch may add as much.
    cutoff = (len(before) + 1) * task.window
    pairs = left.interval_join(
        right,
        left["a_ts"],
        right[f"{stream}_ts"],
        pw.temporal.interval(-task.window, task.window),
        left["a_k"] == right[f"{stream}_k"],
        behavior=pw.temporal.common_behavior(cutoff=cutoff, keep_results=True),
    ).select(*pw.left, *pw.right)
    for other in before[1:]:
        distance = pw.this[f"{other}_ts"] - pw.this[f"{stream}_ts"]
        pairs = pairs.filter((distance <= task.window) & (distance >= -task.window))
    return pairs


def run(task: Task) -> dict[str, Any]:
    """The files of the task, batch after batch."""
    began = time.perf_counter()
    events = pw.io.python.read(Files(task), schema=Event, autocommit_duration_ms=None)
    tables = {
        stream: events.filter(events.stream == stream).select(
            **{f"{stream}_{column}": pw.this[column] for column in ("ts", "k", "v")}
        )
        for stream in STREAMS
    }
    results = tables[STREAMS[0]]
    for place in range(1, len(STREAMS)):
        results = _join(results, tables[STREAMS[place]], STREAMS[: place + 1], task)
    results = results.select(*[pw.this[column] for column in COLUMNS])
    if task.output is None:
        pw.io.null.write(results)
    else:
        Path(task.output).mkdir(parents=True, exist_ok=True)
        pw.io.csv.write(results, str(Path(task.output) / "joined.csv"))
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "results": None, "engine": f"Pathway {version('pathway')}"}


if __name__ == "__main__":
    serve({"run": run})
