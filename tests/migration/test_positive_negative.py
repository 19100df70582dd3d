"""Positive-negative streams: from intervals to signed elements and back."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.algebra.plan import Field
from midstream.algebra.window_spec import NEVER
from midstream.engine.batch import Batch, Layout
from midstream.engine.state.row_store import RowStore
from midstream.migration import positive_negative
from midstream.migration.positive_negative import Signed, from_signed, pairs, to_signed, tuple_keys

examples = settings(derandomize=True, deadline=None, max_examples=100, database=None)

FIELDS = (Field("a", "v", pa.string()),)


def batch_of(rows):
    """Tuples written as (value, valid_from, valid_to), with the values at hand."""
    columns = list(zip(*rows, strict=True)) or [[], [], []]
    begins, ends = (np.array(column, np.int64) for column in columns[1:])
    return Batch.of_arrays(Layout(FIELDS), begins, ends, [pa.array(columns[0], pa.string())])


def listed(signed):
    return list(zip(signed.tuples.tolist(), signed.times.tolist(), signed.is_positive.tolist(), strict=True))


ends = st.one_of(st.integers(1, 9), st.just(None))
written = st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 9), ends), max_size=10).map(
    lambda rows: [(v, begin, NEVER if width is None else begin + width) for v, begin, width in rows]
)


def test_elements_are_in_order_and_ends_come_before_begins():
    signed = to_signed(batch_of([("x", 5, 8), ("y", 3, 5), ("z", 8, NEVER)]))
    assert listed(signed) == [(1, 3, True), (1, 5, False), (0, 5, True), (0, 8, False), (2, 8, True)]


def test_what_never_ends_has_no_negative_element():
    signed = to_signed(batch_of([("x", 5, NEVER), ("x", 5, NEVER - 1)]))
    assert Counter(signed.is_positive.tolist()) == {True: 2, False: 1}
    assert NEVER not in signed.times


def test_no_tuples_are_no_elements():
    assert listed(to_signed(batch_of([]))) == []
    none = np.empty(0, np.int64)
    tuples, begins, ends_, left = from_signed(Signed(none, none, none.astype(bool)), none)
    assert (len(tuples), len(begins), len(ends_), listed(left)) == (0, 0, 0, [])


@examples
@given(written)
def test_intervals_survive_the_way_to_signed_elements_and_back(rows):
    """Each tuple its own, however many are equal; what never ends is left over as a positive element."""
    batch = batch_of(rows)
    signed = to_signed(batch)
    (keys,) = tuple_keys([batch])
    tuples, begins, ends_, left = from_signed(signed, keys[signed.tuples])
    back = list(zip(tuples.tolist(), begins.tolist(), ends_.tolist(), strict=True))
    assert sorted(back) == [(i, begin, end) for i, (_, begin, end) in enumerate(rows) if end < NEVER]
    assert left.is_positive.all()
    assert sorted(left.tuples.tolist()) == [i for i, (_, _, end) in enumerate(rows) if end == NEVER]


@examples
@given(written, st.integers(0, 20))
def test_elements_of_two_batches_with_equal_values_are_paired(rows, split):
    """Cut at any instant and put together by value, a bag of tuples is the same at every instant."""
    rows = [(v, begin, end) for v, begin, end in rows if end < NEVER]
    first = batch_of([(v, begin, min(end, split)) for v, begin, end in rows if begin < split])
    second = batch_of([(v, max(begin, split), end) for v, begin, end in rows if end > split])
    sides = [to_signed(first), to_signed(second)]
    # The elements at the split itself are those that the cut has made (or begins and ends that fell together).
    keep = [sides[0].taken(sides[0].times < split), sides[1].taken(sides[1].times > split)]
    keys = [key[side.tuples] for key, side in zip(tuple_keys([first, second]), keep, strict=True)]
    together = Signed(
        np.concatenate([keep[0].tuples, keep[1].tuples + len(first)]),
        np.concatenate([keep[0].times, keep[1].times]),
        np.concatenate([keep[0].is_positive, keep[1].is_positive]),
    )
    tuples, begins, ends_, left = from_signed(together, np.concatenate(keys))
    values = [*first.columns()[0].to_pylist(), *second.columns()[0].to_pylist()]
    found, expected = Counter(), Counter()
    for place, begin, end in zip(tuples.tolist(), begins.tolist(), ends_.tolist(), strict=True):
        found.update((values[place], instant) for instant in range(begin, end))
    for place, time, is_positive in listed(left):
        instants = range(time, split) if is_positive else range(split, time)
        found.update((values[place], instant) for instant in instants)
    for value, begin, end in rows:
        expected.update((value, instant) for instant in range(begin, end))
    assert found == expected


def test_a_tuples_own_end_is_taken_before_an_equal_ones():
    """Two equal tuples, one inside the other: pairing by value only would give the bag of other intervals."""
    batch = batch_of([("x", 1, 9), ("x", 2, 5)])
    signed = to_signed(batch)
    (keys,) = tuple_keys([batch])
    assert keys[0] == keys[1]
    tuples, begins, ends_, _ = from_signed(signed, keys[signed.tuples])
    assert sorted(zip(tuples.tolist(), begins.tolist(), ends_.tolist(), strict=True)) == [(0, 1, 9), (1, 2, 5)]


@examples
@given(st.lists(st.integers(-3, 3), max_size=12), st.lists(st.integers(-3, 3), max_size=12))
def test_pairs_use_each_place_once_and_as_many_as_there_are(left, right):
    at, to = pairs(np.array(left, np.int64), np.array(right, np.int64))
    assert len(set(at.tolist())) == len(at) == len(set(to.tolist())) == len(to)
    assert [left[i] for i in at] == [right[j] for j in to]
    assert Counter(left[i] for i in at) == Counter(left) & Counter(right)
    # The first of a key with the first of the other side.
    for key in set(left):
        mine = [(i, j) for i, j in zip(at.tolist(), to.tolist(), strict=True) if left[i] == key]
        assert sorted(i for i, _ in mine) == [i for i, k in enumerate(left) if k == key][: len(mine)]
        assert [j for _, j in sorted(mine)] == [j for j, k in enumerate(right) if k == key][: len(mine)]


def test_pairs_of_nothing():
    none, some = np.empty(0, np.int64), np.array([1, 2])
    for left, right in ((none, none), (none, some), (some, none)):
        assert [len(part) for part in pairs(left, right)] == [0, 0]


# Which tuples are the same


def traced(*rows, values="x"):
    """Tuples made of rows of two windows, with the values at hand."""
    store = RowStore([pa.string()])
    begins = np.arange(len(rows), dtype=np.int64)
    layout = Layout(FIELDS, (store, store), has_origin=True)
    references = np.array(rows, np.int64).reshape(len(rows), 2).T
    return Batch(layout, begins, begins + 1, references, {0: pa.array([values] * len(rows), pa.string())})


def test_tuples_of_the_same_rows_are_the_same_and_no_others():
    """Values do not count where the rows are known."""
    first, second = tuple_keys([traced((1, 2), (2, 1), (1, 3)), traced((1, 3), (1, 2), (3, 1), values="y")])
    assert first[0] == second[1]
    assert first[2] == second[0]
    assert len({*first.tolist(), *second.tolist()}) == 4


def test_rows_with_equal_hashes_are_told_apart(monkeypatch):
    monkeypatch.setattr(positive_negative, "combine_codes", lambda parts: np.zeros(len(parts[0]), np.int64))
    first, second = tuple_keys([traced((1, 2), (2, 1), (1, 3)), traced((1, 3), (1, 2), (3, 1))])
    assert first[0] == second[1]
    assert first[2] == second[0]
    assert len({*first.tolist(), *second.tolist()}) == 4


def test_tuples_without_known_rows_are_the_same_if_their_values_are():
    first, second = tuple_keys(
        [batch_of([("x", 1, 2), ("y", 1, 2), (None, 1, 2)]), batch_of([("y", 5, 6), (None, 7, 9)])]
    )
    assert first[1] == second[0]
    assert first[2] == second[1]
    assert len({*first.tolist(), *second.tolist()}) == 3
    mixed, other = tuple_keys([traced((1, 2)), batch_of([("x", 1, 2)])])
    assert mixed.tolist() == other.tolist()


def test_values_that_cannot_be_compared_are_all_different():
    fields = (Field("a", "v", pa.list_(pa.int64())),)
    array = pa.array([[1], [1]], fields[0].type)
    batch = Batch.of_arrays(Layout(fields), np.zeros(2, np.int64), np.ones(2, np.int64), [array])
    first, second = tuple_keys([batch, batch])
    assert len({*first.tolist(), *second.tolist()}) == 4


@pytest.mark.parametrize("sizes", [(0, 0), (0, 2), (2, 0), (1, 2)])
def test_keys_come_apart_as_the_batches_were(sizes):
    keys = tuple_keys([batch_of([("x", 1, 2)] * size) for size in sizes])
    assert [len(part) for part in keys] == list(sizes)
