"""Lengths of time as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.algebra.durations import UNIT_MICROSECONDS, duration_text


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "0 SECONDS"),
        (1, "1 MICROSECOND"),
        (-1, "-1 MICROSECONDS"),
        (1_500, "1500 MICROSECONDS"),
        (60_000_000, "1 MINUTE"),
        (90_000_000, "90 SECONDS"),
        (7 * 86_400_000_000, "1 WEEK"),
    ],
)
def test_length_is_written_in_the_largest_unit_that_fits(microseconds: int, text: str) -> None:
    assert duration_text(microseconds) == text


@given(
    st.integers() | st.sampled_from(list(UNIT_MICROSECONDS.values())).flatmap(lambda u: st.integers().map(u.__mul__))
)
def test_text_says_the_length_exactly(microseconds: int) -> None:
    number, unit = duration_text(microseconds).split()
    assert int(number) * UNIT_MICROSECONDS[unit.removesuffix("S")] == microseconds
