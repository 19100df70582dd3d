"""Windows: many validities at once are those of one row at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.algebra.expressions import Column
from midstream.algebra.plan import Distinct, Item, Project, Window
from midstream.algebra.stream import Stream
from midstream.algebra.window_spec import NEVER, WindowSpec
from midstream.engine.operators.window_source import WindowOperator
from midstream.engine.state.window_store import Rows, WindowStore, validities

examples = settings(derandomize=True, deadline=None, max_examples=200, database=None)

TIMES = [-(2**62), -(2**62) + 1, -1001, -1000, -10, -9, -1, 0, 1, 7, 9, 10, 11, 1000, 2**62 - 1, 2**62]
WIDTHS = [0, 1, 6, 7, 9, 10, 11, 2**61, 2**62, NEVER - 2, NEVER - 1]
SLIDES = [1, 2, 3, 7, 10, 2**61, 2**62, NEVER - 1]
WINDOWS = [
    WindowSpec(None),
    *(WindowSpec(width) for width in WIDTHS),
    *(WindowSpec(width, slide) for width in WIDTHS for slide in SLIDES),
]


def spelled(window: WindowSpec) -> str:
    return window.text()


@pytest.mark.parametrize("window", WINDOWS, ids=spelled)
def test_validities_are_those_of_one_row_at_a_time(window):
    valid_from, valid_to = validities(window, np.array(TIMES))
    assert list(zip(valid_from.tolist(), valid_to.tolist(), strict=True)) == [window.validity(t) for t in TIMES]
    assert valid_from.dtype == valid_to.dtype == np.int64


ticks = st.one_of(st.integers(-50, 50), st.integers(-(2**62), 2**62))
widths = st.one_of(st.integers(0, 50), st.integers(0, NEVER - 1))
slides = st.one_of(st.none(), st.integers(1, 20), st.integers(1, NEVER - 1))


@examples
@given(st.lists(ticks, max_size=10), widths, slides)
def test_validities_of_any_window_are_those_of_one_row_at_a_time(times, width, slide):
    window = WindowSpec(width, slide)
    valid_from, valid_to = validities(window, np.array(times, np.int64))
    assert list(zip(valid_from.tolist(), valid_to.tolist(), strict=True)) == [window.validity(t) for t in times]
    assert all(to - begin <= window.longest for begin, to in map(window.validity, times))


@examples
@given(ticks, ticks, widths, slides)
def test_no_row_at_or_after_the_watermark_begins_before_the_frontier(time, watermark, width, slide):
    window = WindowSpec(width, slide)
    if time >= watermark:
        assert window.validity(time)[0] >= window.frontier(watermark)


@pytest.mark.parametrize(
    ("window", "time", "expected"),
    [
        (WindowSpec(5), 10, (10, 16)),
        (WindowSpec(0), 10, (10, 11)),
        (WindowSpec(None), 10, (10, NEVER)),
        (WindowSpec(10, 10), 0, (0, 10)),
        (WindowSpec(10, 10), 1, (10, 20)),
        (WindowSpec(10, 10), -1, (0, 10)),
        (WindowSpec(10, 10), -10, (-10, 0)),
        (WindowSpec(10, 4), 1, (4, 12)),
        (WindowSpec(2, 10), 1, (10, 10)),
        (WindowSpec(2, 10), 9, (10, 20)),
    ],
)
def test_validities_are_as_the_language_says(window, time, expected):
    valid_from, valid_to = validities(window, np.array([time]))
    assert (valid_from[0], valid_to[0]) == expected


def windows(window: WindowSpec) -> tuple[WindowStore, WindowOperator]:
    stream = Stream("s", pa.schema({"ts": pa.int64(), "x": pa.string()}), "ts")
    node = Window(stream, "s", window)
    kept = WindowStore([Distinct(Project(node, (Item("", "x", Column("s", "x", pa.string())),)))])
    return kept, WindowOperator(node, kept.layout(node))


def test_rows_that_are_valid_at_no_instant_are_passed_over():
    kept, operator = windows(WindowSpec(2, 10))
    columns = {"ts": pa.nulls(4), "x": pa.array(["a", "b", "c", "d"])}
    operator.stage(kept.arrive(kept.of_streams({"s": Rows(np.array([1, 9, 8, 7]), columns)}))[operator.plan.identity])
    (batch,) = operator.push()
    assert batch.columns()[0].to_pylist() == ["b"]
    assert (batch.valid_from.tolist(), batch.valid_to.tolist()) == ([10], [20])
    assert kept.rows == 1


def test_the_operator_gives_staged_rows_once():
    kept, operator = windows(WindowSpec(5))
    operator.stage(
        kept.arrive(kept.of_streams({"s": Rows(np.array([3]), {"x": pa.array(["a"])})}))[operator.plan.identity]
    )
    assert len(list(operator.push())) == 1
    assert list(operator.push()) == []


def test_rows_stay_in_their_window_until_they_are_released():
    kept, operator = windows(WindowSpec(5))
    identity = operator.plan.identity
    kept.arrive(kept.of_streams({"s": Rows(np.array([3, 4]), {"x": pa.array(["a", "b"])})}))
    kept.release({identity: 9})
    alive = kept.alive()[identity]
    assert alive.columns()[0].to_pylist() == ["b"]
    assert (alive.valid_from.tolist(), alive.valid_to.tolist()) == ([4], [10])
    assert kept.ends() == {identity: 2}


def test_the_operators_frontier_is_the_next_slide():
    _, operator = windows(WindowSpec(10, 10))
    operator.advance(11)
    assert operator.frontier == 20
    operator.advance(NEVER)
    assert operator.frontier == NEVER
