"""Slots of growing arrays, handed out and taken back: the bookkeeping behind keys, heaps and lists of intervals.

The arrays themselves belong to whoever uses the slots; all have the pool's capacity. Compiled loops take and return
slots through ``free`` (a stack) and ``count`` (how many are on it, an array of one so that they can change it).
"""

from __future__ import annotations

import numpy as np

from midstream.engine.fixed_width import Values
from midstream.engine.kernels import Ints

__all__ = ["SlotPool", "extended"]

SMALLEST = 64


class SlotPool:
    """Which slots below ``capacity`` are free."""

    def __init__(self) -> None:
        self.capacity = SMALLEST
        self.free = np.arange(SMALLEST)[::-1].copy()
        self.count = np.array([SMALLEST])

    def __len__(self) -> int:
        """Slots in use."""
        return self.capacity - int(self.count[0])

    @property
    def bytes(self) -> int:
        return self.free.nbytes

    def reserve(self, wanted: int) -> bool:
        """Have at least so many free slots; whether the capacity has grown, and the arrays must follow."""
        available = int(self.count[0])
        if wanted <= available:
            return False
        old, self.capacity = self.capacity, 1 << (2 * (len(self) + wanted)).bit_length()
        added = np.arange(old, self.capacity)[::-1]
        self.free = np.concatenate([added, self.free[:available], np.empty(old - available, np.int64)])
        self.count[0] += self.capacity - old
        return True

    def take(self, wanted: int) -> Ints:
        """So many slots, which must have been reserved."""
        self.count[0] -= wanted
        taken: Ints = self.free[self.count[0] : self.count[0] + wanted][::-1].copy()
        return taken

    def give(self, slots: Ints) -> None:
        """Take slots back."""
        self.free[self.count[0] : self.count[0] + len(slots)] = slots
        self.count[0] += len(slots)


def extended(values: Values, capacity: int, filler: int = 0) -> Values:
    """The array with fillers behind it."""
    result = np.full((capacity, *values.shape[1:]), filler, values.dtype)
    result[: len(values)] = values
    return result
