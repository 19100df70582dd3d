"""Rows kept by number: the one place where payload lives while anything refers to it.

A row gets a number when it is appended and keeps it for life; numbers only grow. Combined tuples inside the engine
hold numbers, not values; values are gathered when they are looked at, usually when a result leaves. ``release`` says
that rows whose validity has ended will not be asked for again.

Columns of fixed width share one ring of int64 words (a row's place is its number modulo the capacity): a word per
column, two for a decimal, and in front one bit per column that is set where it is NULL. A row is thus one run of
memory, and gathering it costs one cache miss, however many columns are wanted. Text, binary and nested columns live in
Arrow segments that are merged geometrically: about log n segments, each row copied about log n times.

A ring gives up its rows from the oldest on. A row that outlives its successors (its event time lies far ahead, or its
window is longer than theirs) would hold them all back: when the ring is full of dead rows, the few that live are set
aside and found there by binary search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from midstream.algebra.window_spec import BEGINNING
from midstream.engine.codes import encode, is_own_code
from midstream.engine.fixed_width import fixed_width_values, new_array, storage_dtype, wrap_values
from midstream.engine.kernels import Flags, Ints, compiled, prefetch

__all__ = ["RowStore"]

_SMALLEST = 64
_LARGEST_SEGMENT = 1 << 30
"""Bytes: Arrow arrays of text cannot hold more than twice as much."""


class _SegmentedColumn:
    """Arrow arrays of consecutive rows; row ``first`` is at position 0 of the first segment."""

    def __init__(self, data_type: pa.DataType) -> None:
        self.type = data_type
        self.first = 0
        self.segments: list[pa.Array] = []
        self.aside = pa.array([], data_type)

    def append(self, array: pa.Array, start: int) -> None:
        """Add rows; ``start`` is the lowest number still needed."""
        if len(array) == 0:
            return
        self.segments.append(array)
        while len(self.segments) > 1 and len(self.segments[-2]) < 2 * len(self.segments[-1]):
            if len(self.segments) == 2:
                self._cut(start)
            if len(self.segments) > 1:
                if self.segments[-2].nbytes + self.segments[-1].nbytes > _LARGEST_SEGMENT:
                    break
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

    def gather(self, rows: Ints, aside: Flags | None, places_aside: Ints) -> pa.Array:
        """The values of the rows; those flagged are among the ones set aside."""
        if len(rows) == 0:
            return pa.array([], self.type)
        if aside is None:
            places, segments = rows - self.first, self.segments
        else:
            places, segments = rows - self.first + len(self.aside), [self.aside, *self.segments]
            places[aside] = places_aside
        if len(segments) == 1:
            return segments[0].take(pa.array(places))
        taken = pa.chunked_array(segments, self.type).take(pa.array(places))
        return taken.combine_chunks() if taken.num_chunks != 1 else taken.chunk(0)

    @property
    def bytes(self) -> int:
        return sum(int(array.nbytes) for array in (self.aside, *self.segments))


class RowStore:
    """Rows of one schema, numbered from 0 in the order of arrival."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self.types = tuple(types)
        self.start = 0
        self.end = 0
        self.is_lasting = False
        """Whether rows stay until the owner of all boxes releases them, not only until the next push."""
        self.made_of: tuple[RowStore, ...] = ()
        """The windows of whose rows the rows were computed, if they were; the last columns hold these rows' numbers."""
        self._frontier = BEGINNING
        self._segmented: dict[int, _SegmentedColumn] = {}
        self._words: dict[int, int] = {}
        self._codes: dict[int, int] = {}
        self._has_nulls = [False] * len(self.types)
        # Up to 63 NULL bits per word: the sign stays free.
        self._null_words = -(-len(self.types) // 63)
        width = self._null_words
        for column, data_type in enumerate(self.types):
            if storage_dtype(data_type) is None:
                self._segmented[column] = _SegmentedColumn(data_type)
            else:
                self._words[column] = width
                width += 2 if pat.is_decimal(data_type) else 1
        self._ring = np.zeros((_SMALLEST, width), np.int64)
        # Apart from the rows: it is read only to find out which rows have died.
        self._valid_from = np.zeros(_SMALLEST, np.int64)
        self._valid_to = np.zeros(_SMALLEST, np.int64)
        # Rows set aside: their numbers (in order), how long they are needed, their words.
        self._numbers_aside = np.empty(0, np.int64)
        self._valid_from_aside = np.empty(0, np.int64)
        self._valid_to_aside = np.empty(0, np.int64)
        self._words_aside = np.empty((0, width), np.int64)

    def __len__(self) -> int:
        return self.end - self.start + len(self._numbers_aside)

    @property
    def bytes(self) -> int:
        """Memory held, spare room included."""
        fixed = self._ring.nbytes + self._valid_from.nbytes + self._valid_to.nbytes + self._words_aside.nbytes
        return int(fixed) + sum(column.bytes for column in self._segmented.values())

    @property
    def origin_columns(self) -> range:
        """The columns that hold the numbers of the rows that a row was computed from."""
        return range(len(self.types) - len(self.made_of), len(self.types))

    @property
    def oldest(self) -> int:
        """The lowest number of a row that is still here."""
        return int(self._numbers_aside[0]) if len(self._numbers_aside) else self.start

    @property
    def released(self) -> int:
        """Rows that ended by then may be gone."""
        return self._frontier

    def alive(self, first: int = 0, last: int | None = None) -> tuple[Ints, Ints, Ints]:
        """The rows whose validity had not ended when rows were last released: numbers, valid_from, valid_to.

        All of them, or those with numbers from ``first`` to before ``last``.
        """
        last = self.end if last is None else last
        aside = self._valid_to_aside > self._frontier
        aside &= (self._numbers_aside >= first) & (self._numbers_aside < last)
        found = [(self._numbers_aside[aside], self._valid_from_aside[aside], self._valid_to_aside[aside])]
        for number, places in self._pieces(max(self.start, first), min(self.end, last)):
            kept = np.flatnonzero(self._valid_to[places] > self._frontier)
            found.append((kept + number, self._valid_from[places][kept], self._valid_to[places][kept]))
        numbers, valid_from, valid_to = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return numbers, valid_from, valid_to

    def drawn_alive(self, first: int, most: int, generator: np.random.Generator) -> tuple[Ints, Ints, Ints, int]:
        """Some of the rows that :meth:`alive` gives from ``first`` on, drawn at random, and how many there are."""
        if len(self._numbers_aside):
            numbers, valid_from, valid_to = self.alive(first)
            total = len(numbers)
            chosen = _chosen(total, most, generator)
            return numbers[chosen], valid_from[chosen], valid_to[chosen], total
        none = np.empty(0, np.int64)
        kept = [none]
        for number, places in self._pieces(max(self.start, first), self.end):
            kept.append(np.flatnonzero(self._valid_to[places] > self._frontier) + number)
        numbers = np.concatenate(kept)
        total = len(numbers)
        numbers = numbers[_chosen(total, most, generator)]
        drawn = numbers & (len(self._ring) - 1)
        return numbers, self._valid_from[drawn], self._valid_to[drawn], total

    def _pieces(self, begin: int, end: int) -> Iterator[tuple[int, slice]]:
        """The places of the rows with these numbers, in at most two pieces of the ring, each with its first number."""
        size = len(self._ring)
        while begin < end:
            place = begin & (size - 1)
            count = min(end - begin, size - place)
            yield begin, slice(place, place + count)
            begin += count

    def append(self, columns: Sequence[pa.Array], valid_from: Ints, valid_to: Ints) -> Ints:
        """Add rows that are needed until ``valid_to``; their numbers."""
        count = len(valid_to)
        if self.end - self.start + count > len(self._ring):
            self._make_room(count)
        places = np.arange(self.end, self.end + count) & (len(self._ring) - 1)
        self._valid_from[places] = valid_from
        self._valid_to[places] = valid_to
        self._ring[places, : self._null_words] = 0
        for column, array in enumerate(columns):
            if column in self._segmented:
                self._segmented[column].append(array, self.start)
            else:
                self._write(column, array, places)
            if column in self._codes:
                self._write_codes(column, array, self._ring, places)
        self.end += count
        return np.arange(self.end - count, self.end)

    def restore(self, numbers: Ints, columns: Sequence[pa.Array], valid_from: Ints, valid_to: Ints) -> None:
        """Take back rows with the numbers they had (ascending, beyond those that are here).

        Numbers in between are those of rows that were given up: places without a living row, if there are not many.
        """
        if len(numbers) == 0:
            return
        last = int(numbers[-1])
        span = last + 1 - self.end
        if span <= 4 * len(numbers) + _SMALLEST:
            places = np.full(span, -1)
            places[numbers - self.end] = np.arange(len(numbers))
            filled = places >= 0
            validity = np.full((2, span), BEGINNING)
            validity[0, filled], validity[1, filled] = valid_from, valid_to
            taken = pa.array(places, mask=~filled)
            self.append([column.take(taken) for column in columns], validity[0], validity[1])
        else:
            self._jump_to(int(numbers[0]))
            self._set_aside(self.append(columns, valid_from, valid_to))
            self._numbers_aside[len(self._numbers_aside) - len(numbers) :] = numbers
            self._jump_to(last + 1)

    def skip_to(self, number: int) -> None:
        """Let the next row have this number."""
        gap = number - self.end
        if 0 < gap <= len(self) + _SMALLEST:
            dead = np.full(gap, BEGINNING)
            self.append([pa.nulls(gap, data_type) for data_type in self.types], dead, dead)
        elif gap > 0:
            self._jump_to(number)

    def _jump_to(self, number: int) -> None:
        """Set all living rows aside and continue with this number."""
        rows = np.arange(self.start, self.end)
        self._set_aside(rows[self._valid_to[rows & (len(self._ring) - 1)] > self._frontier])
        self.start = self.end = number
        for column in self._segmented.values():
            column.first = number

    def _write(self, column: int, array: pa.Array, places: Ints) -> None:
        values, valid = fixed_width_values(array)
        word = self._words[column]
        if values.ndim == 2:
            self._ring[places, word] = values[:, 0]
            self._ring[places, word + 1] = values[:, 1]
        else:
            self._ring[places, word] = values
        if valid is not None:
            self._has_nulls[column] = True
            self._ring[places, column // 63] |= (~valid).astype(np.int64) << (column % 63)

    def _write_codes(self, column: int, array: pa.Array, words: Ints, places: Ints) -> None:
        codes, valid = encode(array)
        words[places, self._codes[column]] = codes
        if valid is not None and column in self._segmented:
            self._has_nulls[column] = True
            words[places, column // 63] |= (~valid).astype(np.int64) << (column % 63)

    def gather(self, column: int, rows: Ints) -> pa.Array:
        """The column's values in the given rows."""
        return self.gather_all([column], rows)[0]

    def gather_all(self, columns: Sequence[int], rows: Ints) -> list[pa.Array]:
        """Several columns' values in the given rows."""
        wanted: list[int] = []
        for column in columns:
            if column in self._words:
                wanted += range(self._words[column], self._words[column] + self._width(column))
        nulls = sorted({c // 63 for c in columns if c in self._words and self._has_nulls[c]})
        aside, places_aside = self._find_aside(rows)
        words = self._gather_words([*wanted, *nulls], rows, aside, places_aside)
        arrays = []
        place = 0
        for column in columns:
            if column in self._segmented:
                arrays.append(self._segmented[column].gather(rows, aside, places_aside))
                continue
            width = self._width(column)
            valid = None
            if self._has_nulls[column]:
                valid = (words[len(wanted) + nulls.index(column // 63)] >> (column % 63)) & 1 == 0
            arrays.append(_narrowed(words[place : place + width], valid, self.types[column]))
            place += width
        return arrays

    def keep_codes(self, column: int) -> None:
        """Compute the column's key codes once per row from now on: hashing text for each combined tuple is slow."""
        if column not in self._codes:
            rows = np.arange(self.start, self.end)
            array, array_aside = self.gather(column, rows), self.gather(column, self._numbers_aside)
            self._codes[column] = self._ring.shape[1]
            self._ring, self._words_aside = (
                np.concatenate([words, np.zeros((len(words), 1), np.int64)], axis=1)
                for words in (self._ring, self._words_aside)
            )
            self._write_codes(column, array, self._ring, rows & (len(self._ring) - 1))
            self._write_codes(column, array_aside, self._words_aside, np.arange(len(array_aside)))

    def gather_codes(self, columns: Sequence[int], rows: Ints) -> list[tuple[Ints, Flags | None]]:
        """The key codes of columns in the given rows, as :func:`~midstream.engine.codes.encode` gives them."""
        stored = {c: self._codes.get(c, self._words[c] if is_own_code(self.types[c]) else -1) for c in columns}
        known = [column for column in columns if stored[column] >= 0]
        nulls = sorted({column // 63 for column in known if self._has_nulls[column]})
        words = self._gather_words([*(stored[c] for c in known), *nulls], rows, *self._find_aside(rows))
        found: list[tuple[Ints, Flags | None]] = []
        for column in columns:
            if stored[column] < 0:
                found.append(encode(self.gather(column, rows)))
                continue
            codes = words[known.index(column)]
            valid = None
            if self._has_nulls[column]:
                valid = (words[len(known) + nulls.index(column // 63)] >> (column % 63)) & 1 == 0
                codes = np.where(valid, codes, 0)
            found.append((codes, valid))
        return found

    def release(self, frontier: int) -> None:
        """Give up the leading rows whose validity has ended at the frontier."""
        self._frontier = frontier
        self.start = _first_alive(self._valid_to, self.start, self.end, frontier)
        for column in self._segmented.values():
            column.release(self.start)
        if len(self._ring) > _SMALLEST and self.end - self.start < len(self._ring) // 8:
            self._resize(self.end - self.start)
        if len(self._numbers_aside) and not (self._valid_to_aside > frontier).any():
            self._keep_aside(np.zeros(len(self._numbers_aside), np.bool_))

    def _width(self, column: int) -> int:
        return 2 if pat.is_decimal(self.types[column]) else 1

    def _gather_words(self, words: Sequence[int], rows: Ints, aside: Flags | None, places_aside: Ints) -> Ints:
        """The words of the given rows, one row of the result per word."""
        out = new_array((len(words), len(rows)))
        if words:
            _gather_words(self._ring, np.array(words), rows, out)
            if aside is not None:
                out[:, aside] = self._words_aside[places_aside][:, words].T
        return out

    def _find_aside(self, rows: Ints) -> tuple[Flags | None, Ints]:
        """Which of the rows are set aside (None: none), and their places there."""
        if len(self._numbers_aside) == 0:
            return None, self._numbers_aside
        aside = rows < self.start
        if not aside.any():
            return None, self._numbers_aside
        return aside, np.searchsorted(self._numbers_aside, rows[aside])

    def _make_room(self, count: int) -> None:
        """Room for more rows: by setting the living aside if the ring is mostly dead, else by a larger ring."""
        rows = np.arange(self.start, self.end)
        alive = rows[self._valid_to[rows & (len(self._ring) - 1)] > self._frontier]
        if len(rows) and len(alive) <= len(rows) // 4:
            self._set_aside(alive)
        if self.end - self.start + count > len(self._ring):
            self._resize(self.end - self.start + count)

    def _set_aside(self, rows: Ints) -> None:
        self._keep_aside(self._valid_to_aside > self._frontier)
        for column in self._segmented.values():
            column.aside = pa.concat_arrays([column.aside, column.gather(rows, None, rows)])
        places = rows & (len(self._ring) - 1)
        self._numbers_aside = np.concatenate([self._numbers_aside, rows])
        self._valid_from_aside = np.concatenate([self._valid_from_aside, self._valid_from[places]])
        self._valid_to_aside = np.concatenate([self._valid_to_aside, self._valid_to[places]])
        self._words_aside = np.concatenate([self._words_aside, self._ring[places]])
        self.start = self.end
        for column in self._segmented.values():
            column.release(self.start)

    def _keep_aside(self, keep: Flags) -> None:
        self._numbers_aside = self._numbers_aside[keep]
        self._valid_from_aside = self._valid_from_aside[keep]
        self._valid_to_aside = self._valid_to_aside[keep]
        self._words_aside = self._words_aside[keep]
        for column in self._segmented.values():
            column.aside = column.aside.filter(pa.array(keep))

    def _resize(self, count: int) -> None:
        """Move the rows into a ring with room for ``count`` and half as many again."""
        capacity = max(_SMALLEST, 1 << (count + count // 2).bit_length())
        ring = np.zeros((capacity, self._ring.shape[1]), np.int64)
        rows = np.arange(self.start, self.end)
        ring[rows & (capacity - 1)] = self._ring[rows & (len(self._ring) - 1)]
        validity = np.zeros((2, capacity), np.int64)
        for new, old in zip(validity, (self._valid_from, self._valid_to), strict=True):
            new[rows & (capacity - 1)] = old[rows & (len(self._ring) - 1)]
        self._ring, self._valid_from, self._valid_to = ring, validity[0], validity[1]


def _chosen(count: int, most: int, generator: np.random.Generator) -> Ints:
    """So many places of ``count`` at most, in order, drawn at random."""
    return np.sort(generator.choice(count, most, replace=False)) if count > most else np.arange(count)


def _narrowed(words: Ints, valid: Flags | None, data_type: pa.DataType) -> pa.Array:
    """Words as an array of their type."""
    if len(words) == 2:
        return wrap_values(np.ascontiguousarray(words.T), valid, data_type)
    dtype = storage_dtype(data_type)
    return wrap_values(words[0].astype(dtype, copy=False), valid, data_type)


@compiled
def _gather_words(ring, words, rows, out):  # type: ignore[no-untyped-def]
    """out[j, i] is word words[j] of row rows[i]."""
    mask = ring.shape[0] - 1
    width = ring.shape[1]
    for i in range(rows.shape[0]):
        if i + 96 < rows.shape[0]:
            prefetch(ring, (rows[i + 96] & mask) * width)
        place = rows[i] & mask
        for j in range(words.shape[0]):
            out[j, i] = ring[place, words[j]]


@compiled
def _first_alive(valid_to, start, end, frontier):  # type: ignore[no-untyped-def]
    mask = valid_to.shape[0] - 1
    while start < end and valid_to[start & mask] <= frontier:
        start += 1
    return start
