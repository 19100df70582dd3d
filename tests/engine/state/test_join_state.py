"""Join states: every pair that may meet is found exactly once, however tuples are batched, merged and taken back."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.engine.state.join_state import JoinState, Meeting, NewTuples

examples = settings(derandomize=True, deadline=None, max_examples=60, database=None)

LOWEST, HIGHEST = -(2**63), 2**63 - 1
NEVER = HIGHEST


@dataclass(frozen=True)
class Tuple_:
    """A tuple, with the codes of the other side that it can meet."""

    code: int
    low: int
    high: int
    begin: int
    end: int
    references: tuple[int, ...]


Pair = tuple[tuple[int, ...], int, int]


@dataclass
class Reference:
    """Both states beside lists of all tuples they were ever given."""

    widths: tuple[int, int] = (1, 1)
    is_range: bool = False
    sides: tuple[JoinState, JoinState] = field(init=False)
    given: tuple[list[Tuple_], list[Tuple_]] = field(init=False)

    def __post_init__(self) -> None:
        self.sides = JoinState(self.widths[0]), JoinState(self.widths[1])
        self.given = [], []

    def new(self, side: int, tuples: list[Tuple_]) -> NewTuples:
        def column(values) -> np.ndarray:
            return np.array(list(values), np.int64)

        references = np.array([t.references for t in tuples], np.int64).reshape(len(tuples), self.widths[side]).T
        ranges = (column(t.low for t in tuples), column(t.high for t in tuples)) if self.is_range else None
        return NewTuples.sorted_by_code(
            column(t.code for t in tuples),
            column(t.begin for t in tuples),
            column(t.end for t in tuples),
            np.ascontiguousarray(references),
            ranges,
        )

    def meeting(self, left: list[Tuple_], right: list[Tuple_]) -> Meeting:
        return Meeting(*self.sides, self.new(0, left), self.new(1, right))

    def push(self, left: list[Tuple_], right: list[Tuple_], chunk: int, expected: int = 0) -> None:
        meeting = self.meeting(left, right)
        found = drained(meeting, chunk, expected)
        before = self.given[0].copy(), self.given[1].copy()
        self.given[0].extend(left)
        self.given[1].extend(right)
        assert found == self.expected(left, before[1]) + self.expected(self.given[0], right)
        assert meeting.compared >= found.total()

    def expected(self, left: list[Tuple_], right: list[Tuple_]) -> Counter[Pair]:
        pairs: Counter[Pair] = Counter()
        for a in left:
            for b in right:
                meets = a.low <= b.code <= a.high if self.is_range else a.code == b.code
                begin, end = max(a.begin, b.begin), min(a.end, b.end)
                if meets and begin < end:
                    pairs[a.references + b.references, begin, end] += 1
        return pairs

    def expire(self, frontier: int) -> None:
        """Tuples that begin later than the frontier come afterwards; those that ended by it may be forgotten."""
        for side, given_tuples in zip(self.sides, self.given, strict=True):
            side.expire(frontier)
            given_tuples[:] = [t for t in given_tuples if t.end > frontier]
            assert len(side) >= len(given_tuples)


def drained(meeting: Meeting, chunk: int, expected: int = 0) -> Counter[Pair]:
    found: Counter[Pair] = Counter()
    for references, valid_from, valid_to in meeting.pairs(chunk, expected):
        assert 1 <= len(valid_from) <= chunk
        for i in range(len(valid_from)):
            found[tuple(references[:, i].tolist()), int(valid_from[i]), int(valid_to[i])] += 1
    return found


CODES = {
    "one code": st.just(7),
    "few codes": st.integers(-3, 3),
    "scattered codes": st.integers(LOWEST, HIGHEST),
    "extreme codes": st.sampled_from([LOWEST, LOWEST + 1, -1, 0, 1, HIGHEST - 1, HIGHEST]),
    "dense codes": st.integers(0, 200),
}


@st.composite
def batches(draw, codes, widths=(1, 1), most=12):
    """Steps of a stream: new tuples of both sides, a chunk size, and how far the frontier moves."""
    steps, now, number = [], 0, 0
    for _ in range(draw(st.integers(1, 8))):
        sides = []
        for width in widths:
            tuples = []
            for _ in range(draw(st.integers(0, most))):
                code, begin = draw(codes), now + draw(st.integers(0, 6))
                low, high = sorted((draw(codes), draw(codes)))
                end = draw(st.one_of(st.integers(1, 9).map(lambda w, b=begin: b + w), st.just(NEVER)))
                tuples.append(Tuple_(code, low, high, begin, end, tuple(number + i for i in range(width))))
                number += width
            sides.append(tuples)
        now += draw(st.integers(0, 6))
        steps.append((*sides, draw(st.sampled_from([1, 2, 3, 1 << 20])), now))
    return steps


@pytest.mark.parametrize("kind", CODES)
@settings(examples, max_examples=25)
@given(data=st.data())
def test_tuples_with_equal_codes_meet_once(kind, data):
    reference = Reference()
    for left, right, chunk, frontier in data.draw(batches(CODES[kind])):
        reference.push(left, right, chunk)
        reference.expire(frontier)


@pytest.mark.parametrize("kind", CODES)
@settings(examples, max_examples=25)
@given(data=st.data())
def test_tuples_meet_the_codes_in_their_range_once(kind, data):
    """The right side's ranges mirror the left's: here each new side's own range must decide, so one side is empty."""
    reference = Reference(is_range=True)
    for left, right, chunk, frontier in data.draw(batches(CODES[kind])):
        # Stored right tuples are found by the ranges of new left ones.
        for t in right:
            reference.sides[1].insert(reference.new(1, [t]))
        reference.given[1].extend(right)
        found = drained(reference.meeting(left, []), chunk)
        assert found == reference.expected(left, reference.given[1])
        reference.sides[1].settle()
        reference.expire(frontier)


def test_new_right_tuples_meet_the_left_codes_in_their_range():
    reference = Reference(is_range=True)
    left = [Tuple_(code, 5, 3, 0, 10, (code,)) for code in range(10)]  # themselves they meet nothing
    right = [Tuple_(100, 2, 4, 5, 20, (77,))]
    found = drained(reference.meeting(left, right), 2)
    assert found == Counter({((code, 77), 5, 10): 1 for code in (2, 3, 4)})


@examples
@given(batches(CODES["few codes"], widths=(2, 3)))
def test_references_of_left_are_above_those_of_right(steps):
    reference = Reference(widths=(2, 3))
    for left, right, chunk, frontier in steps:
        reference.push(left, right, chunk)
        reference.expire(frontier)


@examples
@given(batches(CODES["few codes"]), st.integers(0, 6), st.sampled_from([1, 2, 100]))
def test_a_meeting_that_is_undone_leaves_no_trace(steps, pieces, chunk):
    reference = Reference()
    for left, right, whole_chunk, frontier in steps:
        sizes = [len(side) for side in reference.sides]
        meeting = reference.meeting(left, right)
        attempt = meeting.pairs(chunk, 0)
        for _ in range(pieces):
            if next(attempt, None) is None:
                break
        meeting.undo()
        attempt.close()
        assert [len(side) for side in reference.sides] == sizes
        reference.push(left, right, whole_chunk)
        reference.expire(frontier)


def test_many_batches_are_kept_in_few_runs_and_all_are_found():
    random = np.random.default_rng(5)
    reference = Reference()
    for step in range(120):
        sides = [
            [
                Tuple_(int(code), 0, 0, step, step + 40, (1000 * step + i,))
                for i, code in enumerate(random.integers(0, 30, random.integers(0, 9)))
            ]
            for _ in range(2)
        ]
        reference.push(*sides, chunk=[1, 2, 7, 1 << 20][step % 4], expected=step)
        reference.expire(step - 3)
        assert all(len(side._runs) <= 6 for side in reference.sides)


def test_the_dead_are_dropped():
    reference = Reference()
    for step in range(200):
        reference.push([Tuple_(step % 5, 0, 0, step, step + 10, (step,))], [], 10)
        reference.expire(step)
        assert len(reference.sides[0]) <= 40
    reference.expire(1000)
    assert len(reference.sides[0]) == 0
    assert reference.sides[0].bytes == 0


def test_a_tuple_is_alive_until_the_frontier_reaches_its_end():
    reference = Reference()
    state = reference.sides[0]
    for end in (10, 11):
        state.insert(reference.new(0, [Tuple_(1, 0, 0, 0, end, (end,))]))
    state.expire(9)
    assert len(state) == 2
    state.expire(10)
    right = [Tuple_(1, 0, 0, 10, 20, (5,))]
    assert drained(reference.meeting([], right), 10) == Counter({((11, 5), 10, 11): 1})
    state.expire(11)
    assert len(state) == 0


def test_validities_that_only_touch_do_not_meet():
    reference = Reference()
    left = [Tuple_(1, 0, 0, 0, 10, (1,)), Tuple_(1, 0, 0, 20, 30, (2,))]
    assert drained(reference.meeting(left, [Tuple_(1, 0, 0, 10, 20, (3,))]), 10) == Counter()


@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 33, 100, 1000])
def test_long_runs_are_searched_from_any_bound(size):
    """Codes that crowd together far from the others, so that the directory is of little help."""
    random = np.random.default_rng(size)
    for codes in (
        np.concatenate([np.full(size, LOWEST), np.arange(size), [HIGHEST]]),
        np.concatenate([[LOWEST], np.arange(size) * 3, [HIGHEST]]),
        random.integers(LOWEST, HIGHEST, size),
        np.concatenate([np.arange(size), 10**6 + np.arange(size)]),
    ):
        reference = Reference(is_range=True)
        stored = [Tuple_(int(code), 0, 0, 0, NEVER, (i,)) for i, code in enumerate(codes)]
        reference.sides[1].insert(reference.new(1, stored))
        edges = [*random.choice(codes, 20).tolist(), LOWEST, HIGHEST, 0, -1, size // 2, 10**6 - 1, 10**6 + size - 1]
        new = [Tuple_(0, low, min(HIGHEST, low + 2), 0, NEVER, (k,)) for k, low in enumerate(edges)]
        found = drained(reference.meeting(new, []), 1 << 20)
        assert found == reference.expected(new, stored)


def test_new_tuples_are_sorted_by_code_with_everything_that_belongs_to_them():
    new = NewTuples.sorted_by_code(
        np.array([3, -1, 3, LOWEST]),
        np.array([10, 20, 30, 40]),
        np.array([11, 21, 31, 41]),
        np.array([[1, 2, 3, 4], [5, 6, 7, 8]]),
        (np.array([100, 200, 300, 400]), np.array([101, 201, 301, 401])),
    )
    assert new.codes.tolist() == [LOWEST, -1, 3, 3]
    assert new.tuples.tolist() == [[40, 41, 4, 8], [20, 21, 2, 6], [10, 11, 1, 5], [30, 31, 3, 7]]
    assert new.lows.tolist() == [400, 200, 100, 300]
    assert new.highs.tolist() == [401, 201, 101, 301]


def test_without_ranges_a_tuple_meets_its_own_code():
    none = np.empty((0, 3), np.int64)
    new = NewTuples.sorted_by_code(np.array([2, 1, 2]), np.zeros(3, int), np.ones(3, int), none, None)
    assert new.lows.tolist() == new.highs.tolist() == new.codes.tolist() == [1, 2, 2]


def test_a_merge_keeps_dead_tuples_out_and_the_living_in():
    """Pairs with tuples that have ended may be lost only where no new tuple can meet them."""
    reference = Reference()
    ends = [5, 50, 20, 60, 20, 70, 20, 80]  # 20 is dead at the frontier 20
    tuples = [Tuple_(i % 2, 0, 0, 0, end, (i,)) for i, end in enumerate(ends)]
    for run in (tuples[:4], tuples[4:]):
        reference.sides[0].insert(reference.new(0, run))
    reference.sides[0].expire(20)
    assert len(reference.sides[0]) == 4
    right = [Tuple_(0, 0, 0, 20, 30, (9,)), Tuple_(1, 0, 0, 20, 30, (9,))]
    found = drained(reference.meeting([], right), 100)
    assert {references[0] for references, _, _ in found} == {1, 3, 5, 7}
