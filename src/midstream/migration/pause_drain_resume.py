"""Pause, drain, resume: the baseline for plans without state (Zhu et al. 2004, section 1).

Between two pushes no row is in transit: the old plan is drained, and the new one takes the next rows. What the old
plan's operators remember would be lost, so that a stateful plan is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from midstream.algebra.plan import Plan
from midstream.errors import MigrationRefused
from midstream.migration.strategy import MigrationContext, MigrationStart

__all__ = ["PauseDrainResume"]


@dataclass(frozen=True)
class PauseDrainResume:
    """Change between two pushes; stateless plans only."""

    name: ClassVar[str] = "pause-drain-resume"
    runs_both_plans: ClassVar[bool] = False

    def check(self, old: Plan, new: Plan) -> None:
        stateful = [node.label for plan in (old, new) for node in plan.walk() if node.is_stateful]
        if stateful:
            raise MigrationRefused(
                "pause-drain-resume cannot change a plan with state",
                detail=f'What "{stateful[0]}" remembers of the rows in their windows would be lost.',
                hint="Use jisc or moving-state.",
            )

    def begin(self, context: MigrationContext) -> MigrationStart:
        context.record.end(context.watermark)
        return context.empty(), []
