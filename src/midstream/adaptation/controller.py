"""Decides when a running query changes its plan: by the regret that has accumulated, against what a change costs.

Each measurement gives the cost of the plan in force and of the cheapest plan, per row. What the rows since the last
measurement would have saved is added to the *regret*, less its uncertainty and never below zero. When the regret and
what will be lost until the next decision exceed the cost of the migration, the change is made. This is the best rule
for the ski rental problem: buy on the day on which the rent paid, that day's included, would reach the price. So what
is spent on migrations is bounded by the time that was lost without them, however the streams behave, and no horizon has
to be guessed. After a sudden change, what will be lost is foreseen from how the sizes will grow with the next rows;
that is right if the change lasts, as it is taken to.

The cheapest plan is the best of all shapes of the query (where distinct and partial aggregates stand), each in its
cheapest join order, which is a tree or has braces. A plan with intermediate results costs more where plans had to be
changed again and again (``recent_changes``). A plan whose states take more memory than is allowed is changed at once,
if another one fits.

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

from midstream.adaptation.comparison import Comparison, most_state_bytes
from midstream.adaptation.decision_text import seconds_text
from midstream.adaptation.decisions import Decision
from midstream.adaptation.migration_cost import MigrationCost, cheapest_migration, tuples_to_compute
from midstream.adaptation.policy import Adaptation
from midstream.adaptation.recent_changes import RecentChanges
from midstream.algebra.plan import Plan
from midstream.planning.cost.cheapest_plan import (
    cheapest_plan,
    cheapest_tree_plan,
    has_intermediate_results,
    routes_itself,
)
from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.explain_cost import bytes_text
from midstream.planning.cost.plan_cost import PlanCost, plan_cost
from midstream.planning.cost.sizes import PlanSizes, lower_bound
from midstream.planning.shapes import compared_texts, plan_text

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
    """The lower bound of the saving per row at the last consideration, if a change was possible."""
    delayed_cost: float | None = None
    """What the change would have cost, if it was put off because of that."""
    expected_loss: float = 0.0
    """What so many further rows will lose, as the last consideration expected."""
    expected_rows: int = 0
    changes: tuple[tuple[int, float], ...] = ()
    """The recent changes: how many rows have arrived since, and what each cost."""
    rows: int = 0
    """How many rows have arrived in the period of the recent changes."""


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
        self._delayed_cost: float | None = None
        """What the change would have cost, if it was put off because of that."""
        self._expected_loss = 0.0
        """What will be lost until the next decision, if as many rows arrive as were measured last: so many."""
        self._expected_rows = 0
        self._changes = RecentChanges()
        self._proposed: float | None = None
        """What the change that was proposed last costs, if it counts among the recent ones."""
        self._tree: Plan | None = None
        """The cheapest tree, as it was when it was last replaced; None while a plan with intermediate results is in
        force."""

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
            delayed_cost=self._delayed_cost,
            expected_loss=self._expected_loss,
            expected_rows=self._expected_rows,
            changes=self._changes.changes,
            rows=self._changes.rows,
        )

    def restore(self, state: ControllerState, decisions: Iterable[Decision]) -> None:
        """Continue where another controller was."""
        self.regret, self.is_pinned = state.regret, state.is_pinned
        self._correction, self._number, self._expected = state.correction, state.number, state.expected
        self._last_saving, self._delayed_cost = state.last_saving, state.delayed_cost
        self._expected_loss, self._expected_rows = state.expected_loss, state.expected_rows
        self._changes = RecentChanges(state.changes, state.rows)
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
        self._proposed = None
        self.plan_changed()

    def withdraw(self, reason: str) -> None:
        """The change that was decided last could not be submitted."""
        decision = self.decisions.pop()
        self.decisions.append(msgspec.structs.replace(decision, outcome="kept", reason=reason))
        self._expected = self._proposed = None

    def plan_changed(self) -> None:
        """The plan was replaced, by this controller or by a person: what was lost before no longer counts."""
        self.regret = self._last_saving = self._expected_loss = 0.0
        self._delayed_cost = None
        if self._proposed is not None:
            self._changes.note(self._proposed)
        self._proposed = None

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
        held_rows = sum(sum(block.held) for block in compared.sizes.blocks.values())
        self._changes.advance(compared.rows, held_rows)
        self._follow_trees(plan, compared.sizes)
        policy = self.policy
        now, best = (cost.seconds / max(1, compared.sizes.rows) for cost in (compared.now, compared.best))
        is_memory_short = self._is_memory_short(compared)
        saving = lower_bound(compared.saving_per_row, policy.deviations)
        soon, is_delayed = 0.0, False
        cost: MigrationCost | None = None
        outcome, proposal = "kept", None
        silent = sorted(compared.sizes.silent)
        if silent:
            reason = f"No row of {', '.join(silent)} has arrived lately, so nothing is known about the next ones."
        elif sum(sizes.rows for sizes in cells) < policy.least_rows:
            reason = "Too few rows have arrived for a decision."
        elif compared.best_plan == plan and routes_itself(plan):
            reason = "The plan routes rows by an eddy or STAIRs, and is not compared with others."
        elif compared.best_plan == plan:
            reason = "The plan in force is the cheapest."
        elif float(compared.saving_per_row.mean()) <= 0 and not is_memory_short:
            reason = (
                f'"{plan_text(compared.best_plan)}" will be cheaper when windows are full of such rows; for those in '
                "them now the plan in force is."
            )
        else:
            self.regret += self._lost(saving, compared)
            soon = self._lost_soon(plan, saving, compared)
            cost = cheapest_migration(
                plan, compared.best_plan, (compared.now, compared.best), compared.sizes, self.coefficients,
                policy.strategies, policy.longest_pause, self._correction, self._changes.is_any_within(held_rows),
            )  # fmt: skip
            reason = self._objection(compared, saving, float(now.mean()), cost, is_memory_short)
            if not reason and not is_memory_short:
                assert cost is not None
                reason = self._too_early(soon, cost)
                is_delayed = bool(reason)
            if not reason:
                assert cost is not None
                outcome = "changed" if policy.mode == "auto" and not self.is_pinned else "advised"
                seconds = float(now.mean()), float(best.mean())
                reason = self._because(plan, compared, seconds, soon, cost, is_memory_short)
                if outcome == "changed":
                    proposal = Proposal(compared.best_plan, cost.strategy, cost.options)
                    is_counted = has_intermediate_results(compared.best_plan)
                    self._proposed = cost.seconds + self.regret if is_counted else None
                    self._expected = self._tuples_expected(plan, compared.best_plan, cells, cost)
        self._last_saving = 0.0 if cost is None else max(0.0, saving)
        self._delayed_cost = cost.seconds if cost is not None and is_delayed else None
        self._expected_loss = 0.0 if cost is None else soon
        self._expected_rows = compared.latest_rows
        self._number += 1
        text, best_text = compared_texts(plan, compared.best_plan)
        self.decisions.append(
            Decision(
                number=self._number,
                push=push,
                watermark=watermark,
                outcome=outcome,  # type: ignore[arg-type]
                reason=reason,
                plan=text,
                best=best_text,
                seconds_now=1_000 * float(now.mean()),
                seconds_best=1_000 * float(best.mean()),
                saving=1_000 * saving,
                regret=self.regret,
                expected_loss=self._expected_loss,
                migration=0.0 if cost is None else cost.seconds,
                strategy=None if cost is None else cost.strategy,
                cell=None if numbers is None else numbers[compared.place],
                imbalance=compared.imbalance,
                changing=1_000 * max(compared.changing),
                state_bytes_now=compared.state_bytes[0],
                state_bytes_best=compared.state_bytes[1],
                joins=tuple(compared.joins()),
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
        """Whether so many further rows, if they are like those measured last, make a delayed change worthwhile."""
        if self._delayed_cost is None:
            return False
        soon = self._expected_loss * min(1.0, rows / max(1, self._expected_rows))
        return self.regret + self._last_saving * rows + soon >= self.policy.regret * self._delayed_cost

    def _lost(self, saving: float, compared: Comparison) -> float:
        """What the rows since the last consideration could have saved.

        The sizes describe the latest rows. The rows before these may have been like those of the last consideration, or
        like the latest: they count with the smaller of the two savings.
        """
        latest, earlier = compared.latest_rows, compared.rows - compared.latest_rows
        return max(0.0, saving) * latest + max(0.0, min(saving, self._last_saving)) * earlier

    def _lost_soon(self, plan: Plan, saving: float, compared: Comparison) -> float:
        """What will be lost until the next decision, if rows like the latest, and as many, arrive until then.

        After a sudden change these meet more rows like themselves than the latest did.
        """
        if compared.sizes.are_changing:
            sizes = compared.sizes.later(compared.latest_rows / max(1, compared.sizes.rows))
            costs = [self._cost(each, sizes) for each in (plan, compared.best_plan)]
            saving = lower_bound(compared.saving_of(*costs), self.policy.deviations)
        return max(0.0, saving) * compared.latest_rows

    def _compared(
        self, plan: Plan, cells: Sequence[PlanSizes], rows: Sequence[int], shapes: Sequence[Plan]
    ) -> Comparison | None:
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
        limit = self.policy.most_state_bytes
        per_row = 0.0 if cells[slowest].are_of_windows else self._changes.seconds_per_row
        candidates: dict[Plan, tuple[float, float]] = {}
        found: dict[Plan, list[PlanCost | None]] = {plan: costs}
        for one in cells:
            # After a sudden change the plan is chosen for sizes to come; whether it is worth its cost, by those of now.
            changing = per_row * one.rows
            candidate = cheapest_plan(plan, one.later(math.inf), self.coefficients, shapes, limit, changing)
            if candidate not in candidates:
                if candidate not in found:
                    found[candidate] = [plan_cost(candidate, sizes, self.coefficients) for sizes in cells]
                there = found[candidate]
                pairs = zip(there, cells, weights, strict=True)
                seconds = max(math.inf if c is None else _seconds(c, s, weight) for c, s, weight in pairs)
                excess = 0.0 if limit is None else max(0.0, most_state_bytes(there) - limit)
                surcharge = per_row * max(weights) * has_intermediate_results(candidate)
                candidates[candidate] = excess, seconds + surcharge
        best_plan = min(candidates, key=lambda candidate: candidates[candidate])
        if math.isinf(candidates[best_plan][1]):
            # A cell that has just begun has not measured what another shape needs.
            best_plan = plan
        sizes = cells[slowest]
        imbalance = max(work) * len(work) / sum(work) if sum(work) > 0 else 1.0
        best = found[best_plan][slowest]
        assert best is not None, "a plan whose sizes are known"
        changes = (per_row * has_intermediate_results(plan), per_row * has_intermediate_results(best_plan))
        state_bytes = (most_state_bytes(known), most_state_bytes(found[best_plan]))
        return Comparison(
            sizes, rows[slowest], known[slowest], best_plan, best, slowest, imbalance, changes, state_bytes
        )

    def _is_memory_short(self, compared: Comparison) -> bool:
        """Whether the states of the plan in force take too much, and those of the best plan fit, or take much less."""
        limit, (now, best) = self.policy.most_state_bytes, compared.state_bytes
        return limit is not None and now > limit and (best <= limit or now >= self.policy.least_gain * best)

    def _follow_trees(self, plan: Plan, sizes: PlanSizes) -> None:
        """While no plan with intermediate results is in force: count how often one would have had to be changed."""
        if has_intermediate_results(plan):
            self._tree = None
            return
        best = cheapest_tree_plan(plan, sizes, self.coefficients)
        if self._tree is not None:
            before, now = (plan_cost(tree, sizes, self.coefficients) for tree in (self._tree, best))
            if before is None or now is None:
                return
            if float(before.seconds.mean()) < self.policy.least_gain * float(now.seconds.mean()):
                return
            self._changes.note_spared()
        self._tree = best

    def _cost(self, plan: Plan, sizes: PlanSizes) -> PlanCost:
        cost = plan_cost(plan, sizes, self.coefficients)
        assert cost is not None, "a plan whose sizes are known"
        return cost

    def _tuples_expected(self, old: Plan, new: Plan, cells: Sequence[PlanSizes], cost: MigrationCost) -> float | None:
        """How many tuples a migration should bring into the new plan's states, in all cells; None if it runs both."""
        found = [tuples_to_compute(self._cost(old, sizes), self._cost(new, sizes), cost) for sizes in cells]
        return sum(count for count in found if count is not None) if None not in found else None

    def _objection(
        self, compared: Comparison, saving: float, now: float, cost: MigrationCost | None, is_memory_short: bool
    ) -> str:
        """Why the change is not worthwhile, however long it lasts; nothing if it is."""
        policy = self.policy
        if not is_memory_short:
            if saving <= 0:
                return "The cheapest plan may not be better: the difference is within the uncertainty of the sizes."
            if saving < policy.least_saving * now:
                return f"The change would save less than {policy.least_saving:.0%} of the time."
            changed, instead = compared.parts_that_differ()
            if changed < policy.least_gain * instead:
                return f"The part of the plan that changes would not become {policy.least_gain:g} times as fast."
        if cost is None:
            return "None of the strategies allowed can make the change within the pause allowed."
        return ""

    def _too_early(self, soon: float, cost: MigrationCost) -> str:
        """Why the change is not made yet; nothing if it is to be made."""
        factor = self.policy.regret
        if self.regret + soon >= factor * cost.seconds:
            return ""
        times = "" if factor == 1 else f"{factor:g} × "
        return (
            f"The time lost so far ({seconds_text(self.regret)}) and until the next decision ({seconds_text(soon)})"
            f" does not yet exceed the cost of the change ({times}{seconds_text(cost.seconds)})."
        )

    def _because(
        self,
        plan: Plan,
        compared: Comparison,
        seconds: tuple[float, float],
        soon: float,
        cost: MigrationCost,
        is_memory_short: bool,
    ) -> str:
        """Why the change is made. ``seconds`` are those per row of both plans."""
        now, best = seconds
        _, text = compared_texts(plan, compared.best_plan)
        if is_memory_short:
            assert self.policy.most_state_bytes is not None
            taken, instead = map(bytes_text, compared.state_bytes)
            return (
                f"The states of the joins take about {taken}, and may take {bytes_text(self.policy.most_state_bytes)}; "
                f'those of "{text}" take about {instead}. Per 1,000 rows it takes {seconds_text(1_000 * best)} '
                f"instead of {seconds_text(1_000 * now)}."
            )
        spared = 1_000 * (compared.changing[0] - compared.changing[1])
        lately = f"Changes of plan have recently cost {seconds_text(spared)} per 1,000 rows. " if spared > 0 else ""
        return (
            f'{lately}Per 1,000 rows "{text}" takes {seconds_text(1_000 * best)} instead of '
            f"{seconds_text(1_000 * now)}. Keeping the old plan has cost {seconds_text(self.regret)} so far, and would "
            f"cost another {seconds_text(soon)} before the next decision; the change costs "
            f"{seconds_text(cost.seconds)}."
        )


def _seconds(cost: PlanCost, sizes: PlanSizes, rows: int) -> float:
    """What so many rows cost."""
    return float(cost.seconds.mean()) / max(1, sizes.rows) * rows
