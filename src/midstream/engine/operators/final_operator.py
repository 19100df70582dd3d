"""Final operators: aggregates and differences, which emit a result only when no later row can change it.

Joins, distinct and stateless operators are *incremental*: what they have emitted is a function of what their inputs
have emitted, so they have no progress of their own. A final operator has: its results are final before ``final_until``,
and it has emitted

- all results valid before ``emits_from`` (a predecessor may have done so, see ``migration/state_matching``), and
- of the later ones, the segments that end by ``final_until`` (over a distinct: before it, see ``sweep``); a segment
  that is still open is emitted when it ends.

Both instants and the rows seen determine what has been emitted. How the rows were cut into batches, the order in which
they arrived and earlier plans do not matter: the boundaries of segments depend on the input's snapshots alone (see
``sweep``). That is why an operator whose state is computed again from the rows continues exactly where the lost one
stood, and why a successor may begin at any instant up to which its predecessor has emitted everything.

         emits_from         final_until
    ─────────┼──────────────────┼────────▶ time
      emitted│├─ emitted ─┤├─ emitted ─┤
             │        ├── open: not emitted yet ──┄
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator

from midstream.algebra.window_spec import BEGINNING, NEVER
from midstream.engine.batch import Batch, Layout
from midstream.engine.kernels import Ints
from midstream.engine.operators.operator import EmissionType, Operator, StatefulOperator, back_by
from midstream.engine.operators.sweep import Segments, Sweep

__all__ = ["FinalOperator"]


class FinalOperator(StatefulOperator):
    """An operator that emits a result when it is final."""

    _sweep: Sweep

    def __init__(self, name: str, layout: Layout, inputs: tuple[Operator, ...], longest: int) -> None:
        super().__init__(name, layout, inputs)
        self._longest = longest
        """No segment with a result is longer."""
        self._final_until = BEGINNING
        self.emits_from = BEGINNING
        """Earlier results have been emitted by a predecessor."""
        self.limit = NEVER
        """``final_until`` does not pass this instant."""

    @property
    def final_until(self) -> int:
        return self._final_until

    @property
    def emission(self) -> EmissionType:
        return EmissionType.FINAL

    @property
    def emitted_until(self) -> int:
        """All results valid before this instant have been emitted, except for open segments."""
        return max(self.emits_from, self._final_until)

    @property
    def state_rows(self) -> int:
        return self._sweep.waiting

    def advance(self, watermark: int) -> None:
        super().advance(watermark)
        self._final_until = min(self.frontier, self.limit)
        self.frontier = back_by(self._final_until, self._longest)

    def needed_below(self, retention: int) -> int:
        # An open segment began when a row came or went: the row that went must be known.
        return back_by(min(retention, self._final_until), self._longest)

    def push(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        for batch in self._segments(*inputs):
            yield from self._counted(batch.from_instant(self.emits_from))

    def emit_open(self) -> Iterator[Batch]:
        """Emit the open segments up to ``final_until``: from then on everything before it has been emitted."""
        for batch in self._output(self._sweep.open_segments(self._final_until)):
            yield from self._counted(batch.from_instant(self.emits_from))
        self.emits_from = self.emitted_until

    def rebuild(self, *histories: Iterable[Batch]) -> Iterator[Batch]:
        yield from self._segments(*histories)
        if self.emits_from > BEGINNING:
            yield from self._output(self._sweep.open_segments(min(self.emits_from, self._final_until)))

    def _segments(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        """The segments that end by ``final_until``, whoever emits them."""
        for side, batches in enumerate(inputs):
            for batch in batches:
                self.counters.rows_in += len(batch)
                self._add(side, batch)
        segments, gone = self._sweep.advance(self._final_until)
        yield from self._output(segments)
        self._let_go(gone)

    def _counted(self, batch: Batch) -> Iterator[Batch]:
        self.counters.rows_out += len(batch)
        if len(batch):
            yield batch

    @abstractmethod
    def _add(self, side: int, batch: Batch) -> None:
        """Take new rows of an input into the sweep."""

    @abstractmethod
    def _output(self, segments: Segments) -> Iterator[Batch]:
        """The results of segments."""

    @abstractmethod
    def _let_go(self, gone: Ints) -> None:
        """Forget what was kept for rows (as queued) that have ended."""
