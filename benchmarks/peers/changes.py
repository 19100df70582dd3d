"""What happens to a running query when the order of its joins changes: here, and elsewhere.

Each engine runs over the first half of the input, gets the other join order in the way it offers, and continues with
the second half. A refusal is recorded with its text; otherwise all results, before and after, are compared with
DuckDB's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv as csv

from benchmarks.j4 import TRIAL, make_batches
from benchmarks.peers.checking import differences
from benchmarks.peers.competitors import COMPETITORS, SECONDS, check
from benchmarks.peers.environments import EnvironmentFailed
from benchmarks.peers.flink_sql import SENTINEL
from benchmarks.peers.processes import CompetitorFailed
from benchmarks.peers.task import COLUMNS, STREAMS, Task
from benchmarks.spark_native_j4 import write_input

_BY_NAME = {competitor.name: competitor for competitor in COMPETITORS}


def midstream_change() -> dict[str, Any]:
    """Replace the plan of the running query."""
    return _change_of_parquet("midstream", {}, "continues with the next micro-batch")


def native_spark_change(then: str) -> dict[str, Any]:
    """Restart Spark's own joins from their checkpoint, written in another order."""
    return _change_of_parquet("native-chain", {"then": then}, "restarts from the checkpoint without an error")


def flink_change(then: str) -> dict[str, Any]:
    """Stop Flink with a savepoint, and restore it into another join order of streams that have equal schemas."""
    columns = [column for column in COLUMNS if column[0] != "d"]
    batches = make_batches(TRIAL)
    with tempfile.TemporaryDirectory(prefix="peers_") as temporary:
        directory = Path(temporary)
        (directory / "in").mkdir()
        middle = TRIAL.batches // 2
        rows = {
            "first": _in_one_stream(batches[:middle], ends=False),
            "later": _in_one_stream(batches[middle:], ends=True),
        }
        csv.write_csv(rows["first"], directory / "in" / "first.csv", csv.WriteOptions(include_header=False))
        csv.write_csv(rows["later"], directory / "later.csv", csv.WriteOptions(include_header=False))
        database = duckdb.connect()
        database.register("first_rows", rows["first"])
        database.register("all_rows", pa.concat_tables(list(rows.values())))
        ((first,),) = database.execute(f"SELECT count(*) FROM ({_three_way_join('first_rows')})").fetchall()
        options = {"later": str(directory / "later.csv"), "then": then, "results": first}
        output = directory / "out"
        task = Task(str(directory / "in"), 0, TRIAL.window, temporary, SECONDS, str(output), "change", options)
        outcome = _BY_NAME["flink"].run(task).outcome
        types = {name: "DOUBLE" if name.endswith("_v") else "BIGINT" for name in columns}
        found = f"FROM read_csv('{output}/*/part-*', header = false, columns = {types})"
        counts = differences(database, _three_way_join("all_rows"), found, columns)
    return {**outcome, "seen": "restores the savepoint without an error", **counts}


CHANGES: dict[str, Callable[[], dict[str, Any]]] = {
    "midstream": midstream_change,
    "native Spark, the same order": lambda: native_spark_change("abcd"),
    "native Spark, a tree instead of the chain": lambda: native_spark_change("tree"),
    "native Spark, b and c exchanged": lambda: native_spark_change("acbd"),
    "Flink, the same order": lambda: flink_change("abc"),
    "Flink, b and c exchanged": lambda: flink_change("acb"),
}
"""The same order shows that stopping and restoring alone does not make results wrong."""


def all_changes(report: Callable[[str, str], None]) -> list[dict[str, Any]]:
    """Try all of them; what cannot be tried says why."""
    seen = []
    for name, change in CHANGES.items():
        try:
            outcome = change()
        except (CompetitorFailed, EnvironmentFailed, OSError) as error:
            engine, _, order = name.partition(", ")
            outcome = {"engine": engine, "change": order or "another order", "failure": str(error)}
        report(name, str({key: value for key, value in outcome.items() if key != "engine"}))
        seen.append({"what": name, **outcome})
    return seen


def _change_of_parquet(name: str, options: dict[str, Any], seen: str) -> dict[str, Any]:
    """The change of a competitor that reads J4's files: the first half is there, the second comes later."""
    with tempfile.TemporaryDirectory(prefix="peers_") as temporary:
        directory = Path(temporary)
        write_input(TRIAL, directory / "in")
        for stream in STREAMS:
            (directory / "later" / stream).mkdir(parents=True)
            for path in sorted((directory / "in" / stream).glob("*.parquet"))[TRIAL.batches // 2 :]:
                path.rename(directory / "later" / stream / path.name)
        options = {**options, "later": str(directory / "later")}
        output = directory / "out"
        task = Task(
            str(directory / "in"), TRIAL.batches, TRIAL.window, temporary, SECONDS, str(output), "change", options
        )
        outcome = _BY_NAME[name].run(task).outcome
        if outcome.get("refusal"):
            return outcome
        return {**outcome, "seen": seen, **check(task)}


def _in_one_stream(batches: list[dict[str, pa.Table]], ends: bool) -> pa.Table:
    """Rows of a, b and c in order of time, each with the name of its stream; at the end three rows that meet."""
    tables = []
    for batch in batches:
        for stream in "abc":
            names = pa.array([stream] * batch[stream].num_rows)
            tables.append(batch[stream].add_column(0, "origin", names))
    rows = pa.concat_tables(tables).sort_by("ts")
    if not ends:
        return rows
    last = rows["ts"][-1].as_py() + 1
    end = pa.table({"origin": list("abc"), "ts": [last] * 3, "k": [SENTINEL] * 3, "v": [0.0] * 3})
    return pa.concat_tables([rows, end])


def _three_way_join(rows: str) -> str:
    columns = ", ".join(f"{s}.ts AS {s}_ts, {s}.k AS {s}_k, {s}.v AS {s}_v" for s in "abc")
    streams = ", ".join(f"(FROM {rows} WHERE origin = '{s}') {s}" for s in "abc")
    near = " AND ".join(f"abs({x}.ts - {y}.ts) <= {TRIAL.window}" for x, y in ("ab", "ac", "bc"))
    return f"SELECT {columns} FROM {streams} WHERE a.k = b.k AND a.k = c.k AND {near}"
