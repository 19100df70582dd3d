"""Window source: where rows enter a plan. The rows themselves live in the window store (``state/window_store``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from midstream.algebra.plan import Leaf
from midstream.engine.batch import Batch, Layout
from midstream.engine.operators.operator import EmissionType, Operator

__all__ = ["WindowOperator"]


class WindowOperator(Operator):
    """A leaf: the box stages rows, the next push passes them on."""

    def __init__(self, plan: Leaf, layout: Layout) -> None:
        super().__init__(plan.label, layout, ())
        self.plan = plan
        self._staged: Batch | None = None

    def stage(self, batch: Batch) -> None:
        """Take the rows of one push."""
        self._staged = batch

    def advance(self, watermark: int) -> None:
        self.frontier = self.plan.frontier(watermark)

    @property
    def final_until(self) -> int:
        return self.frontier

    @property
    def emission(self) -> EmissionType:
        return EmissionType.INCREMENTAL

    @property
    def source(self) -> str:
        return self.plan.identity

    def push(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        batch, self._staged = self._staged, None
        if batch is not None and len(batch):
            self.counters.rows_in += len(batch)
            self.counters.rows_out += len(batch)
            yield batch
