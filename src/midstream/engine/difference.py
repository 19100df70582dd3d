"""Difference (EXCEPT): at each instant the left rows that the right side does not take away.

Output from input: for each different row and each stretch of time in which its number of copies on both sides stays the
same, max(0, left − right) copies (EXCEPT ALL), or one copy if the left side has it and the right has not (EXCEPT).
Certain, and therefore emitted, when the frontier has reached the end of the stretch.

State: a sweep over the different rows with two counts each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from midstream.algebra.plan import Difference
from midstream.algebra.windows import BEGINNING
from midstream.engine.batch import Batch, Layout
from midstream.engine.key_table import KeyTable
from midstream.engine.operator import Operator, Telling, back_by
from midstream.engine.sweep import COUNT, Stretches, Sweep, Total

__all__ = ["DifferenceOperator"]


class DifferenceOperator(Operator):
    """EXCEPT and EXCEPT ALL over interval streams."""

    def __init__(self, plan: Difference, left: Operator, right: Operator) -> None:
        super().__init__(plan.label, Layout(plan.schema), (left, right))
        self._keeps_all = plan.keep == "all"
        self._longest = plan.left.longest
        self._complete = BEGINNING
        names = (field.name for side in plan.inputs for field in side.schema)
        self._state_key = (plan.label, plan.left.identity, plan.right.identity, *names)
        self._keys = KeyTable([field.type for field in plan.schema])
        self._sweep = Sweep(self._keys, [Total(COUNT), Total(COUNT)])

    @property
    def state_rows(self) -> int:
        return self._sweep.waiting

    @property
    def state_bytes(self) -> int:
        return self._keys.bytes + self._sweep.bytes

    def advance(self, watermark: int) -> None:
        super().advance(watermark)
        self._complete = self.frontier
        self.frontier = back_by(self.frontier, self._longest)

    @property
    def told(self) -> int:
        return self._complete

    @property
    def tells(self) -> Telling:
        return Telling.UNTIL_TOLD

    def needed_below(self, retention: int) -> int:
        # As for aggregates: a stretch may have begun when a row of either side went.
        return back_by(min(retention, self._complete), self._longest)

    @property
    def state_key(self) -> tuple[str, ...]:
        return self._state_key

    def adopt(self, other: Operator) -> None:
        assert isinstance(other, DifferenceOperator)
        self._keys, self._sweep = other._keys, other._sweep

    def push(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        for side, batches in enumerate(inputs):
            for batch in batches:
                self.counters.rows_in += len(batch)
                slots = self._keys.hold(batch.columns(), len(batch))
                words = np.zeros((len(batch), 2), np.int64)
                words[:, side] = 1
                self._sweep.add(slots, batch.valid_from, batch.valid_to, words)
        stretches, gone = self._sweep.advance(self._complete)
        yield from self._output(stretches)
        self._keys.let_go(gone[:, 0])

    def flush(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        yield from self.push(*inputs)
        yield from self._output(self._sweep.cut(self._complete))

    def _output(self, stretches: Stretches) -> Iterator[Batch]:
        copies = self._copies(stretches)
        chosen = np.repeat(np.arange(len(copies)), copies)
        self.counters.rows_out += len(chosen)
        if len(chosen):
            slots = stretches.slots[chosen]
            columns = [self._keys.gather(position, slots) for position in range(len(self.layout.fields))]
            yield Batch.of_arrays(self.layout, stretches.valid_from[chosen], stretches.valid_to[chosen], columns)

    def _copies(self, stretches: Stretches):  # type: ignore[no-untyped-def]
        left, right = stretches.words[:, 0], stretches.words[:, 1]
        if self._keeps_all:
            return np.maximum(0, left - right)
        return ((left > 0) & (right == 0)).astype(np.int64)
