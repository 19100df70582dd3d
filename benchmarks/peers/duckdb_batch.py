"""DuckDB: the whole input joined at once, into a table. The reference that every other result is compared with."""

from __future__ import annotations

import time
from typing import Any

import duckdb

from benchmarks.j4 import Size, duckdb_sql
from benchmarks.peers.task import CORES, STREAMS, Task, serve


def run(task: Task) -> dict[str, Any]:
    """Read and join everything; the table stays in memory."""
    database = duckdb.connect()
    database.execute(f"SET threads = {CORES}")
    began = time.perf_counter()
    for stream in STREAMS:
        database.execute(f"CREATE VIEW {stream} AS SELECT * FROM read_parquet({task.files(stream)})")
    database.execute(f"CREATE TABLE joined AS {duckdb_sql(Size(0, task.batches, task.window, 0))}")
    seconds = time.perf_counter() - began
    ((results,),) = database.execute("SELECT count(*) FROM joined").fetchall()
    return {"seconds": seconds, "results": results, "engine": f"DuckDB {duckdb.__version__}"}


if __name__ == "__main__":
    serve({"run": run})
