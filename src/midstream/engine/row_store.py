"""Rows kept by number: the one place where payload lives while anything refers to it.

A row gets a number when it is appended and keeps it for life; numbers only grow. Combined tuples inside the engine
hold numbers, not values; values are gathered when they are looked at, usually when a result leaves. ``release`` says
that numbers below a bound will not be asked for again.

Columns of fixed width live in ring buffers (a row's place is its number modulo the capacity), so appending, releasing
and gathering never move what is there. Text, binary and nested columns live in Arrow segments that are merged
geometrically: about log n segments, each row copied about log n times.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from midstream.engine.arrays import Values, fixed_width_values, new_array, storage_dtype, wrap_values
from midstream.engine.codes import encode
from midstream.engine.kernels import Flags, Ints, gather_pairs, gather_values, pick_column

__all__ = ["RowStore"]

_SMALLEST = 64


class _FixedColumn:
    """A ring of values of one width, with a ring of flags from the first NULL on."""

    def __init__(self, data_type: pa.DataType, capacity: int) -> None:
        dtype = storage_dtype(data_type)
        assert dtype is not None
        self.type = data_type
        self.is_pair = bool(pat.is_decimal(data_type))
        self.values = np.zeros((capacity, 2) if self.is_pair else capacity, dtype)
        self.valid: Flags | None = None

    def resize(self, capacity: int, start: int, end: int) -> None:
        """Move the rows [start, end) into a ring of another capacity."""
        self.values = _moved(self.values, capacity, start, end)
        if self.valid is not None:
            self.valid = _moved(self.valid, capacity, start, end)

    def append(self, array: pa.Array, end: int) -> None:
        values, valid = fixed_width_values(array)
        if valid is not None and self.valid is None:
            self.valid = np.ones(len(self.values), np.bool_)
        _write_ring(self.values, values, end)
        if self.valid is not None:
            _write_ring(self.valid, np.ones(len(values), np.bool_) if valid is None else valid, end)

    def gather(self, slots: Ints) -> pa.Array:
        if self.is_pair:
            out = new_array((len(slots), 2))
            gather_pairs(self.values, slots, out)
        else:
            out = new_array(len(slots), self.values.dtype)
            gather_values(self.values, slots, out)
        valid = None if self.valid is None else self.valid[slots]
        return wrap_values(out, valid, self.type)

    @property
    def bytes(self) -> int:
        return self.values.nbytes + (0 if self.valid is None else self.valid.nbytes)


class _SegmentedColumn:
    """Arrow arrays of consecutive rows; row ``first`` is at position 0 of the first segment."""

    def __init__(self, data_type: pa.DataType) -> None:
        self.type = data_type
        self.first = 0
        self.segments: list[pa.Array] = []

    def append(self, array: pa.Array, start: int) -> None:
        """Add rows; ``start`` is the lowest number still needed."""
        if len(array) == 0:
            return
        self.segments.append(array)
        while len(self.segments) > 1 and len(self.segments[-2]) < 2 * len(self.segments[-1]):
            if len(self.segments) == 2:
                self._cut(start)
            if len(self.segments) > 1:
                last = self.segments.pop()
                self.segments[-1] = pa.concat_arrays([self.segments[-1], last])

    def _cut(self, start: int) -> None:
        """Forget the part of the first segment that nobody needs, before it is copied."""
        dead = min(start - self.first, len(self.segments[0]))
        if dead > 0:
            self.segments[0] = self.segments[0].slice(dead)
            self.first += dead
            if len(self.segments[0]) == 0:
                self.segments.pop(0)

    def release(self, start: int) -> None:
        while self.segments and self.first + len(self.segments[0]) <= start:
            self.first += len(self.segments.pop(0))

    def gather(self, rows: Ints) -> pa.Array:
        if len(rows) == 0:
            return pa.array([], self.type)
        places = pa.array(rows - self.first)
        if len(self.segments) == 1:
            return self.segments[0].take(places)
        taken = pa.chunked_array(self.segments, self.type).take(places)
        return taken.combine_chunks() if taken.num_chunks != 1 else taken.chunk(0)

    @property
    def bytes(self) -> int:
        return sum(segment.nbytes for segment in self.segments)


class RowStore:
    """Rows of one schema, numbered from 0 in the order of arrival."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self.types = tuple(types)
        self.start = 0
        self.end = 0
        self.capacity = _SMALLEST
        self._valid_to: Ints = np.zeros(_SMALLEST, np.int64)
        self._columns: list[_FixedColumn | _SegmentedColumn] = [
            _SegmentedColumn(t) if storage_dtype(t) is None else _FixedColumn(t, _SMALLEST) for t in types
        ]
        self._codes: dict[int, _FixedColumn] = {}

    def __len__(self) -> int:
        return self.end - self.start

    @property
    def bytes(self) -> int:
        """Memory held, spare room included."""
        return self._valid_to.nbytes + sum(c.bytes for c in (*self._columns, *self._codes.values()))

    def append(self, columns: Sequence[pa.Array], valid_to: Ints) -> Ints:
        """Add rows that are needed until ``valid_to``; their numbers."""
        count = len(valid_to)
        if len(self) + count > self.capacity:
            self._resize(len(self) + count)
        for column, array in zip(self._columns, columns, strict=True):
            column.append(array, self.end if isinstance(column, _FixedColumn) else self.start)
        for column_number, kept in self._codes.items():
            kept.append(_coded(columns[column_number]), self.end)
        _write_ring(self._valid_to, valid_to, self.end)
        self.end += count
        return np.arange(self.end - count, self.end)

    def gather(self, column: int, rows: Ints) -> pa.Array:
        """The column's values in the given rows."""
        stored = self._columns[column]
        if isinstance(stored, _SegmentedColumn):
            return stored.gather(rows)
        return stored.gather(rows & (self.capacity - 1))

    def gather_from(self, column: int, references: Ints, position: int) -> pa.Array:
        """The same with the row numbers taken from one column of a matrix of references."""
        stored = self._columns[column]
        if isinstance(stored, _SegmentedColumn):
            return stored.gather(np.ascontiguousarray(references[:, position]))
        slots = new_array(len(references))
        pick_column(references, position, self.capacity - 1, slots)
        return stored.gather(slots)

    def keep_codes(self, column: int) -> None:
        """Compute the column's key codes once per row from now on: hashing text for each combined tuple is slow."""
        if column not in self._codes:
            kept = _FixedColumn(pa.int64(), self.capacity)
            kept.append(_coded(self.gather(column, np.arange(self.start, self.end))), self.start)
            self._codes[column] = kept

    def gather_codes(self, column: int, references: Ints, position: int) -> tuple[Ints, Flags | None]:
        """The key codes of a column in the referenced rows, as :func:`~midstream.engine.codes.encode` gives them."""
        if column not in self._codes:
            return encode(self.gather_from(column, references, position))
        slots = new_array(len(references))
        pick_column(references, position, self.capacity - 1, slots)
        return encode(self._codes[column].gather(slots))

    def release(self, frontier: int) -> None:
        """Give up the leading rows whose validity has ended at the frontier."""
        self.start = _first_alive(self._valid_to, self.start, self.end, frontier)
        for column in self._columns:
            if isinstance(column, _SegmentedColumn):
                column.release(self.start)
        if self.capacity > _SMALLEST and len(self) < self.capacity // 8:
            self._resize(len(self))

    def _resize(self, count: int) -> None:
        capacity = max(_SMALLEST, 1 << (count + count // 2).bit_length())
        for column in (*self._columns, *self._codes.values()):
            if isinstance(column, _FixedColumn):
                column.resize(capacity, self.start, self.end)
        self._valid_to = _moved(self._valid_to, capacity, self.start, self.end)
        self.capacity = capacity


def _coded(array: pa.Array) -> pa.Array:
    codes, valid = encode(array)
    return wrap_values(codes, valid, pa.int64())


def _moved(ring: Values, capacity: int, start: int, end: int) -> Values:
    moved = np.zeros((capacity, *ring.shape[1:]), ring.dtype)
    rows = np.arange(start, end)
    moved[rows & (capacity - 1)] = ring[rows & (len(ring) - 1)]
    return moved


def _write_ring(ring: Values, values: Values, end: int) -> None:
    """Write consecutive rows, the first of which is number ``end``."""
    place = end & (len(ring) - 1)
    until_wrap = min(len(values), len(ring) - place)
    ring[place : place + until_wrap] = values[:until_wrap]
    ring[: len(values) - until_wrap] = values[until_wrap:]


def _first_alive(valid_to: Ints, start: int, end: int, frontier: int) -> int:
    """The first row from start on whose validity has not ended."""
    mask = len(valid_to) - 1
    while start < end:
        # Look at growing stretches: most calls end within the first, a burst of expiry stays vectorised.
        stretch = min(end, start + 1024)
        alive = valid_to[np.arange(start, stretch) & mask] > frontier
        if alive.any():
            return start + int(alive.argmax())
        start = stretch
    return start
