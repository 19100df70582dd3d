"""The published rule of just-in-time processing, as a reference: it loses results where both inputs of a join wait."""

from __future__ import annotations

import random

import pytest

from benchmarks.published_just_in_time import PublishedRun, Row

CLIQUE = {name: ["".join(sorted((name, other))) for other in "abcd" if other != name] for name in "abcd"}
BUSHY = (("a", "b"), ("c", "d"))
LEFT_DEEP = ((("a", "b"), "c"), "d")


def rows_of(seed: int, count: int = 160, keys: int = 3) -> list[Row]:
    chance = random.Random(seed)
    made = []
    for time in range(count):
        name = chance.choice("abcd")
        made.append(Row(name, time, {column: chance.randrange(keys) for column in CLIQUE[name]}))
    return made


def played(order, rows: list[Row], suspends: bool) -> PublishedRun:
    run = PublishedRun(order, CLIQUE, window=60, suspends=suspends)
    for row in rows:
        run.push(row)
    return run


@pytest.mark.parametrize("seed", range(5))
def test_left_deep_plans_lose_nothing(seed):
    rows = rows_of(seed)
    reference, published = (played(LEFT_DEEP, rows, suspends) for suspends in (False, True))
    assert reference.found == published.found
    assert reference.found
    assert published.partial_results < reference.partial_results


def test_bushy_plans_lose_results():
    expected, found = 0, 0
    for seed in range(8):
        rows = rows_of(seed)
        reference, published = (played(BUSHY, rows, suspends) for suspends in (False, True))
        assert published.found <= reference.found
        expected, found = expected + len(reference.found), found + len(published.found)
    assert 0 < found < expected


def test_the_counterexample_is_lost():
    """What is lost here comes in ``test_no_two_producers_wait_for_each_other`` of tests/execution."""

    def row(name: str, time: int, **values: int) -> Row:
        return Row(name, time, {column: values.get(column, 1) for column in CLIQUE[name]})

    rows = [
        row("c", 0),
        row("d", 1, ad=5),
        row("a", 2),
        row("b", 3, bc=9, bd=9),
        row("d", 4, ad=8, bd=8),
        row("b", 5),
        row("d", 6),
    ]
    assert len(played(BUSHY, rows, suspends=False).found) == 1
    assert len(played(BUSHY, rows, suspends=True).found) == 0
