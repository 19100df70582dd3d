"""A box: one plan, running. Rows and a watermark go in, results come out ordered by ``valid_from``.

It knows no clock, no I/O and no Spark; whoever owns it decides what is late and when time advances. :class:`Box` is
what a query in force looks like from outside; :class:`PlanBox` runs one plan. A migration in progress is a box too (see
``midstream.migration``), so that it can itself be migrated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from midstream.algebra.plan import Plan
from midstream.algebra.windows import BEGINNING, NEVER
from midstream.engine.batch import Batch, concatenate
from midstream.engine.compile import Compiler
from midstream.engine.final_operator import FinalOperator
from midstream.engine.join import JoinOperator
from midstream.engine.materialize import MaterializeOperator
from midstream.engine.operator import Operator
from midstream.engine.ordered import lasting
from midstream.engine.row_store import RowStore
from midstream.engine.window import WindowOperator
from midstream.engine.window_store import InputBatches, WindowStore

__all__ = ["CHUNK_ROWS", "Box", "NumberOf", "PlanBox", "Rebuild"]

CHUNK_ROWS = 1 << 20
"""About how many results are in the making at once: enough to work on columns, few enough to bound the memory."""


NumberOf = Callable[[Plan], int]
"""Stands for a plan in a manifest: its place in a list that goes with it."""
Rebuild = Callable[["PlanBox", InputBatches], "PlanBox"]
"""Makes a box anew: with the same plan and watermark, from the rows given."""


class Box(ABC):
    """A query at work: a plan, or a migration between plans."""

    plan: Plan
    """The plan in force; during a migration, the one it leads to."""

    @abstractmethod
    def push(self, arrived: InputBatches, watermark: int) -> Iterator[Batch]:
        """The results that the rows and the watermark (which holds after them) cause, in order of ``valid_from``.

        The iterator must be exhausted before the next push.
        """

    @abstractmethod
    def boxes(self) -> Iterator[PlanBox]:
        """The plans that are running, the one in force last."""

    @abstractmethod
    def horizons(self) -> dict[str, int]:
        """For each window (by identity): rows that ended by then are not needed, not even to rebuild all state."""

    @abstractmethod
    def donor(self) -> PlanBox | None:
        """A plan all of whose states are what the rows so far make them, or None: a successor may take them over."""

    def release_buffered(self) -> list[Batch]:
        """The buffered results, to be emitted now; from now on none is buffered."""
        return []

    @abstractmethod
    def emit_open(self) -> list[Batch]:
        """The results of segments that are still open, up to where they are final, because the box is given up.

        Afterwards all that the outermost final operators give before their ``emitted_until`` has been emitted.
        """

    @abstractmethod
    def rebuilt(self, rebuild: Rebuild, rows: InputBatches) -> Box:
        """The same box with all derived state computed anew from the rows still in their windows."""

    @abstractmethod
    def manifest(self, number_of: NumberOf) -> dict[str, Any]:
        """All that is needed, besides the rows in their windows and the watermark, to make the box again: as JSON."""

    @abstractmethod
    def hold_final(self, until: int) -> None:
        """Let the outermost final operators go no further than this instant."""

    @abstractmethod
    def emitting(self) -> PlanBox:
        """The running plan whose final operators tell what has been emitted."""

    def parts(self) -> Iterator[Box]:
        """The box and those inside it."""
        yield self

    def successor(self) -> Box:
        """The box that goes on from here: another one when a migration has come to its end."""
        return self

    @property
    def is_migrating(self) -> bool:
        return True

    @property
    def buffered(self) -> int:
        """How many results are buffered."""
        return 0

    def metrics(self) -> list[dict[str, Any]]:
        """What each operator did and holds, inputs first."""
        return [operator.metrics() for box in self.boxes() for operator in box.operators]

    @property
    def state_rows(self) -> int:
        return sum(operator.state_rows for box in self.boxes() for operator in box.operators)

    @property
    def state_bytes(self) -> int:
        return sum(operator.state_bytes for box in self.boxes() for operator in box.operators)


class PlanBox(Box):
    """The operators of one plan and the order in which they work. ``stores`` are derived rows to be gone on with."""

    def __init__(
        self,
        plan: Plan,
        windows: WindowStore,
        chunk_rows: int = CHUNK_ROWS,
        stores: dict[str, list[RowStore]] | None = None,
    ) -> None:
        self.plan = plan
        self.windows = windows
        self.chunk_rows = chunk_rows
        self.watermark = BEGINNING
        self.completion_budget = 0
        """How many further old tuples incomplete states complete for each new one; 0: only what is asked for."""
        self.root = Compiler(windows, chunk_rows, stores or {}).compile(plan)
        self.operators = _inputs_first(self.root)
        self._lazy = _topmost(self.root)
        self._below_joins, self._from_joins_up = _divided_at_joins(self.operators)
        self.window_operators = [operator for operator in self.operators if isinstance(operator, WindowOperator)]
        self.final_operators = _outermost_final(self.root)
        """The outermost aggregates and differences; all operators above them are incremental."""
        self.final_limit = NEVER
        """Where ``hold_final`` holds them."""

    def push(self, arrived: InputBatches, watermark: int) -> Iterator[Batch]:
        for leaf in self.window_operators:
            if leaf.plan.identity in arrived:
                leaf.stage(arrived[leaf.plan.identity])
        self.advance(watermark)
        results = self._evaluate()
        yield from results if self.root.emits_in_order else self._in_order(results)
        self._complete_ahead(arrived)
        self._expire()

    def _complete_ahead(self, arrived: InputBatches) -> None:
        """Complete some of what incomplete states still lack, the lowest first: others can be computed from them."""
        if not self.completion_budget or not self.is_migrating:
            return
        budget = self.completion_budget * sum(len(batch) for batch in arrived.values())
        for join in self.joins():
            for side in join.sides:
                while side.incomplete is not None and budget > 0:
                    passed = side.incomplete.complete_ahead(budget)
                    budget -= passed
                    if passed == 0:
                        break

    @property
    def rows_completed(self) -> int:
        """Tuples that were computed to complete states."""
        return sum(side.rows_completed for join in self.joins() for side in join.sides)

    def advance(self, watermark: int) -> None:
        """Let time pass: move every operator's frontier."""
        self.watermark = watermark
        for operator in self.operators:
            operator.advance(watermark)

    def boxes(self) -> Iterator[PlanBox]:
        yield self

    def donor(self) -> PlanBox | None:
        return self

    def hold_final(self, until: int) -> None:
        self.final_limit = until
        for operator in self.final_operators:
            operator.limit = until
        self.advance(self.watermark)

    def emitting(self) -> PlanBox:
        return self

    @property
    def final_until(self) -> int:
        """No later row changes what the results are before this instant."""
        return self.root.final_until

    def emit_open(self) -> list[Batch]:
        outputs: dict[int, list[Batch]] = {id(o): list(o.emit_open()) for o in self.final_operators}
        if not outputs:
            return []
        for operator in self.operators:
            if id(operator) not in outputs:
                above = any(id(child) in outputs for child in operator.inputs)
                if above:
                    outputs[id(operator)] = list(
                        operator.push(*(outputs.get(id(child), []) for child in operator.inputs))
                    )
        return [lasting(batch) for batch in outputs[id(self.root)]]

    def rebuilt(self, rebuild: Rebuild, rows: InputBatches) -> PlanBox:
        box = rebuild(self, rows)
        box.completion_budget = self.completion_budget or box.completion_budget
        return box

    def manifest(self, number_of: NumberOf) -> dict[str, Any]:
        return {
            "kind": "plan",
            "plan": number_of(self.plan),
            "emits_from": [operator.emits_from for operator in self.final_operators],
            "completion_budget": self.completion_budget,
        }

    def horizons(self) -> dict[str, int]:
        needed = self._needed()
        horizons: dict[str, int] = {}
        for leaf in self.window_operators:
            identity = leaf.plan.identity
            horizons[identity] = min(needed[id(leaf)], horizons.get(identity, needed[id(leaf)]))
        return horizons

    def joins(self) -> list[JoinOperator]:
        """The joins, inputs first."""
        return [operator for operator in self.operators if isinstance(operator, JoinOperator)]

    def stores(self) -> list[MaterializeOperator]:
        """The stores of derived rows."""
        return [operator for operator in self.operators if isinstance(operator, MaterializeOperator)]

    @property
    def is_migrating(self) -> bool:
        """Whether states are still incomplete."""
        return any(side.incomplete is not None for join in self.joins() for side in join.sides)

    def _expire(self) -> None:
        """Let every operator drop what no later row can need."""
        needed = self._needed()
        for operator in self.operators:
            operator.expire(needed[id(operator)])

    def _needed(self) -> dict[int, int]:
        """For each operator: output that ended by then is not needed any more.

        An operator needs its input as long as it may still meet something, and its output as long as whoever is above
        needs it: the whole chain up to the root, because a state may have to be computed again from the windows.
        """
        needed = {id(self.root): self.final_until}
        for operator in reversed(self.operators):
            below = operator.needed_below(needed[id(operator)])
            for child in operator.inputs:
                needed[id(child)] = below
        return needed

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
            for join in reversed(self.joins()):
                join.request_old_tuples(outputs)

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


def _outermost_final(root: Operator) -> list[FinalOperator]:
    """The final operators with no other above them, from left to right."""
    found: list[FinalOperator] = []
    pending = [root]
    while pending:
        operator = pending.pop()
        if isinstance(operator, FinalOperator):
            found.append(operator)
        else:
            pending.extend(reversed(operator.inputs))
    return found


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
    """The operators from the root down to the first with two inputs; a join there may stream its output."""
    lazy = [root]
    while len(lazy[-1].inputs) == 1:
        lazy.append(lazy[-1].inputs[0])
    if isinstance(lazy[-1], JoinOperator):
        lazy[-1].is_topmost = True
    return lazy
