"""What was decided about a query's plan, and why: kept for ``decisions()``, ``status`` and reports."""

from __future__ import annotations

from typing import Literal

import msgspec

from midstream.planning.cost.explain_cost import q_error

__all__ = ["ConsideredJoin", "Decision", "Outcome"]

Outcome = Literal["changed", "advised", "kept"]
"""The plan was replaced; it would have been, in mode "advise"; or nothing was done."""


class ConsideredJoin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A join of one of the plans compared: per 1,000 arriving rows, how many tuples it produces and what it costs."""

    inputs: tuple[str, ...]
    rows: float
    error: float
    """The standard error of ``rows``."""
    seconds: float
    in_force: bool
    """Whether the plan in force has the join."""
    in_best: bool
    """Whether the cheapest plan has it."""
    is_measured: bool
    """Whether ``rows`` was sampled; otherwise it was derived from other joins."""
    counted: float | None = None
    """For a join of the plan in force: how many tuples it really produced."""

    @property
    def q_error(self) -> float | None:
        """How many times too large or too small the estimate was; None where nothing was counted."""
        return None if self.counted is None else q_error(self.rows, self.counted)


class Decision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One consideration of the plan. Times are seconds by the cost model."""

    number: int
    push: int
    """After which push (on Spark: micro-batch) it was made."""
    watermark: int | None
    outcome: Outcome
    reason: str
    """One sentence."""
    plan: str
    """The plan in force in words: its join orders, and what stands below the joins."""
    best: str
    """The plan that would be cheapest now."""
    seconds_now: float = 0.0
    """For 1,000 arriving rows, by the plan in force."""
    seconds_best: float = 0.0
    saving: float = 0.0
    """The lower bound of their difference."""
    regret: float = 0.0
    """What was lost since the last change by not making one."""
    expected_loss: float = 0.0
    """What will be lost until the next decision, if the plan is kept."""
    migration: float = 0.0
    """What a change would cost."""
    strategy: str | None = None
    cell: int | None = None
    """On Spark: the cell that has the most work with the plan in force; the decision is based on it."""
    imbalance: float = 1.0
    """How many times the work of an average cell that one has."""
    changing: float = 0.0
    """What changes of plan have cost lately, for 1,000 arriving rows; 0 if there were few."""
    state_bytes_now: float = 0.0
    """What the states of the joins take with the plan in force; on Spark, in the cell where they take the most."""
    state_bytes_best: float = 0.0
    failure: str | None = None
    """What went wrong, if adaptation itself failed; ``reason`` says it, too."""
    joins: tuple[ConsideredJoin, ...] = ()

    @property
    def regret_at_next(self) -> float:
        """What will have been lost at the next decision, if the plan is kept: compared with what a change costs."""
        return self.regret + self.expected_loss
