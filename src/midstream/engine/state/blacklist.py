"""A blacklist: suspended tuples, found by the code that has no partner (Yang and Papadias 2008, section IV-B).

Tuples stand in a ring in the order in which they came, with a number each, and in the chains of a hash table, the
latest first. Most end in the order in which they came: then the ring's first number moves on, and what a chain has
below it counts no more, so that nothing has to be taken out. The codes are what the paper calls the MNS buffer: when a
consumer announces new keys, they are looked up here, and the tuples that have them are taken out.

    numbers     first ······ end        heads      42      the latest tuple of the chain
    ring      … 38 39 40 41 42 │ …      following   3      so many numbers before it is the next one: 39
"""

from __future__ import annotations

import numpy as np

from midstream.algebra.window_spec import BEGINNING
from midstream.engine.codes import mixed
from midstream.engine.kernels import Ints, compiled, prefetch
from midstream.engine.state.join_state import FROM, REFERENCES, TO

__all__ = ["Blacklist"]

_FEWEST_CHAINS = 16
_SMALL = 1024
"""A ring of so many tuples may be mostly empty."""
_LARGEST_NUMBER = 2**31 - 1
_AHEAD = 8
"""How many codes ahead memory is asked for."""
_TAKEN = -1
"""Stands for the next tuple in the chain of one that was taken out."""


class Blacklist:
    """Tuples as rows of (valid_from, valid_to, references …)."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._frontier = BEGINNING
        self._first = self._end = self._held = 0
        self._clear(0)

    def __len__(self) -> int:
        """Tuples held, including some that have ended."""
        return self._held

    @property
    def codes_held(self) -> int:
        """Different codes. They are counted now: a look at each tuple."""
        return int(_distinct(self._following, self._codes, self._first, self._end))

    @property
    def bytes(self) -> int:
        return self._codes.nbytes + self._tuples.nbytes + self._following.nbytes + self._heads.nbytes

    def add(self, codes: Ints, valid_from: Ints, valid_to: Ints, references: Ints, places: Ints) -> None:
        """Hold the tuples at these places of a batch under their codes."""
        if len(places) == 0:
            return
        end = self._end + len(places)
        if end - self._first > len(self._codes) or end > _LARGEST_NUMBER:
            self._make_room(len(places))
        _append(
            codes, valid_from, valid_to, references, places,
            self._codes, self._tuples, self._following, self._heads, self._first, self._end,
        )  # fmt: skip
        self._end += len(places)
        self._held += len(places)

    def take(self, codes: Ints) -> Ints:
        """Take out the tuples with these codes that have not ended, valid from the frontier on."""
        if self._held == 0 or len(codes) == 0:
            return np.empty((0, REFERENCES + self._width), np.int64)
        places = _take(self._heads, self._following, self._codes, codes, self._first, self._held)
        self._held -= len(places)
        return self._remaining(self._tuples[places])

    def take_all(self) -> Ints:
        """Take out all tuples that have not ended, valid from the frontier on."""
        tuples = self._remaining(self._alive()[1])
        self._clear(0)
        return tuples

    def _remaining(self, tuples: Ints) -> Ints:
        """What is left of the tuples: partners begin at the frontier or later, and what they would meet before is gone.

        Without this, a tuple would meet others that ended while it was suspended, whose rows are no longer stored.
        """
        tuples = tuples[tuples[:, TO] > self._frontier]
        np.maximum(tuples[:, FROM], self._frontier, out=tuples[:, FROM])
        return tuples

    def expire(self, frontier: int) -> None:
        """Tuples that have ended by then need not be held any longer."""
        self._frontier = frontier
        if self._first == self._end:
            return
        self._first, ended = _first_alive(self._following, self._tuples, self._first, self._end, frontier)
        self._held -= ended
        if self._first == self._end:
            self._clear(0)
        elif len(self._codes) > _SMALL and self._end - self._first < len(self._codes) // 8:
            self._make_room(0)

    def _clear(self, capacity: int) -> None:
        self._codes = np.empty(capacity, np.int64)
        self._tuples = np.empty((capacity, REFERENCES + self._width), np.int64)
        self._following = np.empty(capacity, np.int32)
        self._heads = np.full(max(_FEWEST_CHAINS, 1 << (capacity // 2).bit_length()), -1, np.int32)
        self._first = self._end = self._held = 0

    def _alive(self) -> tuple[Ints, Ints]:
        return _alive(self._codes, self._tuples, self._following, self._first, self._end, self._frontier)  # type: ignore[no-any-return]

    def _make_room(self, wanted: int) -> None:
        """Forget what has ended or was taken out, and leave some room; more, if tuples do not end in their order."""
        codes, tuples = self._alive()
        alive = len(codes)
        spare = 3 * alive // 8 if self._held - alive > alive // 8 else alive // 4
        self._clear(alive + wanted + max(64, spare))
        columns = np.ascontiguousarray(tuples.T)
        self.add(codes, columns[FROM], columns[TO], columns[REFERENCES:], np.arange(alive))


@compiled
def _bucket(code, heads):  # type: ignore[no-untyped-def]
    return np.int64(mixed(code) & np.uint64(heads.shape[0] - 1))


@compiled
def _append(  # type: ignore[no-untyped-def]
    codes, valid_from, valid_to, references, places, ring_codes, ring, following, heads, first, end
):  # fmt: skip
    """Write the tuples at the places into the ring, each as the first of its chain."""
    slot = end % ring_codes.shape[0]
    for i in range(places.shape[0]):
        if i + _AHEAD < places.shape[0]:
            prefetch(heads, _bucket(codes[places[i + _AHEAD]], heads))
        place = places[i]
        ring_codes[slot] = codes[place]
        ring[slot, FROM] = valid_from[place]
        ring[slot, TO] = valid_to[place]
        for j in range(references.shape[0]):
            ring[slot, REFERENCES + j] = references[j, place]
        bucket = _bucket(codes[place], heads)
        before = heads[bucket]
        following[slot] = end + i - before if before >= first else 0
        heads[bucket] = end + i
        slot += 1
        if slot == ring_codes.shape[0]:
            slot = 0


@compiled
def _take(heads, following, codes, wanted, first, held):  # type: ignore[no-untyped-def]
    """Take the tuples with the wanted codes out of their chains: their places in the ring."""
    found = np.empty(held, np.int64)
    count = 0
    size = codes.shape[0]
    for i in range(wanted.shape[0]):
        if i + 2 * _AHEAD < wanted.shape[0]:
            prefetch(heads, _bucket(wanted[i + 2 * _AHEAD], heads))
            soon = heads[_bucket(wanted[i + _AHEAD], heads)]
            if soon >= first:
                prefetch(codes, soon % size)
        bucket = _bucket(wanted[i], heads)
        number = np.int64(heads[bucket])
        later = -1
        slot = number % size
        while number >= first:
            step = np.int64(following[slot])
            if codes[slot] == wanted[i]:
                found[count] = slot
                count += 1
                following[slot] = _TAKEN
                if later < 0:
                    heads[bucket] = number - step if step > 0 else -1
                else:
                    following[later] = following[later] + step if step > 0 else 0
            else:
                later = slot
            if step == 0:
                break
            number -= step
            slot -= step
            if slot < 0:
                slot += size
    return found[:count].copy()


@compiled
def _first_alive(following, tuples, first, end, frontier):  # type: ignore[no-untyped-def]
    """The first number whose tuple is still held and has not ended, and how many before it had not been taken out."""
    ended = 0
    slot = first % following.shape[0]
    while first < end and (following[slot] == _TAKEN or tuples[slot, TO] <= frontier):
        ended += following[slot] != _TAKEN
        first += 1
        slot += 1
        if slot == following.shape[0]:
            slot = 0
    return first, ended


@compiled
def _alive(codes, tuples, following, first, end, frontier):  # type: ignore[no-untyped-def]
    """The codes and tuples that were not taken out and have not ended, in the order in which they came."""
    alive_codes = np.empty(end - first, np.int64)
    alive = np.empty((end - first, tuples.shape[1]), np.int64)
    count = 0
    for number in range(first, end):
        slot = number % codes.shape[0]
        if following[slot] != _TAKEN and tuples[slot, TO] > frontier:
            alive_codes[count] = codes[slot]
            for column in range(tuples.shape[1]):
                alive[count, column] = tuples[slot, column]
            count += 1
    return alive_codes[:count].copy(), alive[:count].copy()


@compiled
def _distinct(following, codes, first, end):  # type: ignore[no-untyped-def]
    """How many different codes there are: each is counted where no earlier tuple of its chain has it."""
    count = 0
    size = codes.shape[0]
    for start in range(first, end):
        number = np.int64(start)
        slot = number % size
        code = codes[slot]
        is_first = following[slot] != _TAKEN
        while is_first and following[slot] > 0:
            step = np.int64(following[slot])
            number -= step
            if number < first:
                break
            slot -= step
            if slot < 0:
                slot += size
            is_first = codes[slot] != code
        count += is_first
    return count
