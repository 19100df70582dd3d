"""A running query, wherever it runs: what ``LocalRun`` and ``LiveQuery`` have in common.

run.migrate(plan, strategy)   a Migration: a handle whose state and figures are up to date whenever it is asked
run.history()                 all migrations, in the order they were submitted
run.metrics()                 counts since the query began, and what it holds now
run.decisions()               what adaptation considered and decided
run.statistics()              streams, sizes of joins, hot keys
run.subscribe(listener)       calls the listener with a MigrationEvent or a ProgressEvent
run.plan, run.migrating       the plan in force, and whether a change of it is still running
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from midstream.adaptation.decisions import Decision
from midstream.adaptation.policy import Adaptation
from midstream.algebra.plan import Plan
from midstream.planning.cost.statistics import Statistics
from midstream.runtime.messages import CellMigration, MigrationOutcome, MigrationState, RunMetrics

__all__ = ["Event", "Listener", "Listeners", "Migration", "MigrationEvent", "ProgressEvent", "Run"]

_LOG = logging.getLogger(__name__)


class Migration:
    """A change of a running query's plan: what was asked for, and what became of it, as of now.

    ``state`` is "submitted", "running", "completed", "refused" or "unchanged" (the plan was in force already).
    ``number`` counts what was submitted: a migration that ``migrate()`` refuses by raising has none. On Spark it is the
    number of a command: migrations that a cell refuses have one, and so have commands of other kinds.
    """

    def __init__(
        self,
        number: int,
        strategy: str,
        options: Mapping[str, Any],
        old_plan: Plan,
        new_plan: Plan,
        submitted: float,
        outcome: Callable[[], MigrationOutcome],
        decision: int | None = None,
    ) -> None:
        self.number = number
        self.strategy = strategy
        self.options = dict(options)
        self.old_plan = old_plan
        self.new_plan = new_plan
        self.submitted = submitted
        """Clock time, in seconds since 1970; so are ``started`` and ``ended``."""
        self.decision = decision
        """The number of the decision of the query's own that led to it, see ``decisions()``; None: a person's."""
        self._outcome = outcome

    @property
    def outcome(self) -> MigrationOutcome:
        """Everything that is known now."""
        return self._outcome()

    @property
    def state(self) -> MigrationState:
        return self.outcome.state

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen."""
        return self.outcome.is_over

    @property
    def reason(self) -> str | None:
        """Why it was refused."""
        return self.outcome.reason

    @property
    def cells(self) -> Sequence[CellMigration]:
        """What became of it in each cell of a query on Spark."""
        return self.outcome.cells

    @property
    def started(self) -> float | None:
        figures = self.outcome.figures
        return None if figures is None else figures.started

    @property
    def ended(self) -> float | None:
        figures = self.outcome.figures
        return None if figures is None else figures.ended

    @property
    def seconds(self) -> float | None:
        """From ``started`` to ``ended``."""
        figures = self.outcome.figures
        return None if figures is None else figures.seconds

    @property
    def rows_recomputed(self) -> int:
        """Tuples computed for states of the new plan, in all cells."""
        figures = self.outcome.figures
        return 0 if figures is None else figures.rows_recomputed

    @property
    def states_shared(self) -> int:
        """States that passed to the new plan as they were."""
        figures = self.outcome.figures
        return 0 if figures is None else figures.states_shared

    def as_dict(self) -> dict[str, Any]:
        """As plain data, with the plans as text: an entry of ``metrics()["migrations"]``."""
        outcome = self.outcome
        figures = {} if outcome.figures is None else msgspec.to_builtins(outcome.figures)
        return {
            "number": self.number,
            "strategy": self.strategy,
            "options": self.options,
            "state": outcome.state,
            "is_over": outcome.is_over,
            "decision": self.decision,
            "seconds": None if outcome.figures is None else outcome.figures.seconds,
            **{name: value for name, value in figures.items() if name not in ("started", "ended")},
            "old_plan": self.old_plan.explain(),
            "new_plan": self.new_plan.explain(),
        }

    def __int__(self) -> int:
        return self.number

    def __repr__(self) -> str:
        return f"<Migration {self.number}, {self.strategy}: {self.state}>"


@dataclass(frozen=True)
class MigrationEvent:
    """A migration has come to a state. What ``migrate()`` refuses by raising is no event."""

    migration: Migration
    state: MigrationState


@dataclass(frozen=True)
class ProgressEvent:
    """A push, or a micro-batch in all cells, is done. Of several that follow closely, only the last may be reported."""

    metrics: RunMetrics


Event = MigrationEvent | ProgressEvent
Listener = Callable[[Event], None]


class Run(Protocol):
    """A continuous query at work."""

    @property
    def plan(self) -> Plan:
        """The current plan; during a migration, the one it leads to."""

    @property
    def migrating(self) -> bool:
        """Whether a migration is in progress; by jisc, until the new plan's states are complete."""

    def migrate(self, plan: str | Plan, strategy: str = "jisc", **options: Any) -> Migration:
        """Replace the plan while the query runs. Raises, and changes nothing, if that cannot be done."""

    def history(self) -> list[Migration]:
        """The migrations that were submitted, in order."""

    def metrics(self) -> dict[str, Any]:
        """Counts since the query began, what it holds now, and its migrations, as plain data."""

    def adapt(self, adapt: str | Adaptation) -> None:
        """Let the query change its plan by itself from now on, only advise, or neither ("off")."""

    def decisions(self) -> list[Decision]:
        """What adaptation considered, and what it decided and why."""

    def statistics(self) -> Statistics:
        """What is known of its streams and joins."""

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with every event from now on; gives a function that ends this."""


class Listeners:
    """Who is to be called with a run's events. What a listener raises is logged, and changes nothing.

    Events are delivered in the order in which they were queued, one at a time, whichever threads queue them: the first
    that delivers goes on until none is left. So a listener may change the run, or end its subscription.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[object, Listener] = {}
        self._states: dict[int, MigrationState] = {}
        self._queue: deque[Event] = deque()
        self._is_delivering = False

    def __bool__(self) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        subscription = object()
        with self._lock:
            self._listeners[subscription] = listener

        def unsubscribe() -> None:
            with self._lock:
                self._listeners.pop(subscription, None)

        return unsubscribe

    def know(self, migrations: Iterable[Migration]) -> None:
        """Take the states of migrations for known: they are no events."""
        with self._lock:
            self._states |= {migration.number: migration.state for migration in migrations}

    def queue(self, event: Event) -> None:
        with self._lock:
            self._queue.append(event)

    def queue_changes(self, migrations: Iterable[Migration]) -> None:
        """Queue the states that migrations have come to since the last call, each in its order."""
        with self._lock:
            for migration in migrations:
                before, now = self._states.get(migration.number), migration.state
                if before == now:
                    continue
                self._states[migration.number] = now
                passed: list[MigrationState] = ["submitted", "running"] if now == "completed" else ["submitted"]
                missed = passed[0 if before is None else 1 :]
                self._queue += [MigrationEvent(migration, state) for state in missed if state not in (before, now)]
                self._queue.append(MigrationEvent(migration, now))

    def deliver(self) -> None:
        """Call the listeners with what is queued, unless another call is about that: then it does this too."""
        with self._lock:
            if self._is_delivering:
                return
            self._is_delivering = True
        try:
            while self._deliver_next():
                pass
        except BaseException:
            self._is_delivering = False
            raise

    def _deliver_next(self) -> bool:
        with self._lock:
            if not self._queue:
                self._is_delivering = False
                return False
            event = self._queue.popleft()
            listeners = list(self._listeners.values())
        for listener in listeners:
            try:
                listener(event)
            except Exception:
                _LOG.exception("a listener failed")
        return True
