"""An executor of one plan, made of operators: everything but how the operators are arranged and run.

``PlanBox`` arranges them as a tree and runs them one after the other. Whatever else can compute the plan's results from
operators over the query's windows needs a root operator and a ``push``; states, progress, retention and recovery are
the same for all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

from midstream.algebra.plan import Plan
from midstream.algebra.window_spec import BEGINNING, NEVER
from midstream.engine.batch import Batch
from midstream.engine.operators.operator import Operator
from midstream.engine.operators.state_handle import StateHandle, StateInventory, StateKey
from midstream.engine.ordered import lasting
from midstream.engine.state.row_store import RowStore
from midstream.engine.state.window_store import InputBatches, WindowStore
from midstream.execution.executor import Executor, NumberOf, Rebuild
from midstream.execution.just_in_time import JustInTime
from midstream.execution.output_progress import OutputProgress, outermost_final_operators

__all__ = ["CHUNK_ROWS", "MakeExecutor", "PlanExecutor", "RowStores"]

CHUNK_ROWS = 1 << 20
"""About how many results are in the making at once: enough to work on columns, few enough to bound the memory."""

RowStores = Mapping[StateKey, list[RowStore]]
"""Stores of materialized rows, inherited from the previous plan."""
MakeExecutor = Callable[[Plan, WindowStore, int, RowStores, JustInTime | None], "PlanExecutor"]
"""Makes an executor for a plan, without rows: over these windows, with so many rows per chunk."""


class PlanExecutor(Executor):
    """An executor of one plan."""

    root: Operator
    """The operator whose output are the results."""

    def __init__(self, plan: Plan, windows: WindowStore, chunk_rows: int, root: Operator) -> None:
        self.plan = plan
        self.windows = windows
        self.chunk_rows = chunk_rows
        self.root = root
        self.operators = _inputs_first(root)
        """All operators, inputs first."""
        self.states_held = [state for operator in self.operators for state in operator.states()]
        self.final_operators = outermost_final_operators(root)
        self.watermark = BEGINNING
        self.final_limit = NEVER
        """Where ``hold_final`` holds the outermost final operators."""
        self.completion_budget = 0
        """How many further old tuples incomplete states complete for each new one; 0: only what is asked for."""
        self.runs_alone = False
        """Whether no other plan runs beside it, so that its states reflect all rows in their windows: of the boxes of a
        migration, one may have seen only some rows, or rows with other validities. Its owner says so."""

    @abstractmethod
    def empty(self) -> Self:
        """The same executor without rows, as it was when it was made."""

    def advance(self, watermark: int) -> None:
        """Let time pass, without rows: move every operator's frontier."""
        self.watermark = watermark
        for operator in self.operators:
            operator.advance(watermark)

    def reset_counters(self) -> None:
        """Forget what was counted while states were computed: it is no traffic, and a migration's record has it."""
        for operator in self.operators:
            operator.counters.reset()

    def boxes(self) -> Iterator[PlanExecutor]:
        yield self

    def states(self) -> StateInventory:
        inventory: dict[StateKey, list[StateHandle]] = {}
        for state in self.states_held:
            inventory.setdefault(state.state_key, []).append(state)
        return inventory

    def progress(self) -> OutputProgress:
        return OutputProgress(self.plan, self.operators, self.final_operators)

    def hold_final(self, until: int) -> None:
        self.final_limit = until
        for operator in self.final_operators:
            operator.limit = until
        self.advance(self.watermark)

    def skip_final(self, until: int) -> None:
        """Emit no final result as far as it is valid before this instant: another executor has emitted it."""
        for operator in self.final_operators:
            operator.emits_from = max(operator.emits_from, until)

    def emit_open(self) -> list[Batch]:
        outputs: dict[int, list[Batch]] = {id(o): list(o.emit_open()) for o in self.final_operators}
        if not outputs:
            return []
        for operator in self.operators:
            is_above = operator.depends_on_other_inputs or any(id(child) in outputs for child in operator.inputs)
            if is_above and id(operator) not in outputs:
                outputs[id(operator)] = list(operator.push(*(outputs.get(id(child), []) for child in operator.inputs)))
        return [lasting(batch) for batch in outputs[id(self.root)]]

    def rebuilt(self, rebuild: Rebuild, rows: InputBatches) -> PlanExecutor:
        return rebuild(self, rows)

    def manifest(self, number_of: NumberOf) -> dict[str, Any]:
        return {
            "kind": "plan",
            "plan": number_of(self.plan),
            "emits_from": [operator.emits_from for operator in self.final_operators],
            "completion_budget": self.completion_budget,
        }

    def horizons(self) -> dict[str, int]:
        needed = self.retention()
        horizons: dict[str, int] = {}
        for leaf in self.operators:
            if leaf.source is not None:
                horizons[leaf.source] = min(needed[id(leaf)], horizons.get(leaf.source, NEVER))
        return horizons

    @property
    def is_migrating(self) -> bool:
        """Whether states are still incomplete."""
        return any(not state.is_complete for state in self.states_held)

    def expire(self) -> None:
        """Let every operator drop what no later row can need."""
        needed = self.retention()
        for operator in self.operators:
            operator.expire(needed[id(operator)])

    def retention(self) -> dict[int, int]:
        """For each operator, by id: output that ended by then is not needed any more.

        An operator needs its input as long as it may still meet something, and its output as long as whoever is above
        needs it: the whole chain up to the root, because a state may have to be computed again from the windows.
        """
        needed = {id(self.root): self.root.final_until}
        for operator in reversed(self.operators):
            below = operator.needed_below(needed[id(operator)])
            for child in operator.inputs:
                needed[id(child)] = below
        return needed


def _inputs_first(root: Operator) -> list[Operator]:
    order: list[Operator] = []
    pending = [root]
    while pending:
        operator = pending.pop()
        order.append(operator)
        pending.extend(operator.evaluation_order)
    order.reverse()
    return order
