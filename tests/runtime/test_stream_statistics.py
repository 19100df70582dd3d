"""Statistics of streams: rates, late rows and selectivity, the same in this process and over cells."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.runtime.stream_statistics import MOST_PUSHES, StreamMeter
from tests.spark.simulated import SimulatedCluster

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "v": pa.int64()})
STREAMS = [Stream(name, SCHEMA, event_time="ts", lateness=20) for name in "ab"]
TEXT = "SELECT a.k FROM a [RANGE 40], b [RANGE 40] WHERE a.k = b.k AND a.v < 3"


def batch(number: int, late: int = 0) -> dict[str, pa.Table]:
    """50 rows of each stream in 10 ticks, of which ``late`` are too old; v is below 3 for three rows of ten."""
    times = np.sort(np.arange(50) % 10) + 10 * number
    if late:
        times[:late] = -1_000
    values = {"k": np.arange(50) % 7, "v": np.arange(50) // 5 % 10}
    return {name: pa.table({"ts": times, **values}) for name in "ab"}


def test_rates_late_rows_and_selectivity():
    run = ContinuousQuery(TEXT, STREAMS).run_locally()
    assert run.statistics().streams == ()
    run.push(batch(0))
    first = run.statistics().streams[0]
    assert (first.alias, first.rows, first.rate, first.selectivity) == ("a", 50, None, pytest.approx(0.3))
    for number in range(1, 11):
        run.push(batch(number, late=10 if number > 5 else 0))
    a, b = run.statistics().streams
    assert (a.alias, a.stream, b.alias) == ("a", "a", "b")
    assert a.rows == b.rows == 500
    assert a.late_share == b.late_share == pytest.approx(0.1)
    # In time are 450 rows in 100 ticks.
    assert a.rate == b.rate == pytest.approx(4.5)
    # Of the rows in time 15 of 50, or 5 of 40 where the first ten, which have v below 3, were late.
    assert a.selectivity == pytest.approx((5 * 15 + 5 * 5) / 450)
    assert b.selectivity == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "SELECT s.k FROM (SELECT a.k AS k, a.v + 1 AS w FROM a [RANGE 40]) s, b [RANGE 40] WHERE s.k = b.k AND s.w < 4",
        "SELECT s.k FROM (SELECT a.k AS k, COUNT(*) AS n FROM a [RANGE 40] WHERE a.v < 3 GROUP BY a.k) s, b [RANGE 40] "
        "WHERE s.k = b.k",
        "SELECT DISTINCT a.k FROM a [RANGE 40] WHERE a.v < 3",
    ],
)
def test_conditions_of_subqueries_are_applied_at_the_window_too(text):
    """In every plan: no selection stands between a window and the next operator with state."""
    query = ContinuousQuery(text, STREAMS)
    for plan in query.plans():
        run = query.run_locally(plan)
        for number in range(4):
            run.push({stream: batch(number)[stream] for stream in {window.stream.name for window in plan.windows()}})
        found = {one.alias: one.selectivity for one in run.statistics().streams}
        assert found["a"] == pytest.approx(0.3)
        assert found.get("b", 1.0) == 1.0
        assert all(operator["kind"] != "select" for operator in run.metrics()["operators"])


def test_timestamps_give_rates_per_second():
    schema = pa.schema({"ts": pa.timestamp("us"), "k": pa.int64()})
    streams = [Stream(name, schema, event_time="ts") for name in "ab"]
    text = "SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k"
    run = ContinuousQuery(text, streams).run_locally()
    for number in range(3):
        times = pa.array(np.arange(100) * 20_000 + 2_000_000 * number, pa.timestamp("us"))
        run.push({name: pa.table({"ts": times, "k": np.arange(100)}) for name in "ab"})
    assert [stream.rate for stream in run.statistics().streams] == [pytest.approx(50)] * 2


def test_only_the_latest_pushes_count():
    run = ContinuousQuery(TEXT, STREAMS).run_locally()
    for number in range(10):
        run.push(batch(number, late=25 if number else 0))
    assert run.statistics().streams[0].late_share > 0.4
    for number in range(10, 10 + MOST_PUSHES):
        run.push(batch(number))
    a = run.statistics().streams[0]
    assert (a.late_share, a.rows) == (0.0, 50 * MOST_PUSHES)


def test_a_query_without_state_has_rates_only():
    run = ContinuousQuery("SELECT a.k FROM a [NOW] WHERE a.v < 3", STREAMS[:1]).run_locally()
    for number in range(3):
        run.push({"a": batch(number)["a"]})
    (a,) = run.statistics().streams
    assert (a.rows, a.rate, a.selectivity) == (100, pytest.approx(5), None)
    assert run.statistics().hot_keys == ()


def test_the_same_stream_in_two_windows_has_each_its_selectivity():
    text = "SELECT x.k FROM a [RANGE 40] x, a [RANGE 40] y WHERE x.k = y.k AND y.v < 5"
    run = ContinuousQuery(text, STREAMS[:1]).run_locally()
    for number in range(3):
        run.push({"a": batch(number)["a"]})
    found = {one.alias: (one.stream, one.rows, one.selectivity) for one in run.statistics().streams}
    assert found == {"x": ("a", 100, 1.0), "y": ("a", 100, pytest.approx(0.5))}


CHAIN = [
    Stream(name, pa.schema({"ts": pa.int64(), **{column: pa.int64() for column in columns}}), "ts", lateness=20)
    for name, columns in {"a": "xv", "b": "xy", "c": "y"}.items()
]
CHAIN_TEXT = "SELECT a.x FROM a [RANGE 40], b [RANGE 40], c [RANGE 40] WHERE a.x = b.x AND b.y = c.y AND a.v < 3"


@pytest.mark.parametrize("cells", [1, 2, 4])
def test_cells_together_give_what_one_process_gives(cells):
    """Also where rows are sent to several cells: a join over two keys on a grid."""
    cluster = SimulatedCluster(CHAIN_TEXT, CHAIN, "(a b) c", cells=cells)
    run = ContinuousQuery(CHAIN_TEXT, CHAIN).run_locally("(a b) c")
    meter = StreamMeter()
    generator = np.random.default_rng(3)
    for number in range(6):
        tables = {
            stream.name: pa.table(
                {"ts": np.sort(generator.integers(0, 10, 60)) + 10 * number - 200 * (generator.random(60) < 0.1)}
                | {column: generator.integers(0, 10, 60) for column in stream.schema.names[1:]}
            )
            for stream in CHAIN
        }
        run.push(tables)
        cluster.run(tables)
        meter.note(cluster.progress.streams_seen())
    here, there = run.statistics().streams, meter.statistics(ContinuousQuery(CHAIN_TEXT, CHAIN).plan("(a b) c"))
    assert [one.alias for one in there] == [one.alias for one in here] == ["a", "b", "c"]
    for one, other in zip(there, here, strict=True):
        assert one.rows == other.rows
        if one.alias != "a":
            assert one.late_share == pytest.approx(other.late_share, abs=0.001)
            assert one.rate == pytest.approx(other.rate, rel=0.001)
            assert one.selectivity == other.selectivity == 1.0
        else:
            # On Spark, rows that no window wants are not sent, and nobody sees that some of them are late: of ten rows
            # one is.
            assert 0.5 * other.late_share > one.late_share > 0.01
            assert 0.8 < one.selectivity / other.selectivity < 1
            assert 1 < one.rate / other.rate < 1.2
