"""A new plan takes over: its states are shared with the old plan, computed from the windows, or left to be completed.

This is the common core of moving state and JISC, and of recovery, which is a takeover from nothing but the windows.
Operators are visited from the root down. Each brings its state: by adopting the one of an operator with the same state
key in the old plan; otherwise from the *history* of its inputs, the output that they have given and that may still
count. A window's history are its rows, a join's all pairs of its two states; distinct, aggregates and differences give
theirs while they are fed the history of their own inputs.

What has been told must not be told again. Joins and distinct tell everything at once: a new plan that knows the same
rows has nothing to add. Aggregates and differences tell what is certain, and how much that is differs between plans (a
partial aggregate below a join knows less). If one of them is computed anew, the old plan first tells all that is
certain up to one instant, and the new one begins there.
"""

from __future__ import annotations

import enum

from midstream.algebra.plan import Plan
from midstream.algebra.windows import BEGINNING, NEVER
from midstream.engine.batch import Batch, concatenate
from midstream.engine.box import Box, PlanBox
from midstream.engine.distinct import DistinctOperator
from midstream.engine.join import JoinOperator
from midstream.engine.join_side import JoinSide, KeyColumn
from midstream.engine.join_state import JoinState
from midstream.engine.kernels import Ints
from midstream.engine.operator import Operator, Telling
from midstream.engine.past import JoinedPast, KnownPast, Past
from midstream.engine.row_store import RowStore
from midstream.engine.stateless import SelectOperator
from midstream.engine.store import StoreOperator
from midstream.engine.window import WindowOperator
from midstream.engine.windows import Arrived
from midstream.errors import BadMigration
from midstream.migration.record import MigrationRecord
from midstream.migration.strategy import Switch

__all__ = ["Way", "rebuilt", "take_over"]

SWEEP_SHARE = 2
"""Old tuples completed beyond what is asked for, for each new row: a fraction of what the new row costs."""


class Way(enum.Enum):
    """How states are brought that the old plan did not have."""

    MOVING_STATE = "moving-state"
    """At once."""
    JISC = "jisc"
    """Those of joins on demand."""


def take_over(switch: Switch, way: Way) -> tuple[PlanBox, list[Batch]]:
    """The new plan, with its states; and what the old plan still had to tell."""
    old = switch.old
    takeover = _Takeover(switch.plan, switch, old.donor(), way)
    box = takeover.box
    if not takeover.computes_totals:
        box.begins = old.begins
        takeover.bring(box.root, False)
        return box, old.stop_holding()
    telling = {old.root.tells, box.root.tells}
    if len(telling) > 1 or Telling.RAGGED in telling:
        raise BadMigration(
            f"{way.value} cannot tell how far the old plan's results reach",
            detail="Aggregates or differences whose state must be computed anew are united with rows that are not.",
            hint="Use gen-mig.",
        )
    told = old.flush()
    box.begins = max(old.begins, old.root.told)
    history = takeover.bring(box.root, takeover.wants_history)
    return box, told + [box.told_here(batch) for batch in history]


def rebuilt(box: Box, way: Way, rows: Arrived, record: MigrationRecord) -> Box:
    """The box as it is, with all its derived state computed anew from the rows."""

    def rebuild(plan_box: PlanBox, rows: Arrived) -> PlanBox:
        if plan_box.plan.totals_pieces:
            return _replayed(plan_box, rows)
        switch = Switch(
            plan_box, plan_box.plan, plan_box.windows, plan_box.watermark, plan_box.chunk_rows, record, rows
        )
        takeover = _Takeover(plan_box.plan, switch, None, way)
        takeover.bring(takeover.box.root, False)
        return takeover.box

    return box.rebuilt(rebuild, rows)


def _replayed(old: PlanBox, rows: Arrived) -> PlanBox:
    """The plan, fed with the rows push by push as they came: where a distinct cuts them depends on that."""
    box = PlanBox(old.plan, old.windows, old.chunk_rows)
    for part in old.windows.by_push(rows):
        for _ in box.push(part, BEGINNING):
            pass
    for _ in box.push({}, old.watermark):
        pass
    return box


class _Takeover:
    """Builds the new box and gives its operators their states."""

    def __init__(self, plan: Plan, switch: Switch, donor: PlanBox | None, way: Way) -> None:
        stores: dict[str, list[RowStore]] = {}
        self._sides: dict[tuple[str, tuple[str, ...]], list[JoinSide]] = {}
        self._operators: dict[tuple[str, ...], list[Operator]] = {}
        if donor is not None:
            for store in donor.stores():
                stores.setdefault(store.key, []).append(store.store)
            for join in donor.joins():
                for side in join.sides:
                    self._sides.setdefault(side.state_key, []).append(side)
            for operator in donor.operators:
                if operator.state_key is not None:
                    self._operators.setdefault(operator.state_key, []).append(operator)
        self.box = PlanBox(plan, switch.windows, switch.chunk_rows, stores)
        self.box.sweep_share = SWEEP_SHARE if way is Way.JISC else 0
        self.box.advance(switch.watermark)
        self._switch = switch
        self._record = switch.record
        self._way = way
        self._ends = switch.windows.latest_end
        # A state purged further than the slowest input, or than what has been told, cannot serve for computing others.
        frontiers = (child.frontier for join in self.box.joins() for child in join.inputs)
        self._least = min(frontiers, default=NEVER)
        self._least = min(self._least, switch.old.root.told)
        self._pasts: dict[tuple[int, tuple[str, ...]], Past] = {}
        self._whole = self._matched_subtrees()
        self._adopted: dict[int, Operator] = {}
        self._shared: dict[int, JoinSide] = {}
        self.wants_history = self.box.root.told > max(switch.old.begins, switch.old.root.told)
        """Whether the new plan knows results for certain that the old one could not tell yet."""
        self._decide(self.box.root, self.wants_history)

    @property
    def computes_totals(self) -> bool:
        """Whether an operator that tells only what is certain gets its state anew."""
        return any(
            operator.state_key is not None
            and operator.tells is Telling.UNTIL_TOLD
            and id(operator) not in self._adopted
            for operator in self.box.operators
            if not isinstance(operator, DistinctOperator)
        )

    def _matched_subtrees(self) -> set[int]:
        """Operators below which, themselves included, every state but those of joins is there in the old plan."""
        whole: set[int] = set()
        for operator in self.box.operators:
            if all(id(child) in whole for child in operator.inputs) and self._counterpart(operator):
                whole.add(id(operator))
        return whole

    def _counterpart(self, operator: Operator) -> bool:
        if operator.state_key is None:
            return not isinstance(operator, StoreOperator) or operator.was_there
        return any(_as_far(operator, other) for other in self._operators.get(operator.state_key, ()))

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
                    self._decide(child, self._way is Way.MOVING_STATE or wanted or _join_below(child) is None)
            return
        if isinstance(operator, StoreOperator):
            self._decide(operator.inputs[0], not operator.was_there)
            return
        if operator.state_key is not None:
            donors_ = self._operators.get(operator.state_key, [])
            counterpart = next((d for d in donors_ if _as_far(operator, d)), None)
            if counterpart is not None and not wanted and id(operator) in self._whole:
                donors_.remove(counterpart)
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
            rows = self._switch.windows.alive_in(identity) if self._switch.rows is None else self._switch.rows[identity]
            return [rows] if len(rows) else []
        if isinstance(operator, JoinOperator):
            return self._bring_join(operator, wanted)
        if isinstance(operator, StoreOperator) and operator.was_there:
            self.bring(operator.inputs[0], False)
            return [operator.everything()] if wanted else []
        if id(operator) in self._adopted:
            operator.adopt(self._adopted[id(operator)])
            self._record.states_shared += 1
            for child in operator.inputs:
                self.bring(child, False)
            return []
        if operator.state_key is not None or isinstance(operator, StoreOperator):
            histories = [self.bring(child, True) for child in operator.inputs]
            self._record.rows_recomputed += sum(len(batch) for history in histories for batch in history)
            return list(operator.push(*histories))
        histories = [self.bring(child, wanted) for child in operator.inputs]
        return list(operator.push(*histories)) if wanted else []

    def _bring_join(self, join: JoinOperator, wanted: bool) -> list[Batch]:
        for side, child in _sides_of(join):
            donor = self._shared.get(id(side))
            if donor is not None:
                self.bring(child, False)
                side.state, side.past = donor.state.copy(), donor.past
                self._record.states_shared += 1
            elif self._way is Way.JISC and _join_below(child) is not None and not wanted:
                self.bring(child, False)
                past = self._past(child, side)
                assert isinstance(past, JoinedPast)
                side.past = past
                self._record.states_incomplete += 1
            else:
                history = concatenate(child.layout, self.bring(child, True))
                self._record.rows_recomputed += len(history)
                side.add(history)
            if self._way is Way.MOVING_STATE or wanted:
                side.complete()
            if self._way is Way.JISC and (donor is not None or side.past is None):
                self._pasts[id(child), side.key] = KnownPast(side.state.copy(), side.past)
        return [join.everything()] if wanted else []

    def _past(self, operator: Operator, side: JoinSide) -> Past:
        """The old tuples of an operator, by the side's key."""
        found = self._pasts.get((id(operator), side.key))
        if found is None:
            found = self._pasts[id(operator), side.key] = self._new_past(operator, side)
        return found

    def _new_past(self, operator: Operator, side: JoinSide) -> Past:
        for donor in self._sides.get(side.state_key, ()):
            if self._serves(donor, side) and id(operator) in self._whole:
                return KnownPast(donor.state.copy(), donor.past)
        join, above = _join_below(operator) or (None, [])
        if join is None:
            raise AssertionError("the inputs of joins are known by every key that is asked for")
        driver, finder = self._driver(side, join)
        drivers = self._own(join, driver)
        if finder is not None and finder is not join.sides[driver]:
            drivers = self._sorted(join, driver, finder)
        others = self._own(join, 1 - driver)
        return JoinedPast(
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
            driver = next((place for place in own if self._own(join, place).is_whole), own[0])
            return driver, finders[driver]
        driver = 0 if finders[0] is not None else 1
        return driver, finders[driver]

    def _own(self, join: JoinOperator, side: int) -> Past:
        return self._past(join.inputs[side], join.sides[side])

    def _sorted(self, join: JoinOperator, driver: int, finder: JoinSide) -> Past:
        """The old tuples of a join's side by another key than the join's own."""
        key = (id(join.inputs[driver]), finder.key)
        if key not in self._pasts:
            own = self._own(join, driver)
            if _join_below(join.inputs[driver]) is not None and not own.is_whole:
                self._pasts[key] = self._new_past(join.inputs[driver], finder)
            else:
                self._pasts[key] = _ResortedPast(own, finder)
        return self._pasts[key]


class _ResortedPast:
    """Old tuples that are all there, sorted by another key when they are first asked for."""

    def __init__(self, past: Past, finder: JoinSide) -> None:
        self._past: Past | None = past
        self._finder = finder

    @property
    def is_whole(self) -> bool:
        return True

    def request(self, lows: Ints, highs: Ints) -> None:
        pass

    def reach(self, lows: Ints, highs: Ints) -> list[JoinState]:
        return self.reach_all()

    def reach_all(self) -> list[JoinState]:
        if self._past is not None:
            for state in self._past.reach_all():
                batch = self._finder.batch_of(state.everything().tuples)
                self._finder.add(batch.filtered(batch.valid_to > batch.layout.released))
            self._past = None
        return [self._finder.state]


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
        (a.told, a.frontier, a.tells) == (b.told, b.frontier, b.tells)
        for a, b in zip(new.inputs, old.inputs, strict=True)
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
