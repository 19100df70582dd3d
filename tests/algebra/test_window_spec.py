"""Validities that windows give."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.algebra.durations import duration_text
from midstream.algebra.window_spec import NEVER, WindowSpec
from midstream.errors import BadWindow


@pytest.mark.parametrize(
    ("window", "time", "validity"),
    [
        (WindowSpec(10), 5, (5, 16)),
        (WindowSpec(0), 5, (5, 6)),
        (WindowSpec(None), 5, (5, NEVER)),
        (WindowSpec(10, 10), 10, (10, 20)),
        (WindowSpec(10, 10), 11, (20, 30)),
        (WindowSpec(10, 5), 1, (5, 15)),
        (WindowSpec(10, 10), -5, (0, 10)),
        (WindowSpec(2, 10), 1, (10, 10)),
        (WindowSpec(10), NEVER - 3, (NEVER - 3, NEVER)),
    ],
)
def test_validity(window: WindowSpec, time: int, validity: tuple[int, int]) -> None:
    assert window.validity(time) == validity


windows = st.builds(WindowSpec, st.integers(0, 10**6), st.one_of(st.none(), st.integers(1, 10**6)))
times = st.integers(-(10**9), 10**9)


@given(windows, times)
def test_no_validity_is_longer_than_longest(window: WindowSpec, time: int) -> None:
    low, high = window.validity(time)
    assert 0 <= high - low <= window.longest


@given(windows, times, times)
def test_frontier_is_a_lower_bound_of_validities_to_come(window: WindowSpec, watermark: int, time: int) -> None:
    if time >= watermark:
        assert window.validity(time)[0] >= window.frontier(watermark)


@given(st.integers(0, 100), times, times)
def test_two_rows_meet_if_no_further_apart_than_the_width(width: int, one: int, other: int) -> None:
    (a, b), (c, d) = WindowSpec(width).validity(one), WindowSpec(width).validity(other)
    assert (max(a, c) < min(b, d)) == (abs(one - other) <= width)


@pytest.mark.parametrize(
    ("width", "slide", "message"),
    [
        (-1, None, "[M1008] a window cannot be -1 ticks wide\n  hint: Give a width of 0 or more."),
        (5, 0, "[M1008] a window cannot slide by 0 ticks\n  hint: Give a slide of 1 or more, and a width."),
        (None, 5, "[M1008] a window cannot slide by 5 ticks\n  hint: Give a slide of 1 or more, and a width."),
        (NEVER, None, f"[M1008] a window cannot be {NEVER} ticks wide\n  hint: Give a width of 0 or more."),
    ],
)
def test_bad_windows_are_refused(width: int | None, slide: int | None, message: str) -> None:
    with pytest.raises(BadWindow) as raised:
        WindowSpec(width, slide)
    assert str(raised.value) == message


def test_window_reads_as_query_text() -> None:
    assert WindowSpec(5).text() == "[RANGE 5]"
    assert WindowSpec(60_000_000).text(duration_text) == "[RANGE 1 MINUTE]"
    assert WindowSpec(600_000_000, 1_500).text(duration_text) == "[RANGE 10 MINUTES SLIDE 1500 MICROSECONDS]"
    assert WindowSpec(10, 5).text() == "[RANGE 10 SLIDE 5]"
    assert WindowSpec(0).text() == "[NOW]"
    assert WindowSpec(None).text() == "[RANGE UNBOUNDED]"
    assert WindowSpec(None, declared=False).text() == ""
