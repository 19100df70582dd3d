"""Measurements of the demo's run, one per micro-batch. The live view and the report are drawn from them."""

from __future__ import annotations

import enum
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from midstream.adaptation.decisions import Decision
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
    """The plan that processed the batch, as a tree."""
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
    engine: str
    """Where the query runs, as shown to the user: "Spark" or "this process"."""
    old_plan: Plan
    adapts: bool
    """Whether the query changes its plan by itself. Otherwise the demo calls ``migrate``."""
    asked_strategy: str | None = None
    """The migration strategy that the user asked for."""
    batches: list[Batch] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    """What the query considered so far."""
    requested_at: int | None = None
    """How many batches had ended when the demo called ``migrate``."""
    migrations: Sequence[Mapping[str, Any]] = ()
    """Their records, see ``docs/migration.md``."""
    old_plan_figures: OldPlanFigures | None = None
    """What the release would cost without a migration."""

    @property
    def should_migrate(self) -> bool:
        """Whether to call ``migrate``: the old plan has been bad for ``migrate_after`` batches."""
        if self.adapts or self.requested_at is not None:
            return False
        return len(self.batches) >= self.size.release + self.size.migrate_after

    @property
    def strategy(self) -> str | None:
        """By which strategy the plan was changed last, or is to be changed; None if that is not known yet."""
        return next((d.strategy for d in reversed(self.decisions) if d.outcome == "changed"), self.asked_strategy)

    @property
    def switched_at(self) -> int | None:
        """The first batch after the release that another plan than the one before the release processed."""
        old = self.plan_before_release
        return next((b.number for b in self.batches if b.number >= self.size.release and b.plan != old), None)

    @property
    def plan_before_release(self) -> str:
        """The plan in effect when the release came, as a tree."""
        before = [batch.plan for batch in self.batches if batch.number < self.size.release]
        return before[-1] if before else self.old_plan.explain()

    @property
    def plan(self) -> str:
        """The plan in effect, as a tree."""
        return self.batches[-1].plan if self.batches else self.old_plan.explain()

    @property
    def changes(self) -> list[int]:
        """The batches that another plan processed than the batch before."""
        plans = [self.old_plan.explain(), *(batch.plan for batch in self.batches)]
        return [batch.number for batch, before in zip(self.batches, plans, strict=False) if batch.plan != before]

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
