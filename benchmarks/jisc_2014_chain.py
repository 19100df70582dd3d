"""The query and the data of the figures of Aly et al. 2014 (JISC).

All streams are joined on one attribute by a left-deep plan. Keys are uniform: each stream runs through a permutation of
as many keys as its window holds rows, again and again, so that every state holds about as many tuples as a window, at
any depth (independent draws would make the deep states depend on a few lucky keys). Best case: the last two streams
change places, and only the state just below the root is incomplete. Worst case: the last stream becomes the second,
and all states of joins are.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.migrating import left_deep
from midstream import ContinuousQuery, Stream

__all__ = ["CASES", "NOISE", "Chain", "medians"]

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64()})
CASES = {"best": "only the state below the root is incomplete", "worst": "all states are incomplete"}
NOISE = "noise: jisc twice differs by"


@dataclass(frozen=True)
class Chain:
    """A join of ``joins`` + 1 streams, ``window`` rows in each window, pushed ``batch`` rows per stream at a time."""

    joins: int
    window: int
    batch: int
    by_range: bool = False
    """Joined by |Δk| < 2 instead of equality."""

    @property
    def names(self) -> list[str]:
        return [f"s{number}" for number in range(self.joins + 1)]

    def query(self) -> ContinuousQuery:
        """All streams joined: a row in, a row out."""
        names = self.names
        windows = ", ".join(f"{name} [RANGE {self.window - 1}]" for name in names)
        if self.by_range:
            joined = " AND ".join(f"ABS(s0.k - {name}.k) < 2" for name in names[1:])
        else:
            joined = " AND ".join(f"s0.k = {name}.k" for name in names[1:])
        streams = [Stream(name, SCHEMA, event_time="ts") for name in names]
        return ContinuousQuery(f"SELECT s0.k, s0.ts, {names[-1]}.ts AS last FROM {windows} WHERE {joined}", streams)

    @property
    def plan(self) -> str:
        return left_deep(self.names)

    def new_order(self, case: str) -> list[str]:
        """The streams in the order of the plan to change to, in the best or the worst case."""
        first, *middle, last = self.names
        return [first, *middle[:-1], last, *middle[-1:]] if case == "best" else [first, last, *middle]

    def new_plan(self, case: str) -> str:
        """The plan to change to."""
        return left_deep(self.new_order(case))

    def batches(self, filling: int, count: int) -> list[dict[str, pa.Table]]:
        """One push that fills the windows (``filling`` rows per stream), then ``count`` ordinary ones."""
        random = np.random.default_rng(0)
        cuts = [0, *range(filling, filling + count * self.batch + 1, self.batch)]
        batches: list[dict[str, pa.Table]] = [{} for _ in cuts[1:]]
        times = np.arange(cuts[-1])
        for name in self.names:
            # Neighbouring keys are 3 apart, so that |Δk| < 2 finds one partner, as equality does.
            keys = 3 * random.permutation(self.window)[times % self.window]
            for batch, start, end in zip(batches, cuts[:-1], cuts[1:], strict=True):
                batch[name] = pa.table({"ts": times[start:end], "k": keys[start:end]})
        return batches


def medians(samples: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure over repetitions."""
    return {name: statistics.median(sample[name] for sample in samples) for name in samples[0]}
