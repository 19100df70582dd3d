"""Cost coefficients of this machine: some joins are run, timed, and their steps counted.

The joins differ in how many tuples enter, how wide these are and how many results they have. Least squares over their
times give the seconds per step; a coefficient that would be negative, because the joins cannot tell it apart, keeps
its share of the default. It takes about a second, once per process.
"""

from __future__ import annotations

import time
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.algebra.plan import Plan
from midstream.algebra.stream import Stream
from midstream.engine.state.window_store import Rows, WindowStore
from midstream.execution.plan_box import PlanBox
from midstream.planned_query import PlannedQuery
from midstream.planning.cost.coefficients import CostCoefficients

__all__ = ["calibrate"]

_ROUNDS = 8
_CASES = (
    # inputs, rows of each in a push, different keys
    (2, 200, 4_000),
    (3, 200, 4_000),
    (2, 10_000, 1_000_000),
    (3, 10_000, 1_000_000),
    (2, 4_000, 1_000),
    (3, 2_000, 800),
)


@cache
def calibrate() -> CostCoefficients:
    """Seconds per step of the cost model on this machine."""
    defaults = CostCoefficients()
    timed = [_timed(*case) for case in _CASES]
    steps, seconds = np.array([steps for steps, _ in timed]), np.array([took for _, took in timed])
    # The share of a word in the cost of a tuple is taken as by default: the joins vary it too little to tell.
    expected = np.column_stack(
        [
            steps[:, 0] * defaults.operator,
            steps[:, 1:3] @ np.array([defaults.tuple_in, defaults.word_in]),
            steps[:, 3:5] @ np.array([defaults.tuple_out, defaults.word_out]),
        ]
    )
    # Each case counts for its share: the short ones say what an operator costs, the long ones what a tuple does.
    factors, *_ = np.linalg.lstsq(expected / seconds[:, None], np.ones(len(seconds)), rcond=None)
    overall = float(np.median(seconds / expected.sum(axis=1)))
    operator, into, out = (float(factor) if factor > 0.2 * overall else overall for factor in factors)
    return CostCoefficients(
        operator=defaults.operator * operator,
        tuple_in=defaults.tuple_in * into,
        word_in=defaults.word_in * into,
        tuple_out=defaults.tuple_out * out,
        word_out=defaults.word_out * out,
        candidate=defaults.candidate * overall,
        row=defaults.row * overall,
        replacement=_replacing(),
    )


def _replacing() -> float:
    """What making an operator of a plan takes, twice over: its states are matched, too."""
    plan = _plan(4)[1]
    best = float("inf")
    for _ in range(_ROUNDS):
        began = time.process_time()
        PlanBox(plan, WindowStore([plan]))
        best = min(best, time.process_time() - began)
    return 2 * best / 3


def _plan(inputs: int) -> tuple[list[Stream], Plan]:
    """A left-deep join of so many streams over one key."""
    streams = [Stream(f"s{i}", pa.schema({"t": pa.int64(), "k": pa.int64()}), event_time="t") for i in range(inputs)]
    windows = ", ".join(f"s{i} [RANGE {_ROUNDS}]" for i in range(inputs))
    conditions = " AND ".join(f"s0.k = s{i}.k" for i in range(1, inputs))
    query = PlannedQuery(f"SELECT s0.t AS t FROM {windows} WHERE {conditions}", streams)
    return streams, query.plan(" ".join(f"s{i}" for i in range(inputs)))


def _timed(inputs: int, rows: int, keys: int) -> tuple[npt.NDArray[np.float64], float]:
    """The steps of some pushes of a left-deep join over one key, and the processor time they took.

    The steps: joins, tuples that enter them, words of these, tuples that they produce, words of these. Of many pushes,
    because in some of them much more of a join's state is merged than in others.
    """
    streams, plan = _plan(inputs)
    store = WindowStore([plan])
    box = PlanBox(plan, store)
    generator = np.random.default_rng(inputs)
    total, steps = 0.0, np.zeros(5)
    for round_number in range(2 * _ROUNDS):
        times = np.full(rows, round_number)
        made = {
            stream.name: Rows(times, {"t": pa.array(times), "k": pa.array(generator.integers(0, keys, rows))})
            for stream in streams
        }
        arrived = store.arrive(store.of_streams(made))
        before = [join.counters.rows_out for join in box.joins]
        began = time.process_time()
        for _ in box.push(arrived, round_number):
            pass
        took = time.process_time() - began
        store.release(box.horizons())
        if round_number >= _ROUNDS:
            total += took
            produced = [join.counters.rows_out - count for join, count in zip(box.joins, before, strict=True)]
            # Each join gets the tuples of the one below, made of so many parts, and a stream's rows.
            entering, parts = [rows, *produced[:-1]], range(1, inputs)
            from_streams = rows * (inputs - 1)
            steps += [
                len(box.joins),
                sum(entering) + from_streams,
                sum(count * (2 + n) for count, n in zip(entering, parts, strict=True)) + 3 * from_streams,
                sum(produced),
                sum(count * (3 + n) for count, n in zip(produced, parts, strict=True)),
            ]
    return steps, total
