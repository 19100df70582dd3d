"""A query that runs in another process: known by its control directory alone, and changed through it.

Nothing of Spark is started. The query is made again from its text and its streams' declarations, so that a change of
its plan is checked here as it would be there, and only then written.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from midstream.algebra.plan import Plan
from midstream.algebra.plan_json import plan_from_json
from midstream.errors import MidstreamError, NotRunning
from midstream.execution.just_in_time import JustInTime
from midstream.runtime.control import ControlDirectory
from midstream.runtime.messages import AdaptationEntry, CommandOutcome, MigrationOutcome, Status
from midstream.runtime.migration_outcomes import outcome_in
from midstream.runtime.plan_changes import PlanChanges

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
        fingerprint = stored.query
        self.query = fingerprint.planned()
        self.cells = fingerprint.cells
        fingerprint.check_identity(self.query.plan().derived_from, str(control_dir))
        first_plan = plan_from_json(stored.first_plan, fingerprint.identity)
        self._changes = PlanChanges(self.query, first_plan, self._control)

    @property
    def control_dir(self) -> Path:
        return self._control.path

    @property
    def plan(self) -> Plan:
        """The plan in force, as the query last reported; during a migration, the one it leads to.

        The first plan, if there is no report.
        """
        status = self.status()
        return self._changes.in_force(None if status is None else status.plan_json)

    def status(self) -> Status | None:
        """What the query last reported (``reported`` says when); None if it has not yet."""
        return self._control.status()

    def adaptation(self) -> list[AdaptationEntry]:
        """What the query decided about its own plan, the latest last; empty if it was never asked to."""
        return self._control.adaptation()

    @property
    def lacks_report(self) -> bool:
        """Whether a query has reported here, but what it reported is gone: it was removed, or the query begins anew.

        Until the next report, the plan in force and whether the streams have ended are not known.
        """
        return self.status() is None and bool(self._control.claims().queries)

    def ignored(self) -> dict[str, MidstreamError]:
        """Files among the commands that are none, and why."""
        return self._control.ignored()

    def migrate(self, plan: str | Plan, strategy: str = "jisc", **options: Any) -> int:
        """Submit another plan, as ``LiveQuery.migrate`` does. Gives the number of the migration, for ``outcome``."""
        status = self.status()
        in_force = None if self.lacks_report else self.plan
        return self._changes.submit(in_force, plan, strategy, options, None if status is None else status.metrics)

    def outcomes_in_cells(self, number: int) -> list[CommandOutcome]:
        """What became of a command of this directory, in each cell that has reported it."""
        status = self.status()
        cells = [] if status is None else status.metrics.cells
        name = self._control.mark, number
        return [known for cell in cells for known in cell.commands if (known.directory, known.number) == name]

    def switch_just_in_time(self, options: JustInTime | None) -> int:
        """Submit a command to switch just-in-time processing on or off. Gives its number, for ``outcomes_in_cells``."""
        status = self.status()
        return self._changes.submit_switch(options, None if status is None else status.metrics)

    def outcome(self, number: int) -> MigrationOutcome:
        """What became of a migration; its state is "submitted" until a cell has reported it."""
        return outcome_in(self.status(), number)

    def plan_submitted(self, number: int) -> Plan | None:
        """The plan that a migration leads to; None if there is no migration of this number."""
        return self._changes.plan_of(number)
