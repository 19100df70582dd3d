"""Fifty million rows through sliding windows on Spark: memory stays flat, and the checkpoint does not grow.

Two streams from Spark's rate source meet by key within a sliding window, counted per group: state enters and leaves
with every micro-batch. After each one the memory of all processes below this one, the size of the checkpoint, and the
rows in their windows are noted; drawn as ``results/spark_long_stream.png``. Bars: the median of the last quarter of the
batches at most 1.1 times that of the second quarter, for memory and checkpoint.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import matplotlib
import psutil

from benchmarks.measuring import RESULTS, Bar, save
from midstream import ContinuousQuery
from midstream.spark import session, stream

ROWS = 50_000_000
BATCH = 400_000
"""Rows per micro-batch, of both streams together."""
KEYS = 20_000


def memory() -> float:
    """MiB of this process and all below it; memory that several share is divided among them."""
    total = 0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            continue
    return total / 2**20


def size(directory: Path) -> float:
    """MiB of all files in a directory."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total / 2**20


def run(rows: int, directory: Path) -> list[dict[str, Any]]:
    spark = session(
        "local[2]",
        1,
        {
            "spark.driver.memory": "2g",
            # By default Spark keeps 100 micro-batches, and looks once a minute for what it may delete: a run of minutes
            # would not show that it does.
            "spark.sql.streaming.minBatchesToRetain": "10",
            "spark.sql.streaming.stateStore.maintenanceInterval": "10s",
        },
    )
    frames = {}
    for name in ("left", "right"):
        source = (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", BATCH // 2)
            .option("numPartitions", 1)
            .option("startTimestamp", 0)
            .option("advanceMillisPerBatch", 1000)
            .load()
        )
        frames[name] = source.selectExpr("timestamp AS ts", f"pmod(hash(value, '{name}'), {KEYS}) AS k", "value AS v")
    query = ContinuousQuery(
        """SELECT l.k, COUNT(*) AS n, SUM(r.v) AS total
           FROM left [RANGE 1 SECOND SLIDE 1 SECOND] l, right [RANGE 1 SECOND SLIDE 1 SECOND] r
           WHERE l.k = r.k GROUP BY l.k""".replace("left [", '"left" [').replace("right [", '"right" ['),
        [stream(name, frame, event_time="ts") for name, frame in frames.items()],
    )
    live = query.run_on_spark(frames, control_dir=directory / "control")
    running = (
        live.results.writeStream.format("noop").option("checkpointLocation", str(directory / "checkpoint")).start()
    )
    noted: list[dict[str, Any]] = []
    began = time.perf_counter()
    while not noted or noted[-1]["rows"] < rows:
        if not running.isActive:
            running.awaitTermination()
        metrics = live.metrics()
        done = sum(counts["rows"] for counts in metrics["streams"].values())
        if not noted or done > noted[-1]["rows"]:
            noted.append(
                {
                    "rows": done,
                    "seconds": time.perf_counter() - began,
                    "memory": memory(),
                    "checkpoint": size(directory / "checkpoint"),
                    "window_rows": metrics["window_rows"],
                    "operator_seconds": metrics["seconds"],
                }
            )
        time.sleep(0.5)
    running.stop()
    spark.stop()
    return noted


def draw(noted: list[dict[str, Any]]) -> None:
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(3, 1, figsize=(8, 8), sharex=True)
    rows = [note["rows"] / 1e6 for note in noted]
    for axis, name, label in zip(
        axes,
        ("memory", "checkpoint", "window_rows"),
        ("memory of all processes, MiB", "checkpoint, MiB", "rows in their windows"),
        strict=True,
    ):
        axis.plot(rows, [note[name] for note in noted])
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
    axes[-1].set_xlabel("million rows")
    figure.suptitle("A long stream through sliding windows")
    figure.tight_layout()
    figure.savefig(RESULTS / "spark_long_stream.png", dpi=110)


def main(rows: int = ROWS) -> bool:
    """Measure, draw and save; whether the bars are met."""
    with tempfile.TemporaryDirectory() as temporary:
        noted = run(rows, Path(temporary))
    draw(noted)
    quarter = len(noted) // 4
    figures: dict[str, Any] = {
        "rows": noted[-1]["rows"],
        "seconds": noted[-1]["seconds"],
        "rows per second": noted[-1]["rows"] / noted[-1]["seconds"],
    }
    for name in ("memory", "checkpoint"):
        early = statistics.median(note[name] for note in noted[quarter : 2 * quarter])
        late = statistics.median(note[name] for note in noted[-quarter:])
        figures |= {
            f"{name}, second quarter, MiB": early,
            f"{name}, last quarter, MiB": late,
            f"{name} grows": late / early,
        }
    return save(
        "spark_long_stream", figures, Bar("memory grows", 1.1), Bar("checkpoint grows", 1.1), details={"noted": noted}
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    sys.exit(0 if main(parser.parse_args().rows) else 1)
