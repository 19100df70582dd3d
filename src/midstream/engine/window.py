"""Window: the rows of a stream with the validity their event time gives them.

The operator is where data enters a plan: the box hands it the rows of a push that are neither late nor without an
event time. It keeps nothing; rows are stored by whoever needs them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from midstream.algebra.plan import Field, Window
from midstream.algebra.windows import NEVER, WindowSpec
from midstream.engine.batch import Batch, Layout
from midstream.engine.kernels import Ints
from midstream.engine.operator import Operator

__all__ = ["WindowOperator", "validities"]


def validities(window: WindowSpec, times: Ints) -> tuple[Ints, Ints]:
    """The validities of many rows at once: see :meth:`WindowSpec.validity`.

    >>> validities(WindowSpec(width=10, slide=10), np.array([-3, 0, 5]))
    (array([ 0,  0, 10]), array([10, 10, 20]))
    """
    if window.width is None:
        return times, np.full(len(times), NEVER)
    if window.slide is None:
        return times, _add(times, window.width + 1)
    return _round_up(times, window.slide), _round_up(_add(times, window.width), window.slide)


def _add(times: Ints, ticks: int) -> Ints:
    """times + ticks, never beyond NEVER."""
    return np.where(times > NEVER - ticks, NEVER, times + np.int64(min(ticks, NEVER)))


def _round_up(times: Ints, step: int) -> Ints:
    floors = times // step * step
    return np.where(floors == times, times, _add(floors, step))


class WindowOperator(Operator):
    """A leaf: the box stages rows, the next push passes them on with their validity."""

    def __init__(self, plan: Window, fields: Sequence[Field]) -> None:
        super().__init__(plan.label, Layout(tuple(fields)), ())
        self.plan = plan
        self._columns = [field.name for field in fields]
        self._staged: Batch | None = None

    def stage(self, times: Ints, columns: dict[str, pa.Array]) -> None:
        """Take the rows of one push: event times in ticks, and at least the columns this plan reads."""
        valid_from, valid_to = validities(self.plan.window, times)
        arrays = [columns[name] for name in self._columns]
        self.counters.rows_in += len(times)
        # A slide longer than the window passes over some rows: they are valid at no instant.
        self._staged = Batch.of_arrays(self.layout, valid_from, valid_to, arrays).filtered(valid_from < valid_to)

    def advance(self, watermark: int) -> None:
        self.frontier = self.plan.window.frontier(watermark)

    def push(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        batch, self._staged = self._staged, None
        if batch is not None and len(batch):
            self.counters.rows_out += len(batch)
            yield batch
