"""Hot keys: counted exactly, whatever is the key, and together over cells."""

from __future__ import annotations

import datetime
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.adaptation.hot_keys import MOST_HOT_KEYS, HotKeyCounter, hot_keys, hot_keys_over_cells
from midstream.planning.cost import HotKey, JoinKeys
from tests.adaptation.test_sampling import chain, rows

WINDOW = 250
INTEGER = pa.int64()


def skewed(generator: np.random.Generator, count: int) -> np.ndarray:
    """Integers of which 0 is a third, and 7 a tenth."""
    drawn = generator.random(count)
    return np.where(drawn < 0.33, 0, np.where(drawn < 0.43, 7, generator.integers(100, 1_000, count)))


def two(kind: pa.DataType = INTEGER) -> ContinuousQuery:
    streams = [Stream(name, pa.schema({"ts": pa.int64(), "k": kind}), "ts") for name in "ab"]
    return ContinuousQuery(
        f"SELECT a.ts AS t FROM a [RANGE {WINDOW}], b [RANGE {WINDOW}] WHERE a.k = b.k", streams=streams
    )


def table(start: int, keys, kind: pa.DataType = INTEGER) -> pa.Table:
    times = start + np.sort(np.arange(len(keys)) % 100)
    return pa.table({"ts": times, "k": pa.array(list(keys), kind)})


@pytest.mark.parametrize(
    ("kind", "key_of"),
    [
        (pa.int64(), int),
        (pa.string(), lambda number: f"key {number}"),
        (pa.timestamp("us"), lambda number: datetime.datetime(2026, 1, 1) + datetime.timedelta(seconds=int(number))),
    ],
)
def test_the_most_frequent_keys_are_counted_exactly(kind, key_of):
    query = two(kind)
    run = query.run_locally()
    generator = np.random.default_rng(2)
    held: dict[str, list[tuple[int, object]]] = {"a": [], "b": []}
    for push in range(9):
        tables = {}
        for name in "ab":
            keys = [key_of(number) for number in skewed(generator, 300)]
            if push % 3 == 0:
                keys[:5] = [None] * 5
            tables[name] = table(100 * push, keys, kind)
            held[name] += zip(tables[name]["ts"].to_pylist(), keys, strict=True)
        run.push(tables)
    # A row is valid for the length of the window after its instant; what has ended by the watermark is gone.
    counts = {
        name: Counter(key for instant, key in found if instant + WINDOW + 1 > run.watermark and key is not None)
        for name, found in held.items()
    }
    (keys,) = run.statistics().hot_keys
    assert keys.inputs == (("a",), ("b",))
    assert keys.key == (("a.k",), ("b.k",))
    assert keys.tuples == (counts["a"].total(), counts["b"].total())
    pairs = sum(count * counts["b"][key] for key, count in counts["a"].items())
    assert keys.pairs == pairs
    for name, found in (("a", keys.left), ("b", keys.right)):
        assert len(found) == MOST_HOT_KEYS
        assert [getattr(key, "left" if name == "a" else "right") for key in found] == [
            count for _, count in counts[name].most_common(MOST_HOT_KEYS)
        ]
        assert found[0].value == str(key_of(0))
    hottest = keys.left[0]
    assert (hottest.left, hottest.right) == (counts["a"][key_of(0)], counts["b"][key_of(0)])
    assert hottest.pairs == pytest.approx(hottest.left * hottest.right / pairs)
    assert hottest.pairs > 0.6


def test_tuples_that_wait_unsorted_count_too_and_stay_where_they_are():
    run = two().run_locally()
    run.push({"a": table(0, [1, 1, 2])})
    (keys,) = run.statistics().hot_keys
    assert [(key.value, key.left, key.right) for key in keys.left] == [("1", 2, 0), ("2", 1, 0)]
    assert (keys.right, keys.pairs) == ((), 0)
    assert run.push({"b": table(3, [1, 2])}).num_rows == 3
    (keys,) = run.statistics().hot_keys
    assert keys.pairs == 3


def test_a_key_of_several_columns_has_all_values():
    streams = [Stream(name, pa.schema({"ts": pa.int64(), "i": pa.int64(), "s": pa.string()}), "ts") for name in "ab"]
    text = "SELECT a.ts AS t FROM a [RANGE 9], b [RANGE 9] WHERE a.i = b.i AND a.s = b.s"
    run = ContinuousQuery(text, streams).run_locally()
    for name in "ab":
        run.push({name: pa.table({"ts": [1, 2], "i": [3, 3], "s": ["x", "x"]})})
    (keys,) = run.statistics().hot_keys
    assert [(key.value, key.left, key.right, key.pairs) for key in keys.left] == [("3, x", 2, 2, 1.0)]


def test_joins_without_an_equality_have_none_and_neither_has_a_migration():
    streams = [Stream(name, pa.schema({"ts": pa.int64(), "k": pa.int64()}), "ts") for name in "ab"]
    run = ContinuousQuery("SELECT a.ts AS t FROM a [RANGE 9], b [RANGE 9] WHERE a.k < b.k", streams).run_locally()
    run.push({"a": table(0, [1]), "b": table(0, [2])})
    assert run.statistics().hot_keys == ()
    query = chain()
    run = query.run_locally("a b c d")
    generator = np.random.default_rng(5)
    for push in range(3):
        run.push(rows(query, generator, 100 * push, 30, 10))
    assert len(run.statistics().hot_keys) == 3
    run.migrate("d c b a", "gen-mig")
    assert run.statistics().hot_keys == ()


def test_results_are_not_lost_by_asking_in_the_middle_of_a_push():
    run = two().run_locally()
    run.push({"a": table(0, [1] * 50)})
    pieces = run.push_in_chunks({"b": table(0, [1] * 50)})
    assert run.statistics().hot_keys == ()
    assert sum(piece.num_rows for piece in pieces) == 2_500
    assert run.statistics().hot_keys[0].pairs == 2_500


def test_cells_are_added():
    def cell(*keys: HotKey, pairs: int) -> JoinKeys:
        return JoinKeys(
            inputs=(("a",), ("b",)), key=(("a.k",), ("b.k",)), tuples=(10, 20), pairs=pairs, left=keys, right=keys
        )

    first = cell(HotKey(value="x", left=4, right=5, pairs=0.2), pairs=100)
    second = cell(
        HotKey(value="x", left=1, right=0, pairs=0.0), HotKey(value="y", left=2, right=50, pairs=1.0), pairs=100
    )
    (keys,) = hot_keys_over_cells([(first,), (second,), ()])
    assert (keys.tuples, keys.pairs) == ((20, 40), 200)
    assert keys.left == (HotKey(value="x", left=5, right=5, pairs=0.1), HotKey(value="y", left=2, right=50, pairs=0.5))
    assert [key.value for key in keys.right] == ["y", "x"]


def test_cells_count_only_as_often_as_the_time_of_measurements_allows():
    query = chain()
    run = query.run_locally("a b c d")
    generator = np.random.default_rng(5)
    for push in range(3):
        run.push(rows(query, generator, 100 * push, 30, 10))
    counter, executor = HotKeyCounter(), run._cell.executor
    counted = [counter.after_measurement(executor, 0.002) for _ in range(20)]
    assert counted[0] == hot_keys(executor)
    # A count of three joins takes about a millisecond, a tenth of a measurement is a fifth of that.
    assert 2 <= sum(found is not None for found in counted) <= 5
