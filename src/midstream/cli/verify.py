"""``midstream verify``: is the result of a finished run what the query means?

DuckDB computes the query anew from its text over the whole input (``midstream.testing.oracle``, which shares no code
with what it judges), and the two are compared. Queries of joins are compared row by row: every result must be there
exactly once. Others are compared as snapshots: at every instant where anything changes if the input is small, else at
some.

Spark reads the files, as it did for the query. Rows that were late were dropped by the query and are known to DuckDB:
then results may lack, and no comparison can tell why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from midstream.cli.failures import DONE, FAILED
from midstream.cli.output import Output, escape
from midstream.cli.places import is_remote
from midstream.cli.run import batch_frame
from midstream.cli.run_file import MASTER, RunFile, is_running
from midstream.cli.spark_process import spark_session
from midstream.errors import AlreadyRunning, BadArgument, RunError
from midstream.spark.remote import RemoteQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["verify"]

SNAPSHOT_WORK = 50_000_000
"""Rows times instants that DuckDB is given when it takes snapshots: some seconds."""
FEWEST_INSTANTS = 20


@dataclass
class _Verdict:
    results: int
    is_same: bool
    sentence: str
    examples: Sequence[str] = ()
    counts: dict[str, Any] = field(default_factory=dict)


def verify(control: Path, output: Output) -> int:
    """Compare, and say what was found; gives the exit code."""
    # First of all, so that a missing package is told at once.
    from midstream.testing import oracle

    remote = RemoteQuery(control)
    asked = RunFile.read(control)
    metrics = _metrics_of_finished(remote, asked)
    log = None if output.debug else asked.control / "verify.log"
    settings = {**asked.settings, "spark.driver.maxResultSize": "0"}
    output.note("starting Spark ...")
    with spark_session(MASTER, 1, settings, log) as spark:
        with output.errors.status("reading the input ..."):
            tables = {source.name: batch_frame(spark, source).toArrow() for source in asked.streams}
        with output.errors.status("reading the results ..."):
            results = _results(spark, asked, remote)
    remarks = _remarks(metrics, tables)
    if results.num_rows != metrics["results"]:
        remarks.append(f"The query gave {metrics['results']:,} results; now there are {results.num_rows:,}.")
    with output.errors.status("computing the query anew with DuckDB ..."):
        try:
            verdict = _rows_compared(remote, tables, results)
        except oracle.OracleError:
            # Not a query of joins alone.
            try:
                verdict = _snapshots_compared(remote, tables, results)
            except oracle.OracleError as problem:
                reason = str(problem).partition("\n")[0]
                raise RunError("DuckDB cannot compute this query, so that nothing is verified", detail=reason) from None
    for line in [verdict.sentence, *verdict.examples, *remarks]:
        output.say(escape(line))
    if not verdict.is_same and remarks:
        output.say("So the comparison cannot be exact: results that these rows have are missing for a reason.")
    output.document(
        {
            "same": verdict.is_same,
            "results": verdict.results,
            **verdict.counts,
            "examples": list(verdict.examples),
            "remarks": remarks,
        }
    )
    return DONE if verdict.is_same else FAILED


def _metrics_of_finished(remote: RemoteQuery, asked: RunFile) -> dict[str, Any]:
    """The last figures of a run that can be verified."""
    if is_running(remote.control_dir):
        raise AlreadyRunning("the query still runs", hint="Wait for its end: midstream status shows how far it is.")
    status = remote.status()
    if status is None or not status.get("has_ended"):
        raise RunError(
            "the run has not come to its end: results are still held",
            hint=f"Let it read on to the end: midstream run --resume {asked.control} --until-end.",
        )
    if not asked.sink.is_file:
        raise BadArgument(f"what went to {asked.sink.shown} cannot be read again", hint="Run with --sink parquet:DIR.")
    unread = [source.name for source in asked.streams if not source.is_file]
    if unread:
        raise BadArgument(f'the rows of stream "{unread[0]}" cannot be read again', hint="Only files can.")
    metrics: dict[str, Any] = status["metrics"]
    return metrics


def _results(spark: SparkSession, asked: RunFile, remote: RemoteQuery) -> pa.Table:
    """What the run wrote. Spark knows which files count: those of failed attempts may lie beside them."""
    from midstream.engine.output import output_schema
    from midstream.spark.types import spark_schema

    schema = spark_schema(output_schema(remote.query.plan()))
    assert asked.sink.path is not None
    if not is_remote(asked.sink.path) and not Path(asked.sink.path).exists():
        return spark.createDataFrame([], schema).toArrow()
    reader = spark.read.format(asked.sink.format).options(**asked.sink.reading_options).schema(schema)
    return reader.load(asked.sink.path).toArrow()


def _remarks(metrics: dict[str, Any], tables: dict[str, pa.Table]) -> list[str]:
    """Why DuckDB may know other rows than the query did."""
    remarks = []
    for name, counts in metrics["streams"].items():
        if counts["late"]:
            remarks.append(f"{counts['late']:,} rows of {name} were late, and dropped by the query.")
        there = tables[name].num_rows
        if there != counts["rows"]:
            remarks.append(f"The query read {counts['rows']:,} rows of {name}; now there are {there:,}.")
    return remarks


def _rows_compared(remote: RemoteQuery, tables: dict[str, pa.Table], results: pa.Table) -> _Verdict:
    from midstream.testing import compare_bags, join_intervals

    difference = compare_bags(results, join_intervals(remote.query.text, remote.query.streams, tables))
    sentence = f"{difference.rows:,} results, {difference.missing:,} missing, {difference.repeated:,} repeated" + (
        f", {difference.unexpected:,} that should not be there" if difference.unexpected else ""
    )
    counts = {
        "expected": difference.expected_rows,
        "missing": difference.missing,
        "repeated": difference.repeated,
        "unexpected": difference.unexpected,
    }
    is_same = not (difference.missing or difference.repeated or difference.unexpected)
    return _Verdict(difference.rows, is_same, sentence, difference.examples, counts)


def _snapshots_compared(remote: RemoteQuery, tables: dict[str, pa.Table], results: pa.Table) -> _Verdict:
    from midstream.testing import assert_snapshot_equivalent, snapshots

    rows = sum(table.num_rows for table in tables.values())
    most = max(FEWEST_INSTANTS, SNAPSHOT_WORK // max(1, rows))
    # A row begins and ends: there are at most twice as many instants as rows.
    event_times = [tables[stream.name].column(stream.event_time) for stream in remote.query.streams]
    changes = [results.column("valid_from"), results.column("valid_to"), *event_times]
    instants = None if 2 * rows <= most else _sample(changes, most)
    series = snapshots(remote.query.text, remote.query.streams, tables, instants)
    where = f"at {'all' if instants is None else 'a sample of'} {len(series.instants):,} instants"
    counts = {"instants": len(series.instants), "is_sample": instants is not None}
    try:
        assert_snapshot_equivalent(results, series)
    except AssertionError as difference:
        headline, *examples = str(difference).splitlines()
        return _Verdict(
            results.num_rows, False, f"{results.num_rows:,} results; compared {where}: {headline}", examples, counts
        )
    return _Verdict(
        results.num_rows, True, f"{results.num_rows:,} results; as bags equal to DuckDB's {where}", (), counts
    )


def _sample(changes: Sequence[pa.ChunkedArray], most: int) -> list[int]:
    """Instants at which rows come or results change, evenly spread, each with the instant before."""
    found = [_ticks(column).unique() for column in changes]
    instants = sorted(pc.unique(pa.concat_arrays(found).drop_null()).to_pylist())
    chosen = instants[:: max(1, -(-2 * len(instants) // most))]
    return sorted({*chosen, *(instant - 1 for instant in chosen)}) or [0]


def _ticks(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    return column.cast(pa.int64())
