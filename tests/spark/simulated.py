"""Spark, simulated: everything that a query on Spark does between its sources and its sink, in this process.

The code under test is the real one: packers, the operator, its cells. Around it stands what Spark does: rows are cut
into map tasks, packs are shuffled, each cell's task runs in some worker on the state that was last committed, and a
micro-batch counts when all of its tasks have committed. What goes wrong on a cluster is written into the test:

    cluster = SimulatedCluster(text, streams, cells=2)
    cluster.run({"a": table}, [cluster.migrate(plan, "jisc")], faults=[Fault("task fails", cell=1, after=0)])
    cluster.run({}, [cluster.finish()])
    cluster.results

A worker is what ``cell_work._CELLS`` is in its process; with ``hosted=True`` cells live in hosts (``cell_host``),
which are threads here. The code of the driver that needs a session (``LiveQuery``) is written here again, in short.
"""

from __future__ import annotations

import pickle
import random
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark import TaskContext, cloudpickle

from midstream import ContinuousQuery, Stream
from midstream.algebra.expressions import Expression
from midstream.algebra.plan import Plan
from midstream.algebra.plan_json import plan_to_json
from midstream.engine.expressions.evaluate import truth
from midstream.engine.output import output_schema
from midstream.engine.state.window_store import WindowStore, fields_read
from midstream.migration.state_matching import Completion
from midstream.planning.partitioning import Partitioning, partition
from midstream.runtime import cell_host
from midstream.runtime.cell_cache import CellCache
from midstream.runtime.cell_host import HostedCell
from midstream.runtime.cell_setup import CellSetup
from midstream.runtime.control import Claims
from midstream.runtime.durable_cell import DurableCell
from midstream.runtime.messages import Action, CellFigures, Command, DeclareIdle, Finish, Migrate, encode
from midstream.runtime.pack import KEEP, StreamPacker
from midstream.runtime.progress import Progress
from midstream.runtime.segment_log import SegmentHeader, read_segment
from midstream.runtime.state_backend import CellsBegun
from midstream.spark import cell_work, packing
from midstream.spark.catalyst import is_translatable
from midstream.spark.cell_keys import cell_keys
from midstream.spark.cell_work import CellWork, SparkStateBackend
from midstream.spark.packing import STREAM, Packer, shared_columns
from midstream.spark.spark_types import as_type, type_for_spark

__all__ = ["FAULTS", "DictStateBackend", "Fault", "LoneCell", "SimulatedCluster", "command", "packs_of"]

Received = list[tuple[str, int, bytes]]
"""What comes to a cell: the kind, the place and the blob of packs and commands."""

FAULTS = (
    "worker lost",
    "all workers lost",
    "query restarted",
    "task fails",
    "task fails after save",
    "speculation",
    "batch replayed",
    "batch replayed after restart",
)


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong in a micro-batch.

    - "worker lost", "all workers lost": before the batch. "query restarted": so, and the driver begins anew.
    - "task fails": the cell's task ends after it gave so many frames of results; it is tried again.
    - "task fails after save": all is done but for the commit. What the worker remembers is ahead of the state.
    - "speculation": the cell's task runs twice on the same state, and either may commit.
    - "batch replayed": all tasks have committed, but the batch has not; "after restart": because the driver died.
    """

    kind: str
    cell: int = 0
    after: int = 0


QUERY_ID = "as Spark calls it"


class SimulatedCluster:
    """A query on a cluster with two workers. All that Spark decides is decided by ``seed``."""

    def __init__(
        self,
        text: str,
        streams: Sequence[Stream],
        plan: Plan | str | None = None,
        cells: int = 1,
        seed: int = 0,
        keep_column: bool = True,
        hosted: bool = False,
    ) -> None:
        self._text, self._streams, self._cells = text, streams, cells
        self._keep_column = keep_column
        self._hosts = _Hosts() if hosted else None
        self.random = random.Random(seed)
        self.workers = [CellCache(), CellCache()]
        self.last_command = 0
        self.claims: list[tuple[str, int]] = []
        """Whose commands are in the control directory."""
        self.figures: list[CellFigures] = []
        """What each cell reported last."""
        self._start_driver(plan)
        self.committed: list[dict[str, bytes]] = [{} for _ in range(self.partitioning.cells)]
        """The state of each cell."""
        self.batches: list[list[pa.Table]] = []
        """Results of the committed micro-batches, by cell."""
        self._homes = [self.random.choice(self.workers) for _ in self.committed]

    def _start_driver(self, plan: Plan | str | None) -> None:
        """What ``LiveQuery`` does."""
        self.query = ContinuousQuery(self._text, self._streams)
        self.first_plan, default = self.query.chosen(plan), self.query.plan()
        self.partitioning = partition(default, self._cells)
        self.keys = cell_keys(self.partitioning.cells)
        self.schema = output_schema(default)
        self.setup = CellSetup.of(self.query, self.first_plan, self.partitioning)
        streams = {w.stream.name: w.stream for w in default.windows()}
        ordered = {name: streams[name] for name in sorted(streams)}
        self._sources = _Sources(ordered, self.first_plan, default, self.partitioning, self.keys)
        run = f"run {self.random.getrandbits(64)}"
        claims = Claims("", tuple(self.claims))
        begun = CellsBegun.reported(QUERY_ID, self.figures)
        work = CellWork(self.setup, run, self.keys, claims, begun, _Accumulator(), self._hosts is not None)  # type: ignore[arg-type]
        self._work = cloudpickle.dumps(work)
        self.progress = Progress(default, self.partitioning)

    # Commands

    def migrate(self, plan: Plan, strategy: str = "jisc", **options: Any) -> Command:
        identity = plan.derived_from or ""
        return self._command(Migrate(plan=plan_to_json(plan), identity=identity, strategy=strategy, options=options))

    def idle(self, stream: str) -> Command:
        return self._command(DeclareIdle(stream=stream))

    def finish(self) -> Command:
        return self._command(Finish())

    def _command(self, action: Action) -> Command:
        self.last_command += 1
        return command(self.last_command, action)

    # Micro-batches

    def run(
        self,
        rows: Mapping[str, pa.Table],
        commands: Sequence[Command] = (),
        faults: Iterable[Fault] = (),
        restart_with: Plan | str | None = None,
    ) -> pa.Table:
        """One micro-batch, whatever happens on the way; its results.

        ``restart_with`` is the plan that the query is started with again, if it is.
        """
        faults = list(faults)
        kinds = {fault.kind for fault in faults}
        if "query restarted" in kinds:
            self._restart(restart_with)
        if "all workers lost" in kinds:
            self._lose(self.workers)
        if "worker lost" in kinds:
            self._lose([self.random.choice(self.workers)])
        if kinds & {"batch replayed", "batch replayed after restart"}:
            self._attempt_all(rows, commands, faults)
            if "batch replayed after restart" in kinds:
                self._restart(restart_with)
        attempts = self._attempt_all(rows, commands, faults)
        self.committed = [attempt.state for attempt in attempts]
        self.figures = [attempt.figures for attempt in attempts]
        self.progress.take(self.figures)
        self.batches.append([pa.concat_tables([self._nothing, *attempt.results]) for attempt in attempts])
        return pa.concat_tables(self.batches[-1])

    @property
    def results(self) -> pa.Table:
        """All that was committed."""
        return pa.concat_tables([self._nothing, *(table for batch in self.batches for table in batch)])

    def _restart(self, plan: Plan | str | None) -> None:
        self._lose(self.workers)
        self._start_driver(plan if plan is not None else self.first_plan)

    def _lose(self, workers: Iterable[CellCache]) -> None:
        for worker in workers:
            worker._cells.clear()
        if self._hosts is not None:
            self._hosts.lose_all()

    def _attempt_all(
        self, rows: Mapping[str, pa.Table], commands: Sequence[Command], faults: Sequence[Fault]
    ) -> list[_Attempt]:
        """The attempts that commit, by cell."""
        attempts = []
        received = self._shuffled(rows, commands)
        for cell in range(len(self.committed)):
            own = [fault for fault in faults if fault.cell % len(self.committed) == cell]
            for fault in own:
                if not fault.kind.startswith("task fails"):
                    continue
                self._attempt(cell, received[cell], fault.after if fault.kind == "task fails" else None)
                if self.random.random() < 0.5:
                    # Map tasks were lost, too, and the source is cut in another way.
                    received = self._shuffled(rows, commands)
            made = [self._attempt(cell, received[cell])]
            if any(fault.kind == "speculation" for fault in own):
                other = self.workers[self._homes[cell] is self.workers[0]]
                made.append(self._attempt(cell, received[cell], worker=other))
            attempts.append(self.random.choice(made))
        return [attempt for attempt in attempts if attempt is not None]

    def _attempt(
        self, cell: int, received: Received, after: int | None = None, worker: CellCache | None = None
    ) -> _Attempt | None:
        """One attempt at a task; abandoned after some frames of results, if the number is given."""
        if worker is None and self.random.random() < 0.3:
            self._homes[cell] = self.random.choice(self.workers)
        state = _State(self.committed[cell], self._hosts is None)
        results = []
        with _in_process(worker or self._homes[cell], self._hosts):
            work = pickle.loads(self._work)
            frames = work(self.keys[cell], self._frames(received), SparkStateBackend(state))
            for number, frame in enumerate(frames):
                if number == after:
                    frames.close()
                    return None
                results.append(self._table(frame))
        if after is not None:
            return None
        return _Attempt(results, work._figures.figures, state.content)

    # Rows on their way

    def _shuffled(self, rows: Mapping[str, pa.Table], commands: Sequence[Command]) -> list[Received]:
        """What each cell receives: packs of all map tasks, and commands."""
        cells: dict[int, Received] = {key: [] for key in self.keys}
        for packed in self._sources.packed(rows, self.random, self._keep_column):
            for key, kind, place, blob in zip(*(column.to_pylist() for column in packed.columns), strict=True):
                cells[key].append((kind, place, blob))
        for received in cells.values():
            received += [("command", command.number, encode(command)) for command in commands]
        return list(cells.values())

    def _frames(self, received: Received) -> Iterator[pd.DataFrame]:
        """In any order and any number of frames."""
        mixed = self.random.sample(received, len(received))
        size = self.random.choice([1, 2, 1000, 1000])
        for start in range(0, len(mixed), size):
            yield pd.DataFrame(mixed[start : start + size], columns=["kind", "place", "blob"])

    @property
    def _nothing(self) -> pa.Table:
        types = [type_for_spark(field.type) for field in self.schema]
        return pa.table([pa.array([], data_type) for data_type in types], names=self.schema.names)

    def _table(self, frame: pd.DataFrame) -> pa.Table:
        columns = [pa.array(frame[place].array) for place in range(len(self.schema))]
        return pa.table(columns, names=self.schema.names)


@dataclass
class _Attempt:
    """What a task did: results, the cell's figures, and the state that it would commit."""

    results: list[pa.Table]
    figures: CellFigures
    state: dict[str, bytes]


class _Accumulator:
    """An accumulator in one task."""

    def __init__(self) -> None:
        self.figures: CellFigures | None = None

    def add(self, figures: list[str]) -> None:
        (text,) = figures
        self.figures = msgspec.json.decode(text, type=CellFigures)


class _State:
    """A map state during one attempt: as it was committed, with the attempt's own changes."""

    def __init__(self, committed: Mapping[str, bytes], is_strict: bool) -> None:
        self.content = dict(committed)
        self._is_strict = is_strict

    def getValue(self, key: tuple[str]) -> tuple[bytes] | None:
        return None if key[0] not in self.content else (self.content[key[0]],)

    def updateValue(self, key: tuple[str], value: tuple[bytes]) -> None:
        self.content[key[0]] = value[0]

    def removeKey(self, key: tuple[str]) -> None:
        # A host may have put what it removes, in the same batch.
        assert key[0] in self.content or not self._is_strict
        self.content.pop(key[0], None)

    def iterator(self) -> Iterator[tuple[tuple[str], tuple[bytes]]]:
        # In no order that means anything.
        for key in sorted(self.content, key=lambda key: key[::-1]):
            yield (key,), (self.content[key],)


@contextmanager
def _in_process(worker: CellCache, hosts: _Hosts | None) -> Iterator[None]:
    named = mock.patch.object(cell_work, "_query_id", lambda: QUERY_ID)
    with (
        named,
        mock.patch.object(cell_work, "_CELLS", worker),
        mock.patch.object(cell_work, "HostedCell", hosts),
    ):
        yield


class _Hosts:
    """Hosts of cells as threads, with the protocol that they have as processes."""

    def __init__(self) -> None:
        self._caches: dict[tuple[str, int], CellCache] = {}
        self._at_work: list[threading.Thread] = []

    def __call__(self, run: str, cell: int) -> HostedCell:
        hosted = HostedCell(run, cell)
        hosted._connected = lambda: self._connection(run, cell)  # type: ignore[method-assign]
        return hosted

    def _connection(self, run: str, cell: int) -> socket.socket:
        # A host takes one worker after the other, and notices when one is gone.
        while self._at_work:
            self._at_work.pop().join()
        ours, theirs = socket.socketpair()
        cache = self._caches.setdefault((run, cell), CellCache())
        self._at_work.append(threading.Thread(target=self._serve, args=(theirs, cache)))
        self._at_work[-1].start()
        return ours

    def _serve(self, connection: socket.socket, cache: CellCache) -> None:
        with connection, suppress(OSError, EOFError), cell_host._stream(connection) as stream:
            cell_host._serve_batch(stream, cache)

    def lose_all(self) -> None:
        self._caches = {}


class _Sources:
    """All streams' rows on their way to the cells: what ``LiveQuery`` asks of Spark SQL, and map tasks."""

    def __init__(
        self,
        streams: Mapping[str, Stream],
        first_plan: Plan,
        default: Plan,
        partitioning: Partitioning,
        keys: list[int],
    ) -> None:
        windows, read = WindowStore([first_plan, default]), fields_read([first_plan, default])
        packers, types = [], []
        self._selected: dict[str, list[str]] = {}
        self._conditions: dict[str, list[list[Expression]]] = {}
        for name, stream in streams.items():
            own = list({w.identity: w for w in default.windows() if w.stream.name == name}.values())
            names = {field.name for window in own for field in window.schema if field in read}
            keyed = [d.keys[w.identity] for d in partitioning.dimensions for w in own if w.identity in d.keys]
            names |= {column.name for key in keyed for column in key.columns}
            columns = [name for name in stream.schema.names if name in names]
            packers.append(StreamPacker(own, columns, partitioning))
            self._selected[name] = list(dict.fromkeys([*columns, stream.event_time]))
            self._conditions[name] = [[c for c in windows.conditions(w) if is_translatable(c)] for w in own]
            types.append({name: str(stream.column_type(name)) for name in self._selected[name]} | {KEEP: "bool"})
        shared = shared_columns(types)
        self._shared = dict(zip(streams, shared, strict=True))
        self._packers = {
            keep: cloudpickle.dumps(Packer(packers, [self._kept(name, keep) for name in streams], keys))
            for keep in (False, True)
        }

    def _kept(self, stream: str, keep_column: bool) -> dict[str, str]:
        """The columns that a stream's rows have."""
        has_keep = keep_column and all(self._conditions[stream])
        return {name: shared for name, shared in self._shared[stream].items() if name != KEEP or has_keep}

    def packed(
        self, rows: Mapping[str, pa.Table], choose: random.Random, keep_column: bool
    ) -> Iterator[pa.RecordBatch]:
        """The packs of all map tasks; rows are dealt to tasks, and cut into batches there."""
        together = [self._united(name, table, keep_column) for name, table in rows.items()]
        if not together:
            return
        united = pa.concat_tables(together, promote_options="default")
        tasks = choose.choice([1, 1, 2, 3])
        dealt = np.array([choose.randrange(tasks) for _ in range(united.num_rows)], np.int64)
        for number in range(tasks):
            part = united.filter(pa.array(dealt == number))
            if choose.random() < 0.2:
                # Rows of several streams in any order.
                part = part.take(pa.array(choose.sample(range(part.num_rows), part.num_rows), pa.int64()))
            batches = part.to_batches(choose.choice([1, 2, 100])) if part.num_rows else []
            # A task with nothing gets no batch, or an empty one.
            if not batches and choose.random() < 0.5:
                batches = [pa.RecordBatch.from_pylist([], part.schema)]
            # Spark may run the map tasks of several partitions as one.
            partition_id = number // choose.choice([1, 2])
            context = SimpleNamespace(partitionId=lambda partition_id=partition_id: partition_id)
            with (
                mock.patch.object(TaskContext, "get", lambda context=context: context),
                mock.patch.object(packing, "PACK_BYTES", choose.choice([1, 1 << 20])),
            ):
                yield from pickle.loads(self._packers[keep_column])(batches)

    def _united(self, stream: str, table: pa.Table, keep_column: bool) -> pa.Table:
        """Rows of a stream as they are in the table that all streams share."""
        names = self._kept(stream, keep_column)
        united = table.select(self._selected[stream])
        if KEEP in names:
            wanted = [np.logical_and.reduce([_holds(c, table) for c in window]) for window in self._conditions[stream]]
            united = united.append_column(KEEP, pa.array(np.logical_or.reduce(wanted)))
        place = np.full(table.num_rows, list(self._selected).index(stream), np.int32)
        return united.rename_columns(list(names.values())).append_column(STREAM, pa.array(place))


def _holds(condition: Expression, table: pa.Table) -> Any:
    def column(column: Any) -> pa.Array:
        array = table.column(column.name).combine_chunks()
        return array if array.type == column.type else array.cast(column.type)

    return truth(condition, column, table.num_rows)


def command(number: int, action: Action, query: str | None = None) -> Command:
    """A command as a control directory writes it."""
    return Command(number=number, directory="", query=query, submitted=0.0, action=action)


# One cell alone


class DictStateBackend(dict[str, bytes]):
    """a state backend for a cell alone, which counts the bytes that were written, by kind of key."""

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[str, int] = {}

    def put(self, key: str, value: bytes) -> None:
        self[key] = value
        kind = key.split(" ")[0]
        self.written[kind] = self.written.get(kind, 0) + len(value)

    def remove(self, key: str) -> None:
        del self[key]


class LoneCell:
    """One durable cell and its state backend, without a cluster around it."""

    def __init__(self, text: str, streams: Sequence[Stream], plan: Plan | str | None = None) -> None:
        self.query = ContinuousQuery(text, streams)
        self.setup = CellSetup.of(self.query, self.query.chosen(plan), partition(self.query.plan(), 1))
        self.backend = DictStateBackend()
        self.durable = DurableCell.from_backend(self.setup, self.backend)

    def run(self, rows: Mapping[str, pa.Table], commands: Sequence[Command] = ()) -> pa.Table:
        """One micro-batch; its results."""
        results = list(self.durable.work(commands, packs_of(self.query, rows)))
        self.durable.save(self.backend)
        return pa.Table.from_batches(results, self.durable.output_schema)

    def rebuild(self, completion: Completion = Completion.LAZY) -> None:
        """Go on with what is in the state backend."""
        self.durable = DurableCell.from_backend(self.setup, self.backend, completion)

    @property
    def segments(self) -> dict[str, tuple[SegmentHeader, list[pa.RecordBatch]]]:
        """What is in each segment in the state backend."""
        return {key: read_segment(self.backend[key]) for key in sorted(self.backend) if key.startswith("segment")}

    @property
    def segment_rows(self) -> list[int]:
        """How many rows are in each segment in the state backend."""
        return [sum(batch.num_rows for batch in batches) for _, batches in self.segments.values()]


def packs_of(query: ContinuousQuery, rows: Mapping[str, pa.Table]) -> Iterator[bytes]:
    """The packs of one map task, for a query in one cell."""
    windows = list(query.plan().windows())
    for name, table in rows.items():
        own = list({w.identity: w for w in windows if w.stream.name == name}.values())
        stream = own[0].stream
        packer = StreamPacker(own, stream.schema.names, partition(query.plan(), 1))
        for batch in table.combine_chunks().to_batches():
            columns = [as_type(batch.column(column), stream.column_type(column)) for column in stream.schema.names]
            dense = pa.RecordBatch.from_arrays(columns, names=stream.schema.names)
            yield from (pack.to_bytes() for _, pack in packer.packs(dense))
