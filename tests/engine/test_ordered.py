"""Results of several boxes in one order."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.algebra.plan import Field
from midstream.engine.batch import Batch, Layout
from midstream.engine.ordered import in_one_order, lasting, merged
from midstream.engine.state.row_store import RowStore

examples = settings(derandomize=True, deadline=None, max_examples=100, database=None)

FIELDS = (Field("a", "v", pa.int64()),)


def materialized(begins, label=0):
    """A batch whose value is its label and the number of the tuple in it."""
    begins = np.array(begins, np.int64)
    return Batch.of_arrays(
        Layout(FIELDS), begins, begins + 5, [pa.array([100 * label + i for i in range(len(begins))])]
    )


def stored(begins, label=0, is_lasting=True, store=None, has_origin=True):
    """The same, but the values are in a store."""
    store = RowStore([pa.int64()]) if store is None else store
    store.is_lasting = is_lasting
    begins = np.array(begins, np.int64)
    numbers = store.append([pa.array([100 * label + i for i in range(len(begins))], pa.int64())], begins, begins + 5)
    layout = Layout(FIELDS, (store,), ((0, 0),), ("w",), has_origin=has_origin)
    return Batch(layout, begins, begins + 5, numbers.reshape(1, -1))


def listed(*batches):
    return [
        (int(begin), int(end), value)
        for batch in batches
        for begin, end, value in zip(batch.valid_from, batch.valid_to, batch.columns()[0].to_pylist(), strict=True)
    ]


def test_nothing_in_order_is_nothing_with_the_fields_asked_for():
    empty = in_one_order(FIELDS, [])
    assert len(empty) == 0
    assert empty.layout.fields == FIELDS
    assert len(in_one_order(FIELDS, [materialized([]), materialized([])])) == 0


@pytest.mark.parametrize("second", [materialized, stored])
@pytest.mark.parametrize("first", [materialized, stored])
def test_tuples_of_all_batches_are_ordered_by_their_begin(first, second):
    together = in_one_order(FIELDS, iter([first([3, 1, 2]), second([2, 0], 1), materialized([])]))
    assert listed(together) == [(0, 5, 101), (1, 6, 1), (2, 7, 2), (2, 7, 100), (3, 8, 0)]


def test_batches_of_one_store_stay_references():
    store = RowStore([pa.int64()])
    together = in_one_order(FIELDS, [stored([3, 1], store=store), stored([2], 1, store=store)])
    assert together.layout.stores == (store,)
    assert listed(together) == [(1, 6, 1), (2, 7, 100), (3, 8, 0)]


def derived(window, begins, label):
    """Tuples computed from the first rows of a window, in a store that does not last."""
    store = RowStore([pa.int64(), pa.int64()])
    store.made_of = (window,)
    begins = np.array(begins, np.int64)
    values = pa.array([100 * label + i for i in range(len(begins))], pa.int64())
    numbers = store.append([values, pa.array(range(len(begins)), pa.int64())], begins, begins + 5)
    layout = Layout(FIELDS, (store,), ((0, 0),), ("d",), has_origin=True)
    return Batch(layout, begins, begins + 5, numbers.reshape(1, -1))


def test_tuples_of_different_stores_can_still_be_traced_back_to_the_window():
    window = RowStore([pa.int64()])
    together = in_one_order(FIELDS, [stored([3, 1], store=window), derived(window, [2], 1)])
    assert together.layout.has_origin
    assert together.origins().tolist() == [[1, 0, 0]]
    assert listed(together) == [(1, 6, 1), (2, 7, 100), (3, 8, 0)]


def test_one_batch_that_cannot_be_traced_back_makes_all_so():
    together = in_one_order(FIELDS, [stored([3, 1]), stored([2], 1, has_origin=False)])
    assert not together.layout.has_origin
    assert listed(together) == [(1, 6, 1), (2, 7, 100), (3, 8, 0)]


def test_a_batch_whose_rows_stay_is_lasting_as_it_is():
    batch = stored([1, 2])
    assert lasting(batch) is batch
    assert lasting(materialized([1])).column_at(0).to_pylist() == [0]


def test_a_batch_whose_rows_go_has_its_values_looked_up():
    window = RowStore([pa.int64()])
    window.is_lasting = True
    batch = derived(window, [1, 2], 0)
    kept = lasting(batch)
    batch.layout.stores[0].release(100)
    batch.layout.stores[0].append([pa.array([-1] * 64), pa.array([-1] * 64)], np.full(64, 100), np.full(64, 200))
    assert listed(kept) == [(1, 6, 0), (2, 7, 1)]
    assert lasting(kept) is kept
    assert kept.origins().tolist() == [[0, 1]]


def test_rows_that_go_and_come_from_no_window_leave_only_values():
    batch = stored([1, 2], is_lasting=False)
    kept = lasting(batch)
    assert kept.layout.stores == ()
    assert listed(kept) == [(1, 6, 0), (2, 7, 1)]


begins = st.lists(st.integers(0, 12), max_size=8).map(sorted)


@examples
@given(begins, st.lists(begins, max_size=4))
def test_a_batch_and_a_stream_are_merged(first, rest):
    """The stream is in order over all its batches, as the results of a push are."""
    ordered = sorted(value for part in rest for value in part)
    parts, start = [], 0
    for number, part in enumerate(rest, start=1):
        parts.append(materialized(ordered[start : start + len(part)], number))
        start += len(part)
    found = listed(*merged(materialized(first), iter(parts)))
    assert [row[0] for row in found] == sorted(row[0] for row in found)
    assert sorted(found) == sorted(listed(materialized(first), *parts))


def test_merging_waits_for_no_more_of_the_stream_than_it_needs():
    """A join explosion is not collected, only because another box has something to add."""
    asked = []

    def stream():
        for number in range(10):
            asked.append(number)
            yield materialized([number], number)

    pieces = merged(materialized([0, 50]), stream())
    for piece in pieces:
        if len(piece):
            break
    assert asked == [0]
    assert len(listed(*pieces)) == 11
