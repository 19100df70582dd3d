"""What one side of a range join remembers: tuples in runs sorted by key.

A batch of insertions becomes a sorted run; runs of similar size are merged (geometrically: about log n runs, each
tuple copied about log n times), and merging forgets dead tuples. A probe with the bounds [low, high] finds its
candidates in each run by two binary searches, so the cost follows the candidates, not the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from midstream.engine.join_state import Matches
from midstream.engine.kernels import Ints, compiled

__all__ = ["RangeState"]


@dataclass
class _Run:
    codes: Ints
    valid_from: Ints
    valid_to: Ints
    references: Ints

    def __len__(self) -> int:
        return len(self.codes)

    def taken(self, order: Ints) -> _Run:
        return _Run(self.codes[order], self.valid_from[order], self.valid_to[order], self.references[order])


class RangeState:
    """Tuples of one join input, found by an interval of order codes."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.compared = 0
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)

    @property
    def bytes(self) -> int:
        return len(self) * 8 * (3 + self.width)

    def insert(self, codes: Ints, valid_from: Ints, valid_to: Ints, references: Ints, frontier: int) -> None:
        """Add tuples as a run of their own; ``expire`` merges it with the others."""
        if len(codes):
            self._runs.append(_Run(codes, valid_from, valid_to, references).taken(np.argsort(codes, kind="stable")))

    def truncate_last(self, codes: Ints) -> None:
        """Take back the latest insertion, which had these codes."""
        if len(codes):
            self._runs.pop()

    def expire(self, frontier: int) -> None:
        """Merge runs of similar size, forgetting the tuples whose validity has ended."""
        runs = [run for run in self._runs if int(run.valid_to.max()) > frontier]
        runs.sort(key=len, reverse=True)
        merged: list[_Run] = []
        for run in runs:
            merged.append(run)
            while len(merged) > 1 and len(merged[-2]) < 2 * len(merged[-1]):
                last = merged.pop()
                merged[-1] = _merge(merged[-1], last, frontier)
                if len(merged[-1]) == 0:
                    merged.pop()
                    break
        self._runs = merged

    def probe(
        self, lows: Ints, highs: Ints, valid_from: Ints, valid_to: Ints, references: Ints, stored_first: bool, chunk: int
    ) -> Iterator[Matches]:
        """Pairs of a probing tuple and a stored one with low <= code <= high and intersecting validities."""
        width = self.width + references.shape[1]
        for run in self._runs:
            firsts = np.searchsorted(run.codes, lows, "left")
            ends = np.searchsorted(run.codes, highs, "right")
            row, place = 0, -1
            room = min(chunk, max(1024, int(np.maximum(ends - firsts, 0).sum())))
            while row < len(lows):
                out = np.empty((room, width), np.int64)
                out_from, out_to = np.empty(room, np.int64), np.empty(room, np.int64)
                found, row, place, compared = _expand(
                    run.valid_from, run.valid_to, run.references, firsts, ends,
                    valid_from, valid_to, references, stored_first, row, place, out, out_from, out_to,
                )  # fmt: skip
                self.compared += compared
                if found:
                    yield out[:found], out_from[:found], out_to[:found]


def _merge(left: _Run, right: _Run, frontier: int) -> _Run:
    both = _Run(
        np.concatenate([left.codes, right.codes]),
        np.concatenate([left.valid_from, right.valid_from]),
        np.concatenate([left.valid_to, right.valid_to]),
        np.concatenate([left.references, right.references]),
    )
    order = np.argsort(both.codes, kind="stable")
    return both.taken(order[both.valid_to[order] > frontier])


@compiled
def _expand(  # type: ignore[no-untyped-def]
    run_from, run_to, stored, firsts, ends, valid_from, valid_to, references, stored_first, row, place,
    out, out_from, out_to,
):  # fmt: skip
    """Fill the output from (row, place) on; where to go on, and how many tuples were compared."""
    stored_at = 0 if stored_first else references.shape[1]
    probing_at = stored.shape[1] if stored_first else 0
    found = 0
    compared = 0
    while row < firsts.shape[0]:
        if place < 0:
            place = firsts[row]
        while place < ends[row]:
            compared += 1
            if run_from[place] < valid_to[row] and valid_from[row] < run_to[place]:
                if found == out_from.shape[0]:
                    return found, row, place, compared - 1
                out_from[found] = max(valid_from[row], run_from[place])
                out_to[found] = min(valid_to[row], run_to[place])
                for j in range(stored.shape[1]):
                    out[found, stored_at + j] = stored[place, j]
                for j in range(references.shape[1]):
                    out[found, probing_at + j] = references[row, j]
                found += 1
            place += 1
        row += 1
        place = -1
    return found, row, place, compared
