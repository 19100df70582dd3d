"""Sweeps: at every instant the totals are those of the rows valid then, and each segment is emitted once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.algebra.window_spec import NEVER
from midstream.engine.operators.sweep import COUNT, EXTREME, FLOAT_SUM, INTEGER_SUM, WIDE_SUM, Sweep, Total
from midstream.engine.state.key_table import KeyTable
from midstream.engine.state.pool import extended

examples = settings(derandomize=True, deadline=None, max_examples=80, database=None)

TOTALS = [
    Total(COUNT),
    Total(INTEGER_SUM),
    Total(WIDE_SUM),
    Total(FLOAT_SUM),
    Total(EXTREME),
    Total(COUNT, distinct=True),
    Total(INTEGER_SUM, distinct=True),
    Total(WIDE_SUM, distinct=True),
    Total(FLOAT_SUM, distinct=True),
]


def named(totals: list[Total]) -> str:
    names = ("count", "integer sum", "wide sum", "float sum", "extreme")
    return "all" if len(totals) > 1 else ("distinct " if totals[0].distinct else "") + names[totals[0].kind]


def argument_type(total: Total) -> pa.DataType:
    return pa.float64() if total.kind == FLOAT_SUM else pa.int64()


@dataclass(frozen=True)
class Row:
    """One row: its argument, as a whole number or a float, is the same for all totals."""

    group: int
    begin: int
    end: int
    integer: int | None
    float: float

    def words(self, total: Total) -> list[int]:
        there = self.integer is not None
        if not there:
            width = {COUNT: 0, WIDE_SUM: 2}.get(total.kind, 1)
            return [0] + [0] * width
        if total.kind == COUNT:
            return [1]
        if total.kind == WIDE_SUM:
            wide = self.integer * 2**60
            low = wide & (2**64 - 1)
            return [1, low - 2**64 if low >= 2**63 else low, wide >> 64]
        if total.kind == FLOAT_SUM:
            return [1, int(np.float64(self.float).view(np.int64))]
        return [1, self.integer]

    def argument(self, total: Total) -> int | float | None:
        if self.integer is None:
            return None
        return self.float if total.kind == FLOAT_SUM else self.integer


def expected_value(total: Total, rows: list[Row]) -> tuple[int, ...]:
    """The total over the rows, and how many arguments it has."""
    arguments = [row.argument(total) for row in rows if row.integer is not None]
    if total.distinct:
        arguments = list(dict.fromkeys(arguments))
    if total.kind == COUNT:
        return (len(arguments),)
    if total.kind == EXTREME:
        return len(arguments), min(arguments, default=0)
    if total.kind == FLOAT_SUM:
        return len(arguments), float(sum(map(Fraction, arguments), Fraction(0)))
    return len(arguments), sum(arguments) * (2**60 if total.kind == WIDE_SUM else 1)


def read_value(total: Total, words: list[int]) -> tuple[int, ...]:
    if total.kind == FLOAT_SUM:
        return words[0], float(np.int64(words[1]).view(np.float64))
    if total.kind in (INTEGER_SUM, WIDE_SUM):
        return words[0], sum(word * 2 ** (32 * i) for i, word in enumerate(words[1:]))
    return tuple(words)


class Reference:
    """A sweep beside a list of all rows it was ever given."""

    def __init__(self, totals: list[Total]) -> None:
        self.totals = totals
        self.groups = KeyTable([pa.int64()])
        self.pairs = {
            i: KeyTable([pa.int64(), argument_type(total)]) for i, total in enumerate(totals) if total.distinct
        }
        self.sweep = Sweep(self.groups, totals)
        self.rows: list[Row] = []
        self.told: list[tuple[int, int, int, int, list[tuple[int, ...]]]] = []
        self.held = 0

    def add(self, rows: list[Row]) -> None:
        slots = self.groups.hold([pa.array([row.group for row in rows], pa.int64())], len(rows))
        parts = []
        for i, total in enumerate(self.totals):
            width = total.input_words - total.distinct
            parts.append(np.array([row.words(total) for row in rows], np.int64).reshape(len(rows), width))
            if total.distinct:
                arguments = pa.array([row.argument(total) for row in rows], argument_type(total))
                lane = list(self.pairs).index(i)
                pairs = self.pairs[i].hold([pa.array(slots), arguments], len(rows)) * len(self.pairs) + lane
                parts.append(pairs[:, None])
        if self.pairs:
            needed = max(table.capacity for table in self.pairs.values()) * len(self.pairs)
            self.sweep.multiplicities = extended(self.sweep.multiplicities, max(needed, len(self.sweep.multiplicities)))
        begins = np.array([row.begin for row in rows], np.int64)
        ends = np.array([row.end for row in rows], np.int64)
        self.sweep.add(slots, begins, ends, np.concatenate(parts, axis=1))
        self.rows += rows
        self.held += len(rows)

    def advance(self, frontier: int) -> None:
        segments, gone = self.sweep.advance(frontier)
        groups = self.groups.gather(0, segments.slots).to_pylist()
        place = 0
        values = []
        for total, width in zip(self.totals, self.sweep.output_widths, strict=True):
            words = segments.words[:, place : place + width].tolist()
            values.append([read_value(total, row) for row in words])
            place += width
        for i, group in enumerate(groups):
            begin, end = int(segments.valid_from[i]), int(segments.valid_to[i])
            assert begin < end
            assert end <= frontier
            self.told.append((group, begin, end, int(segments.rows[i]), [value[i] for value in values]))
        place = 2
        for i, total in enumerate(self.totals):
            place += total.input_words
            if total.distinct:
                self.pairs[i].let_go(gone[:, place - 1] // len(self.pairs))
        self.groups.let_go(gone[:, 0])
        self.held -= len(gone)
        still = [row for row in self.rows if row.end > frontier or row.end == NEVER]
        assert self.held == len(still)
        # Rows that have come for ever wait for nothing.
        assert self.sweep.waiting == sum(row.end < NEVER or row.begin > frontier for row in still)

    def check(self, frontier: int) -> None:
        """What was told, and what recomputation tells, at every instant before the frontier."""
        instants = sorted({row.begin for row in self.rows} | {row.end for row in self.rows} - {NEVER})
        told = {}
        for group, begin, end, count, values in self.told:
            for instant in instants:
                if begin <= instant < end:
                    assert (group, instant) not in told, "told twice"
                    told[group, instant] = (count, values)
        for group in {row.group for row in self.rows}:
            for instant in instants:
                valid = [row for row in self.rows if row.group == group and row.begin <= instant < row.end]
                changes = [t for row in self.rows if row.group == group for t in (row.begin, row.end)]
                next_change = min((t for t in changes if t > instant), default=NEVER)
                if not valid or next_change > frontier:
                    assert (group, instant) not in told
                    continue
                expected = [expected_value(total, valid) for total in self.totals]
                assert told[group, instant] == (len(valid), expected), (group, instant)


integers = st.one_of(
    st.none(), st.integers(-3, 3), st.sampled_from([2**63 - 1, -(2**63), 2**32, -(2**32) - 1, 2**31, -1])
)
floats = st.sampled_from([0.0, 1.0, -1.5, 0.1, 1e300, -1e300, 1e-300, 5e-324])


@st.composite
def histories(draw):
    """Rows whose begin is not before the frontier that holds when they come, and the frontiers after them."""
    steps, frontier = [], 0
    for _ in range(draw(st.integers(1, 6))):
        rows = []
        for _ in range(draw(st.integers(0, 8))):
            begin = frontier + draw(st.integers(0, 8))
            end = draw(st.one_of(st.integers(begin + 1, begin + 10), st.just(NEVER)))
            rows.append(Row(draw(st.integers(0, 2)), begin, end, draw(integers), draw(floats)))
        frontier += draw(st.integers(0, 8))
        steps.append((rows, frontier))
    return steps


@pytest.mark.parametrize("totals", [*([total] for total in TOTALS), TOTALS], ids=named)
def test_totals_are_those_of_the_rows_valid_at_each_instant(totals):
    @settings(examples, max_examples=80 if totals == TOTALS else 15)
    @given(histories())
    def check(steps):
        reference = Reference(totals)
        for rows, frontier in steps:
            reference.add(rows)
            reference.advance(frontier)
            reference.check(frontier)
        reference.advance(NEVER)
        reference.check(NEVER)
        assert len(reference.groups) == len({row.group for row in reference.rows if row.end == NEVER})

    check()


def segments_of(rows: list[Row], totals: list[Total], *frontiers: int):
    reference = Reference(totals)
    reference.add(rows)
    for frontier in frontiers:
        reference.advance(frontier)
    return reference.told


def test_a_segment_is_emitted_when_the_frontier_reaches_its_end():
    rows = [Row(1, 0, 10, 5, 0.0), Row(1, 4, 12, 7, 0.0)]
    assert segments_of(rows, [Total(INTEGER_SUM)], 3) == []
    assert segments_of(rows, [Total(INTEGER_SUM)], 4) == [(1, 0, 4, 1, [(1, 5)])]
    assert segments_of(rows, [Total(INTEGER_SUM)], 9) == [(1, 0, 4, 1, [(1, 5)])]
    assert segments_of(rows, [Total(INTEGER_SUM)], 12) == [
        (1, 0, 4, 1, [(1, 5)]),
        (1, 4, 10, 2, [(2, 12)]),
        (1, 10, 12, 1, [(1, 7)]),
    ]


def test_a_row_that_comes_as_another_goes_leaves_no_gap_and_no_overlap():
    rows = [Row(1, 0, 5, 5, 0.0), Row(1, 5, 9, 7, 0.0)]
    assert segments_of(rows, [Total(EXTREME)], 20) == [(1, 0, 5, 1, [(1, 5)]), (1, 5, 9, 1, [(1, 7)])]


def test_a_group_that_vanishes_and_returns_begins_anew():
    rows = [Row(1, 0, 5, -5, 0.5), Row(1, 8, 9, 7, 0.25)]
    for total, first, second in [(EXTREME, -5, 7), (INTEGER_SUM, -5, 7), (FLOAT_SUM, 0.5, 0.25)]:
        told = segments_of(rows, [Total(total)], 20)
        assert told == [(1, 0, 5, 1, [(1, first)]), (1, 8, 9, 1, [(1, second)])]


def test_rows_that_never_go_are_told_at_the_end_of_time():
    rows = [Row(1, 0, NEVER, 5, 0.0), Row(1, 3, 6, 1, 0.0), Row(2, 4, NEVER, None, 0.0)]
    told = segments_of(rows, [Total(EXTREME)], 10, NEVER)
    assert sorted(told) == [
        (1, 0, 3, 1, [(1, 5)]),
        (1, 3, 6, 2, [(2, 1)]),
        (1, 6, NEVER, 1, [(1, 5)]),
        (2, 4, NEVER, 1, [(0, 0)]),
    ]


def test_many_groups_at_once_keep_their_totals_apart():
    rows = [Row(g, g % 7, g % 7 + 1 + g % 11, g, g / 8) for g in range(500)]
    told = segments_of(rows, TOTALS, 4, 100)
    assert len(told) == 500
    for group, begin, end, count, values in told:
        (row,) = (row for row in rows if row.group == group)
        assert (begin, end, count) == (row.begin, row.end, 1)
        assert values == [expected_value(total, [row]) for total in TOTALS]


def test_float_totals_survive_infinities_and_nan_that_have_gone():
    rows = [Row(1, 0, 20, 1, 2.5), Row(1, 5, 6, 2, math.inf), Row(1, 8, 9, 3, math.nan)]
    told = segments_of(rows, [Total(FLOAT_SUM)], 30)
    assert [values[0][1] for *_, values in told if not math.isnan(values[0][1])] == [2.5, math.inf, 2.5, 2.5]
    assert len(told) == 5


def test_memory_of_heaps_is_given_back_when_rows_go():
    reference = Reference([Total(EXTREME), Total(EXTREME)])
    sizes = []
    for step in range(300):
        reference.add([Row(step % 3, step, step + 5, -step, 0.0)] * 4)
        reference.advance(step)
        sizes.append(reference.sweep.bytes)
    assert max(sizes[100:]) <= max(sizes[:100])
