"""A cell whose windows outlive the process: what the operator on Spark runs, without Spark.

The rows in their windows are durable, everything else is derived (see ``engine/window_store``). A micro-batch writes
its own rows as one *segment* to the *state backend* (Spark's state store), the *progress* of the cell (its watermark,
counters and which segments there are) and, only when a migration changed it, a *manifest* of the plans in use. Segments
are dropped when all their rows have left their windows, so that what is written is proportional to the batch, and
intermediate results are never written.

Each progress has a *version*, and so has a cell in memory. A cell with another version than the backend's is stale (the
task was retried, another process took over, the query was restarted) and is restored from the backend: the windows are
read back and states are completed on demand, as after a migration from the empty plan.

Segments are few: small ones are merged geometrically, as in an LSM tree (a row is rewritten at most log₂ 4096 times),
and one of whose rows only a quarter is alive, because some lie far ahead in time, is rewritten without the others.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from midstream.algebra.plan import Plan
from midstream.algebra.plan_json import plan_from_json, plan_to_json
from midstream.algebra.windows import BEGINNING, NEVER
from midstream.engine.event_time import EventTime
from midstream.engine.ingest import StreamCounters
from midstream.engine.output import output_schema, to_record_batches
from midstream.engine.window_store import KeptRows, Rows, WindowProgress
from midstream.errors import BadPlan, CheckpointMismatch, MigrationRefused
from midstream.migration.cell import Cell
from midstream.migration.state_matching import Completion
from midstream.spark.frames import from_bytes, to_bytes
from midstream.spark.packing import Pack

__all__ = ["CellSetup", "DurableCell", "StateBackend", "counted_in"]

FORMAT = 3
"""What is in a state backend; changed whenever an earlier version could not read it, or would read it wrongly."""
SMALL_SEGMENT = 4096
"""Rows. Smaller segments are merged: each costs a read when the cell is made again, and an entry in the store."""
PIECE_ROWS = 1 << 16
"""Results leave in pieces of so many: Spark takes one while the next is put together."""
SPARSE = 4
"""A segment with less than one row in so many alive is written anew."""
REMEMBERED_COMMANDS = 32
"""Commands whose outcome is kept, the latest ones."""

_PROGRESS, _MANIFEST, _SEGMENT = "progress", "manifest", "segment "


class StateBackend(Protocol):
    """Durable storage of one cell: all changes of a micro-batch become durable together, or none."""

    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, value: bytes) -> None: ...

    def remove(self, key: str) -> None: ...

    def items(self) -> Iterable[tuple[str, bytes]]: ...


@dataclass(frozen=True)
class CellSetup:
    """What every cell of a query must know; small, and made into plans only where a cell begins."""

    query: Mapping[str, Any]
    """What a checkpoint must agree with: the query, its streams, how rows are spread."""
    first_plan: str
    default_plan: str
    lateness: Mapping[str, int]
    derived_from: str

    def plan(self, text: str) -> Plan:
        """A plan of this query from its JSON."""
        return plan_from_json(json.loads(text), self.derived_from)


@dataclass
class _Segment:
    """Rows that came one after the other: their numbers, until when they are needed, how many there are."""

    number: int
    first: dict[str, int]
    last: dict[str, int]
    latest_end: dict[str, int]
    rows: int

    @property
    def key(self) -> str:
        return f"{_SEGMENT}{self.number:015d}"


def counted_in(default_plan: Plan) -> dict[str, str]:
    """By stream, the window whose late rows are counted: one, because its rows may go to other cells in another."""
    counted: dict[str, str] = {}
    for window in default_plan.windows():
        counted.setdefault(window.stream.name, window.identity)
    return counted


class DurableCell:
    """A cell at work, and what it has written."""

    def __init__(self, setup: CellSetup, first_plan: str | None = None) -> None:
        self.setup = setup
        self._first_json = first_plan or setup.first_plan
        self._first_plan = setup.plan(self._first_json)
        default = setup.plan(setup.default_plan)
        self.cell = Cell(self._first_plan, default)
        self.time = EventTime(setup.lateness)
        self.streams = {stream: StreamCounters() for stream in setup.lateness}
        self._counted_in = counted_in(default)
        self.version = ""
        self.batches = 0
        self.bytes_written = 0
        self.last_bytes = 0
        self.rebuild_seconds: float | None = None
        self._segments: list[_Segment] = []
        self._next_segment = 0
        self._looked_at = 0
        self._commands: list[dict[str, Any]] = []
        self._told_of: Plan | None = None
        self._told_plan: dict[str, Any] = {}
        self._manifest_changed = True
        self._written_ends = self.cell.windows.ends()

    # Reading

    @classmethod
    def from_backend(
        cls, setup: CellSetup, backend: StateBackend, completion: Completion = Completion.LAZY
    ) -> DurableCell:
        """The cell as it was when the state backend was last written; a new one if it never was."""
        return cls.from_kept(setup, dict(backend.items()), completion)

    @classmethod
    def from_kept(
        cls, setup: CellSetup, kept: Mapping[str, bytes], completion: Completion = Completion.LAZY
    ) -> DurableCell:
        """The cell from all that a state backend holds."""
        began = time.perf_counter()
        if not kept:
            return cls(setup)
        manifest = json.loads(kept.get(_MANIFEST, b"{}"))
        if manifest.get("format") != FORMAT:
            found = "an earlier format" if manifest.get("format") is None else f"format {manifest['format']}"
            raise CheckpointMismatch(
                "the checkpoint was written by another version of midstream",
                detail=f"Its state has {found}; this version reads format {FORMAT}.",
                hint="Continue with the version of midstream that wrote it, or use another checkpoint directory.",
            )
        progress = json.loads(kept[_PROGRESS])
        _check_same_query(manifest["query"], setup.query)
        durable = cls(setup, manifest["first_plan"])
        if manifest["columns"] != durable.cell.windows.columns():
            # Another version of midstream may plan the same query otherwise.
            raise CheckpointMismatch(
                "the checkpoint keeps other columns of the streams' rows than the query reads",
                detail=f"There: {manifest['columns']}. Now: {durable.cell.windows.columns()}.",
                hint="Continue with the version of midstream that wrote it, or use another checkpoint directory.",
            )
        durable._restore(progress, manifest, {k: v for k, v in kept.items() if k.startswith(_SEGMENT)}, completion)
        durable._manifest_changed = durable.cell.has_running_migrations
        durable.rebuild_seconds = time.perf_counter() - began
        return durable

    @staticmethod
    def version_in(backend: StateBackend) -> str:
        """The version of the cell that the state backend belongs to; empty if there is none yet."""
        progress = backend.get(_PROGRESS)
        return "" if progress is None else str(json.loads(progress)["version"])

    def _restore(
        self,
        progress: Mapping[str, Any],
        manifest: Mapping[str, Any],
        segments: Mapping[str, bytes],
        completion: Completion,
    ) -> None:
        identities = list(self.cell.windows.ends())
        parts = []
        for key in sorted(segments):
            segment, rows = _read_segment(int(key.removeprefix(_SEGMENT)), segments[key], identities)
            self._segments.append(segment)
            parts.append(rows)
        figures = (dict(zip(identities, values, strict=True)) for values in zip(*progress["windows"], strict=True))
        windows = WindowProgress(*figures)
        self.cell.windows.restore(parts, windows)
        self.cell.restore(manifest["cell"], progress["watermark"], completion)
        self.cell.results = progress["results"]
        self.time.restore(**progress["time"])
        self.streams = {stream: StreamCounters(**counts) for stream, counts in progress["streams"].items()}
        self.version = progress["version"]
        self.batches = progress["batches"]
        self._next_segment = progress["next_segment"]
        self._looked_at = progress["looked_at"]
        self._commands = manifest["commands"]
        self._written_ends = self.cell.windows.ends()

    # Working

    @cached_property
    def output_schema(self) -> pa.Schema:
        return output_schema(self._first_plan)

    def work(self, commands: Iterable[Mapping[str, Any]], packs: Iterable[Pack]) -> Iterator[pa.RecordBatch]:
        """One micro-batch: plans are changed, then rows are taken; the results."""
        at_least = BEGINNING
        # What became of all commands of one batch is told, however many there are.
        self._commands = self._commands[-REMEMBERED_COMMANDS:]
        for command in commands:
            at_least = max(at_least, self._obey(command))
        rows = self._in_time(self.rows_of(packs))
        for batch in self.cell.push(rows, self.time.advance(at_least)):
            for start in range(0, len(batch), PIECE_ROWS):
                piece = batch.sliced(start, min(len(batch), start + PIECE_ROWS))
                yield from to_record_batches(piece, self.output_schema)

    def _obey(self, command: Mapping[str, Any]) -> int:
        """Carry out a command; the watermark that it demands."""
        match command.get("kind"):
            case "finish":
                return NEVER
            case "idle":
                counts = self.streams.get(command["stream"])
                # Silence that was noticed by itself is over if a row has come since.
                if counts is not None and counts.rows <= command.get("rows", math.inf):
                    self.time.declare_idle(command["stream"])
            case "migrate":
                self._migrate(command)
        return BEGINNING

    def _migrate(self, command: Mapping[str, Any]) -> None:
        name = {"directory": command["directory"], "id": command["id"]}
        if any(name.items() <= known.items() for known in self._commands):
            return
        outcome: dict[str, Any] = {**name, "outcome": "begun", "why": None, "migration": None}
        try:
            if command.get("identity", self.setup.derived_from) != self.setup.derived_from:
                raise BadPlan("the plan is one of another query")
            plan = plan_from_json(command["plan"], self.setup.derived_from)
            if plan == self.cell.plan:
                outcome["outcome"] = "unchanged"
            self.cell.migrate(plan, command["strategy"], **command["options"])
            if outcome["outcome"] == "begun":
                outcome["migration"] = self.cell.migrations
        except (MigrationRefused, BadPlan) as refusal:
            outcome |= {"outcome": "refused", "why": str(refusal)}
        self._commands = [*self._commands, outcome]
        self._manifest_changed = True

    def rows_of(self, packs: Iterable[Pack]) -> dict[str, Rows]:
        """The rows by window; what was seen of the streams is noted."""
        by_window: dict[str, list[pa.RecordBatch]] = {}
        for pack in packs:
            if pack.counts:
                counts = self.streams[pack.stream]
                counts.rows += pack.rows
                counts.without_event_time += pack.without_event_time
                counts.event_time_out_of_range += pack.event_time_out_of_range
                if pack.latest is not None:
                    self.time.see(pack.stream, pack.latest)
            for window in pack.windows:
                by_window.setdefault(window, []).append(pack.batch)
        return {window: _rows(pa.Table.from_batches(batches)) for window, batches in by_window.items()}

    def _in_time(self, rows: Mapping[str, Rows]) -> dict[str, Rows]:
        """The rows that are not older than the watermark of the last batch; the others are counted, in one window."""
        in_time = {window: these.times >= self.time.watermark for window, these in rows.items()}
        for stream, window in self._counted_in.items():
            if window in rows:
                self.streams[stream].late += int(np.count_nonzero(~in_time[window]))
        return {window: these.filtered(in_time[window]) for window, these in rows.items()}

    # Writing

    def save(self, backend: StateBackend) -> None:
        """Make durable what the last micro-batch changed; the cell has a new version afterwards."""
        before = self.bytes_written
        self.version = uuid.uuid4().hex
        self.batches += 1
        self._drop_ended(backend)
        self._write_rows(backend)
        self._rewrite_sparse(backend)
        if self._manifest_changed:
            manifest = {
                "format": FORMAT,
                "query": self.setup.query,
                "first_plan": self._first_json,
                "columns": self.cell.windows.columns(),
                "cell": self.cell.manifest(),
                "commands": self._commands,
            }
            self._put(backend, _MANIFEST, json.dumps(manifest).encode())
            self._manifest_changed = self.cell.has_running_migrations
        windows = self.cell.windows.progress()
        progress = {
            "version": self.version,
            "batches": self.batches,
            "results": self.cell.results,
            "watermark": self.cell.watermark,
            "time": self.time.manifest(),
            "streams": {stream: asdict(counts) for stream, counts in self.streams.items()},
            "next_segment": self._next_segment,
            "looked_at": self._looked_at,
            "windows": [
                [windows.ends[i], windows.released[i], windows.latest_start[i], windows.latest_end[i]]
                for i in windows.ends
            ],
        }
        self._put(backend, _PROGRESS, json.dumps(progress).encode())
        self.last_bytes = self.bytes_written - before

    def _put(self, backend: StateBackend, key: str, value: bytes) -> None:
        backend.put(key, value)
        self.bytes_written += len(value)

    def _drop_ended(self, backend: StateBackend) -> None:
        """Segments whose rows have all left their windows."""
        released = self.cell.windows.progress().released
        for segment in [s for s in self._segments if all(e <= released[i] for i, e in s.latest_end.items())]:
            backend.remove(segment.key)
            self._segments.remove(segment)

    def _write_rows(self, backend: StateBackend) -> None:
        """The rows of this micro-batch, with small segments that came before."""
        first, last = self._written_ends, self.cell.windows.ends()
        self._written_ends = last
        if first == last:
            return
        kept = self.cell.windows.kept(first, last)
        rows = sum(map(len, kept.values()))
        if rows == 0:
            return
        while self._goes_with_elder(len(self._segments), rows):
            elder = self._segments.pop()
            backend.remove(elder.key)
            first = elder.first
            kept = self.cell.windows.kept(first, last)
            rows = sum(map(len, kept.values()))
        self._segments.append(self._write_segment(backend, self._next_segment, kept, first, last))
        self._next_segment += 1

    def _rewrite_sparse(self, backend: StateBackend) -> None:
        """Look at one segment per batch: if most of its rows are dead, write it anew, with small ones before it."""
        if not self._segments:
            return
        self._looked_at = (self._looked_at + 1) % len(self._segments)
        place = self._looked_at
        segment = self._segments[place]
        rows = self.cell.windows.living(segment.first, segment.last)
        if rows * SPARSE >= segment.rows and not self._goes_with_elder(place, rows):
            return
        kept = self.cell.windows.kept(segment.first, segment.last)
        first = segment.first
        while self._goes_with_elder(place, rows):
            place -= 1
            elder = self._segments.pop(place)
            backend.remove(elder.key)
            first = elder.first
            kept = self.cell.windows.kept(first, segment.last)
            rows = sum(map(len, kept.values()))
        if rows:
            self._segments[place] = self._write_segment(backend, segment.number, kept, first, segment.last)
        else:
            backend.remove(segment.key)
            del self._segments[place]

    def _goes_with_elder(self, place: int, rows: int) -> bool:
        """Whether so many rows are few enough to be written together with the segment before the place."""
        return place > 0 and rows < SMALL_SEGMENT and self._segments[place - 1].rows <= 2 * rows

    def _write_segment(
        self,
        backend: StateBackend,
        number: int,
        kept: Mapping[str, KeptRows],
        first: dict[str, int],
        last: dict[str, int],
    ) -> _Segment:
        kept = {identity: rows for identity, rows in kept.items() if len(rows)}
        latest_end = {identity: int(rows.valid_to.max()) for identity, rows in kept.items()}
        segment = _Segment(number, first, last, latest_end, sum(map(len, kept.values())))
        identities = list(first)
        header = {
            "windows": [identities.index(identity) for identity in kept],
            "first": list(first.values()),
            "last": list(last.values()),
        }
        batches = [_as_batch(rows) for rows in kept.values()]
        self._put(backend, segment.key, to_bytes(header, batches, compression="zstd"))
        return segment

    # Telling

    def _plan_told(self) -> dict[str, Any]:
        """The plan in force as text and as data; made only when it has changed."""
        plan = self.cell.plan
        if self._told_of is not plan:
            self._told_of, self._told_plan = plan, {"plan": plan.explain(), "plan_json": plan_to_json(plan)}
        return self._told_plan

    def metrics(self) -> dict[str, Any]:
        """For the driver: what this cell did and holds."""
        commands = [{**known, "record": self.cell.record(known["migration"])} for known in self._commands]
        return {
            **self.cell.counts(),
            **self._plan_told(),
            "migrating": self.cell.has_running_migrations,
            "commands": commands,
            "batches": self.batches,
            "watermark": self.time.watermark,
            "idle": sorted(self.time.idle),
            "streams": {stream: asdict(counts) for stream, counts in self.streams.items()},
            "segments": len(self._segments),
            "segment_rows": sum(segment.rows for segment in self._segments),
            "bytes_written": self.last_bytes,
            "rebuild_seconds": self.rebuild_seconds,
        }


def _as_batch(rows: KeptRows) -> pa.RecordBatch:
    """Numbers as steps and ends as durations: they compress to almost nothing."""
    steps = np.diff(rows.numbers, prepend=np.int64(0))
    # Instants may lie anywhere in int64: the difference wraps around, and so does the sum that undoes it.
    durations = (rows.valid_to.view(np.uint64) - rows.valid_from.view(np.uint64)).view(np.int64)
    own = [pa.array(steps), pa.array(rows.valid_from), pa.array(durations)]
    arrays = own + rows.columns
    return pa.RecordBatch.from_arrays(arrays, names=[str(place) for place in range(len(arrays))])


def _as_kept(batch: pa.RecordBatch) -> KeptRows:
    steps, valid_from, durations = (batch.column(place).to_numpy() for place in range(3))
    valid_to = (valid_from.view(np.uint64) + durations.view(np.uint64)).view(np.int64)
    return KeptRows(np.cumsum(steps), valid_from, valid_to, batch.columns[3:])


def _read_segment(number: int, data: bytes, identities: list[str]) -> tuple[_Segment, dict[str, KeptRows]]:
    header, batches = from_bytes(data)
    kept = {identities[place]: _as_kept(batch) for place, batch in zip(header["windows"], batches, strict=True)}
    first, last = (dict(zip(identities, header[name], strict=True)) for name in ("first", "last"))
    latest_end = {identity: int(rows.valid_to.max()) for identity, rows in kept.items()}
    return _Segment(number, first, last, latest_end, sum(map(len, kept.values()))), kept


def _rows(table: pa.Table) -> Rows:
    columns = {name: _one_chunk(table.column(name)) for name in table.column_names}
    return Rows(columns.pop("__time").to_numpy(), columns)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _check_same_query(stored: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on with another query's state."""
    for name, value in now.items():
        if stored.get(name) != value and name != "text":
            shown = "text" if name == "identity" else name
            raise CheckpointMismatch(
                f"the checkpoint belongs to a query with another {shown}",
                detail=f"There: {stored.get(shown)}. Now: {now[shown]}.",
                hint="Use the query that the checkpoint was made with, or another checkpoint directory.",
            )
