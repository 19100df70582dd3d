"""The interface of a migration strategy.

A strategy is a class with the strategy's options as fields and one method, ``begin``: it gets the box in force and the
new plan, and gives the box that takes over. That box is the new plan itself where the change is immediate, or a
migration in progress: a box that holds the old and the new one, and hands over to the new one when it is done. As the
old box may itself be a migration, migrations overlap without further ado.

``docs/how_to_add_a_strategy.md`` shows how to add one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from midstream.algebra.plan import Aggregate, Difference, Distinct, Plan
from midstream.algebra.windows import BEGINNING, NEVER
from midstream.engine.batch import Batch
from midstream.engine.box import Box, PlanBox
from midstream.engine.window_store import InputBatches, WindowStore
from midstream.errors import MigrationRefused
from midstream.migration.record import MigrationRecord

__all__ = [
    "MigrationContext",
    "MigrationStart",
    "Strategy",
    "check_flag",
    "other_stateful_operators",
    "refuse_endless_windows",
]

MigrationStart = tuple[Box, list[Batch]]
"""The box that takes over, and results that are to be emitted now."""


@dataclass(frozen=True)
class MigrationContext:
    """What a strategy needs to know: the box in force, where it stands, and the plan to change to."""

    old: Box
    plan: Plan
    windows: WindowStore
    watermark: int
    chunk_rows: int
    record: MigrationRecord
    rows: InputBatches | None = None
    """The rows to work on, if not all that are in the windows."""

    @property
    def is_trivial(self) -> bool:
        """Whether no row has come yet: the new plan may start where the old one stands."""
        return self.windows.latest_end == BEGINNING

    def empty_box(self) -> PlanBox:
        """The new plan, without any state."""
        box = PlanBox(self.plan, self.windows, self.chunk_rows)
        box.advance(self.watermark)
        return box


class Strategy(Protocol):
    """A way to change from one plan to another."""

    name: ClassVar[str]
    runs_both_plans: ClassVar[bool]
    """Whether the old plan goes on beside the new one for some time."""

    def begin(self, context: MigrationContext) -> MigrationStart:
        """Change over. Raises ``MigrationRefused``, and changes nothing, where the strategy cannot."""


def check_flag(name: str, option: str, value: object) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool):
        raise MigrationRefused(f'option "{option}" of {name} is {value!r}', hint="Give True or False.")


def refuse_endless_windows(name: str, context: MigrationContext) -> None:
    """For strategies that wait until the old rows have ended."""
    if context.windows.longest >= NEVER:
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
