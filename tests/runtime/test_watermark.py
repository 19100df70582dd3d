"""Event time: the watermark is what the slowest stream that counts says, and never moves back."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.algebra.window_spec import BEGINNING, NEVER
from midstream.runtime.messages import EventTimeProgress
from midstream.runtime.watermark import EventTime


def test_a_stream_without_a_row_holds_the_watermark():
    time = EventTime({"a": 0, "b": 0})
    time.see("a", 100)
    assert time.advance() == BEGINNING
    time.see("b", 3)
    assert time.advance() == 3


def test_the_watermark_does_not_move_back():
    time = EventTime({"a": 5})
    time.see("a", 100)
    assert time.advance() == 95
    time.see("a", 20)
    assert time.advance() == 95
    assert time.latest == {"a": 100}


def test_a_caller_may_move_the_watermark_further_but_not_back():
    time = EventTime({"a": 0})
    time.see("a", 10)
    assert time.advance(50) == 50
    assert time.advance(20) == 50
    time.see("a", 40)
    assert time.advance() == 50
    assert time.advance(NEVER) == NEVER


def test_an_idle_stream_counts_for_nothing_until_its_next_row():
    time = EventTime({"a": 0, "b": 0})
    time.see("a", 10)
    time.see("b", 100)
    time.declare_idle("a")
    assert time.advance() == 100
    time.see("a", 20)
    assert time.idle == set()
    time.see("b", 200)
    assert time.advance() == 100
    time.see("a", 150)
    assert time.advance() == 150


def test_if_all_streams_are_idle_the_watermark_stays():
    time = EventTime({"a": 0, "b": 0})
    for stream in "ab":
        time.see(stream, 10)
    assert time.advance() == 10
    for stream in "ab":
        time.declare_idle(stream)
    assert time.advance() == 10
    assert time.advance(30) == 30


def test_a_stream_that_never_had_a_row_may_be_idle():
    time = EventTime({"a": 0, "b": 0})
    time.see("a", 10)
    time.declare_idle("b")
    assert time.advance() == 10


def test_lateness_does_not_reach_before_the_beginning():
    time = EventTime({"a": 2**62})
    time.see("a", -(2**62) - 1)
    assert time.advance() == BEGINNING
    time.see("a", -(2**62) + 1)
    assert time.advance() == BEGINNING + 1


@pytest.mark.parametrize("watermark", [BEGINNING, -5, 0, NEVER])
def test_what_is_described_survives_json_and_time_goes_on_from_it(watermark):
    time = EventTime({"a": 7, "b": 0, "c": 1})
    time.see("a", 2**62)
    time.see("b", -(2**62))
    time.declare_idle("b")
    time.declare_idle("c")
    time.watermark = watermark
    again = EventTime(time.lateness)
    again.restore(msgspec.json.decode(msgspec.json.encode(time.progress()), type=EventTimeProgress))
    assert (again.latest, again.idle, again.watermark) == (time.latest, time.idle, watermark)
    for each in (time, again):
        each.see("b", 2**61)
    assert again.advance() == time.advance() == max(watermark, 2**61)
    for each in (time, again):
        each.declare_idle("b")
    assert again.advance() == time.advance() == max(watermark, 2**62 - 7)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("see"), st.sampled_from("abc"), st.integers(-50, 50)),
        st.tuples(st.just("idle"), st.sampled_from("abc"), st.just(0)),
        st.tuples(st.just("advance"), st.just(""), st.sampled_from([BEGINNING, BEGINNING, -20, 30])),
        st.tuples(st.just("restore"), st.just(""), st.just(0)),
    ),
    max_size=30,
)


@settings(derandomize=True, deadline=None, max_examples=100, database=None)
@given(ACTIONS)
def test_the_watermark_is_the_least_that_a_stream_says(actions):
    lateness = {"a": 0, "b": 3, "c": 10}
    time, seen, idle, watermark = EventTime(lateness), {}, set(), BEGINNING
    for action, stream, value in actions:
        if action == "see":
            time.see(stream, value)
            seen[stream] = max(value, seen.get(stream, BEGINNING))
            idle.discard(stream)
        elif action == "idle":
            time.declare_idle(stream)
            idle.add(stream)
        elif action == "restore":
            progress, time = time.progress(), EventTime(lateness)
            time.restore(msgspec.json.decode(msgspec.json.encode(progress), type=EventTimeProgress))
        else:
            counting = [seen[s] - lateness[s] if s in seen else BEGINNING for s in lateness if s not in idle]
            watermark = max(watermark, value, min(counting, default=BEGINNING))
            assert time.advance(value) == watermark
