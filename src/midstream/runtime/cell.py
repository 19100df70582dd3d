"""A cell: one partition of a running query. It owns the windows, and an executor that can be replaced at any time.

This is what a runtime owns, the local one here and the operator on Spark: it feeds rows that are already checked and
timed, and takes results. Rows enter the windows once, whichever plans read them; when a push is done, rows that no plan
needs are released, and a migration that has completed is replaced by the executor that remains.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from midstream.algebra.plan import Plan
from midstream.algebra.window_spec import BEGINNING
from midstream.engine.batch import Batch
from midstream.engine.operators.operator import Operator
from midstream.engine.ordered import in_one_order, merged
from midstream.engine.state.window_store import ReceivedRows, Rows, WindowStore
from midstream.errors import BadPlan, BrokenRun, MigrationRefused
from midstream.execution.executor import Executor
from midstream.execution.just_in_time import JustInTime
from midstream.execution.plan_executor import CHUNK_ROWS, MakeExecutor, PlanExecutor, RowStores
from midstream.migration.manifest import PlanList, executor_from_manifest, plans_from_manifest
from midstream.migration.moving_state import MovingState
from midstream.migration.record import MigrationRecord
from midstream.migration.stairs import executor_of
from midstream.migration.state_matching import Completion, rebuilt
from midstream.migration.strategy import MigrationContext, Strategy
from midstream.migration.strategy_registry import strategy_named, strategy_options
from midstream.runtime.messages import Counts
from midstream.runtime.operator_counters import OperatorCounters
from midstream.runtime.state_backend import refusing_damage

__all__ = ["MOST_BOXES", "MOST_RECORDS", "Cell"]

MOST_BOXES = 32
"""Plans that may run side by side: every push is worked on by all of them."""
MOST_RECORDS = 1000
"""Records of migrations that are kept, the latest ones; and those of all that are running."""


class Cell:
    """Windows and an executor. Not thread-safe: one push at a time. ``make_executor`` makes executors for plans."""

    def __init__(
        self,
        plan: Plan,
        also_read: Plan | None = None,
        chunk_rows: int = CHUNK_ROWS,
        make_executor: MakeExecutor = executor_of,
        just_in_time: JustInTime | None = None,
    ) -> None:
        self.windows = WindowStore([plan] if also_read is None else [plan, also_read])
        self.chunk_rows = chunk_rows
        self.watermark = BEGINNING
        self.results = 0
        self._first_plan = plan
        self._migrations = 0
        self._records: list[MigrationRecord] = []
        self._running: list[tuple[MigrationRecord, Executor]] = []
        self._make_executor = make_executor
        self._just_in_time = just_in_time
        self._executor: Executor = self._make(plan, just_in_time)
        self.counters = OperatorCounters()
        """What operators did, also those of earlier plans."""
        self._follow_operators()
        self._completed_before: dict[int, int] = {}
        """By migration: tuples that were computed for its states before the cell was last restored."""
        self._to_emit: list[Batch] = []
        self._pending: Iterator[Batch] = iter(())
        self._failure: BaseException | None = None

    @property
    def plan(self) -> Plan:
        """The current plan; during a migration, the one it leads to."""
        return self._executor.plan

    @property
    def executor(self) -> Executor:
        """What runs now. It is replaced by migrations."""
        return self._executor

    @property
    def is_migrating(self) -> bool:
        return self._executor.is_migrating

    @property
    def has_running_migrations(self) -> bool:
        """Whether a migration is in progress. Completing states after a recovery does not count."""
        return bool(self._running)

    @property
    def output_frontier(self) -> int | None:
        """No later result begins to be valid earlier; None while plans run side by side, which may buffer results."""
        boxes = list(self._executor.boxes())
        return boxes[0].root.frontier if len(boxes) == 1 else None

    def push(self, rows: Mapping[str, Rows | ReceivedRows], watermark: int) -> Iterator[Batch]:
        """The results that the rows and the watermark (which holds after them) cause, in order of ``valid_from``.

        Rows are given by the identity of their window. They become part of the state at the latest with the next call,
        fetched or not.
        """
        self.settle()
        self._pending = self._push(rows, watermark)
        # Whoever fetches the results may lose interest, which must not end the push.
        return chain(self._pending)

    def settle(self) -> None:
        """Complete a push whose results were not all fetched. Raises if an earlier one failed."""
        if self._failure is not None:
            raise BrokenRun(
                "an earlier push, migration or rebuild failed half-way, and the run's state is not to be trusted",
                detail=f"{type(self._failure).__name__}: {self._failure}",
                hint="Start another run and push the rows still inside their windows.",
            )
        for _ in self._pending:
            pass

    def migrate(self, plan: Plan, strategy: str = "jisc", **options: Any) -> None:
        """Replace the current plan. Raises, and changes nothing, if the strategy cannot."""
        self.migrate_by(strategy_named(strategy, options), plan)

    def migrate_by(self, strategy: Strategy, plan: Plan) -> None:
        """Replace the current plan by a strategy with its options."""
        self.settle()
        if not self.windows.reads(plan):
            raise BadPlan(
                "the plan reads what the query does not", hint="Take it from plan() or plans() of this query."
            )
        if plan == self.plan:
            return
        strategy.check(self.plan, plan)
        self._replace(strategy, plan, self._just_in_time)

    @property
    def just_in_time(self) -> JustInTime | None:
        """How plans are run that replace the current one; None: partial results are made at once."""
        return self._just_in_time

    def switch_just_in_time(self, options: JustInTime | None) -> None:
        """Run the current plan with or without just-in-time processing from now on.

        Its states are matched by moving state: those that hold suspended tuples, or lack some, are computed anew.
        """
        self.settle()
        if options == self._just_in_time:
            return
        try:
            self._replace(MovingState(), self.plan, options)
        except MigrationRefused as refusal:
            raise MigrationRefused(
                "just-in-time processing cannot be switched now",
                detail=str(refusal),
                hint="Try again when the watermark has moved on, or the migration in progress has completed.",
            ) from None
        self._just_in_time = options

    def _replace(self, strategy: Strategy, plan: Plan, just_in_time: JustInTime | None) -> None:
        if strategy.runs_both_plans and len(list(self._executor.boxes())) >= MOST_BOXES:
            raise MigrationRefused(
                f"{MOST_BOXES} plans are running side by side already",
                detail="Each overlapped gen-mig or parallel-track migration adds one until the old rows have ended.",
                hint="Wait, or use jisc or moving-state: they complete all migrations in progress.",
            )
        record = MigrationRecord(
            strategy.name, strategy_options(strategy), self.plan, plan, self.watermark, self._migrations + 1
        )
        try:
            self._executor, results = strategy.begin(
                MigrationContext(
                    self._executor,
                    plan,
                    self.windows,
                    self.watermark,
                    record,
                    lambda stores: self._make(plan, just_in_time, stores),
                )
            )
        except MigrationRefused:
            raise
        except BaseException as failure:
            self._failure = failure
            raise
        self._migrations = record.number
        self._to_emit += results
        self._end_replaced()
        forgotten = {old.number for old in self._records[: 1 - MOST_RECORDS] if old.is_over}
        self._records = [*(old for old in self._records if old.number not in forgotten), record]
        self._running.append((record, self._executor))
        self._note_progress()
        self._follow_operators()

    def manifest(self) -> dict[str, Any]:
        """What must be stored, besides the windows and the watermark, to resume elsewhere (``migration/manifest``)."""
        self.settle()
        assert not self._to_emit, "results that a migration caused are emitted with the next push"
        plans = PlanList()
        box = self._executor.manifest(plans.number_of)
        places = {id(part): place for place, part in enumerate(self._executor.parts())}
        running = [
            {"part": places[id(part)], "record": record.manifest(plans.number_of)} for record, part in self._running
        ]
        options = None if self._just_in_time is None else self._just_in_time.as_json()
        return {
            "plans": plans.as_json(),
            "box": box,
            "just_in_time": options,
            "migrations": self._migrations,
            "running": running,
        }

    def restore(self, manifest: Mapping[str, Any], watermark: int, completion: Completion) -> None:
        """Continue with what a manifest describes; the windows must have been restored, and all else is derived."""
        with refusing_damage("The manifest of a cell"):
            plans = plans_from_manifest(manifest, self._first_plan.derived_from)
            described = [MigrationRecord.from_manifest(running["record"], plans) for running in manifest["running"]]
            # Whoever has asked for a record continues with it.
            records = [self.record(record.number) or record for record in described]
            numbered = {record.number: record for record in records}
            migrations = int(manifest["migrations"])
            options = manifest.get("just_in_time")
            just_in_time = None if options is None else JustInTime(**options)
            empty = executor_from_manifest(manifest["box"], plans, self._make, self.windows, watermark, numbered)
            parts = list(empty.parts())
            places = [parts.index(parts[running["part"]]) for running in manifest["running"]]
        self.watermark = watermark
        self._migrations = migrations
        self._just_in_time = just_in_time
        record = MigrationRecord("rebuild", {}, empty.plan, empty.plan, watermark)
        self._executor = rebuilt(empty, completion, self.windows, self.windows.alive(), record)
        self._follow_operators()
        parts = list(self._executor.parts())
        self._running = [(record, parts[place]) for record, place in zip(records, places, strict=True)]
        self._completed_before = {record.number: record.rows_completed for record in records}
        kept = [record for record in self._records if record.number not in numbered]
        self._records = sorted([*kept, *records], key=lambda record: record.number)

    def rebuild(self, completion: Completion) -> None:
        """Throw away everything derived and compute it again from the windows, as after a crash."""
        to_emit, self._to_emit = self._to_emit, []
        manifest = json.loads(json.dumps(self.manifest()))
        try:
            self.restore(manifest, self.watermark, completion)
        except BaseException as failure:
            self._failure = failure
            raise
        self._to_emit = to_emit

    @property
    def migrations(self) -> int:
        """How many there were: the number of the latest. What was refused has none."""
        return self._migrations

    def record(self, number: int) -> MigrationRecord | None:
        """What is known of a migration; None if it is forgotten, or if there was none."""
        return next((record for record in reversed(self._records) if record.number == number), None)

    def counts(self) -> Counts:
        """Counts since the start, and what is held now."""
        return Counts(
            operators=self.counters.figures(),
            results=self.results,
            window_rows=self.windows.rows,
            state_rows=self._executor.state_rows + self.windows.rows,
            state_bytes=self._executor.state_bytes + self.windows.bytes,
            buffered=self._executor.buffered,
        )

    def _push(self, rows: Mapping[str, Rows | ReceivedRows], watermark: int) -> Iterator[Batch]:
        try:
            results = self._executor.push(self.windows.arrive(rows), watermark)
            if self._to_emit:
                results = merged(in_one_order(self.plan.schema, self._to_emit), results)
                self._to_emit = []
            for batch in results:
                self.results += len(batch)
                yield batch
            self.watermark = watermark
            self._executor = self._executor.successor()
            if self._running or self._roots() != self._followed:
                # A migration, or one inside it, may have completed; an executor may have changed its operators.
                self._follow_operators()
            self._note_progress()
            self.windows.release(self._executor.horizons())
        except BaseException as failure:
            self._failure = failure
            raise

    def _make(
        self, plan: Plan, just_in_time: JustInTime | None = None, stores: RowStores | None = None
    ) -> PlanExecutor:
        return self._make_executor(plan, self.windows, self.chunk_rows, stores or {}, just_in_time)

    def _follow_operators(self) -> None:
        boxes = list(self._executor.boxes())
        self.counters.follow(operator for box in boxes for operator in box.operators)
        self._followed = self._roots()
        for box in boxes:
            box.runs_alone = len(boxes) == 1

    def _roots(self) -> list[Operator]:
        return [box.root for box in self._executor.boxes()]

    def _end_replaced(self) -> None:
        """End the migrations that a new one has replaced. What it computed with their states is not theirs."""
        parts = {id(part) for part in self._executor.parts()}
        for record, executor in self._running:
            if id(executor) not in parts:
                record.end(self.watermark)
        self._running = [running for running in self._running if not running[0].is_over]

    def _note_progress(self) -> None:
        """Keep the records up to date. A migration is over when it is done, or replaced by a later one."""
        parts = {id(part) for part in self._executor.parts()}
        for record, executor in self._running:
            record.rows_completed = self._completed_before.get(record.number, 0) + executor.rows_completed
            if id(executor) not in parts or not executor.is_migrating:
                record.end(self.watermark)
        self._running = [running for running in self._running if not running[0].is_over]
