"""Where the old tuples of join inputs are, by every key that a new plan asks for them.

When a plan replaces another, the old tuples of a join's input are in a state of the old plan, or in the state that the
new plan computed at once, or they are the results of a join below, whose own inputs' old tuples are found in the same
way. In the last case they are computed on demand: see ``state_completion``. This is the part of state matching that
knows joins.
"""

from __future__ import annotations

from collections.abc import Callable

from midstream.engine.kernels import Ints
from midstream.engine.operators.join import JoinOperator
from midstream.engine.operators.join_side import JoinSide, KeyColumn
from midstream.engine.operators.operator import Operator
from midstream.engine.operators.state_handle import StateHandle
from midstream.engine.state.join_state import JoinState
from midstream.migration.state_completion import CompleteState, IncompleteState, OldTuples

__all__ = ["OldTupleIndex"]


class OldTupleIndex:
    """Finds the old tuples of the new plan's join inputs, and keeps what it found.

    ``donor`` gives the old plan's state that can be adopted for a side, or None. ``ends`` is when the last old row
    ends.
    """

    def __init__(self, donor: Callable[[StateHandle], StateHandle | None], ends: int) -> None:
        self._donor = donor
        self._ends = ends
        self._found: dict[tuple[int, tuple[str, ...]], OldTuples] = {}

    def note(self, state: StateHandle) -> None:
        """Note that the old tuples of a join's input are those of the state, and those that it still lacks."""
        if isinstance(state, JoinSide):
            self._found[id(state.inputs[0]), state.key] = CompleteState(state.state.copy(), state.incomplete)

    def complete_later(self, state: StateHandle) -> None:
        """Let the state compute its old tuples on demand: they are results of a join below."""
        assert isinstance(state, JoinSide), "only join states can be completed on demand"
        incomplete = self._of(state)
        assert isinstance(incomplete, IncompleteState)
        state.incomplete = incomplete

    def _of(self, side: JoinSide) -> OldTuples:
        """The old tuples of a side's input, by the side's key."""
        key = (id(side.inputs[0]), side.key)
        if key not in self._found:
            self._found[key] = self._find(side)
        return self._found[key]

    def _find(self, side: JoinSide) -> OldTuples:
        donor = self._donor(side)
        if isinstance(donor, JoinSide):
            return CompleteState(donor.state.copy(), donor.incomplete)
        below = side.inputs[0].join_below
        assert below is not None, "the inputs of joins are known by every key that is asked for"
        join, above = below
        driver, finder = self._driver(side, join)
        drivers = self._of(join.sides[driver])
        if finder is not None and finder is not join.sides[driver]:
            drivers = self._sorted(join, driver, finder)
        return IncompleteState(
            side,
            join,
            above,
            driver,
            drivers,
            self._of(join.sides[1 - driver]),
            is_keyed=finder is not None,
            drives_by_own_key=finder is join.sides[driver] and finder.band is None,
            ends=self._ends,
        )

    def _driver(self, side: JoinSide, join: JoinOperator) -> tuple[int, JoinSide | None]:
        """The side of a join by which results with given keys are found, and what it must be sorted by.

        If possible one whose own key it is, and of these a complete one: it says which keys the other side is asked
        for. None: results cannot be found by key.
        """
        finders = [_finder(side, own) for own in join.sides]
        own = [place for place in (0, 1) if finders[place] is join.sides[place]]
        if own:
            driver = next((place for place in own if self._of(join.sides[place]).is_complete), own[0])
            return driver, finders[driver]
        driver = 0 if finders[0] is not None else 1
        return driver, finders[driver]

    def _sorted(self, join: JoinOperator, driver: int, finder: JoinSide) -> OldTuples:
        """The old tuples of a join's side by another key than the join's own."""
        key = (id(finder.inputs[0]), finder.key)
        if key not in self._found:
            own = self._of(join.sides[driver])
            is_computed = finder.inputs[0].join_below is not None and not own.is_complete
            self._found[key] = self._find(finder) if is_computed else _ResortedState(own, finder)
        return self._found[key]


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


def _finder(side: JoinSide, own: JoinSide) -> JoinSide | None:
    """A side of a join below, sorted by another side's key: its own if that is what it is sorted by."""
    child: Operator = own.inputs[0]
    columns = {field.column for field in child.layout.fields}
    if side.band is not None:
        if own.key == side.key:
            return own
        return JoinSide(child, [], side.band, own.identity) if side.band.left_key.columns <= columns else None
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
    return JoinSide(child, keys, None, own.identity)
