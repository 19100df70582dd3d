"""A new plan takes over: its states are shared with the old plan, computed from the windows, or left to be completed.

This is the common core of moving state and JISC, and of recovery, which matches a plan with nothing but the windows.
Operators are visited from the root down. Each gets its state: by adopting the one of an operator with the same state
key in the old plan; otherwise from the *history* of its inputs, the output that they have emitted and that may still
count. A window's history are its rows, a join's all pairs of its two states; distinct, aggregates and differences give
theirs while they are fed the history of their own inputs.

**Why no result is emitted twice and none is left out.** Consider the outermost final operators F1 … Fn of a plan (see
``engine/final_operator``). The operators above them are incremental, so what the plan has emitted is the query's top
part, evaluated on what each Fi has emitted and on all rows seen so far. All plans of a query have the same top part, in
different shapes. So two plans have emitted the same if their final operators have, and two cases are enough:

1. *The same operators, equally far.* Each Fi of the new plan has a counterpart in the old one: in the same place of the
   top part, with the same operators below it and equal ``final_until``. What a final operator has emitted depends only
   on the rows, ``final_until`` and ``emits_from``, so the counterparts have emitted the same, whether the new one
   adopts its state or computes it from the rows. The new plan continues where the old one stands. Recovery is this
   case: the plans are equal.
2. *Other operators.* An Fi without counterpart (a partial aggregate was pushed below a join, differences were
   reordered) may know less or more of the future than those it replaces. First the old plan emits its open segments, so
   that each of its final operators has emitted everything before its ``emitted_until`` and nothing after it. Let T be
   the earliest of these instants and of the windows' frontiers. An old operator without counterpart must stand exactly
   at T, otherwise the change is refused: it would have emitted what its successor cannot know yet. The successor gets
   ``emits_from`` = T, counterparts keep their ``emitted_until``. Whatever arrives from now on, rows and segments alike,
   begins at T or later, so it never meets what was emitted before T, and nothing of that has to be handed over. What
   the successor knows beyond T, it emits at once. It never adopts a state, not even of an equal operator in another
   place of the old plan: that may have been swept beyond T.

Between two pushes every box is in such a state, also one whose migration is under way: of GenMig's two plans, the new
one has emitted nothing final before the split time, so the old one tells how far results are (``Box.emitting``). Hence
the argument holds for overlapped migrations. ``emits_from`` is part of a box's manifest, hence it holds for recovery
in and after them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from midstream.algebra.plan import Aggregate, Alias, Difference, Plan, Union, Window
from midstream.algebra.windows import NEVER
from midstream.engine.batch import Batch, concatenate
from midstream.engine.box import Box, PlanBox
from midstream.engine.final_operator import FinalOperator
from midstream.engine.join import JoinOperator
from midstream.engine.join_side import JoinSide, KeyColumn
from midstream.engine.join_state import JoinState
from midstream.engine.kernels import Ints
from midstream.engine.materialize import MaterializeOperator
from midstream.engine.operator import Operator
from midstream.engine.ordered import lasting
from midstream.engine.row_store import RowStore
from midstream.engine.state_completion import CompleteState, IncompleteState, OldTuples
from midstream.engine.stateless import SelectOperator
from midstream.engine.window import WindowOperator
from midstream.engine.window_store import InputBatches
from midstream.errors import MigrationRefused, quoted
from midstream.migration.record import MigrationRecord
from midstream.migration.strategy import MigrationContext

__all__ = ["Completion", "rebuilt", "take_over"]

COMPLETION_BUDGET = 2
"""Old tuples completed beyond what is asked for, for each new row: a fraction of what the new row costs."""


class Completion(enum.Enum):
    """When states are computed that the old plan did not have. The values are the names of the strategies."""

    EAGER = "moving-state"
    """At once."""
    LAZY = "jisc"
    """On demand, as far as joins are concerned."""


def take_over(context: MigrationContext, completion: Completion) -> tuple[PlanBox, list[Batch]]:
    """The new plan, with its states; and the results that are to be emitted now."""
    old = context.old
    matching = _StateMatching(context.plan, context, old.donor(), completion)
    box = matching.box
    if matching.continues_exactly:
        results = old.release_buffered()
        begins_at = NEVER
    else:
        begins_at = matching.common_end()
        results = old.emit_open()
    matching.begin_at(begins_at)
    matching.bring_states()
    if box.final_operators:
        box.hold_final(NEVER)
        results += [lasting(batch) for batch in box.push({}, context.watermark)]
    return box, results


def rebuilt(box: Box, completion: Completion, rows: InputBatches, record: MigrationRecord) -> Box:
    """The box as it is, with all its derived state computed anew from the rows."""

    def rebuild(plan_box: PlanBox, rows: InputBatches) -> PlanBox:
        context = MigrationContext(
            plan_box, plan_box.plan, plan_box.windows, plan_box.watermark, plan_box.chunk_rows, record, rows
        )
        matching = _StateMatching(plan_box.plan, context, None, completion)
        assert matching.continues_exactly
        for new, old in zip(matching.box.final_operators, plan_box.final_operators, strict=True):
            new.emits_from = old.emits_from
        matching.box.hold_final(plan_box.final_limit)
        matching.bring_states()
        return matching.box

    return box.rebuilt(rebuild, rows)


class _StateMatching:
    """Builds the new box and gives its operators their states."""

    def __init__(self, plan: Plan, context: MigrationContext, donor: PlanBox | None, completion: Completion) -> None:
        self._emitting = context.old.emitting()
        keys = [operator.state_key for operator in self._emitting.final_operators]
        if len(set(keys)) < len(keys):
            # Equal operators in different places may be differently far, and so may be all that is above them.
            donor = None
        self._sides: dict[tuple[str, tuple[str, ...]], list[JoinSide]] = {}
        self._operators: dict[tuple[str, ...], list[Operator]] = {}
        if donor is not None:
            for join in donor.joins():
                for side in join.sides:
                    self._sides.setdefault(side.state_key, []).append(side)
            for operator in donor.operators:
                if operator.state_key is not None:
                    self._operators.setdefault(operator.state_key, []).append(operator)
        self.box, self._whole = self._with_stores_of(donor, plan, context)
        self.box.completion_budget = COMPLETION_BUDGET if completion is Completion.LAZY else 0
        self._context = context
        self._record = context.record
        self._completion = completion
        self._ends = context.windows.latest_end
        # A state purged further than the slowest input, or than results are final, cannot serve for computing others.
        frontiers = (child.frontier for join in self.box.joins() for child in join.inputs)
        self._least = min(frontiers, default=NEVER)
        self._least = min(self._least, self._emitting.final_until)
        self._old_tuples: dict[tuple[int, tuple[str, ...]], OldTuples] = {}
        self._predecessors = self._matched_final_operators()
        self._outermost = {id(operator) for operator in self.box.final_operators}
        self._adopted: dict[int, Operator] = {}
        self._shared: dict[int, JoinSide] = {}
        assert len(self.box.final_operators) == len(keys), "all plans of a query have the same top part"

    @property
    def continues_exactly(self) -> bool:
        """Whether all final operators are those of the old plan, and as far."""
        old, new = self._emitting.final_operators, self.box.final_operators
        return len(self._predecessors) == len(old) == len(new)

    def common_end(self) -> int:
        """The instant up to which the old plan has emitted everything, and the new one may begin.

        Raises ``MigrationRefused`` if operators without counterpart have emitted more than that.
        """
        old = self._emitting.final_operators
        end = min(operator.emitted_until for operator in old) if old else NEVER
        end = min(end, *(operator.frontier for operator in self._emitting.window_operators))
        kept = {id(operator) for operator in self._predecessors.values()}
        ahead = [operator for operator in old if id(operator) not in kept and operator.emitted_until > end]
        if ahead:
            raise MigrationRefused(
                f"{self._completion.value} cannot replace a plan whose results are final up to different instants",
                detail=f"{quoted(sorted({operator.name for operator in ahead}))} of the old plan would be replaced by "
                "an operator that cannot know yet what has been emitted.",
                hint="Use gen-mig, or try again when the watermark has moved on.",
            )
        return end

    def begin_at(self, instant: int) -> None:
        """Let final operators stand where their predecessors do; those without one, at the instant."""
        for operator in self.box.final_operators:
            predecessor = self._predecessors.get(id(operator))
            operator.emits_from = instant if predecessor is None else predecessor.emits_from
            operator.limit = instant if predecessor is None else predecessor.final_until
        self.box.advance(self._context.watermark)

    def bring_states(self) -> None:
        """Give all operators their states."""
        self._decide(self.box.root, False)
        self.bring(self.box.root, False)

    def _matched_final_operators(self) -> dict[int, FinalOperator]:
        """The outermost final operators of the new plan that stand in the same place of the old one, as far: by id.

        What they emit from now on begins where the old one's ended.
        """
        known: dict[tuple[str, ...], list[Operator]] = {}
        for operator in self._emitting.operators:
            if operator.state_key is not None:
                known.setdefault(operator.state_key, []).append(operator)
        alike = self._present_in(self.box, known, with_stores=False)
        pairs = zip(self.box.final_operators, self._in_the_same_places(), strict=True)
        return {
            id(new): old
            for new, old in pairs
            if old is not None and new.state_key == old.state_key and _as_far(new, old) and id(new) in alike
        }

    def _in_the_same_places(self) -> list[FinalOperator | None]:
        """For each outermost final operator of the new plan, the one in the old plan that stands in its place."""
        old = self._emitting.final_operators
        if self._emitting.plan == self.box.plan:
            return list(old)
        by_place: dict[tuple[object, ...], list[FinalOperator]] = {}
        for place, operator in zip(_places(self._emitting.plan), old, strict=True):
            by_place.setdefault(place, []).append(operator)
        found = [by_place.get(place, []) for place in _places(self.box.plan)]
        return [there[0] if len(there) == 1 else None for there in found]

    def _with_stores_of(self, donor: PlanBox | None, plan: Plan, context: MigrationContext) -> tuple[PlanBox, set[int]]:
        """The new box, and which of its operators are as the donor's (see ``_present_in``).

        It continues the donor's stores of derived rows where these hold all rows: an operator below one may be further
        in the new plan than it was in the old one, and then has emitted rows that are not in the store.
        """
        kept = [] if donor is None else donor.stores()
        while True:
            stores: dict[str, list[RowStore]] = {}
            for store in kept:
                stores.setdefault(store.key, []).append(store.store)
            box = PlanBox(plan, context.windows, context.chunk_rows, stores)
            box.advance(context.watermark)
            present = self._present_in(box, self._operators)
            behind = {store.key for store in box.stores() if store.was_there and id(store) not in present}
            if not behind:
                return box, present
            kept = [store for store in kept if store.key not in behind]

    @staticmethod
    def _present_in(
        box: PlanBox, known: Mapping[tuple[str, ...], list[Operator]], with_stores: bool = True
    ) -> set[int]:
        """Operators below which, themselves included, every state but those of joins is among the known ones."""
        present: set[int] = set()
        for operator in box.operators:
            if not all(id(child) in present for child in operator.inputs):
                continue
            if operator.state_key is not None:
                is_there = any(_as_far(operator, other) for other in known.get(operator.state_key, ()))
            else:
                is_there = not (with_stores and isinstance(operator, MaterializeOperator)) or operator.was_there
            if is_there:
                present.add(id(operator))
        return present

    def _counterpart(self, operator: Operator) -> Operator | None:
        """The operator whose state may be adopted; of outermost final operators only the predecessor's."""
        donors = self._operators.get(operator.state_key or (), [])
        if id(operator) in self._outermost:
            predecessor = self._predecessors.get(id(operator))
            return predecessor if any(donor is predecessor for donor in donors) else None
        return next((donor for donor in donors if _as_far(operator, donor)), None)

    def _decide(self, operator: Operator, wanted: bool) -> None:
        """Choose for each operator whether its state is adopted. ``wanted``: somebody above needs its history."""
        if isinstance(operator, JoinOperator):
            for side, child in _sides_of(operator):
                donors = self._sides.get(side.state_key, [])
                found = next((d for d in donors if self._serves(d, side)), None)
                if found is not None and id(child) in self._whole:
                    donors.remove(found)
                    self._shared[id(side)] = found
                    self._decide(child, False)
                else:
                    self._decide(child, self._completion is Completion.EAGER or wanted or _join_below(child) is None)
            return
        if isinstance(operator, MaterializeOperator):
            self._decide(operator.inputs[0], not operator.was_there)
            return
        if operator.state_key is not None:
            counterpart = self._counterpart(operator)
            if counterpart is not None and not wanted and id(operator) in self._whole:
                self._operators[operator.state_key].remove(counterpart)
                self._adopted[id(operator)] = counterpart
            else:
                wanted = True
            for child in operator.inputs:
                self._decide(child, wanted)
            return
        for child in operator.inputs:
            self._decide(child, wanted)

    def _serves(self, donor: JoinSide, side: JoinSide) -> bool:
        """Whether the donor's state holds all that the side needs, and refers to the same stores."""
        same_stores = all(a is b for a, b in zip(donor.layout.stores, side.layout.stores, strict=True))
        return same_stores and donor.state.frontier <= self._least

    def bring(self, operator: Operator, wanted: bool) -> list[Batch]:
        """Give the operator and all below it their states; its history, if wanted."""
        if isinstance(operator, WindowOperator):
            if not wanted:
                return []
            identity = operator.plan.identity
            rows = (
                self._context.windows.alive_in(identity) if self._context.rows is None else self._context.rows[identity]
            )
            return [rows] if len(rows) else []
        if isinstance(operator, JoinOperator):
            return self._bring_join(operator, wanted)
        if isinstance(operator, MaterializeOperator) and operator.was_there:
            self.bring(operator.inputs[0], False)
            return [operator.everything()] if wanted else []
        if id(operator) in self._adopted:
            operator.adopt(self._adopted[id(operator)])
            self._record.states_shared += 1
            for child in operator.inputs:
                self.bring(child, False)
            return []
        if operator.state_key is not None or isinstance(operator, MaterializeOperator):
            histories = [self.bring(child, True) for child in operator.inputs]
            self._record.rows_recomputed += sum(len(batch) for history in histories for batch in history)
            replay = operator.replay if isinstance(operator, FinalOperator) else operator.push
            return list(replay(*histories))
        histories = [self.bring(child, wanted) for child in operator.inputs]
        return list(operator.push(*histories)) if wanted else []

    def _bring_join(self, join: JoinOperator, wanted: bool) -> list[Batch]:
        for side, child in _sides_of(join):
            donor = self._shared.get(id(side))
            if donor is not None:
                self.bring(child, False)
                side.state, side.incomplete = donor.state.copy(), donor.incomplete
                self._record.states_shared += 1
            elif self._completion is Completion.LAZY and _join_below(child) is not None and not wanted:
                self.bring(child, False)
                incomplete = self._old_tuples_of(child, side)
                assert isinstance(incomplete, IncompleteState)
                side.incomplete = incomplete
                self._record.states_incomplete += 1
            else:
                history = concatenate(child.layout, self.bring(child, True))
                self._record.rows_recomputed += len(history)
                side.add(history)
            if self._completion is Completion.EAGER or wanted:
                side.complete()
            if self._completion is Completion.LAZY and (donor is not None or side.incomplete is None):
                self._old_tuples[id(child), side.key] = CompleteState(side.state.copy(), side.incomplete)
        return [join.everything()] if wanted else []

    def _old_tuples_of(self, operator: Operator, side: JoinSide) -> OldTuples:
        """The old tuples of an operator, by the side's key."""
        found = self._old_tuples.get((id(operator), side.key))
        if found is None:
            found = self._old_tuples[id(operator), side.key] = self._find_old_tuples(operator, side)
        return found

    def _find_old_tuples(self, operator: Operator, side: JoinSide) -> OldTuples:
        for donor in self._sides.get(side.state_key, ()):
            if self._serves(donor, side) and id(operator) in self._whole:
                return CompleteState(donor.state.copy(), donor.incomplete)
        join, above = _join_below(operator) or (None, [])
        if join is None:
            raise AssertionError("the inputs of joins are known by every key that is asked for")
        driver, finder = self._driver(side, join)
        drivers = self._own(join, driver)
        if finder is not None and finder is not join.sides[driver]:
            drivers = self._sorted(join, driver, finder)
        others = self._own(join, 1 - driver)
        return IncompleteState(
            side,
            join,
            above,
            driver,
            drivers,
            others,
            is_keyed=finder is not None,
            drives_by_own_key=finder is join.sides[driver] and finder.band is None,
            ends=self._ends,
        )

    def _driver(self, side: JoinSide, join: JoinOperator) -> tuple[int, JoinSide | None]:
        """The side of a join by which results with given keys are found, and what it must be sorted by.

        If possible one whose own key it is, and of these a complete one: it says which keys the other side is asked
        for. None: results cannot be found by key.
        """
        finders = [_finder(side, own, child) for own, child in _sides_of(join)]
        own = [place for place in (0, 1) if finders[place] is join.sides[place]]
        if own:
            driver = next((place for place in own if self._own(join, place).is_complete), own[0])
            return driver, finders[driver]
        driver = 0 if finders[0] is not None else 1
        return driver, finders[driver]

    def _own(self, join: JoinOperator, side: int) -> OldTuples:
        return self._old_tuples_of(join.inputs[side], join.sides[side])

    def _sorted(self, join: JoinOperator, driver: int, finder: JoinSide) -> OldTuples:
        """The old tuples of a join's side by another key than the join's own."""
        key = (id(join.inputs[driver]), finder.key)
        if key not in self._old_tuples:
            own = self._own(join, driver)
            if _join_below(join.inputs[driver]) is not None and not own.is_complete:
                self._old_tuples[key] = self._find_old_tuples(join.inputs[driver], finder)
            else:
                self._old_tuples[key] = _ResortedState(own, finder)
        return self._old_tuples[key]


class _ResortedState:
    """Old tuples that are all there, sorted by another key when they are first asked for."""

    def __init__(self, unsorted: OldTuples, finder: JoinSide) -> None:
        self._unsorted: OldTuples | None = unsorted
        self._finder = finder

    @property
    def is_complete(self) -> bool:
        return True

    def request(self, lows: Ints, highs: Ints) -> None:
        pass

    def complete(self, lows: Ints, highs: Ints) -> list[JoinState]:
        return self.complete_all()

    def complete_all(self) -> list[JoinState]:
        if self._unsorted is not None:
            for state in self._unsorted.complete_all():
                batch = self._finder.batch_of(state.everything().tuples)
                self._finder.add(batch.filtered(batch.valid_to > batch.layout.released))
            self._unsorted = None
        return [self._finder.state]


def _places(plan: Plan) -> list[tuple[object, ...]]:
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
    if isinstance(plan, Window):
        return frozenset([plan.alias])
    return frozenset().union(*(_relations(child) for child in plan.inputs))


def _sides_of(join: JoinOperator) -> list[tuple[JoinSide, Operator]]:
    """Each side with its input."""
    return list(zip(join.sides, join.inputs, strict=True))


def _join_below(operator: Operator) -> tuple[JoinOperator, list[Operator]] | None:
    """The join whose results the operator gives, and the selections between."""
    above: list[Operator] = []
    while isinstance(operator, SelectOperator):
        above.insert(0, operator)
        operator = operator.inputs[0]
    return (operator, above) if isinstance(operator, JoinOperator) else None


def _as_far(new: Operator, old: Operator) -> bool:
    """Whether both have seen the same of their inputs."""
    return all(
        (a.final_until, a.frontier) == (b.final_until, b.frontier) for a, b in zip(new.inputs, old.inputs, strict=True)
    )


def _finder(side: JoinSide, own: JoinSide, child: Operator) -> JoinSide | None:
    """A side of a join below, sorted by another side's key: its own if that is what it is sorted by."""
    columns = {field.column for field in child.layout.fields}
    if side.band is not None:
        if own.key == side.key:
            return own
        return JoinSide(child.layout, [], side.band, own.identity) if side.band.left_key.columns <= columns else None
    alike = own.band is None and len(own.keys) == len(side.keys)
    if alike and all(key in names for key, names in zip(own.keys, side.names, strict=True)):
        return own
    if not side.keys:
        return None
    keys: list[KeyColumn] = []
    for names in side.names:
        known = frozenset(name for name in names if name.columns <= columns)
        if not known:
            return None
        keys.append((min(known, key=lambda name: name.text), known))
    return JoinSide(child.layout, keys, None, own.identity)
