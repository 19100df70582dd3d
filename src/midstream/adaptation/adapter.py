"""Adaptation in one process: measures a running query when it is due, and asks the controller."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from midstream.adaptation.controller import Controller, Proposal
from midstream.adaptation.measuring import Measuring
from midstream.adaptation.pause import Pause
from midstream.adaptation.policy import Adaptation
from midstream.algebra.plan import Plan
from midstream.execution.executor import Executor
from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.sizes import PlanSizes

__all__ = ["Adapter"]


class Adapter:
    """Measures and decides for a query in this process. A failure here does not fail the push."""

    def __init__(
        self,
        policy: Adaptation,
        coefficients: CostCoefficients,
        executor: Executor,
        shapes: Callable[[], Sequence[Plan]] = tuple,
        before: Controller | None = None,
        push: int = 0,
    ) -> None:
        """``before`` is the controller of the same run until now, after so many pushes: what it knows is kept."""
        self.policy = policy
        self._shapes = shapes
        """Gives one plan of each shape of the query."""
        self.controller = Controller(policy, coefficients)
        if before is not None:
            # Whoever asks for adaptation again lets it change the plan again.
            self.controller.restore(msgspec.structs.replace(before.state, is_pinned=False), before.decisions)
        self.sizes: PlanSizes | None = None
        """The latest sizes."""
        self._pause = Pause()
        self._measuring: Measuring | None = None
        # The first span begins with the query.
        self.after_push(executor, 0, push, None)

    def after_push(self, executor: Executor, rows: int, push: int, watermark: int | None) -> Proposal | None:
        """Note a push that brought so many rows; the change of plan that should be made now, if any."""

        def note_failure(reason: str) -> None:
            # Whatever was being measured is forgotten: the next pushes make a new span.
            self._measuring = None
            self.controller.note_failure(executor.plan, reason, push, watermark)

        return self._pause.attempt(push, lambda: self._consider(executor, rows, push, watermark), note_failure)

    def _consider(self, executor: Executor, rows: int, push: int, watermark: int | None) -> Proposal | None:
        if self._measuring is None:
            self._measuring = Measuring(self.policy, self.controller.coefficients, executor)
            return None
        sizes = self._measuring.after_push(executor, rows, self.controller.expects_change)
        if sizes is None:
            return None
        self.sizes = sizes
        return self.controller.consider(
            executor.plan, [sizes], [self._measuring.rows_arrived], push, watermark, None, self._shapes()
        )
