"""One input of a join: what it remembers, and by which key.

A side's state is identified by what its tuples are (the identity of the input's subplan) and by the key they are sorted
by. Two plans that have both in common share the state: it passes from one to the other unchanged.

Keys are named by a member of their class of equal columns, always the first by name, so that ``a.k = b.k`` below and
``b.k = c.k`` above give the state of (a b) the same key as ``a.k = c.k`` would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from midstream.algebra.expressions import Column, Expression
from midstream.algebra.plan import Plan
from midstream.engine.batch import Batch, concatenate
from midstream.engine.codes import order_codes
from midstream.engine.expressions.evaluate import evaluate
from midstream.engine.kernels import Flags, Ints, among
from midstream.engine.operators.band import Band
from midstream.engine.operators.key_codes import KeyCodes
from midstream.engine.operators.missing_tuples import MissingTuples
from midstream.engine.operators.state_handle import StateHandle, StateKey
from midstream.engine.state.join_state import FROM, REFERENCES, TO, JoinState, NewTuples, added_counts
from midstream.engine.state.unsorted_tuples import UnsortedTuples

if TYPE_CHECKING:
    from midstream.engine.operators.operator import Operator

__all__ = ["JoinSide", "KeyColumn", "Lookup", "equal_columns"]

KeyColumn = tuple[Expression, frozenset[Expression]]
"""A key, and the columns of the input that are always equal to it (itself among them if it is a column)."""
Lookup = Callable[[NewTuples], JoinState]
"""For probing tuples, a state with those tuples that they can meet."""


def equal_columns(key: Expression, subplan: Plan) -> KeyColumn:
    """The key by its canonical name in the subplan, and all its names there."""
    names = {key}
    if isinstance(key, Column):
        for members in subplan.equal_expressions:
            if key in members:
                names |= {m for m in members if isinstance(m, Column) and m.type == key.type and m in subplan.columns}
    return min(names, key=lambda name: name.text), frozenset(names)


class JoinSide(StateHandle):
    """One input of a join: its state, and how its keys are computed."""

    def __init__(self, child: Operator, keys: Sequence[KeyColumn], band: Band | None, identity: str) -> None:
        self.inputs = (child,)
        self.layout = layout = child.layout
        self.keys = [key for key, _ in keys]
        self.names = [names for _, names in keys]
        self.band = band
        self.identity = identity
        self._state = JoinState(len(layout.stores))
        self._unsorted = UnsortedTuples(len(layout.stores))
        """Tuples that are not in the state yet, because the other side had nothing to ask it for."""
        self.incomplete: MissingTuples | None = None
        """Where the tuples are that the state lacks, because they are older than the plan; None: it lacks none."""
        self.is_partial = False
        """Whether the state lacks tuples that are suspended because nobody above can use them."""
        self.may_be_incomplete = True
        """Whether the join can ask for tuples that the state lacks, key by key."""
        self._completed = 0
        self._latest: tuple[Batch, NewTuples] | None = None
        self._key_codes = KeyCodes(layout, self.keys)

    @property
    def state(self) -> JoinState:
        """The tuples, sorted by key."""
        if len(self._unsorted):
            self.add(self._unsorted_batch(self._unsorted.take()))
        return self._state

    @property
    def is_empty(self) -> bool:
        """Whether no tuple can be met."""
        return self.incomplete is None and len(self._state) == 0 and len(self._unsorted) == 0

    @property
    def state_rows(self) -> int:
        memo = 0 if self.incomplete is None else len(self.incomplete.memo)
        return len(self._state) + len(self._unsorted) + memo

    @property
    def state_bytes(self) -> int:
        memo = 0 if self.incomplete is None else self.incomplete.memo.bytes
        return self._state.bytes + self._unsorted.bytes + memo

    @property
    def key(self) -> tuple[str, ...]:
        """What the state is sorted by; equal keys of equal inputs mean equal states."""
        if self.band is not None:
            return ("<", self.band.left_key.text)
        return ("=", *(key.text for key in self.keys))

    @property
    def state_key(self) -> StateKey:
        return ("partial join side" if self.is_partial else "join side", self.identity, *self.key)

    @property
    def is_complete(self) -> bool:
        return self.incomplete is None

    @property
    def can_be_completed_later(self) -> bool:
        """Never by just-in-time processing: what is suspended, and what for, must be known when the plan starts.

        There, an input that is a join's output either waits, so that the state is partial, or has a demand operator
        above the join.
        """
        if self.is_partial or not self.may_be_incomplete:
            return False
        return self.inputs[0].join_below is not None

    @property
    def may_lack_tuples(self) -> bool:
        return self.may_be_incomplete

    @property
    def shapes_output(self) -> bool:
        """A join's results follow from its inputs' tuples, which they refer to."""
        return False

    @property
    def gives_history(self) -> bool:
        return True

    def serves(self, needed: StateHandle, retention: int) -> bool:
        """Whether the state refers to the same stores, and has not been purged of what is needed."""
        assert isinstance(needed, JoinSide)
        if self.is_partial:
            return False
        same_stores = all(a is b for a, b in zip(self.layout.stores, needed.layout.stores, strict=True))
        return same_stores and self._state.frontier <= retention

    def adopt(self, donor: StateHandle) -> None:
        assert isinstance(donor, JoinSide)
        self._state, self.incomplete = donor.state.copy(), donor.incomplete
        # What was computed for the donor is counted there.
        self._completed = 0 if self.incomplete is None else -self.incomplete.computed

    def rebuild(self, *histories: Iterable[Batch]) -> Iterator[Batch]:
        self.add(concatenate(self.layout, list(histories[0])))
        return iter(())

    def keyed(self, batch: Batch) -> NewTuples:
        """The tuples whose key is not NULL (others match nothing), sorted by code."""
        # Incomplete states ask for the keys of a batch before it is worked on.
        if self._latest is None or self._latest[0] is not batch:
            self._latest = (batch, self._keyed(batch))
        return self._latest[1]

    def keyed_rows(self, batch: Batch, rows: Ints) -> NewTuples:
        """The same with only some rows of the references."""
        return self._keyed(batch, rows)

    def _keyed(self, batch: Batch, rows: Ints | None = None) -> NewTuples:
        if self.band is None:
            codes, valid = self._key_codes.of(batch)
            batch, codes = _without_nulls(batch, codes, valid)
            ranges = None
        else:
            keys = _value(self.band.left_key, batch)
            codes, valid = order_codes(keys)
            batch, codes = _without_nulls(batch, codes, valid)
            ranges = self.band.ranges(keys.drop_null())
        references = batch.references if rows is None else batch.references[rows]
        return NewTuples.sorted_by_code(codes, batch.valid_from, batch.valid_to, references, ranges)

    def add(self, batch: Batch) -> None:
        """Remember tuples that meet nobody: they are from before."""
        self._state.insert(self._keyed(batch))
        self._state.settle()

    def lookup(self, batch: Batch) -> Lookup:
        """Looks for partners among these tuples, a few times.

        By equality the tuples are not sorted: each lookup reads all keys, which is less than sorting them.
        """
        if self.band is not None:
            sorted_tuples = self._state_of(self._keyed(batch))
            return lambda _: sorted_tuples
        codes, valid = self._key_codes.of(batch)
        batch, codes = _without_nulls(batch, codes, valid)

        def met_by(probing: NewTuples) -> JoinState:
            kept = among(codes, probing.codes)
            found = batch.filtered(kept)
            return self._state_of(
                NewTuples.sorted_by_code(codes[kept], found.valid_from, found.valid_to, found.references, None)
            )

        return met_by

    def put_off(self, batch: Batch) -> None:
        """Remember new tuples unsorted, because the other side has none that they could meet."""
        self._unsorted.add(batch.valid_from, batch.valid_to, batch.references)

    def tuples_held(self) -> list[Batch]:
        """All tuples whose rows are still stored: others have ended."""
        held = self.batch_of(self._state.everything().tuples)
        return [held.filtered(held.valid_to > self.layout.released), self._unsorted_batch(self._unsorted.everything())]

    def key_counts(self) -> tuple[Ints, Ints]:
        """The codes of the different keys of all tuples whose rows are still stored, and how many tuples each has."""
        counts = [state.counts_by_code(self.layout.released) for state in self._sorted()]
        return added_counts(counts)

    def key_values(self, codes: Ints) -> list[list[pa.Scalar]]:
        """For each code of :meth:`key_counts` the values of the key."""
        found: dict[int, Ints] = {}
        for state in self._sorted():
            found |= state.one_of_each(codes, self.layout.released)
        if not found:
            return []
        batch = self.batch_of(np.stack([found[code] for code in codes.tolist()]))
        values = [_value(key, batch) for key in self.keys]
        return [[column[place] for column in values] for place in range(len(codes))]

    def _sorted(self) -> list[JoinState]:
        """All tuples by key, without sorting for good those that nobody has asked for."""
        if not len(self._unsorted):
            return [self._state]
        return [self._state, self._state_of(self._keyed(self._unsorted_batch(self._unsorted.everything())))]

    def _state_of(self, tuples: NewTuples) -> JoinState:
        """A state of its own for some tuples."""
        state = JoinState(len(self.layout.stores))
        state.insert(tuples)
        return state

    def expire(self, frontier: int) -> None:
        """Drop tuples that have ended by the frontier."""
        self._state.expire(frontier)
        self._unsorted.expire(frontier)

    def _unsorted_batch(self, tuples: Ints) -> Batch:
        batch = Batch(self.layout, tuples[FROM], tuples[TO], tuples[REFERENCES:])
        return batch.filtered(batch.valid_to > self.layout.released)

    def batch_of(self, tuples: Ints) -> Batch:
        """Remembered tuples as a batch."""
        references = np.ascontiguousarray(tuples[:, REFERENCES:].T)
        return Batch(self.layout, tuples[:, FROM].copy(), tuples[:, TO].copy(), references)

    def completed(self, probing: NewTuples) -> list[JoinState]:
        """Further states to meet, complete for the keys of the probing tuples."""
        if self.incomplete is None or len(probing.codes) == 0:
            return []
        return self.incomplete.complete(probing.lows, probing.highs)

    def complete(self) -> None:
        """Bring in all that is still missing from before."""
        if self.incomplete is not None:
            for state in self.incomplete.complete_all():
                self.state.take_in(state)
            self._completed += self.incomplete.computed
            self.incomplete = None

    @property
    def rows_completed(self) -> int:
        """Tuples from before that had to be computed."""
        return self._completed + (0 if self.incomplete is None else self.incomplete.computed)


def _value(expression: Expression, batch: Batch) -> pa.Array:
    return evaluate(expression, batch.column, len(batch))


def _without_nulls(batch: Batch, codes: Ints, valid: Flags | None) -> tuple[Batch, Ints]:
    if valid is None or valid.all():
        return batch, codes
    return batch.filtered(valid), codes[valid]
