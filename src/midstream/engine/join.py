"""Join: pairs of tuples that satisfy the predicates and are valid at the same time.

Output from input: for each left and right tuple with intersecting validities for which every predicate is true, the
combined tuple, valid on the intersection. Intuitively, every new tuple is compared with what the other side remembers,
then remembered itself (the symmetric join; purge-join-insert of Zhu et al. 2004, section 2.2).

                ┌───────────────┐
     new left ──┤ meet right    ├──▶ pairs          1. the new left tuples meet what the right side remembers
                │ join left     │                   2. they are remembered
    new right ──┤ meet left     ├──▶ pairs          3. the new right tuples meet what the left side remembers now
                │ join right    │                   4. they are remembered
                └───────────────┘

State: both inputs' tuples as row numbers, sorted by the code of their key (see ``join_state``). A left tuple is dropped
when its validity ends before the right input's frontier, and the other way round. Equality keys meet by equal codes;
where there are none, a range predicate meets by intervals of order codes (see ``band``); otherwise all tuples have one
code. Codes that are hashes, and all other predicates, are checked on the candidate pairs, a chunk at a time.

The topmost join of a plan cuts each push into slices of event time when it produces too much (policy: more than
``chunk_rows`` results at once; the harm prevented: a join explosion fills the memory). Cutting is allowed because how
input is cut into batches never matters. A slice that turns out too large is taken back and halved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from midstream.algebra.expressions import Column, Expression, conjunction
from midstream.algebra.identity import equality_sides
from midstream.algebra.windows import NEVER
from midstream.engine.band import Band, find_band
from midstream.engine.batch import Batch, Layout, concatenate
from midstream.engine.codes import combine_codes, encode, is_exact, order_codes
from midstream.engine.evaluate import evaluate, truth
from midstream.engine.join_state import JoinState, Meeting, NewTuples
from midstream.engine.kernels import Flags, Ints
from midstream.engine.operator import Operator

__all__ = ["JoinOperator"]


class _Side:
    """One input of the join: its state and how its keys are computed."""

    def __init__(self, layout: Layout, keys: Sequence[Expression], band: Band | None) -> None:
        self.layout = layout
        self.keys = keys
        self.band = band
        self.state = JoinState(len(layout.stores))
        for key in keys:
            if isinstance(key, Column) and not is_exact(key.type):
                store, column = layout.places[layout.position(key)]
                layout.stores[store].keep_codes(column)

    def keyed(self, batch: Batch) -> NewTuples:
        """The tuples whose key is not NULL (others match nothing), sorted by code."""
        if self.band is None:
            batch, codes = self._coded(batch)
            ranges = None
        else:
            keys = _value(self.band.left_key, batch)
            codes, valid = order_codes(keys)
            batch, codes = _without_nulls(batch, codes, valid)
            ranges = self.band.ranges(keys.drop_null())
        return NewTuples.sorted_by_code(codes, batch.valid_from, batch.valid_to, batch.references, ranges)

    def _coded(self, batch: Batch) -> tuple[Batch, Ints]:
        parts, flags = [], None
        for key in self.keys:
            codes, valid = self._codes(key, batch)
            parts.append(codes)
            if valid is not None:
                flags = valid if flags is None else flags & valid
        if not parts:
            return batch, np.zeros(len(batch), np.int64)
        return _without_nulls(batch, combine_codes(parts), flags)

    def _codes(self, key: Expression, batch: Batch) -> tuple[Ints, Flags | None]:
        if isinstance(key, Column):
            position = self.layout.position(key)
            if position not in batch.at_hand:
                store, column = self.layout.places[position]
                return self.layout.stores[store].gather_codes(column, batch.references[store])
        return encode(_value(key, batch))


def _value(expression: Expression, batch: Batch):  # type: ignore[no-untyped-def]
    return evaluate(expression, batch.column, len(batch))


def _without_nulls(batch: Batch, codes: Ints, valid: Flags | None) -> tuple[Batch, Ints]:
    if valid is None or valid.all():
        return batch, codes
    return batch.filtered(valid), codes[valid]


class JoinOperator(Operator):
    """A binary join over inputs whose tuples are references."""

    def __init__(
        self, name: str, left: Operator, right: Operator, predicates: Sequence[Expression], chunk_rows: int
    ) -> None:
        super().__init__(name, left.layout.beside(right.layout), (left, right))
        assert left.layout.is_stored and right.layout.is_stored
        self.chunk_rows = chunk_rows
        self.is_topmost = False
        self._results_per_row = 0.0
        left_keys, right_keys, residual = self._keys(predicates)
        band = None if left_keys else find_band(residual, *self._relations())
        self._left = _Side(left.layout, left_keys, band)
        self._right = _Side(right.layout, right_keys, None if band is None else band.mirrored())
        self._check = conjunction(residual) if residual else None

    def _relations(self) -> tuple[frozenset[str], frozenset[str]]:
        left, right = (frozenset(f.relation for f in child.layout.fields) for child in self.inputs)
        return left, right

    def _keys(self, predicates: Sequence[Expression]) -> tuple[list[Expression], list[Expression], list[Expression]]:
        """Left keys, right keys, and the predicates that must be evaluated on candidate pairs."""
        left, right = self._relations()
        left_keys: list[Expression] = []
        right_keys: list[Expression] = []
        equalities: list[Expression] = []
        residual: list[Expression] = []
        for predicate in predicates:
            sides = equality_sides(predicate)
            if sides is not None and sides[0].relations <= right and sides[1].relations <= left:
                sides = (sides[1], sides[0])
            if sides is None or not (sides[0].relations <= left and sides[1].relations <= right):
                residual.append(predicate)
                continue
            left_keys.append(sides[0])
            right_keys.append(sides[1])
            equalities.append(predicate)
        if len(equalities) > 1 or any(not is_exact(key.type) for key in left_keys):
            residual = [*equalities, *residual]
        return left_keys, right_keys, residual

    @property
    def emits_in_order(self) -> bool:
        return self.is_topmost

    @property
    def state_rows(self) -> int:
        return len(self._left.state) + len(self._right.state)

    @property
    def state_bytes(self) -> int:
        return self._left.state.bytes + self._right.state.bytes

    def push(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        left, right = (
            concatenate(child.layout, list(batches)) for child, batches in zip(self.inputs, inputs, strict=True)
        )
        self.counters.rows_in += len(left) + len(right)
        self.counters.probes += len(left) + len(right)
        produced = 0
        for batch in self._slices(left, right) if self.is_topmost else self._whole(left, right):
            if len(batch):
                produced += len(batch)
                yield batch
        self.counters.rows_out += produced
        if len(left) + len(right):
            self._results_per_row = produced / (len(left) + len(right))

    def expire(self, retention: int) -> None:
        left, right = self.inputs
        self._left.state.expire(right.frontier)
        self._right.state.expire(left.frontier)

    def _whole(self, left: Batch, right: Batch) -> Iterator[Batch]:
        return self._results(self._meeting(left, right), len(left) + len(right))

    def _meeting(self, left: Batch, right: Batch) -> Meeting:
        return Meeting(self._left.state, self._right.state, self._left.keyed(left), self._right.keyed(right))

    def _results(self, meeting: Meeting, rows: int) -> Iterator[Batch]:
        """The results that the new tuples cause, while they become part of the states."""
        for references, valid_from, valid_to in meeting.pairs(self.chunk_rows, int(1.2 * self._results_per_row * rows)):
            yield self._checked(Batch(self.layout, valid_from, valid_to, references))
        self.counters.compared += meeting.compared

    def _checked(self, batch: Batch) -> Batch:
        if self._check is None:
            return batch
        return batch.filtered(truth(self._check, batch.column, len(batch)))

    def _slices(self, left: Batch, right: Batch) -> Iterator[Batch]:
        """The results in the order of ``valid_from``, about ``chunk_rows`` at a time."""
        held: list[Batch] = []
        pending = [(left.in_order(), right.in_order())]
        expected = int(1.2 * self._results_per_row * (len(left) + len(right)))
        while expected > self.chunk_rows:
            pending = [half for whole in pending for half in _halves(*whole)]
            expected //= 2
        pending.reverse()
        while pending:
            left, right = pending.pop()
            results = self._attempt(left, right)
            if results is None:
                pending += reversed(_halves(left, right))
                continue
            self._left.state.settle()
            self._right.state.settle()
            together = concatenate(self.layout, [*held, *results]).in_order()
            boundary = min((_first(*waiting) for waiting in pending), default=NEVER)
            ready = int(np.searchsorted(together.valid_from, boundary, "right"))
            held = [together.sliced(ready, len(together))] if ready < len(together) else []
            yield together.sliced(0, ready)

    def _attempt(self, left: Batch, right: Batch) -> list[Batch] | None:
        """The results of a slice; None, with the states as before, if they are too many and it can be halved."""
        limit = self.chunk_rows if len(left) + len(right) > 1 else NEVER
        found = 0
        results = []
        meeting = self._meeting(left, right)
        for batch in self._results(meeting, len(left) + len(right)):
            found += len(batch)
            results.append(batch)
            if found > limit:
                meeting.undo()
                return None
        return results


def _first(left: Batch, right: Batch) -> int:
    return min(int(batch.valid_from[0]) for batch in (left, right) if len(batch))


def _last(left: Batch, right: Batch) -> int:
    return max(int(batch.valid_from[-1]) for batch in (left, right) if len(batch))


def _halves(left: Batch, right: Batch) -> list[tuple[Batch, Batch]]:
    """Both inputs (each in order) cut at the middle of their event times, or of their rows where all are equal."""
    if len(left) + len(right) < 2:
        return [(left, right)]
    longer = max(left, right, key=len).valid_from
    first, last = _first(left, right), _last(left, right)
    middle = int(longer[len(longer) // 2])
    if first == middle < last:
        middle += 1
    if first < middle:
        cuts = [int(np.searchsorted(batch.valid_from, middle)) for batch in (left, right)]
    elif len(left) > 1 or len(right) > 1:
        cuts = [len(left) // 2, len(right) // 2]
    else:
        cuts = [len(left), 0]
    return [
        (left.sliced(0, cuts[0]), right.sliced(0, cuts[1])),
        (left.sliced(cuts[0], len(left)), right.sliced(cuts[1], len(right))),
    ]
