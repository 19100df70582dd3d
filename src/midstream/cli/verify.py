"""``midstream verify``: compare the result of a finished run with what the query means.

DuckDB recomputes the query from its text over the whole input (``midstream.testing.oracle``, which shares no code
with what it judges), and the two are compared. Queries of joins are compared row by row: every result must be there
exactly once. Others are compared as snapshots: at every instant where anything changes if the input is small, else at
some.

Spark reads the files, of a Delta table those that its log names; delta-rs reads results that are in a table. DuckDB
also sees the late rows that the query dropped: results may then be missing, and no comparison can determine why.
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
from midstream.cli.saved_run import MASTER, RunFile, is_running
from midstream.cli.sinks import Sink
from midstream.cli.spark_process import spark_session
from midstream.errors import AlreadyRunning, BadArgument, PathProblem, RunError
from midstream.runtime.messages import ClusterMetrics
from midstream.runtime.remote import RemoteQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["verify"]

SNAPSHOT_WORK = 50_000_000
"""Maximum rows times instants of DuckDB's snapshots: a few seconds."""
FEWEST_INSTANTS = 20


@dataclass
class _Verdict:
    results: int
    is_same: bool
    sentence: str
    examples: Sequence[str] = ()
    counts: dict[str, Any] = field(default_factory=dict)


def verify(control: Path, output: Output) -> int:
    """Compare, report the differences, and return the exit code."""
    # Imported first, so that a missing package is reported at once.
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
    if results.num_rows != metrics.results:
        of_others = asked.sink.is_delta and results.num_rows > metrics.results
        why = " The table may have results of other runs." if of_others else ""
        remarks.append(f"The query emitted {metrics.results:,} results; now there are {results.num_rows:,}.{why}")
    with output.errors.status("recomputing the query with DuckDB ..."):
        try:
            verdict = _rows_compared(remote, tables, results)
        except oracle.OracleError:
            # Not a query of joins alone.
            try:
                verdict = _snapshots_compared(remote, tables, results)
            except oracle.OracleError as problem:
                reason = str(problem).partition("\n")[0]
                raise RunError("cannot verify the run: DuckDB cannot compute this query", detail=reason) from None
    for line in [verdict.sentence, *verdict.examples, *remarks]:
        output.say(escape(line))
    if verdict.counts.get("missing", not verdict.is_same) and remarks:
        output.say("Missing results may be due to these rows: the query did not see the same input as DuckDB.")
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


def _metrics_of_finished(remote: RemoteQuery, asked: RunFile) -> ClusterMetrics:
    """The last metrics of a run that can be verified."""
    if is_running(remote.control_dir):
        raise AlreadyRunning(
            "the query is still running", hint="Wait until it has finished; midstream status shows its progress."
        )
    status = remote.status()
    if remote.lacks_report:
        raise RunError(
            "whether the run has finished is not known: its status.json is missing",
            hint=f"Let the query write it again: midstream run --resume {asked.control} --until-end.",
        )
    if status is None or not status.has_ended:
        raise RunError(
            "the run has not finished: some results are still buffered",
            hint=f"Finish it: midstream run --resume {asked.control} --until-end.",
        )
    if not asked.sink.can_be_read_back:
        raise BadArgument(
            f"results written to {asked.sink.shown} cannot be read back", hint="Run with --sink delta:PATH."
        )
    unread = [source.name for source in asked.streams if not source.is_file]
    if unread:
        raise BadArgument(f'the rows of stream "{unread[0]}" cannot be read back', hint="Use files as input.")
    return status.metrics


def _results(spark: SparkSession, asked: RunFile, remote: RemoteQuery) -> pa.Table:
    """The results that the run wrote. Spark's log lists the committed files; those of failed attempts may remain."""
    from midstream.engine.output import output_schema
    from midstream.spark.spark_types import spark_schema

    assert asked.sink.path is not None
    if asked.sink.is_delta:
        return _results_in_table(asked.sink, remote)
    schema = spark_schema(output_schema(remote.query.plan()))
    if not is_remote(asked.sink.path) and not Path(asked.sink.path).exists():
        return spark.createDataFrame([], schema).toArrow()
    reader = spark.read.format(asked.sink.format).options(**asked.sink.reading_options).schema(schema)
    return reader.load(asked.sink.path).toArrow()


def _results_in_table(sink: Sink, remote: RemoteQuery) -> pa.Table:
    """The rows of the table, with the columns of the result."""
    from midstream.delta.delta_types import delta_schema
    from midstream.delta.location import TableLocation
    from midstream.delta.table import open_table
    from midstream.engine.output import output_schema

    location = TableLocation.of(sink.path or "", sink.delta_options["storage_options"])
    table = open_table(location)
    if table is None:
        raise PathProblem(f"the table {location.address} is gone")
    schema = delta_schema(output_schema(remote.query.plan()))
    return table.to_pyarrow_table(columns=schema.names).cast(schema)


def _remarks(metrics: ClusterMetrics, tables: dict[str, pa.Table]) -> list[str]:
    """Reasons why DuckDB may see other rows than the query did."""
    remarks = []
    for name, counts in metrics.streams.items():
        if counts.late:
            remarks.append(f"{counts.late:,} rows of {name} were late and dropped by the query.")
        there = tables[name].num_rows
        if there != counts.rows:
            remarks.append(f"The query read {counts.rows:,} rows of {name}; now there are {there:,}.")
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
    # A row has a start and an end: there are at most twice as many instants as rows.
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
        results.num_rows, True, f"{results.num_rows:,} results; equal as bags to DuckDB's {where}", (), counts
    )


def _sample(changes: Sequence[pa.ChunkedArray], most: int) -> list[int]:
    """Instants at which rows arrive or results change, evenly spread, each with the instant before."""
    found = [_ticks(column).unique() for column in changes]
    instants = sorted(pc.unique(pa.concat_arrays(found).drop_null()).to_pylist())
    chosen = instants[:: max(1, -(-2 * len(instants) // most))]
    return sorted({*chosen, *(instant - 1 for instant in chosen)}) or [0]


def _ticks(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    return column.cast(pa.int64())
