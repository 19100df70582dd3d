"""Streams whose best join order changes: by steps, slowly, in bursts, in turns; with skewed and correlated keys.

A workload is a query and a function that makes the tables of push number i. Event time is one tick per row and stream;
a window is ten pushes long. What changes is how many different values a join's key has: few values, many pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream import ContinuousQuery, Stream

__all__ = ["WINDOW_PUSHES", "Workload", "workloads"]

ROWS = 8_000
"""Rows of each stream in a push."""
WINDOW_PUSHES = 10
FEW, MEDIUM, MANY = 1_600, 80_000, 1_600_000
"""Values of a key whose join makes 50 pairs per row, and of one whose join makes a pair for every 20th row."""

Keys = Callable[[int, np.random.Generator], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Workload:
    """A query, its streams push by push, and where phases begin (the best plan may be another in each)."""

    name: str
    query: ContinuousQuery
    pushes: int
    phases: tuple[int, ...]
    """The first push of each phase."""
    values: Callable[[int], dict[str, int]]
    """How many values each column has in push number i."""
    skew: float = 0.0
    """The exponent of Zipf's law that keys follow; 0: all are equally frequent."""
    correlated: bool = False
    """Whether a row's keys are functions of each other, so that conditions are not independent."""
    bars: bool = True
    """Whether the regret of this workload has a bar: steps and drift do."""

    def tables(self, seed: int) -> Iterator[dict[str, pa.Table]]:
        """The tables of all pushes."""
        generator = np.random.default_rng(seed)
        for push in range(self.pushes):
            values = self.values(push)
            times = np.arange(push * ROWS, (push + 1) * ROWS)
            made = {}
            for stream in self.query.streams:
                columns = stream.schema.names[1:]
                base = generator.random(ROWS)
                keys = {
                    column: _drawn(base if self.correlated else generator.random(ROWS), values[column], self.skew)
                    for column in columns
                }
                made[stream.name] = pa.table({"t": times, **keys})
            yield made


def _drawn(uniform: np.ndarray, values: int, skew: float) -> np.ndarray:
    """Keys from 0 on: equally frequent, or by Zipf's law (the continuous approximation)."""
    if skew == 0:
        return (uniform * values).astype(np.int64)
    if skew == 1:
        return (np.exp(uniform * np.log(values + 1)) - 1).astype(np.int64)
    power = 1 - skew
    return (((uniform * ((values + 1) ** power - 1)) + 1) ** (1 / power) - 1).astype(np.int64)


def chain(names: str) -> ContinuousQuery:
    """a.k1 = b.k1 AND b.k2 = c.k2 …"""
    columns = {
        name: [f"k{place}" for place in (index, index + 1) if 0 < place < len(names)]
        for index, name in enumerate(names)
    }
    conditions = [f"{names[i - 1]}.k{i} = {names[i]}.k{i}" for i in range(1, len(names))]
    return _query(columns, conditions)


def star(names: str) -> ContinuousQuery:
    """The first stream has a key for each of the others."""
    columns = {names[0]: [f"k{i}" for i in range(1, len(names))]}
    columns |= {name: [f"k{i}"] for i, name in enumerate(names) if i}
    return _query(columns, [f"{names[0]}.k{i} = {names[i]}.k{i}" for i in range(1, len(names))])


def _query(columns: dict[str, list[str]], conditions: list[str]) -> ContinuousQuery:
    streams = [Stream(name, pa.schema([(c, pa.int64()) for c in ("t", *own)]), "t") for name, own in columns.items()]
    windows = ", ".join(f"{name} [RANGE {ROWS * WINDOW_PUSHES}]" for name in columns)
    first = next(iter(columns))
    return ContinuousQuery(f"SELECT {first}.t AS t FROM {windows} WHERE {' AND '.join(conditions)}", streams)


def workloads() -> list[Workload]:
    """All of them, by name."""
    found = [_steps("steps", chain("abcd"), 3), _steps("steps, star of 4", star("abcd"), 3)]
    found += [_steps(f"steps, chain of {count}", chain("abcdefgh"[:count]), count - 1, phases=3) for count in (3, 5, 8)]
    found.append(_drift())
    found.append(_bursts())
    for windows in (1, 2, 5, 10):
        found.append(_turns(f"alternating, every {windows} windows", windows * WINDOW_PUSHES))
    for skew in (0.5, 1.0):
        found.append(_steps(f"steps, Zipf {skew:g}", chain("abc"), 2, phases=2, skew=skew, few=MEDIUM, bars=False))
    found.append(_steps("steps, correlated keys", chain("abcd"), 3, phases=3, correlated=True, bars=False))
    return found


def _steps(
    name: str,
    query: ContinuousQuery,
    keys: int,
    phases: int = 4,
    windows: int = 5,
    skew: float = 0.0,
    correlated: bool = False,
    few: int = FEW,
    bars: bool = True,
) -> Workload:
    """In each phase another join makes many pairs."""
    length = windows * WINDOW_PUSHES

    def values(push: int) -> dict[str, int]:
        many_pairs = push // length % keys + 1
        return {f"k{i}": few if i == many_pairs else MANY for i in range(1, keys + 1)}

    starts = tuple(length * phase for phase in range(phases))
    return Workload(name, query, phases * length, starts, values, skew, correlated, bars)


def _drift() -> Workload:
    """Over ten windows, one join's pairs become as many as another's were, and the other way round."""
    pushes = 20 * WINDOW_PUSHES

    def values(push: int) -> dict[str, int]:
        way = min(1.0, max(0.0, (push / WINDOW_PUSHES - 5) / 10))
        between = [int(FEW * (MANY / FEW) ** share) for share in (way, 1 - way)]
        return {"k1": between[0], "k2": MEDIUM, "k3": between[1]}

    phases = tuple(WINDOW_PUSHES * start for start in (0, 5, 8, 10, 12, 15))
    return Workload("drift", chain("abcd"), pushes, phases, values)


def _bursts() -> Workload:
    """Every fourth window, for a tenth of it, the join that is good otherwise makes many pairs."""
    pushes = 20 * WINDOW_PUSHES

    def values(push: int) -> dict[str, int]:
        is_burst = push % (4 * WINDOW_PUSHES) == 2 * WINDOW_PUSHES
        return {"k1": FEW, "k2": MEDIUM, "k3": FEW if is_burst else MANY}

    return Workload("bursts", chain("abcd"), pushes, (0,), values, bars=False)


def _turns(name: str, period: int) -> Workload:
    """The two ends of a chain take turns in being the bad one."""
    pushes = max(4 * period, 20 * WINDOW_PUSHES)

    def values(push: int) -> dict[str, int]:
        ends = (FEW, MANY) if push // period % 2 == 0 else (MANY, FEW)
        return {"k1": ends[0], "k2": MEDIUM, "k3": ends[1]}

    return Workload(name, chain("abcd"), pushes, tuple(range(0, pushes, period)), values, bars=False)
