"""Difference: at every instant what the right side does not take away from the left."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream import ContinuousQuery, Stream

examples = settings(derandomize=True, deadline=None, max_examples=80, database=None)

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.string()})
STREAMS = [Stream(name, SCHEMA, "ts") for name in "ab"]
TEXT = "SELECT x FROM a [RANGE 5] EXCEPT {all} SELECT x FROM b [RANGE 2]"
WIDTHS = {"a": 5, "b": 2}
Rows = list[tuple[int, str | None]]


def table(rows: Rows) -> pa.Table:
    return pa.table({"ts": [time for time, _ in rows], "x": [value for _, value in rows]}, schema=SCHEMA)


def results_of(text: str, pushes: list[dict[str, Rows]]) -> list[tuple[Any, int, int | None]]:
    run = ContinuousQuery(text, STREAMS).run_locally()
    tables = [run.push({name: table(rows) for name, rows in push.items()}) for push in pushes]
    results = pa.concat_tables([*tables, run.finish()])
    return [(row["x"], row["valid_from"], row["valid_to"]) for row in results.to_pylist()]


def timeline(text: str, a: Rows, b: Rows) -> list[tuple[Any, int, int | None]]:
    return sorted(results_of(text, [{"a": a, "b": b}]), key=repr)


def test_except_takes_a_row_away_while_the_right_side_has_it():
    #    a    1 ├───────────┤ 7
    #    b       3 ├────┤ 6
    #    out  1 ├──┤    ├─┤ 7
    assert timeline(TEXT.format(all=""), [(1, "k")], [(3, "k")]) == [("k", 1, 3), ("k", 6, 7)]
    assert timeline(TEXT.format(all=""), [(1, "k")], [(3, "other")]) == [("k", 1, 7)]


def test_except_gives_one_copy_and_except_all_the_copies_that_are_left():
    #    a    1 ├───────────┤ 7
    #          2 ├───────────┤ 8
    #    b       3 ├────┤ 6
    a, b = [(1, "k"), (2, "k")], [(3, "k")]
    assert timeline(TEXT.format(all=""), a, b) == [("k", 1, 2), ("k", 2, 3), ("k", 6, 7), ("k", 7, 8)]
    assert timeline(TEXT.format(all="ALL"), a, b) == [
        ("k", 1, 2),
        ("k", 2, 3),
        ("k", 2, 3),
        ("k", 3, 6),
        ("k", 6, 7),
        ("k", 6, 7),
        ("k", 7, 8),
    ]


def test_what_the_right_side_has_too_many_of_is_not_owed():
    a, b = [(1, "k"), (4, "k")], [(1, "k"), (1, "k"), (1, "k")]
    assert timeline(TEXT.format(all="ALL"), a, b) == [("k", 4, 7), ("k", 4, 7), ("k", 7, 10)]


def test_nulls_are_equal():
    assert timeline(TEXT.format(all=""), [(1, None)], [(3, None)]) == [(None, 1, 3), (None, 6, 7)]
    assert timeline(TEXT.format(all="ALL"), [(1, None)], [(3, "k")]) == [(None, 1, 7)]


def test_results_wait_until_no_row_can_change_them():
    run = ContinuousQuery(TEXT.format(all=""), STREAMS).run_locally()
    assert run.push({"a": table([(1, "k")]), "b": table([(1, "z")])}).num_rows == 0
    assert run.push({"a": table([(20, "z")])}).num_rows == 0  # the right side may still take it away
    results = run.push({"b": table([(3, "k"), (20, "z")])}).to_pylist()
    assert [(row["x"], row["valid_from"], row["valid_to"]) for row in results] == [("k", 1, 3), ("k", 6, 7)]


def test_rows_that_never_end_are_told_at_the_end():
    text = "SELECT x FROM a [RANGE UNBOUNDED] EXCEPT SELECT x FROM b [RANGE 2]"
    assert timeline(text, [(1, "k")], [(3, "k")]) == [("k", 1, 3), ("k", 6, None)]
    text = "SELECT x FROM a [RANGE 5] EXCEPT SELECT x FROM b [RANGE UNBOUNDED]"
    assert timeline(text, [(1, "k"), (9, "k")], [(3, "k")]) == [("k", 1, 3)]


def snapshot(rows: dict[str, Rows], instant: int, keeps_all: bool) -> Counter[Any]:
    left, right = (
        Counter(value for time, value in rows[side] if time <= instant <= time + WIDTHS[side]) for side in "ab"
    )
    return left - right if keeps_all else Counter(set(left) - set(right))


values = st.sampled_from(["k", "l", None])


@st.composite
def pushes(draw):
    """In each push, rows of both streams; later pushes are never late."""
    steps, now = [], 0
    for _ in range(draw(st.integers(1, 5))):
        times = st.integers(now, now + 6)
        steps.append({side: sorted(draw(st.lists(st.tuples(times, values), max_size=6)), key=repr) for side in "ab"})
        now += 6
    return steps


@pytest.mark.parametrize("every", ["", "ALL"])
@examples
@given(pushes())
def test_every_instant_is_the_difference_of_both_sides_then(every, steps):
    results = results_of(TEXT.format(all=every), steps)
    rows = {side: [row for step in steps for row in step[side]] for side in "ab"}
    for instant in range(-1, 45):
        found = Counter(x for x, begin, end in results if begin <= instant < end)
        assert found == snapshot(rows, instant, every == "ALL"), instant


@examples
@given(pushes())
def test_batches_do_not_matter(steps):
    whole = {side: [row for step in steps for row in step[side]] for side in "ab"}
    for every in ("", "ALL"):
        apart, together = results_of(TEXT.format(all=every), steps), results_of(TEXT.format(all=every), [whole])
        assert Counter(apart) == Counter(together)


def test_nothing_is_held_after_the_windows_have_passed():
    run = ContinuousQuery(TEXT.format(all="ALL"), STREAMS).run_locally()
    for now in range(0, 2000, 10):
        run.push({"a": table([(now, f"a{now}"), (now, "k")]), "b": table([(now, f"b{now}"), (now, "k")])})
        metrics = run.metrics()
        assert metrics["state_rows"] - metrics["window_rows"] <= 4
        assert metrics["window_rows"] <= 8
