"""Adaptation in one process: measures a running query when it is due, and asks the controller."""

from __future__ import annotations

from midstream.adaptation.controller import Controller, Proposal
from midstream.adaptation.measuring import Measuring
from midstream.adaptation.policy import Adaptation
from midstream.execution.executor import Executor
from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.sizes import PlanSizes

__all__ = ["Adapter"]


class Adapter:
    """Measures and decides for a query in this process."""

    def __init__(self, policy: Adaptation, coefficients: CostCoefficients, executor: Executor) -> None:
        self.policy = policy
        self.controller = Controller(policy, coefficients)
        self.measuring = Measuring(policy, coefficients, executor)
        self._rows = 0

    @property
    def sizes(self) -> PlanSizes | None:
        """The latest sizes."""
        return self.measuring.sizes

    def after_push(self, executor: Executor, rows: int, push: int, watermark: int | None) -> Proposal | None:
        """Note a push that brought so many rows; the change of plan that should be made now, if any."""
        self._rows += rows
        sizes = self.measuring.after_push(executor, rows, self.controller.expects_change)
        if sizes is None:
            return None
        arrived, self._rows = self._rows, 0
        return self.controller.consider(executor.plan, [sizes], [arrived], push, watermark)
