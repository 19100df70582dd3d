"""The merging policy of sorted runs: geometric, as in an LSM tree.

A new run is appended; while the run before it is not larger by the factor, the two are merged. So there are about
log n runs, and each entry is copied about log n times. A larger factor means fewer runs to search and more copying.

>>> runs = [[5, 7, 9], [1]]
>>> merge_similar_runs(runs, lambda one, other: [sorted(one + other)])
>>> runs
[[5, 7, 9], [1]]
>>> runs.append([8])
>>> merge_similar_runs(runs, lambda one, other: [sorted(one + other)])
>>> runs
[[1, 5, 7, 8, 9]]
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import TypeVar

__all__ = ["merge_similar_runs"]

Run = TypeVar("Run", bound=Sized)


def merge_similar_runs(runs: list[Run], merge: Callable[[Run, Run], list[Run]], factor: int = 2) -> None:
    """Merge the last runs of the list with those before them; ``merge`` gives one run, or none if nothing is left."""
    while len(runs) > 1 and len(runs[-2]) < factor * len(runs[-1]):
        last, before = runs.pop(), runs.pop()
        runs += merge(before, last)
