"""Plan changes through a control directory: which plan is in force, and whether it can be replaced.

The process that runs the query and any other that knows its control directory decide both in the same way: here. A
change is checked before it is written, on a cell without rows and without migrations under way: what that refuses is
never written. A cell may still refuse, for a reason that only its rows and migrations can give.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from midstream.algebra.plan import Plan
from midstream.algebra.plan_json import plan_from_json, plan_to_json
from midstream.errors import FinishedRun
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

    def in_force(self, told: Mapping[str, Any] | None) -> Plan:
        """The plan that the query told of, as JSON; the first plan, if it told of none."""
        return self._first_plan if told is None else self._restored(told)

    def _restored(self, described: Mapping[str, Any]) -> Plan:
        return plan_from_json(described, self._first_plan.derived_from)

    def ask(
        self,
        in_force: Plan,
        plan: str | Plan,
        strategy: str,
        options: Mapping[str, Any],
        told: Mapping[str, Any],
    ) -> int:
        """Check a change of the plan and write it as a command, whose number this gives.

        Raises, and writes nothing, if the plan is not one of this query's, the strategy cannot change to it, or the
        streams have ended, by what the query ``told`` last.
        """
        if told.get("finished"):
            raise FinishedRun("the streams of the query have ended: its plan does not matter any more")
        chosen = self._query.chosen(plan)
        Cell(in_force, self._query.plan()).migrate(chosen, strategy, **options)
        asked = {"plan": plan_to_json(chosen), "identity": self._first_plan.derived_from, "strategy": strategy}
        return self._control.write({"kind": "migrate", **asked, "options": dict(options)}, told.get("query"))
