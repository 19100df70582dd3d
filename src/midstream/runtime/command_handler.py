"""Commands in one cell: carried out once, in order, with an outcome that is remembered.

All cells of a query receive the same commands in the same micro-batch. A command that was carried out already is passed
over: a restart replays the last micro-batch, and two control directories may be read one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property

import msgspec

from midstream.adaptation.policy import Adaptation
from midstream.algebra.plan import Plan
from midstream.algebra.plan_json import plan_from_json
from midstream.algebra.window_spec import BEGINNING, NEVER
from midstream.errors import BadPlan, MigrationRefused
from midstream.migration.strategy_registry import strategy_named
from midstream.planned_query import PlannedQuery
from midstream.runtime.cell import Cell
from midstream.runtime.messages import Adapt, Command, CommandOutcome, DeclareIdle, Finish, Migrate, SwitchJustInTime
from midstream.runtime.query_fingerprint import QueryFingerprint
from midstream.runtime.stream_counters import StreamCounters
from midstream.runtime.watermark import EventTime

__all__ = ["CommandHandler"]

REMEMBERED_COMMANDS = 32
"""Commands whose outcome is kept, the latest ones; and all whose migration is running."""


class CommandHandler:
    """Carries out the commands to one cell, and remembers what became of migrations."""

    def __init__(self, cell: Cell, time: EventTime, query: QueryFingerprint) -> None:
        self._cell = cell
        self._time = time
        self._query = query
        self._outcomes: list[CommandOutcome] = []
        self.adaptation: Adaptation | None = None
        """How joins are to be measured, by the latest command about it."""

    def restore(self, outcomes: Iterable[CommandOutcome]) -> None:
        """Continue with the outcomes that an earlier process remembered."""
        self._outcomes = list(outcomes)

    def obey(self, commands: Iterable[Command], streams: Mapping[str, StreamCounters]) -> tuple[int, bool]:
        """Carry out the commands of a micro-batch: the watermark that they demand, and whether one changed what the
        cell runs."""
        # The outcomes of all commands of one batch are reported, however many there are.
        known = self.outcomes()
        running = [outcome for outcome in known[:-REMEMBERED_COMMANDS] if outcome.state == "running"]
        self._outcomes = running + known[-REMEMBERED_COMMANDS:]
        at_least, has_changed = BEGINNING, False
        for command in commands:
            match command.action:
                case Finish():
                    at_least = NEVER
                case DeclareIdle(stream=stream, rows=rows):
                    counters = streams.get(stream)
                    # Silence that was noticed automatically is over if a row has come since.
                    if counters is not None and counters.rows <= (math.inf if rows is None else rows):
                        self._time.declare_idle(stream)
                case Adapt(policy=policy):
                    has_changed |= policy != self.adaptation
                    self.adaptation = policy
                case Migrate() | SwitchJustInTime():
                    has_changed |= self._carry_out(command)
        return at_least, has_changed

    def outcomes(self) -> list[CommandOutcome]:
        """What became of the latest migrations, as of now."""
        self._outcomes = [self._up_to_date(outcome) for outcome in self._outcomes]
        return self._outcomes

    def _carry_out(self, command: Command) -> bool:
        """Change the plan, or how it is run; whether that was not done before."""
        name = command.directory, command.number
        if any(name == (known.directory, known.number) for known in self._outcomes):
            return False
        outcome = CommandOutcome(directory=command.directory, number=command.number, state="running")
        before = self._cell.migrations
        try:
            match command.action:
                case Migrate() as change:
                    self._migrate(change)
                case SwitchJustInTime(options=options):
                    self._cell.switch_just_in_time(options)
            migration = self._cell.migrations
            changed = {"state": "unchanged"} if migration == before else {"migration": migration}
        except (MigrationRefused, BadPlan) as refusal:
            changed = {"state": "refused", "reason": str(refusal)}
        self._outcomes.append(msgspec.structs.replace(outcome, **changed))
        return True

    def _migrate(self, change: Migrate) -> None:
        if change.identity != self._query.identity:
            raise BadPlan("the plan belongs to another query")
        plan = plan_from_json(change.plan, self._query.identity)
        if plan != self._cell.plan:
            self._check_own(plan)
        self._cell.migrate_by(strategy_named(change.strategy, change.options), plan)

    def _check_own(self, plan: Plan) -> None:
        """Refuse a plan that computes something else, whatever query it says it belongs to."""
        if plan.schema != self._cell.plan.schema:
            raise BadPlan("the plan has other output columns than the query")
        # What reads other windows is refused by the cell, which knows them.
        if self._cell.windows.reads(plan) and not self._planned.has(plan):
            raise BadPlan("the plan computes something else than the query")

    @cached_property
    def _planned(self) -> PlannedQuery:
        return self._query.planned()

    def _up_to_date(self, outcome: CommandOutcome) -> CommandOutcome:
        """The outcome with the figures of its migration; they stay what they were once the cell has forgotten it."""
        if outcome.state != "running" or outcome.migration is None:
            return outcome
        record = self._cell.record(outcome.migration)
        if record is None:
            # Cells forget only what is over.
            return msgspec.structs.replace(outcome, state="completed")
        state = "completed" if record.is_over else "running"
        return msgspec.structs.replace(outcome, state=state, figures=record.figures())
