"""Entries waiting for their time: pushed in any order, taken out in order as the frontier moves.

Entries live in sorted runs that are merged geometrically, so that taking out what is due costs about log n binary
searches plus what is taken, however much is waiting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from midstream.engine.kernels import Ints, sort_order
from midstream.engine.state.runs import merge_similar_runs

__all__ = ["TimeQueue", "slot_then_time_order"]


@dataclass
class _Run:
    times: Ints
    payload: Ints
    start: int = 0

    def __len__(self) -> int:
        return len(self.times) - self.start


class TimeQueue:
    """A queue of (time, row of int64 words)."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)

    @property
    def bytes(self) -> int:
        return sum(run.times.nbytes + run.payload.nbytes for run in self._runs)

    def push(self, times: Ints, payload: Ints) -> None:
        """Add entries."""
        if len(times) == 0:
            return
        self._runs.append(_sorted(times, payload))
        merge_similar_runs(self._runs, _merged)

    def pop_until(self, frontier: int) -> tuple[Ints, Ints]:
        """Take out the entries whose time is at most the frontier, in order of time."""
        times, payloads = [], []
        for run in self._runs:
            end = int(np.searchsorted(run.times, frontier, "right"))
            if end > run.start:
                times.append(run.times[run.start : end])
                payloads.append(run.payload[run.start : end])
                run.start = end
        self._runs = [run for run in self._runs if len(run)]
        if not times:
            return np.empty(0, np.int64), np.empty((0, self.width), np.int64)
        due = _sorted(np.concatenate(times), np.concatenate(payloads))
        return due.times, due.payload


def slot_then_time_order(slots: Ints, times: Ints) -> Ints:
    """The stable order by slot, and by time within a slot."""
    by_time = sort_order(times)
    if by_time is None:
        by_time = np.arange(len(times))
    by_slot = sort_order(slots[by_time])
    return by_time if by_slot is None else by_time[by_slot]


def _merged(one: _Run, other: _Run) -> list[_Run]:
    return [
        _sorted(
            np.concatenate([one.times[one.start :], other.times[other.start :]]),
            np.concatenate([one.payload[one.start :], other.payload[other.start :]]),
        )
    ]


def _sorted(times: Ints, payload: Ints) -> _Run:
    order = sort_order(times)
    return _Run(times, payload) if order is None else _Run(times[order], payload[order])
