"""Cost coefficients of this machine: some joins are run, timed, and their steps counted.

The joins differ in how many tuples enter, how wide these are and how many results they have. Least squares over their
times give the seconds per step; a coefficient that would be negative, because the joins cannot tell it apart, keeps
its share of the default. It takes about a quarter of a second, once per process.
"""

from __future__ import annotations

import time
from functools import cache

import numpy as np
import pyarrow as pa

from midstream.algebra.plan import Plan
from midstream.algebra.stream import Stream
from midstream.engine.state.window_store import Rows, WindowStore
from midstream.execution.plan_box import PlanBox
from midstream.planned_query import PlannedQuery
from midstream.planning.cost.coefficients import CostCoefficients

__all__ = ["calibrate"]

_ROUNDS = 5
_ROWS = 4_000


@cache
def calibrate() -> CostCoefficients:
    """Seconds per step of the cost model on this machine."""
    defaults = CostCoefficients()
    counts, seconds = [], []
    for inputs in (2, 3, 4):
        for keys in (_ROWS * 4, _ROWS // 4):
            steps, took = _timed(inputs, keys)
            counts.append(steps)
            seconds.append(took)
    entering = np.array([count[:2] for count in counts])
    produced = np.array([count[2:] for count in counts])
    # Within tuples in and out the share of a word is taken as by default: the joins vary it too little.
    in_default = entering @ np.array([defaults.tuple_in, defaults.word_in])
    out_default = produced @ np.array([defaults.tuple_out, defaults.word_out])
    fixed = np.full(len(counts), defaults.operator * 3)
    system = np.column_stack([in_default, out_default, fixed])
    factors, *_ = np.linalg.lstsq(system, np.array(seconds), rcond=None)
    overall = float(np.sum(seconds) / system.sum())
    into, out, per_push = (float(factor) if factor > 0.1 * overall else overall for factor in factors)
    return CostCoefficients(
        operator=defaults.operator * per_push,
        tuple_in=defaults.tuple_in * into,
        word_in=defaults.word_in * into,
        tuple_out=defaults.tuple_out * out,
        word_out=defaults.word_out * out,
        candidate=defaults.candidate * overall,
        row=defaults.row * overall,
    )


def _timed(inputs: int, keys: int) -> tuple[list[float], float]:
    """The steps of one push of a left-deep join over one key, and the least time it took."""
    streams = [Stream(f"s{i}", pa.schema({"t": pa.int64(), "k": pa.int64()}), event_time="t") for i in range(inputs)]
    windows = ", ".join(f"s{i} [RANGE 4]" for i in range(inputs))
    conditions = " AND ".join(f"s0.k = s{i}.k" for i in range(1, inputs))
    query = PlannedQuery(f"SELECT s0.t AS t FROM {windows} WHERE {conditions}", streams)
    plan: Plan = query.plan(" ".join(f"s{i}" for i in range(inputs)))
    store = WindowStore([plan])
    box = PlanBox(plan, store)
    generator = np.random.default_rng(inputs)
    best, steps = float("inf"), [0.0] * 4
    for round_number in range(_ROUNDS + 4):
        times = np.full(_ROWS, round_number)
        rows = {
            stream.name: Rows(times, {"t": pa.array(times), "k": pa.array(generator.integers(0, keys, _ROWS))})
            for stream in streams
        }
        arrived = store.arrive(store.of_streams(rows))
        before = [join.counters.rows_out for join in box.joins]
        began = time.perf_counter()
        for _ in box.push(arrived, round_number):
            pass
        took = time.perf_counter() - began
        store.release(box.horizons())
        if round_number >= 4 and took < best:
            best = took
            produced = [join.counters.rows_out - count for join, count in zip(box.joins, before, strict=True)]
            # A left-deep tree: each join gets the tuples of the one below, of so many parts, and a stream's rows.
            entering, parts = [_ROWS, *produced[:-1]], range(1, inputs)
            from_streams = _ROWS * (inputs - 1)
            steps = [
                float(sum(entering) + from_streams),
                float(sum(count * (2 + n) for count, n in zip(entering, parts, strict=True)) + 3 * from_streams),
                float(sum(produced)),
                float(sum(count * (3 + n) for count, n in zip(produced, parts, strict=True))),
            ]
    return steps, best
