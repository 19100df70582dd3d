"""Polars: the whole input joined at once, into a frame. Runs in an environment of its own."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from benchmarks.peers.task import COLUMNS, CORES, STREAMS, Task, serve

os.environ["POLARS_MAX_THREADS"] = str(CORES)

import polars as pl


def run(task: Task) -> dict[str, Any]:
    """Join stream by stream, each pair of times compared as soon as both are there."""
    began = time.perf_counter()
    joined = None
    for place, stream in enumerate(STREAMS):
        names = {column: f"{stream}_{column}" for column in ("ts", "k", "v")}
        rows = pl.scan_parquet(task.files(stream)).rename(names)
        if joined is None:
            joined = rows
            continue
        near = [(pl.col(f"{other}_ts") - pl.col(f"{stream}_ts")).abs() <= task.window for other in STREAMS[:place]]
        joined = joined.join(rows, left_on="a_k", right_on=f"{stream}_k", coalesce=False).filter(*near)
    assert joined is not None
    frame = joined.select(COLUMNS).collect(engine="streaming")
    seconds = time.perf_counter() - began
    if task.output is not None:
        Path(task.output).mkdir(parents=True, exist_ok=True)
        frame.write_parquet(Path(task.output) / "joined.parquet")
    return {"seconds": seconds, "results": frame.height, "engine": f"Polars {pl.__version__}"}


if __name__ == "__main__":
    serve({"run": run})
