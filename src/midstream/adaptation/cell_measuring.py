"""Measuring in a cell of a query on Spark: what the cell sends to the driver, which decides."""

from __future__ import annotations

from midstream.adaptation.hot_keys import HotKeyCounter
from midstream.adaptation.measured_sizes import MeasuredSizes
from midstream.adaptation.measuring import Measuring
from midstream.adaptation.pause import Pause
from midstream.adaptation.policy import Adaptation
from midstream.execution.executor import Executor
from midstream.planning.cost.coefficients import CostCoefficients

__all__ = ["CellMeasuring"]


class CellMeasuring:
    """Measures the joins of a cell, and counts their hot keys. A failure is noted, and does not fail the cell."""

    def __init__(self, policy: Adaptation, executor: Executor) -> None:
        self.policy = policy
        self.sizes: MeasuredSizes | None = None
        """What was measured after the last micro-batch."""
        self.failure: str | None = None
        """Why that failed, if it did."""
        self._pause = Pause("micro-batches")
        self._measuring: Measuring | None = None
        self._hot_keys = HotKeyCounter()
        self._batches = 0
        # The first span begins with the query.
        self._try(executor, 0)

    def after_batch(self, executor: Executor, rows: int) -> None:
        """Measure the joins if that is due, after a micro-batch that brought so many rows."""
        self._batches += 1
        self.sizes = None
        if self._batches > 1:
            # What failed before the first micro-batch is reported with it.
            self.failure = None
        self._try(executor, rows)

    def _try(self, executor: Executor, rows: int) -> None:
        self._pause.attempt(self._batches, lambda: self._measure(executor, rows), self._note_failure)

    def _note_failure(self, reason: str) -> None:
        self.failure = reason
        self._measuring = None

    def _measure(self, executor: Executor, rows: int) -> None:
        if self._measuring is None:
            self._measuring = Measuring(self.policy, self.policy.coefficients or CostCoefficients(), executor)
            return
        sizes = self._measuring.after_push(executor, rows)
        if sizes is not None:
            keys = self._hot_keys.after_measurement(executor, self._measuring.seconds)
            self.sizes = MeasuredSizes.of(sizes, keys)
