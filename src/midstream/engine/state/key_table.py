"""Different keys, each with a small number (its slot) for as long as somebody holds it.

Keys are rows of one or more columns of any scalar type, NULLs equal to each other. They are found by code (see
``codes``); where codes are hashes, or stand for NULL, the key itself is compared. Slots of released keys are used
again, so that arrays indexed by slot stay as small as the number of keys alive.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.window_spec import BEGINNING, NEVER
from midstream.engine.codes import combine_codes, comparable, encode, is_exact, mixed
from midstream.engine.kernels import Flags, Ints, compiled
from midstream.engine.state.pool import SlotPool, extended
from midstream.engine.state.row_store import RowStore

__all__ = ["KeyTable"]

_NULL_CODE = np.int64(-0x5E1D_5EED_0FF5_E77E)


class KeyTable:
    """Slots for keys; who holds them is counted in ``holds``."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self.types = tuple(types)
        self._pool = SlotPool()
        self.holds = np.zeros(self.capacity, np.int64)
        self._is_exact = len(types) == 1 and is_exact(types[0])
        self._used = np.zeros(self.capacity, np.bool_)
        self._codes = np.zeros(self.capacity, np.int64)
        self._next = np.full(self.capacity, -1)
        self._heads = np.full(2 * self.capacity, -1)
        self._numbers = np.zeros(self.capacity, np.int64)
        self._keys = RowStore(self.types)

    def __len__(self) -> int:
        return len(self._pool)

    @property
    def capacity(self) -> int:
        """All slots are below it."""
        return self._pool.capacity

    @property
    def bytes(self) -> int:
        arrays = (self.holds, self._used, self._codes, self._next, self._heads, self._numbers)
        return sum(array.nbytes for array in arrays) + self._pool.bytes + self._keys.bytes

    def hold(self, columns: Sequence[pa.Array], count: int) -> Ints:
        """The slot of each row's key; each row counts as one holder until it is let go."""
        codes = self._code(columns, count)
        slots = self._find_or_add(codes, columns)
        np.add.at(self.holds, slots, 1)
        return slots

    def let_go(self, slots: Ints) -> Ints:
        """One holder less for each slot given; keys without holders are forgotten, and their slots returned."""
        np.subtract.at(self.holds, slots, 1)
        candidates = np.unique(slots)
        unheld: Ints = candidates[self.holds[candidates] == 0]
        if len(unheld) == 0:
            return unheld
        self._used[unheld] = False
        _unlink(self._heads, self._next, self._codes, unheld)
        self._pool.give(unheld)
        if len(self._keys) > 4 * len(self) + 256:
            self._compact()
        return unheld

    def gather(self, column: int, slots: Ints) -> pa.Array:
        """A column of the keys in the given slots."""
        return self._keys.gather(column, self._numbers[slots])

    def _code(self, columns: Sequence[pa.Array], count: int) -> Ints:
        parts = []
        for column in columns:
            codes, valid = encode(column)
            parts.append(codes if valid is None else np.where(valid, codes, _NULL_CODE))
        return combine_codes(parts) if parts else np.zeros(count, np.int64)

    def _find_or_add(self, codes: Ints, columns: Sequence[pa.Array]) -> Ints:
        slots = np.full(len(codes), -1)
        pending = np.arange(len(codes))
        after = slots
        while len(pending):
            found = _find(self._heads, self._next, self._codes, codes[pending], after)
            missing = pending[found < 0]
            if len(missing):
                # One row stands for each new code; the others look for it in the next round.
                _, firsts = np.unique(codes[missing], return_index=True)
                firsts.sort()
                before = self.capacity
                slots[missing[firsts]] = self._add(missing[firsts], codes, columns)
                if self.capacity > before:
                    # Growing has linked all keys anew: nobody may go on from where they were.
                    pending = pending[slots[pending] < 0]
                    after = np.full(len(pending), -1)
                    continue
                missing = missing[slots[missing] < 0]
                pending, found = pending[found >= 0], found[found >= 0]
            same = self._is_same(pending, found, codes, columns)
            slots[pending[same]] = found[same]
            # Rows whose candidate is another key go on after it; rows without one start again.
            pending = np.concatenate([pending[~same], missing])
            after = np.concatenate([found[~same], np.full(len(missing), -1)])
        return slots

    def _is_same(self, rows: Ints, slots: Ints, codes: Ints, columns: Sequence[pa.Array]) -> Flags:
        same = np.ones(len(rows), np.bool_)
        if len(rows) == 0:
            return same
        doubtful = np.flatnonzero(codes[rows] == _NULL_CODE) if self._is_exact else np.arange(len(rows))
        if len(doubtful):
            checked = np.ones(len(doubtful), np.bool_)
            places = pa.array(rows[doubtful])
            for position, column in enumerate(columns):
                stored = self.gather(position, slots[doubtful])
                checked &= _same_values(column.take(places), stored)
            same[doubtful] = checked
        return same

    def _add(self, rows: Ints, codes: Ints, columns: Sequence[pa.Array]) -> Ints:
        """Add the keys of the rows, and give their slots."""
        if self._pool.reserve(len(rows)):
            self._follow_pool()
        slots = self._pool.take(len(rows))
        places = pa.array(rows)
        numbers = self._append([c.take(places) for c in columns], len(rows))
        self._numbers[slots] = numbers
        self._used[slots] = True
        _link(self._heads, self._next, self._codes, slots, codes[rows])
        return slots

    def _append(self, columns: Sequence[pa.Array], count: int) -> Ints:
        """Keys have no time: they stay until they are let go."""
        return self._keys.append(columns, np.full(count, BEGINNING), np.full(count, NEVER))

    def _follow_pool(self) -> None:
        """Have room for all the pool's slots, and link the keys anew."""
        self.holds = extended(self.holds, self.capacity)
        self._used = extended(self._used, self.capacity)
        self._codes = extended(self._codes, self.capacity)
        self._numbers = extended(self._numbers, self.capacity)
        self._next = np.full(self.capacity, -1)
        self._heads = np.full(2 * self.capacity, -1)
        used = np.flatnonzero(self._used)
        _link(self._heads, self._next, self._codes, used, self._codes[used])

    def _compact(self) -> None:
        """Copy the keys alive into a fresh store."""
        used = np.flatnonzero(self._used)
        keys = [self.gather(column, used) for column in range(len(self.types))]
        self._keys = RowStore(self.types)
        self._numbers[used] = self._append(keys, len(used))


def _same_values(left: pa.Array, right: pa.Array) -> Flags:
    """Row by row: equal, or both NULL; NaN equals NaN and −0.0 equals 0.0."""
    left_valid, right_valid = np.asarray(left.is_valid()), np.asarray(right.is_valid())
    if is_exact(left.type):
        equal = encode(left)[0] == encode(right)[0]
    else:
        equal = np.asarray(pc.fill_null(pc.equal(*map(comparable, (left, right))), True))
    result: Flags = (left_valid == right_valid) & (equal | ~left_valid)
    return result


@compiled
def _bucket(code, heads):  # type: ignore[no-untyped-def]
    return np.int64(mixed(code) & np.uint64(heads.shape[0] - 1))


@compiled
def _find(heads, following, codes, wanted, after):  # type: ignore[no-untyped-def]
    """For each code wanted the first slot with it, from behind slot ``after`` on (-1: from the start); -1 for none."""
    out = np.empty(wanted.shape[0], np.int64)
    for i in range(wanted.shape[0]):
        slot = heads[_bucket(wanted[i], heads)] if after[i] < 0 else following[after[i]]
        while slot >= 0 and codes[slot] != wanted[i]:
            slot = following[slot]
        out[i] = slot
    return out


@compiled
def _link(heads, following, codes, slots, new_codes):  # type: ignore[no-untyped-def]
    for i in range(slots.shape[0]):
        slot = slots[i]
        bucket = _bucket(new_codes[i], heads)
        codes[slot] = new_codes[i]
        following[slot] = heads[bucket]
        heads[bucket] = slot


@compiled
def _unlink(heads, following, codes, slots):  # type: ignore[no-untyped-def]
    for slot in slots:
        bucket = _bucket(codes[slot], heads)
        place = heads[bucket]
        if place == slot:
            heads[bucket] = following[slot]
            continue
        while following[place] != slot:
            place = following[place]
        following[place] = following[slot]
