"""A blacklist gives each suspended tuple back once, to whoever asks for its code first."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.engine.state.blacklist import Blacklist

examples = settings(derandomize=True, deadline=None, max_examples=80, database=None)
codes = st.integers(0, 6) | st.sampled_from([-(2**63), 2**63 - 1])


def rows(codes, first, end) -> np.ndarray:
    """Tuples with one reference, a number that each of them has for itself."""
    numbers = np.arange(first, first + len(codes))
    return np.column_stack([np.zeros(len(codes), np.int64), np.full(len(codes), end), numbers]).astype(np.int64)


@examples
@given(st.lists(st.tuples(st.lists(codes, max_size=150), st.lists(codes, max_size=4), st.integers(0, 3)), max_size=8))
def test_tuples_come_back_once_by_their_code_unless_they_have_ended(steps):
    blacklist, held, first, now = Blacklist(1), {}, 0, 0
    for added, taken, passing in steps:
        end = now + 2
        blacklist.add(np.array(added, np.int64), rows(added, first, end))
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
        blacklist.add(codes, rows(codes, 500 * batch, batch + 10))
        blacklist.expire(batch)
        sizes.append(blacklist.bytes)
    assert max(sizes[100:]) <= 1.5 * max(sizes[20:60])
