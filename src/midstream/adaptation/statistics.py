"""Statistics of a running query: what arrived recently, and the sizes of its joins, of the plan in force and of others.

``QueryStatistics`` follows every push. It marks how far the inputs are, so that a measurement has a *span*: the
latest pushes that brought at least an eighth of the rows inside their windows, or fewer where something has just
changed. Nothing is stored for it: after a restart the windows are there, and the next pushes make a new span.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from midstream.adaptation.reductions import ReductionSampler, reducers
from midstream.adaptation.sampling import BlockSampler, JoinCounts
from midstream.engine.operators.operator import Operator
from midstream.engine.state.row_store import RowStore
from midstream.execution.executor import Executor
from midstream.execution.plan_executor import PlanExecutor
from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.sizes import PlanSizes, Reduction
from midstream.planning.join_order.reorder_joins import join_blocks

__all__ = ["JoinKey", "QueryStatistics"]

MOST_MARKS = 64
"""If there are more, every second one of the earlier half is forgotten, so that they reach back as far as is needed."""
SPAN_SHARE = 1 / 8
"""The share of the rows inside their windows that a span has, if it is made of several pushes."""


@dataclass(frozen=True)
class _Mark:
    """How far a query was after a push: the stores of its joins' inputs, and what the joins had produced."""

    ends: dict[int, int]
    blocks: list[dict[int, JoinCounts]]
    """What the joins of each block had done, by their set of inputs; nothing is known of the joins of earlier plans."""


JoinKey = tuple[int, int]
"""A join of the plan in force: the number of its block, and the set of inputs that it joins."""


class QueryStatistics:
    """Measures the joins of the plan in force."""

    def __init__(self) -> None:
        self._box: PlanExecutor | None = None
        self._root: Operator | None = None
        """Of the box, which may replace its operators."""
        self._samplers: list[BlockSampler] = []
        self._reductions: list[ReductionSampler] = []
        self._stores: dict[int, RowStore] = {}
        """The stores of the joins' inputs, by their ``id``."""
        self._marks: list[_Mark] = []
        self._own_marks = 0
        """How many of them are of the plan in force."""

    def follow(self, executor: Executor) -> bool:
        """Note that a push is done; whether the plan in force can be measured. It cannot while a migration runs."""
        boxes = list(executor.boxes())
        if len(boxes) > 1 or executor.is_migrating:
            self._box = None
            return False
        if boxes[0] is not self._box or self._box.root is not self._root:
            stores_before = self._stores
            self._box, self._root = boxes[0], boxes[0].root
            self._samplers = [BlockSampler(block, self._box) for block in join_blocks(self._box.plan)]
            self._reductions = [ReductionSampler(one, self._box) for one in reducers(self._box.plan)]
            samplers: list[BlockSampler | ReductionSampler] = [*self._samplers, *self._reductions]
            self._stores = {id(store): store for sampler in samplers for store in sampler.stores()}
            self._keep_marks(stores_before)
        ends = {number: store.end for number, store in self._stores.items()}
        if len(self._marks) == MOST_MARKS:
            del self._marks[1 : MOST_MARKS // 2 : 2]
        self._marks.append(_Mark(ends, [sampler.counts() for sampler in self._samplers]))
        for sampler in self._samplers:
            sampler.count_rows()
        self._own_marks += 1
        return bool(self._samplers) and self._own_marks > 1 and all(s.is_measurable for s in self._samplers)

    def measure(
        self,
        sample_rows: int,
        generator: np.random.Generator,
        least_span: int | None = None,
        is_steady: bool = False,
    ) -> PlanSizes:
        """The sizes over the span that ends now, or over as few of the latest pushes as brought ``least_span`` rows.

        While streams are steady, what joins hold follows from their increments, and need not be measured.
        """
        since = self._span(SPAN_SHARE * self.held_rows() if least_span is None else least_span)
        reductions = {one.fingerprint: one.measure(since.ends, sample_rows, generator) for one in self._reductions}
        blocks, silent, arrived = {}, [], 0.0
        for sampler, before in zip(self._samplers, since.blocks, strict=True):
            new = sampler.new_rows(since.ends)
            arrived += sum(
                _rows_entered(rows, reductions.get(leaf)) for rows, leaf in zip(new, sampler.leaves, strict=True)
            )
            silent += [name for name, rows in zip(sampler.graph.names, new, strict=True) if rows == 0]
            counts = sampler.counts()
            counted = {inputs: counts[inputs].since(then).produced for inputs, then in before.items()}
            blocks[sampler.identity] = sampler.measure(since.ends, sample_rows, generator, counted, is_steady)
        return PlanSizes(round(arrived), blocks, silent, reductions)

    def held_rows(self) -> int:
        """How many rows of the joins' inputs are inside their windows."""
        return sum(sampler.held_rows() for sampler in self._samplers)

    def latest_push(self) -> dict[JoinKey, JoinCounts]:
        """What the joins did in the push that was followed last."""
        before, now = self._marks[-2].blocks, self._marks[-1].blocks
        return {
            (block, inputs): counts.since(before[block][inputs])
            for block, found in enumerate(now)
            for inputs, counts in found.items()
        }

    def measuring_seconds(self, coefficients: CostCoefficients) -> float:
        """What a measurement takes by the cost model."""
        steps = sum(sampler.steps for sampler in self._samplers)
        steps += 2 * len(self._reductions)
        rows = sum(sampler.rows_to_read() for sampler in self._samplers)
        rows += sum(sampler.rows_to_read() for sampler in self._reductions)
        return 2 * coefficients.operator * steps + coefficients.tuple_in / 2 * rows

    def _keep_marks(self, before: Mapping[int, RowStore]) -> None:
        """Of the marks of the plan before, keep how far its inputs were, if those of this plan are the same."""
        if any(before.get(number) is not store for number, store in self._stores.items()):
            self._marks.clear()
        self._marks = [_Mark(mark.ends, [{} for _ in self._samplers]) for mark in self._marks]
        self._own_marks = 0

    def _span(self, wanted: float) -> _Mark:
        """The latest mark since which so many rows have come, and some of every input."""
        for mark in self._marks[-2::-1]:
            new = [rows for sampler in self._samplers for rows in sampler.new_rows(mark.ends)]
            if sum(new) >= wanted and all(new):
                return mark
        return self._marks[0]


def _rows_entered(rows: int, reduction: Reduction | None) -> float:
    """How many rows arrived of an input that produced so many for the joins."""
    return float(rows) if reduction is None else rows / max(1e-9, float(reduction.passing.mean()))
