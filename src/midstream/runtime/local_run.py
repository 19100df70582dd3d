"""A continuous query running in this process: tables in, results out.

>>> import pyarrow as pa
>>> from midstream import ContinuousQuery, Stream
>>> bids = Stream("bids", pa.schema({"ts": pa.int64(), "item": pa.string()}), event_time="ts")
>>> run = ContinuousQuery("SELECT a.item FROM bids [RANGE 5] a, bids [NOW] b WHERE a.item = b.item",
...                       streams=[bids]).run_locally()
>>> run.push({"bids": pa.table({"ts": [1, 4], "item": ["pen", "pen"]})}).to_pylist()  # doctest: +NORMALIZE_WHITESPACE
[{'item': 'pen', 'valid_from': 1, 'valid_to': 2},
 {'item': 'pen', 'valid_from': 4, 'valid_to': 5},
 {'item': 'pen', 'valid_from': 4, 'valid_to': 5}]
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from midstream.adaptation.adapter import Adapter
from midstream.adaptation.calibration import calibrate
from midstream.adaptation.controller import Controller
from midstream.adaptation.decisions import Decision
from midstream.adaptation.hot_keys import hot_keys
from midstream.adaptation.policy import Adaptation
from midstream.algebra.plan import Plan
from midstream.algebra.window_spec import BEGINNING, NEVER
from midstream.engine.batch import Batch
from midstream.engine.output import output_schema, to_record_batches
from midstream.engine.state.window_store import Rows
from midstream.errors import DecreasingWatermark, FinishedRun, MigrationRefused
from midstream.execution.just_in_time import JustInTime
from midstream.execution.plan_executor import CHUNK_ROWS
from midstream.migration.record import MigrationRecord
from midstream.migration.state_matching import Completion
from midstream.planning.cost.statistics import Statistics
from midstream.runtime.cell import MOST_RECORDS, Cell
from midstream.runtime.explain import explain_running
from midstream.runtime.ingest import Ingest
from midstream.runtime.messages import MigrationOutcome, RunMetrics
from midstream.runtime.run import Listener, Listeners, Migration, ProgressEvent
from midstream.runtime.stream_statistics import StreamMeter, StreamsSeen
from midstream.runtime.watermark import watermark_ticks

__all__ = ["LocalRun", "Planner"]

Planner = Callable[[str | Plan | None], Plan]
"""Gives the plan that a user names: a join order, a plan (checked to be the query's own), or None for the default."""


class LocalRun:
    """A query at work. Not thread-safe: one push at a time."""

    def __init__(
        self,
        plan: Plan,
        planner: Planner,
        chunk_rows: int = CHUNK_ROWS,
        just_in_time: bool | JustInTime | None = None,
        adapt: str | Adaptation | None = None,
        shapes: Callable[[], Sequence[Plan]] = tuple,
    ) -> None:
        policy = Adaptation.chosen(adapt)
        self._shapes = shapes
        self._deciding: Migration | None = None
        """The migration that adaptation began last, until it is over."""
        self._arrived = 0
        self._cell = Cell(plan, planner(None), chunk_rows, just_in_time=JustInTime.chosen(just_in_time))
        self._planner = planner
        self._ingest = Ingest({window.stream.name: window.stream for window in plan.windows()})
        self._streams = StreamMeter()
        self._schema = output_schema(plan)
        self._finished = False
        self._listeners = Listeners()
        self._submitted = 0
        self._history: list[Migration] = []
        self._not_over: list[Migration] = []
        self._pushes = 0
        self._rebuilds = 0
        self._seconds = 0.0
        self._push: object | None = None
        """The push that is not part of the state yet."""
        self._controller: Controller | None = None
        """What adaptation knows, also while it is off; None if it was never on."""
        self._adapter = self._new_adapter(policy)

    @property
    def plan(self) -> Plan:
        """The current plan; during a migration, the one it leads to."""
        return self._cell.plan

    @property
    def migrating(self) -> bool:
        """Whether a migration is in progress; by jisc, until the new plan's states are complete."""
        return self._cell.has_running_migrations

    @property
    def output_schema(self) -> pa.Schema:
        """The schema of the results: the select list, ``valid_from``, ``valid_to``."""
        return self._schema

    @property
    def watermark(self) -> int | None:
        """The watermark in ticks; None before every stream has had a row."""
        return None if self._ingest.watermark == BEGINNING else self._ingest.watermark

    def push(
        self,
        tables: Mapping[str, pa.Table | pa.RecordBatch],
        watermark: int | datetime.datetime | None = None,
    ) -> pa.Table:
        """Take new rows and give the results they cause, ordered by ``valid_from``.

        ``watermark`` (a heartbeat, in ticks or as a datetime) says that no later row will be older.
        Bad input raises before anything changes.
        """
        return pa.Table.from_batches(self.push_in_chunks(tables, watermark), self._schema)

    def push_in_chunks(
        self,
        tables: Mapping[str, pa.Table | pa.RecordBatch],
        watermark: int | datetime.datetime | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Like :meth:`push`, but the results come in bounded pieces, so that a join explosion need not fit in memory.

        The rows are checked when this is called, and become part of the state at the latest with the next push; pieces
        that are not fetched by then are lost.
        """
        self._check_usable()
        ticks = watermark_ticks(watermark, self.plan.time_domain)
        reads = self._ingest.check(tables)
        if ticks is not None and ticks < self._ingest.watermark:
            raise DecreasingWatermark(
                f"the watermark cannot move back from {self._ingest.watermark} to {ticks}",
                hint="Leave it out, or give one that is not earlier.",
            )
        rows = self._ingest.accept(reads)
        return self._work(rows, self._ingest.advance(ticks))

    def finish(self) -> pa.Table:
        """The end of all streams: everything still held."""
        self._check_usable()
        results = self._work({}, self._ingest.advance(NEVER))
        self._finished = True
        return pa.Table.from_batches(results, self._schema)

    def migrate(self, plan: str | Plan, strategy: str = "jisc", **options: Any) -> Migration:
        """Replace the plan while the query runs.

        ``plan`` is a join order (``"o (p s)"``) or one of the query's plans. Results stay what they would have been:
        for joins every row once, for other operators the same rows at every instant (where they are cut in time may
        differ). Raises, and changes nothing, if the plan is not one of this query's or the strategy cannot make the
        change. Migrating to the plan in force does nothing. See ``docs/migration.md``.
        """
        self._check_usable()
        migration = self._migrate(self._planner(plan), strategy, options)
        if self._controller is not None:
            self._controller.pin()
        return migration

    def adapt(self, adapt: str | Adaptation) -> None:
        """Let the query change its plan by itself from now on, or not any more ("off").

        A plan that was chosen by :meth:`migrate` stays in force until this is called. Decisions made before are kept.
        """
        self._check_usable()
        self._adapter = self._new_adapter(Adaptation.chosen(adapt))

    def _new_adapter(self, policy: Adaptation | None) -> Adapter | None:
        if policy is None:
            return None
        coefficients = policy.coefficients or calibrate()
        adapter = Adapter(policy, coefficients, self._cell.executor, self._shapes, self._controller, self._pushes)
        self._controller = adapter.controller
        return adapter

    def decisions(self) -> list[Decision]:
        """What adaptation considered, and what it decided and why: the latest 1,000."""
        return [] if self._controller is None else list(self._controller.decisions)

    def statistics(self) -> Statistics:
        """The sizes of the query's joins, its streams and hot keys: for people, ``query.plans`` and ``query.explain``.

        The sizes are those measured last; they are None before the first measurement, and for a query that does not
        adapt. Hot keys are counted when this is called, unless a push is under way.
        """
        return Statistics(
            None if self._adapter is None else self._adapter.sizes,
            self._streams.statistics(self.plan),
            hot_keys(self._cell.executor) if self._push is None else (),
        )

    def _migrate(self, plan: Plan, strategy: str, options: Mapping[str, Any], decision: int | None = None) -> Migration:
        old_plan, before = self.plan, self._cell.migrations
        self._cell.migrate(plan, strategy, **options)
        self._submitted += 1
        record = None if self._cell.migrations == before else self._cell.record(self._cell.migrations)
        outcome = partial(_outcome, record)
        migration = Migration(self._submitted, strategy, options, old_plan, self.plan, time.time(), outcome, decision)
        self._history = [*self._history[1 - MOST_RECORDS :], migration]
        self._not_over.append(migration)
        self._queue_changes()
        self._listeners.deliver()
        return migration

    @property
    def just_in_time(self) -> JustInTime | None:
        """How just-in-time processing works here; None: partial results are made at once."""
        return self._cell.just_in_time

    def switch_just_in_time(self, just_in_time: bool | JustInTime) -> None:
        """Switch just-in-time processing on or off, or change its options, while the query runs."""
        self._check_usable()
        self._cell.switch_just_in_time(JustInTime.chosen(just_in_time))

    def explain(self) -> str:
        """The plan as a tree, with what each operator did and holds."""
        return explain_running(self.plan, self._cell.counts().operators)

    def history(self) -> list[Migration]:
        """The latest 1,000 migrations, in the order they were submitted."""
        return list(self._history)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with every event from now on (see ``runtime.run``); gives a function that ends this.

        It is called in the thread that pushes. What it raises is logged.
        """
        return self._listeners.subscribe(listener)

    def rebuild(self, completion: str = "moving-state") -> None:
        """Throw away everything that was derived from the rows in their windows, and compute it again.

        That is what happens after a crash: results continue as if nothing had happened. ``completion`` is
        "moving-state" (at once) or "jisc" (on demand).
        """
        self._check_usable()
        try:
            chosen = Completion(completion)
        except ValueError:
            raise MigrationRefused(
                f"a run cannot be rebuilt by {completion!r}", detail='There are "moving-state" and "jisc".'
            ) from None
        self._cell.rebuild(chosen)
        self._rebuilds += 1

    def metrics(self) -> dict[str, Any]:
        """Counts since the start: per stream, per operator, per migration that changed the plan, and in all."""
        changes = [migration for migration in self._history if migration.state != "unchanged"]
        return {**msgspec.to_builtins(self._metrics()), "migrations": [migration.as_dict() for migration in changes]}

    def _metrics(self) -> RunMetrics:
        return RunMetrics(
            **msgspec.structs.asdict(self._cell.counts()),
            watermark=self.watermark,
            finished=self._finished,
            streams={stream: copy(counters) for stream, counters in self._ingest.counters.items()},
            migrating=self.migrating,
            rebuilds=self._rebuilds,
            batches=self._pushes,
            just_in_time=self._cell.just_in_time,
            seconds=self._seconds,
        )

    def _work(self, rows: Mapping[str, Rows], watermark: int) -> Iterator[pa.RecordBatch]:
        self._push, self._seconds = object(), 0.0
        by_window = self._cell.windows.of_streams(rows)
        # A stream that is read twice brings its rows twice.
        self._arrived += sum(len(part) for part in by_window.values())
        return self._converted(self._push, self._cell.push(by_window, watermark))

    def _converted(self, push: object, results: Iterator[Batch]) -> Iterator[pa.RecordBatch]:
        """The results as Arrow. What whoever fetches them does in between is not part of the push's time."""
        while True:
            began = time.perf_counter()
            batch = next(results, None)
            if self._push is push:
                self._seconds += time.perf_counter() - began
            if batch is None:
                break
            yield from to_record_batches(batch, self._schema)
        if self._push is push:
            # Else it was given up for another push, which is the one under way.
            self._note_pushed()

    def _note_pushed(self) -> None:
        """A push is part of the state: notify of it, and of migrations that it completed."""
        if self._push is not None:
            self._push = None
            self._pushes += 1
            self._note_streams()
            self._queue_changes()
            self._adapt_plan()
            if self._listeners:
                self._listeners.queue(ProgressEvent(self._metrics()))
            self._listeners.deliver()

    def _note_streams(self) -> None:
        self._streams.note(
            StreamsSeen(
                {stream: copy(counters) for stream, counters in self._ingest.counters.items()},
                dict(self._ingest.latest),
                self._cell.windows.received(),
            )
        )

    def _adapt_plan(self) -> None:
        """Let adaptation consider the plan after a push."""
        arrived, self._arrived = self._arrived, 0
        if self._adapter is None:
            return
        if self._deciding is not None and self._deciding.is_over:
            self._adapter.controller.note_migration(self._deciding.rows_recomputed)
            self._deciding = None
        proposal = self._adapter.after_push(self._cell.executor, arrived, self._pushes, self.watermark)
        if proposal is not None:
            number = self._adapter.controller.decisions[-1].number
            try:
                self._deciding = self._migrate(proposal.plan, proposal.strategy, proposal.options, number)
            except MigrationRefused as problem:
                self._adapter.controller.withdraw(f"The change was refused: {problem.message}.")
            else:
                self._adapter.controller.plan_changed()

    def _queue_changes(self) -> None:
        """Queue events of migrations that have come to another state."""
        self._listeners.queue_changes(self._not_over)
        self._not_over = [migration for migration in self._not_over if not migration.is_over]

    def _check_usable(self) -> None:
        if self._finished:
            raise FinishedRun("the run has been finished", hint="Start another one with run_locally().")
        self._cell.settle()
        self._note_pushed()


def _outcome(record: MigrationRecord | None) -> MigrationOutcome:
    """What became of the migration with this record; one without left the plan as it was."""
    if record is None:
        return MigrationOutcome(state="unchanged")
    return MigrationOutcome(state="completed" if record.is_over else "running", figures=record.figures())
