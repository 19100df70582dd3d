"""Routing: which input of a multi-way join a group of tuples visits next.

Tuples that have visited the same inputs travel together, in groups; the router is asked once per group and told what
became of it. Any answer gives the same results, so a router may change its mind at any time, and need not remember
anything when a query is resumed elsewhere.

*Fixed* routing follows the plan's probe orders. An *eddy* (Avnur and Hellerstein 2000, section 4; CACQ: Madden, Shah,
Hellerstein and Raman 2002, section 3) holds a lottery: each input has tickets, and the one that is drawn is next. Here
an input's tickets are in inverse proportion to how many tuples it has lately returned per tuple that visited it, so
that a selective input is visited early almost always, and the others now and then: that is how changes are noticed.
What is remembered decays with every tuple that visits, so that old experience does not outvote new.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

__all__ = ["EddyRouter", "FanOuts", "FixedRouter", "Router"]

_MEMORY_TUPLES = 4_096
"""After so many tuples have visited an input, what was before them counts half as much."""
_GROUP_ROWS = 2_048
"""Rows of a push for which an eddy decides at once: with fewer, the decisions would cost more than the joins."""
_LEAST_FAN_OUT = 1e-3
_SHARPNESS = 2.0
"""Tickets are the inverse fan-out to this power: 1 gives a little better input hardly more tuples."""


class Router(Protocol):
    """Decides on the way of tuples through the inputs of a multi-way join."""

    group_rows: int | None
    """How many rows of a push are routed together at most; None: all."""

    def next(self, root: int, candidates: Sequence[int]) -> int:
        """Which of the inputs a group visits next. ``root`` is the input that its new rows came from."""

    def note(self, place: int, rows_in: int, rows_out: int) -> None:
        """Learn that so many tuples have visited an input, and how many came of them."""


class FixedRouter:
    """Follows probe orders: for each input, the places of the others."""

    group_rows: int | None = None

    def __init__(self, probe_orders: Sequence[Sequence[int]]) -> None:
        self._probe_orders = probe_orders

    def next(self, root: int, candidates: Sequence[int]) -> int:
        return next(place for place in self._probe_orders[root] if place in candidates)

    def note(self, place: int, rows_in: int, rows_out: int) -> None:
        pass


class FanOuts:
    """How many tuples each input has lately returned per visiting tuple, with a memory that decays."""

    def __init__(self, inputs: int) -> None:
        # As if one tuple had visited each input, and returned as one.
        self._visits = [1.0] * inputs
        self._returns = [1.0] * inputs

    def of(self, place: int) -> float:
        """The fan-out of an input."""
        return self._returns[place] / self._visits[place]

    def note(self, place: int, rows_in: int, rows_out: float) -> None:
        """Learn that so many tuples have visited an input, and how many came of them."""
        kept = 0.5 ** (rows_in / _MEMORY_TUPLES)
        self._visits[place] = kept * self._visits[place] + rows_in
        self._returns[place] = kept * self._returns[place] + rows_out


class EddyRouter:
    """A lottery by recent fan-outs. ``seed`` makes it repeatable."""

    group_rows: int | None = _GROUP_ROWS

    def __init__(self, inputs: int, seed: int = 0) -> None:
        self._generator = np.random.default_rng(seed)
        self.fan_outs = FanOuts(inputs)

    def next(self, root: int, candidates: Sequence[int]) -> int:
        if len(candidates) == 1:
            return candidates[0]
        tickets = [max(_LEAST_FAN_OUT, self.fan_outs.of(place)) ** -_SHARPNESS for place in candidates]
        drawn = self._generator.random() * math.fsum(tickets)
        for place, count in zip(candidates, tickets, strict=True):
            drawn -= count
            if drawn < 0:
                return place
        return candidates[-1]

    def note(self, place: int, rows_in: int, rows_out: int) -> None:
        self.fan_outs.note(place, rows_in, rows_out)
