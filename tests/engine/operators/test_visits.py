"""Multi-way joins find what trees find, whichever keys, conditions and ways through the inputs there are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.engine.operators import multi_join, visits
from midstream.testing import assert_same_bag

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int64(), "y": pa.int64(), "name": pa.string()})

CONDITIONS = {
    "one key": "a.x = b.x AND b.x = c.x AND c.x = d.x",
    "a star": "a.x = b.x AND a.y = c.y AND a.name = d.name",
    "a chain of text and numbers": "a.name = b.name AND b.x = c.x AND c.y = d.y",
    "a cycle": "a.x = b.x AND b.y = c.y AND c.x = d.x AND d.y = a.y",
    "two keys of one neighbour, one each of two": "a.x = c.x AND b.y = c.y AND c.x = d.x AND c.y = d.y",
    "a key of several inputs together": "a.x + b.x = c.x AND a.y = b.y AND c.y = d.y",
    "ranges": "ABS(a.x - b.x) < 2 AND a.y = c.y AND ABS(c.x - d.x) < 1 AND d.x < a.x",
    "a condition of three": "a.x = b.x AND b.y = c.y AND c.y = d.y AND a.y + c.x > d.x",
    "a cross product": "a.x = b.x AND c.y = d.y",
}


def batches(count: int, rows: int) -> list[dict[str, pa.Table]]:
    random = np.random.default_rng(1)
    pushed = []
    for number in range(count):
        push = {}
        for stream in "abcd":
            x, y, name = (
                pa.array(random.integers(0, values, rows), mask=random.random(rows) < 0.1) for values in (7, 6, 5)
            )
            times = number * rows + np.sort(random.integers(0, rows, rows))
            push[stream] = pa.table({"ts": times, "x": x, "y": y, "name": name.cast(pa.string())}, SCHEMA)
        pushed.append(push)
    return pushed


@pytest.mark.parametrize("small", [1, 2_048])
@pytest.mark.parametrize("routing", ["fixed", "eddy"])
@pytest.mark.parametrize("condition", CONDITIONS.values(), ids=CONDITIONS)
def test_braces_give_the_results_of_a_tree(
    condition: str, routing: str, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multi_join, "_SMALL_GROUP_ROWS", small)
    streams = [Stream(name, SCHEMA, event_time="ts") for name in "abcd"]
    text = "SELECT a.ts AS a_ts, b.ts AS b_ts, c.ts AS c_ts, d.ts AS d_ts, a.x, b.y, c.name, d.x AS d_x "
    windows = "a [RANGE 6], b [RANGE 8], c [RANGE 4], d [RANGE 6]"
    query = ContinuousQuery(f"{text} FROM {windows} WHERE {condition}", streams)
    results = []
    for plan in (query.plan("((a b) c) d"), query.plan("{a b c d}", routing=routing)):
        run = query.run_locally(plan)
        results.append(pa.concat_tables([*(run.push(push) for push in batches(5, 8)), run.finish()]))
    assert results[0].num_rows > 0
    assert_same_bag(results[0], results[1])


def test_ways_that_were_forgotten_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visits, "_MOST_VISITS", 2)
    test_braces_give_the_results_of_a_tree(CONDITIONS["one key"], "eddy", 1, monkeypatch)
