"""Join: pairs of tuples that satisfy the predicates and are valid at the same time.

Output from input: for each left and right tuple with intersecting validities for which every predicate is true, the
combined tuple, valid on the intersection. Intuitively, every new tuple is compared with what the other side remembers,
then remembered itself (the symmetric join; purge-join-insert of Zhu et al. 2004, section 2.2).

                ┌───────────────┐
     new left ──┤ probe right   ├──▶ pairs          1. the new left tuples probe the right side's state
                │ insert left   │                   2. they are inserted into the left side's
    new right ──┤ probe left    ├──▶ pairs          3. the new right tuples probe the left side's state
                │ insert right  │                   4. they are inserted into the right side's
                └───────────────┘

State: both inputs' tuples as row numbers, sorted by the code of their key (see ``join_state``). A left tuple is dropped
when its validity ends before the right input's frontier, and the other way round. As long as one input has no tuple,
the other's are not sorted, nor their keys computed: with just-in-time processing that is often so. Equality keys meet
by equal codes; where there are none, a range predicate meets by intervals of order codes (see ``band``); otherwise all
tuples have one code. Codes that are hashes, and all other predicates, are checked on the candidate pairs, a chunk at a
time.

The topmost join of a plan cuts each push into slices of event time when it would produce more than ``chunk_rows``
results at once, so that a huge result does not fill the memory. Cutting is allowed because results do not depend on how
input is cut into batches. A slice that turns out too large is undone and halved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from midstream.algebra.expressions import Expression, conjunction
from midstream.algebra.identity import equality_sides
from midstream.algebra.plan import Join
from midstream.algebra.window_spec import NEVER
from midstream.engine.batch import Batch, concatenate
from midstream.engine.codes import is_exact
from midstream.engine.expressions.evaluate import truth
from midstream.engine.kernels import Ints
from midstream.engine.operators.band import find_band
from midstream.engine.operators.join_side import JoinSide, equal_columns
from midstream.engine.operators.operator import Operator
from midstream.engine.operators.slices import in_slices
from midstream.engine.operators.state_handle import StateHandle
from midstream.engine.state.join_state import FROM, REFERENCES, TO, JoinState, Meeting, NewTuples, PairBuffer

__all__ = ["JoinOperator"]


class JoinOperator(Operator):
    """A binary join over inputs whose tuples are references."""

    def __init__(
        self,
        plan: Join,
        left: Operator,
        right: Operator,
        chunk_rows: int,
        key_predicates: Collection[Expression] | None = None,
    ) -> None:
        """``key_predicates`` are the equalities by which partners are looked up; by default, all that there are."""
        super().__init__(plan.label, left.layout.beside(right.layout), (left, right))
        assert left.layout.is_stored and right.layout.is_stored
        self.chunk_rows = chunk_rows
        self.is_topmost = False
        self.consumer_input = 0
        """The input that is evaluated first: by just-in-time processing, tuples of the other one may wait for it."""
        self.has_consumers = False
        """Whether tuples that enter the join may have to wait for joins above."""
        self._results_per_row = 0.0
        left_keys, right_keys, residual = self._keys(plan.predicates, key_predicates)
        band = None if left_keys else find_band(residual, *self._relations())
        bands = (band, None if band is None else band.mirrored())
        self.sides = tuple(
            JoinSide(child, [equal_columns(key, subplan) for key in keys], side_band, subplan.identity)
            for child, subplan, keys, side_band in zip(
                (left, right), plan.inputs, (left_keys, right_keys), bands, strict=True
            )
        )
        rows = (child.layout.rows_in(self.layout.keys) for child in (left, right))
        left_rows, right_rows = (np.array(row, np.int64) for row in rows)
        self._rows = (left_rows, right_rows)
        self.check = conjunction(residual) if residual else None
        """What must hold of candidate pairs."""

    def _relations(self) -> tuple[frozenset[str], frozenset[str]]:
        left, right = (frozenset(f.relation for f in child.layout.fields) for child in self.inputs)
        return left, right

    def _keys(
        self, predicates: Sequence[Expression], key_predicates: Collection[Expression] | None
    ) -> tuple[list[Expression], list[Expression], list[Expression]]:
        """Left keys, right keys, and the predicates that must be evaluated on candidate pairs."""
        left, right = self._relations()
        left_keys: list[Expression] = []
        right_keys: list[Expression] = []
        equalities: list[Expression] = []
        residual: list[Expression] = []
        for predicate in predicates:
            is_key = key_predicates is None or predicate in key_predicates
            sides = equality_sides(predicate) if is_key else None
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
        return sum(side.state_rows for side in self.sides)

    @property
    def state_bytes(self) -> int:
        return sum(side.state_bytes for side in self.sides)

    def push(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        left, right = (
            concatenate(child.layout, list(batches)) for child, batches in zip(self.inputs, inputs, strict=True)
        )
        self.counters.rows_in += len(left) + len(right)
        self.counters.probes += len(left) + len(right)
        if self._is_put_off(left, right):
            return
        produced = 0
        for batch in self._slices(left, right) if self.is_topmost else self._whole(left, right):
            if len(batch):
                produced += len(batch)
                yield batch
        self.counters.rows_out += produced
        self._results_per_row = produced / (len(left) + len(right))

    def _is_put_off(self, left: Batch, right: Batch) -> bool:
        """Whether there is nothing to do, or one side has nothing to be met; then the other's tuples are put off."""
        for side, batch, other, others in ((0, left, 1, right), (1, right, 0, left)):
            if len(others) == 0 and (len(batch) == 0 or self.sides[other].is_empty):
                self.sides[side].put_off(batch)
                return True
        return False

    def expire(self, retention: int) -> None:
        for side, partner in zip(self.sides, reversed(self.inputs), strict=True):
            side.expire(partner.frontier)
            # A completed state may serve joins above, whose partners are perhaps not as far.
            if side.incomplete is not None and side.incomplete.expire(min(partner.frontier, retention)):
                side.complete()

    def needed_below(self, retention: int) -> int:
        return min(retention, self.frontier)

    @property
    def join_below(self) -> tuple[JoinOperator, list[Operator]]:
        return self, []

    @property
    def evaluation_order(self) -> Sequence[Operator]:
        return self.inputs[:: -1 if self.consumer_input else 1]

    def states(self) -> Sequence[StateHandle]:
        return self.sides[:: -1 if self.consumer_input else 1]

    def history(self) -> list[Batch]:
        """All results of what both sides remember; they must be complete."""
        left, right = self.sides
        new = left.state.everything()
        if self.sides[0].band is not None:
            new = left.keyed(left.batch_of(new.tuples))
        return [concatenate(self.layout, list(self._met(0, new, [right.state])))]

    def past_pairs_with(self, side: int, new: NewTuples, states: Sequence[JoinState]) -> Batch:
        """All results of tuples of one side with those in the other side's states."""
        return concatenate(self.layout, list(self._met(side, new, states)))

    def past_pairs_by_code(self, side: int, new: NewTuples, states: Sequence[JoinState]) -> NewTuples:
        """Like ``past_pairs_with``, sorted by the code that the results have from the given tuples."""
        # The code travels as one more reference.
        width = len(self.layout.stores)
        coded = NewTuples(new.codes, np.column_stack([new.tuples, new.codes]), new.lows, new.highs)
        pairs = PairBuffer(width + 1, 0, self.chunk_rows)
        own, others = np.append(self._rows[side], width), self._rows[1 - side]
        found = [m for state in states for m in state.meet(coded, others, own, pairs)]
        found += pairs.flush()
        self.counters.compared += pairs.compared
        references, valid_from, valid_to = (
            (np.concatenate(part, axis=-1) if len(part) > 1 else part[0] for part in zip(*found, strict=True))
            if found
            else (np.empty((width + 1, 0), np.int64), *np.empty((2, 0), np.int64))
        )
        # Rows of pairs that have ended are perhaps no longer stored.
        alive = np.flatnonzero(valid_to > self.layout.released)
        batch = Batch(self.layout, valid_from, valid_to, references[:width]).taken(alive)
        codes = references[width, alive]
        if self.check is not None:
            kept = truth(self.check, batch.column, len(batch))
            batch, codes = batch.filtered(kept), codes[kept]
        return NewTuples.sorted_by_code(codes, batch.valid_from, batch.valid_to, batch.references, None)

    def rows_of(self, side: int) -> Ints:
        """Which rows of a result's references are one side's."""
        return self._rows[side]

    def sampled_pairs(
        self, left: Batch, state: JoinState, most: int, generator: np.random.Generator
    ) -> tuple[Batch, Ints, float]:
        """A random sample of the results of left tuples with those in a state of the right side.

        Beside the results: the place of the left tuple that each was made of, and how many results each stands for.
        """
        # The place travels as one more reference.
        references = np.vstack([left.references, np.arange(len(left)).reshape(1, -1)])
        new = self.sides[0].keyed(Batch(left.layout, left.valid_from, left.valid_to, references))
        probing, stored, candidates = state.sampled_candidates(new, most, generator)
        own = new.tuples[probing]
        valid_from = np.maximum(own[:, FROM], stored[:, FROM])
        valid_to = np.minimum(own[:, TO], stored[:, TO])
        references = np.empty((len(self.layout.stores), len(probing)), np.int64)
        references[self._rows[0]] = own[:, REFERENCES:-1].T
        references[self._rows[1]] = stored[:, REFERENCES:].T
        met = (valid_from < valid_to) & (valid_to > self.layout.released)
        pairs = Batch(self.layout, valid_from, valid_to, references).filtered(met)
        made_of = own[met, -1]
        if self.check is not None:
            kept = truth(self.check, pairs.column, len(pairs))
            pairs, made_of = pairs.filtered(kept), made_of[kept]
        return pairs, made_of, candidates / max(1, min(candidates, most))

    def request_old_tuples(self, outputs: Mapping[int, Sequence[Batch]]) -> None:
        """Ask for what the new tuples of inputs that are known already will need of incomplete states."""
        for side, other, child in zip(self.sides, reversed(self.sides), reversed(self.inputs), strict=True):
            if side.incomplete is not None:
                if id(child) in outputs:
                    new = other.keyed(concatenate(child.layout, list(outputs[id(child)])))
                    side.incomplete.request(new.lows, new.highs)
                side.incomplete.forward()

    def _met(self, side: int, new: NewTuples, states: Sequence[JoinState]) -> Iterator[Batch]:
        pairs = PairBuffer(len(self.layout.stores), 0, self.chunk_rows)
        own, others = self._rows[side], self._rows[1 - side]
        for state in states:
            for references, valid_from, valid_to in state.meet(new, others, own, pairs):
                yield self._old_result(Batch(self.layout, valid_from, valid_to, references))
        for references, valid_from, valid_to in pairs.flush():
            yield self._old_result(Batch(self.layout, valid_from, valid_to, references))
        self.counters.compared += pairs.compared

    def _old_result(self, batch: Batch) -> Batch:
        """Pairs whose rows are still stored, if they satisfy the predicates; the others have ended."""
        return self._satisfying(batch.filtered(batch.valid_to > batch.layout.released))

    def _whole(self, left: Batch, right: Batch) -> Iterator[Batch]:
        return self._results(self._meeting(left, right), len(left) + len(right))

    def _meeting(self, left: Batch, right: Batch) -> Meeting:
        sides = self.sides
        new = [side.keyed(batch) for side, batch in zip(sides, (left, right), strict=True)]
        completed = (sides[0].completed(new[1]), sides[1].completed(new[0]))
        return Meeting(sides[0].state, sides[1].state, new[0], new[1], self._rows, completed)

    def _results(self, meeting: Meeting, rows: int) -> Iterator[Batch]:
        """The results that the new tuples cause, while they become part of the states."""
        for references, valid_from, valid_to in meeting.pairs(self.chunk_rows, int(1.2 * self._results_per_row * rows)):
            yield self._satisfying(Batch(self.layout, valid_from, valid_to, references))
        self.counters.compared += meeting.compared

    def _satisfying(self, batch: Batch) -> Batch:
        if self.check is None:
            return batch
        return batch.filtered(truth(self.check, batch.column, len(batch)))

    def _slices(self, left: Batch, right: Batch) -> Iterator[Batch]:
        """The results in the order of ``valid_from``, about ``chunk_rows`` at a time."""
        expected = int(1.2 * self._results_per_row * (len(left) + len(right)))
        return in_slices(self.layout, (left, right), expected, self.chunk_rows, self._attempt)

    def _attempt(self, slice_: Sequence[Batch]) -> list[Batch] | None:
        """The results of a slice; None, with the states as before, if they are too many and it can be halved."""
        left, right = slice_
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
        for side in self.sides:
            side.state.settle()
        return results
