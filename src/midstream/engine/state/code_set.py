"""A growing set of key codes, which answers what of a request is new to it.

Requests are single codes (equality joins) or intervals of codes (range joins). Single codes are kept in sorted arrays
that are merged geometrically, intervals as one sorted list of disjoint ones. Beside these, all codes below a floor may
be in the set.

>>> codes = CodeSet()
>>> codes.add_missing(np.array([7, 7, 3]), np.array([7, 7, 3]))
(array([3, 7]), array([3, 7]))
>>> codes.add_missing(np.array([3, 9]), np.array([3, 9]))
(array([9]), array([9]))
>>> codes.add_missing(np.array([5]), np.array([8]))
(array([5, 8]), array([6, 8]))
"""

from __future__ import annotations

import numpy as np

from midstream.engine.kernels import Flags, Ints
from midstream.engine.state.runs import merge_similar_runs

__all__ = ["HIGHEST", "CodeSet"]

_LOWEST, HIGHEST = -(2**63), 2**63 - 1


class CodeSet:
    """Codes, and what of a request is not among them."""

    def __init__(self) -> None:
        self.floor = _LOWEST
        """All codes below are in the set."""
        self._points: list[Ints] = []
        self._lows = np.empty(0, np.int64)
        self._highs = np.empty(0, np.int64)

    def add_missing(self, lows: Ints, highs: Ints) -> tuple[Ints, Ints]:
        """Add the intervals (both ends included) and give what of them was missing: disjoint, in order."""
        if len(self._lows) == 0 and (lows is highs or (lows == highs).all()):
            codes = _different(lows)
            missing = codes[~self.contains(codes)]
            self._add_points(missing)
            return missing, missing
        return self._add_intervals(lows, highs)

    def contains(self, codes: Ints) -> Flags:
        """Which of the codes are in the set."""
        found = codes < self.floor
        for points in self._points:
            places = np.minimum(np.searchsorted(points, codes), len(points) - 1)
            found |= points[places] == codes
        if len(self._lows):
            places = np.searchsorted(self._lows, codes, "right") - 1
            found |= (places >= 0) & (codes <= self._highs[places])
        return found

    def _add_points(self, codes: Ints) -> None:
        if len(codes) == 0:
            return
        self._points.append(codes)
        merge_similar_runs(self._points, lambda one, other: [np.sort(np.concatenate([one, other]))])

    def _add_intervals(self, lows: Ints, highs: Ints) -> tuple[Ints, Ints]:
        if self.floor > _LOWEST:
            self._lows = np.concatenate([self._lows, [_LOWEST]])
            self._highs = np.concatenate([self._highs, [self.floor - 1]])
        if self._points or self.floor > _LOWEST:
            points = np.concatenate([*self._points, np.empty(0, np.int64)])
            self._points = []
            self._lows, self._highs = _joined(
                np.concatenate([self._lows, points]), np.concatenate([self._highs, points])
            )
        lows, highs = _joined(lows, highs)
        # Elementary intervals between all bounds: each is wholly inside or outside of both.
        edges = np.unique(np.concatenate([lows, self._lows, _after(highs), _after(self._highs)]))
        begins, ends = edges, np.concatenate([edges[1:] - 1, [HIGHEST]])
        wanted = _inside(begins, lows, highs)
        missing = wanted & ~_inside(begins, self._lows, self._highs)
        self._lows, self._highs = _joined(np.concatenate([self._lows, lows]), np.concatenate([self._highs, highs]))
        return begins[missing], ends[missing]


def _different(codes: Ints) -> Ints:
    """The codes in order, each once. (numpy.unique hashes them first, which takes longer.)"""
    if len(codes) > 1 and not (codes[1:] > codes[:-1]).all():
        codes = np.sort(codes)
        codes = codes[np.concatenate([[True], codes[1:] != codes[:-1]])]
    return codes


def _after(highs: Ints) -> Ints:
    """Where the gap behind each interval begins; none behind the last code of all."""
    return highs[highs < HIGHEST] + 1


def _inside(codes: Ints, lows: Ints, highs: Ints) -> Flags:
    if len(lows) == 0:
        return np.zeros(len(codes), np.bool_)
    places = np.searchsorted(lows, codes, "right") - 1
    return (places >= 0) & (codes <= highs[places])


def _joined(lows: Ints, highs: Ints) -> tuple[Ints, Ints]:
    """The intervals as disjoint ones, in order; empty ones are dropped."""
    some = lows <= highs
    order = np.argsort(lows[some], kind="stable")
    lows, highs = lows[some][order], highs[some][order]
    if len(lows) == 0:
        return lows, highs
    reach = np.maximum.accumulate(highs)
    first = np.concatenate([[True], lows[1:] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return lows[first], reach[last]
