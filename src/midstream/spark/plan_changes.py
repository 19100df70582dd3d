"""Plan changes through a control directory: which plan is in force, and whether it can be replaced.

The process that runs the query and any other that knows its control directory decide both in the same way: here. A
change is checked before it is written, on a cell without rows, which refuses whatever any cell would.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from midstream.algebra.plan import Plan
from midstream.algebra.plan_json import plan_from_json, plan_to_json
from midstream.migration.cell import Cell
from midstream.query import ContinuousQuery
from midstream.spark.control import ControlDirectory

__all__ = ["PlanChanges"]


class PlanChanges:
    """The migrations that a query was asked for, in order, and the plan it began with."""

    def __init__(self, query: ContinuousQuery, first_plan: Plan, control: ControlDirectory) -> None:
        self._query = query
        self._first_plan = first_plan
        self._control = control
        self._plans: dict[int, Plan] = {}
        self._texts: dict[int, str] = {}

    def commands(self) -> list[dict[str, Any]]:
        """The commands to migrate, in order."""
        return [command for command in self._control.commands() if command.get("kind") == "migrate"]

    def plan_of(self, command: Mapping[str, Any]) -> Plan:
        """The plan that a command leads to."""
        if command["id"] not in self._plans:
            self._plans[command["id"]] = self._restored(command["plan"])
        return self._plans[command["id"]]

    def text_of(self, command: Mapping[str, Any]) -> str:
        """The plan that a command leads to, as it explains itself."""
        if command["id"] not in self._texts:
            self._texts[command["id"]] = self.plan_of(command).explain()
        return self._texts[command["id"]]

    def in_force(self, told: str | None) -> Plan:
        """The plan that the query told of, as text; the first plan, if it told of none."""
        if told is None or told == self._first_plan.explain():
            return self._first_plan
        for command in reversed(self.commands()):
            if self.text_of(command) == told:
                return self.plan_of(command)
        # A query that was started again may have been given another plan than it was begun with.
        begun_with = self._restored((self._control.query() or {})["first_plan"])
        return begun_with if begun_with.explain() == told else self._first_plan

    def _restored(self, described: Mapping[str, Any]) -> Plan:
        return plan_from_json(described, self._first_plan.derived_from)

    def ask(self, in_force: Plan, plan: str | Plan, strategy: str, options: Mapping[str, Any]) -> int:
        """Check a change of the plan and write it as a command, whose number this gives.

        Raises, and writes nothing, if the plan is not one of this query's or the strategy cannot change to it.
        """
        chosen = self._query.chosen(plan)
        Cell(in_force, self._query.plan()).migrate(chosen, strategy, **options)
        return self._control.write(
            {"kind": "migrate", "plan": plan_to_json(chosen), "strategy": strategy, "options": dict(options)}
        )
