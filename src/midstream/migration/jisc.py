"""JISC, just-in-time state completion: share the states that match, complete the others on demand.

Aly et al. 2014, section 4. A join state that the old plan lacked, or that was incomplete there (section 4.5, overlapped
transitions), starts incomplete: its old tuples are computed when a tuple first asks for their key
(see ``state_completion``). The states of the joins' inputs are always complete. The change takes effect at once, and
no push pays for more than the keys it asks for, and a bounded share of the others, so that a state is complete after
some pushes and not only when its old tuples have ended (``as_published=True`` leaves that out).

Other stateful operators follow the paper (section 4.7) where their input stays what it was: their state passes on as it
is. Where it does not (a distinct or a partial aggregate pushed below a join, a reordered difference), their state is
computed at once, as moving state does: they read each row once, which is as much work as finding out which rows could
wait. Between two pushes no row is in transit, so that the transition is safe (section 4.1); ended tuples cannot be
found in incomplete states, because validities are intervals and an ended one meets nobody (section 4.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from midstream.algebra.plan import Plan
from midstream.migration.state_matching import COMPLETION_BUDGET, Completion, take_over
from midstream.migration.strategy import MigrationContext, MigrationStart, check_flag

__all__ = ["JustInTimeStateCompletion"]


@dataclass(frozen=True)
class JustInTimeStateCompletion:
    """Share the states that match, complete the others on demand."""

    name: ClassVar[str] = "jisc"
    runs_both_plans: ClassVar[bool] = False

    as_published: bool = False
    """Complete nothing but what is asked for, and count the keys that are left."""

    def __post_init__(self) -> None:
        check_flag(self.name, "as_published", self.as_published)

    def check(self, old: Plan, new: Plan) -> None:
        """It can replace any plan by any other."""

    def begin(self, context: MigrationContext) -> MigrationStart:
        new, results = take_over(context, Completion.LAZY, budget=0 if self.as_published else COMPLETION_BUDGET)
        if not new.is_migrating:
            context.record.end(context.watermark)
        return new, results
