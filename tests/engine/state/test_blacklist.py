"""A blacklist gives each suspended tuple back once, to whoever asks for its code first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.engine.state.blacklist import Blacklist

examples = settings(derandomize=True, deadline=None, max_examples=80, database=None)
codes = st.integers(0, 6) | st.sampled_from([-(2**63), 2**63 - 1])


def add(blacklist, codes, first, end) -> None:
    """Add tuples with one reference, a number that each of them has for itself; every second place is left out."""
    count = len(codes)
    numbers = np.repeat(np.arange(first, first + count), 2).reshape(1, -1)
    begins, ends = np.zeros(2 * count, np.int64), np.full(2 * count, end)
    blacklist.add(np.repeat(np.array(codes, np.int64), 2), begins, ends, numbers, 2 * np.arange(count))


@examples
@given(st.lists(st.tuples(st.lists(codes, max_size=150), st.lists(codes, max_size=4), st.integers(0, 3)), max_size=8))
def test_tuples_come_back_once_by_their_code_unless_they_have_ended(steps):
    blacklist, held, first, now = Blacklist(1), {}, 0, 0
    for added, taken, passing in steps:
        end = now + 2
        add(blacklist, added, first, end)
        held |= {first + place: (code, end) for place, code in enumerate(added)}
        first += len(added)
        now += passing
        blacklist.expire(now)
        found = blacklist.take(np.array(taken, np.int64))
        expected = [number for number, (code, end) in held.items() if code in taken and end > now]
        assert sorted(found[:, 2].tolist()) == sorted(expected)
        held = {number: entry for number, entry in held.items() if entry[0] not in taken}
        alive = {code for code, end in held.values() if end > now}
        assert len(alive) <= blacklist.codes_held <= len({code for code, _ in held.values()})
        assert sum(end > now for _, end in held.values()) <= len(blacklist) <= len(held)
    rest = blacklist.take_all()
    assert sorted(rest[:, 2].tolist()) == sorted(number for number, (_, end) in held.items() if end > now)
    assert len(blacklist) == blacklist.codes_held == 0


def test_memory_follows_the_tuples_that_have_not_ended():
    blacklist, sizes = Blacklist(1), []
    for batch in range(200):
        codes = np.arange(500) + 500 * batch
        add(blacklist, codes, 500 * batch, batch + 10)
        blacklist.expire(batch)
        sizes.append(blacklist.bytes)
    assert max(sizes[100:]) <= 1.5 * max(sizes[20:60])


def test_memory_is_given_back_after_a_burst():
    blacklist = Blacklist(1)
    add(blacklist, np.arange(20_000), 0, 5)
    add(blacklist, [1], 20_000, 50)
    large = blacklist.bytes
    blacklist.expire(5)
    assert (len(blacklist), blacklist.codes_held) == (1, 1)
    assert blacklist.bytes < large / 20
    assert blacklist.take(np.array([1])).tolist() == [[5, 50, 20_000]]
    blacklist.expire(6)
    assert len(blacklist) == 0


@pytest.mark.parametrize("taken", [0, 3, 9])
def test_the_ring_runs_round_while_tuples_end_and_are_taken(taken):
    """So many of ten tuples per step are taken out, some of them long after they came."""
    blacklist, waiting = Blacklist(1), {}
    for step in range(200):
        codes = np.arange(10 * step, 10 * step + 10)
        add(blacklist, codes, 10 * step, step + 20)
        waiting |= dict.fromkeys(codes.tolist(), step + 20)
        blacklist.expire(step)
        waiting = {code: end for code, end in waiting.items() if end > step}
        wanted = [code for code in waiting if code % 10 < taken and code // 10 <= step - code % 15]
        found = blacklist.take(np.array([*wanted, *wanted, -1]))
        assert sorted(found[:, 2].tolist()) == sorted(wanted)
        waiting = {code: end for code, end in waiting.items() if code not in wanted}
        assert blacklist.codes_held == len(blacklist) == len(waiting)
