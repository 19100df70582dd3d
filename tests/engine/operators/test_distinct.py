"""Distinct: at every instant each different row once, told as soon as it is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream import ContinuousQuery, Stream
from midstream.algebra.plan import Field
from midstream.algebra.window_spec import NEVER
from midstream.engine.batch import Batch, Layout
from midstream.engine.kernels import Ints
from midstream.engine.operators.distinct import DistinctOperator
from midstream.engine.operators.operator import Operator

examples = settings(derandomize=True, deadline=None, max_examples=120, database=None)

FIELDS = (Field("", "x", pa.string()), Field("", "y", pa.float64()))
Told = list[tuple[Any, int, int]]


class Source(Operator):
    """An input whose frontier the test moves by hand."""

    def __init__(self) -> None:
        super().__init__("source", Layout(FIELDS), ())

    def push(self, *inputs: Any) -> Any:
        return iter(())


class Distinct:
    """The operator, driven with (key, begin, end)."""

    def __init__(self) -> None:
        self.source = Source()
        self.operator = DistinctOperator("Distinct", self.source)

    def push(self, rows: list[tuple[Any, int, int]], frontier: int | None = None) -> Told:
        begins, ends = (ints(row[i] for row in rows) for i in (1, 2))
        columns = [pa.array([row[0] for row in rows], pa.string()), pa.array([0.5] * len(rows), pa.float64())]
        batch = Batch.of_arrays(self.source.layout, begins, ends, columns)
        told = []
        for out in self.operator.push([batch]):
            keys, halves = (column.to_pylist() for column in out.columns())
            assert set(halves) == {0.5}
            told += list(zip(keys, out.valid_from.tolist(), out.valid_to.tolist(), strict=True))
        if frontier is not None:
            self.source.frontier = frontier
            self.operator.expire(frontier)
        return told


def ints(values: Any) -> Ints:
    return np.array(list(values), np.int64)


def check_against(rows: list[tuple[Any, int, int]], told: Told) -> None:
    """At every instant each key that some row has then, exactly once."""
    instants = {t for _, begin, end in rows for t in (begin, end, begin - 1)} - {NEVER}
    for instant in instants:
        expected = {key for key, begin, end in rows if begin <= instant < end}
        found = [key for key, begin, end in told if begin <= instant < end]
        assert sorted(found, key=repr) == sorted(expected, key=repr), instant
    assert all(begin < end for _, begin, end in told)


@pytest.mark.parametrize(
    ("told_before", "newcomer", "expected"),
    [
        #    told      ├────┤      ├──────┤
        #    newcomer     ├───────────────────┤
        ([(0, 5), (10, 17)], (3, 20), [(5, 10), (17, 20)]),
        ([(0, 5), (10, 17)], (2, 4), []),
        ([(0, 5), (10, 17)], (0, 5), []),
        ([(0, 5), (10, 17)], (5, 10), [(5, 10)]),
        ([(0, 5), (10, 17)], (6, 9), [(6, 9)]),
        ([(0, 5), (10, 17)], (4, 10), [(5, 10)]),
        ([(0, 5), (10, 17)], (5, 11), [(5, 10)]),
        ([(0, 5), (10, 17)], (-3, 30), [(-3, 0), (5, 10), (17, 30)]),
        ([(10, 17), (0, 5)], (17, NEVER), [(17, NEVER)]),
        ([(0, NEVER)], (5, NEVER), []),
        ([(5, NEVER)], (0, NEVER), [(0, 5)]),
    ],
)
def test_a_newcomer_tells_the_gaps(told_before, newcomer, expected):
    distinct = Distinct()
    told = distinct.push([("k", *interval) for interval in told_before])
    assert sorted(told) == sorted(("k", *interval) for interval in told_before)
    assert distinct.push([("k", *newcomer)]) == [("k", *interval) for interval in expected]
    assert distinct.push([("k", *newcomer)]) == []
    assert distinct.push([("other", *newcomer)]) == [("other", *newcomer)]


@st.composite
def histories(draw):
    """Batches of rows that begin at or after the frontier in force, and the frontiers after them."""
    steps, frontier = [], 0
    keys = st.sampled_from(["a", "b", None, ""])
    for _ in range(draw(st.integers(1, 7))):
        rows = []
        for _ in range(draw(st.integers(0, 12))):
            begin = frontier + draw(st.integers(0, 15))
            rows.append((draw(keys), begin, draw(st.one_of(st.integers(begin + 1, begin + 12), st.just(NEVER)))))
        frontier += draw(st.integers(0, 12))
        steps.append((rows, frontier))
    return steps


@examples
@given(histories())
def test_at_every_instant_each_different_row_is_told_once(steps):
    distinct = Distinct()
    rows: Told = []
    told: Told = []
    for new, frontier in steps:
        told += distinct.push(new, frontier)
        rows += new
        check_against(rows, told)
    distinct.push([], NEVER)
    kept = {key for key, _, end in rows if end == NEVER}
    assert len(distinct.operator._keys) == len(kept)


def test_keys_whose_time_has_passed_are_forgotten():
    distinct = Distinct()
    sizes = []
    for now in range(300):
        rows = [(f"{now:04}-{i}", now, now + 3) for i in range(5)]
        assert len(distinct.push([*rows, *rows], now)) == 5
        sizes.append(distinct.operator.state_bytes)
        assert distinct.operator.state_rows <= 5 * 5
    assert max(sizes[100:]) <= max(sizes[:100])
    distinct.push([], 1000)
    assert distinct.operator.state_rows == 0


def test_a_key_told_in_many_pieces_keeps_few_of_them():
    """A key that never rests: what ended by the frontier is dropped on the way."""
    distinct = Distinct()
    for now in range(0, 2000, 4):
        assert distinct.push([("k", now, now + 2), ("k", now + 3, now + 30)], now) != []
        assert distinct.operator.state_rows <= 3


def test_nan_is_one_row_and_the_zeros_are_one_row_and_null_is_a_row():
    stream = Stream("s", pa.schema({"ts": pa.int64(), "x": pa.float64()}), "ts")
    run = ContinuousQuery("SELECT DISTINCT x FROM s [RANGE 10]", [stream]).run_locally()
    values = [math.nan, -math.nan, 0.0, -0.0, None, None, 1.0]
    results = run.push({"s": pa.table({"ts": [1] * len(values), "x": pa.array(values, pa.float64())})})
    assert sorted(map(str, results["x"].to_pylist())) == ["0.0", "1.0", "None", "nan"]
