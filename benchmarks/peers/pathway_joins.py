"""Pathway: a chain of interval joins, in an environment of its own.

Each stream is a table whose rows come in twelve batches, one per file, at the same moments for all streams. Pathway has
no reader of plain parquet files; they are read with pandas, which counts. Rows and pairs that no later row can meet are
forgotten (``common_behavior``). Results go to ``pw.io.null``.
"""

from __future__ import annotations

import os
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.peers.task import COLUMNS, CORES, STREAMS, Task, serve

os.environ["PATHWAY_THREADS"] = str(CORES)

import pandas as pd
import pathway as pw
import pyarrow.parquet as pq


def _read(task: Task, stream: str) -> Any:
    """A stream; the moment at which a row comes is even, as Pathway wants it."""
    batches = []
    for number, path in enumerate(task.files(stream)):
        rows = pq.read_table(path).to_pandas()
        rows["__time__"] = 2 * (number + 1)
        batches.append(rows)
    renamed = {column: f"{stream}_{column}" for column in ("ts", "k", "v")}
    return pw.debug.table_from_pandas(pd.concat(batches, ignore_index=True).rename(columns=renamed))


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
    results = _read(task, STREAMS[0])
    for place in range(1, len(STREAMS)):
        results = _join(results, _read(task, STREAMS[place]), STREAMS[: place + 1], task)
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
