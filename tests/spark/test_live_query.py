"""Queries on a real Spark give what DuckDB says: of every kind, in one cell and in several, over streams and over
batches; and their plans are replaced while they run."""

from __future__ import annotations

import datetime
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from midstream import ContinuousQuery, Stream
from midstream.errors import MidstreamError
from midstream.spark import live_query
from midstream.spark.spark_types import type_for_spark
from midstream.testing import (
    JOIN_OPERATORS,
    Push,
    Scenario,
    assert_same_bag,
    assert_snapshot_equivalent,
    join_intervals,
    scenarios,
    snapshots,
)
from tests.spark.feeding import Feed, Running, everything

TICKS, BATCHES = 36, 3
ZONED, NAIVE = pa.timestamp("us", "America/New_York"), pa.timestamp("us")


def stream(name, time_type):
    schema = pa.schema({"ts": time_type, "k": pa.int64(), "v": pa.float64(), "s": pa.string()})
    lateness = 2 if time_type == pa.int64() else datetime.timedelta(seconds=2)
    return Stream(name, schema, "ts", lateness)


STREAMS = [
    *(stream(name, pa.int64()) for name in "abcd"),
    *(stream(name, ZONED) for name in ("orders", "payments")),
    *(stream(name, NAIVE) for name in ("bids", "asks")),
]
BY_NAME = {stream.name: stream for stream in STREAMS}

# Texts have a place for a column that tells them apart when they are parts of one query.
JOINS = {
    "multi-way join": "SELECT {q} a.ts AS i, b.ts AS j, d.s AS s FROM a [RANGE 10], b [RANGE 8], c [RANGE 10],"
    " d [RANGE 6 SLIDE 3] WHERE a.k = b.k AND b.k = c.k AND c.k = d.k",
    "two keys": "SELECT {q} a.ts AS i, b.ts AS j, c.s AS s FROM a [RANGE 5], b [RANGE 5], c [RANGE 5]"
    " WHERE a.k = b.k AND b.s = c.s",
    "self join": "SELECT {q} x.ts AS i, y.ts AS j, x.s AS s FROM a [RANGE 4] x, a [RANGE 2] y WHERE x.k = y.k",
    "self join by two keys": "SELECT {q} x.ts AS i, y.ts AS j, b.s AS s FROM a [RANGE 4] x, a [RANGE 4] y, b [NOW]"
    " WHERE x.k = b.k AND y.s = b.s",
    "theta join": "SELECT {q} a.ts AS i, b.ts AS j, a.s AS s FROM a [RANGE 3], b [NOW]"
    " WHERE a.v < b.v AND a.k + 1 >= b.k",
    "no window": "SELECT {q} k AS i, ts * 2 AS j, s || '!' AS s FROM a WHERE v > 0.5",
    "endless window": "SELECT {q} a.ts AS i, b.ts AS j, b.s AS s FROM a [RANGE UNBOUNDED], b [NOW] WHERE a.k = b.k",
    "tumbling windows": "SELECT {q} a.ts AS i, b.ts AS j, a.s AS s FROM a [RANGE 5 SLIDE 5], b [RANGE 5 SLIDE 5]"
    " WHERE a.k = b.k",
}
OTHERS = {
    "distinct": "SELECT DISTINCT {q} a.k AS k, b.k AS n, b.s AS s FROM a [RANGE 10], b [RANGE 8] WHERE a.k = b.k",
    "aggregate": "SELECT {q} a.k AS k, COUNT(*) + SUM(b.k) AS n, MIN(b.s) AS s FROM a [RANGE 10], b [RANGE 8]"
    " WHERE a.k = b.k GROUP BY a.k HAVING COUNT(*) > 1",
    "difference": "(SELECT {q} k, 0 AS n, s FROM a [RANGE 10] EXCEPT SELECT {q} k, 0, s FROM b [RANGE 8])",
    "difference of bags": "(SELECT {q} k, 0 AS n, '' AS s FROM a [RANGE 10] EXCEPT ALL"
    " SELECT {q} k, 0, '' FROM b [NOW])",
    "union": "(SELECT {q} k, 1 AS n, s FROM a [RANGE 5] UNION SELECT {q} k, 1, s FROM b [RANGE 8 SLIDE 2])",
    "subquery": "SELECT {q} b.k AS k, t.n AS n, b.s AS s FROM"
    " (SELECT a.k AS k, COUNT(*) AS n FROM a [RANGE 6] GROUP BY a.k) t, b [RANGE 5] WHERE t.k = b.k",
}
TOTALS = {"aggregate of all": "SELECT {q} SUM(k) AS k, COUNT(*) AS n, MAX(s) AS s FROM a [RANGE 10 SLIDE 5]"}
CONDITIONS = {
    "some values": "SELECT {q} a.ts AS i, b.ts AS j FROM a [RANGE 3], b [RANGE 3] WHERE a.k = b.k"
    " AND a.s IN ('x', 'y') AND NOT (b.v >= 1.5 OR b.s IS NULL) AND a.v <> 0.5",
    "NaN": "SELECT {q} a.ts AS i, b.ts AS j FROM a [RANGE 2], b [RANGE 2] WHERE a.v > 1.0 AND b.v <= 1.5",
    "not those": "SELECT {q} a.ts AS i, b.ts AS j FROM a [RANGE 3], b [RANGE 3] WHERE a.k = b.k AND a.s NOT IN ('x')"
    " AND NOT (b.v = 1.5 AND b.k > 1) AND a.k BETWEEN 0 AND 2",
}
ZONED_JOINS = {
    "instants": "SELECT {q} o.ts AS i, p.ts AS j FROM orders [RANGE 6 SECONDS] o, payments [RANGE 3 SECONDS] p"
    " WHERE o.k = p.k AND o.ts >= TIMESTAMP '2021-11-07 05:59:45+00:00'",
    "instants in slides": "SELECT {q} o.ts AS i, p.ts AS j FROM orders [RANGE 6 SECONDS SLIDE 2 SECONDS] o, payments"
    " [RANGE 1 SECOND] p WHERE o.k = p.k",
}
NAIVE_JOINS = {
    "wall clock times": "SELECT {q} bids.ts AS i, asks.ts AS j FROM bids [RANGE 6 SECONDS], asks [RANGE 8 SECONDS"
    " SLIDE 2 SECONDS] WHERE bids.k = asks.k AND bids.ts < TIMESTAMP '2021-11-07 06:00:05'",
}
GROUPS = {
    "joins": (JOINS, 1),
    "joins in cells": (JOINS, 4),
    "others": (OTHERS | TOTALS, 1),
    "others in cells": (OTHERS, 4),
    "conditions": (CONDITIONS, 1),
    "zoned": (ZONED_JOINS, 1),
    "naive": (NAIVE_JOINS, 2),
}
"""Texts that are one query together, and in how many cells it runs."""
EXACT = JOINS | CONDITIONS | ZONED_JOINS | NAIVE_JOINS
TEXTS = EXACT | OTHERS | TOTALS


def as_one(texts):
    """One query of all, with a column that tells which part a result is of."""
    return " UNION ALL ".join(text.format(q=f"'{name}' AS q,") for name, text in texts.items())


@cache
def batches():
    """About a row per stream and tick, up to two ticks late."""
    random = np.random.default_rng(5)
    made = [{stream.name: [] for stream in STREAMS} for _ in range(BATCHES)]
    begin = datetime.datetime(2021, 11, 7, 5, 59, 40)  # Twenty seconds before clocks go back in New York.
    for tick in range(TICKS):
        for name, declared in BY_NAME.items():
            for late, k, v, s in random.integers(0, [3, 5, 6, 5], (random.integers(0, 4), 4)):
                time = tick - int(late)
                if declared.schema.field("ts").type != pa.int64():
                    time = begin + datetime.timedelta(seconds=time)
                row = (
                    time,
                    [0, 1, 2, 3, None][k],
                    [0.5, 1.5, -2.0, -0.0, float("nan"), None][v],
                    ["x", "y", "Z", "", None][s],
                )
                made[tick * BATCHES // TICKS][name].append(row)
    return [{name: table(BY_NAME[name], rows) for name, rows in batch.items()} for batch in made]


def table(declared, rows):
    columns = list(zip(*rows, strict=True)) or [[]] * len(declared.schema)
    arrays = []
    for values, field in zip(columns, declared.schema, strict=True):
        array = pa.array(values, NAIVE if field.type == ZONED else field.type)
        arrays.append(array.cast(pa.timestamp("us", "UTC")).cast(ZONED) if field.type == ZONED else array)
    return pa.table(arrays, schema=declared.schema)


def whole_input(names=None):
    return {name: pa.concat_tables(batch[name] for batch in batches()) for name in names or BY_NAME}


def query(text):
    return ContinuousQuery(text, STREAMS)


def read_by(text):
    return dict.fromkeys(window.stream.name for window in query(text).plan().windows())


def assert_what_duckdb_says(name, results):
    text = TEXTS[name].format(q="")
    used = [BY_NAME[stream] for stream in read_by(text)]
    rows = whole_input([stream.name for stream in used])
    if name in EXACT:
        expected = join_intervals(text, used, rows)
        assert expected.num_rows > 5
        assert_same_bag(results, expected)
    else:
        assert_snapshot_equivalent(results, snapshots(text, used, rows))


def started(text, frames, **options):
    return query(text).run_on_spark({stream: frames[stream] for stream in read_by(text)}, **options)


def test_queries_of_every_kind(spark, tmp_path, monkeypatch, subtests):
    # As on a cluster, where cells live in the workers that Spark gives them.
    monkeypatch.setattr(live_query, "_is_local", lambda session: False)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    feed = Feed(spark, tmp_path / "feed", STREAMS)
    feed.drop(*batches())
    frames = feed.frames()
    lives = {
        group: started(as_one(texts), frames, cells=cells, control_dir=tmp_path / group)
        for group, (texts, cells) in GROUPS.items()
    }
    assert [live.partitioning.cells for live in lives.values()] == [cells for _, cells in GROUPS.values()]
    with Running(lives, tmp_path / "checkpoint") as running:
        running.go()
        running.finish()
    for group, (texts, _) in GROUPS.items():
        results = running.results(group)
        for name in texts:
            with subtests.test(group=group, query=name):
                part = results.filter(pc.equal(results.column("q"), name))
                assert_what_duckdb_says(name, part.drop_columns(["q"]))


@pytest.mark.parametrize("cells", [1, 4])
def test_batches_give_the_same(spark, tmp_path, subtests, cells):
    spark.conf.set("spark.sql.shuffle.partitions", str(min(cells, 2)))
    feed = Feed(spark, tmp_path / "feed", STREAMS)
    feed.drop(*batches())
    frames = feed.frames(streaming=False)
    lives = {name: started(text.format(q=""), frames, cells=cells) for name, text in TEXTS.items()}
    results = everything(lives)
    for name in TEXTS:
        with subtests.test(query=name):
            assert_what_duckdb_says(name, results[name])


# Random queries


def drawn(number, **choices):
    """A scenario, always the same for its number; not one of the first ones, which are the simplest."""
    found = []

    @seed(number)
    @settings(
        max_examples=10, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(scenarios(batchings=["mixed"], max_streams=4, **choices))
    def draw(scenario):
        found.append(as_spark_has_it(scenario))

    draw()
    return next(case for case in reversed(found) if case is not None and case.expected().table.num_rows > 5)


def as_spark_has_it(scenario):
    """The scenario with types that Spark knows, in few pushes; None if the query does not fit them."""
    streams = []
    for declared in scenario.streams:
        types = {name: type_in_spark(declared.column_type(name)) for name in declared.schema.names}
        streams.append(Stream(declared.name, pa.schema(types), declared.event_time, declared.lateness))
    try:
        ContinuousQuery(scenario.query_text, streams)
    except MidstreamError:
        return None
    pushes = []
    for part in np.array_split(np.arange(len(scenario.pushes)), 4):
        rows = {}
        for declared in streams:
            tables = [scenario.pushes[place].rows.get(declared.name) for place in part]
            some = [table.cast(declared.schema) for table in tables if table is not None]
            rows[declared.name] = pa.concat_tables([declared.schema.empty_table(), *some])
        pushes.append(Push(rows))
    return Scenario(scenario.query_text, tuple(streams), tuple(pushes))


def type_in_spark(data_type):
    if pa.types.is_timestamp(data_type):
        return pa.timestamp("us", data_type.tz)
    return type_for_spark(data_type)


def test_random_queries(spark, tmp_path, monkeypatch, subtests):
    """Half of them in one cell, half in three."""
    monkeypatch.setattr(live_query, "_is_local", lambda session: False)
    cases = [
        *(drawn(number, min_streams=2) for number in range(6)),
        *(drawn(number, operators=JOIN_OPERATORS, min_streams=2) for number in range(6)),
    ]
    columns = {f"{place} {s.name}": s for place, case in enumerate(cases) for s in case.streams}
    feed = Feed(spark, tmp_path / "feed", columns)
    for number in range(4):
        pushes = [(place, case.pushes[number].rows) for place, case in enumerate(cases)]
        feed.drop({f"{place} {name}": table for place, rows in pushes for name, table in rows.items()})
    lives, batches = {}, {}
    for place, case in enumerate(cases):
        names = {s.name: f"{place} {s.name}" for s in case.streams}
        query = ContinuousQuery(case.query_text, case.streams)
        if place % 2:
            lives[str(place)] = query.run_on_spark(
                feed.frames(names), cells=1 + place // 2 % 2 * 2, control_dir=tmp_path / str(place)
            )
        batches[str(place)] = query.run_on_spark(feed.frames(names, streaming=False), cells=1 + place % 3)
    with Running(lives, tmp_path / "checkpoint") as running:
        running.go()
        running.finish()
    over_batches = everything(batches)
    for place, case in enumerate(cases):
        of_stream = [running.results(str(place))] if str(place) in lives else []
        for results in [over_batches[str(place)], *of_stream]:
            with subtests.test(case=case):
                if place >= 6:
                    assert_same_bag(results, case.expected_intervals())
                else:
                    assert_snapshot_equivalent(results, case.expected())


# What it tells

LATE = {
    "theta join": ("SELECT a.ts AS i, b.ts AS j FROM a [RANGE 9], b [RANGE 9] WHERE a.v < b.v", 4),
    "self join by two keys": (
        "SELECT x.ts AS i, y.ts AS j, b.ts AS l FROM a [RANGE 9] x, a [RANGE 9] y, b [RANGE 9]"
        " WHERE x.k = b.k AND y.s = b.s",
        6,
    ),
}


def test_late_rows_are_counted_once_in_however_many_cells_they_are(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(live_query, "_is_local", lambda session: False)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    used = {name: BY_NAME[name] for name in "ab"}
    rows = {name: table(BY_NAME[name], [(t, t % 3, float(t % 5), "xyz"[t % 3]) for t in range(9)]) for name in "ab"}
    late = {name: table(BY_NAME[name], [(t, 1, 1.0, "y") for t in (0, 3, 5, 6, 9, None)]) for name in "ab"}
    feed = Feed(spark, tmp_path / "feed", used)
    feed.drop(rows, late)
    lives = {
        name: started(text, feed.frames(), cells=cells, control_dir=tmp_path / name)
        for name, (text, cells) in LATE.items()
    }
    for name, (_, cells) in LATE.items():
        assert lives[name].partitioning.cells == cells
    copies = {
        lives["self join by two keys"].partitioning.replication(w.identity)
        for w in query(LATE["self join by two keys"][0]).plan().windows()
        if w.stream.name == "a"
    }
    assert len(copies) == 2
    with Running(lives, tmp_path / "checkpoint") as running:
        running.go()
    for name, (text, _) in LATE.items():
        local = query(text).run_locally()
        results = pa.concat_tables([local.push(rows), local.push(late)])
        assert lives[name].metrics()["streams"] == local.metrics()["streams"]
        assert lives[name].metrics()["streams"]["a"] == {
            "rows": 15, "late": 3, "without_event_time": 1, "event_time_out_of_range": 0, "bad_messages": 0,
        }  # fmt: skip
        assert lives[name].metrics()["watermark"] == local.watermark
        assert_same_bag(running.results(name), results)


EXPLAINED = [
    (
        JOINS["two keys"],
        4,
        [
            "4 cells: 2 by a.k = b.k, 2 by b.s = c.s",
            "each row once: b [RANGE 5]",
            "each row 2 times: a [RANGE 5], c [RANGE 5]",
        ],
    ),
    (OTHERS["aggregate"], 3, ["3 cells: 3 by a.k = b.k", "rows of a group meet in one cell"]),
    (OTHERS["difference"], 2, ["equal rows meet in one cell"]),
    (JOINS["multi-way join"], 1, ["1 cell"]),
    (TOTALS["aggregate of all"], 4, ["1 cell: an aggregate without GROUP BY needs all rows"]),
    ("SELECT COUNT(*) AS n FROM a [NOW] GROUP BY k > 1", 2, ["1 cell: no grouping key determines the cell of a row"]),
    (
        CONDITIONS["some values"],
        1,
        [
            "in Spark SQL: a where a.s IN ('x', 'y') AND a.v <> 0.5",
            "in Spark SQL: b where NOT (b.v >= 1.5 OR b.s IS NULL)",
        ],
    ),
    (CONDITIONS["NaN"], 1, ["in Spark SQL: a where a.v > 1.0", "in Spark SQL: b where b.v <= 1.5"]),
]


@pytest.mark.parametrize(("text", "cells", "lines"), EXPLAINED)
@pytest.mark.parametrize("streaming", [True, False])
def test_explain_tells_where_rows_go_and_what_spark_does(spark, tmp_path, text, cells, lines, streaming):
    text = text.format(q="")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    frames = Feed(spark, tmp_path / "feed", STREAMS).frames(streaming=streaming)
    live = started(text, frames, cells=cells)
    explained = live.explain()
    assert explained.startswith(query(text).explain())
    told = explained.splitlines()
    for line in lines:
        assert line in told
    assert any(line.startswith("in Spark SQL") for line in told) == any(line.startswith("in Spark") for line in lines)
