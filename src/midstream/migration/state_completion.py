"""State completion: what a join side held before its plan came into force, computed when it is asked for.

A plan that replaces another in mid-stream needs states that its predecessor did not have. They need not be computed at
once (Aly et al. 2014, section 4: just-in-time state completion): such a state starts empty, is fed with new tuples as
usual, and the old ones are computed when a tuple first asks for their key. Only pairs of *old* tuples can be missing,
because a pair with a new part is found by the join below in the ordinary way.

    complete(keys)  ──▶  which are fresh?  ──▶  old tuples of the join below with these keys, on its driving side
                                               └▶ joined with the old tuples of its other side, which are completed
                                                  in the same way ──▶ remembered; the keys are attempted

Everything works on the set of keys of a whole batch: before a push is worked on, all its keys are requested from the
root down, so that each state is completed once for all that need it. A key is completed at most once per state and
probing attribute (section 4.4). The driver is the side of the join below that has the attribute: where it is that
join's own key, its state serves as it is; otherwise the side's old tuples are sorted by the attribute once. Where no
side has the whole key, or there is none, all is computed at the first request.

A state is whole when every key of the driver has been attempted or has lost its last old tuple (section 4.3; the
driver's own state must be whole to know them), or when all old tuples have ended. Keys that nobody asks for would keep
it incomplete for as long as a window; so, beside what is asked for, each push completes further keys in the order of
their codes, as many as take a bounded number of tuples (``complete_ahead``). Without that, keys are counted down as in
the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from midstream.engine.batch import Batch, concatenate
from midstream.engine.kernels import Ints
from midstream.engine.operators.join import JoinOperator
from midstream.engine.operators.join_side import JoinSide
from midstream.engine.operators.operator import Operator
from midstream.engine.state.code_set import HIGHEST, CodeSet
from midstream.engine.state.join_state import TO, JoinState, NewTuples

__all__ = ["CompleteState", "IncompleteState", "OldTuples"]


class OldTuples(Protocol):
    """Old tuples of a join input, in states sorted by one key."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to compute."""

    def request(self, lows: Ints, highs: Ints) -> None:
        """Announce that these codes will be asked for: what many ask for in one push is computed together."""

    def complete(self, lows: Ints, highs: Ints) -> list[JoinState]:
        """States with all old tuples whose code lies in one of the intervals, and perhaps others."""

    def complete_all(self) -> list[JoinState]:
        """States with all old tuples."""


class CompleteState:
    """Old tuples that were there when the plan came into force; ``older`` were themselves incomplete then."""

    def __init__(self, state: JoinState, older: OldTuples | None = None) -> None:
        self.state = state
        self._older = older

    @property
    def is_complete(self) -> bool:
        return self._older is None or self._older.is_complete

    def request(self, lows: Ints, highs: Ints) -> None:
        if self._older is not None:
            self._older.request(lows, highs)

    def complete(self, lows: Ints, highs: Ints) -> list[JoinState]:
        return [self.state] if self._older is None else [self.state, *self._older.complete(lows, highs)]

    def complete_all(self) -> list[JoinState]:
        return [self.state] if self._older is None else [self.state, *self._older.complete_all()]


class IncompleteState:
    """Old results of a join below, computed by key and remembered: what the state of a side lacks."""

    def __init__(
        self,
        side: JoinSide,
        join: JoinOperator,
        above: Sequence[Operator],
        driver: int,
        drivers: OldTuples,
        others: OldTuples,
        is_keyed: bool,
        drives_by_own_key: bool,
        ends: int,
    ) -> None:
        self.memo = JoinState(len(side.layout.stores))
        """What has been computed."""
        self.computed = 0
        self.counts_keys = False
        """Count the driver's keys that are left: needed where no keys are completed ahead."""
        self._side = side
        self._join = join
        self._above = above
        self._driver = driver
        self._drivers = drivers
        self._others = others
        self._is_keyed = is_keyed
        self._drives_by_own_key = drives_by_own_key
        self._asked: list[tuple[Ints, Ints]] = []
        self._driving: list[NewTuples] = []
        self._ends = ends
        self._attempted = CodeSet()
        self._countdown: _Countdown | None = None
        self._is_complete = False

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    def request(self, lows: Ints, highs: Ints) -> None:
        if not self._is_complete and len(lows):
            self._asked.append((lows, highs))

    def forward(self) -> None:
        """Take the driving tuples for all that has been requested, and request their partners in turn."""
        asked, self._asked = self._asked, []
        if self._is_complete or not self._is_keyed or not asked:
            return
        lows, highs = asked[0]
        if len(asked) > 1:
            is_point = all(low is high for low, high in asked)
            lows = np.concatenate([low for low, _ in asked])
            highs = lows if is_point else np.concatenate([high for _, high in asked])
        lows, highs = self._attempted.add_missing(lows, highs)
        if len(lows) == 0:
            return
        if self._countdown is not None:
            self._countdown.attempt(lows, highs)
        for state in self._drivers.complete(lows, highs):
            self._drive(*state.between(lows, highs))

    def complete(self, lows: Ints, highs: Ints) -> list[JoinState]:
        if not self._is_keyed:
            return self.complete_all()
        self.request(lows, highs)
        self.forward()
        self.fulfil()
        return [self.memo]

    def complete_all(self) -> list[JoinState]:
        self.forward()
        if not self._is_complete:
            for state in self._drivers.complete_all():
                tuples = state.everything()
                rest = ~self._attempted.contains(tuples.codes)
                self._drive(tuples.codes[rest], tuples.tuples[rest])
            self._is_complete = True
        self.fulfil()
        return [self.memo]

    def complete_ahead(self, count: int) -> int:
        """Complete keys that nobody has asked for yet, in order, until about so many tuples were read and computed.

        How many there were. The driver and the others must be whole: then no state below has to be completed for it.
        """
        done, piece = 0, max(1, count // 16)
        while done < count and not self._is_complete:
            computed = self.computed
            passed = self._complete_next(piece)
            if passed == 0:
                break
            work = passed + self.computed - computed
            done += work
            # Driving tuples may have more partners than those before them.
            piece = max(1, min(2 * piece, (count - done) * passed // work))
        return done

    def _complete_next(self, count: int) -> int:
        """Complete the keys of about so many further driving tuples; how many."""
        if not self._is_keyed or not (self._drivers.is_complete and self._others.is_complete):
            return 0
        states = self._drivers.complete_all()
        ends = [end for state in states if (end := state.code_after(self._attempted.floor, count)) is not None]
        if not ends:
            self._is_complete = True
            return 0
        lows, highs = np.array([self._attempted.floor]), np.array([min(ends)])
        passed = 0
        for state in states:
            codes, tuples = state.between(lows, highs)
            fresh = ~self._attempted.contains(codes)
            self._drive(codes[fresh], tuples[fresh])
            passed += len(codes)
        self.fulfil()
        if min(ends) == HIGHEST:
            self._is_complete = True
        else:
            self._attempted.floor = min(ends) + 1
            self._is_complete = all(state.code_after(self._attempted.floor, 0) is None for state in states)
        return passed

    def expire(self, frontier: int) -> bool:
        """Forget what has ended; whether the state is complete now."""
        self.memo.expire(frontier)
        if not self._is_complete and frontier >= self._ends:
            self._is_complete = True
            self._driving = []
        if self.counts_keys and not self._is_complete and self._is_keyed and self._drivers.is_complete:
            if self._countdown is None:
                self._countdown = _Countdown(self._drivers.complete_all(), self._attempted)
            self._is_complete = self._countdown.expire(frontier) == 0
        return self._is_complete

    def _drive(self, codes: Ints, tuples: Ints) -> None:
        """Take driving tuples, to be joined with their old partners when these are asked for."""
        side = self._join.sides[self._driver]
        # Rows of tuples that have ended are perhaps no longer stored.
        kept = tuples[:, TO] > side.layout.released
        if not kept.all():
            codes, tuples = codes[kept], tuples[kept]
        if len(codes) == 0:
            return
        new = NewTuples(codes, tuples, codes, codes) if self._drives_by_own_key else side.keyed(side.batch_of(tuples))
        if len(new.codes):
            self._others.request(new.lows, new.highs)
            self._driving.append(new)

    def fulfil(self) -> None:
        """Join the driving tuples with their old partners, and remember the results."""
        driving, self._driving = self._driving, []
        for new in driving:
            states = self._others.complete(new.lows, new.highs)
            if self._drives_by_own_key and not self._above:
                results = self._join.past_pairs_by_code(self._driver, new, states)
            else:
                results = self._side.keyed(self._pairs(new, states))
            self.computed += len(results.codes)
            self.memo.insert(results)
        if driving:
            self.memo.settle()

    def _pairs(self, new: NewTuples, states: Sequence[JoinState]) -> Batch:
        results = self._join.past_pairs_with(self._driver, new, states)
        for operator in self._above:
            results = concatenate(operator.layout, list(operator.push([results])))
        return results


class _Countdown:
    """The driver's keys that have neither been attempted nor lost their last old tuple."""

    def __init__(self, states: Sequence[JoinState], attempted: CodeSet) -> None:
        codes, ends = (np.concatenate(part) for part in zip(*(state.codes_and_ends() for state in states), strict=True))
        order = np.argsort(codes, kind="stable")
        codes, ends = codes[order], ends[order]
        starts = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]])) if len(codes) else order
        self._codes = codes[starts]
        last_ends = np.maximum.reduceat(ends, starts) if len(codes) else ends
        self._by_end = np.argsort(last_ends, kind="stable")
        self._ends = last_ends[self._by_end]
        self._is_open = ~attempted.contains(self._codes)
        self._left = int(np.count_nonzero(self._is_open))
        self._ended = 0

    def attempt(self, lows: Ints, highs: Ints) -> None:
        starts = np.searchsorted(self._codes, lows, "left")
        counts = np.searchsorted(self._codes, highs, "right") - starts
        if counts.any():
            self._close(np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum()))

    def expire(self, frontier: int) -> int:
        """How many keys are left."""
        ended = int(np.searchsorted(self._ends, frontier, "right"))
        if ended > self._ended:
            self._close(self._by_end[self._ended : ended])
            self._ended = ended
        return self._left

    def _close(self, places: Ints) -> None:
        self._left -= int(np.count_nonzero(self._is_open[places]))
        self._is_open[places] = False
