"""Decides when a running query changes its plan: by the regret that has accumulated, against what a change costs.

Each measurement gives the cost of the plan in force and of the cheapest plan, per row. What the rows since the last
measurement would have saved is added to the *regret*, less its uncertainty and never below zero. When the regret
exceeds the cost of the migration, the change is made. As in the ski rental problem, what is spent on migrations is then
bounded by the time that was lost without them, however the streams behave, and no horizon has to be guessed.

The cheapest plan is the best of all shapes of the query (where distinct and partial aggregates stand), each in its
cheapest join order.

Nothing is decided while a migration is in progress, while an input is silent (its window is frozen, and says
nothing about later rows), on too few rows, or for a gain that is too small: in the part of the plan that changes, which
a gain over the whole plan would hide, and in the whole plan's time.

The controller knows sizes and plans, but no rows, no clock and no Spark. A query on Spark has several cells, each with
sizes of its own: a micro-batch takes as long as its slowest cell.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from midstream.adaptation.decision_text import seconds_text
from midstream.adaptation.decisions import ConsideredJoin, Decision
from midstream.adaptation.migration_cost import MigrationCost, cheapest_migration, tuples_to_compute
from midstream.adaptation.policy import Adaptation
from midstream.algebra.plan import Plan
from midstream.planning.cost.cheapest_plan import cheapest_plan
from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.plan_cost import PlanCost, plan_cost
from midstream.planning.cost.sizes import PlanSizes, Replicates, lower_bound, standard_error
from midstream.planning.shapes import plan_text

__all__ = ["MOST_DECISIONS", "Controller", "ControllerState", "Proposal"]

MOST_DECISIONS = 1_000
"""Decisions that are kept, the latest ones."""


@dataclass(frozen=True)
class Proposal:
    """A change that should be made now."""

    plan: Plan
    strategy: str
    options: Mapping[str, bool]


class ControllerState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a controller must be given, besides its decisions, to continue in another process."""

    regret: float = 0.0
    is_pinned: bool = False
    correction: float = 1.0
    number: int = 0
    """That of the latest decision."""
    expected: float | None = None
    """How many tuples the migration that was proposed last, and is not over, should compute."""
    last_saving: float = 0.0
    """The lower bound of the saving per row at the last consideration, if a change was possible; and its cost."""
    last_cost: float = 0.0


@dataclass(frozen=True)
class _Comparison:
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

    @property
    def saving_per_row(self) -> Replicates:
        return (self.now.seconds - self.best.seconds) / max(1, self.sizes.rows)


class Controller:
    """Accumulates regret, and decides. ``coefficients`` are those of the machine."""

    def __init__(self, policy: Adaptation, coefficients: CostCoefficients) -> None:
        self.policy = policy
        self.coefficients = coefficients
        self.decisions: deque[Decision] = deque(maxlen=MOST_DECISIONS)
        self.regret = 0.0
        """Seconds lost since the last change by not making one."""
        self.is_pinned = False
        """Whether a person has chosen the plan: it is not changed until adaptation is asked for again."""
        self._correction = 1.0
        self._number = 0
        self._expected: float | None = None
        self._last_saving = 0.0
        """The lower bound of the saving per row at the last consideration, if a change was possible."""
        self._last_cost = 0.0
        """What the change would have cost."""

    @property
    def state(self) -> ControllerState:
        """For :meth:`restore`."""
        return ControllerState(
            regret=self.regret,
            is_pinned=self.is_pinned,
            correction=self._correction,
            number=self._number,
            expected=self._expected,
            last_saving=self._last_saving,
            last_cost=self._last_cost,
        )

    def restore(self, state: ControllerState, decisions: Iterable[Decision]) -> None:
        """Continue where another controller was."""
        self.regret, self.is_pinned = state.regret, state.is_pinned
        self._correction, self._number, self._expected = state.correction, state.number, state.expected
        self._last_saving, self._last_cost = state.last_saving, state.last_cost
        self.decisions = deque(decisions, maxlen=MOST_DECISIONS)

    def note_migration(self, tuples_computed: int) -> None:
        """Learn from a migration that this controller proposed, and that is over."""
        if self._expected is not None and self._expected >= 1_000:
            ratio = min(4.0, max(0.25, tuples_computed / self._expected))
            self._correction = float(np.sqrt(self._correction * ratio))
        self._expected = None

    def pin(self) -> None:
        """A person has chosen the plan: advise from now on, and change nothing."""
        self.is_pinned = True
        self.plan_changed()

    def withdraw(self, reason: str) -> None:
        """The change that was decided last could not be submitted."""
        decision = self.decisions.pop()
        self.decisions.append(msgspec.structs.replace(decision, outcome="kept", reason=reason))
        self._expected = None

    def plan_changed(self) -> None:
        """The plan was replaced, by this controller or by a person: what was lost before no longer counts."""
        self.regret = self._last_saving = 0.0

    def consider(
        self,
        plan: Plan,
        cells: Sequence[PlanSizes],
        rows: Sequence[int],
        push: int,
        watermark: int | None,
        numbers: Sequence[int] | None = None,
        shapes: Sequence[Plan] = (),
    ) -> Proposal | None:
        """The change to make now, if any; the decision is kept in any case.

        ``cells`` are the latest sizes of all cells, ``rows`` how many rows have arrived in each since the last
        consideration, ``numbers`` what the cells are called; None: there is one, without a name. ``shapes`` are plans
        with distinct and partial aggregates in other places; without any, only join orders are chosen.
        """
        compared = self._compared(plan, cells, rows, shapes)
        if compared is None:
            return None
        policy = self.policy
        now, best = (cost.seconds / max(1, compared.sizes.rows) for cost in (compared.now, compared.best))
        saving = lower_bound(compared.saving_per_row, policy.deviations)
        cost: MigrationCost | None = None
        outcome, proposal = "kept", None
        silent = sorted(compared.sizes.silent)
        if silent:
            reason = f"No row of {', '.join(silent)} has arrived lately, so nothing is known about the next ones."
        elif sum(sizes.rows for sizes in cells) < policy.least_rows:
            reason = "Too few rows have arrived for a decision."
        elif compared.best_plan == plan:
            reason = "The plan in force is the cheapest."
        elif float(best.mean()) >= float(now.mean()):
            reason = (
                f'"{plan_text(compared.best_plan)}" will be cheaper when windows are full of such rows; for those in '
                "them now the plan in force is."
            )
        else:
            self.regret += self._lost(saving, compared.rows, compared.sizes.rows)
            cost = cheapest_migration(
                plan, compared.best_plan, (compared.now, compared.best), compared.sizes, self.coefficients,
                policy.strategies, policy.longest_pause, self._correction,
            )  # fmt: skip
            reason = self._objection(compared, saving, float(now.mean()), cost)
            if not reason:
                assert cost is not None
                outcome = "changed" if policy.mode == "auto" and not self.is_pinned else "advised"
                reason = self._because(compared, float(now.mean()), float(best.mean()), cost)
                if outcome == "changed":
                    proposal = Proposal(compared.best_plan, cost.strategy, cost.options)
                    self._expected = self._tuples_expected(plan, compared.best_plan, cells, cost)
        self._last_saving = 0.0 if cost is None else max(0.0, saving)
        self._last_cost = 0.0 if cost is None else cost.seconds
        self._number += 1
        self.decisions.append(
            Decision(
                number=self._number,
                push=push,
                watermark=watermark,
                outcome=outcome,  # type: ignore[arg-type]
                reason=reason,
                plan=plan_text(plan),
                best=plan_text(compared.best_plan),
                seconds_now=1_000 * float(now.mean()),
                seconds_best=1_000 * float(best.mean()),
                saving=1_000 * saving,
                regret=self.regret,
                migration=0.0 if cost is None else cost.seconds,
                strategy=None if cost is None else cost.strategy,
                cell=None if numbers is None else numbers[compared.place],
                imbalance=compared.imbalance,
                joins=tuple(_considered(compared)),
            )
        )
        return proposal

    def note_failure(self, plan: Plan, reason: str, push: int, watermark: int | None, cell: int | None = None) -> None:
        """Measuring or deciding has failed, in this cell if one is named: the plan is kept."""
        self._number += 1
        text = plan_text(plan)
        self.decisions.append(
            Decision(
                number=self._number,
                push=push,
                watermark=watermark,
                outcome="kept",
                reason=reason,
                plan=text,
                best=text,
                regret=self.regret,
                cell=cell,
                failure=reason,
            )
        )

    def expects_change(self, rows: int) -> bool:
        """Whether so many further rows, if they are like those measured last, make a change worthwhile."""
        lost = self.regret + self._last_saving * rows
        return self._last_saving > 0 and lost >= self.policy.regret * self._last_cost

    def _lost(self, saving: float, rows: int, measured: int) -> float:
        """What the rows since the last consideration could have saved.

        The sizes describe the latest rows. The rows before these may have been like those of the last consideration, or
        like the latest: they count with the smaller of the two savings.
        """
        latest = min(rows, measured)
        return max(0.0, saving) * latest + max(0.0, min(saving, self._last_saving)) * (rows - latest)

    def _compared(
        self, plan: Plan, cells: Sequence[PlanSizes], rows: Sequence[int], shapes: Sequence[Plan]
    ) -> _Comparison | None:
        """The comparison that counts: in the cell that is slowest with the plan in force.

        Of the plans that are cheapest in some cell, the best is the one whose slowest cell is fastest. Spans of cells
        differ: what a cell does is its time per row for the rows that have arrived there in the same period.
        """
        weights = rows if any(rows) else [sizes.rows for sizes in cells]
        costs = [plan_cost(plan, sizes, self.coefficients) for sizes in cells]
        known = [cost for cost in costs if cost is not None]
        if not known or len(known) < len(cells):
            return None
        work = [_seconds(*each) for each in zip(known, cells, weights, strict=True)]
        slowest = work.index(max(work))
        candidates: dict[Plan, float] = {}
        for one in cells:
            # After a sudden change the plan is chosen for sizes to come; whether it is worth its cost, by those of now.
            candidate = cheapest_plan(plan, one.when_settled(), self.coefficients, shapes)
            if candidate not in candidates:
                there = [plan_cost(candidate, sizes, self.coefficients) for sizes in cells]
                pairs = zip(there, cells, weights, strict=True)
                candidates[candidate] = max(math.inf if c is None else _seconds(c, s, weight) for c, s, weight in pairs)
        best_plan = min(candidates, key=lambda candidate: candidates[candidate])
        if math.isinf(candidates[best_plan]):
            # A cell that has just begun has not measured what another shape needs.
            best_plan = plan
        sizes = cells[slowest]
        imbalance = max(work) * len(work) / sum(work) if sum(work) > 0 else 1.0
        best = self._cost(best_plan, sizes)
        return _Comparison(sizes, rows[slowest], known[slowest], best_plan, best, slowest, imbalance)

    def _cost(self, plan: Plan, sizes: PlanSizes) -> PlanCost:
        cost = plan_cost(plan, sizes, self.coefficients)
        assert cost is not None, "a plan whose sizes are known"
        return cost

    def _tuples_expected(self, old: Plan, new: Plan, cells: Sequence[PlanSizes], cost: MigrationCost) -> float | None:
        """How many tuples a migration should bring into the new plan's states, in all cells; None if it runs both."""
        found = [tuples_to_compute(self._cost(old, sizes), self._cost(new, sizes), cost) for sizes in cells]
        return sum(count for count in found if count is not None) if None not in found else None

    def _objection(self, compared: _Comparison, saving: float, now: float, cost: MigrationCost | None) -> str:
        """Why the change is not made; nothing if it is to be made."""
        policy = self.policy
        if saving <= 0:
            return "The cheapest plan may not be better: the difference is within the uncertainty of the sizes."
        if saving < policy.least_saving * now:
            return f"The change would save less than {policy.least_saving:.0%} of the time."
        changed = float(compared.now.seconds_apart_from(compared.best).mean())
        instead = float(compared.best.seconds_apart_from(compared.now).mean())
        if changed < policy.least_gain * instead:
            return f"The part of the plan that changes would not become {policy.least_gain:g} times as fast."
        if cost is None:
            return "None of the strategies allowed can make the change within the pause allowed."
        if self.regret < policy.regret * cost.seconds:
            times = "" if policy.regret == 1 else f"{policy.regret:g} times "
            return (
                f"The time lost so far ({seconds_text(self.regret)}) does not yet exceed {times}what the change costs "
                f"({seconds_text(cost.seconds)})."
            )
        return ""

    def _because(self, compared: _Comparison, now: float, best: float, cost: MigrationCost) -> str:
        return (
            f'Per 1,000 rows "{plan_text(compared.best_plan)}" takes {seconds_text(1_000 * best)} instead of '
            f"{seconds_text(1_000 * now)}; {seconds_text(self.regret)} were lost by keeping the old plan, and the "
            f"change costs {seconds_text(cost.seconds)}."
        )


def _seconds(cost: PlanCost, sizes: PlanSizes, rows: int) -> float:
    """What so many rows cost."""
    return float(cost.seconds.mean()) / max(1, sizes.rows) * rows


def _considered(compared: _Comparison) -> list[ConsideredJoin]:
    """The joins of both plans, with what they cost."""
    now = {node.key for node in compared.now.nodes}
    best = {node.key for node in compared.best.nodes}
    per_row = 1_000 / max(1, compared.sizes.rows)
    found: dict[str, ConsideredJoin] = {}
    for node in (*compared.now.nodes, *compared.best.nodes):
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
