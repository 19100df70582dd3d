"""Spark's own stream-stream joins, as in ``benchmarks.spark_native_j4``, into Spark's parquet sink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.latency.load import STREAMS
from benchmarks.latency.midstream_on_spark import run_to_the_end
from benchmarks.peers.midstream_on_spark import MEMORY
from benchmarks.peers.task import Task, serve
from benchmarks.spark_native_j4 import FASTEST, local_session, native_query


def run(task: Task) -> dict[str, Any]:
    """The query until all results are in the sink, one micro-batch after the other."""
    spark = local_session(MEMORY, configuration=FASTEST.configuration())
    inputs = {stream: Path(task.inputs) / stream for stream in STREAMS}
    rows = native_query(spark, inputs, task.window, "chain", STREAMS, files_per_batch=None)
    writer = rows.writeStream.format("parquet").option("path", task.output)
    running = writer.option("checkpointLocation", str(Path(task.scratch) / "checkpoint")).start()
    return {"engine": f"Spark {run_to_the_end(task, spark, running)}"}


if __name__ == "__main__":
    serve({"run": run})
