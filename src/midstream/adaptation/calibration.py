"""Cost coefficients of this machine: some joins are run, timed, and their steps counted.

The joins differ in how many tuples enter, how wide these are and how many results they have; some are multi-way joins,
whose lookups are apart from inserts. Least squares over their
times give the seconds per step; a coefficient that would be negative, because the joins cannot tell it apart, keeps
its share of the default. It takes a second or two, once per process.
"""

from __future__ import annotations

import time
from copy import copy
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.algebra.plan import Plan
from midstream.algebra.stream import Stream
from midstream.engine.operators.join import JoinOperator
from midstream.engine.operators.multi_join import MultiJoinOperator
from midstream.engine.state.window_store import Rows, WindowStore
from midstream.execution.plan_box import PlanBox
from midstream.planned_query import PlannedQuery
from midstream.planning.cost.coefficients import CostCoefficients

__all__ = ["calibrate"]

_ROUNDS = 8
_CASES = (
    # inputs, rows of each in a push, different keys, whether it is a multi-way join
    (2, 200, 4_000, False),
    (3, 200, 4_000, False),
    (2, 10_000, 1_000_000, False),
    (3, 10_000, 1_000_000, False),
    (2, 4_000, 1_000, False),
    (3, 2_000, 800, False),
    (3, 10_000, 1_000_000, True),
    (3, 2_000, 800, True),
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
            steps[:, 5:7] @ np.array([defaults.probe, defaults.word_in / 2]),
        ]
    )
    # Each case counts for its share: the short ones say what an operator costs, the long ones what a tuple does.
    is_tree = np.array([not case[3] for case in _CASES])
    weighted = expected / seconds[:, None]
    factors, *_ = np.linalg.lstsq(weighted[is_tree, :3], np.ones(is_tree.sum()), rcond=None)
    overall = float(np.median(seconds[is_tree] / expected[is_tree].sum(axis=1)))
    operator, into, out = (float(factor) if factor > 0.2 * overall else overall for factor in factors)
    # What multi-way joins take beyond that are their lookups; these can be told apart less well.
    left = 1 - weighted[~is_tree, :3] @ np.array([operator, into, out])
    probe = float(np.clip(np.median(left / weighted[~is_tree, 3]), into / 2, 2 * into))
    return CostCoefficients(
        operator=defaults.operator * operator,
        tuple_in=defaults.tuple_in * into,
        word_in=defaults.word_in * into,
        tuple_out=defaults.tuple_out * out,
        word_out=defaults.word_out * out,
        probe=defaults.probe * probe,
        candidate=defaults.candidate * overall,
        row=defaults.row * overall,
        replacement=_replacing(),
    )


def _replacing() -> float:
    """What making an operator of a plan takes, twice over: its states are matched, too."""
    plan = _plan(4, False)[1]
    best = float("inf")
    for _ in range(_ROUNDS):
        began = time.process_time()
        PlanBox(plan, WindowStore([plan]))
        best = min(best, time.process_time() - began)
    return 2 * best / 3


def _plan(inputs: int, is_multi_join: bool) -> tuple[list[Stream], Plan]:
    """A left-deep or multi-way join of so many streams over one key."""
    streams = [Stream(f"s{i}", pa.schema({"t": pa.int64(), "k": pa.int64()}), event_time="t") for i in range(inputs)]
    windows = ", ".join(f"s{i} [RANGE {_ROUNDS}]" for i in range(inputs))
    conditions = " AND ".join(f"s0.k = s{i}.k" for i in range(1, inputs))
    query = PlannedQuery(f"SELECT s0.t AS t FROM {windows} WHERE {conditions}", streams)
    order = " ".join(f"s{i}" for i in range(inputs))
    return streams, query.plan(f"{{{order}}}" if is_multi_join else order)


def _timed(inputs: int, rows: int, keys: int, is_multi_join: bool) -> tuple[npt.NDArray[np.float64], float]:
    """The steps of some pushes of a join over one key, and the processor time they took.

    The steps: joins, tuples that enter them, words of these, tuples that they produce, words of these, tuples that are
    looked up by a multi-way join, words of these. Of many pushes, because in some of them much more of a join's state
    is merged than in others.
    """
    streams, plan = _plan(inputs, is_multi_join)
    store = WindowStore([plan])
    box = PlanBox(plan, store)
    generator = np.random.default_rng(inputs)
    total, steps = 0.0, np.zeros(7)
    for round_number in range(2 * _ROUNDS):
        times = np.full(rows, round_number)
        made = {
            stream.name: Rows(times, {"t": pa.array(times), "k": pa.array(generator.integers(0, keys, rows))})
            for stream in streams
        }
        arrived = store.arrive(store.of_streams(made))
        joins = [operator for operator in box.operators if isinstance(operator, JoinOperator | MultiJoinOperator)]
        before = [copy(join.counters) for join in joins]
        began = time.process_time()
        for _ in box.push(arrived, round_number):
            pass
        took = time.process_time() - began
        store.release(box.horizons())
        if round_number >= _ROUNDS:
            total += took
            done = list(zip((join.counters for join in joins), before, strict=True))
            produced = [now.rows_out - then.rows_out for now, then in done]
            if is_multi_join:
                ((now, then),) = done
                steps += _multi_join_steps(inputs, rows, now.probes - then.probes, *produced)
            else:
                steps += _tree_steps(inputs, rows, produced)
    return steps, total


def _tree_steps(inputs: int, rows: int, produced: list[int]) -> list[float]:
    # Each join gets the tuples of the one below, made of so many parts, and a stream's rows.
    entering, parts = [rows, *produced[:-1]], range(1, inputs)
    from_streams = rows * (inputs - 1)
    return [
        len(produced),
        sum(entering) + from_streams,
        sum(count * (2 + n) for count, n in zip(entering, parts, strict=True)) + 3 * from_streams,
        sum(produced),
        sum(count * (3 + n) for count, n in zip(produced, parts, strict=True)),
        0,
        0,
    ]


def _multi_join_steps(inputs: int, rows: int, probes: int, produced: int) -> list[float]:
    """On one key, so that each input has one index. Of three inputs, tuples on the way are pairs."""
    assert inputs == 3
    entered = inputs * rows
    pairs = probes - entered
    # An index and a lookup are half an operator each.
    operators = (inputs + inputs * (inputs - 1)) / 2
    found = pairs + produced
    words_found, words_looked_up = 4 * pairs + 5 * produced, 3 * entered + 4 * pairs
    return [operators, entered, 3 * entered, found, words_found, probes, words_looked_up]
