"""The interface of a migration strategy, and the strategies by name.

A strategy is a class with the strategy's options as fields and one method, ``begin``: it gets the box in force and the
new plan, and gives the box that takes over. That box is the new plan itself where the change is immediate, or a
migration in progress: a box that holds the old and the new one, and hands over to the new one when it is done. As the
old box may itself be a migration, migrations overlap without further ado.

``docs/how_to_add_a_strategy.md`` shows how to add one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol

from midstream.algebra.plan import Aggregate, Difference, Distinct, Plan
from midstream.algebra.windows import BEGINNING, NEVER
from midstream.engine.batch import Batch
from midstream.engine.box import Box, PlanBox
from midstream.engine.windows import Arrived, Windows
from midstream.errors import BadMigration, did_you_mean, quoted
from midstream.migration.record import MigrationRecord

__all__ = ["Begun", "Strategy", "Switch", "refuse_endless_windows", "strategy_named"]

Begun = tuple[Box, list[Batch]]
"""The box that takes over, and results that are to be told now."""


@dataclass(frozen=True)
class Switch:
    """What a strategy needs to know: the box in force, where it stands, and the plan to change to."""

    old: Box
    plan: Plan
    windows: Windows
    watermark: int
    chunk_rows: int
    record: MigrationRecord
    rows: Arrived | None = None
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

    def begin(self, switch: Switch) -> Begun:
        """Change over. Raises ``BadMigration``, and changes nothing, where the strategy cannot."""


def strategies() -> dict[str, type[Strategy]]:
    """All strategies by name."""
    from midstream.migration.gen_mig import GenMig
    from midstream.migration.jisc import JustInTimeStateCompletion
    from midstream.migration.moving_state import MovingState
    from midstream.migration.parallel_track import ParallelTrack
    from midstream.migration.pause_drain_resume import PauseDrainResume

    return {s.name: s for s in (PauseDrainResume, MovingState, ParallelTrack, GenMig, JustInTimeStateCompletion)}


def strategy_named(name: object, options: Mapping[str, Any]) -> Strategy:
    """The strategy with its options; raises ``BadMigration`` for unknown names and options."""
    known = strategies()
    if not isinstance(name, str) or name not in known:
        raise BadMigration(
            f"there is no migration strategy {name!r}",
            detail=f"There are {quoted(known)}.",
            hint=did_you_mean(str(name), known),
        )
    accepted = [field.name for field in fields(known[name]) if not field.name.startswith("_")]  # type: ignore[arg-type]
    for option in options:
        if option not in accepted and not option.startswith("_"):
            raise BadMigration(
                f'strategy "{name}" has no option "{option}"',
                detail=f"It has {quoted(accepted)}." if accepted else "It has no options.",
                hint=did_you_mean(option, accepted),
            )
    return known[name](**options)


def refuse_endless_windows(name: str, switch: Switch) -> None:
    """For strategies that wait until the old rows have ended."""
    if switch.windows.longest >= NEVER:
        raise BadMigration(
            f"{name} never ends for this query",
            detail="It waits until the rows of the old plan have left their windows; some windows are unbounded.",
            hint="Use moving-state or jisc.",
        )


def other_stateful_operators(plan: Plan) -> list[str]:
    """Kinds of stateful operators besides joins."""
    return sorted(
        {type(node).__name__.lower() for node in plan.walk() if isinstance(node, Distinct | Aggregate | Difference)}
    )
