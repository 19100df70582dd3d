"""Which keys an operator can use now: the codes of the tuples that its other input holds, and until when.

A tuple is *demanded* by a consumer if the consumer holds a partner for it, or may hold one: where the answer is not
certain it is yes. A superfluous yes costs a partial result that nobody needs; a wrong no would lose results.

`DemandedKeys` remembers every code with the latest end of its tuples. `BloomDemandedKeys` remembers codes in Bloom
filters (Yang and Papadias 2008, section IV-A), 16 bits per tuple instead of 32 bytes or more, and says yes by mistake
now and then. Filters cannot forget, so there are several, one after the other: one is dropped when all its tuples have
ended.
"""

from __future__ import annotations

import numpy as np

from midstream.algebra.window_spec import BEGINNING
from midstream.engine.codes import mixed
from midstream.engine.kernels import Flags, Ints, compiled

__all__ = ["BloomDemandedKeys", "DemandedKeys"]

_SMALLEST = 64
_BITS_PER_CODE = 16
"""With four bits set for each code, about one answer in a hundred is yes by mistake."""
_SMALLEST_FILTER = 1024


class DemandedKeys:
    """Codes, each with the latest end of a tuple that has it: a hash table with open addressing."""

    def __init__(self) -> None:
        self.latest_end = BEGINNING
        """When the last tuple ends."""
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
        self.latest_end = max(self.latest_end, int(ends.max()))
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
        self.latest_end = BEGINNING
        self._filters: list[_BloomFilter] = []
        self._frontier = BEGINNING

    def __len__(self) -> int:
        """Tuples remembered."""
        return sum(bloom.count for bloom in self._filters)

    @property
    def bytes(self) -> int:
        return sum(bloom.words.nbytes for bloom in self._filters)

    def add(self, codes: Ints, ends: Ints) -> None:
        if len(codes) == 0:
            return
        self.latest_end = max(self.latest_end, int(ends.max()))
        if not self._filters or self._filters[-1].count + len(codes) > self._filters[-1].room:
            self._filters.append(_BloomFilter(max(_SMALLEST_FILTER, len(codes), len(self) // 4)))
        self._filters[-1].add(codes, int(ends.max()))

    def contains(self, codes: Ints, starts: Ints) -> Flags:
        found = np.zeros(len(codes), np.bool_)
        for bloom in self._filters:
            found |= _bits_set(bloom.words, codes) & (bloom.end > starts)
        return found

    def expire(self, frontier: int) -> None:
        self._filters = [bloom for bloom in self._filters if bloom.end > frontier]


class _BloomFilter:
    def __init__(self, room: int) -> None:
        self.words = np.zeros(1 << (room * _BITS_PER_CODE // 64).bit_length(), np.uint64)
        self.room = room
        self.count = 0
        self.end = BEGINNING

    def add(self, codes: Ints, end: int) -> None:
        _set_bits(self.words, codes)
        self.count += len(codes)
        self.end = max(self.end, end)


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
def _bits_set(words, codes):  # type: ignore[no-untyped-def]
    found = np.empty(codes.shape[0], np.bool_)
    mask = np.uint64(words.shape[0] - 1)
    for i in range(codes.shape[0]):
        word = mixed(codes[i])
        bits = _bits(word)
        found[i] = words[(word >> np.uint64(24)) & mask] & bits == bits
    return found
