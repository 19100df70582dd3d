"""A blacklist: suspended tuples, found by the code that has no partner (Yang and Papadias 2008, section IV-B).

Tuples with the same code stand together, like the tuples under one entry of the paper's blacklist: they are suspended
for the same reason and resumed together. The set of codes is what the paper calls the MNS buffer: when a consumer
announces new keys, they are looked up here.
"""

from __future__ import annotations

import numpy as np

from midstream.algebra.window_spec import BEGINNING
from midstream.engine.codes import mixed
from midstream.engine.kernels import Ints, compiled
from midstream.engine.state.join_state import FROM, REFERENCES, TO

__all__ = ["Blacklist"]

_FEWEST_CHAINS = 16
_TAKEN = -2
"""Stands for the next entry in the chain of one that was taken out."""


class Blacklist:
    """Tuples as rows of (valid_from, valid_to, references …), in the chains of a hash table."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._frontier = BEGINNING
        self._clear(0)

    def __len__(self) -> int:
        """Tuples held, including some that have ended."""
        return self._held

    @property
    def codes_held(self) -> int:
        """Different codes."""
        return self._distinct

    @property
    def bytes(self) -> int:
        return self._codes.nbytes + self._tuples.nbytes + self._next.nbytes + self._heads.nbytes

    def add(self, codes: Ints, tuples: Ints) -> None:
        """Hold tuples under their codes."""
        if len(codes) == 0:
            return
        if self._used + len(codes) > len(self._codes):
            self._make_room(len(codes))
        self._link(codes, tuples)

    def take(self, codes: Ints) -> Ints:
        """Take out the tuples with these codes that have not ended, valid from the frontier on."""
        if self._held == 0 or len(codes) == 0:
            return np.empty((0, REFERENCES + self._width), np.int64)
        places, distinct = _take(self._heads, self._next, self._codes, codes, self._held)
        self._held -= len(places)
        self._distinct -= distinct
        return self._remaining(self._tuples[places])

    def take_all(self) -> Ints:
        """Take out all tuples that have not ended, valid from the frontier on."""
        tuples = self._remaining(_alive(self._codes[: self._used], self._tuples, self._next, self._frontier)[1])
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
        if self._used and self._latest_end <= frontier:
            self._clear(0)

    def _clear(self, capacity: int) -> None:
        self._codes = np.empty(capacity, np.int64)
        self._tuples = np.empty((capacity, REFERENCES + self._width), np.int64)
        self._next = np.empty(capacity, np.int32)
        self._heads = np.full(max(_FEWEST_CHAINS, 1 << (capacity // 2).bit_length()), -1, np.int32)
        self._used = self._held = self._distinct = 0
        self._latest_end = BEGINNING

    def _link(self, codes: Ints, tuples: Ints) -> None:
        end = self._used + len(codes)
        self._codes[self._used : end] = codes
        self._tuples[self._used : end] = tuples
        self._distinct += _link(self._heads, self._next, self._codes, self._used, end)
        self._latest_end = max(self._latest_end, int(tuples[:, TO].max(initial=BEGINNING)))
        self._held += len(codes)
        self._used = end

    def _make_room(self, wanted: int) -> None:
        """Forget what has ended or was taken out, and leave a third free: each tuple is moved a few times."""
        codes, tuples = _alive(self._codes[: self._used], self._tuples, self._next, self._frontier)
        self._clear(len(codes) + wanted + max(64, len(codes) // 3))
        self._link(codes, tuples)


@compiled
def _bucket(code, heads):  # type: ignore[no-untyped-def]
    return np.int64(mixed(code) & np.uint64(heads.shape[0] - 1))


@compiled
def _link(heads, following, codes, start, end):  # type: ignore[no-untyped-def]
    """Put the entries into their chains, behind one with the same code if there is one; how many codes are new."""
    distinct = 0
    for entry in range(start, end):
        bucket = _bucket(codes[entry], heads)
        place = heads[bucket]
        while place >= 0 and codes[place] != codes[entry]:
            place = following[place]
        if place >= 0:
            following[entry] = following[place]
            following[place] = entry
        else:
            distinct += 1
            following[entry] = heads[bucket]
            heads[bucket] = entry
    return distinct


@compiled
def _take(heads, following, codes, wanted, held):  # type: ignore[no-untyped-def]
    """Take the entries with the wanted codes out of their chains: their places, and how many different codes."""
    found = np.empty(held, np.int64)
    count = 0
    distinct = 0
    for code in wanted:
        bucket = _bucket(code, heads)
        before = -1
        place = heads[bucket]
        while place >= 0 and codes[place] != code:
            before = place
            place = following[place]
        if place < 0:
            continue
        distinct += 1
        while place >= 0 and codes[place] == code:
            found[count] = place
            count += 1
            after = following[place]
            following[place] = _TAKEN
            place = after
        if before < 0:
            heads[bucket] = place
        else:
            following[before] = place
    return found[:count].copy(), distinct


@compiled
def _alive(codes, tuples, following, frontier):  # type: ignore[no-untyped-def]
    """The codes and tuples that were not taken out and have not ended, in the order in which they came."""
    count = 0
    for entry in range(codes.shape[0]):
        count += following[entry] != _TAKEN and tuples[entry, TO] > frontier
    alive_codes = np.empty(count, np.int64)
    alive = np.empty((count, tuples.shape[1]), np.int64)
    count = 0
    for entry in range(codes.shape[0]):
        if following[entry] != _TAKEN and tuples[entry, TO] > frontier:
            alive_codes[count] = codes[entry]
            for column in range(tuples.shape[1]):
                alive[count, column] = tuples[entry, column]
            count += 1
    return alive_codes, alive
