"""A box: one plan, running. Rows and a watermark go in, results come out ordered by ``valid_from``.

It knows no clock, no I/O and no Spark; whoever owns it decides what is late and when time advances.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from midstream.algebra.plan import Plan
from midstream.algebra.windows import NEVER
from midstream.engine.batch import Batch, concatenate
from midstream.engine.compile import compile_plan
from midstream.engine.join import JoinOperator
from midstream.engine.kernels import Ints
from midstream.engine.operator import Operator
from midstream.engine.window import WindowOperator

__all__ = ["CHUNK_ROWS", "Box", "Rows"]

CHUNK_ROWS = 1 << 20
"""About how many results are in the making at once: enough to work on columns, few enough to bound the memory."""


@dataclass(frozen=True)
class Rows:
    """New rows of one stream: event times in ticks (none late, none NULL), and the columns."""

    times: Ints
    columns: dict[str, pa.Array]

    def __len__(self) -> int:
        return len(self.times)


class Box:
    """The operators of a plan and the order in which they work."""

    def __init__(self, plan: Plan, chunk_rows: int = CHUNK_ROWS) -> None:
        self.plan = plan
        self.chunk_rows = chunk_rows
        self.root = compile_plan(plan, chunk_rows)
        self.operators = _inputs_first(self.root)
        self._lazy = _topmost(self.root)
        self._windows: dict[str, list[WindowOperator]] = {}
        for operator in self.operators:
            if isinstance(operator, WindowOperator):
                self._windows.setdefault(operator.plan.stream.name, []).append(operator)

    def push(self, rows: Mapping[str, Rows], watermark: int) -> Iterator[Batch]:
        """The results that the rows and the watermark (which holds after them) cause.

        The iterator must be exhausted before the next push.
        """
        for stream, new in rows.items():
            for window in self._windows.get(stream, ()):
                window.stage(new.times, new.columns)
        for operator in self.operators:
            operator.advance(watermark)
        results = self._evaluate()
        yield from results if self.root.emits_in_order else self._in_order(results)
        self._expire()

    def _expire(self) -> None:
        """Let every operator drop what no later row can need.

        A stored row is needed as long as a tuple that refers to it may meet another: until it has ended before the
        frontier of every join partner between its store and the output, or the next operator that makes rows of its
        own.
        """
        needed = {id(self.root): NEVER}
        for operator in reversed(self.operators):
            above = needed[id(operator)] if operator.layout.is_stored else NEVER
            for child in operator.inputs:
                partners = [other.frontier for other in operator.inputs if other is not child]
                needed[id(child)] = min([above, *partners]) if isinstance(operator, JoinOperator) else above
            operator.expire(needed[id(operator)])

    def metrics(self) -> list[dict[str, int | str]]:
        """What each operator did and holds, inputs first."""
        return [operator.metrics() for operator in self.operators]

    @property
    def state_rows(self) -> int:
        return sum(operator.state_rows for operator in self.operators)

    @property
    def state_bytes(self) -> int:
        return sum(operator.state_bytes for operator in self.operators)

    def _evaluate(self) -> Iterator[Batch]:
        """Run the operators one after the other, so that the depth of a plan is no depth of calls.

        The topmost ones are run lazily: their output is the bulk, and goes straight to whoever asks.
        """
        outputs: dict[int, list[Batch] | Iterator[Batch]] = {}
        for operator in self.operators:
            produced = operator.push(*(outputs.pop(id(child)) for child in operator.inputs))
            outputs[id(operator)] = produced if operator in self._lazy else list(produced)
        yield from outputs[id(self.root)]

    def _in_order(self, results: Iterator[Batch]) -> Iterator[Batch]:
        together = concatenate(self.root.layout, list(results)).in_order()
        for start in range(0, len(together), self.chunk_rows):
            yield together.sliced(start, min(len(together), start + self.chunk_rows))


def _inputs_first(root: Operator) -> list[Operator]:
    order: list[Operator] = []
    pending = [root]
    while pending:
        operator = pending.pop()
        order.append(operator)
        pending.extend(operator.inputs)
    order.reverse()
    return order


def _topmost(root: Operator) -> list[Operator]:
    """The operators from the root down to the first with two inputs; a join there may stream its output."""
    lazy = [root]
    while len(lazy[-1].inputs) == 1:
        lazy.append(lazy[-1].inputs[0])
    if isinstance(lazy[-1], JoinOperator):
        lazy[-1].is_topmost = True
    return lazy
