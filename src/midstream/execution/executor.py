"""An executor: rows and a watermark go in, results come out ordered by ``valid_from``.

This is what a running query looks like from outside, whatever is inside: the operators of one plan (``plan_executor``),
or a migration in progress, which holds two executors (``migration/two_boxes``) and can therefore itself be migrated. An
executor says which states it holds (``states``), how far its results are (``progress``) and which rows it still needs
(``horizons``). A migration knows executors only by this interface: any executor of a plan can replace any other of the
same query, as far as the strategy allows it. (These are not Spark's executors, which are processes.)

An executor knows no clock, no I/O and no Spark; whoever owns it decides what is late and when time advances.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from midstream.algebra.plan import Plan
from midstream.engine.batch import Batch
from midstream.engine.operators.state_handle import StateInventory
from midstream.engine.state.window_store import InputBatches
from midstream.execution.output_progress import OutputProgress

if TYPE_CHECKING:
    from midstream.execution.plan_executor import PlanExecutor

__all__ = ["Executor", "NumberOf", "Rebuild"]

NumberOf = Callable[[Plan], int]
"""The number of a plan in the list of plans that goes with a manifest."""
Rebuild = Callable[["PlanExecutor", InputBatches], "PlanExecutor"]
"""Makes an executor of a plan anew: with the same plan, watermark and progress, from the rows given."""


class Executor(ABC):
    """A running query: a plan, or a migration between plans."""

    plan: Plan
    """The current plan; during a migration, the one it leads to."""

    # Rows and results

    @abstractmethod
    def push(self, arrived: InputBatches, watermark: int) -> Iterator[Batch]:
        """The results that the rows and the watermark (which holds after them) cause, in order of ``valid_from``.

        The iterator must be exhausted before the next push.
        """

    @abstractmethod
    def horizons(self) -> dict[str, int]:
        """For each window (by identity): rows that ended by then are not needed, not even to rebuild all state."""

    def release_buffered(self) -> list[Batch]:
        """The buffered results, to be emitted now; from now on none is buffered."""
        return []

    @property
    def buffered(self) -> int:
        """How many results are buffered."""
        return 0

    # What a successor asks

    @abstractmethod
    def states(self) -> StateInventory:
        """The states a successor may adopt, by state key: those that reflect exactly the rows seen so far."""

    @abstractmethod
    def progress(self) -> OutputProgress:
        """How far results have been emitted."""

    @abstractmethod
    def emit_open(self) -> list[Batch]:
        """The results of segments that are still open, up to where they are final, because the executor is replaced.

        Afterwards every final result valid before its operator's ``emitted_until`` has been emitted.
        """

    def successor(self) -> Executor:
        """The executor that continues from here: another one when a migration has completed."""
        return self

    @abstractmethod
    def hold_final(self, until: int) -> None:
        """Let the outermost final operators go no further than this instant."""

    # Recovery

    @abstractmethod
    def rebuilt(self, rebuild: Rebuild, rows: InputBatches) -> Executor:
        """The same executor with all derived state computed anew from the rows still in their windows."""

    @abstractmethod
    def manifest(self, number_of: NumberOf) -> dict[str, Any]:
        """All that is needed, besides the windows' rows and the watermark, to make the executor again: as JSON."""

    # Structure and figures

    @abstractmethod
    def boxes(self) -> Iterator[PlanExecutor]:
        """The running plans, the current one last."""

    def parts(self) -> Iterator[Executor]:
        """The executor and all inside it."""
        yield self

    @property
    @abstractmethod
    def is_migrating(self) -> bool:
        """Whether two plans run side by side, or states are still to be completed."""

    @property
    def rows_completed(self) -> int:
        """Tuples that were computed to complete states of the current plan."""
        return 0

    @property
    def state_rows(self) -> int:
        return sum(operator.state_rows for box in self.boxes() for operator in box.operators)

    @property
    def state_bytes(self) -> int:
        return sum(operator.state_bytes for box in self.boxes() for operator in box.operators)
