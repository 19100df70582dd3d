"""A plan box: the executor that runs a plan as a tree of operators, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from midstream.algebra.plan import Plan
from midstream.engine.batch import Batch, concatenate
from midstream.engine.operators.join import JoinOperator
from midstream.engine.operators.multi_join import MultiJoinOperator
from midstream.engine.operators.operator import Operator
from midstream.engine.operators.suspend import SuspendOperator
from midstream.engine.operators.window_source import WindowOperator
from midstream.engine.state.window_store import InputBatches, WindowStore
from midstream.execution.compiler import Compiler
from midstream.execution.executor import NumberOf
from midstream.execution.just_in_time import JustInTime
from midstream.execution.plan_executor import CHUNK_ROWS, PlanExecutor, RowStores

__all__ = ["PlanBox"]


class PlanBox(PlanExecutor):
    """The operators of one plan as the compiler arranges them, and the order in which they run."""

    def __init__(
        self,
        plan: Plan,
        windows: WindowStore,
        chunk_rows: int = CHUNK_ROWS,
        stores: RowStores | None = None,
        just_in_time: JustInTime | None = None,
    ) -> None:
        compiler = Compiler(windows, chunk_rows, stores or {}, just_in_time)
        super().__init__(plan, windows, chunk_rows, compiler.compile(plan))
        self.just_in_time = just_in_time
        self.joins = [operator for operator in self.operators if isinstance(operator, JoinOperator)]
        self._leaves = [operator for operator in self.operators if isinstance(operator, WindowOperator)]
        self._lazy = _topmost(self.root)
        self._below_joins, self._from_joins_up = _divided_at_joins(self.operators)
        if any(isinstance(operator, SuspendOperator) for operator in self.operators):
            # What is suspended below one join depends on the output of others.
            self._below_joins, self._from_joins_up = [], self.operators

    def empty(self) -> PlanBox:
        return PlanBox(self.plan, self.windows, self.chunk_rows, just_in_time=self.just_in_time)

    def push(self, arrived: InputBatches, watermark: int) -> Iterator[Batch]:
        for leaf in self._leaves:
            if leaf.source in arrived:
                leaf.stage(arrived[leaf.source])
        self.advance(watermark)
        results = self._evaluate()
        yield from results if self.root.emits_in_order else self._in_order(results)
        self._complete_ahead(arrived)
        self.expire()

    def manifest(self, number_of: NumberOf) -> dict[str, Any]:
        options = None if self.just_in_time is None else self.just_in_time.as_json()
        return super().manifest(number_of) | {"just_in_time": options}

    @property
    def rows_completed(self) -> int:
        return sum(side.rows_completed for join in self.joins for side in join.sides)

    def _complete_ahead(self, arrived: InputBatches) -> None:
        """Complete some of what incomplete states still lack, the lowest first: others can be computed from them."""
        if not self.is_migrating:
            return
        budget = self.completion_budget * sum(len(batch) for batch in arrived.values())
        for join in self.joins:
            for side in join.sides:
                if side.incomplete is not None:
                    side.incomplete.counts_keys = self.completion_budget == 0
                while side.incomplete is not None and budget > 0:
                    passed = side.incomplete.complete_ahead(budget)
                    budget -= passed
                    if passed == 0:
                        break

    def _evaluate(self) -> Iterator[Batch]:
        """Run the operators one after the other, so that the depth of a plan is no depth of calls.

        The topmost ones are run lazily: their output is the bulk, and goes straight to whoever asks.
        """
        outputs: dict[int, list[Batch] | Iterator[Batch]] = {}
        for operator in self._below_joins:
            outputs[id(operator)] = list(operator.push(*(outputs.pop(id(child)) for child in operator.inputs)))
        self._request_old_tuples(outputs)
        for operator in self._from_joins_up:
            produced = operator.push(*(outputs.pop(id(child)) for child in operator.inputs))
            outputs[id(operator)] = produced if operator in self._lazy else list(produced)
        yield from outputs[id(self.root)]

    def _request_old_tuples(self, outputs: dict[int, Any]) -> None:
        """Incomplete states are asked for all keys of the push, from the root down, before any is completed."""
        if self.is_migrating:
            for join in reversed(self.joins):
                join.request_old_tuples(outputs)

    def _in_order(self, results: Iterator[Batch]) -> Iterator[Batch]:
        together = concatenate(self.root.layout, list(results)).in_order()
        for start in range(0, len(together), self.chunk_rows):
            yield together.sliced(start, min(len(together), start + self.chunk_rows))


def _divided_at_joins(operators: list[Operator]) -> tuple[list[Operator], list[Operator]]:
    """The operators with a join above them and none below, and the others; both inputs first."""
    with_joins: set[int] = set()
    for operator in operators:
        if isinstance(operator, JoinOperator) or any(id(child) in with_joins for child in operator.inputs):
            with_joins.add(id(operator))
    if not with_joins:
        return [], operators
    return (
        [operator for operator in operators if id(operator) not in with_joins],
        [operator for operator in operators if id(operator) in with_joins],
    )


def _topmost(root: Operator) -> list[Operator]:
    """The operators from the root down to the first with several inputs; a join there may stream its output."""
    lazy = [root]
    while len(lazy[-1].inputs) == 1:
        lazy.append(lazy[-1].inputs[0])
    if isinstance(lazy[-1], JoinOperator | MultiJoinOperator):
        lazy[-1].is_topmost = True
    return lazy
