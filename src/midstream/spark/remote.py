"""A query that runs in another process: known by its control directory alone, and changed through it.

Nothing of Spark is started. The query is made again from its text and its streams' declarations, so that a change of
its plan is checked here as it would be there, and only then written.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from midstream.algebra.plan import Plan
from midstream.algebra.plan_json import plan_from_json, stream_from_json
from midstream.errors import CheckpointMismatch, NotRunning
from midstream.query import ContinuousQuery
from midstream.spark.control import ControlDirectory
from midstream.spark.plan_changes import PlanChanges

__all__ = ["RemoteQuery"]


class RemoteQuery:
    """A query by its control directory; raises ``NotRunning`` if no query was ever started with that directory."""

    def __init__(self, control_dir: str | os.PathLike[str]) -> None:
        self._control = ControlDirectory(control_dir)
        stored = self._control.query()
        if stored is None:
            raise NotRunning(
                f"there is no query in {control_dir}",
                detail="The directory does not exist." if not Path(control_dir).is_dir() else "It has no query.json.",
                hint="Give the control directory of a query: midstream run --control DIR, or control_dir= of "
                "run_on_spark.",
            )
        self.query = ContinuousQuery(stored["text"], [stream_from_json(stream) for stream in stored["streams"]])
        self.cells: int = stored["cells"]
        if self.query.plan().derived_from != stored["identity"]:
            raise CheckpointMismatch(
                f"the query in {control_dir} means something else to this version of midstream",
                hint="Use the version that the query was started with.",
            )
        first_plan = plan_from_json(stored.get("first_plan"), stored["identity"])
        self._changes = PlanChanges(self.query, first_plan, self._control)

    @property
    def control_dir(self) -> Path:
        return self._control.path

    @property
    def plan(self) -> Plan:
        """The plan in force, as far as the query has told; during a migration, the one it leads to."""
        return self._changes.in_force((self.status() or {}).get("plan_json"))

    def status(self) -> dict[str, Any] | None:
        """What the query last told of itself (``told`` says when); None if it has not yet."""
        return self._control.status()

    def migrate(self, plan: str | Plan, strategy: str = "jisc", **options: Any) -> int:
        """Ask for another plan, as ``LiveQuery.migrate`` does. Gives the number of the command, for :meth:`outcome`."""
        return self._changes.ask(self.plan, plan, strategy, options, (self.status() or {}).get("metrics", {}))

    def outcome(self, number: int) -> dict[str, Any]:
        """The entry of the query's history for a migration; its ``state`` is "written" until a cell has told of it."""
        history = (self.status() or {}).get("history", [])
        known = [entry for entry in history if entry["id"] == number]
        return known[0] if known else {"id": number, "state": "written", "cells": []}

    def plan_asked_for(self, number: int) -> Plan | None:
        """The plan that a migration leads to; None if there is no migration of this number."""
        asked = [command for command in self._changes.commands() if command["id"] == number]
        return self._changes.plan_of(asked[0]) if asked else None
