"""A continuous query on Spark: streaming DataFrames in, a streaming DataFrame out, and a plan that can be replaced.

    sources ─▶ select, keep? (Catalyst) ─▶ pack per cell (mapInArrow) ─┐
                                                                       ├─▶ group by cell ─▶ operator ─▶ results
    control directory ─▶ commands, to every cell ──────────────────────┘                       │
                                                      metrics ◀── accumulator ◀────────────────┘

Everything that Spark does well stays Spark's: sources, offsets, shuffles, state, retries, sinks. The operator runs the
plan (see ``cell_work``). Commands are rows of one more stream: a plan changes in all cells in the same micro-batch,
and a restart from the checkpoint continues with the current plan and with a migration in progress.
"""

from __future__ import annotations

import datetime
import json
import os
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructField, StructType

from midstream.adaptation.decisions import Decision
from midstream.adaptation.policy import Adaptation
from midstream.algebra.plan import Plan, Window
from midstream.algebra.stream import Stream
from midstream.delta.result_files import TableTarget
from midstream.engine.output import output_schema
from midstream.engine.state.window_store import WindowStore, fields_read
from midstream.errors import (
    BadOption,
    BadPlan,
    BrokenRun,
    NoControlDirectory,
    NotStreaming,
    UnknownStreamPushed,
    did_you_mean,
    quoted,
)
from midstream.execution.just_in_time import JustInTime
from midstream.installation import needs_extra
from midstream.kafka.topic import KafkaTopic
from midstream.planned_query import PlannedQuery
from midstream.planning.cost.statistics import Statistics
from midstream.planning.partitioning import partition
from midstream.runtime.cell import MOST_RECORDS
from midstream.runtime.cell_setup import CellSetup
from midstream.runtime.control import ControlDirectory
from midstream.runtime.explain import explain_running
from midstream.runtime.file_reading import FileReading
from midstream.runtime.messages import DeclareIdle, Finish
from midstream.runtime.pack import BAD_MESSAGE, KEEP, StreamPacker
from midstream.runtime.plan_adaptation import PlanAdaptation
from midstream.runtime.plan_changes import PlanChanges
from midstream.runtime.progress import Progress
from midstream.runtime.reporting import Report
from midstream.runtime.run import Listener, Migration
from midstream.spark.backfill import Backfill
from midstream.spark.catalyst import as_spark_column, column_name, is_translatable
from midstream.spark.cell_keys import cell_keys
from midstream.spark.cell_operator import CellOperator
from midstream.spark.cell_work import CellWork
from midstream.spark.checkpoints import checked_checkpoint
from midstream.spark.figures import Figures
from midstream.spark.file_stream import FileStream, files_to_read
from midstream.spark.kafka_sink import KafkaSink
from midstream.spark.packed import COMMAND, PACKED
from midstream.spark.packing import STREAM, Packer, shared_columns
from midstream.spark.session import is_one_machine
from midstream.spark.spark_types import check_frames, spark_schema

__all__ = ["LiveQuery"]


_COMMAND_COLUMNS = "id long, command string"


class LiveQuery:
    """A query on Spark. ``results`` is a DataFrame like any other; writing it is what makes the query run."""

    results: DataFrame
    """The select list, ``valid_from`` and ``valid_to``; streaming if the inputs are."""

    def __init__(
        self,
        query: PlannedQuery,
        frames: Mapping[str, DataFrame | FileStream],
        plan: str | Plan | None = None,
        *,
        control_dir: str | os.PathLike[str] | None = None,
        cells: int | None = None,
        rates: Mapping[str, float] | None = None,
        idle_after: datetime.timedelta | float | None = None,
        just_in_time: bool | JustInTime = False,
        adapt: str | Adaptation | None = None,
    ) -> None:
        self.query = query
        is_adapting = adapt is not None and Adaptation.chosen(adapt) is not None
        self._first_plan = query.chosen(plan)
        default = query.plan()
        # A checkpoint knows sources by their place: it must not depend on the plan.
        streams = {window.stream.name: window.stream for window in default.windows()}
        self._streams = {name: streams[name] for name in sorted(streams)}
        self._spark, self.is_streaming = check_frames(self._streams, frames)
        partitions = int(self._spark.conf.get("spark.sql.shuffle.partitions") or 1)
        self._control = ControlDirectory(_control_path(control_dir, self._spark)) if self.is_streaming else None
        self.partitioning = partition(default, self._default_cells() if cells is None else cells, rates)
        self._keys = cell_keys(self.partitioning.cells)
        self._windows = WindowStore([self._first_plan, default])
        self._read = fields_read([self._first_plan, default])
        # Several cells on one machine: Spark gives them to its workers as it likes.
        self._is_hosted = self.partitioning.cells > 1 and _is_local(self._spark)
        self._name = f"midstream {uuid.uuid4().hex}"
        self._setup = CellSetup.of(query, self._first_plan, self.partitioning, JustInTime.chosen(just_in_time))
        self._names = [field.name for field in output_schema(default)]
        self._schema = spark_schema(output_schema(default))
        seconds = _seconds(idle_after)
        self._read_by_midstream = {name: frame.path for name, frame in frames.items() if isinstance(frame, FileStream)}
        self._reading: FileReading | None = None
        packed = self._packed(frames)
        self._changes: PlanChanges | None
        self._adaptation: PlanAdaptation | None
        if self._control is None:
            if is_adapting:
                self._controlled("adapt")
            self._changes = self._adaptation = None
            self._report = Report(self._first_plan, Progress(default, self.partitioning))
            self._rows = packed
            self.results = self._renamed(self._backfilled(Backfill(self._setup), _numbered(self._schema)))
            return
        _warn_of_partitions(partitions, self.partitioning.cells)
        has_begun = self._control.query() is not None
        self._control.create(self._setup.query, json.loads(self._setup.first_plan))
        progress = Progress(default, self.partitioning, self._control.mark)
        self._changes = PlanChanges(query, self._first_plan, self._control)
        self._adaptation = PlanAdaptation(self._control, self._changes, self.partitioning.cells)
        self._report = Report(self._first_plan, progress, self._control, self._changes, seconds, self._adaptation)
        if adapt is not None:
            self._adaptation.choose(adapt, self._report.query, has_begun)
        self._setup = msgspec.structs.replace(self._setup, adaptation=self._adaptation.policy)
        # As few tasks as there are cells: starting one costs more than what a small micro-batch has for it to do.
        self._rows = packed.union(self._commands()).coalesce(self.partitioning.cells)
        self.results = self._renamed(self._operated(_numbered(self._schema)))

    @property
    def control_dir(self) -> str:
        """Where commands to the query are written; ``midstream migrate`` takes it."""
        return str(self._controlled("control_dir").path)

    @property
    def plan(self) -> Plan:
        """The plan in force, as far as the cells have reported; during a migration, the one it leads to."""
        return self._report.plan

    def explain(self) -> str:
        """The plan in force with what each operator did, how rows are spread over cells, and what Spark does before."""
        metrics = self._report.metrics()
        lines = [explain_running(self.plan, metrics.operators), self.partitioning.explain()]
        for name, stream in self._streams.items():
            if name not in self._read_by_midstream and self._wanted(stream) is not None:
                text = " OR ".join(sorted(self._conditions(window) for window in self._windows_of(stream)))
                lines.append(f"in Spark SQL: {name} where {text}")
        return "\n".join(lines)

    @property
    def migrating(self) -> bool:
        """Whether a migration is in progress in any cell, as of the last micro-batch that was reported."""
        return self._report.metrics().migrating

    def migrate(self, plan: str | Plan, strategy: str = "jisc", **options: Any) -> Migration:
        """Replace the plan while the query runs: with the next micro-batch, in every cell.

        Raises, and changes nothing, if the plan is not one of this query's, the strategy cannot change to it or the
        streams have ended. The handle says what becomes of it. See ``docs/migration.md``.
        """
        self._controlled("migrate()")
        assert self._changes is not None
        number = self._changes.submit(self.plan, plan, strategy, options, self._report.metrics())
        self._report.notify()
        return self._report.migration(number)

    def adapt(self, adapt: str | Adaptation) -> None:
        """Let the query change its plan by itself from now on ("auto"), only advise, or neither ("off").

        A plan that a person chose stays in force until this is called. See ``docs/adaptation.md``.
        """
        self._controlled("adapt()")
        assert self._adaptation is not None
        self._adaptation.choose(adapt, self._report.query, has_begun=True)

    def decisions(self) -> list[Decision]:
        """What adaptation considered, and what it decided and why: the latest 1,000, also from before a restart."""
        return [] if self._adaptation is None else self._adaptation.decisions()

    def statistics(self) -> Statistics:
        """The sizes of the query's joins, its streams and hot keys: for people, ``query.plans`` and ``query.explain``.

        They are put together from the latest figures of all cells. Sizes and hot keys are there when the query adapts,
        and some cell has measured the plan in force.
        """
        return self._report.statistics()

    def switch_just_in_time(self, just_in_time: bool | JustInTime) -> int:
        """Switch just-in-time processing on or off with the next micro-batch, in every cell.

        Gives the number of the command. See ``docs/just_in_time.md``.
        """
        self._controlled("switch_just_in_time()")
        assert self._changes is not None
        return self._changes.submit_switch(JustInTime.chosen(just_in_time), self._report.metrics())

    def declare_idle(self, stream: str) -> int:
        """Let the watermark pass without a silent stream, until its next row. Gives the number of the command."""
        control = self._controlled("declare_idle()")
        if not isinstance(stream, str) or stream not in self._streams:
            raise UnknownStreamPushed(
                f'stream "{stream}" is not one of the query\'s streams',
                detail=f"The query reads {quoted(self._streams)}.",
                hint=did_you_mean(str(stream), self._streams),
            )
        return control.write(DeclareIdle(stream=stream), self._report.metrics().query)

    def finish(self) -> int:
        """The end of all streams: the next micro-batch gives everything still held; later rows are late."""
        control = self._controlled("finish()")
        return control.write(Finish(), self._report.metrics().query)

    def run_to_end(
        self, writer: DataStreamWriter, wait: Callable[[StreamingQuery], None] | None = None
    ) -> StreamingQuery:
        """Write all that is there, then the end of the streams: for a run over input that is complete.

        ``writer`` is ``live.results.writeStream`` with its format, options and checkpoint; its trigger is set here.
        Commands are carried out meanwhile. ``wait`` returns when the query has worked on everything (by default Spark's
        ``processAllAvailable``). It is called twice: for the rows, and for what is still held when the streams have
        ended. If it stops the query in the first call, the streams do not end, and a restart continues; in the second,
        the end was submitted already, and a restart comes to it.
        """
        self._controlled("run_to_end()")
        wait = wait or (lambda running: running.processAllAvailable())
        query = writer.trigger(processingTime="0 seconds").start()
        is_complete = False
        try:
            wait(query)
            if query.isActive:
                self.finish()
                wait(query)
                is_complete = query.isActive and self._report.metrics().finished
                if query.isActive and not is_complete:
                    raise BrokenRun(
                        "the end of the streams did not reach the query",
                        detail=f"It was written to {self.control_dir}.",
                        hint="Start it again with the same checkpoint and control directory.",
                    )
        finally:
            query.stop()
            if is_complete:
                self._report.end()
            else:
                self._report.write()
        return query

    def delta_writer(
        self,
        path: str | os.PathLike[str],
        checkpoint: str | os.PathLike[str],
        *,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> DataStreamWriter:
        """A writer of results to a Delta table, to be started, with another trigger or by ``run_to_end``.

        For the options see :meth:`write_delta`.
        """
        self._controlled("delta_writer()")
        with needs_extra("delta", "the package for Delta tables"):
            from midstream.delta.location import TableLocation
            from midstream.spark.delta_sink import FILES, DeltaSink
        directory = TableLocation.of(path, storage_options).directory
        for name, read in self._read_by_midstream.items():
            if directory is not None and os.path.realpath(read) == os.path.realpath(directory):
                raise BadOption(
                    f'stream "{name}" reads the table that the results are to be written to',
                    detail="The query would go on for ever with what it has written itself.",
                    hint="Write to another table.",
                )
        schema = output_schema(self.query.plan())
        sink = DeltaSink(self._spark, path, checkpoint, schema, partition_by, properties, storage_options)
        files = self._operated(FILES, sink.target)
        return files.writeStream.foreachBatch(sink).option("checkpointLocation", sink.checkpoint)

    def write_delta(
        self,
        path: str | os.PathLike[str],
        checkpoint: str | os.PathLike[str] | None = None,
        *,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        application: str | None = None,
    ) -> StreamingQuery | None:
        """Write the results to a Delta table, exactly once: cells write its files, the driver commits them.

        The table is created, with ``partition_by`` and table ``properties``, or must fit the results.
        ``storage_options`` are delta-rs's, for object stores. Gives the running query. Over batch DataFrames, the
        results are written in one transaction before this returns, and nothing is given; under the same ``application``
        they are written once, however often it is tried. See ``docs/delta.md``.
        """
        if self.is_streaming:
            if application is not None:
                raise BadOption("application is for batch DataFrames", hint="A stream is known by its checkpoint.")
            writer = self.delta_writer(
                path,
                checkpoint,  # type: ignore[arg-type]
                partition_by=partition_by,
                properties=properties,
                storage_options=storage_options,
            )
            return writer.start()
        if checkpoint is not None:
            raise BadOption("checkpoint is for streams", hint='For batch DataFrames give application="a name".')
        with needs_extra("delta", "the package for Delta tables"):
            from midstream.spark.delta_sink import FILES, DeltaBackfill
        schema = output_schema(self.query.plan())
        sink = DeltaBackfill(path, application, schema, partition_by, properties, storage_options)
        if not sink.is_complete:
            sink.write(self._backfilled(Backfill(self._setup, sink.target, sink.application), FILES))
        return None

    def kafka_writer(
        self,
        topic: str | KafkaTopic,
        checkpoint: str | os.PathLike[str],
        *,
        key: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> DataStreamWriter:
        """A writer of results to a Kafka topic, to be started, with another trigger or by ``run_to_end``.

        For the options see :meth:`write_kafka`.
        """
        self._controlled("kafka_writer()")
        place = checked_checkpoint(checkpoint)
        sink = KafkaSink(KafkaTopic.parse(topic), self._names, place, key, options)
        return self.results.writeStream.foreachBatch(sink).option("checkpointLocation", place)

    def write_kafka(
        self,
        topic: str | KafkaTopic,
        checkpoint: str | os.PathLike[str],
        *,
        key: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> StreamingQuery:
        """Write the results to a Kafka topic, ``"HOST:PORT/TOPIC"``, at least once, with headers that tell repeats.

        Each result is a message: a JSON object, keyed by the column ``key`` (by default by what its headers say).
        ``options`` are those of Spark's Kafka sink. Gives the running query. See ``docs/kafka.md``.
        """
        return self.kafka_writer(topic, checkpoint, key=key, options=options).start()

    def metrics(self) -> dict[str, Any]:
        """Counts of all cells together (``cells`` has each one's own), by the last micro-batch that was reported."""
        changes = [migration for migration in self.history()[-MOST_RECORDS:] if migration.state != "unchanged"]
        metrics = msgspec.to_builtins(self._report.metrics())
        return {**metrics, "migrations": [migration.as_dict() for migration in changes]}

    def history(self) -> list[Migration]:
        """The migrations that were submitted, in order. What they did stays known after a restart."""
        return self._report.history()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with every event from now on (see ``runtime.run``); gives a function that ends this.

        It is called in a thread of midstream's, after a micro-batch was reported. What it raises is logged.
        """
        return self._report.listeners.subscribe(listener)

    def rates(self) -> dict[str, float | None]:
        """``rows`` and ``results`` per second over the last seconds; None until two micro-batches had rows."""
        rates: dict[str, float | None] = msgspec.to_builtins(self._report.rates())
        return rates

    def write_status(self) -> None:
        """Write ``status.json`` now; each micro-batch does it, but later: a process that ends may be too quick."""
        self._controlled("write_status()")
        self._report.write()

    # How it is made

    def _windows_of(self, stream: Stream) -> list[Window]:
        windows = {w.identity: w for w in self.query.plan().windows() if w.stream.name == stream.name}
        return list(windows.values())

    def _conditions(self, window: Window) -> str:
        return " AND ".join(sorted(c.text for c in self._windows.conditions(window) if is_translatable(c)))

    def _wanted(self, stream: Stream) -> SparkColumn | None:
        """Which rows any window wants, as far as Spark can evaluate it; None: all."""
        wanted: list[SparkColumn] = []
        for window in self._windows_of(stream):
            conditions = [as_spark_column(c) for c in self._windows.conditions(window) if is_translatable(c)]
            if not conditions:
                return None
            wanted.append(reduce(lambda a, b: a & b, conditions))
        return reduce(lambda a, b: a | b, wanted)

    def _packed(self, frames: Mapping[str, DataFrame | FileStream]) -> DataFrame:
        """The rows of all streams, packed for the cells that need them; files that the one cell reads as they are."""
        files: dict[int, tuple[FileStream, StreamPacker]] = {}
        packers, selected = [], {}
        for place, (name, stream) in enumerate(self._streams.items()):
            frame, windows = frames[name], self._windows_of(stream)
            if isinstance(frame, FileStream):
                conditions = {window.identity: self._windows.conditions(window) for window in windows}
                packers.append(StreamPacker(windows, self._columns(stream), self.partitioning, conditions))
                files[place] = frame, packers[-1]
                continue
            packer = StreamPacker(windows, self._columns(stream), self.partitioning)
            packers.append(packer)
            own = [F.col(column_name(column)) for column in dict.fromkeys([*packer.columns, stream.event_time])]
            wanted = self._wanted(stream)
            own += [] if wanted is None else [wanted.alias(KEEP)]
            if BAD_MESSAGE in frame.columns:
                own.append(F.col(BAD_MESSAGE).isNotNull().alias(BAD_MESSAGE))
            selected[place] = frame.select(*own)
        parts = []
        if files:
            log = self._controlled("a stream of files").files_path
            found, self._reading = files_to_read(files, log, self._keys)
            parts.append(found)
        if selected:
            parts.append(self._packed_by_spark(packers, selected))
        return reduce(DataFrame.union, parts)

    def _packed_by_spark(self, packers: list[StreamPacker], selected: Mapping[int, DataFrame]) -> DataFrame:
        """The rows of those streams that Spark reads: numbers are places among all streams."""
        types = [{field.name: field.dataType.json() for field in own.schema} for own in selected.values()]
        shared = dict(zip(selected, shared_columns(types), strict=True))
        together = reduce(
            lambda one, other: one.unionByName(other, allowMissingColumns=True),
            [own.toDF(*shared[place].values()).withColumn(STREAM, F.lit(place)) for place, own in selected.items()],
        )
        if self.is_streaming:
            together = together.coalesce(self.partitioning.cells)
        return together.mapInArrow(Packer(packers, shared, self._keys), PACKED)

    def _columns(self, stream: Stream) -> list[str]:
        """The columns that any plan or the partitioning reads."""
        windows = self._windows_of(stream)
        names = {field.name for window in windows for field in window.schema if field in self._read}
        keys = [d.keys[w.identity] for d in self.partitioning.dimensions for w in windows if w.identity in d.keys]
        names |= {column.name for key in keys for column in key.columns}
        return [name for name in stream.schema.names if name in names]

    def _commands(self) -> DataFrame:
        """Commands, to every cell."""
        # With its scheme: the cluster's default may be another file system.
        lines = self._spark.readStream.schema(_COMMAND_COLUMNS).json(
            f"file://{self._controlled('commands').commands_path}"
        )
        every_cell = F.explode(F.array(*[F.lit(key).cast("long") for key in self._keys]))
        return lines.where("id is not null and command is not null").select(
            every_cell.alias("cell"),
            F.lit(COMMAND).alias("kind"),
            F.col("id").alias("place"),
            F.col("command").cast("binary").alias("blob"),
        )

    def _operated(self, schema: StructType | str, target: TableTarget | None = None) -> DataFrame:
        claims = self._controlled("results").claims()
        figures = self._spark.sparkContext.accumulator([], Figures(self._report.take))
        begun = self._report.cells_begun
        work = CellWork(
            self._setup, self._name, self._keys, claims, begun, figures, self._is_hosted, target, self._reading
        )
        return self._rows.groupBy("cell").transformWithStateInPandas(
            CellOperator(work), schema, outputMode="Append", timeMode="None"
        )

    def _backfilled(self, backfill: Backfill, schema: StructType | str) -> DataFrame:
        return self._rows.groupBy("cell").applyInArrow(_applied(backfill), schema)

    def _renamed(self, produced: DataFrame) -> DataFrame:
        """Inside columns have numbers: names of a select list may repeat."""
        return produced.toDF(*self._names)

    def _controlled(self, what: str) -> ControlDirectory:
        if self._control is None:
            raise NotStreaming(
                f"{what} is for a query over streams", detail="Its DataFrames are batches: they are read once, whole."
            )
        return self._control

    def _default_cells(self) -> int:
        """As many as the query began with; else one on a single machine, and one for each core of a cluster."""
        stored = None if self._control is None else self._control.query()
        if stored is not None:
            return stored.query.cells
        # A cell's state stays with an executor of one core.
        return 1 if _is_local(self._spark) else max(1, self._spark.sparkContext.defaultParallelism)


def _applied(backfill: Backfill) -> Callable[[tuple[Any, ...], Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """As a function: Spark looks at its annotations to know that it takes batches one by one."""

    def apply(key: tuple[pa.Scalar, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return backfill(key, batches)

    return apply


def _numbered(schema: StructType) -> StructType:
    return StructType([StructField(str(place), field.dataType) for place, field in enumerate(schema)])


def _seconds(duration: datetime.timedelta | float | None) -> float | None:
    seconds = duration.total_seconds() if isinstance(duration, datetime.timedelta) else duration
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0):
        raise BadPlan(f"idle_after is {duration!r}", hint="Give a timedelta or seconds, more than 0.")
    return seconds


def _control_path(path: str | os.PathLike[str] | None, spark: SparkSession) -> str | os.PathLike[str] | None:
    if path is not None and (not isinstance(path, str | os.PathLike) or not str(path) or "://" in str(path)):
        raise NoControlDirectory(
            f"control_dir is {path!r}", hint="Give a directory that this process can write to, as a path or a string."
        )
    if path is None and not _is_local(spark):
        raise NoControlDirectory(
            "a query on a cluster needs a control directory",
            detail="Executors read commands from it, as they read any file.",
            hint="Give control_dir=..., a directory that the driver and all executors share.",
        )
    return path


def _is_local(spark: SparkSession) -> bool:
    return is_one_machine(spark.sparkContext.master or "")


def _warn_of_partitions(partitions: int, cells: int) -> None:
    if partitions > 2 * cells:
        warnings.warn(
            f"spark.sql.shuffle.partitions is {partitions} and the query has {cells} cell(s): every micro-batch starts "
            f"{partitions} tasks, most of them empty. Set it to {cells} before the query starts for the first time.",
            stacklevel=4,
        )
