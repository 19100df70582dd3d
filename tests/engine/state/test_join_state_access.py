"""What a join state gives to a plan that takes it over: parts by code, everything, copies."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.engine.state.join_state import FROM, REFERENCES, TO, JoinState, NewTuples

examples = settings(derandomize=True, deadline=None, max_examples=80, database=None)

LOWEST, HIGHEST = -(2**63), 2**63 - 1


def new(tuples, width=1):
    """Tuples written as (code, valid_from, valid_to, reference); further references count on from the first."""
    columns = np.array(tuples, np.int64).reshape(len(tuples), 4).T
    references = np.array([columns[3] + row for row in range(width)])
    return NewTuples.sorted_by_code(columns[0], columns[1], columns[2], references, None)


def state_of(*batches, width=1):
    """A state with a run per batch."""
    state = JoinState(width)
    for batch in batches:
        state.insert(new(batch, width))
    return state


def with_codes(found_codes, found):
    return sorted((code, *row) for code, row in zip(found_codes.tolist(), found.tolist(), strict=True))


def listed(tuples):
    return sorted(tuple(row) for row in tuples.tolist())


codes = st.integers(-6, 6) | st.sampled_from([LOWEST, LOWEST + 1, HIGHEST - 1, HIGHEST])
tuples = st.tuples(codes, st.integers(0, 9), st.integers(10, 30), st.integers(0, 999))
batches = st.lists(st.lists(tuples, max_size=8), max_size=5)


@examples
@given(batches, st.lists(codes, max_size=8), st.booleans())
def test_between_gives_the_tuples_whose_code_lies_in_an_interval(written, bounds, settled):
    bounds = sorted(set(bounds))[: len(set(bounds)) // 2 * 2]
    lows, highs = bounds[::2], bounds[1::2]
    state = state_of(*written)
    if settled:
        state.settle()
    found = state.between(np.array(lows, np.int64), np.array(highs, np.int64))
    inside = [
        (code, begin, end, reference)
        for batch in written
        for code, begin, end, reference in batch
        if any(low <= code <= high for low, high in zip(lows, highs, strict=True))
    ]
    assert with_codes(*found) == sorted(inside)
    assert found[0].tolist() == sorted(found[0].tolist())


@examples
@given(batches, st.lists(codes, max_size=8))
def test_between_single_codes(written, asked):
    asked = np.array(sorted(set(asked)), np.int64)
    found = state_of(*written).between(asked, asked)
    assert with_codes(*found) == sorted(row for batch in written for row in batch if row[0] in asked)
    assert found[0].tolist() == sorted(found[0].tolist())


def test_between_of_an_empty_state_has_the_width_of_its_tuples():
    none, everything = np.empty(0, np.int64), (np.array([LOWEST]), np.array([HIGHEST]))
    for state, asked in (
        (JoinState(3), (none, none)),
        (JoinState(3), everything),
        (state_of([(1, 0, 9, 5)], width=3), (np.array([2]), np.array([9]))),
    ):
        codes_found, found = state.between(*asked)
        assert (codes_found.shape, found.shape) == ((0,), (0, REFERENCES + 3))


@examples
@given(batches, codes, st.integers(0, 12))
def test_code_after_bounds_how_many_tuples_lie_ahead(written, code, count):
    """What a sweep relies on: it comes to an end, and passes over about as many tuples as it was told."""
    state = state_of(*written)
    held = sorted(row[0] for batch in written for row in batch)
    after = state.code_after(code, count)
    ahead = [other for other in held if other >= code]
    assert (after is None) == (not ahead)
    if ahead:
        assert after in ahead
        longest = max(len(batch) for batch in written)
        assert sum(other < after for other in ahead) <= count + len(held) - longest
        if after < ahead[-1]:
            assert sum(other <= after for other in ahead) > min(count, longest - 1)


@examples
@given(batches, st.booleans())
def test_everything_is_sorted_by_code(written, settled):
    state = state_of(*written)
    if settled:
        state.settle()
    everything = state.everything()
    assert everything.codes.tolist() == sorted(code for batch in written for code, *_ in batch)
    assert everything.lows.tolist() == everything.highs.tolist() == everything.codes.tolist()
    assert with_codes(everything.codes, everything.tuples) == sorted(
        map(tuple, (row for batch in written for row in batch))
    )
    # Looking changes nothing.
    assert len(state) == sum(map(len, written))


@examples
@given(batches, st.integers(0, 31))
def test_everything_may_leave_out_the_dead_and_never_the_living(written, frontier):
    state = state_of(*written)
    state.expire(frontier)
    found = listed(state.everything().tuples)
    living = sorted(row[1:] for batch in written for row in batch if row[2] > frontier)
    assert [row for row in found if row[TO] > frontier] == living
    assert set(found) <= {row[1:] for batch in written for row in batch}
    assert state.frontier == frontier


def test_everything_of_a_state_whose_tuples_are_all_dead_is_nothing():
    state = state_of([(1, 0, 10, 1)], [(2, 0, 12, 2)])
    state._frontier = 20
    assert len(state.everything().codes) == 0
    assert state.everything().tuples.shape == (0, REFERENCES + 1)


@examples
@given(batches)
def test_codes_and_ends_belong_together(written):
    found = state_of(*written).codes_and_ends()
    assert sorted(zip(*(part.tolist() for part in found), strict=True)) == sorted(
        (code, end) for batch in written for code, _, end, _ in batch
    )


def test_references_keep_their_order():
    state = state_of([(7, 1, 10, 100)], [(3, 2, 20, 200)], width=3)
    assert state.everything().tuples.tolist() == [[2, 20, 200, 201, 202], [1, 10, 100, 101, 102]]
    assert state.between(np.array([7]), np.array([7]))[1][:, FROM].tolist() == [1]


@pytest.mark.parametrize("changed", [0, 1])
def test_a_copy_and_its_origin_go_their_own_ways(changed):
    state = state_of([(1, 0, 10, 1), (2, 0, 50, 2)], [(1, 5, 12, 3)])
    states = [state, state.copy()]
    assert states[0].frontier == states[1].frontier
    before = listed(states[1 - changed].everything().tuples)
    states[changed].insert(new([(1, 7, 70, 4)]))
    states[changed].expire(15)
    states[changed].insert(new([(9, 7, 70, 5)] * 20))
    states[changed].settle()
    assert listed(states[1 - changed].everything().tuples) == before
    assert len(states[1 - changed]) == 3
    assert states[1 - changed].frontier != 15
    assert {row[REFERENCES] for row in listed(states[changed].everything().tuples)} == {2, 4, 5}


def test_a_copy_knows_how_far_it_has_been_purged():
    state = state_of([(1, 0, 50, 1)])
    state.expire(20)
    assert state.copy().frontier == 20


@examples
@given(batches, batches)
def test_take_in_holds_the_tuples_of_both(written, others):
    state, other = state_of(*written), state_of(*others)
    before = listed(other.everything().tuples)
    state.take_in(other)
    assert listed(state.everything().tuples) == sorted(row[1:] for batch in [*written, *others] for row in batch)
    assert listed(other.everything().tuples) == before
