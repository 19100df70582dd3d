"""Sets of key codes: what of a request is new, against a plain set."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.engine.state.code_set import CodeSet

examples = settings(derandomize=True, deadline=None, max_examples=80, database=None)

LOWEST, HIGHEST = -(2**63), 2**63 - 1

AROUND = {"zero": 0, "the lowest code": LOWEST + 20, "the highest code": HIGHEST - 20}
"""Universes of 41 codes: small enough to be counted one by one; two reach to the end of what an int64 can be."""


def array(values):
    return np.array(values, np.int64)


def codes_of(lows, highs):
    """The codes in the intervals, which must be in order, not empty and not overlapping."""
    assert lows.dtype == highs.dtype == np.int64
    codes = []
    for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
        assert low <= high
        assert not codes or codes[-1] < low
        codes += range(low, high + 1)
    return codes


points = st.lists(st.integers(-20, 20), max_size=8).map(lambda codes: [(code, code) for code in codes])
intervals = st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), max_size=6)
"""Some of them empty."""


def check(requests, around):
    codes, model = CodeSet(), set()
    universe = range(around - 20, around + 21)
    for request in requests:
        if isinstance(request, int):
            # All codes below are in the set from now on; the floor only rises.
            codes.floor = max(codes.floor, around + request)
            model |= {code for code in universe if code < codes.floor}
            assert codes.contains(array(universe)).tolist() == [code in model for code in universe]
            continue
        lows, highs = (array([around + pair[end] for pair in request]) for end in (0, 1))
        wanted = {
            code for low, high in zip(lows.tolist(), highs.tolist(), strict=True) for code in range(low, high + 1)
        }
        missing = codes.add_missing(lows, highs)
        assert codes_of(*missing) == sorted(wanted - model)
        model |= wanted
        assert codes.contains(array(universe)).tolist() == [code in model for code in universe]


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
@examples
@given(st.lists(points, max_size=8))
def test_points(around, requests):
    check(requests, around)


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
@examples
@given(st.lists(intervals, max_size=8))
def test_intervals(around, requests):
    check(requests, around)


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
@examples
@given(st.lists(st.one_of(points, intervals), max_size=8))
def test_points_and_intervals_mixed(around, requests):
    check(requests, around)


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
@examples
@given(st.lists(st.one_of(points, intervals, st.integers(-20, 20)), max_size=8))
def test_a_floor_that_rises_in_between(around, requests):
    check(requests, around)


@examples
@given(st.lists(st.lists(st.integers(LOWEST, HIGHEST) | st.sampled_from([LOWEST, HIGHEST, 0, -1]), max_size=9)))
def test_scattered_points(requests):
    codes, model = CodeSet(), set()
    for request in requests:
        lows, highs = codes.add_missing(array(request), array(request))
        assert lows.tolist() == highs.tolist() == sorted(set(request) - model)
        model |= set(request)
        asked = sorted(model | {LOWEST, HIGHEST, 7})
        assert codes.contains(array(asked)).tolist() == [code in model for code in asked]


def test_all_codes_there_are():
    codes = CodeSet()
    codes.add_missing(array([5]), array([5]))
    lows, highs = codes.add_missing(array([LOWEST]), array([HIGHEST]))
    assert list(zip(lows.tolist(), highs.tolist(), strict=True)) == [(LOWEST, 4), (6, HIGHEST)]
    assert codes.contains(array([LOWEST, 0, 5, HIGHEST])).all()
    assert [len(part) for part in codes.add_missing(array([LOWEST, 3]), array([HIGHEST, 3]))] == [0, 0]


def test_the_ends_of_all_codes_are_codes_like_others():
    codes = CodeSet()
    assert codes_of(*codes.add_missing(array([HIGHEST, LOWEST]), array([HIGHEST, LOWEST]))) == [LOWEST, HIGHEST]
    lows, highs = codes.add_missing(array([HIGHEST - 1, LOWEST]), array([HIGHEST, LOWEST + 1]))
    assert codes_of(lows, highs) == [LOWEST + 1, HIGHEST - 1]


def test_an_empty_set_contains_nothing_and_takes_nothing():
    codes = CodeSet()
    assert codes.contains(array([LOWEST, 0, HIGHEST])).tolist() == [False] * 3
    assert [part.tolist() for part in codes.add_missing(array([]), array([]))] == [[], []]
    # An interval that ends before it begins.
    assert [part.tolist() for part in codes.add_missing(array([3]), array([2]))] == [[], []]
    assert not codes.contains(array([2, 3])).any()


def test_many_points_are_kept_in_few_arrays():
    random = np.random.default_rng(3)
    codes, model = CodeSet(), set()
    for _ in range(300):
        request = random.integers(0, 5000, 20)
        missing, _ = codes.add_missing(request, request)
        assert missing.tolist() == sorted(set(request.tolist()) - model)
        model |= set(request.tolist())
    assert len(codes._points) <= 14
    assert sum(map(len, codes._points)) == len(model)


def test_a_request_is_not_changed():
    codes = CodeSet()
    lows, highs = array([9, 1, 4]), array([12, 5, 4])
    codes.add_missing(lows, highs)
    assert (lows.tolist(), highs.tolist()) == ([9, 1, 4], [12, 5, 4])
