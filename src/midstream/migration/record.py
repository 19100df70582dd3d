"""What a migration did: the record that a cell keeps, and its figures as a message."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

import msgspec

from midstream.algebra.plan import Plan
from midstream.algebra.window_spec import BEGINNING, NEVER
from midstream.execution.executor import NumberOf

__all__ = ["MigrationFigures", "MigrationRecord"]


class MigrationFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a migration did so far. ``started`` and ``ended`` are clock times in seconds since 1970, ``began_at`` and
    ``ended_at`` watermarks in ticks (None where they are the beginning or the end of time)."""

    started: float
    ended: float | None = None
    began_at: int | None = None
    ended_at: int | None = None
    states_shared: int = 0
    """States that passed to the new plan as they were."""
    states_incomplete: int = 0
    """States that the new plan lacked, to be completed on demand."""
    rows_recomputed: int = 0
    """Tuples computed for states of the new plan, at once or on demand."""
    rows_buffered: int = 0
    """The most results of the new plan that had to wait."""
    old_results: int = 0
    """Results that came from the old plan (or both) during the migration."""
    new_results: int = 0
    """Results that came from the new plan during the migration."""

    @property
    def is_over(self) -> bool:
        """Done, or replaced by a later migration."""
        return self.ended is not None

    @property
    def seconds(self) -> float | None:
        """Wall-clock time from beginning to end; None until it is over."""
        return None if self.ended is None else self.ended - self.started


@dataclass
class MigrationRecord:
    """One migration, from its beginning to its end. Event times are watermarks in ticks."""

    strategy: str
    options: Mapping[str, Any]
    old_plan: Plan
    new_plan: Plan
    began_at: int
    number: int = 0
    """Migrations of a cell are counted from 1."""
    began: float = field(default_factory=time.time)
    ended_at: int | None = None
    ended: float | None = None
    states_shared: int = 0
    """States that passed to the new plan as they were."""
    states_incomplete: int = 0
    """States that the new plan lacked, to be completed on demand."""
    rows_recomputed: int = 0
    """Tuples computed at once for the new plan's states."""
    rows_completed: int = 0
    """Tuples computed for states that were to be completed."""
    rows_buffered: int = 0
    """Results of the new box that had to wait."""
    old_results: int = 0
    """Results that came from the old box (or both) during the migration."""
    new_results: int = 0
    """Results that came from the new box during the migration."""

    @property
    def is_over(self) -> bool:
        return self.ended is not None

    def end(self, watermark: int) -> None:
        """Note the end, if it has not been noted."""
        if self.ended is None:
            self.ended_at, self.ended = watermark, time.time()

    def manifest(self, number_of: NumberOf) -> dict[str, Any]:
        """As JSON, to be had again by ``from_manifest``."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return values | {
            "options": dict(self.options),
            "old_plan": number_of(self.old_plan),
            "new_plan": number_of(self.new_plan),
        }

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any], plans: Sequence[Plan]) -> Self:
        """The record that a manifest describes."""
        old_and_new = {name: plans[manifest[name]] for name in ("old_plan", "new_plan")}
        return cls(**{**manifest, **old_and_new})

    def figures(self) -> MigrationFigures:
        """Everything but what was asked for."""
        return MigrationFigures(
            started=self.began,
            ended=self.ended,
            began_at=_instant(self.began_at),
            ended_at=_instant(self.ended_at),
            states_shared=self.states_shared,
            states_incomplete=self.states_incomplete,
            rows_recomputed=self.rows_recomputed + self.rows_completed,
            rows_buffered=self.rows_buffered,
            old_results=self.old_results,
            new_results=self.new_results,
        )


def _instant(ticks: int | None) -> int | None:
    return None if ticks in (None, BEGINNING, NEVER) else ticks
