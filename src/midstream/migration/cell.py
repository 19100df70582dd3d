"""A cell: one query's windows and the box that works on them. The box may be replaced while rows flow.

This is what a runtime owns, the local one here and the operator on Spark: it feeds rows that are already checked and
timed, and takes results. Rows enter the windows once, whichever boxes read them; when a push is done, rows that no box
needs are given up, and a migration that has come to its end makes way for the box that remains.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from midstream.algebra.plan import Plan
from midstream.algebra.windows import BEGINNING
from midstream.engine.batch import Batch
from midstream.engine.box import CHUNK_ROWS, Box, PlanBox
from midstream.engine.ordered import in_one_order, merged
from midstream.engine.window_store import Rows, WindowStore
from midstream.errors import BadPlan, BrokenRun, MigrationRefused
from midstream.migration.manifest import PlanList, box_from_manifest, plans_from_manifest
from midstream.migration.record import MigrationRecord
from midstream.migration.state_matching import Completion, rebuilt
from midstream.migration.strategies import strategy_named
from midstream.migration.strategy import MigrationContext

__all__ = ["MOST_BOXES", "MOST_RECORDS", "Cell"]

MOST_BOXES = 32
"""Plans that may run side by side: every push is worked on by all of them."""
MOST_RECORDS = 1000
"""Records of migrations that are kept, the latest ones."""


class Cell:
    """Windows, and the box in force. Not thread-safe: one push at a time."""

    def __init__(self, plan: Plan, also_read: Plan | None = None, chunk_rows: int = CHUNK_ROWS) -> None:
        self.windows = WindowStore([plan] if also_read is None else [plan, also_read])
        self.chunk_rows = chunk_rows
        self.watermark = BEGINNING
        self.results = 0
        self._first_plan = plan
        self._migrations = 0
        self._records: list[MigrationRecord] = []
        self._running: list[tuple[MigrationRecord, Box]] = []
        self._box: Box = PlanBox(plan, self.windows, chunk_rows)
        self._to_tell: list[Batch] = []
        self._pending: Iterator[Batch] = iter(())
        self._failure: BaseException | None = None

    @property
    def plan(self) -> Plan:
        """The plan in force; during a migration, the one it leads to."""
        return self._box.plan

    @property
    def is_migrating(self) -> bool:
        return self._box.is_migrating

    @property
    def has_running_migrations(self) -> bool:
        """Whether a change of the plan is under way (a state that is completed after a crash is none)."""
        return bool(self._running)

    def push(self, rows: Mapping[str, Rows], watermark: int) -> Iterator[Batch]:
        """The results that the rows and the watermark (which holds after them) cause, in order of ``valid_from``.

        Rows are given by the identity of their window. They become part of the state at the latest with the next call,
        fetched or not.
        """
        self.settle()
        self._pending = self._push(rows, watermark)
        return self._fetch(self._pending)

    def settle(self) -> None:
        """Complete a push whose results were not all fetched. Raises if an earlier one failed."""
        if self._failure is not None:
            raise BrokenRun(
                "an earlier push or migration failed half-way, and the run's state is not to be trusted",
                detail=f"{type(self._failure).__name__}: {self._failure}",
                hint="Start another run and push the rows still inside their windows.",
            )
        self._drain(self._pending)

    def migrate(self, plan: Plan, strategy: str = "jisc", **options: Any) -> None:
        """Replace the plan in force. Raises, and changes nothing, if the strategy cannot."""
        self.settle()
        chosen = strategy_named(strategy, options)
        if not self.windows.reads(plan):
            raise BadPlan(
                "the plan reads what the query does not", hint="Take it from plan() or plans() of this query."
            )
        if plan == self.plan:
            return
        if chosen.runs_both_plans and len(list(self._box.boxes())) >= MOST_BOXES:
            raise MigrationRefused(
                f"{MOST_BOXES} plans are running side by side already",
                detail="Each overlapped gen-mig or parallel-track migration adds one until the old rows have ended.",
                hint="Wait, or use jisc or moving-state: they end all migrations under way.",
            )
        self._migrations += 1
        record = MigrationRecord(strategy, options, self.plan, plan, self.watermark, self._migrations)
        try:
            self._box, results = chosen.begin(
                MigrationContext(self._box, plan, self.windows, self.watermark, self.chunk_rows, record)
            )
        except MigrationRefused:
            raise
        except BaseException as failure:
            self._failure = failure
            raise
        self._to_tell += results
        self._records = [*self._records[1 - MOST_RECORDS :], record]
        self._running.append((record, self._box))
        self._note_progress()

    def manifest(self) -> dict[str, Any]:
        """What must be stored, besides the windows and the watermark, to go on elsewhere: see ``manifest``."""
        self.settle()
        assert not self._to_tell, "results that a migration gave are told with the next push"
        plans = PlanList()
        box = self._box.manifest(plans.number_of)
        places = {id(part): place for place, part in enumerate(self._box.parts())}
        running = [
            {"part": places[id(part)], "record": record.manifest(plans.number_of)} for record, part in self._running
        ]
        return {"plans": plans.as_json(), "box": box, "migrations": self._migrations, "running": running}

    def restore(self, manifest: Mapping[str, Any], watermark: int, completion: Completion) -> None:
        """Go on with what was described: the windows must have been restored, everything else is derived from them."""
        plans = plans_from_manifest(manifest, self._first_plan.derived_from)
        records = [MigrationRecord.from_manifest(running["record"], plans) for running in manifest["running"]]
        numbered = {record.number: record for record in records}
        self.watermark = watermark
        self._migrations = manifest["migrations"]
        box = box_from_manifest(manifest["box"], plans, self.windows, watermark, self.chunk_rows, numbered)
        record = MigrationRecord("rebuild", {}, box.plan, box.plan, watermark)
        self._box = rebuilt(box, completion, self.windows.alive(), record)
        parts = list(self._box.parts())
        places = (running["part"] for running in manifest["running"])
        self._running = [(record, parts[place]) for record, place in zip(records, places, strict=True)]
        kept = [record for record in self._records if record.number not in numbered]
        self._records = sorted([*kept, *records], key=lambda record: record.number)

    def rebuild(self, completion: Completion) -> None:
        """Throw away everything derived and compute it again from the windows, as after a crash."""
        to_tell, self._to_tell = self._to_tell, []
        self.restore(json.loads(json.dumps(self.manifest())), self.watermark, completion)
        self._to_tell = to_tell

    @property
    def migrations(self) -> int:
        """How many there were: the number of the latest."""
        return self._migrations

    def record(self, number: int | None) -> dict[str, Any] | None:
        """What is known of a migration, apart from its plans; None if it is forgotten, or if there was none."""
        if number is None:
            return None
        found = (record for record in reversed(self._records) if record.number == number)
        return next((record.figures() for record in found), None)

    def metrics(self) -> dict[str, Any]:
        """Counts since the start, and all migrations."""
        return {**self.counts(), "migrations": [record.as_dict() for record in self._records]}

    def counts(self) -> dict[str, Any]:
        """Counts since the start."""
        return {
            "operators": self._box.metrics(),
            "results": self.results,
            "window_rows": self.windows.rows,
            "state_rows": self._box.state_rows + self.windows.rows,
            "state_bytes": self._box.state_bytes + self.windows.bytes,
            "buffered": self._box.buffered,
        }

    def _push(self, rows: Mapping[str, Rows], watermark: int) -> Iterator[Batch]:
        results = self._box.push(self.windows.arrive(rows), watermark)
        if self._to_tell:
            results = merged(in_one_order(self.plan.schema, self._to_tell), results)
            self._to_tell = []
        yield from results
        self.watermark = watermark
        self._box = self._box.successor()
        self._note_progress()
        self.windows.release(self._box.horizons())

    def _note_progress(self) -> None:
        """Keep the records up to date. A migration is over when it is done, or replaced by a later one."""
        parts = {id(part) for part in self._box.parts()}
        for record, box in self._running:
            if isinstance(box, PlanBox):
                record.rows_completed = box.rows_completed
            if id(box) not in parts or not box.is_migrating:
                record.end(self.watermark)
        self._running = [(record, box) for record, box in self._running if not record.is_over]

    def _fetch(self, pending: Iterator[Batch]) -> Iterator[Batch]:
        try:
            for batch in pending:
                self.results += len(batch)
                yield batch
        except GeneratorExit:
            # Whoever fetched the results lost interest: the rows become part of the state with the next call.
            raise
        except BaseException as failure:
            self._failure = failure
            raise

    def _drain(self, pending: Iterator[Batch]) -> None:
        try:
            for batch in pending:
                self.results += len(batch)
        except BaseException as failure:
            self._failure = failure
            raise
