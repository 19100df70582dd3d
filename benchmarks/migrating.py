"""Runs that change their plan on the way: what each push gave, took and left behind."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from midstream import ContinuousQuery
from midstream.algebra.plan import Plan

__all__ = ["WAYS", "Recorded", "Way", "left_deep", "run_and_record"]

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
    "jisc": Way("JISC", "jisc", colour="#0072B2"),
    "moving-state": Way("moving state", "moving-state", colour="#009E73"),
    "parallel-track": Way("parallel track", "parallel-track", colour="#E69F00"),
    "as-published": Way(
        "parallel track, as published", "parallel-track", {"as_published": True}, colour="#D55E00", dashes="--"
    ),
    "coalesce": Way("GenMig, coalesce", "gen-mig", colour="#CC79A7"),
    "reference-point": Way("GenMig, reference point", "gen-mig", {"variant": "reference-point"}, "#56B4E9", "-."),
    "positive-negative": Way("GenMig, positive–negative", "gen-mig", {"variant": "positive-negative"}, "#8A6D3B", ":"),
    "shortened": Way("GenMig, shortened", "gen-mig", {"shortened": True}, "#6A3D9A", ":"),
}
"""The ways to change a plan that are compared, by a short name."""


@dataclass
class Recorded:
    """What happened, push by push. ``state_rows`` are the tuples in join states, ``state_bytes`` include windows."""

    seconds: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    state_rows: list[int] = field(default_factory=list)
    state_bytes: list[int] = field(default_factory=list)
    held_back: list[int] = field(default_factory=list)
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
) -> tuple[Recorded, Recorded]:
    """Push ``before``, change the plan, push ``after``: two records. ``watch`` also looks at the state each time.

    The collector of garbage rests meanwhile, so that it does not strike at one of the competitors.
    """
    run = query.run_locally(plan)
    records = Recorded(), Recorded()
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
                results = run.push(batch)
                record.seconds.append(time.perf_counter() - start)
                record.rows.append(results.num_rows)
                if watch:
                    metrics = run.metrics()
                    record.state_rows.append(metrics["state_rows"] - metrics["window_rows"])
                    record.state_bytes.append(metrics["state_bytes"])
                    record.held_back.append(metrics["held_back"])
    finally:
        gc.enable()
    records[1].metrics = run.metrics()
    for migration in records[1].metrics["migrations"]:
        records[1].migration = {k: v for k, v in migration.items() if k not in ("old_plan", "new_plan")}
    return records
