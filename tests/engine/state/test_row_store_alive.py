"""The rows of a store whose validity has not ended, however they are kept."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.engine.state import row_store
from midstream.engine.state.row_store import RowStore

examples = settings(derandomize=True, deadline=None, max_examples=80, database=None)


def append(store, begins, ends):
    return store.append(
        [pa.array([f"row {begin}" for begin in begins], pa.string())],
        np.array(begins, np.int64),
        np.array(ends, np.int64),
    )


def listed(alive):
    return list(zip(*(part.tolist() for part in alive), strict=True))


def test_a_new_store_has_none():
    assert listed(RowStore([pa.string()]).alive()) == []


def test_rows_are_alive_until_the_frontier_reaches_their_end():
    store = RowStore([pa.string()])
    append(store, [1, 2, 3], [10, 30, 20])
    assert listed(store.alive()) == [(0, 1, 10), (1, 2, 30), (2, 3, 20)]
    store.release(9)
    assert len(listed(store.alive())) == 3
    store.release(10)
    assert listed(store.alive()) == [(1, 2, 30), (2, 3, 20)]
    # Row 2 is still stored, because row 1 outlives it, but not alive.
    store.release(20)
    assert len(store) == 2
    assert listed(store.alive()) == [(1, 2, 30)]


@examples
@given(st.lists(st.tuples(st.lists(st.integers(1, 60), max_size=9), st.integers(0, 8)), max_size=25))
def test_alive_is_what_a_list_says(steps):
    """Small rings, so that rows are set aside, rings grow and shrink; some rows live much longer than others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_store, "_SMALLEST", 4)
        store, model, now = RowStore([pa.string()]), [], 0
        for widths, passed in steps:
            ends = [now + (width if width < 50 else 1000) for width in widths]
            numbers = append(store, [now] * len(widths), ends)
            model += zip(numbers.tolist(), [now] * len(widths), ends, strict=True)
            now += passed
            store.release(now)
            model = [row for row in model if row[2] > now]
            assert listed(store.alive()) == model
            numbers = store.alive()[0]
            assert store.gather(0, numbers).to_pylist() == [f"row {begin}" for _, begin, _ in model]


def test_rows_set_aside_are_among_them_and_in_order(monkeypatch):
    monkeypatch.setattr(row_store, "_SMALLEST", 4)
    store = RowStore([pa.string()])
    append(store, [0], [1000])
    for time in range(1, 40):
        append(store, [time], [time + 2])
        store.release(time)
    assert 0 in store._numbers_aside
    assert listed(store.alive()) == [(0, 0, 1000), (38, 38, 40), (39, 39, 41)]
    store.release(1000)
    assert listed(store.alive()) == []
