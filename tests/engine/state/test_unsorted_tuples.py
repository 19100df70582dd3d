"""Unsorted tuples are all there until they end, in chunks that do not outlive them."""

from __future__ import annotations

import numpy as np
import pytest

from midstream.engine.state.unsorted_tuples import UnsortedTuples


def add(tuples: UnsortedTuples, numbers: range, end: int) -> None:
    """Add tuples of one reference, a number each."""
    count = len(numbers)
    tuples.add(np.zeros(count, np.int64), np.full(count, end), np.array([numbers], np.int64))


@pytest.mark.parametrize("size", [1, 700, 5000])
def test_tuples_are_held_until_they_end_and_memory_follows_them(size):
    tuples, sizes = UnsortedTuples(1), []
    for step in range(100):
        add(tuples, range(size * step, size * (step + 1)), step + 10)
        tuples.expire(step)
        found = tuples.everything()
        alive = found[:, found[1] > step]
        assert alive[2].tolist() == list(range(size * max(0, step - 9), size * (step + 1)))
        assert len(tuples) == found.shape[1]
        sizes.append(tuples.bytes)
    assert max(sizes[50:]) <= max(sizes[15:50])
    assert max(sizes) <= 24 * (10 * size + max(4096, 2 * size))
    assert tuples.take().shape[1] == found.shape[1]
    assert (len(tuples), tuples.bytes, tuples.take().shape) == (0, 0, (3, 0))


def test_no_tuples_are_no_chunk():
    tuples = UnsortedTuples(2)
    tuples.add(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((2, 0), np.int64))
    assert (len(tuples), tuples.bytes, tuples.everything().shape) == (0, 0, (4, 0))
