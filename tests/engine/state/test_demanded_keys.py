"""Demanded keys: whoever was added is found until it has ended; only Bloom filters find others too."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.algebra.window_spec import BEGINNING
from midstream.engine.state.demanded_keys import BloomDemandedKeys, DemandedKeys

examples = settings(derandomize=True, deadline=None, max_examples=60, database=None)
KINDS = (DemandedKeys, BloomDemandedKeys)

codes = st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1, 2**40])
steps = st.lists(
    st.tuples(st.lists(st.tuples(codes, st.integers(1, 50)), max_size=200), st.integers(0, 30)), max_size=6
)


def array(values) -> np.ndarray:
    return np.array(list(values), np.int64)


@pytest.mark.parametrize("kind", KINDS)
@examples
@given(steps)
def test_every_code_is_found_until_its_last_tuple_has_ended(kind, steps):
    keys, latest, frontier = kind(), {}, BEGINNING
    for added, moved_to in steps:
        keys.add(array(code for code, _ in added), array(end for _, end in added))
        for code, end in added:
            latest[code] = max(latest.get(code, BEGINNING), end)
        frontier = max(frontier, moved_to)
        keys.expire(frontier)
        asked = [(code, start) for code in (*latest, 99) for start in range(frontier, frontier + 40, 7)]
        found = keys.contains(array(code for code, _ in asked), array(start for _, start in asked))
        for (code, start), is_found in zip(asked, found.tolist(), strict=True):
            if latest.get(code, BEGINNING) > start:
                assert is_found, (code, start)
            elif kind is DemandedKeys:
                assert not is_found, (code, start)


def test_bloom_filters_rarely_find_what_is_not_there():
    keys = BloomDemandedKeys()
    for start in range(0, 100_000, 5_000):
        keys.add(np.arange(start, start + 5_000), np.full(5_000, 100))
    found = keys.contains(np.arange(10**6, 10**6 + 100_000), np.zeros(100_000, np.int64))
    assert found.mean() < 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_memory_follows_the_tuples_that_have_not_ended(kind):
    keys, sizes = kind(), []
    for batch in range(200):
        keys.add(np.arange(1_000) + 1_000 * batch, np.full(1_000, batch + 10))
        keys.expire(batch)
        sizes.append(keys.bytes)
    assert max(sizes[100:]) <= 2 * max(sizes[20:60])


def test_bloom_filters_take_a_tenth_of_the_memory():
    exact, bloom = DemandedKeys(), BloomDemandedKeys()
    for keys in (exact, bloom):
        for start in range(0, 200_000, 2_000):
            keys.add(np.arange(start, start + 2_000), np.full(2_000, 100))
    assert bloom.bytes < exact.bytes / 8
