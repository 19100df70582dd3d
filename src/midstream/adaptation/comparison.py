"""The plan in force beside the cheapest one: what is decided on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from midstream.adaptation.decisions import ConsideredJoin
from midstream.algebra.plan import Plan
from midstream.planning.cost.plan_cost import PlanCost
from midstream.planning.cost.sizes import PlanSizes, Replicates, standard_error

__all__ = ["Comparison", "most_state_bytes"]


@dataclass(frozen=True)
class Comparison:
    """The plan in force and the cheapest one, in the cell that is slowest with the plan in force."""

    sizes: PlanSizes
    rows: int
    """How many rows have arrived in the cell since the last consideration."""
    now: PlanCost
    best_plan: Plan
    best: PlanCost
    place: int
    """Which of the cells it is."""
    imbalance: float
    """How many times the work of an average cell it has."""
    changing: tuple[float, float]
    """What changes cost lately, per row, if the plan in force has intermediate results, and if the cheapest has."""
    state_bytes: tuple[float, float]
    """Of both plans, in the cell where these have the most."""

    @property
    def latest_rows(self) -> int:
        """How many of these rows the sizes describe. As many are taken to arrive until the next decision."""
        return min(self.rows, self.sizes.rows)

    @property
    def saving_per_row(self) -> Replicates:
        """What one row would have saved with the cheapest plan."""
        return self.saving_of(self.now, self.best)

    def saving_of(self, now: PlanCost, best: PlanCost) -> Replicates:
        """What one row would save if the two plans cost this much."""
        spared = self.changing[0] - self.changing[1]
        return (now.seconds - best.seconds) / max(1, self.sizes.rows) + spared

    def parts_that_differ(self) -> tuple[float, float]:
        """What those parts of both plans cost that the other one does not have, changes included."""
        changed = float(self.now.seconds_apart_from(self.best).mean()) + self.changing[0] * self.sizes.rows
        instead = float(self.best.seconds_apart_from(self.now).mean()) + self.changing[1] * self.sizes.rows
        return changed, instead

    def joins(self) -> list[ConsideredJoin]:
        """The joins of both plans, with what they cost."""
        now = {node.key for node in self.now.nodes}
        best = {node.key for node in self.best.nodes}
        per_row = 1_000 / max(1, self.sizes.rows)
        found: dict[str, ConsideredJoin] = {}
        for node in (*self.now.nodes, *self.best.nodes):
            if not node.inputs or node.key in found:
                continue
            rows = node.rows * per_row
            found[node.key] = ConsideredJoin(
                inputs=node.inputs,
                rows=float(rows.mean()),
                error=standard_error(rows),
                seconds=float(node.seconds.mean()) * per_row,
                in_force=node.key in now,
                in_best=node.key in best,
                is_measured=node.is_measured,
                counted=None if node.counted is None else node.counted * per_row,
            )
        return list(found.values())


def most_state_bytes(costs: Iterable[PlanCost | None]) -> float:
    """In the cell whose states take the most."""
    return max((cost.state_bytes for cost in costs if cost is not None), default=0.0)
