"""When a running query is measured, and what: in the process that runs it, once per cell.

A measurement is due when a share of the rows inside their windows is new since the last one. It is put off while
measurements would take more than their share of the time. It is made at once, and on credit, so that the next ones wait
the longer, if a join suddenly produces much more or less than at the last one, or if a change seems worthwhile by now:
that only the process that decides can say. Credit is limited, so streams that change all the time do not cost more than
a few measurements beyond the share. All times are the cost model's, not the clock's: the same pushes give the same
measurements, on any machine.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from midstream.adaptation.policy import Adaptation
from midstream.adaptation.statistics import QueryStatistics
from midstream.execution.executor import Executor
from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.sizes import PlanSizes

__all__ = ["Measuring"]

_SUDDEN = 2.0
"""A join whose tuples per arriving row change by this factor is measured at once."""
_LEAST_JOIN_ROWS = 1_000
_MOST_CREDIT = 8
"""Measurements that may be made before their time is there."""


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
        self._budget = 0.0
        self._measurements = 0
        self._rows_per_row: dict[frozenset[str], float] = {}

    def after_push(
        self, executor: Executor, rows: int, expects_change: Callable[[int], bool] | None = None
    ) -> PlanSizes | None:
        """Note a push that brought so many rows; the sizes, if it was time to measure them.

        ``expects_change`` says whether so many rows since the last measurement make a change worthwhile, where that is
        known.
        """
        self._rows += rows
        if not self.statistics.follow(executor) or rows == 0:
            return None
        self._budget = min(self._budget + self.policy.measure_share * self._push_seconds(), self._most_budget())
        has_changed = self._has_changed_suddenly()
        if not self._is_due(has_changed, expects_change):
            return None
        generator = np.random.default_rng([self.policy.seed, self._measurements])
        self._measurements += 1
        self._budget -= self.seconds
        # What was before a sudden change is not to be mixed with what is now.
        least_span = self.policy.least_rows if has_changed else None
        self.sizes = sizes = self.statistics.measure(self.policy.sample_rows, generator, least_span)
        self._rows_per_row = {names: count / max(1, sizes.rows) for names, count in sizes.counted.items()}
        self.rows_arrived, self._rows = self._rows, 0
        return sizes

    @property
    def seconds(self) -> float:
        """What a measurement takes by the cost model."""
        return self.statistics.measuring_seconds(self._coefficients)

    def _is_due(self, has_changed: bool, expects_change: Callable[[int], bool] | None) -> bool:
        if self._rows < self.policy.least_rows:
            return False
        if self.sizes is None:
            return True
        if self._budget >= 0 and self._rows >= self.policy.measure_every * self.statistics.held_rows():
            return True
        if self._budget < -_MOST_CREDIT * self.seconds:
            return False
        return has_changed or (expects_change is not None and expects_change(self._rows))

    def _has_changed_suddenly(self) -> bool:
        """Whether the latest push gave a join a much larger or smaller output per row than the last measurement."""
        rows, joins = self.statistics.latest_push()
        for names, (_, produced) in joins.items():
            before = self._rows_per_row.get(names)
            if before is None or rows == 0 or max(produced, before * rows) < _LEAST_JOIN_ROWS:
                continue
            if not before / _SUDDEN <= produced / rows <= before * _SUDDEN:
                return True
        return False

    def _push_seconds(self) -> float:
        """What the joins cost in the latest push, by the cost model."""
        _, joins = self.statistics.latest_push()
        total = 0.0
        for names, (entered, produced) in joins.items():
            # As if all that enters were as wide as the wider side of a left-deep join.
            total += entered * self._coefficients.per_tuple_in(len(names) - 1)
            total += produced * self._coefficients.per_tuple_out(len(names))
        return total + len(joins) * self._coefficients.operator

    def _most_budget(self) -> float:
        """Time that may be saved up for later measurements: that of a few."""
        return 4 * self.seconds
