"""Row stores: a row that is needed is found by its number, unchanged, wherever it has been moved to."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.engine.codes import encode
from midstream.engine.state.row_store import RowStore

examples = settings(derandomize=True, deadline=None, max_examples=50, database=None)

NEVER = 2**63 - 1
DAY = datetime.date(2000, 2, 29)

MAKERS: dict[pa.DataType, Any] = {
    pa.int8(): lambda i: i % 256 - 128,
    pa.int16(): lambda i: (i * 7919) % 2**16 - 2**15,
    pa.int32(): lambda i: (i * 99991 * 7919) % 2**32 - 2**31,
    pa.int64(): lambda i: (-1) ** i * (2**63 - 1 - i),
    pa.uint8(): lambda i: 255 - i % 256,
    pa.uint16(): lambda i: 2**16 - 1 - i % 2**16,
    pa.uint32(): lambda i: 2**32 - 1 - i,
    pa.uint64(): lambda i: 2**64 - 1 - i,
    pa.bool_(): lambda i: i % 3 == 0,
    pa.float16(): lambda i: np.float16(i % 1000) / 4,
    pa.float32(): lambda i: -i / 4,
    pa.float64(): lambda i: [i / 3, float("inf"), -0.0][i % 3],
    pa.decimal128(9, 2): lambda i: Decimal(-i).scaleb(-2),
    pa.decimal128(38, 0): lambda i: Decimal((-1) ** i * (10**38 - 1 - i)),
    pa.date32(): lambda i: DAY + datetime.timedelta(i),
    pa.date64(): lambda i: DAY - datetime.timedelta(i),
    pa.time32("s"): lambda i: datetime.time(i % 24, i % 60),
    pa.time64("us"): lambda i: datetime.time(i % 24, i % 60, 0, i),
    pa.timestamp("us"): lambda i: datetime.datetime(1, 1, 1) + datetime.timedelta(microseconds=i),
    pa.timestamp("ms", "UTC"): lambda i: datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC) + i * datetime.timedelta(1),
    pa.duration("us"): lambda i: datetime.timedelta(microseconds=-i),
    pa.string(): lambda i: "é" * (i % 5) + str(i),
    pa.large_string(): lambda i: str(i) * (i % 4),
    pa.binary(): lambda i: bytes([i % 256]) * (i % 3),
    pa.large_binary(): lambda i: str(i).encode(),
    pa.binary(4): lambda i: i.to_bytes(4, "little"),
    pa.decimal256(60, 3): lambda i: Decimal(i).scaleb(-3),
    pa.list_(pa.int64()): lambda i: [i, None][: i % 3],
    pa.struct({"a": pa.int64(), "b": pa.string()}): lambda i: {"a": i, "b": None},
}
TYPES = list(MAKERS)


class Reference:
    """A store beside a list of all rows it was ever given."""

    def __init__(self, types: list[pa.DataType], nulls_every: int | None = 5) -> None:
        self.types = types
        self.nulls_every = nulls_every
        self.store = RowStore(types)
        self.rows: list[list[Any]] = []
        self.ends: list[int] = []
        self.start = 0

    def append(self, ends: list[int]) -> None:
        first = len(self.rows)
        for i in range(first, first + len(ends)):
            row = [MAKERS[t](i) for t in self.types]
            if self.nulls_every:
                row = [None if (i + c) % self.nulls_every == 0 else v for c, v in enumerate(row)]
            self.rows.append(row)
        self.ends += ends
        columns = []
        for c, data_type in enumerate(self.types):
            array = pa.array([None, None, *(row[c] for row in self.rows[first:]), None], data_type)
            columns.append(array.slice(2, len(ends)))
        numbers = self.store.append(columns, np.arange(first, first + len(ends)), np.array(ends, np.int64))
        assert numbers.tolist() == list(range(first, first + len(ends)))

    def release(self, frontier: int) -> None:
        self.store.release(frontier)
        while self.start < len(self.rows) and self.ends[self.start] <= frontier:
            self.start += 1

    def check(self, random: np.random.Generator) -> None:
        assert (self.store.start, self.store.end, len(self.store)) == (
            self.start,
            len(self.rows),
            len(self.rows) - self.start,
        )
        alive = np.arange(self.start, len(self.rows))
        order = random.permutation(np.concatenate([alive, alive[:3]]))
        for rows in (alive, order, alive[:0]):
            columns = random.permutation(len(self.types)).tolist()
            flat = []
            for c, array in zip(columns, self.store.gather_all(columns, rows), strict=True):
                assert array.type == self.types[c]
                array.validate(full=True)
                assert array.equals(pa.array([self.rows[r][c] for r in rows], self.types[c])), self.types[c]
                single = self.store.gather(c, rows)
                assert single.equals(array)
                if not (pa.types.is_list(self.types[c]) or pa.types.is_struct(self.types[c])):
                    codes, valid = self.store.gather_codes([c], rows)[0]
                    expected_codes, expected_valid = encode(array)
                    there = np.ones(len(rows), bool) if expected_valid is None else expected_valid
                    assert (there if valid is None else valid).tolist() == there.tolist()
                    assert codes[there].tolist() == expected_codes[there].tolist()
                    flat.append((c, codes, valid))
            together = self.store.gather_codes([c for c, _, _ in flat], rows)
            for (_, codes, valid), (same_codes, same_valid) in zip(flat, together, strict=True):
                assert same_codes.tolist() == codes.tolist()
                assert (same_valid is None) == (valid is None)
                assert valid is None or same_valid.tolist() == valid.tolist()


@pytest.mark.parametrize("nulls_every", [None, 5], ids=["no NULLs", "NULLs"])
@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_values_of_every_type_come_back_unchanged(data_type, nulls_every):
    random = np.random.default_rng(1)
    reference = Reference([data_type], nulls_every)
    for count in (1, 70, 0, 3, 200):
        reference.append([NEVER] * count)
        reference.check(random)


@examples
@given(
    st.lists(
        st.tuples(st.lists(st.integers(1, 40), max_size=90), st.one_of(st.none(), st.integers(0, 41))), max_size=12
    ),
    st.integers(0, 1000),
)
def test_rows_are_found_by_number_while_the_ring_grows_wraps_around_and_shrinks(steps, seed):
    random = np.random.default_rng(seed)
    reference = Reference([pa.int64(), pa.string(), pa.decimal128(38, 0), pa.bool_(), pa.uint32()])
    now = 0
    for lifetimes, passing in steps:
        reference.append([now + lifetime for lifetime in lifetimes])
        reference.check(random)
        if passing is not None:
            now += passing
            reference.release(now)
            reference.check(random)


def test_a_row_that_lives_longer_keeps_those_behind_it():
    reference = Reference([pa.int64()])
    reference.append([5, 100, 5, 5])
    reference.release(5)
    assert len(reference.store) == 3
    reference.check(np.random.default_rng(0))
    reference.release(99)
    assert len(reference.store) == 3
    reference.release(100)
    assert len(reference.store) == 0


def test_memory_is_given_back_after_a_burst():
    reference = Reference([pa.int64(), pa.string()])
    small = reference.store.bytes
    reference.append([10] * 5000)
    assert reference.store.bytes > 50 * small
    reference.append([NEVER])
    reference.release(10)
    reference.append([NEVER] * 40)
    assert reference.store.bytes < 5 * small
    reference.check(np.random.default_rng(0))


def test_many_small_appends_to_text_columns_are_kept_in_few_segments():
    reference = Reference([pa.string()])
    for i in range(500):
        reference.append([i + 200])
        reference.release(i)
    assert len(reference.store._segmented[0].segments) <= 10
    assert sum(map(len, reference.store._segmented[0].segments)) <= 3 * len(reference.store)
    reference.check(np.random.default_rng(0))


@pytest.mark.parametrize("width", [63, 64, 130])
def test_nulls_are_kept_apart_in_more_columns_than_a_word_has_bits(width):
    random = np.random.default_rng(2)
    types = [[pa.int64(), pa.string(), pa.float64(), pa.decimal128(9, 2), pa.bool_()][c % 5] for c in range(width)]
    reference = Reference(types, nulls_every=None)
    store = reference.store
    # Row r is NULL in column r only.
    rows = [[None if r == c else MAKERS[t](r + c) for c, t in enumerate(types)] for r in range(width)]
    columns = [pa.array([row[c] for row in rows], t) for c, t in enumerate(types)]
    store.append(columns, np.zeros(width, np.int64), np.full(width, NEVER))
    for c in (1, 61, 62):
        store.keep_codes(c)
    columns = random.permutation(width).tolist()
    for c, array in zip(columns, store.gather_all(columns, np.arange(width)), strict=True):
        assert array.to_pylist() == [row[c] for row in rows]
        _, valid = store.gather_codes([c], np.arange(width))[0]
        assert valid is not None
        assert np.flatnonzero(~valid).tolist() == [c]


def test_a_place_in_the_ring_forgets_the_nulls_of_the_row_before():
    store = RowStore([pa.int64(), pa.string()])
    store.keep_codes(1)
    for i in range(300):
        value = None if i % 2 else i
        columns = [pa.array([value], pa.int64()), pa.array([None if value is None else "x"])]
        store.append(columns, np.array([i]), np.array([i + 1]))
        assert store.gather(0, np.array([i])).to_pylist() == [value]
        _, valid = store.gather_codes([1], np.array([i]))[0]
        assert valid is None or valid.tolist() == [value is not None]
        store.release(i + 1)


@pytest.mark.parametrize("kept_at", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("data_type", [pa.string(), pa.decimal128(38, 0), pa.int64(), pa.binary(4)], ids=str)
def test_codes_are_the_same_from_when_on_so_ever_they_are_kept(data_type, kept_at):
    random = np.random.default_rng(3)
    reference = Reference([pa.int64(), data_type, data_type])
    for step in range(5):
        if step == kept_at:
            reference.store.keep_codes(1)
            reference.store.keep_codes(1)
            reference.check(random)
        reference.append([step + 2] * 60)
        reference.check(random)
        reference.release(step)
        reference.check(random)


def test_a_store_without_columns_counts_rows():
    store = RowStore([])
    assert store.append([], np.zeros(3, np.int64), np.array([1, 2, 3])).tolist() == [0, 1, 2]
    store.release(2)
    assert len(store) == 1
    assert store.gather_all([], np.array([2])) == []
