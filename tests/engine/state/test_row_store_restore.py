"""Rows that are taken back have the numbers and values they had, whatever has gone between them."""

from __future__ import annotations

from itertools import pairwise
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.engine.codes import encode
from midstream.engine.state import row_store
from midstream.engine.state.row_store import RowStore
from tests.engine.state.test_row_store import MAKERS, NEVER, TYPES

examples = settings(derandomize=True, deadline=None, max_examples=150, database=None)


def made(types: list[pa.DataType], numbers: list[int]) -> list[pa.Array]:
    """Columns whose values follow from the rows' numbers; one in five is NULL."""
    return [
        pa.array([None if (n + place) % 5 == 0 else MAKERS[t](n) for n in numbers], t) for place, t in enumerate(types)
    ]


def append(store: RowStore, ends: list[int]) -> None:
    numbers = list(range(store.end, store.end + len(ends)))
    given_numbers = store.append(
        made(list(store.types), numbers), np.array(numbers, np.int64), np.array(ends, np.int64)
    )
    assert given_numbers.tolist() == numbers


def restored(store: RowStore, cuts: list[int]) -> RowStore:
    """Another store with the living rows of the first, taken back in parts."""
    numbers, valid_from, valid_to = store.alive()
    columns = store.gather_all(range(len(store.types)), numbers)
    again = RowStore(store.types)
    places = sorted({0, len(numbers), *(cut % (len(numbers) + 1) for cut in cuts)})
    for start, end in pairwise(places):
        part = slice(start, end)
        again.restore(numbers[part], [c[start:end] for c in columns], valid_from[part], valid_to[part])
    again.skip_to(store.end)
    again.release(store.released)
    return again


def check_same(store: RowStore, again: RowStore) -> None:
    assert (again.end, again.released) == (store.end, store.released)
    numbers, *validity = store.alive()
    same_numbers, *same_validity = again.alive()
    assert same_numbers.tolist() == numbers.tolist()
    assert [part.tolist() for part in same_validity] == [part.tolist() for part in validity]
    assert again.oldest <= (numbers[0] if len(numbers) else again.end)
    order = np.concatenate([numbers[::-1], numbers[:2]])
    for column, (array, data_type) in enumerate(
        zip(again.gather_all(range(len(again.types)), order), again.types, strict=True)
    ):
        array.validate(full=True)
        expected = made(list(again.types), order.tolist())[column]
        assert array.equals(expected)
        if not pa.types.is_nested(data_type):
            codes, valid = again.gather_codes([column], order)[0]
            expected_codes, expected_valid = encode(expected)
            there = np.ones(len(order), bool) if expected_valid is None else expected_valid
            assert (there if valid is None else valid).tolist() == there.tolist()
            assert codes[there].tolist() == expected_codes[there].tolist()
    for first, last in ((0, store.end // 2), (store.end // 2, store.end), (store.end // 3, store.end // 2)):
        assert [part.tolist() for part in again.alive(first, last)] == [p.tolist() for p in store.alive(first, last)]


STEPS = st.lists(
    st.tuples(
        # Most rows end soon, some much later, a few never.
        st.lists(st.sampled_from([*range(1, 12), 30, 45, 60, NEVER]), max_size=40),
        st.one_of(st.none(), st.integers(0, 61)),
    ),
    max_size=8,
)


@examples
@given(
    st.lists(st.sampled_from(TYPES), min_size=0, max_size=4),
    STEPS,
    st.lists(st.integers(0, 500), max_size=5),
    STEPS,
    st.sampled_from([1, 4, 64]),
    st.booleans(),
)
def test_a_store_taken_back_in_parts_is_the_same_and_goes_on_alike(types, steps, cuts, later, smallest, keeps_codes):
    with mock.patch.object(row_store, "_SMALLEST", smallest):
        store = RowStore(types)
        for ends, frontier in steps:
            append(store, ends)
            if frontier is not None:
                store.release(max(frontier, store.released))
        again = restored(store, cuts)
        for column, data_type in enumerate(types):
            if keeps_codes and not pa.types.is_nested(data_type):
                again.keep_codes(column)
        check_same(store, again)
        for ends, frontier in later:
            for each in (store, again):
                append(each, ends)
                if frontier is not None:
                    each.release(max(frontier, each.released))
            check_same(store, again)
        check_same(store, restored(again, cuts[::-1]))


@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_values_of_every_type_are_taken_back_with_gaps_and_without(data_type):
    store = RowStore([data_type, pa.int64()])
    append(store, [NEVER if number % 7 == 0 or number < 60 else 1 for number in range(300)])
    store.release(1)
    for cuts in ([], [10, 40, 70], list(range(100))):
        check_same(store, restored(store, cuts))


def test_a_store_without_living_rows_goes_on_with_the_next_number():
    store = RowStore([pa.string()])
    append(store, [1] * 500)
    store.release(1)
    again = restored(store, [])
    check_same(store, again)
    assert (len(again), again.start, again.end) == (0, 500, 500)


def test_far_numbers_cost_nothing():
    types = [pa.int64(), pa.string(), pa.decimal128(38, 0), pa.list_(pa.int64())]
    numbers = [3, 4, 10**6, 10**6 + 1, 10**9, 10**12, 10**12 + 50]
    for parts in ([numbers], [[number] for number in numbers], [numbers[:3], numbers[3:]]):
        store = RowStore(types)
        for part in parts:
            times = np.array(part, np.int64)
            store.restore(times, made(types, part), times, times + 5)
        store.skip_to(10**15)
        assert store.bytes < 100_000
        assert store.alive()[0].tolist() == numbers
        append(store, [10**16])
        everything = np.array([*numbers, 10**15], np.int64)
        for array, expected in zip(
            store.gather_all(range(4), everything), made(types, everything.tolist()), strict=True
        ):
            assert array.equals(expected)
        store.release(10**9)
        assert store.alive()[0].tolist() == [*numbers[4:], 10**15]
        assert store.alive(10**9 + 1, 10**12 + 1)[0].tolist() == [10**12]


def test_rows_in_a_mostly_empty_span_are_few_in_memory():
    store = RowStore([pa.int64()])
    numbers = np.arange(0, 4_000_000, 4000)
    store.restore(numbers, [pa.array(numbers)], numbers, np.full(1000, NEVER))
    assert len(store) == 1000
    assert store.bytes < 200_000
    assert store.gather(0, numbers[::-1]).to_pylist() == numbers[::-1].tolist()


def test_null_flags_are_those_of_the_rows_not_of_their_places():
    """Places between rows are NULL in every column: they must not make the rows after them so."""
    store = RowStore([pa.int64(), pa.string()])
    numbers = np.array([0, 3, 5])
    store.restore(numbers, [pa.array([1, 2, 3]), pa.array(["a", None, "c"])], numbers, numbers + 9)
    append(store, [99] * 3)
    assert store.gather(0, numbers).to_pylist() == [1, 2, 3]
    assert store.gather(1, numbers).to_pylist() == ["a", None, "c"]
    store.keep_codes(1)
    assert store.gather_codes([1], numbers)[0][1].tolist() == [True, False, True]


def test_null_keys_of_rows_set_aside_are_known_as_null():
    """Codes that were computed only after text rows had been set aside took their NULLs for values."""
    store = RowStore([pa.string()])
    numbers = np.array([0, 1000, 2000])
    store.restore(numbers, [pa.array(["a", None, "c"])], numbers, numbers + 9000)
    store.keep_codes(0)
    assert store.gather_codes([0], numbers)[0][1].tolist() == [True, False, True]
