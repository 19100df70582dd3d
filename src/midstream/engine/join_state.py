"""What one side of a join remembers: tuples by key, each bucket of a hash table in one piece of memory.

A tuple is one row of int64 words: key code, valid_from, valid_to, then its references. A bucket's tuples lie side by
side in a block, oldest first; blocks have sizes 4, 8, 16, … rows and are cut from one pool, with a free list per size.
A probe therefore costs one look at the bucket and one walk through memory, however many tuples share the key. (Chains
of single tuples, the textbook layout, cost a cache miss per tuple: measured 30 times slower with 20 tuples per key.)

    buckets   [start, count, size class]        pool    ┌────┬────┬────┬────┐┌────┬────┬────┬────┬─ …
              one row per bucket                        │code│from│ to │refs││ …
                                                        └────┴────┴────┴────┘└────

Tuples die in the order of their ``valid_to``, roughly the order of insertion. Dead ones are dropped when their block is
full and, so that quiet buckets are cleaned too, by a broom: each push sweeps a number of buckets in proportion to what
was inserted (policy: all buckets are swept at least once while as many tuples are inserted as are held; the harm
prevented: a state that keeps the dead). The table is rebuilt with twice the buckets when they hold more than two tuples
on average.

A join without a usable key is the case of one code: all tuples are in one block.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from midstream.engine.kernels import Ints, compiled

__all__ = ["HashState", "Matches"]

_FEWEST_BUCKETS = 32
_SMALLEST_BLOCK = 4
_CLASSES = 48
CODE, FROM, TO, REFERENCES = 0, 1, 2, 3
_START, _COUNT, _CLASS = 0, 1, 2

Matches = tuple[Ints, Ints, Ints]
"""References (probing and stored side by side), valid_from, valid_to of candidate pairs."""


class HashState:
    """Tuples of one join input, found by key code."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.compared = 0
        self._inserted = 0
        self._broom = 0
        self._allocate(_FEWEST_BUCKETS, 0)

    def __len__(self) -> int:
        """Tuples held, including those that are dead but not yet dropped."""
        return int(self._counts[0])

    @property
    def bytes(self) -> int:
        return self._buckets.nbytes + self._pool.nbytes + self._free.nbytes

    def insert(self, codes: Ints, valid_from: Ints, valid_to: Ints, references: Ints, frontier: int) -> None:
        """Add tuples; those whose validity has ended at ``frontier`` may be dropped to make room."""
        if len(self) + len(codes) > 2 * len(self._buckets):
            self._rebuild(len(self) + len(codes), frontier)
        done = 0
        while True:
            done = _insert(
                self._buckets, self._pool, self._free, self._counts, self._shift,
                codes, valid_from, valid_to, references, done, frontier,
            )  # fmt: skip
            if done == len(codes):
                break
            self._extend_pool()
        self._inserted += len(codes)

    def truncate_last(self, codes: Ints) -> None:
        """Take back the latest insertion, which had these codes."""
        _truncate(self._buckets, self._counts, self._shift, codes)
        self._inserted -= len(codes)

    def expire(self, frontier: int) -> None:
        """Sweep some buckets, dropping the tuples whose validity has ended."""
        swept = 64 + 2 * self._inserted * len(self._buckets) // max(1, len(self))
        self._inserted = 0
        swept = min(swept, len(self._buckets))
        _sweep(self._buckets, self._pool, self._free, self._counts, self._broom, swept, frontier)
        self._broom = (self._broom + swept) % len(self._buckets)
        if len(self._buckets) > _FEWEST_BUCKETS and len(self) < len(self._buckets) // 8:
            self._rebuild(len(self), frontier)

    def probe(
        self, codes: Ints, valid_from: Ints, valid_to: Ints, references: Ints, stored_first: bool, chunk: int
    ) -> Iterator[Matches]:
        """Pairs of probing and stored tuples with equal codes and intersecting validities, about chunk at a time."""
        width = self.width + references.shape[1]
        row, place = 0, 0
        # Small at first: most batches of a selective join fit, and a large buffer costs its page faults.
        room = min(chunk, max(1024, 2 * len(codes)))
        while row < len(codes):
            out = np.empty((room, width), np.int64)
            out_from, out_to = np.empty(room, np.int64), np.empty(room, np.int64)
            found, row, place, compared = _probe(
                self._buckets, self._pool, self._shift,
                codes, valid_from, valid_to, references, stored_first, row, place, out, out_from, out_to,
            )  # fmt: skip
            self.compared += compared
            if found:
                yield out[:found], out_from[:found], out_to[:found]
            room = min(chunk, 4 * room)

    def live(self, frontier: int) -> Ints:
        """The tuples still valid at the frontier, as rows of words (code, from, to, references)."""
        out = np.empty((len(self), REFERENCES + self.width), np.int64)
        return out[: _collect(self._buckets, self._pool, frontier, out)]

    def _allocate(self, buckets: int, tuples: int) -> None:
        self._buckets = np.zeros((buckets, 3), np.int64)
        self._shift = 64 - buckets.bit_length() + 1
        self._pool = np.empty((max(256, 4 * tuples), REFERENCES + self.width), np.int64)
        # Per size class the first free block, or -1.
        self._free = np.full(_CLASSES, -1)
        # Tuples held; rows of the pool handed out.
        self._counts = np.zeros(2, np.int64)

    def _extend_pool(self) -> None:
        pool = np.empty((2 * len(self._pool), self._pool.shape[1]), np.int64)
        pool[: len(self._pool)] = self._pool
        self._pool = pool

    def _rebuild(self, count: int, frontier: int) -> None:
        """Move the living tuples into a table with buckets for ``count``."""
        alive = self.live(frontier)
        self._allocate(max(_FEWEST_BUCKETS, 1 << count.bit_length()), len(alive))
        self._broom = 0
        inserted = self._inserted
        columns = [np.ascontiguousarray(alive[:, i]) for i in (CODE, FROM, TO)]
        self.insert(columns[0], columns[1], columns[2], np.ascontiguousarray(alive[:, REFERENCES:]), frontier)
        self._inserted = inserted


@compiled
def _bucket(code, shift):  # type: ignore[no-untyped-def]
    return np.int64((np.uint64(code) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(shift))


@compiled
def _take_block(pool, free, counts, size_class):  # type: ignore[no-untyped-def]
    """The start of a block of this class; -1 if the pool must be extended. Free blocks are linked by their first word."""
    start = free[size_class]
    if start >= 0:
        free[size_class] = pool[start, 0]
        return start
    size = _SMALLEST_BLOCK << (size_class - 1)
    if counts[1] + size > pool.shape[0]:
        return np.int64(-1)
    start = counts[1]
    counts[1] += size
    return start


@compiled
def _give_block(pool, free, start, size_class):  # type: ignore[no-untyped-def]
    pool[start, 0] = free[size_class]
    free[size_class] = start


@compiled
def _drop_dead(buckets, pool, counts, bucket, frontier):  # type: ignore[no-untyped-def]
    """Close the gaps that dead tuples leave in a bucket's block."""
    start = buckets[bucket, _START]
    count = buckets[bucket, _COUNT]
    kept = 0
    for i in range(count):
        if pool[start + i, TO] > frontier:
            if kept < i:
                for j in range(pool.shape[1]):
                    pool[start + kept, j] = pool[start + i, j]
            kept += 1
    buckets[bucket, _COUNT] = kept
    counts[0] -= count - kept


@compiled
def _move(buckets, pool, free, bucket, new_start, new_class):  # type: ignore[no-untyped-def]
    start = buckets[bucket, _START]
    for i in range(buckets[bucket, _COUNT]):
        for j in range(pool.shape[1]):
            pool[new_start + i, j] = pool[start + i, j]
    if buckets[bucket, _CLASS] > 0:
        _give_block(pool, free, start, buckets[bucket, _CLASS])
    buckets[bucket, _START] = new_start
    buckets[bucket, _CLASS] = new_class


@compiled
def _insert(  # type: ignore[no-untyped-def]
    buckets, pool, free, counts, shift, codes, valid_from, valid_to, references, done, frontier
):
    """Insert from position ``done`` on; the position at which the pool was exhausted, or the end."""
    for i in range(done, codes.shape[0]):
        bucket = _bucket(codes[i], shift)
        size_class = buckets[bucket, _CLASS]
        size = 0 if size_class == 0 else _SMALLEST_BLOCK << (size_class - 1)
        if buckets[bucket, _COUNT] == size:
            _drop_dead(buckets, pool, counts, bucket, frontier)
            # Room for one more is not enough: the next insertions would sift the block again and again.
            if buckets[bucket, _COUNT] > size - size // 4 - 1:
                start = _take_block(pool, free, counts, size_class + 1)
                if start < 0:
                    return i
                _move(buckets, pool, free, bucket, start, size_class + 1)
        place = buckets[bucket, _START] + buckets[bucket, _COUNT]
        pool[place, CODE] = codes[i]
        pool[place, FROM] = valid_from[i]
        pool[place, TO] = valid_to[i]
        for j in range(references.shape[1]):
            pool[place, REFERENCES + j] = references[i, j]
        buckets[bucket, _COUNT] += 1
        counts[0] += 1
    return codes.shape[0]


@compiled
def _truncate(buckets, counts, shift, codes):  # type: ignore[no-untyped-def]
    for i in range(codes.shape[0]):
        buckets[_bucket(codes[i], shift), _COUNT] -= 1
    counts[0] -= codes.shape[0]


@compiled
def _sweep(buckets, pool, free, counts, first, number, frontier):  # type: ignore[no-untyped-def]
    for i in range(number):
        bucket = (first + i) & (buckets.shape[0] - 1)
        if buckets[bucket, _COUNT] == 0 and buckets[bucket, _CLASS] == 0:
            continue
        _drop_dead(buckets, pool, counts, bucket, frontier)
        count = buckets[bucket, _COUNT]
        size_class = buckets[bucket, _CLASS]
        if count == 0:
            _give_block(pool, free, buckets[bucket, _START], size_class)
            buckets[bucket, _CLASS] = 0
        elif size_class > 2 and count <= _SMALLEST_BLOCK << (size_class - 3):
            start = _take_block(pool, free, counts, size_class - 1)
            if start >= 0:
                _move(buckets, pool, free, bucket, start, size_class - 1)


@compiled
def _collect(buckets, pool, frontier, out):  # type: ignore[no-untyped-def]
    found = 0
    for bucket in range(buckets.shape[0]):
        start = buckets[bucket, _START]
        for i in range(start, start + buckets[bucket, _COUNT]):
            if pool[i, TO] > frontier:
                for j in range(pool.shape[1]):
                    out[found, j] = pool[i, j]
                found += 1
    return found


@compiled
def _probe(  # type: ignore[no-untyped-def]
    buckets, pool, shift, codes, valid_from, valid_to, references, stored_first, row, place, out, out_from, out_to
):
    """Fill the output from (row, place in its bucket) on; where to go on, and how many tuples were compared."""
    stored_width = pool.shape[1] - REFERENCES
    stored_at = 0 if stored_first else references.shape[1]
    probing_at = stored_width if stored_first else 0
    found = 0
    compared = 0
    while row < codes.shape[0]:
        code = codes[row]
        begin = valid_from[row]
        end = valid_to[row]
        bucket = _bucket(code, shift)
        start = buckets[bucket, _START]
        for i in range(start + place, start + buckets[bucket, _COUNT]):
            if pool[i, CODE] != code:
                continue
            compared += 1
            if pool[i, FROM] < end and begin < pool[i, TO]:
                if found == out_from.shape[0]:
                    return found, row, i - start, compared - 1
                out_from[found] = max(begin, pool[i, FROM])
                out_to[found] = min(end, pool[i, TO])
                for j in range(stored_width):
                    out[found, stored_at + j] = pool[i, REFERENCES + j]
                for j in range(references.shape[1]):
                    out[found, probing_at + j] = references[row, j]
                found += 1
        row += 1
        place = 0
    return found, row, place, compared
