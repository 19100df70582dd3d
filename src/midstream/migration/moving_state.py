"""Moving state: match the states of both plans, share those that match, compute the others at once.

Zhu et al. 2004, section 4.1 and algorithm 1. States match if they hold the same tuples (by the identity of the subplan)
in the same order (by key). Matched ones pass to the new plan by reference; the others are computed bottom-up, joins
from the states below them, anything else by replaying its input. Between two pushes there are no accumulated tuples to
be cleaned first (section 4.1.3). The change takes effect at once, and the query is silent for as long as it takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from midstream.algebra.plan import Plan
from midstream.migration.state_matching import Completion, take_over
from midstream.migration.strategy import MigrationContext, MigrationStart

__all__ = ["MovingState"]


@dataclass(frozen=True)
class MovingState:
    """Share the states that match, compute the rest at once."""

    name: ClassVar[str] = "moving-state"
    runs_both_plans: ClassVar[bool] = False

    def check(self, old: Plan, new: Plan) -> None:
        """It can replace any plan by any other."""

    def begin(self, context: MigrationContext) -> MigrationStart:
        start = take_over(context, Completion.EAGER)
        context.record.end(context.watermark)
        return start
