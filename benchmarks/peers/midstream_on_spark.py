"""midstream on Spark: J4 in micro-batches of one file per stream, and the same with its plan replaced on the way.

It reads the files itself (``FileStream``). ``options["sink"]`` is "delta" for a table that its cells write; otherwise
results go through Spark, to its noop or parquet sink.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.j4 import Size, query
from benchmarks.peers.task import COLUMNS, CORES, STREAMS, Task, serve

MEMORY = "6g"
FIRST_PLAN, OTHER_PLAN = "((a b) c) d", "a (b (c d))"


def _start(task: Task) -> tuple[Any, Any, Any]:
    """A session, the query, and a writer of its results."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from midstream.spark import FileStream, session

    cells = task.options.get("cells", 1)
    spark = session(f"local[{CORES}]", cells, {"spark.driver.memory": MEMORY})
    schema = "ts long, k long, v double"
    frames = {stream: FileStream(spark, folder, schema, 1) for stream, folder in task.directories().items()}
    scratch = Path(task.scratch)
    live = query(Size(0, task.batches, task.window, 0)).run_on_spark(
        frames, plan=FIRST_PLAN, cells=cells, control_dir=scratch / "control"
    )
    return spark, live, scratch / "checkpoint"


def _writer(live: Any, checkpoint: Path, task: Task) -> Any:
    output = task.output
    if output is not None and task.options.get("sink") == "delta":
        return live.delta_writer(output, checkpoint)
    if output is None:
        return live.results.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    results = live.results.select(*COLUMNS)
    return results.writeStream.format("parquet").option("checkpointLocation", str(checkpoint)).option("path", output)


def run(task: Task) -> dict[str, Any]:
    """All the input there is, as it would come: a file of each stream with every micro-batch."""
    spark, live, checkpoint = _start(task)
    began = time.perf_counter()
    running = _writer(live, checkpoint, task).trigger(availableNow=True).start()
    running.awaitTermination()
    seconds = time.perf_counter() - began
    # Of a source that gives packs, Spark counts those: the rows are the files'.
    rows = _rows_of_batches(task)
    batches = [
        {
            "input_rows": next(rows) if progress.numInputRows else 0,
            "milliseconds": progress.durationMs["triggerExecution"],
        }
        for progress in running.recentProgress
        if "addBatch" in progress.durationMs
    ]
    results = live.metrics()["results"]
    version = spark.version
    spark.stop()
    return {"seconds": seconds, "results": results, "batches": batches, "engine": f"midstream on Spark {version}"}


def _rows_of_batches(task: Task) -> Iterator[int]:
    """The rows of the first file of each stream, of the second, and so on."""
    for files in zip(*(task.files(stream) for stream in STREAMS), strict=True):
        yield sum(pq.read_metadata(file).num_rows for file in files)


def change(task: Task) -> dict[str, Any]:
    """Run over the files that are there, replace the plan, and continue with those of ``options["later"]``."""
    spark, live, checkpoint = _start(task)
    running = _writer(live, checkpoint, task).start()
    running.processAllAvailable()
    live.migrate(OTHER_PLAN)
    add_files(task)
    running.processAllAvailable()
    running.stop()
    history = live.history()
    version = spark.version
    spark.stop()
    return {
        "engine": f"midstream on Spark {version}",
        "change": f"{FIRST_PLAN} to {OTHER_PLAN}",
        "state": history[-1].state,
    }


def add_files(task: Task) -> None:
    """Let the later files come, in their order of time: it goes by when they were modified."""
    for stream in STREAMS:
        for path in sorted((Path(task.options["later"]) / stream).glob("*.parquet")):
            # Hidden until it is whole: the file source must not see half of it.
            hidden = Path(task.inputs) / stream / f".{path.name}"
            shutil.copy2(path, hidden)
            hidden.rename(hidden.with_name(path.name))


if __name__ == "__main__":
    serve({"run": run, "change": change})
