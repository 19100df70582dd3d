"""Flink SQL: a chain of interval joins, in an environment of its own; and a savepoint restored into another join order.

Flink's reader of parquet is not part of its Python package: the files are read with pyarrow and given to Flink as Arrow
batches, in the order of time, which its Java source reads. Everything else runs in the JVM, with state on the heap and
without checkpoints, which is as fast as Flink gets here. Results go to the ``blackhole`` connector.

If results are to be kept they go to Flink's file sink, as CSV for the same reason, and there are checkpoints: files
become visible when one is complete. One every 10 s is in Flink's favour where only throughput counts.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.peers.task import COLUMNS, CORES, STREAMS, Task, serve

ARROW_BATCHES_PER_FILE = 4
"""Tasks of a source take Arrow batches in turns; short ones keep them close in time, and so the state small."""
LONGEST_WAIT = 120
SENTINEL = -1
"""The key of the last rows: when their result is there, all others are."""


def interval(milliseconds: int) -> str:
    """A length of time in Flink's SQL."""
    seconds, rest = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"INTERVAL '{hours // 24} {hours % 24:02}:{minutes:02}:{seconds:02}.{rest:03}' DAY TO SECOND(3)"


def table_environment(parallelism: int, settings: dict[str, str]) -> Any:
    """A table environment in a JVM of its own; the JVM's options must be there before."""
    from pyflink.common import Configuration
    from pyflink.datastream import StreamExecutionEnvironment
    from pyflink.table import StreamTableEnvironment

    configuration = Configuration()
    for key, value in {
        "parallelism.default": str(parallelism),
        "state.backend.type": "hashmap",
        "rest.address": "127.0.0.1",
        "rest.bind-port": "0",
        # A failure is to be seen, not to be tried again and again.
        "restart-strategy.type": "none",
        **settings,
    }.items():
        configuration.set_string(key, value)
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(parallelism)
    return StreamTableEnvironment.create(environment)


def _read(tables: Any, task: Task, stream: str) -> None:
    """A stream as a view with an event time."""
    import pyarrow.parquet as pq
    from pyflink.table import DataTypes, Schema

    fields = [("ts", DataTypes.BIGINT()), ("k", DataTypes.BIGINT()), ("v", DataTypes.DOUBLE())]
    rows = pq.ParquetDataset(task.files(stream)).read().to_pandas()
    batches = ARROW_BATCHES_PER_FILE * task.batches
    given = tables.from_pandas(rows, DataTypes.ROW([DataTypes.FIELD(*field) for field in fields]), batches)
    schema = Schema.new_builder()
    for name, its_type in fields:
        schema = schema.column(name, its_type)
    schema = schema.column_by_expression("rt", "TO_TIMESTAMP_LTZ(ts, 3)").watermark("rt", f"rt - {interval(1)}")
    tables.create_temporary_view(stream, tables.from_data_stream(tables.to_data_stream(given), schema.build()))


def joined(order: str, window: int) -> str:
    """A chain of interval joins: each stream is near the first by event time, near the others as well."""
    lines = [f"FROM {order[0]}"]
    for place, stream in enumerate(order[1:], 1):
        first, length = order[0], interval(window)
        near = [f"ABS({other}.ts - {stream}.ts) <= {window}" for other in order[1:place]]
        lines.append(
            f"JOIN {stream} ON "
            + " AND ".join(
                [
                    f"{first}.k = {stream}.k",
                    f"{stream}.rt BETWEEN {first}.rt - {length} AND {first}.rt + {length}",
                    *near,
                ]
            )
        )
    columns = ", ".join(f"{s}.ts AS {s}_ts, {s}.k AS {s}_k, {s}.v AS {s}_v" for s in sorted(order))
    return f"SELECT {columns} " + "\n".join(lines)


def create_sink(tables: Any, name: str, columns: Sequence[str], output: str | None) -> None:
    """A table whose rows are dropped, or written as CSV: files appear when a checkpoint is complete."""
    typed = ", ".join(f"{column} {'DOUBLE' if column.endswith('_v') else 'BIGINT'}" for column in columns)
    where = (
        "'connector' = 'blackhole'"
        if output is None
        else f"'connector' = 'filesystem', 'path' = 'file://{output}', 'format' = 'csv'"
    )
    tables.execute_sql(f"CREATE TEMPORARY TABLE {name} ({typed}) WITH ({where})")


def checkpoints(every: str, task: Task) -> dict[str, str]:
    """Settings for checkpoints in files: they do not fit into the memory that Flink would keep them in."""
    return {
        "execution.checkpointing.interval": every,
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": f"file://{task.scratch}/checkpoints",
    }


def run(task: Task) -> dict[str, Any]:
    """The files of the task, as fast as they can be read."""
    settings = {} if task.output is None else checkpoints("10 s", task)
    tables = table_environment(CORES, settings)
    began = time.perf_counter()
    for stream in STREAMS:
        _read(tables, task, stream)
    create_sink(tables, "results", COLUMNS, task.output)
    tables.execute_sql(f"INSERT INTO results {joined(STREAMS, task.window)}").wait()
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "results": None, "engine": f"Flink {version('apache-flink')}"}


def change(task: Task) -> dict[str, Any]:
    """Run (a b) c over the rows of a first file, stop with a savepoint, and go on from it with another join order.

    ``inputs`` is a directory in which files of rows appear, each with the name of its stream: one source, so that the
    savepoint knows which files were read, whatever the order of the joins. ``options``: ``later``, the file that comes
    after the restart; ``then``, the order then (a, b, c in any order); ``results``, how many the first file has.
    """
    scratch, output = Path(task.scratch), Path(str(task.output))
    columns = tuple(column for column in COLUMNS if column[0] != "d")
    restored_from = ""
    for turn, order in (("before", "abc"), ("after", task.options["then"])):
        settings = {"execution.checkpointing.interval": "500 ms"}
        if restored_from:
            settings["execution.state-recovery.path"] = restored_from
        tables = table_environment(1, settings)
        tables.execute_sql(
            "CREATE TEMPORARY TABLE events (origin STRING, ts BIGINT, k BIGINT, v DOUBLE, "
            f"rt AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR rt AS rt - {interval(1)}) "
            f"WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'file://{task.inputs}', "
            f"'source.monitor-interval' = '200 ms')"
        )
        for stream in "abc":
            tables.execute_sql(f"CREATE TEMPORARY VIEW {stream} AS SELECT * FROM events WHERE origin = '{stream}'")
        create_sink(tables, "results", columns, str(output / turn))
        client = tables.execute_sql(f"INSERT INTO results {joined(order, task.window)}").get_job_client()
        if turn == "before":
            _wait(lambda: _rows(output / "before") >= task.options["results"], "the results of the first file")
        else:
            os.rename(task.options["later"], Path(task.inputs) / "later.csv")
            _wait(lambda: _has_sentinel(output / "after"), "the last result")
        restored_from = _stop(client, f"file://{scratch / 'savepoints'}")
    return {"engine": f"Flink {version('apache-flink')}", "change": f"(a b) c to ({order[0]} {order[1]}) {order[2]}"}


def _stop(client: Any, directory: str) -> str:
    """Stop a job with a savepoint; where that is. Python's own method still calls one that Java no longer has."""
    from pyflink.java_gateway import get_gateway

    kinds = get_gateway().jvm.org.apache.flink.core.execution.SavepointFormatType
    return str(client._j_job_client.stopWithSavepoint(False, directory, kinds.CANONICAL).get())


def _wait(is_there: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LONGEST_WAIT
    while not is_there():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {LONGEST_WAIT} s")
        time.sleep(0.2)


def _lines(output: Path) -> list[str]:
    """Lines of the files that Flink has committed: others are hidden."""
    lines: list[str] = []
    for path in output.rglob("*") if output.exists() else ():
        if path.is_file() and not path.name.startswith((".", "_")):
            with contextlib.suppress(FileNotFoundError):
                lines += path.read_text().splitlines()
    return lines


def _rows(output: Path) -> int:
    return len(_lines(output))


def _has_sentinel(output: Path) -> bool:
    return any(line.split(",")[1] == str(SENTINEL) for line in _lines(output))


if __name__ == "__main__":
    serve({"run": run, "change": change})
