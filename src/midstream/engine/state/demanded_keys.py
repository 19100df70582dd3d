"""Which keys an operator can use now: the codes of the tuples that its other input holds, and until when.

A tuple is *demanded* by a consumer if the consumer holds a partner for it, or may hold one: where the answer is not
certain it is yes. A superfluous yes costs a partial result that nobody needs; a wrong no would lose results.

`DemandedKeys` remembers every code with the latest end of its tuples. `BloomDemandedKeys` remembers codes in Bloom
filters (Yang and Papadias 2008, section IV-A), 16 bits per tuple instead of 32 bytes or more, and says yes by mistake
now and then. Filters cannot forget, so there are several, one after the other: one is dropped when all its tuples have
ended. `AnyTuple` is all that is needed where no columns are compared.
"""

from __future__ import annotations

import numpy as np

from midstream.algebra.window_spec import BEGINNING
from midstream.engine.codes import mixed
from midstream.engine.kernels import Flags, Ints, compiled

__all__ = ["AnyTuple", "BloomDemandedKeys", "DemandedKeys"]

_SMALLEST = 64
_BITS_PER_CODE = 16
"""With four bits set for each code, about one answer in a hundred is yes by mistake."""
_SMALLEST_FILTER = 1024
_BEGIN, _SIZE, _END, _TUPLES = range(4)
"""The columns of the table of filters."""


class AnyTuple:
    """For a key of no columns, by which all tuples are equal: until when there is a tuple."""

    def __init__(self) -> None:
        self._end = BEGINNING

    def __len__(self) -> int:
        """No keys are remembered."""
        return 0

    @property
    def bytes(self) -> int:
        return 0

    def add(self, codes: Ints, ends: Ints) -> None:
        if len(ends):
            self._end = max(self._end, int(ends.max()))

    def contains(self, codes: Ints, starts: Ints) -> Flags:
        found: Flags = starts < self._end
        return found

    def expire(self, frontier: int) -> None:
        pass


class DemandedKeys:
    """Codes, each with the latest end of a tuple that has it: a hash table with open addressing."""

    def __init__(self) -> None:
        self._codes = np.zeros(_SMALLEST, np.int64)
        self._ends = np.full(_SMALLEST, BEGINNING)
        self._count = 0
        self._frontier = BEGINNING

    def __len__(self) -> int:
        """Codes remembered, including some whose tuples have ended."""
        return self._count

    @property
    def bytes(self) -> int:
        return self._codes.nbytes + self._ends.nbytes

    def add(self, codes: Ints, ends: Ints) -> None:
        """Remember tuples by their codes and ends."""
        if len(codes) == 0:
            return
        if 3 * (self._count + len(codes)) > 2 * len(self._codes):
            self._make_room(len(codes))
        self._count += _put(self._codes, self._ends, codes, ends)

    def contains(self, codes: Ints, starts: Ints) -> Flags:
        """Whether a tuple with the code ends after the start, for each code and start."""
        found: Flags = _contained(self._codes, self._ends, codes, starts)
        return found

    def expire(self, frontier: int) -> None:
        """Tuples that have ended by then need not be remembered."""
        self._frontier = frontier

    def _make_room(self, wanted: int) -> None:
        alive = np.flatnonzero(self._ends > self._frontier)
        codes, ends = self._codes[alive], self._ends[alive]
        size = max(_SMALLEST, 1 << (2 * (len(alive) + wanted) - 1).bit_length())
        self._codes, self._ends = np.zeros(size, np.int64), np.full(size, BEGINNING)
        self._count = _put(self._codes, self._ends, codes, ends)


class BloomDemandedKeys:
    """Bloom filters, the latest of which is being filled: about four for as many tuples as live at a time."""

    def __init__(self) -> None:
        self._words = np.empty(0, np.uint64)
        """The filters, one after the other; each begins where the table says."""
        self._table = np.empty((0, 4), np.int64)
        """Of each filter: where it begins, how many words it has, when its last tuple ends, how many tuples it has."""

    def __len__(self) -> int:
        """Tuples remembered."""
        return int(self._table[:, _TUPLES].sum())

    @property
    def bytes(self) -> int:
        return self._words.nbytes

    def add(self, codes: Ints, ends: Ints) -> None:
        if len(codes) == 0:
            return
        latest = int(ends.max())
        if len(self._table) == 0 or self._table[-1, _TUPLES] + len(codes) > _room(self._table[-1, _SIZE]):
            self._begin_filter(max(_SMALLEST_FILTER, len(codes), len(self) // 4))
        begin, size, end, tuples = self._table[-1].tolist()
        _set_bits(self._words[begin : begin + size], codes)
        self._table[-1] = begin, size, max(end, latest), tuples + len(codes)

    def contains(self, codes: Ints, starts: Ints) -> Flags:
        found: Flags = _bits_set(self._words, self._table, codes, starts)
        return found

    def expire(self, frontier: int) -> None:
        alive = self._table[:, _END] > frontier
        if not alive.all():
            kept = self._table[alive]
            words = [self._words[begin : begin + size] for begin, size in kept[:, :2].tolist()]
            self._words = np.concatenate([np.empty(0, np.uint64), *words])
            kept[:, _BEGIN] = np.cumsum(kept[:, _SIZE]) - kept[:, _SIZE]
            self._table = kept

    def _begin_filter(self, tuples: int) -> None:
        size = 1 << (tuples * _BITS_PER_CODE // 64).bit_length()
        self._table = np.vstack([self._table, [len(self._words), size, BEGINNING, 0]])
        self._words = np.concatenate([self._words, np.zeros(size, np.uint64)])


def _room(size: int) -> int:
    """How many tuples a filter of so many words is good for."""
    return int(size) * 64 // _BITS_PER_CODE


@compiled
def _place(codes, ends, code):  # type: ignore[no-untyped-def]
    """Where the code is, or the free place where it would be."""
    mask = codes.shape[0] - 1
    place = np.int64(mixed(code) & np.uint64(mask))
    while ends[place] != BEGINNING and codes[place] != code:
        place = (place + 1) & mask
    return place


@compiled
def _put(codes, ends, new_codes, new_ends):  # type: ignore[no-untyped-def]
    """How many codes are new."""
    added = 0
    for i in range(new_codes.shape[0]):
        place = _place(codes, ends, new_codes[i])
        added += ends[place] == BEGINNING
        codes[place] = new_codes[i]
        ends[place] = max(ends[place], new_ends[i])
    return added


@compiled
def _contained(codes, ends, wanted, starts):  # type: ignore[no-untyped-def]
    found = np.empty(wanted.shape[0], np.bool_)
    for i in range(wanted.shape[0]):
        found[i] = ends[_place(codes, ends, wanted[i])] > starts[i]
    return found


@compiled
def _bits(word):  # type: ignore[no-untyped-def]
    """Four bits of a word of a filter, chosen by a mixed code."""
    bits = np.uint64(0)
    for _ in range(4):
        bits |= np.uint64(1) << (word & np.uint64(63))
        word >>= np.uint64(6)
    return bits


@compiled
def _set_bits(words, codes):  # type: ignore[no-untyped-def]
    mask = np.uint64(words.shape[0] - 1)
    for code in codes:
        word = mixed(code)
        words[(word >> np.uint64(24)) & mask] |= _bits(word)


@compiled
def _bits_set(words, table, codes, starts):  # type: ignore[no-untyped-def]
    """Whether a filter has the code and a tuple that ends after the start: the latest filter is asked first."""
    found = np.zeros(codes.shape[0], np.bool_)
    for i in range(codes.shape[0]):
        word = mixed(codes[i])
        bits = _bits(word)
        word >>= np.uint64(24)
        for place in range(table.shape[0] - 1, -1, -1):
            begin = table[place, _BEGIN] + np.int64(word & np.uint64(table[place, _SIZE] - 1))
            if words[begin] & bits == bits and table[place, _END] > starts[i]:
                found[i] = True
                break
    return found
