"""A cell whose windows outlive the process: what the operator on Spark runs, without Spark.

The rows in their windows are durable, everything else is derived (see ``engine/state/window_store``). A micro-batch
writes its own rows (``segment_log``), the *progress* of the cell (its watermark and counters)
and, only when a migration changed it, a *manifest* of the plans in use (``state_backend``). Intermediate results are
never written.

Each progress has a *version*, and so has a cell in memory. A cell with another version than the backend's is stale (the
task was retried, another process took over, the query was restarted) and is restored from the backend: the windows are
read back and states are completed on demand, as after a migration by JISC.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from functools import cached_property

import msgspec
import pyarrow as pa

from midstream.adaptation.cell_measuring import CellMeasuring
from midstream.algebra.plan import Plan
from midstream.algebra.plan_json import plan_to_json
from midstream.engine.output import output_schema, to_record_batches
from midstream.engine.state.window_store import Rows, WindowProgress
from midstream.migration.state_matching import Completion
from midstream.runtime.cell import Cell
from midstream.runtime.cell_setup import CellSetup
from midstream.runtime.command_handler import CommandHandler
from midstream.runtime.messages import CellFigures, CellManifest, CellProgress, Command, PlanJson, encode
from midstream.runtime.pack import Pack
from midstream.runtime.segment_log import SegmentLog
from midstream.runtime.state_backend import MANIFEST, PROGRESS, StateBackend, StoredCell, refusing_damage
from midstream.runtime.stream_counters import StreamCounters, counted_in, in_time
from midstream.runtime.watermark import EventTime

__all__ = ["DurableCell"]

CHUNK_ROWS = 1 << 18
"""About so many results are joined at once: the first ones are written while the next ones are joined."""
PIECE_ROWS = 1 << 16
"""Results leave in pieces of so many: Spark takes one while the next is put together."""


class DurableCell:
    """A cell at work, and what it has written."""

    def __init__(self, setup: CellSetup, first_plan: str | None = None) -> None:
        self.setup = setup
        self._first_json = first_plan or setup.first_plan
        self._first_plan = setup.plan(self._first_json)
        default = setup.plan(setup.default_plan)
        self.cell = Cell(self._first_plan, default, CHUNK_ROWS, just_in_time=setup.just_in_time)
        self.time = EventTime(setup.lateness)
        self.streams = {stream: StreamCounters() for stream in setup.lateness}
        self._counted_in = counted_in(default)
        self._commands = CommandHandler(self.cell, self.time, setup.query)
        self._commands.adaptation = setup.adaptation
        self._measuring: CellMeasuring | None = None
        self._log = SegmentLog(self.cell.windows)
        self.version = ""
        self.batches = 0
        self.last_bytes = 0
        """What the last micro-batch wrote."""
        self.rebuild_seconds: float | None = None
        self._manifest_changed = True
        self._reported_plan: tuple[Plan, str, PlanJson] | None = None

    # Recovery

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
        stored = StoredCell.read(kept, setup.query)
        with refusing_damage("The first plan"):
            durable = cls(setup, stored.manifest.first_plan)
        stored.check_columns(durable.cell.windows.columns())
        stored.check_intact(setup.lateness, len(durable.cell.windows.ends()))
        durable._restore(stored, completion)
        durable.rebuild_seconds = time.perf_counter() - began
        return durable

    def _restore(self, stored: StoredCell, completion: Completion) -> None:
        progress, windows = stored.progress, self.cell.windows
        parts = list(self._log.read(stored.segments, progress.segments))
        by_window = (dict(zip(windows.ends(), values, strict=True)) for values in zip(*progress.windows, strict=True))
        with refusing_damage("A window"):
            windows.restore(parts, WindowProgress(*by_window))
        self._log.resume(progress.next_segment, progress.looked_at)
        self.cell.restore(stored.manifest.cell, progress.watermark, completion)
        self.cell.results = progress.results
        self.cell.counters.restore(progress.operators)
        self.time.restore(progress.time)
        self.streams = progress.streams
        self.version = progress.version
        self.batches = progress.batches
        self._commands.adaptation = stored.manifest.adaptation
        self._commands.restore(stored.manifest.commands)
        self._manifest_changed = self.cell.has_running_migrations

    # Work

    @cached_property
    def output_schema(self) -> pa.Schema:
        return output_schema(self._first_plan)

    def work(self, commands: Iterable[Command], packs: Iterable[Pack | bytes]) -> Iterator[pa.RecordBatch]:
        """One micro-batch: plans are changed, then rows are taken; the results."""
        at_least, has_changed = self._commands.obey(commands, self.streams)
        self._manifest_changed |= has_changed
        if self._commands.adaptation != (None if self._measuring is None else self._measuring.policy):
            policy = self._commands.adaptation
            self._measuring = None if policy is None else CellMeasuring(policy, self.cell.executor)
        rows = self._in_time(self.rows_of(packs))
        for batch in self.cell.push(rows, self.time.advance(at_least)):
            for start in range(0, len(batch), PIECE_ROWS):
                piece = batch.sliced(start, min(len(batch), start + PIECE_ROWS))
                yield from to_record_batches(piece, self.output_schema)
        if self._measuring is not None:
            self._measuring.after_batch(self.cell.executor, sum(len(part) for part in rows.values()))

    def rows_of(self, packs: Iterable[Pack | bytes | pa.Buffer]) -> dict[str, Rows]:
        """The rows in packs, by window; what was seen of the streams is noted."""
        by_window: dict[str, list[pa.RecordBatch]] = {}
        for pack in packs:
            seen, batch = Pack.of(pack)
            if seen.counts:
                self.streams[seen.stream].count(
                    seen.rows, seen.without_event_time, seen.event_time_out_of_range, seen.bad_messages
                )
                if seen.latest is not None:
                    self.time.see(seen.stream, seen.latest)
            for window in seen.windows:
                by_window.setdefault(window, []).append(batch)
        rows = {}
        for window, batches in by_window.items():
            table = pa.Table.from_batches(batches)
            columns = {name: _one_chunk(table.column(name)) for name in table.column_names}
            rows[window] = Rows(columns.pop("__time").to_numpy(), columns)
        return rows

    def _in_time(self, rows: Mapping[str, Rows]) -> dict[str, Rows]:
        """The rows that are not late; the others are counted, in one window of their stream."""
        timely = {window: in_time(these.times, self.time.watermark) for window, these in rows.items()}
        for stream, window in self._counted_in.items():
            if window in rows:
                self.streams[stream].count_late(timely[window])
        return {window: these.filtered(timely[window]) for window, these in rows.items()}

    # Durability

    def save(self, backend: StateBackend) -> None:
        """Make durable what the last micro-batch changed; the cell has a new version afterwards."""
        before = self._log.bytes_written
        self.version = uuid.uuid4().hex
        self.batches += 1
        self._log.write(backend)
        self.last_bytes = self._log.bytes_written - before
        if self._manifest_changed:
            self._put(backend, MANIFEST, self._manifest())
            self._manifest_changed = self.cell.has_running_migrations
        self._put(backend, PROGRESS, self._progress())

    def _manifest(self) -> CellManifest:
        return CellManifest(
            query=self.setup.query,
            first_plan=self._first_json,
            columns=self.cell.windows.columns(),
            cell=self.cell.manifest(),
            commands=self._commands.outcomes(),
            adaptation=self._commands.adaptation,
        ).sealed()

    def _progress(self) -> CellProgress:
        windows = self.cell.windows.progress()
        return CellProgress(
            version=self.version,
            batches=self.batches,
            results=self.cell.results,
            watermark=self.cell.watermark,
            time=self.time.progress(),
            streams=self.streams,
            operators=self.cell.counters.stored(),
            next_segment=self._log.next_number,
            looked_at=self._log.looked_at,
            segments=self._log.numbers,
            windows=[
                (windows.ends[i], windows.released[i], windows.latest_start[i], windows.latest_end[i])
                for i in windows.ends
            ],
        ).sealed()

    def _put(self, backend: StateBackend, key: str, message: msgspec.Struct) -> None:
        data = encode(message)
        backend.put(key, data)
        self.last_bytes += len(data)

    # Reports

    def figures(self) -> CellFigures:
        """For the driver: what this cell did and holds."""
        plan, plan_json = self._plan_in_force()
        return CellFigures(
            **msgspec.structs.asdict(self.cell.counts()),
            plan=plan,
            plan_json=plan_json,
            watermark=self.time.watermark,
            idle=sorted(self.time.idle),
            streams={stream: copy(counters) for stream, counters in self.streams.items()},
            just_in_time=self.cell.just_in_time,
            migrating=self.cell.has_running_migrations,
            commands=self._commands.outcomes(),
            batches=self.batches,
            segments=len(self._log),
            segment_rows=self._log.rows,
            bytes_written=self.last_bytes,
            rebuild_seconds=self.rebuild_seconds,
            latest=dict(self.time.latest),
            received=self.cell.windows.received(),
            sizes=None if self._measuring is None else self._measuring.sizes,
            measuring_failure=None if self._measuring is None else self._measuring.failure,
        )

    def _plan_in_force(self) -> tuple[str, PlanJson]:
        """The plan in force as text and as data; made only when it has changed."""
        plan = self.cell.plan
        if self._reported_plan is None or self._reported_plan[0] is not plan:
            self._reported_plan = plan, plan.explain(), plan_to_json(plan)
        return self._reported_plan[1:]


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
