"""When a running query is measured, and what: in the process that runs it, once per cell.

Measurements have a budget: a share of the time that pushes take. A measurement is due when a share of the rows inside
their windows is new since the last one, or when a join suddenly produces much more or less than at the last one, as
soon as the budget suffices. Two reasons need no budget:

- The *excess*: what pushes have taken since the last measurement beyond 1.25 times what rows have taken at the least;
  each measurement brings that nearer to what they take now. When the excess comes to half a measurement, another plan
  may be worth looking for. A measurement for this reason that did not change the plan doubles how much excess the next
  one needs, so that they become rare where pushes simply take longer now.
- A change that only its cost delayed, and that rows since then make worthwhile by now, which only the process that
  decides can know.

After a sudden change only the latest pushes are measured, because it is taken to last. Where pushes go on changing, and
half a window after the first change they still do, the latest do not say what the next ones are like, nor where the
plan was changed several times within little more than a window. The streams are *volatile* then, and the rows of a
whole window are measured: until one has passed without a sudden change, and changes of plan have become rarer.

All times are the cost model's, not the clock's: the same pushes give the same measurements, on any machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from midstream.adaptation.policy import Adaptation
from midstream.adaptation.sampling import JoinCounts
from midstream.adaptation.statistics import JoinKey, QueryStatistics
from midstream.algebra.plan import Plan
from midstream.execution.executor import Executor
from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.sizes import PlanSizes

__all__ = ["Measuring"]

_SUDDEN = 2.0
"""A join whose tuples per arriving row change by this factor is measured at once."""
_LONGEST_CHANGE = 0.5
"""How many windows a sudden change may take: joins of several inputs produce more with every push until it is over."""
_FREQUENT_CHANGES, _FREQUENT_WINDOWS = 3, 1.5
"""Streams are volatile if the plan was changed so often within so many windows: a window has rows of several phases."""
_VOLATILE_SHARE = 0.5
"""Where whole windows are measured: the share of their rows that must be new since the last measurement."""
_LEAST_JOIN_ROWS = 1_000
"""Joins that produce fewer tuples in a push, before and after, do not count as changed."""
_MOST_SAVED = 4
"""How many measurements may be saved up for."""
_USUAL = 1.25
"""A push that costs up to so many times as much per row as the cheapest one is nothing unusual."""
_LEAST_EXCESS = 0.5
"""How many measurements the excess must come to, after one that changed the plan."""


class _Output(NamedTuple):
    """What a join produced in a push."""

    per_row: float
    """Tuples for each row that arrived."""
    chances: float
    """How many combinations of tuples of the other inputs a row could meet."""


class Measuring:
    """Measures the joins of one executor after the other, whenever that is due."""

    def __init__(self, policy: Adaptation, coefficients: CostCoefficients, executor: Executor) -> None:
        self.policy = policy
        self.statistics = QueryStatistics()
        self.statistics.follow(executor)
        self.sizes: PlanSizes | None = None
        """The latest sizes."""
        self.rows_arrived = 0
        """How many rows had arrived at the last measurement since the one before."""
        self._coefficients = coefficients
        self._rows = 0
        self._held_rows = 0
        """How many rows the windows had after the latest push."""
        self._budget: float | None = None
        self._measurements = 0
        self._least_per_row = math.inf
        """What a row has cost at the least."""
        self._excess = 0.0
        """What pushes have cost beyond the usual since the last measurement."""
        self._patience = 1.0
        """How many times as much excess the next measurement needs: measurements were of no use lately."""
        self._outputs: dict[JoinKey, _Output] = {}
        """By join: its output at the last measurement, or else in its first push."""
        self._latest_outputs: dict[JoinKey, _Output] = {}
        """By join: its output in the latest push."""
        self._rows_since_change = 0
        self._rows_since_jump: int | None = None
        """How many rows have arrived since a push was last unlike the one before; None: for more than a window."""
        self._rows_of_change = 0
        """How many rows had arrived by then since the first such push."""
        self._plan = executor.plan
        self._plan_ages: list[int] = []
        """How many rows have arrived since each of the latest changes of plan."""

    def after_push(
        self, executor: Executor, rows: int, expects_change: Callable[[int], bool] | None = None
    ) -> PlanSizes | None:
        """Note a push that brought so many rows; the sizes, if it was time to measure them.

        ``expects_change`` says whether so many rows since the last measurement make a change worthwhile, where that is
        known.
        """
        self._rows += rows
        self._rows_since_change += rows
        self._follow_plans(executor.plan, rows)
        if not self.statistics.follow(executor) or rows == 0:
            return None
        push = self.statistics.latest_push()
        seconds, cost = self.push_seconds(push), self.seconds
        self._earn(seconds, rows, cost)
        self._held_rows = self.statistics.held_rows()
        outputs = {join: self._output(join, counts.found, rows) for join, counts in push.items()}
        has_changed = _is_unlike(outputs, self._outputs, rows)
        self._follow_changes(outputs, rows)
        if has_changed:
            self._rows_since_change = 0
            if not self.is_volatile:
                self._patience = 1.0
        reason = self._reason(cost, has_changed, expects_change)
        if reason is None:
            return None
        assert self._budget is not None
        self._budget = max(0.0, self._budget - cost)
        self.sizes = sizes = self._measure(has_changed)
        self._outputs = outputs
        # What is expensive now may be usual from now on, or still increase: the next measurements will tell.
        self._least_per_row, self._excess = math.sqrt(self._least_per_row * seconds / rows), 0.0
        if reason == "excess":
            # Unless the plan will be changed: see _follow_plans.
            self._patience *= 2
        self.rows_arrived, self._rows = self._rows, 0
        return sizes

    @property
    def seconds(self) -> float:
        """What a measurement takes by the cost model."""
        return self.statistics.measuring_seconds(self._coefficients)

    def _measure(self, has_changed: bool) -> PlanSizes:
        generator = np.random.default_rng([self.policy.seed, self._measurements])
        self._measurements += 1
        if self.is_volatile:
            # What windows hold is a mixture of all that comes, as if streams were steady.
            sizes = self.statistics.measure(self.policy.sample_rows, generator, self._held_rows, is_steady=True)
            return replace(sizes, are_of_windows=True)
        # Rows from before a sudden change must not be mixed with those after it.
        least_span = self.policy.least_rows if has_changed else None
        is_steady = self._rows_since_change >= self._held_rows
        return self.statistics.measure(self.policy.sample_rows, generator, least_span, is_steady)

    @property
    def is_volatile(self) -> bool:
        """Whether streams have gone on changing for longer than one change takes, or made plans change frequently."""
        recent = sum(age < _FREQUENT_WINDOWS * self._held_rows for age in self._plan_ages)
        return recent >= _FREQUENT_CHANGES or self._rows_of_change > _LONGEST_CHANGE * self._held_rows

    def _follow_changes(self, outputs: dict[JoinKey, _Output], rows: int) -> None:
        """Note whether a push is unlike the one before, or of another plan: that was changed since streams had."""
        if self._rows_since_jump is not None:
            self._rows_since_jump += rows
            if self._rows_since_jump > self._held_rows:
                self._rows_since_jump, self._rows_of_change = None, 0
        has_other_plan = bool(self._latest_outputs) and not outputs.keys() <= self._latest_outputs.keys()
        if has_other_plan or _is_unlike(outputs, self._latest_outputs, rows):
            if self._rows_since_jump is not None:
                self._rows_of_change += self._rows_since_jump
            self._rows_since_jump = 0
        self._latest_outputs = outputs
        for join, output in outputs.items():
            self._outputs.setdefault(join, output)

    def _follow_plans(self, plan: Plan, rows: int) -> None:
        """Note whether the plan was changed before this push of so many rows."""
        if plan != self._plan:
            self._plan_ages = [*self._plan_ages[1 - _FREQUENT_CHANGES :], 0]
            self._patience = 1.0
        self._plan = plan
        self._plan_ages = [age + rows for age in self._plan_ages]

    def _earn(self, seconds: float, rows: int, cost: float) -> None:
        """Add to the budget what a push of so many seconds and rows allows."""
        if self._budget is None:
            # For the first measurements, when nothing has been saved yet.
            self._budget = _MOST_SAVED / 2 * cost
        self._least_per_row = min(self._least_per_row, seconds / rows)
        self._excess += max(0.0, seconds - _USUAL * self._least_per_row * rows)
        self._budget = min(self._budget + self.policy.measure_share * seconds, _MOST_SAVED * cost)

    def _reason(
        self, cost: float, has_changed: bool, expects_change: Callable[[int], bool] | None
    ) -> Literal["budget", "excess", "expected change"] | None:
        """Why joins are to be measured now; None if they are not."""
        assert self._budget is not None
        if self._rows < self.policy.least_rows:
            return None
        if self.sizes is None:
            return "budget"
        is_time = self._rows >= self.policy.measure_every * self._held_rows
        if self.is_volatile and self._rows < _VOLATILE_SHARE * self._held_rows:
            return None
        if self._budget >= cost and (has_changed or is_time):
            return "budget"
        if self._excess >= self._patience * _LEAST_EXCESS * cost:
            return "excess"
        return "expected change" if expects_change is not None and expects_change(self._rows) else None

    def push_seconds(self, push: Mapping[JoinKey, JoinCounts]) -> float:
        """What the joins cost in a push, by the cost model."""
        total = 0.0
        for (_, inputs), counts in push.items():
            # As if all that enters were as wide as the wider side of a left-deep join; indexes are of single inputs.
            parts = 1 if counts.probes else inputs.bit_count() - 1
            total += counts.inserted * self._coefficients.per_tuple_in(parts)
            total += counts.probes * self._coefficients.per_probe(inputs.bit_count() - 1)
            total += counts.found * self._coefficients.per_tuple_out(inputs.bit_count())
        return total + len(push) * self._coefficients.operator

    def _output(self, join: JoinKey, found: int, rows: int) -> _Output:
        _, inputs = join
        return _Output(found / rows, float(max(1, self._held_rows)) ** (inputs.bit_count() - 1))


def _is_unlike(outputs: Mapping[JoinKey, _Output], before: Mapping[JoinKey, _Output], rows: int) -> bool:
    """Whether a join made much more or less of so many rows than before, however full windows were then."""
    for join, now in outputs.items():
        then = before.get(join)
        if then is None:
            continue
        # Tuples that have ended are dropped now and then, so how full windows are is known roughly.
        expected = (then.per_row, then.per_row * now.chances / then.chances)
        if max(now.per_row, *expected) * rows >= _LEAST_JOIN_ROWS and not (
            min(expected) / _SUDDEN <= now.per_row <= max(expected) * _SUDDEN
        ):
            return True
    return False
