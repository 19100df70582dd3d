"""Plan changes through a control directory: which plan is in force, and whether it can be replaced.

The process that runs the query and any other that knows its control directory decide both in the same way: here. A
change is checked before it is written (``Strategy.check``): what that refuses is never written. A cell may still
refuse, for a reason that only its rows and its migrations give.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from midstream.adaptation.decisions import Decision
from midstream.adaptation.policy import Adaptation
from midstream.algebra.plan import Plan
from midstream.algebra.plan_json import plan_from_json, plan_to_json
from midstream.errors import BadPlan, FinishedRun, MigrationRefused
from midstream.execution.just_in_time import JustInTime
from midstream.migration.strategy_registry import strategy_named
from midstream.planned_query import PlannedQuery
from midstream.runtime.control import ControlDirectory
from midstream.runtime.messages import Adapt, ClusterMetrics, Command, Migrate, PlanJson, SwitchJustInTime

__all__ = ["PlanChanges"]


class PlanChanges:
    """The migrations that were submitted to a query, in order, and the plan it began with."""

    def __init__(self, query: PlannedQuery, first_plan: Plan, control: ControlDirectory) -> None:
        self._query = query
        self._first_plan = first_plan
        self._control = control
        self._plans: dict[int, Plan | None] = {}

    def commands(self, query: str | None) -> list[tuple[Command, Migrate, Plan]]:
        """The commands to migrate that are for this query, by the id that Spark gives it, in order, and their plans.

        Those with a plan that is not one of this query's are left out: another query used the directory.
        """
        claims = self._control.claims()
        found = []
        for command in self._control.commands():
            if isinstance(command.action, Migrate) and claims.is_for(command, query):
                plan = self._plan(command.number, command.action)
                if plan is not None:
                    found.append((command, command.action, plan))
        return found

    def switches(self, query: str | None) -> list[int]:
        """The numbers of the commands to this query that switch just-in-time processing."""
        claims = self._control.claims()
        commands = [c for c in self._control.commands() if isinstance(c.action, SwitchJustInTime)]
        return [command.number for command in commands if claims.is_for(command, query)]

    def plan_of(self, number: int) -> Plan | None:
        """The plan that the command of this number leads to; None if there is no such command, or its plan is not one
        of this query's."""
        if number in self._plans:
            return self._plans[number]
        actions = [command.action for command in self._control.commands() if command.number == number]
        return self._plan(number, actions[0]) if actions and isinstance(actions[0], Migrate) else None

    @cached_property
    def first_plan(self) -> Plan:
        """The plan that the query of the control directory began with."""
        stored = self._control.query()
        return self._first_plan if stored is None else self._restored(stored.first_plan)

    def shapes(self) -> tuple[Plan, ...]:
        """One plan of each shape of the query."""
        return self._query.shapes()

    def in_force(self, reported: PlanJson | None) -> Plan:
        """The plan that the query reported, as JSON; the first plan, if it has reported none."""
        return self._first_plan if reported is None else self._restored(reported)

    def _restored(self, described: PlanJson) -> Plan:
        return plan_from_json(described, self._first_plan.derived_from)

    def _plan(self, number: int, change: Migrate) -> Plan | None:
        """The plan of a command, which is read once."""
        if number not in self._plans:
            try:
                self._plans[number] = self._restored(change.plan)
            except BadPlan:
                self._plans[number] = None
        return self._plans[number]

    def submit(
        self,
        in_force: Plan | None,
        plan: str | Plan,
        strategy: str,
        options: Mapping[str, Any],
        reported: ClusterMetrics | None,
        decision: Decision | None = None,
        after: int | None = None,
    ) -> int:
        """Check a change of the plan and write it as a command, whose number this gives.

        ``decision`` is the query's own, if it is not a person's change. It was made when ``after`` was the latest
        command: if there is another one by now, it is refused.

        Raises, and writes nothing, if the plan is not one of this query's, the strategy cannot change to it, or the
        streams have ended, by what the query ``reported`` last. If the plan in force is not known, the cells alone
        decide whether the strategy can change it.
        """
        if reported is not None and reported.finished:
            raise FinishedRun("the streams of the query have ended: its plan does not matter any more")
        chosen = self._query.chosen(plan)
        checked = strategy_named(strategy, options)
        if in_force is not None:
            checked.check(in_force, chosen)
        identity = self._first_plan.derived_from or ""
        change = Migrate(
            plan=plan_to_json(chosen), identity=identity, strategy=strategy, options=dict(options), decision=decision
        )
        query = None if reported is None else reported.query
        if after is None:
            return self._control.write(change, query)
        if not self._control.write_as(after + 1, change, query):
            raise MigrationRefused("another command was given to the query at the same time")
        return after + 1

    def submit_switch(self, just_in_time: JustInTime | None, reported: ClusterMetrics | None) -> int:
        """Write a switch of just-in-time processing as a command, whose number this gives; as ``submit`` else."""
        if reported is not None and reported.finished:
            raise FinishedRun("the streams of the query have ended: how its plan is run does not matter any more")
        return self._control.write(SwitchJustInTime(options=just_in_time), None if reported is None else reported.query)

    def submit_adaptation(self, policy: Adaptation | None, query: str | None) -> int:
        """Write how cells are to measure their joins as a command to the query with this id; its number."""
        return self._control.write(Adapt(policy=policy), query)
