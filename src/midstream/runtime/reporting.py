"""What a running query reports: figures that its tasks send, what became of commands, the plan in force.

    task ends ─▶ accumulator ─▶ Progress ─▶ LiveQuery.metrics(), history(), plan, listeners
                                   ├──────▶ status.json, for other processes and later ones
                                   └──────▶ PlanAdaptation, which may write a command

Spark's scheduler calls as a task ends, before its micro-batch is committed: a figure may be of a batch that fails after
all, and then comes again. The report outlives the ``LiveQuery`` that made it, as the running query does. Its history
begins with that of ``status.json``: what migrations did stays known after a restart.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

import msgspec

from midstream.algebra.plan import Plan
from midstream.algebra.plan_json import plan_to_json
from midstream.errors import MalformedMessage
from midstream.planning.cost.statistics import JoinKeys, Statistics
from midstream.runtime.control import ControlDirectory
from midstream.runtime.messages import (
    CellFigures,
    ClusterMetrics,
    DeclareIdle,
    MigrationEntry,
    Rates,
    Status,
)
from midstream.runtime.migration_outcomes import MigrationOutcomes, entries_shown
from midstream.runtime.plan_adaptation import PlanAdaptation
from midstream.runtime.plan_changes import PlanChanges
from midstream.runtime.progress import Progress, RateMeter
from midstream.runtime.run import Listeners, Migration, ProgressEvent
from midstream.runtime.state_backend import CellsBegun
from midstream.runtime.stream_statistics import StreamMeter

__all__ = ["Report"]

_LOG = logging.getLogger(__name__)


class Report:
    """The plan in force, the migrations and the figures of a query; kept up to date while it runs."""

    def __init__(
        self,
        first_plan: Plan,
        progress: Progress,
        control: ControlDirectory | None = None,
        changes: PlanChanges | None = None,
        idle_after: float | None = None,
        adaptation: PlanAdaptation | None = None,
    ) -> None:
        """Without a control directory it is of a query over batches: nothing changes, and nothing is written."""
        self._first_plan = first_plan
        self._progress = progress
        self._control = control
        self._changes = changes
        self._idle_after = idle_after
        self._adaptation = adaptation
        self._rates = RateMeter()
        self._streams = StreamMeter()
        self._streams_noted = 0
        """The micro-batch after which the streams were noted last."""
        self._writes = _Later()
        self._writing = threading.Lock()
        self._has_ended = False
        self._claimed_for: str | None = None
        self._status = None if control is None else _stored(control)
        """What was reported last, by this process or the one before."""
        self._outcomes = MigrationOutcomes(progress, self._status)
        self._noting = threading.Lock()
        self._batches = 0
        self.listeners = Listeners()
        self.listeners.know(self.history())

    @property
    def plan(self) -> Plan:
        """The plan in force, as far as the cells have reported; during a migration, the one it leads to."""
        if self._changes is None:
            return self._first_plan
        return self._changes.in_force(
            self._progress.plan() or (None if self._status is None else self._status.plan_json)
        )

    @property
    def cells_begun(self) -> CellsBegun:
        """The cells that had durable state when the query was last reported on, by this process or the one before."""
        if self._status is None:
            return CellsBegun()
        return CellsBegun.reported(self._status.metrics.query, self._status.metrics.cells)

    def metrics(self) -> ClusterMetrics:
        """Counts of all cells together, and of each."""
        return self._progress.metrics()

    def history(self) -> list[Migration]:
        """The migrations submitted to this query, in order."""
        if self._changes is None:
            return []
        found = []
        plan_before = self._changes.first_plan
        for command, change, plan in self._changes.commands(self.query):
            migration = Migration(
                command.number,
                change.strategy,
                change.options,
                plan_before,
                plan,
                command.submitted,
                partial(self._outcomes.of, command.number),
                None if change.decision is None else change.decision.number,
            )
            found.append(migration)
            if migration.state not in ("refused", "unchanged"):
                plan_before = plan
        return found

    def migration(self, number: int) -> Migration:
        """The migration of this number."""
        return next(migration for migration in self.history() if migration.number == number)

    def rates(self) -> Rates:
        """Rows and results per second."""
        return self._rates.after(self.metrics())

    def statistics(self) -> Statistics:
        """The sizes of the joins, the streams and the hot keys, over all cells."""
        sizes = None if self._adaptation is None else self._adaptation.sizes()
        return Statistics(sizes, self._streams.statistics(self.plan), self._hot_keys())

    def _hot_keys(self) -> tuple[JoinKeys, ...]:
        return () if self._adaptation is None else self._adaptation.hot_keys()

    def take(self, figures: list[str]) -> None:
        """A task has ended, and reports its cells. Spark's scheduler waits for this: what takes time comes later."""
        cells = [msgspec.json.decode(text, type=CellFigures) for text in figures]
        self._progress.take(cells)
        if self._adaptation is not None:
            self._adaptation.take(cells)
        self._writes.do(self._report)

    def end(self) -> None:
        """All is committed, the end of the streams too: only now another process may take the run for complete."""
        self._has_ended = True
        self.write()

    def write(self) -> None:
        """Write ``status.json``, and commands about streams that have fallen silent."""
        assert self._control is not None, "a query over batches reports nothing"
        # One at a time: else what is older may be written later.
        with self._writing:
            if not self._progress.has_begun:
                # What an earlier run reported still holds.
                return
            if self._idle_after is not None:
                for stream, rows in self._progress.fallen_silent(self._idle_after).items():
                    self._control.write(DeclareIdle(stream=stream, rows=rows), self.metrics().query)
                    self._progress.asked(stream, rows)
            metrics = self.metrics()
            self._streams.note(self._progress.streams_seen(), metrics.batches <= self._streams_noted)
            self._streams_noted = metrics.batches
            if metrics.query not in (None, self._claimed_for):
                self._control.claim(str(metrics.query))
                self._claimed_for = metrics.query
            plan = self.plan
            history = self.history()
            shown, earlier = entries_shown([(migration.number, migration.state) for migration in history])
            status = Status(
                plan=plan.explain(),
                plan_json=plan_to_json(plan),
                history=[_entry(migration) for migration in history if migration.number in shown],
                earlier=earlier,
                metrics=metrics,
                rates=self._rates.after(metrics),
                streams=self._streams.statistics(plan),
                hot_keys=self._hot_keys(),
                has_ended=self._has_ended,
                reported=time.time(),
            )
            self._control.write_status(status)
            self._status = status

    def _report(self) -> None:
        """After a micro-batch: a change of the plan, the status for other processes, and events for listeners."""
        try:
            self.adapt()
        except Exception:
            # The query goes on with the plan it has.
            _LOG.exception("adaptation failed")
        self.write()
        self.notify()

    def adapt(self) -> None:
        """Let adaptation consider the plan, unless it is being changed."""
        if self._adaptation is None or self._adaptation.policy is None:
            return
        assert self._changes is not None and self._control is not None
        with self._writing:
            # What comes after this command has not been looked at.
            last_command = self._control.last_number
            history, metrics, in_force = self.history(), self.metrics(), self._progress.plan()
            self._adaptation.follow(self._progress.query, history)
            if in_force is None or metrics.migrating or any(not migration.is_over for migration in history):
                return
            if all(self._outcomes.of(number).is_over for number in self._changes.switches(self.query)):
                self._adaptation.consider(in_force, self._changes.in_force(in_force), metrics, last_command)

    def notify(self) -> None:
        """Notify listeners of migrations that have come to another state, and of a micro-batch that all cells did."""
        # The process's own thread notifies of what it submits, and another one of what cells report.
        with self._noting:
            self.listeners.queue_changes(self.history())
            batches = self._progress.completed_batches
            if batches > self._batches:
                self._batches = batches
                self.listeners.queue(ProgressEvent(self.metrics()))
        self.listeners.deliver()

    @property
    def query(self) -> str | None:
        """The id that Spark gives the query; that of the one before, until a cell has reported."""
        if self._progress.has_begun or self._status is None:
            return self._progress.query
        return self._status.metrics.query


def _stored(control: ControlDirectory) -> Status | None:
    """What the query reported before it was restarted; nothing, if that is damaged: it will be replaced."""
    try:
        return control.status()
    except MalformedMessage as problem:
        _LOG.warning("ignored: %s", problem)
        return None


def _entry(migration: Migration) -> MigrationEntry:
    return MigrationEntry(
        number=migration.number,
        strategy=migration.strategy,
        options=migration.options,
        old_plan=migration.old_plan.explain(),
        new_plan=migration.new_plan.explain(),
        submitted=migration.submitted,
        outcome=migration.outcome,
        decision=migration.decision,
    )


class _Later:
    """Something to be done soon in a thread of its own; once, however often it is asked for meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: Callable[[], None] | None = None
        self._is_busy = False

    def do(self, action: Callable[[], None]) -> None:
        with self._lock:
            self._waiting = action
            if self._is_busy:
                return
            self._is_busy = True
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                action, self._waiting = self._waiting, None
                if action is None:
                    self._is_busy = False
                    return
            try:
                action()
            except Exception:
                # It is tried again after the next micro-batch.
                _LOG.exception("the status of the query could not be written")
