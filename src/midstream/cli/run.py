"""``midstream run``: a query on Spark, until its input ends or somebody ends it.

Everything that is needed to resume the run is in its control directory before the first row is read. Ctrl-C and
SIGTERM end it between two steps of this process: no result is lost or repeated by that, and ``--resume`` continues.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pyarrow.parquet as pa_parquet

from midstream.adaptation.policy import Adaptation
from midstream.cli.decision_notes import DecisionNotes
from midstream.cli.failures import DONE, INTERRUPTED, explained
from midstream.cli.late_rows import LateRowsWarning
from midstream.cli.live_view import LiveView
from midstream.cli.output import Output, counted, escape
from midstream.cli.places import is_remote
from midstream.cli.plan_names import plan_named
from midstream.cli.saved_run import RunFile, note_failure, running
from midstream.cli.schemas import check_columns, schema_from_ddl
from midstream.cli.sinks import check_names, check_unused
from midstream.cli.sources import StreamSource, choose_event_time, local_files, read_lateness
from midstream.cli.spark_process import spark_session
from midstream.errors import BadArgument, FinishedRun, NotRunning
from midstream.kafka.topic import KafkaTopic
from midstream.query import ContinuousQuery
from midstream.runtime.control import ControlDirectory
from midstream.runtime.data_files import without_patterns
from midstream.runtime.messages import Finish, Status

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

    from midstream.spark import FileStream, LiveQuery

__all__ = ["batch_frame", "run"]

LOOK_SECONDS = 0.25
"""How often the query is looked at."""


def run(asked: RunFile, until_end: bool, output: Output, adapt: str | Adaptation | None = None) -> int:
    """Run the query; gives the exit code. Without ``adapt`` it adapts as it did before, if it was run before."""
    endless = [stream.name for stream in asked.streams if not stream.has_end]
    if until_end and endless:
        raise BadArgument(f'stream "{endless[0]}" has no end', hint="Leave out --until-end, and end with Ctrl-C.")
    with _Interruption() as interruption, running(asked.control):
        before = _check_control(asked, until_end)
        asked = asked.read_as_before()
        with _failure_noted(asked.control):
            for topic in _topics(asked):
                topic.check_reachable()
        output.note("starting Spark ...")
        log = None if output.debug else asked.log
        shows_rows = asked.sink.format == "console" and not output.as_json
        session = spark_session(asked.master, asked.cells, _settings(asked), log, shows_rows)
        with _failure_noted(asked.control), session as spark:
            # Spark's own handler cancels what runs, which would look like a failure.
            interruption.install()
            _check_far_sink(spark, asked)
            return _run(spark, asked, until_end, output, interruption, before, adapt)


def _settings(asked: RunFile) -> Mapping[str, str]:
    """The settings of the session, with Spark's packages for Kafka if a topic is read or written."""
    from midstream.spark.kafka_packages import with_kafka_packages

    topics = [source for source in asked.streams if source.topic is not None]
    if not topics and not asked.sink.is_kafka:
        return asked.settings
    return with_kafka_packages(asked.settings, any(source.payload == "avro" for source in topics))


def _topics(asked: RunFile) -> Iterator[KafkaTopic]:
    """All topics that are read or written."""
    places = [source.topic for source in asked.streams]
    if asked.sink.is_kafka:
        places.append(asked.sink.path)
    if asked.dead_letters is not None and asked.dead_letters.startswith("kafka:"):
        places.append(asked.dead_letters.removeprefix("kafka:"))
    yield from (KafkaTopic.parse(place) for place in places if place is not None)


@contextlib.contextmanager
def _failure_noted(control: Path) -> Iterator[None]:
    """Whatever goes wrong is there for ``status``, too."""
    try:
        yield
    except Exception as problem:
        failure = explained(problem)
        note_failure(control, f"[{failure.code}] {failure.message}")
        raise


def _check_control(asked: RunFile, until_end: bool) -> Status | None:
    """Refuse to resume a run under other conditions, or one that has come to its end. Gives what it reported last."""
    control = ControlDirectory(asked.control)
    status = control.status()
    if not asked.has_begun:
        check_unused(asked.sink)
        if status is None:
            # What an attempt left that failed before its first row (a misspelt column, say) binds nobody.
            (asked.control / "query.json").unlink(missing_ok=True)
        control.forget_status()
        return None
    with contextlib.suppress(NotRunning):
        asked.check_same_as(RunFile.read(asked.control))
    if status is not None and status.has_ended:
        raise FinishedRun(
            "this run has come to its end",
            detail=f"Its control directory is {asked.control}, its results are in {asked.sink.shown}.",
            hint="To run the query again, give another --control (or remove that directory and the checkpoint) and "
            "another sink.",
        )
    if not until_end and _is_ending(control, None if status is None else status.metrics.query):
        raise FinishedRun(
            "this run was interrupted while its streams were ending",
            detail="It would take rows that come now for late ones, and drop them.",
            hint="Let it come to its end: add --until-end.",
        )
    return status


def _is_ending(control: ControlDirectory, query: str | None) -> bool:
    """Whether the end of its streams was submitted to the query with this id; None: to the one that reported last."""
    claims = control.claims()
    query = claims.latest if query is None else query
    ends = [command for command in control.commands() if isinstance(command.action, Finish)]
    return any(claims.is_for(command, query) for command in ends)


def _check_far_sink(spark: SparkSession, asked: RunFile) -> None:
    """Refuse a used sink for a run that is to begin, where only Spark can look at one of the two."""
    from midstream.spark.file_systems import exists, file_names

    if is_remote(asked.checkpoint) or is_remote(asked.sink.path or ""):
        has_begun = exists(spark, f"{asked.checkpoint}/offsets") if is_remote(asked.checkpoint) else asked.has_begun
        if not has_begun:
            check_unused(asked.sink, partial(file_names, spark))


def _run(
    spark: SparkSession,
    asked: RunFile,
    until_end: bool,
    output: Output,
    interruption: _Interruption,
    before: Status | None,
    adapt: str | Adaptation | None,
) -> int:
    from midstream.spark import stream

    found = [_found(spark, source) for source in asked.streams]
    frames = {source.name: _streaming_frame(spark, source) for source in found}
    declared = [
        stream(source.name, frames[source.name], source.event_time or "", read_lateness(source.lateness or "0", ""))
        for source in found
    ]
    query = ContinuousQuery(asked.query, declared)
    live = query.run_on_spark(
        frames,
        plan_named(query, asked.plan),
        control_dir=asked.control,
        cells=asked.cells,
        just_in_time=asked.just_in_time,
        adapt=adapt,
    )
    check_names(asked.sink, live.results.columns)
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    settings = {**asked.settings, "spark.sql.session.timeZone": zone}
    asked = replace(asked.with_streams(found), settings=settings)
    writer = _writer(live, asked)
    asked.write()
    output.note(f"running; control directory {escape(str(asked.control))}")
    began = time.monotonic()
    total = _total_rows(found) if until_end else None
    with LiveView(output, query.plan().time_domain, total, has_end=until_end) as view:
        watch = _Watch(live, view, LateRowsWarning(found, output), DecisionNotes(live, output), interruption)
        with _dead_letters(found, frames, asked, watch):
            _work(live, writer, watch, until_end)
    return _concluded(asked, live, output, watch.pace(), time.monotonic() - began, interruption.is_asked, before)


def _writer(live: LiveQuery, asked: RunFile) -> DataStreamWriter:
    """What writes the results, with the checkpoint."""
    sink = asked.sink
    if sink.is_delta:
        assert sink.path is not None
        return live.delta_writer(sink.path, asked.checkpoint, **sink.delta_options)
    if sink.is_kafka:
        assert sink.path is not None
        return live.kafka_writer(sink.path, asked.checkpoint, **sink.kafka_options)
    writer = live.results.writeStream.format(sink.format).options(**sink.options)
    writer = writer.option("checkpointLocation", asked.checkpoint)
    return writer if sink.path is None else writer.option("path", sink.path)


@contextlib.contextmanager
def _dead_letters(
    sources: list[StreamSource], frames: Mapping[str, DataFrame | FileStream], asked: RunFile, watch: _Watch
) -> Iterator[None]:
    """Bad messages are written, too, as long as the query runs; at its end all that were there by then."""
    if asked.dead_letters is None:
        yield
        return
    from midstream.spark import write_dead_letters

    found = [frames[source.name] for source in sources if source.topic is not None]
    topics = [cast("DataFrame", frame) for frame in found]
    writing = write_dead_letters(topics, asked.dead_letters, f"{asked.checkpoint}/dead_letters")
    watch.also(writing)
    try:
        yield
        if writing.isActive and not watch.is_interrupted:
            writing.processAllAvailable()
    finally:
        writing.stop()


def _work(live: LiveQuery, writer: DataStreamWriter, watch: _Watch, until_end: bool) -> None:
    if until_end:
        live.run_to_end(writer, watch.until_all_is_read)
        return
    running = writer.start()
    try:
        watch.for_ever(running)
    finally:
        running.stop()
        live.write_status()


class _Interruption:
    """Ctrl-C or SIGTERM: noted the first time, so that the query can be ended; the second time it ends all."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self._before: dict[int, Any] = {}

    @property
    def is_asked(self) -> bool:
        return self.asked.is_set()

    def __enter__(self) -> _Interruption:
        # Until Spark runs there is nothing to end.
        self._replace(signal.SIGTERM, self._at_once)
        return self

    def install(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._replace(number, self._note)

    def __exit__(self, *problem: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _replace(self, number: int, handler: Any) -> None:
        before = signal.signal(number, handler)
        self._before.setdefault(number, signal.default_int_handler if number == signal.SIGINT else before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked.is_set():
            # Whatever is being waited for must not be waited for any longer.
            os.write(2, b"interrupted again: ended at once\n")
            os._exit(INTERRUPTED)
        self.asked.set()

    def _at_once(self, number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt


class _Watch:
    """Looks at the query while it works, shows its figures, and ends it when it is interrupted."""

    def __init__(
        self,
        live: LiveQuery,
        view: LiveView,
        late_rows: LateRowsWarning,
        decisions: DecisionNotes,
        interruption: _Interruption,
    ) -> None:
        self._live = live
        self._view = view
        self._late_rows = late_rows
        self._decisions = decisions
        self._interruption = interruption
        self._first: tuple[float, int] | None = None
        self._last: tuple[float, int] | None = None
        self._others: list[StreamingQuery] = []

    def also(self, other: StreamingQuery) -> None:
        """A query beside the one that is watched: if it fails, so does the run."""
        self._others.append(other)

    @property
    def is_interrupted(self) -> bool:
        return self._interruption.is_asked

    def for_ever(self, running: StreamingQuery) -> None:
        """Until the query is interrupted or fails."""
        while running.isActive and not self._interruption.asked.wait(LOOK_SECONDS):
            self._look()
        failed = running.exception()
        if failed is not None and not self._interruption.is_asked:
            raise failed

    def until_all_is_read(self, running: StreamingQuery) -> None:
        """Until the query has worked on everything there is; stops it if it is interrupted."""
        # Waiting for Spark cannot be interrupted, so another thread does.
        problems: list[BaseException] = []
        waiting = threading.Thread(target=_noting(running, problems), daemon=True)
        waiting.start()
        while waiting.is_alive() and not self._interruption.asked.wait(LOOK_SECONDS):
            self._look()
        if self._interruption.is_asked:
            running.stop()
            return
        self._look()
        if problems:
            raise problems[0]

    def _look(self) -> None:
        for other in self._others:
            failed = other.exception()
            if failed is not None:
                raise failed
        metrics = self._live.metrics()
        seen = time.monotonic(), _rows_in(metrics)
        if metrics["batches"] and (self._last is None or seen[1] > self._last[1]):
            self._first, self._last = self._first or seen, seen
        self._view.show(metrics, self._live.rates())
        self._late_rows.check(metrics)
        self._decisions.check()

    def pace(self) -> float | None:
        """Rows per second after the first batch; None if there was no other."""
        self._look()
        if self._first is None or self._last is None or self._last[0] <= self._first[0]:
            return None
        return (self._last[1] - self._first[1]) / (self._last[0] - self._first[0])


def _noting(running: StreamingQuery, problems: list[BaseException]) -> Any:
    def wait() -> None:
        try:
            running.processAllAvailable()
        except Exception as problem:
            problems.append(problem)

    return wait


def _found(spark: SparkSession, source: StreamSource) -> StreamSource:
    """The source with the columns and the event time that it has."""
    first = next(local_files(source.path), None) if source.path is not None else None
    if source.schema is not None and source.format == "parquet" and first is not None:
        check_columns(source.name, schema_from_ddl(source.schema, source.name), first)
    if source.schema is None and source.is_file:
        if first is None and not is_remote(source.path or "") and source.format != "delta":
            raise BadArgument(
                f'the columns of stream "{source.name}" cannot be found: there are no files yet',
                hint=f'Give them: --schema {source.name}="ts timestamp, id long".',
            )
        columns = (_streaming_frame if source.is_table else batch_frame)(spark, source).schema
        source = replace(source, schema=columns.toDDL())
    if source.topic is not None:
        return _found_of_topic(spark, source)
    columns = _streaming_frame(spark, source).schema
    return replace(source, event_time=choose_event_time(source.name, _kinds(columns), source.event_time))


def _found_of_topic(spark: SparkSession, source: StreamSource) -> StreamSource:
    """The event time of messages is a column of theirs, or else the time at which Kafka got them."""
    from midstream.spark.kafka_source import payload_columns

    columns = payload_columns(_topic_frame(spark, source))
    kinds = {name: _kind(type_name) for name, type_name in columns.items()}
    return replace(source, event_time=choose_event_time(source.name, kinds, source.event_time, "kafka_timestamp"))


def _kinds(columns: StructType) -> dict[str, str]:
    return {field.name: _kind(field.dataType.typeName()) for field in columns}


def _kind(type_name: str) -> str:
    """What matters of a type for an event time."""
    if type_name.startswith("timestamp"):
        return "timestamp"
    return "integer" if type_name in ("byte", "short", "integer", "long") else "other"


def batch_frame(spark: SparkSession, source: StreamSource) -> DataFrame:
    """All rows of the source that are there now."""
    if source.is_table:
        return _table_frame(spark, source)
    reader = spark.read.format(source.format).options(**source.options)
    if source.schema is not None:
        reader = reader.schema(source.schema)
    else:
        # Only where the user says nothing of it: what Spark finds in text by itself.
        found = {"inferSchema": "true", "inferTimestamp": "true", "prefersDate": "true"}
        reader = reader.options(**{name: value for name, value in found.items() if source.option(name) is None})
    return reader.load(source.path)


def _table_frame(spark: SparkSession, source: StreamSource) -> DataFrame:
    """All rows of a Delta table on this machine."""
    from midstream.delta.added_files import files_now
    from midstream.spark import FileStream as Files

    assert source.path is not None, "a table is in a directory"
    columns = Files(spark, source.path, source.schema).schema
    files = files_now(source.path).files
    if not files:
        return spark.createDataFrame([], columns)
    return spark.read.schema(columns).parquet(*(f"file://{without_patterns(file)}" for file in files))


def _topic_frame(spark: SparkSession, source: StreamSource) -> DataFrame:
    from midstream.spark import read_kafka

    assert source.topic is not None, "the stream is a topic"
    return read_kafka(spark, source.topic, event_time=source.event_time, **source.kafka_options)


def _streaming_frame(spark: SparkSession, source: StreamSource) -> DataFrame | FileStream:
    if source.read_by == "midstream":
        from midstream.spark import FileStream as Files

        assert source.path is not None, "midstream reads files"
        return Files(spark, source.path, source.schema, source.files_per_batch)
    if source.topic is not None:
        return _topic_frame(spark, source)
    path, options = source.place_of_stream()
    reader = spark.readStream.format(source.format).options(**options)
    if source.schema is not None:
        reader = reader.schema(source.schema)
    return reader.load(path)


def _total_rows(sources: list[StreamSource]) -> int | None:
    """The number of rows to come, if the files say so."""
    if any(source.format != "parquet" for source in sources):
        return None
    with contextlib.suppress(Exception):
        # A file that cannot be read is the query's to refuse.
        files = [file for source in sources for file in local_files(source.path or "")]
        return sum(int(pa_parquet.read_metadata(file).num_rows) for file in files)
    return None


def _concluded(
    asked: RunFile,
    live: LiveQuery,
    output: Output,
    rows_per_second: float | None,
    seconds: float,
    is_interrupted: bool,
    before: Status | None,
) -> int:
    """Say what was done, and what can be done next. Counts are of the whole run, also of what went ``before``."""
    metrics = live.metrics()
    if before is not None and not metrics["batches"]:
        # Nothing has come since.
        metrics = msgspec.to_builtins(before.metrics)
    streams = metrics["streams"]
    rows = _rows_in(metrics)
    new_rows = rows - (0 if before is None else before.metrics.rows)
    state = "interrupted" if is_interrupted else "finished"
    resume = f"midstream run --resume {shlex.quote(_shown(asked.control))}"
    is_ending = is_interrupted and _is_ending(ControlDirectory(asked.control), metrics["query"])
    resume += " --until-end" if is_ending else ""
    output.say(
        f"{state}: {rows:,} rows in, {metrics['results']:,} results, "
        + counted(metrics["batches"], "batch", "batches")
        + (
            f"; since it was resumed, {new_rows:,} rows in {seconds:,.1f} s"
            if new_rows < rows
            else f" in {seconds:,.1f} s"
        )
        + (f" ({rows_per_second:,.0f} rows/s after the first batch)" if rows_per_second is not None else "")
    )
    for name, counts in streams.items():
        for number, what in (
            (counts["late"], "were late"),
            (counts["without_event_time"], "were without an event time"),
            (counts["event_time_out_of_range"], "had an event time out of range"),
            (counts["bad_messages"], "could not be read"),
        ):
            if number:
                output.say(f"dropped: {number:,} rows of {escape(name)} {what}")
    if asked.sink.path is not None:
        output.say(f"results: {escape(asked.sink.shown)}")
    if is_interrupted:
        output.say(f"to resume: {escape(resume)}")
        if is_ending:
            output.say("the streams are ending: rows that come from now on are late")
    elif asked.sink.can_be_read_back:
        output.say(f"to compare with DuckDB: midstream verify {escape(shlex.quote(_shown(asked.control)))}")
    output.document(
        {
            "state": state,
            "rows": rows,
            "new_rows": new_rows,
            "results": metrics["results"],
            "batches": metrics["batches"],
            "seconds": seconds,
            "streams": streams,
            "plan": live.plan.explain(),
            "migrations": [
                {"number": migration.number, "strategy": migration.strategy, "state": migration.state}
                for migration in live.history()
            ],
            "control": str(asked.control),
            "checkpoint": asked.checkpoint,
            "sink": asked.sink.shown,
            "resume": resume if is_interrupted else None,
        }
    )
    return INTERRUPTED if is_interrupted else DONE


def _rows_in(metrics: dict[str, Any]) -> int:
    return sum(counts["rows"] for counts in metrics["streams"].values())


def _shown(path: Path) -> str:
    """A path as short as it can be written here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
