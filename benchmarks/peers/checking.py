"""Results compared with DuckDB's, row by row: what is missing, what comes too often, what should not exist.

The rows are taken key by key, in parts, so that even the large size fits into memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.j4 import Size, duckdb_sql
from benchmarks.peers.task import COLUMNS, CORES, STREAMS, Task, serve

PARTS = 8


def differences(
    database: duckdb.DuckDBPyConnection, expected: str, found: str, columns: Sequence[str]
) -> dict[str, int]:
    """Rows of the query ``expected`` that ``found`` lacks, has too often, or has though they are not expected."""
    names = ", ".join(columns)
    database.execute(f"CREATE OR REPLACE TEMP TABLE expected_rows AS SELECT {names} FROM ({expected})")
    database.execute(f"CREATE OR REPLACE TEMP TABLE found_rows AS SELECT {names} FROM ({found})")
    database.execute("CREATE OR REPLACE TEMP TABLE surplus AS FROM found_rows EXCEPT ALL FROM expected_rows")

    def count(query: str) -> int:
        ((number,),) = database.execute(f"SELECT count(*) FROM ({query})").fetchall()
        return int(number)

    wrong = count(f"FROM surplus ANTI JOIN expected_rows USING ({names})")
    return {
        "expected": count("FROM expected_rows"),
        "found": count("FROM found_rows"),
        "missing": count("FROM expected_rows EXCEPT ALL FROM found_rows"),
        "repeated": count("FROM surplus") - wrong,
        "wrong": wrong,
    }


def result_files(output: Path) -> str:
    """The rows in the files below a directory, as a query: parquet, or CSV with or without a header.

    Of a directory with a log, Spark's or that of a Delta table, only the files that the log names count.
    """
    if (output / "_delta_log").exists():
        from deltalake import DeltaTable

        return f"FROM read_parquet({DeltaTable(output).file_uris()})"
    if (output / "_spark_metadata").exists():
        from midstream.spark.sink_log import committed_files

        return f"FROM read_parquet({[str(path) for path in committed_files(output)]})"
    files = sorted(path for path in output.rglob("*") if path.is_file() and not path.name.startswith((".", "_")))
    if not files:
        raise FileNotFoundError(f"no results below {output}")
    if files[0].suffix == ".parquet":
        return f"FROM read_parquet({[str(path) for path in files]})"
    with files[0].open() as opened:
        has_header = opened.readline().lstrip('"').startswith(COLUMNS[0])
    types = {name: "DOUBLE" if name.endswith("_v") else "BIGINT" for name in COLUMNS}
    described = f"header = true, types = {types}" if has_header else f"header = false, columns = {types}"
    return f"FROM read_csv({[str(path) for path in files]}, delim = ',', quote = '\"', {described})"


def run(task: Task) -> dict[str, Any]:
    """Compare the files below ``options["found"]`` with J4 over the input."""
    database = duckdb.connect(str(Path(task.scratch) / "checking.duckdb"))
    database.execute(f"SET threads = {CORES}")
    names = ", ".join(COLUMNS)
    database.execute(f"CREATE TABLE all_found AS SELECT {names} FROM ({result_files(Path(task.options['found']))})")
    totals: dict[str, int] = {}
    for part in range(PARTS):
        for stream in STREAMS:
            rows = f"SELECT * FROM read_parquet({task.files(stream)}) WHERE k % {PARTS} = {part}"
            database.execute(f"CREATE OR REPLACE TEMP TABLE {stream} AS {rows}")
        expected = duckdb_sql(Size(0, task.batches, task.window, 0))
        found = f"FROM all_found WHERE a_k % {PARTS} = {part}"
        for name, number in differences(database, expected, found, COLUMNS).items():
            totals[name] = totals.get(name, 0) + number
    return totals


if __name__ == "__main__":
    serve({"run": run})
