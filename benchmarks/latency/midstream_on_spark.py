"""midstream on Spark: it reads the files itself, or topics by Spark's connector, and its cells write a Delta table."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.j4 import Size, query
from benchmarks.latency.load import STREAMS
from benchmarks.latency.stages import tell_started, wait_for_results
from benchmarks.peers.midstream_on_spark import MEMORY
from benchmarks.peers.task import CORES, Task, serve


def run(task: Task) -> dict[str, Any]:
    """The query until all results are in the table, one micro-batch after the other.

    ``options["broker"]`` has the topics, if rows come by them, and ``options["jars"]`` are those of Spark's connector.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from midstream.spark import FileStream, read_kafka, session

    settings = {"spark.driver.memory": MEMORY}
    columns = "ts long, k long, v double"
    frames: dict[str, Any]
    if "broker" in task.options:
        spark = session(f"local[{CORES}]", 1, {**settings, "spark.jars": ",".join(task.options["jars"])})
        broker = task.options["broker"]
        frames = {stream: read_kafka(spark, f"{broker}/{stream}", columns, event_time="ts") for stream in STREAMS}
    else:
        spark = session(f"local[{CORES}]", 1, settings)
        frames = {stream: FileStream(spark, Path(task.inputs) / stream, columns) for stream in STREAMS}
    scratch = Path(task.scratch)
    live = query(Size(0, 0, task.window, 0), STREAMS).run_on_spark(frames, control_dir=scratch / "control")
    running = live.write_delta(str(task.output), checkpoint=scratch / "checkpoint")
    return {"engine": f"midstream on Spark {run_to_the_end(task, spark, running)}"}


def run_to_the_end(task: Task, spark: Any, running: Any) -> str:
    """Wait until all results of a streaming query are in the sink, and stop it; Spark's version."""

    def raise_failure() -> None:
        failure = running.exception()
        if failure is not None:
            raise failure

    tell_started(task)
    wait_for_results(task, raise_failure)
    running.stop()
    version: str = spark.version
    spark.stop()
    return version


if __name__ == "__main__":
    serve({"run": run})
