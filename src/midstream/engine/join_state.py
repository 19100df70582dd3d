"""What one side of a join remembers: tuples by key, in a ring, under a chained hash index.

Tuples are numbered in the order of insertion and live at their number modulo the capacity. Each entry holds its key
code, its validity and the number of the previous entry in the same bucket; ``heads`` holds the newest number of each
bucket. A chain therefore runs from new to old and ends at the first number below ``start``: dropping the oldest tuples
is moving ``start``, and nothing is unlinked.

    heads:    … 7 …                   7 ──▶ 4 ──▶ 1 (below start: the chain ends)
    entries:  [code, from, to, previous], one row of 32 bytes, so that a probe costs one cache line per entry

Tuples die in the order of their ``valid_to``, which is only roughly the order of insertion: a tuple that outlives its
successors keeps them in place. When the ring is full it is therefore compacted if at least a quarter of it is dead,
and grown otherwise; either is paid for by the insertions since the last time.

A join without a usable key is the case of one bucket: every code is 0.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from midstream.engine.kernels import Ints, compiled

__all__ = ["HashState", "Matches"]

_SMALLEST = 64
_START = -2
"""As a position in a chain: begin with the newest entry."""

Matches = tuple[Ints, Ints, Ints]
"""References (probing and stored side by side), valid_from, valid_to of candidate pairs."""


class HashState:
    """Tuples of one join input, found by key code."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.start = 0
        self.end = 0
        self.compared = 0
        self._allocate(_SMALLEST)

    def __len__(self) -> int:
        """Tuples held, including those that are dead but not yet dropped."""
        return self.end - self.start

    @property
    def bytes(self) -> int:
        return self._entries.nbytes + self._references.nbytes + self._heads.nbytes

    def insert(self, codes: Ints, valid_from: Ints, valid_to: Ints, references: Ints, frontier: int) -> None:
        """Add tuples; those whose validity has ended at ``frontier`` may be dropped to make room."""
        if len(self) + len(codes) > len(self._entries):
            self._make_room(len(codes), frontier)
        _insert(
            self._heads, self._entries, self._references, self._shift, self.end, codes, valid_from, valid_to, references
        )
        self.end += len(codes)

    def truncate_last(self, count: int) -> None:
        """Take back the latest insertion, of ``count`` tuples."""
        _truncate(self._heads, self._entries, self._shift, self.end - count, self.end)
        self.end -= count

    def expire(self, frontier: int) -> None:
        """Drop the oldest tuples as far as their validity has ended."""
        self.start = _first_alive(self._entries, self.start, self.end, frontier)
        if len(self._entries) > _SMALLEST and len(self) < len(self._entries) // 8:
            self._rebuild(len(self), frontier)

    def probe(
        self, codes: Ints, valid_from: Ints, valid_to: Ints, references: Ints, stored_first: bool, chunk: int
    ) -> Iterator[Matches]:
        """Pairs of probing and stored tuples with equal codes and intersecting validities, about chunk at a time."""
        width = self.width + references.shape[1]
        row, place = 0, _START
        # Small at first: most batches of a selective join fit, and a large buffer costs its page faults.
        room = min(chunk, max(1024, 2 * len(codes)))
        while row < len(codes):
            out = np.empty((room, width), np.int64)
            out_from, out_to = np.empty(room, np.int64), np.empty(room, np.int64)
            found, row, place, compared = _probe(
                self._heads, self._entries, self._references, self._shift, self.start,
                codes, valid_from, valid_to, references, stored_first, row, place, out, out_from, out_to,
            )  # fmt: skip
            self.compared += compared
            if found:
                yield out[:found], out_from[:found], out_to[:found]
            room = chunk

    def live(self, frontier: int) -> tuple[Ints, Ints, Ints, Ints]:
        """Codes, validities and references of the tuples still valid at the frontier, oldest first."""
        slots = np.arange(self.start, self.end) & (len(self._entries) - 1)
        slots = slots[self._entries[slots, 2] > frontier]
        entries = self._entries[slots]
        return entries[:, 0].copy(), entries[:, 1].copy(), entries[:, 2].copy(), self._references[slots]

    def _allocate(self, capacity: int) -> None:
        self._entries = np.empty((capacity, 4), np.int64)
        self._references = np.empty((capacity, self.width), np.int64)
        self._heads = np.full(2 * capacity, -1, np.int64)
        self._shift = 64 - (2 * capacity).bit_length() + 1

    def _make_room(self, count: int, frontier: int) -> None:
        alive = _count_alive(self._entries, self.start, self.end, frontier)
        compact = alive + count <= len(self._entries) and alive <= len(self) - len(self) // 4
        self._rebuild(alive + count if compact else 2 * (alive + count), frontier)

    def _rebuild(self, count: int, frontier: int) -> None:
        """Move the living tuples into a ring with room for ``count``; they get new numbers in the same order."""
        codes, valid_from, valid_to, references = self.live(frontier)
        self._allocate(max(_SMALLEST, 1 << (count - 1).bit_length() if count else 0))
        self.start = self.end
        self.insert(codes, valid_from, valid_to, references, frontier)


@compiled
def _bucket(code, shift):  # type: ignore[no-untyped-def]
    return (np.uint64(code) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(shift)


@compiled
def _insert(heads, entries, stored, shift, end, codes, valid_from, valid_to, references):  # type: ignore[no-untyped-def]
    mask = entries.shape[0] - 1
    for i in range(codes.shape[0]):
        slot = (end + i) & mask
        bucket = _bucket(codes[i], shift)
        entries[slot, 0] = codes[i]
        entries[slot, 1] = valid_from[i]
        entries[slot, 2] = valid_to[i]
        entries[slot, 3] = heads[bucket]
        heads[bucket] = end + i
        for j in range(references.shape[1]):
            stored[slot, j] = references[i, j]


@compiled
def _truncate(heads, entries, shift, new_end, end):  # type: ignore[no-untyped-def]
    mask = entries.shape[0] - 1
    for number in range(end - 1, new_end - 1, -1):
        slot = number & mask
        heads[_bucket(entries[slot, 0], shift)] = entries[slot, 3]


@compiled
def _first_alive(entries, start, end, frontier):  # type: ignore[no-untyped-def]
    mask = entries.shape[0] - 1
    while start < end and entries[start & mask, 2] <= frontier:
        start += 1
    return start


@compiled
def _count_alive(entries, start, end, frontier):  # type: ignore[no-untyped-def]
    mask = entries.shape[0] - 1
    count = 0
    for number in range(start, end):
        if entries[number & mask, 2] > frontier:
            count += 1
    return count


@compiled
def _probe(  # type: ignore[no-untyped-def]
    heads, entries, stored, shift, start, codes, valid_from, valid_to, references, stored_first, row, place,
    out, out_from, out_to,
):  # fmt: skip
    """Fill the output from (row, place) on; where to go on, and how many entries were compared."""
    mask = entries.shape[0] - 1
    stored_at = 0 if stored_first else references.shape[1]
    probing_at = stored.shape[1] if stored_first else 0
    found = 0
    compared = 0
    while row < codes.shape[0]:
        code = codes[row]
        begin = valid_from[row]
        end = valid_to[row]
        if place == _START:
            place = heads[_bucket(code, shift)]
        while place >= start:
            slot = place & mask
            if entries[slot, 0] == code:
                compared += 1
                if entries[slot, 1] < end and begin < entries[slot, 2]:
                    if found == out_from.shape[0]:
                        return found, row, place, compared - 1
                    out_from[found] = max(begin, entries[slot, 1])
                    out_to[found] = min(end, entries[slot, 2])
                    for j in range(stored.shape[1]):
                        out[found, stored_at + j] = stored[slot, j]
                    for j in range(references.shape[1]):
                        out[found, probing_at + j] = references[row, j]
                    found += 1
            place = entries[slot, 3]
        row += 1
        place = _START
    return found, row, place, compared
