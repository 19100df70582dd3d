"""Exact sums: whatever comes and goes, what is read is the exact sum of what remains, rounded once."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.engine.state.exact_sum import WORDS, add_float, read_float

examples = settings(derandomize=True, deadline=None, max_examples=150, database=None)

LARGEST = 1.7976931348623157e308
SMALLEST = 5e-324
EDGES = [
    0.0, -0.0, SMALLEST, -SMALLEST, 2.2250738585072014e-308, -2.2250738585072014e-308, 2.225073858507201e-308, 1.0,
    -1.0, 1.0 + 2**-52, 2.0**53, 2.0**53 + 2, 1e16, -1e16, 1e300, -1e300, LARGEST, -LARGEST, 0.1, 2.0**31, 2.0**32,
]  # fmt: skip


class ExactSum:
    """The words with the two functions that work on them."""

    def __init__(self) -> None:
        self.words = np.zeros(WORDS, np.int64)

    def add(self, value: float) -> None:
        add_float(self.words, np.float64(value).view(np.int64), 1)

    def subtract(self, value: float) -> None:
        add_float(self.words, np.float64(value).view(np.int64), -1)

    def read(self) -> float:
        return float(np.int64(read_float(self.words)).view(np.float64))


def exact(values: list[float]) -> float:
    """The sum by rational numbers, rounded once; beyond the largest float it is infinite."""
    total = sum(map(Fraction, values), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def summed(values: list[float]) -> float:
    total = ExactSum()
    for value in values:
        total.add(value)
    return total.read()


def is_same(left: float, right: float) -> bool:
    """The same bits, except that NaN is NaN."""
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    return left == right and math.copysign(1, left) == math.copysign(1, right)


finite = st.one_of(
    st.sampled_from(EDGES),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-1e-300, 1e-300),
    st.integers(-1074, 1023).map(lambda exponent: math.ldexp(1.0, exponent)),
    st.builds(math.ldexp, st.integers(-(2**53), 2**53).map(float), st.integers(-1074, 970)),
)


@examples
@given(st.lists(finite, max_size=30))
def test_a_sum_is_the_exact_sum_rounded_once(values):
    assert is_same(summed(values), exact(values))


@examples
@given(st.lists(st.floats(-1e290, 1e290), max_size=30))
def test_a_sum_agrees_with_fsum(values):
    assert summed(values) == math.fsum(values)


@examples
@given(st.lists(st.tuples(finite, st.booleans()), max_size=40), st.randoms(use_true_random=False))
def test_what_has_gone_leaves_nothing_behind(values, random):
    total = ExactSum()
    remaining: list[float] = []
    for value, also_one_goes in values:
        total.add(value)
        remaining.append(value)
        if also_one_goes:
            total.subtract(remaining.pop(random.randrange(len(remaining))))
        assert is_same(total.read(), exact(remaining))
    for value in remaining:
        total.subtract(value)
    assert is_same(total.read(), 0.0)


@examples
@given(st.lists(st.sampled_from([*EDGES, math.inf, -math.inf, math.nan]), max_size=12), st.randoms())
def test_infinities_and_nan_rule_as_long_as_they_are_there(values, random):
    total = ExactSum()
    remaining: list[float] = []
    for value in [*values, *values]:
        total.add(value)
        remaining.append(value)
        if len(remaining) > 3:
            total.subtract(remaining.pop(random.randrange(len(remaining))))
        infinite = {v for v in remaining if math.isinf(v)}
        if any(map(math.isnan, remaining)) or len(infinite) == 2:
            expected = math.nan
        else:
            expected = infinite.pop() if infinite else exact(remaining)
        assert is_same(total.read(), expected)


@pytest.mark.parametrize(
    "values", [[], [0.0], [-0.0], [-0.0, -0.0], [1.5, -1.5], [-1e300, 1e300], [-SMALLEST, SMALLEST]]
)
def test_a_sum_of_nothing_is_positive_zero(values):
    assert is_same(summed(values), 0.0)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([2.0**53, 1.0], 2.0**53),  # a tie, to even: down
        ([2.0**53 + 2, 1.0], 2.0**53 + 4),  # a tie, to even: up
        ([2.0**53, 1.0, SMALLEST], 2.0**53 + 2),  # hardly more than a tie
        ([2.0**53, 1.0, -SMALLEST], 2.0**53),
        ([-(2.0**53), -1.0, -SMALLEST], -(2.0**53) - 2),
        ([2.0**53 - 1, 0.5], 2.0**53),  # rounded up into the next power of two
        ([LARGEST, 2.0**969], LARGEST),  # below half a step above the largest
        ([LARGEST, 2.0**970], math.inf),
        ([-LARGEST, -(2.0**970)], -math.inf),
        ([LARGEST, LARGEST, -LARGEST], LARGEST),
        ([2.2250738585072014e-308, -SMALLEST], 2.225073858507201e-308),  # normal becomes subnormal
        ([2.225073858507201e-308, SMALLEST], 2.2250738585072014e-308),
    ],
)
def test_rounding_is_to_the_nearest_with_ties_to_even(values, expected):
    assert is_same(summed(values), expected)
    assert is_same(summed([-v for v in values]), -expected)


def test_carries_may_wait_for_many_additions():
    total = ExactSum()
    value = np.float64(LARGEST).view(np.int64)
    for _ in range(5000):
        add_float(total.words, value, 1)
    total.add(1.0)
    assert total.read() == math.inf
    for _ in range(5000):
        add_float(total.words, value, -1)
    assert total.read() == 1.0


def test_sums_do_not_depend_on_the_order_of_arrival():
    values = [1e300, 1.0, -1e300, 1e-300, 0.1, -0.1, 3e8]
    assert {summed(values[i:] + values[:i]) for i in range(len(values))} == {exact(values)}
