"""Measurements of the demo's run, one per micro-batch. The live view and the report are drawn from them."""

from __future__ import annotations

import enum
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from midstream.algebra.plan import Plan
from midstream.demo.just_in_time import OldPlanFigures
from midstream.demo.scenario import ALIASES, Size

__all__ = ["Batch", "Phase", "PhaseFigures", "Recording", "join_states"]

JOINS = len(ALIASES) - 1


class Phase(enum.Enum):
    """A part of the run. At the release the selectivities flip."""

    WARM_UP = "warm-up"
    GOOD = "old plan, before the release"
    BAD = "old plan, after the release"
    MIGRATING = "migration in progress"
    GOOD_AGAIN = "new plan"


@dataclass(frozen=True)
class Batch:
    """One micro-batch."""

    number: int
    seconds: float
    rows: int
    results: int
    plan: str
    """The plan in effect when the batch ended, as a tree."""
    is_migrating: bool
    window_rows: int
    states: Sequence[int]
    """Rows in the state of each join, the lowest join first; summed over both plans while two run."""


@dataclass(frozen=True)
class PhaseFigures:
    """The batches of one phase together."""

    phase: Phase
    batches: int
    seconds: float
    rows: int
    results: int
    median_seconds: float

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds

    @property
    def results_per_second(self) -> float:
        return self.results / self.seconds


@dataclass
class Recording:
    """The measurements of a run so far."""

    size: Size
    strategy: str
    engine: str
    """Where the query runs, as shown to the user: "Spark" or "this process"."""
    old_plan: Plan
    new_plan: Plan
    batches: list[Batch] = field(default_factory=list)
    requested_at: int | None = None
    """How many batches had ended when the migration was requested."""
    migration: Mapping[str, Any] = field(default_factory=dict)
    """The record of the migration, see ``docs/migration.md``."""
    old_plan_figures: OldPlanFigures | None = None
    """What the release would cost without a migration."""

    @property
    def should_migrate(self) -> bool:
        """Whether to request the migration: the old plan has been bad for ``migrate_after`` batches."""
        return self.requested_at is None and len(self.batches) >= self.size.release + self.size.migrate_after

    @property
    def switched_at(self) -> int | None:
        """The first batch that ended with the new plan in effect."""
        new = self.new_plan.explain()
        return next((batch.number for batch in self.batches if batch.plan == new), None)

    @property
    def plan(self) -> Plan:
        """The plan in effect."""
        return self.old_plan if self.switched_at is None else self.new_plan

    def phase(self, batch: Batch) -> Phase:
        """The phase that a batch belongs to."""
        if self.switched_at is not None and batch.number >= self.switched_at:
            is_first = batch.number == self.switched_at
            return Phase.MIGRATING if batch.is_migrating or is_first else Phase.GOOD_AGAIN
        if batch.number >= self.size.release:
            return Phase.BAD
        return Phase.WARM_UP if batch.number < self.size.warm_up else Phase.GOOD

    def figures(self) -> list[PhaseFigures]:
        """Totals per phase, in order; phases without a batch are omitted."""
        together = []
        for phase in Phase:
            own = [batch for batch in self.batches if self.phase(batch) is phase]
            if own:
                seconds = [batch.seconds for batch in own]
                together.append(
                    PhaseFigures(
                        phase,
                        len(own),
                        sum(seconds),
                        sum(batch.rows for batch in own),
                        sum(batch.results for batch in own),
                        statistics.median(seconds),
                    )
                )
        return together

    def slowdown(self) -> float | None:
        """How many times longer a batch takes with the old plan after the release than before it."""
        return self._ratio(Phase.BAD, Phase.GOOD)

    def speedup(self) -> float | None:
        """How many times longer a batch takes with the old plan after the release than with the new plan."""
        return self._ratio(Phase.BAD, Phase.GOOD_AGAIN)

    def _ratio(self, above: Phase, below: Phase) -> float | None:
        medians = {figures.phase: figures.median_seconds for figures in self.figures()}
        return medians[above] / medians[below] if above in medians and below in medians else None


def join_states(cells: Sequence[Mapping[str, Any]]) -> list[int]:
    """Rows in the state of each join, the lowest first, from the ``operators`` in the cells' metrics."""
    states = [0] * JOINS
    for cell in cells:
        # An operator follows its inputs; a second plan's operators follow those of the first.
        joins = [operator for operator in cell["operators"] if operator["kind"] == "join"]
        for place, join in enumerate(joins):
            states[place % JOINS] += join["state_rows"]
    return states
