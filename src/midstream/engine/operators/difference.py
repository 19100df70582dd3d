"""Difference (EXCEPT): at each instant the left rows that the right side does not take away.

Output from input: for each different row and each segment of time in which its number of copies on both sides stays the
same, max(0, left − right) copies (EXCEPT ALL), or one copy if the left side has it and the right has not (EXCEPT).
Final, and therefore emitted, when the frontier has reached the end of the segment (see ``final_operator``).

State: a sweep over the different rows with two counts each.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from midstream.algebra.plan import Difference
from midstream.engine.batch import Batch, Layout
from midstream.engine.kernels import Ints
from midstream.engine.operators.final_operator import FinalOperator
from midstream.engine.operators.operator import Operator
from midstream.engine.operators.state_handle import StateHandle, StateKey
from midstream.engine.operators.sweep import COUNT, Segments, Sweep, Total
from midstream.engine.state.key_table import KeyTable

__all__ = ["DifferenceOperator"]


class DifferenceOperator(FinalOperator):
    """EXCEPT and EXCEPT ALL over interval streams."""

    def __init__(self, plan: Difference, left: Operator, right: Operator) -> None:
        # A segment has a result only while a left row lasts.
        super().__init__(plan.label, Layout(plan.schema), (left, right), plan.left.longest)
        self._keeps_all = plan.keep == "all"
        names = (field.name for side in plan.inputs for field in side.schema)
        self._state_key = (plan.label, plan.left.identity, plan.right.identity, *names)
        self._keys = KeyTable([field.type for field in plan.schema])
        grid = plan.left.longest if any(side.gives_pieces for side in plan.inputs) else None
        self._sweep = Sweep(self._keys, [Total(COUNT), Total(COUNT)], grid)

    @property
    def state_bytes(self) -> int:
        return self._keys.bytes + self._sweep.bytes

    @property
    def state_key(self) -> StateKey:
        return self._state_key

    def adopt(self, donor: StateHandle) -> None:
        assert isinstance(donor, DifferenceOperator)
        self._keys, self._sweep = donor._keys, donor._sweep

    def _add(self, side: int, batch: Batch) -> None:
        slots = self._keys.hold(batch.columns(), len(batch))
        words = np.zeros((len(batch), 2), np.int64)
        words[:, side] = 1
        self._sweep.add(slots, batch.valid_from, batch.valid_to, words, on_grid=side == 0)

    def _let_go(self, gone: Ints) -> None:
        self._keys.let_go(gone[:, 0])

    def _output(self, segments: Segments) -> Iterator[Batch]:
        copies = self._copies(segments)
        chosen = np.repeat(np.arange(len(copies)), copies)
        if len(chosen):
            slots = segments.slots[chosen]
            columns = [self._keys.gather(position, slots) for position in range(len(self.layout.fields))]
            yield Batch.of_arrays(self.layout, segments.valid_from[chosen], segments.valid_to[chosen], columns)

    def _copies(self, segments: Segments):  # type: ignore[no-untyped-def]
        left, right = segments.words[:, 0], segments.words[:, 1]
        if self._keeps_all:
            return np.maximum(0, left - right)
        return ((left > 0) & (right == 0)).astype(np.int64)
