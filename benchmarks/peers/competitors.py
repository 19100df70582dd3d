"""Who takes part, and how a competitor is run on one size: timed, on fewer batches if it has none, and checked."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks.j4 import Size
from benchmarks.peers.environments import FLINK, PATHWAY, POLARS, Environment, EnvironmentFailed
from benchmarks.peers.outcome import Outcome
from benchmarks.peers.processes import CompetitorFailed, Run, run_in_process
from benchmarks.peers.task import CORES, Task
from benchmarks.spark_j4 import FULL

SECONDS = 900
"""What a competitor may take for one size, in all its runs."""


@dataclass(frozen=True)
class Competitor:
    """An engine, how it works, where its results go, and whether its running plan can change.

    If it ``keeps_results``, those of the timed run are in its sink, each once whatever fails, and are compared.
    """

    name: str
    module: str
    how: str
    kind: Literal["micro-batches", "continuous", "batch"]
    sink: str
    can_change: str
    environment: Environment | None = None
    options: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    keeps_results: bool = False

    def run(self, task: Task) -> Run:
        """One task in a process of its own; its environment is made if need be."""
        if self.environment is not None:
            self.environment.make()
        python = None if self.environment is None else self.environment.python
        variables = {key: value.format(scratch=task.scratch) for key, value in self.variables.items()}
        return run_in_process(f"benchmarks.peers.{self.module}", task, python, variables)


YES = "yes: `live.migrate(...)`, see below"
NOT_SPARK = "no: only by a restart from the checkpoint, see below"
NOT_FLINK = "no: only by a restart from a savepoint, see below"
FLINK_VARIABLES = {"JVM_ARGS": "-Xmx6g", "FLINK_LOG_DIR": "{scratch}"}
REFERENCE = Competitor(
    "duckdb", "duckdb_batch", "the whole input at once", "batch", "a table in memory", "no: a query ends with its input"
)
COMPETITORS = (
    REFERENCE,
    Competitor(
        "midstream",
        "midstream_on_spark",
        "micro-batches on Spark, one cell",
        "micro-batches",
        "noop",
        YES,
    ),
    Competitor(
        "midstream-cells",
        "midstream_on_spark",
        f"micro-batches on Spark, {CORES} cells",
        "micro-batches",
        "noop",
        YES,
        options={"cells": CORES},
    ),
    Competitor(
        "native-chain",
        "native_spark",
        "stream-stream joins, ((a b) c) d",
        "micro-batches",
        "noop",
        NOT_SPARK,
        options={"shape": "chain"},
    ),
    Competitor(
        "native-tree",
        "native_spark",
        "stream-stream joins, (a b) (c d)",
        "micro-batches",
        "noop",
        NOT_SPARK,
        options={"shape": "tree"},
    ),
    Competitor(
        "flink",
        "flink_sql",
        "SQL interval joins, ((a b) c) d; no checkpoints",
        "continuous",
        "blackhole",
        NOT_FLINK,
        FLINK,
        variables=FLINK_VARIABLES,
    ),
    Competitor(
        "pathway",
        "pathway_joins",
        "interval joins, ((a b) c) d, twelve batches",
        "continuous",
        "null",
        "no: the graph is fixed when it starts",
        PATHWAY,
    ),
    Competitor(
        "polars",
        "polars_batch",
        "the whole input at once",
        "batch",
        "a frame in memory",
        "no: a query ends with its input",
        POLARS,
    ),
)
"""The reference first: the others are compared with its count."""
DURABLE = (
    REFERENCE,
    Competitor(
        "midstream-delta",
        "midstream_on_spark",
        "micro-batches on Spark, one cell",
        "micro-batches",
        "Delta by the cells",
        YES,
        options={"sink": "delta"},
        keeps_results=True,
    ),
    Competitor(
        "midstream-cells-delta",
        "midstream_on_spark",
        f"micro-batches on Spark, {CORES} cells",
        "micro-batches",
        "Delta by the cells",
        YES,
        options={"sink": "delta", "cells": CORES},
        keeps_results=True,
    ),
    Competitor(
        "native-chain-parquet",
        "native_spark",
        "stream-stream joins, ((a b) c) d",
        "micro-batches",
        "parquet",
        NOT_SPARK,
        options={"shape": "chain"},
        keeps_results=True,
    ),
    Competitor(
        "native-tree-parquet",
        "native_spark",
        "stream-stream joins, (a b) (c d)",
        "micro-batches",
        "parquet",
        NOT_SPARK,
        options={"shape": "tree"},
        keeps_results=True,
    ),
    Competitor(
        "flink-csv",
        "flink_sql",
        "SQL interval joins, ((a b) c) d; a checkpoint every 10 s",
        "continuous",
        "CSV",
        NOT_FLINK,
        FLINK,
        variables=FLINK_VARIABLES,
        keeps_results=True,
    ),
)
"""With sinks that have every result exactly once, whatever fails on the way."""
NAMES = tuple(dict.fromkeys(competitor.name for competitor in COMPETITORS + DURABLE))


def compete(
    competitor: Competitor,
    size: Size,
    inputs: Path,
    expected: int | None,
    check_rows: bool,
    report: Callable[[str], None],
) -> Outcome:
    """All runs of a competitor on one size; a failure is part of the outcome.

    Rows are compared if ``check_rows``, and in any case if the engine does not say how many results it gave. They are
    those of the timed run if it kept them, else those of one more run.
    """
    deadline = time.monotonic() + SECONDS
    rows = 4 * size.rows * size.batches
    outcome = Outcome(competitor.name, competitor.kind, rows, expected=expected)
    with tempfile.TemporaryDirectory(prefix="peers_") as temporary:

        def task(name: str, batches: int = size.batches, *, written: bool = False) -> Task:
            directory = Path(temporary) / name
            directory.mkdir()
            left = deadline - time.monotonic()
            output = str(directory / "results") if written else None
            return Task(
                str(inputs), batches, size.window, str(directory), left, output, "run", dict(competitor.options)
            )

        try:
            timed = task("timed", written=competitor.keeps_results)
            outcome.take(competitor.run(timed))
            report(f"{outcome.seconds:.1f} s, {outcome.rate:,.0f} rows/s")
            if competitor.kind == "continuous":
                short = task("short", FULL, written=competitor.keeps_results)
                outcome.take_short(competitor.run(short), 4 * size.rows * FULL)
                report(f"{outcome.steady or 0:,.0f} rows/s in steady state")
            if competitor is not REFERENCE and (check_rows or outcome.results is None) and outcome.is_whole:
                checked = timed
                if not competitor.keeps_results:
                    checked = task("checked", written=True)
                    competitor.run(checked)
                outcome.differences = check(checked)
                report(f"compared with DuckDB: {outcome.differences}")
                shutil.rmtree(str(checked.output))
        except (CompetitorFailed, EnvironmentFailed, OSError) as error:
            outcome.failure = str(error)
            report(f"FAILED: {error}")
    return outcome


def check(done: Task, seconds: float = SECONDS) -> dict[str, int]:
    """The results that a task wrote, compared with DuckDB's: no part of the competitor's time."""
    with tempfile.TemporaryDirectory(prefix="peers_") as scratch:
        task = Task(done.inputs, done.batches, done.window, scratch, seconds, options={"found": str(done.output)})
        return run_in_process("benchmarks.peers.checking", task).outcome
