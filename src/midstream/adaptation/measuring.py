"""When a running query is measured, and what: in the process that runs it, once per cell.

Measurements have a budget: a share of the time that pushes take, and half of their *excess*: what they take beyond 1.25
times what rows have taken at the least; each measurement brings that nearer to what they take now. A measurement is due
when a share of the rows inside their windows is new since the last one, or when a join suddenly produces much more or
less than at the last one, as soon as the budget suffices. It is made at once, and on credit, when the excess comes to
as much as half a measurement, or if a change seems worthwhile by now, which only the process that decides can know.
Credit is limited, so that streams which keep changing do not cost more than that.

All times are the cost model's, not the clock's: the same pushes give the same measurements, on any machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from midstream.adaptation.policy import Adaptation
from midstream.adaptation.statistics import JoinKey, Push, QueryStatistics
from midstream.execution.executor import Executor
from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.sizes import PlanSizes

__all__ = ["Measuring"]

_SUDDEN = 2.0
"""A join whose tuples per arriving row change by this factor is measured at once."""
_LEAST_JOIN_ROWS = 1_000
"""Joins that produce fewer tuples in a push, before and after, do not count as changed."""
_MOST_SAVED = 4
"""How many measurements may be saved up for, or made on credit."""
_USUAL = 1.25
"""A push that costs up to so many times as much per row as the cheapest one is nothing unusual."""
_SHARE_OF_EXCESS = 0.5
"""The share of the excess that may be spent on measurements."""


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
        self._budget: float | None = None
        self._measurements = 0
        self._least_per_row = math.inf
        """What a row has cost at the least."""
        self._excess = 0.0
        """What pushes have cost beyond the usual since the last measurement."""
        self._outputs: dict[JoinKey, float] = {}
        """By join: its output at the last measurement, see :meth:`_output`."""
        self._rows_since_change = 0

    def after_push(
        self, executor: Executor, rows: int, expects_change: Callable[[int], bool] | None = None
    ) -> PlanSizes | None:
        """Note a push that brought so many rows; the sizes, if it was time to measure them.

        ``expects_change`` says whether so many rows since the last measurement make a change worthwhile, where that is
        known.
        """
        self._rows += rows
        self._rows_since_change += rows
        if not self.statistics.follow(executor) or rows == 0:
            return None
        push = self.statistics.latest_push()
        seconds, cost = self.push_seconds(push), self.seconds
        self._earn(seconds, rows, cost)
        has_changed = self._has_changed_suddenly(push)
        if has_changed:
            self._rows_since_change = 0
        if not self._is_due(cost, has_changed, expects_change):
            return None
        assert self._budget is not None
        self._budget -= cost
        self.sizes = sizes = self._measure(has_changed)
        self._outputs = {join: self._output(join, counts.found, push) for join, counts in push.joins.items()}
        # What is expensive now may be usual from now on, or still increase: the next measurements will tell.
        self._least_per_row, self._excess = math.sqrt(self._least_per_row * seconds / rows), 0.0
        self.rows_arrived, self._rows = self._rows, 0
        return sizes

    @property
    def seconds(self) -> float:
        """What a measurement takes by the cost model."""
        return self.statistics.measuring_seconds(self._coefficients)

    def _measure(self, has_changed: bool) -> PlanSizes:
        generator = np.random.default_rng([self.policy.seed, self._measurements])
        self._measurements += 1
        # Rows from before a sudden change must not be mixed with those after it.
        least_span = self.policy.least_rows if has_changed else None
        is_steady = self._rows_since_change >= self.statistics.held_rows()
        return self.statistics.measure(self.policy.sample_rows, generator, least_span, is_steady)

    def _earn(self, seconds: float, rows: int, cost: float) -> None:
        """Add to the budget what a push of so many seconds and rows allows."""
        if self._budget is None:
            # For the first measurements, when nothing has been saved yet.
            self._budget = _MOST_SAVED / 2 * cost
        self._least_per_row = min(self._least_per_row, seconds / rows)
        excess = max(0.0, seconds - _USUAL * self._least_per_row * rows)
        self._excess += excess
        earned = self.policy.measure_share * seconds + _SHARE_OF_EXCESS * excess
        self._budget = min(self._budget + earned, _MOST_SAVED * cost)

    def _is_due(self, cost: float, has_changed: bool, expects_change: Callable[[int], bool] | None) -> bool:
        assert self._budget is not None
        if self._rows < self.policy.least_rows:
            return False
        if self.sizes is None:
            return True
        if self._budget >= cost:
            return has_changed or self._rows >= self.policy.measure_every * self.statistics.held_rows()
        if self._budget < -_MOST_SAVED * cost:
            return False
        return self._excess >= cost / 2 or (expects_change is not None and expects_change(self._rows))

    def push_seconds(self, push: Push) -> float:
        """What the joins cost in a push, by the cost model."""
        total = 0.0
        for (_, inputs), counts in push.joins.items():
            # As if all that enters were as wide as the wider side of a left-deep join; indexes are of single inputs.
            parts = 1 if counts.probes else inputs.bit_count() - 1
            total += counts.inserted * self._coefficients.per_tuple_in(parts)
            total += counts.probes * self._coefficients.per_probe(inputs.bit_count() - 1)
            total += counts.found * self._coefficients.per_tuple_out(inputs.bit_count())
        return total + len(push.joins) * self._coefficients.operator

    def _has_changed_suddenly(self, push: Push) -> bool:
        """Whether the push gave a join a much larger or smaller output than the last measurement."""
        for join, counts in push.joins.items():
            before = self._outputs.get(join)
            if before is None or push.rows == 0:
                continue
            expected = before / self._output(join, 1, push)
            if max(counts.found, expected) >= _LEAST_JOIN_ROWS and not (
                expected / _SUDDEN <= counts.found <= expected * _SUDDEN
            ):
                return True
        return False

    def _output(self, join: JoinKey, found: int, push: Push) -> float:
        """The output of a join per arriving row, apart from how full windows are."""
        _, inputs = join
        full = float(max(1, self.statistics.held_rows())) ** (inputs.bit_count() - 1)
        return found / max(1, push.rows) / full
