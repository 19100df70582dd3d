"""Runs that change their plan on the way: what each push gave, took and left behind."""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream import ContinuousQuery
from midstream.algebra.plan import Plan
from midstream.testing import STRATEGIES

__all__ = ["WAYS", "Recorded", "Way", "in_step", "left_deep", "run_and_record"]

Pushed = Mapping[str, pa.Table]


@dataclass(frozen=True)
class Way:
    """A strategy with its options, and how it looks in a drawing."""

    label: str
    strategy: str
    options: Mapping[str, Any] = field(default_factory=dict)
    colour: str = "black"
    dashes: str = "-"


WAYS = {
    "jisc": Way("JISC", *STRATEGIES["jisc"], "#0072B2"),
    "moving-state": Way("moving state", *STRATEGIES["moving-state"], "#009E73"),
    "parallel-track": Way("parallel track", *STRATEGIES["parallel-track"], "#E69F00"),
    "as-published": Way(
        "parallel track, as published", *STRATEGIES["parallel-track as published"], "#D55E00", dashes="--"
    ),
    "coalesce": Way("GenMig, coalesce", *STRATEGIES["coalesce"], "#CC79A7"),
    "reference-point": Way("GenMig, reference point", *STRATEGIES["reference-point"], "#56B4E9", "-."),
    "positive-negative": Way("GenMig, positive–negative", *STRATEGIES["positive-negative"], "#8A6D3B", ":"),
    "shortened": Way("GenMig, shortened", *STRATEGIES["coalesce, shortened"], "#6A3D9A", ":"),
}
"""The ways to change a plan that are compared, by a short name."""


@dataclass
class Recorded:
    """What happened, push by push. ``state_rows`` are the tuples in join states, ``state_bytes`` include windows."""

    seconds: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    state_rows: list[int] = field(default_factory=list)
    state_bytes: list[int] = field(default_factory=list)
    buffered: list[int] = field(default_factory=list)
    migrate_seconds: float = 0.0
    migration: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)

    @property
    def total_seconds(self) -> float:
        """All pushes and the change itself."""
        return self.migrate_seconds + sum(self.seconds)

    @property
    def event_time(self) -> int:
        """How long the migration lasted, in event time; a migration that is not over raises."""
        return int(self.migration["ended_at"] - self.migration["began_at"])


def left_deep(names: Sequence[str]) -> str:
    """The join order that takes one after the other.

    >>> left_deep(["a", "b", "c"])
    '(a b) c'
    """
    order = names[0]
    for name in names[1:]:
        order = f"({order}) {name}" if " " in order else f"{order} {name}"
    return order


def run_and_record(
    query: ContinuousQuery,
    plan: str,
    before: Iterable[Pushed],
    after: Iterable[Pushed] = (),
    *,
    change: tuple[Plan, Way] | None = None,
    watch: bool = False,
    heartbeats: Iterable[int] | None = None,
) -> tuple[Recorded, Recorded]:
    """Push ``before``, change the plan, push ``after``: two records. ``watch`` also looks at the state each time.

    ``heartbeats`` are watermarks, one for each push; without them time is what the slowest stream has reached.
    The collector of garbage rests meanwhile, so that it does not strike at one of the competitors.
    """
    run = query.run_locally(plan)
    records = Recorded(), Recorded()
    watermarks = iter(heartbeats if heartbeats is not None else itertools.repeat(None))
    gc.collect()
    gc.disable()
    try:
        for record, batches in zip(records, (before, after), strict=True):
            if record is records[1] and change is not None:
                start = time.perf_counter()
                run.migrate(change[0], change[1].strategy, **change[1].options)
                record.migrate_seconds = time.perf_counter() - start
            for batch in batches:
                start = time.perf_counter()
                results = run.push(batch, next(watermarks))
                record.seconds.append(time.perf_counter() - start)
                record.rows.append(results.num_rows)
                if watch:
                    metrics = run.metrics()
                    record.state_rows.append(metrics["state_rows"] - metrics["window_rows"])
                    record.state_bytes.append(metrics["state_bytes"])
                    record.buffered.append(metrics["buffered"])
    finally:
        gc.enable()
    records[1].metrics = run.metrics()
    for migration in records[1].metrics["migrations"]:
        records[1].migration = {k: v for k, v in migration.items() if k not in ("old_plan", "new_plan")}
    return records


@dataclass
class InStep:
    """What runs in step took: seconds by way, one row per repetition, one column per push; and their last metrics."""

    seconds: dict[str, npt.NDArray[np.float64]]
    rows: dict[str, list[int]]
    metrics: dict[str, dict[str, Any]]

    def pushes(self, name: str) -> npt.NDArray[np.float64]:
        """Seconds of each push: the median over the repetitions."""
        return np.median(self.seconds[name], axis=0)


def in_step(
    query: ContinuousQuery,
    plan: str,
    batches: Sequence[Pushed],
    changes: Mapping[int, Plan],
    ways: Mapping[str, Way | None],
    repeats: int,
    plans: Mapping[str, Plan] | None = None,
    own_changes: Mapping[str, Mapping[int, Plan]] | None = None,
) -> InStep:
    """Runs that differ in how they change their plan, before the pushes numbered; that is part of those pushes' time.

    The way None does not change it. ``plans`` are those of runs that have another one from the start, and
    ``own_changes`` those that they change to. All in processor time.

    Every push is given to all of them before the next one, in random order: what disturbs the machine for longer than
    a push disturbs all alike, and none always finds the caches as the same other has left them. A way given under two
    names shows how far equal work differs.
    """
    seconds: dict[str, list[list[float]]] = {name: [] for name in ways}
    rows: dict[str, list[int]] = {}
    metrics: dict[str, dict[str, Any]] = {}
    names = list(ways)
    random = np.random.default_rng(0)
    for _ in range(repeats):
        runs = {name: query.run_locally((plans or {}).get(name, plan)) for name in names}
        rows = {name: [] for name in names}
        for each in seconds.values():
            each.append([])
        gc.collect()
        gc.disable()
        try:
            for number, batch in enumerate(batches):
                for name in random.permutation(names).tolist():
                    start = time.process_time()
                    way, to = ways[name], (own_changes or {}).get(name, changes)
                    if way is not None and number in to:
                        runs[name].migrate(to[number], way.strategy, **way.options)
                    results = runs[name].push(batch)
                    seconds[name][-1].append(time.process_time() - start)
                    rows[name].append(results.num_rows)
        finally:
            gc.enable()
        metrics = {name: run.metrics() for name, run in runs.items()}
    return InStep({name: np.array(each) for name, each in seconds.items()}, rows, metrics)
