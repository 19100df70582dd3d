"""The interface of a migration strategy.

A strategy is a class with the strategy's options as fields and two methods. ``check`` decides from the plans alone
whether the strategy can replace one by the other. ``begin`` gets the running executor and gives the one that replaces
it: the new plan's own where the change is immediate, or a migration in progress, which holds the old and the new one
and is replaced by the new one when it completes. As the old executor may itself be a migration, migrations can overlap.

Who decides that a migration has ended: its executor says so (``successor``, ``is_migrating``), and the cell asks after
every push (``runtime/cell``). A strategy whose change is immediate ends the record in ``begin``.

``docs/how_to_add_a_strategy.md`` shows how to add one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from midstream.algebra.plan import Aggregate, Difference, Distinct, Plan
from midstream.algebra.window_spec import BEGINNING, NEVER
from midstream.engine.batch import Batch
from midstream.engine.state.window_store import WindowStore
from midstream.errors import MigrationRefused
from midstream.execution.executor import Executor
from midstream.execution.plan_executor import PlanExecutor, RowStores
from midstream.migration.record import MigrationRecord

__all__ = [
    "MigrationContext",
    "MigrationStart",
    "Strategy",
    "check_flag",
    "other_stateful_operators",
    "refuse_endless_windows",
]

MigrationStart = tuple[Executor, list[Batch]]
"""The executor that replaces the old one, and results that are to be emitted now."""


@dataclass(frozen=True)
class MigrationContext:
    """What a strategy works on: the running executor, the plan to change to, and how to make an executor for it."""

    old: Executor
    plan: Plan
    windows: WindowStore
    watermark: int
    record: MigrationRecord
    make: Callable[[RowStores], PlanExecutor]
    """Makes an executor for the new plan, which inherits the given stores of materialized rows."""

    @property
    def is_trivial(self) -> bool:
        """Whether no row has come yet: the new plan can start without any state."""
        return self.windows.latest_end == BEGINNING

    def empty(self) -> PlanExecutor:
        """An executor for the new plan, without any state."""
        executor = self.make({})
        executor.advance(self.watermark)
        return executor


class Strategy(Protocol):
    """A way to change from one plan to another."""

    name: ClassVar[str]
    runs_both_plans: ClassVar[bool]
    """Whether the old plan continues to run beside the new one for some time."""

    def check(self, old: Plan, new: Plan) -> None:
        """Raise ``MigrationRefused`` if the strategy cannot replace one plan by the other, whatever rows there are."""

    def begin(self, context: MigrationContext) -> MigrationStart:
        """Start to replace the old plan, after ``check``.

        Raises ``MigrationRefused``, and changes nothing, if the strategy cannot, for a reason that only the rows and
        other migrations give.
        """


def check_flag(name: str, option: str, value: object) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool):
        raise MigrationRefused(f'option "{option}" of {name} is {value!r}', hint="Give True or False.")


def refuse_endless_windows(name: str, plan: Plan) -> None:
    """For strategies that wait until the old rows have ended."""
    if any(leaf.longest >= NEVER for leaf in plan.leaves()):
        raise MigrationRefused(
            f"{name} never ends for this query",
            detail="It waits until the rows of the old plan have left their windows; some windows are unbounded.",
            hint="Use moving-state or jisc.",
        )


def other_stateful_operators(plan: Plan) -> list[str]:
    """Kinds of stateful operators besides joins."""
    return sorted(
        {type(node).__name__.lower() for node in plan.walk() if isinstance(node, Distinct | Aggregate | Difference)}
    )
