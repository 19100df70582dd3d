"""Flink SQL: a chain of interval joins over files of CSV, into CSV; in an environment of its own.

Flink's Python package has no format for parquet. Its file sink shows results when a checkpoint is complete, so the
interval of checkpoints, ``options["checkpoints"]``, is what latency consists of when there is little to do.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.latency.load import COLUMNS, STREAMS
from benchmarks.latency.stages import tell_started, wait_for_results
from benchmarks.peers.flink_sql import checkpoints, create_sink, interval, joined, table_environment
from benchmarks.peers.task import CORES, Task, serve

LOOK_EVERY = "50 ms"
"""How often the source looks for new files."""
DISORDER_MS = 2_000
"""How far the watermark stays behind: files that are found together are read in any order. Joins do not wait for it."""


def run(task: Task) -> dict[str, Any]:
    """The query until all results are in files."""
    tables = table_environment(CORES, checkpoints(task.options["checkpoints"], task))
    for stream in STREAMS:
        tables.execute_sql(
            f"CREATE TEMPORARY TABLE {stream} (ts BIGINT, k BIGINT, v DOUBLE, rt AS TO_TIMESTAMP_LTZ(ts, 3), "
            f"WATERMARK FOR rt AS rt - {interval(DISORDER_MS)}) WITH ('connector' = 'filesystem', 'format' = 'csv', "
            f"'path' = 'file://{Path(task.inputs) / stream}', 'source.monitor-interval' = '{LOOK_EVERY}')"
        )
    create_sink(tables, "results", COLUMNS, task.output)
    client = tables.execute_sql(f"INSERT INTO results {joined(STREAMS, task.window)}").get_job_client()

    def check() -> None:
        status = str(client._j_job_client.getJobStatus().get())
        if status not in ("CREATED", "INITIALIZING", "RUNNING"):
            raise RuntimeError(f"Error: the job is {status}")

    tell_started(task)
    wait_for_results(task, check)
    client._j_job_client.cancel().get()
    return {"engine": f"Flink {version('apache-flink')}"}


if __name__ == "__main__":
    serve({"run": run})
