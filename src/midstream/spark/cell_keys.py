"""Keys for cells that Spark's hash puts into partitions of their own.

Spark sends a group to the partition ``pmod(murmur3(key, 42), partitions)``. With consecutive keys several cells would
share a partition, and a core, while others had none.

State lies under these keys, so that they depend on the number of cells and nothing else, for ever. The first is always
0: a checkpoint with another number of cells is found out there.
"""

from __future__ import annotations

from itertools import count

__all__ = ["cell_keys"]

_MASK = 0xFFFFFFFF


def cell_keys(cells: int) -> list[int]:
    """A key for each cell, each in a partition of its own if there are as many partitions as cells.

    >>> keys = cell_keys(4)
    >>> keys[0], sorted(_murmur3(key) % 4 for key in keys)
    (0, [0, 1, 2, 3])
    """
    first = _murmur3(0)
    return [next(key for key in count() if _murmur3(key) % cells == (first + cell) % cells) for cell in range(cells)]


def _murmur3(value: int) -> int:
    """Spark's ``hash`` of a long."""
    state = 42
    for half in (value & _MASK, value >> 32 & _MASK):
        word = half * 0xCC9E2D51 & _MASK
        word = (word << 15 | word >> 17) & _MASK
        state ^= word * 0x1B873593 & _MASK
        state = (state << 13 | state >> 19) & _MASK
        state = (state * 5 + 0xE6546B64) & _MASK
    state ^= 8
    state = (state ^ state >> 16) * 0x85EBCA6B & _MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & _MASK
    state ^= state >> 16
    return state - (1 << 32) if state >> 31 else state
