"""When joins are measured: as often as the budget allows, and at once when pushes become expensive."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from midstream import ContinuousQuery, Stream
from midstream.adaptation.measuring import Measuring
from midstream.adaptation.policy import Adaptation
from midstream.planning.cost.coefficients import CostCoefficients

ROWS, WINDOW = 1_000, 10
FEW, MANY = 50, 20_000
QUERY = ContinuousQuery(
    f"SELECT a.t AS t FROM a [RANGE {ROWS * WINDOW}], b [RANGE {ROWS * WINDOW}], c [RANGE {ROWS * WINDOW}]"
    " WHERE a.x = b.x AND b.y = c.y",
    [
        Stream(name, pa.schema([(column, pa.int64()) for column in ("t", *columns)]), "t")
        for name, columns in {"a": "x", "b": "xy", "c": "y"}.items()
    ],
)


def pushed(pushes: int, keys: Callable[[int], int], policy: Adaptation) -> Iterator[tuple[int, bool, Measuring]]:
    """Pushes in which x has so many values: the number of each, and whether joins were measured after it."""
    run = QUERY.run_locally("(a b) c")
    measuring = Measuring(policy, CostCoefficients(), run._cell.executor)
    generator = np.random.default_rng(3)
    for push in range(pushes):
        times = np.arange(push * ROWS, (push + 1) * ROWS)
        values = {"x": keys(push), "y": MANY}
        tables = {
            s.name: pa.table({"t": times} | {c: generator.integers(0, values[c], ROWS) for c in s.schema.names[1:]})
            for s in QUERY.streams
        }
        run.push(tables)
        yield push, measuring.after_push(run._cell.executor, 3 * ROWS) is not None, measuring


def measured_after_a_step(budget: float) -> list[int]:
    """The pushes after which joins were measured, of ten with a join that has become expensive."""
    found = []
    for push, is_measured, measuring in pushed(
        40, lambda push: MANY if push < 30 else FEW, Adaptation(measure_share=0)
    ):
        if push == 29:
            measuring._budget = budget * measuring.seconds
        elif push >= 30 and is_measured:
            found.append(push)
    return found


def test_a_join_that_becomes_expensive_is_measured_at_once():
    """On credit: more has been spent than earned."""
    after = measured_after_a_step(budget=-3.0)
    assert after and after[0] <= 32


def test_credit_is_limited():
    assert measured_after_a_step(budget=-1_000.0) == []


def test_measurements_take_their_share():
    measurements, seconds, total = 0, 0.0, 0.0
    for push, is_measured, measuring in pushed(150, lambda _: MANY, Adaptation(measure_share=0.1)):
        if push >= 2 * WINDOW:
            measurements += is_measured
            seconds += is_measured * measuring.seconds
            total += measuring.push_seconds(measuring.statistics.latest_push())
    assert measurements >= 1
    # One may have been due already.
    assert seconds - measuring.seconds <= 0.1 * total


def test_streams_that_change_all_the_time_do_not_cost_more_than_the_credit_and_half_of_the_excess():
    """Every second push is so expensive that a measurement on credit seems worthwhile, but does not earn its cost."""
    spent, excess, least = 0.0, 0.0, math.inf
    for _, is_measured, measuring in pushed(100, lambda p: 400 if p % 2 else MANY, Adaptation(measure_share=0.0)):
        seconds = measuring.push_seconds(measuring.statistics.latest_push())
        least = min(least, seconds)
        spent += is_measured * measuring.seconds
        excess += seconds - least
    # Two measurements are given at the start, four are lent, and the last one goes beyond that.
    assert spent <= excess / 2 + 7 * measuring.seconds


def test_pushes_without_rows_are_not_measured():
    run = QUERY.run_locally("(a b) c")
    measuring = Measuring(Adaptation(least_rows=1), CostCoefficients(), run._cell.executor)
    for _ in range(3):
        run.push({})
        assert measuring.after_push(run._cell.executor, 0) is None
