"""State matching: a new plan adopts states of the old one, rebuilds them from the windows, or completes them later.

This is the common core of moving state and JISC, and of recovery, which matches a plan with nothing but the windows.
States are matched by their handles (``engine/operators/state_handle``), whichever executors hold them. Operators are
visited from the root down. Each state is adopted from the old plan, if that has one with the same key; otherwise it is
rebuilt from the *history* of its inputs: the output that they have emitted and that may still count. A window's history
are its rows, a join's all pairs of its two states; distinct, aggregates and differences give theirs while they are
rebuilt from the history of their own inputs.

**Why no result is emitted twice and none is left out.** Consider the outermost final operators F1 … Fn of a plan (see
``engine/operators/final_operator``). Call the part of the plan above them its *top part*. Its operators are
incremental, so what the plan has emitted is the top part, evaluated on what each Fi has emitted and on all rows seen so
far. All plans of a query have the same top part, in different shapes. So two plans have emitted the same if their final
operators have, and two cases are enough:

1. *The same operators, equally far.* Each Fi of the new plan has a counterpart in the old one: in the same place of the
   top part, with the same operators below it and equal ``final_until``. What a final operator has emitted depends only
   on the rows, ``final_until`` and ``emits_from``, so the counterparts have emitted the same, whether the new one
   adopts its state or computes it from the rows. The new plan continues where the old one is. Recovery is this
   case: the plans are equal.
2. *Other operators.* An Fi without counterpart (a partial aggregate was pushed below a join, differences were
   reordered) may be final up to an earlier or later instant than those it replaces. Let T be the earliest of the old
   operators' ``emitted_until`` and of the windows' frontiers. An old operator without counterpart must be exactly at T,
   otherwise the change is refused: it would have emitted what its successor cannot know yet. Then the old plan emits
   its open segments, so that each of its final operators has emitted everything before its ``emitted_until`` and
   nothing after it. The successor gets ``emits_from`` = T, counterparts keep their ``emitted_until``. Whatever arrives
   from now on, rows and segments alike, begins at T or later, so it never meets what was emitted before T, and nothing
   of that has to be handed over. What the successor knows beyond T, it emits at once. It never adopts a state, not even
   of an equal operator in another place of the old plan: that may have been swept beyond T.

Between two pushes this holds for every executor, also for a migration in progress: of GenMig's two plans, the new one
has emitted nothing final before the split time, so that the old one's progress is the whole (``Executor.progress``).
Hence the argument holds for overlapped migrations. ``emits_from`` is part of the manifest, hence it holds for recovery
in and after them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from midstream.algebra.plan import Aggregate, Alias, Difference, Leaf, Plan, Union
from midstream.algebra.window_spec import BEGINNING, NEVER
from midstream.engine.batch import Batch
from midstream.engine.operators.final_operator import FinalOperator
from midstream.engine.operators.operator import EmissionType, Operator
from midstream.engine.operators.state_handle import StateHandle, StateInventory, StateKey
from midstream.engine.ordered import lasting
from midstream.engine.state.row_store import RowStore
from midstream.engine.state.window_store import InputBatches, WindowStore
from midstream.errors import MigrationRefused, quoted
from midstream.execution.executor import Executor
from midstream.execution.output_progress import OutputProgress
from midstream.execution.plan_executor import PlanExecutor, RowStores
from midstream.migration.old_tuples import OldTupleIndex
from midstream.migration.record import MigrationRecord
from midstream.migration.strategy import MigrationContext

__all__ = ["COMPLETION_BUDGET", "Completion", "final_places", "rebuilt", "reordered", "take_over"]

COMPLETION_BUDGET = 2
"""Old tuples completed beyond what is asked for, for each new row: a fraction of what the new row costs."""


class Completion(enum.Enum):
    """When states are computed that the old plan did not have. The values are the names of the strategies."""

    EAGER = "moving-state"
    """At once."""
    LAZY = "jisc"
    """On demand, as far as joins are concerned."""


def take_over(
    context: MigrationContext, completion: Completion, budget: int = COMPLETION_BUDGET
) -> tuple[PlanExecutor, list[Batch]]:
    """An executor of the new plan, with its states; and the results that are to be emitted now."""
    old = context.old
    matching = _StateMatching(
        context.make, old.progress(), old.states(), context.windows, context.watermark, completion, budget
    )
    new = matching.new
    if matching.continues_exactly:
        results = old.release_buffered()
        matching.begin_at(NEVER)
    else:
        begins_at = matching.common_end()
        results = old.emit_open()
        matching.begin_at(begins_at)
    matching.bring_states(context.windows.alive_in, context.record)
    if new.progress().emission is not EmissionType.INCREMENTAL:
        # What the new plan knows to be final beyond the old one is emitted now.
        new.hold_final(NEVER)
        results += [lasting(batch) for batch in new.push({}, context.watermark)]
    return new, results


def rebuilt(
    executor: Executor, completion: Completion, windows: WindowStore, rows: InputBatches, record: MigrationRecord
) -> Executor:
    """The executor as it is, with all its derived state computed anew from the rows."""

    def rebuild(old: PlanExecutor, rows: InputBatches) -> PlanExecutor:
        budget = old.completion_budget or COMPLETION_BUDGET
        matching = _StateMatching(
            lambda stores: old.empty(), old.progress(), {}, windows, old.watermark, completion, budget
        )
        assert matching.continues_exactly
        matching.continue_as(old)
        matching.bring_states(rows.__getitem__, record)
        return matching.new

    return executor.rebuilt(rebuild, rows)


def reordered(
    old: PlanExecutor, make: Callable[[RowStores], PlanExecutor], completion: Completion, record: MigrationRecord
) -> PlanExecutor | None:
    """An executor that continues exactly where the old one is, in another join order; None if it could not.

    Between two pushes, or at the end of one; nothing is emitted.
    """
    budget = old.completion_budget or COMPLETION_BUDGET
    matching = _StateMatching(make, old.progress(), old.states(), old.windows, old.watermark, completion, budget)
    if not matching.continues_exactly:
        return None
    matching.continue_as(old)
    matching.bring_states(old.windows.alive_in, record)
    return matching.new


class _StateMatching:
    """Makes the new executor and brings its states.

    ``old`` says what has been emitted, ``inventory`` which states may be adopted.
    """

    def __init__(
        self,
        make: Callable[[RowStores], PlanExecutor],
        old: OutputProgress,
        inventory: StateInventory,
        windows: WindowStore,
        watermark: int,
        completion: Completion,
        budget: int,
    ) -> None:
        self._old = old
        self._name = completion.value
        self._completion = completion
        keys = [operator.state_key for operator in old.final_operators]
        # Equal operators in different places may be differently far, and so may be all that is above them.
        usable = inventory if len(set(keys)) == len(keys) else {}
        self._donors = {key: list(states) for key, states in usable.items()}
        self._watermark = watermark
        self.new, self._present = self._with_inherited_stores(make)
        self.new.completion_budget = budget if completion is Completion.LAZY else 0
        # A state purged further than the slowest input, or than results are final, cannot serve for computing others.
        frontiers = (
            child.frontier for state in self.new.states_held if not state.shapes_output for child in state.inputs
        )
        self._retention = min([old.final_until, *frontiers])
        self._predecessors = self._matched_final_operators()
        self._outermost = {id(operator) for operator in self.new.final_operators}
        self._adopted: dict[int, StateHandle] = {}
        self._old_tuples = OldTupleIndex(self._donor, windows.latest_end)
        assert len(self.new.final_operators) == len(keys), "all plans of a query have the same top part"

    @property
    def continues_exactly(self) -> bool:
        """Whether all final operators are those of the old plan, and as far."""
        old, new = self._old.final_operators, self.new.final_operators
        return len(self._predecessors) == len(old) == len(new)

    def common_end(self) -> int:
        """The instant up to which the old plan has emitted everything, and the new one may begin.

        Raises ``MigrationRefused`` if operators without counterpart have emitted more than that.
        """
        end = self._old.emitted_until
        kept = {id(operator) for operator in self._predecessors.values()}
        ahead = [
            operator
            for operator in self._old.final_operators
            if id(operator) not in kept and operator.emitted_until > end
        ]
        if ahead:
            raise MigrationRefused(
                f"{self._name} cannot replace a plan whose results are final up to different instants",
                detail=f"{quoted(sorted({operator.name for operator in ahead}))} of the old plan would be replaced by "
                "an operator that cannot know yet what has been emitted.",
                hint="Use gen-mig, or try again when the watermark has moved on.",
            )
        return end

    def begin_at(self, instant: int) -> None:
        """Let final operators continue where their predecessors are; those without one, at the instant."""
        for operator in self.new.final_operators:
            predecessor = self._predecessors.get(id(operator))
            operator.emits_from = instant if predecessor is None else predecessor.emits_from
            operator.limit = instant if predecessor is None else predecessor.final_until
        self.new.advance(self._watermark)

    def continue_as(self, old: PlanExecutor) -> None:
        """Let final operators continue exactly where those of an executor are."""
        for operator in self.new.final_operators:
            operator.emits_from = self._predecessors[id(operator)].emits_from
        self.new.hold_final(old.final_limit)

    def bring_states(self, rows_of: Callable[[str], Batch], record: MigrationRecord) -> None:
        """Let all operators adopt or rebuild their states. ``rows_of`` gives the rows of a window by its identity."""
        self._choose_donors(self.new.root, False)
        self._bring(self.new.root, False, rows_of, record)
        self.new.reset_counters()

    # Which states there are

    def _matched_final_operators(self) -> dict[int, FinalOperator]:
        """The outermost final operators of the new plan that stand in the same place of the old one, as far: by id.

        What they emit from now on begins where the old one's ended.
        """
        pairs = zip(self.new.final_operators, self._in_the_same_places(), strict=True)
        return {
            id(new): old
            for new, old in pairs
            if old is not None
            and new.state_key == old.state_key
            and old.serves(new, NEVER)
            and _has_the_same_below(new, old)
        }

    def _in_the_same_places(self) -> list[FinalOperator | None]:
        """For each outermost final operator of the new plan, the one in the same place of the old plan."""
        old = self._old.final_operators
        if self._old.plan == self.new.plan:
            return list(old)
        by_place: dict[tuple[object, ...], list[FinalOperator]] = {}
        for place, operator in zip(final_places(self._old.plan), old, strict=True):
            by_place.setdefault(place, []).append(operator)
        found = [by_place.get(place, []) for place in final_places(self.new.plan)]
        return [there[0] if len(there) == 1 else None for there in found]

    def _with_inherited_stores(self, make: Callable[[RowStores], PlanExecutor]) -> tuple[PlanExecutor, set[int]]:
        """The new executor, and which of its operators are as the old plan's (see ``_operators_present``).

        It inherits the old plan's stores of materialized rows where these hold all rows: an operator below one may be
        further in the new plan than it was in the old one, and then has emitted rows that are not in the store.
        """
        stores: dict[StateKey, list[RowStore]] = {}
        for key, states in self._donors.items():
            kept = [state.row_store for state in states if state.row_store is not None]
            if kept:
                stores[key] = kept
        while True:
            new = make({key: list(kept) for key, kept in stores.items()})
            new.advance(self._watermark)
            present = self._operators_present(
                new,
                lambda state: (
                    state.is_inherited
                    or any(donor.serves(state, NEVER) for donor in self._donors.get(state.state_key, ()))
                ),
            )
            behind = {
                state.state_key
                for operator in new.operators
                for state in operator.states()
                if state.is_inherited and id(operator) not in present
            }
            if not behind:
                return new, present
            stores = {key: kept for key, kept in stores.items() if key not in behind}

    @staticmethod
    def _operators_present(new: PlanExecutor, is_there: Callable[[StateHandle], bool]) -> set[int]:
        """Operators below which, themselves included, every state that shapes the output is there."""
        present: set[int] = set()
        for operator in new.operators:
            below = all(id(child) in present for child in operator.inputs)
            if below and all(is_there(state) for state in operator.states() if state.shapes_output):
                present.add(id(operator))
        return present

    # Who gets which

    def _donor(self, state: StateHandle) -> StateHandle | None:
        """A state of the old plan that may be adopted; of outermost final operators only the predecessor's."""
        donors = self._donors.get(state.state_key, [])
        if not all(id(child) in self._present for child in state.inputs):
            return None
        if id(state) in self._outermost:
            predecessor = self._predecessors.get(id(state))
            return predecessor if any(donor is predecessor for donor in donors) else None
        return next((donor for donor in donors if donor.serves(state, self._retention)), None)

    def _choose_donors(self, operator: Operator, wanted: bool) -> None:
        """Choose for each state whether it is adopted, and from whom. ``wanted``: the operator's history is needed."""
        for states in _by_inputs(operator):
            for state in states:
                donor = self._donor(state) if state.gives_history or not wanted else None
                if donor is not None:
                    self._donors[state.state_key].remove(donor)
                    self._adopted[id(state)] = donor
            is_needed = any(self._is_rebuilt(state, wanted) for state in states)
            for child in states[0].inputs:
                self._choose_donors(child, is_needed)
        if not operator.states():
            for child in operator.inputs:
                self._choose_donors(child, wanted)

    def _is_rebuilt(self, state: StateHandle, wanted: bool) -> bool:
        """Whether the state is computed at once from what its inputs have emitted."""
        is_there = id(state) in self._adopted or state.is_inherited
        return not is_there and not self._is_completed_later(state, wanted)

    def _is_completed_later(self, state: StateHandle, wanted: bool) -> bool:
        return self._completion is Completion.LAZY and state.can_be_completed_later and not wanted

    def _bring(
        self, operator: Operator, wanted: bool, rows_of: Callable[[str], Batch], record: MigrationRecord
    ) -> list[Batch]:
        """Bring the states of the operator and of all below it; its history, if wanted."""
        if operator.source is not None:
            rows = rows_of(operator.source) if wanted else None
            return [rows] if rows is not None and len(rows) else []
        states = operator.states()
        if not states:
            histories = [self._bring(child, wanted, rows_of, record) for child in operator.inputs]
            output = list(operator.push(*histories)) if wanted else []
            # As after any push: whoever is above has got the output, and nothing of it is in transit.
            operator.expire(BEGINNING)
            return output
        history: list[Batch] = []
        for group in _by_inputs(operator):
            # All states of the same inputs are rebuilt from one history.
            is_needed = any(self._is_rebuilt(state, wanted) for state in group)
            inputs = [self._bring(child, is_needed, rows_of, record) for child in group[0].inputs]
            if is_needed:
                record.rows_recomputed += sum(len(batch) for batches in inputs for batch in batches)
            for state in group:
                history += self._bring_state(state, wanted, inputs, record)
        if not wanted:
            return []
        return operator.history() if states[0].gives_history else history

    def _bring_state(
        self, state: StateHandle, wanted: bool, inputs: list[list[Batch]], record: MigrationRecord
    ) -> list[Batch]:
        """Bring one state, given the history of its inputs; its operator's history, where the state gives none."""
        history: list[Batch] = []
        donor = self._adopted.get(id(state))
        is_completed_later = donor is None and self._is_completed_later(state, wanted)
        if donor is not None:
            state.adopt(donor)
            record.states_shared += 1
        elif is_completed_later:
            self._old_tuples.complete_later(state)
            record.states_incomplete += 1
        elif self._is_rebuilt(state, wanted):
            history += state.rebuild(*inputs)
        if self._completion is Completion.EAGER or wanted or not state.may_lack_tuples:
            state.complete()
        if self._completion is Completion.LAZY and not is_completed_later:
            self._old_tuples.note(state)
        return history


def _by_inputs(operator: Operator) -> list[list[StateHandle]]:
    """The operator's states, those that are computed from the same inputs together."""
    groups: dict[tuple[int, ...], list[StateHandle]] = {}
    for state in operator.states():
        groups.setdefault(tuple(id(child) for child in state.inputs), []).append(state)
    return list(groups.values())


def _has_the_same_below(new: Operator, old: Operator) -> bool:
    """Whether every state below the new operator that shapes its output is below the old one, too, and as far.

    Another part of the old plan may have equal operators, but says nothing about what this one has emitted.
    """
    known: dict[StateKey, list[StateHandle]] = {}
    for operator in _all_below(old):
        for state in operator.states():
            known.setdefault(state.state_key, []).append(state)
    return all(
        state.row_store is not None or any(other.serves(state, NEVER) for other in known.get(state.state_key, ()))
        for operator in _all_below(new)
        for state in operator.states()
        if state.shapes_output
    )


def _all_below(operator: Operator) -> list[Operator]:
    """The operators below one."""
    found: list[Operator] = []
    pending = list(operator.inputs)
    while pending:
        found.append(pending.pop())
        pending.extend(found[-1].inputs)
    return found


def final_places(plan: Plan) -> list[tuple[object, ...]]:
    """Where the outermost final operators stand in the query, from left to right.

    A place is made of the subqueries and the sides of unions around the operator, and the relations below it. It is the
    same in every plan, whatever the join order.
    """
    found: list[tuple[object, ...]] = []
    pending: list[tuple[Plan, tuple[object, ...]]] = [(plan, ())]
    while pending:
        node, around = pending.pop()
        if isinstance(node, Aggregate | Difference):
            found.append((*around, _relations(node)))
            continue
        for side, child in reversed(list(enumerate(node.inputs))):
            step = (side,) if isinstance(node, Union) else (node.name,) if isinstance(node, Alias) else ()
            pending.append((child, around + step))
    return found


def _relations(plan: Plan) -> frozenset[str]:
    """The FROM items that the plan reads, of its own query, not of subqueries."""
    if isinstance(plan, Alias):
        return frozenset([plan.name])
    if isinstance(plan, Leaf):
        return plan.relations
    return frozenset().union(*(_relations(child) for child in plan.inputs))
