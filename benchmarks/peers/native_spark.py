"""Spark's own stream-stream joins, as in ``benchmarks.spark_native_j4``; and a restart with the other join order.

``options["shape"]`` is the form of the joins: a chain, as most people would write them, or the tree that is faster.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from benchmarks.peers.midstream_on_spark import MEMORY, add_files
from benchmarks.peers.task import Task, serve
from benchmarks.spark_native_j4 import FASTEST, local_session, native_query, run_native

STOPPING_SECONDS = 60
"""Left of the time for stopping a query that does not end, so that its batches until then still count."""
LONGEST_REFUSAL = 2000


def run(task: Task) -> dict[str, Any]:
    """All the input there is, a file of each stream with every micro-batch; or as much of it as the time allows."""
    spark = local_session(MEMORY)
    scratch = Path(task.scratch)
    began = time.perf_counter()
    batches = run_native(
        spark,
        task.directories(),
        task.window,
        "noop" if task.output is None else "parquet",
        scratch / "checkpoint",
        task.output,
        settings=replace(FASTEST, shape=task.options["shape"]),
        timeout_seconds=task.seconds - STOPPING_SECONDS,
    )
    seconds = time.perf_counter() - began
    version = spark.version
    spark.stop()
    return {
        "seconds": seconds,
        "results": sum(batch.results for batch in batches),
        "batches": [{"input_rows": batch.input_rows, "milliseconds": batch.milliseconds} for batch in batches],
        "engine": f"Spark {version}",
    }


def change(task: Task) -> dict[str, Any]:
    """Stop the chain ((a b) c) d, change the text of the query, and start that with the same checkpoint.

    ``options["then"]`` is the other query: "tree" is (a b) (c d), four letters a chain in their order.
    """
    spark = local_session(MEMORY)
    for key, value in FASTEST.configuration().items():
        spark.conf.set(key, value)
    then = task.options["then"]
    refusal = None
    for turn in ("before", "after"):
        order = "abcd" if turn == "before" or then == "tree" else then
        shape: Literal["tree", "chain"] = "tree" if turn == "after" and then == "tree" else "chain"
        rows = native_query(spark, task.directories(), task.window, shape, order)
        writer = rows.writeStream.format("parquet").option("path", task.output)
        writer = writer.option("checkpointLocation", str(Path(task.scratch) / "checkpoint"))
        try:
            writer.trigger(availableNow=True).start().awaitTermination()
        except Exception as error:
            if turn == "before":
                raise
            refusal = _first_paragraph(str(error))
        if turn == "before":
            add_files(task)
    version = spark.version
    spark.stop()
    other = "(a b) (c d)" if then == "tree" else f"(({then[0]} {then[1]}) {then[2]}) {then[3]}"
    return {"engine": f"Spark {version}", "change": f"((a b) c) d to {other}", "refusal": refusal}


def _first_paragraph(text: str) -> str:
    """What Spark says before it prints the whole query, without the numbers of the run."""
    said = text.split("=== Streaming Query ===")[0].split("\n\nJVM stacktrace")[0]
    said = re.sub(r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ", "", said)
    return " ".join(said.split())[:LONGEST_REFUSAL]


if __name__ == "__main__":
    serve({"run": run, "change": change})
