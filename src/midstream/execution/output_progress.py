"""Output progress: how far the results of an executor have been emitted, which is where a successor continues.

Incremental operators (joins, distinct, selections) emit everything that follows from the rows seen. Final operators
(aggregates, differences) have a progress of their own: see ``engine/operators/final_operator``. So what an executor has
emitted is determined by the rows seen and by the progress of its outermost final operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from midstream.algebra.plan import Plan
from midstream.algebra.window_spec import NEVER
from midstream.engine.operators.final_operator import FinalOperator
from midstream.engine.operators.operator import EmissionType, Operator

__all__ = ["OutputProgress", "outermost_final_operators"]


@dataclass(frozen=True)
class OutputProgress:
    """What has been emitted, and by which plan. The operators are live: they advance with the executor."""

    plan: Plan
    operators: Sequence[Operator]
    """The plan's operators, inputs first."""
    final_operators: Sequence[FinalOperator]
    """The outermost ones, from left to right: all operators above them are incremental."""

    @property
    def final_until(self) -> int:
        """No later row changes what the results are before this instant."""
        return self.operators[-1].final_until

    @property
    def emission(self) -> EmissionType:
        """Whether results are emitted at once, when they are final, or both."""
        return self.operators[-1].emission

    @property
    def source_frontiers(self) -> list[int]:
        """For each window: no later row begins to be valid earlier."""
        return [operator.frontier for operator in self.operators if operator.source is not None]

    @property
    def emitted_until(self) -> int:
        """Everything before this instant has been emitted, except for open segments; no later row begins earlier."""
        return min([NEVER, *(operator.emitted_until for operator in self.final_operators), *self.source_frontiers])


def outermost_final_operators(root: Operator) -> list[FinalOperator]:
    """The final operators with no other above them, from left to right."""
    found: list[FinalOperator] = []
    pending = [root]
    while pending:
        operator = pending.pop()
        if isinstance(operator, FinalOperator):
            found.append(operator)
        else:
            pending.extend(reversed(operator.inputs))
    return found
