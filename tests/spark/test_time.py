"""Watermarks, late rows, silent streams and the end of streams on Spark, and what a query reads from and writes to."""

import datetime
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from midstream import ContinuousQuery, Stream
from midstream.errors import BadPlan, MissingColumn, NotStreaming, PushedTypeMismatch, UnknownStreamPushed
from midstream.spark import stream

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64()})
STREAMS = [Stream("a", SCHEMA, "ts", lateness=5), Stream("b", SCHEMA, "ts")]
COUNTED = "SELECT a.k, COUNT(*) AS n FROM a [RANGE 20], b [RANGE 20] WHERE a.k = b.k GROUP BY a.k"


def drop(folder, name, number, rows):
    (folder / name).mkdir(parents=True, exist_ok=True)
    times, keys = zip(*rows, strict=True) if rows else ((), ())
    path = folder / name / f"_{number:05d}"
    pq.write_table(pa.table({"ts": times, "k": keys}, SCHEMA), path)
    os.utime(path, (10**9 + number, 10**9 + number))
    path.rename(path.with_name(f"{number:05d}.parquet"))


def frames(spark, folder):
    reader = spark.readStream.schema("ts long, k long").option("maxFilesPerTrigger", 1)
    return {name: reader.parquet(str(folder / name)) for name in "ab"}


def test_late_rows_silent_streams_and_the_end_are_as_in_a_local_run(spark, tmp_path):
    """The same pushes go into a run in this process: results and counts are equal, batch by batch."""
    spark.conf.set("spark.sql.shuffle.partitions", 1)
    query = ContinuousQuery(COUNTED, STREAMS)
    local = query.run_locally()
    batches = [
        {"a": [(0, 1), (30, 2)], "b": [(2, 1), (31, 2)]},
        {"a": [(24, 1), (25, 1), (90, 3)], "b": [(29, 2), (24, 1)]},  # 25 is the watermark: 24 is late in both
        {"a": [(100, 1), (None, 1)], "b": [(95, 3)]},
        {"a": [(300, 1)], "b": []},
    ]
    got, expected = [], []
    for name in "ab":
        (tmp_path / "in" / name).mkdir(parents=True)
    live = query.run_on_spark(frames(spark, tmp_path / "in"), control_dir=tmp_path / "control")
    writer = live.results.writeStream.foreachBatch(lambda frame, number: got.append(frame.toArrow()))
    running = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    def go():
        got.clear()
        running.processAllAvailable()
        rows = [row for table in got for row in table.to_pylist()]
        assert sorted(map(str, rows)) == sorted(map(str, expected))

    for number, batch in enumerate(batches):
        for name, rows in batch.items():
            drop(tmp_path / "in", name, number, rows)
        tables = {n: pa.table(dict(zip(("ts", "k"), map(list, zip(*rows, strict=True)), strict=True)), SCHEMA)
                  for n, rows in batch.items() if rows}  # fmt: skip
        expected[:] = local.push(tables).to_pylist()
        go()
        assert live.metrics()["streams"] == local.metrics()["streams"]
        assert live.metrics()["watermark"] == local.watermark
    assert live.metrics()["streams"]["b"]["late"] == 1
    assert live.metrics()["watermark"] == 95
    # b is silent: what a's 300 makes certain is told when b is declared idle.
    with pytest.raises(UnknownStreamPushed, match="is not one of the query's streams"):
        live.declare_idle(["b"])
    live.declare_idle("b")
    expected[:] = local.push({}, watermark=295).to_pylist()
    assert expected
    go()
    assert live.metrics()["watermark"] == 295
    live.finish()
    expected[:] = local.finish().to_pylist()
    go()
    assert live.metrics()["finished"]
    drop(tmp_path / "in", "a", 9, [(1000, 1)])
    expected.clear()
    go()
    running.stop()
    assert live.metrics()["streams"]["a"]["late"] == 2
    status = json.loads((tmp_path / "control" / "status.json").read_text())
    assert status["plan"] == live.plan.explain()


def test_a_stream_is_declared_idle_by_itself(spark, tmp_path):
    spark.conf.set("spark.sql.shuffle.partitions", 1)
    drop(tmp_path / "in", "a", 0, [(0, 1)])
    drop(tmp_path / "in", "b", 0, [(0, 1)])
    live = ContinuousQuery(COUNTED, STREAMS).run_on_spark(
        frames(spark, tmp_path / "in"), control_dir=tmp_path / "control", idle_after=datetime.timedelta(seconds=0.5)
    )
    running = live.results.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "ck")).start()
    for number in range(1, 40):
        running.processAllAvailable()
        if live.metrics()["watermark"] > 0:
            break
        drop(tmp_path / "in", "a", number, [(100 * number, 1)])
    running.stop()
    assert live.metrics()["cells"][0]["idle"] == ["b"]


def test_sources_json_and_rate_and_a_memory_sink(spark, tmp_path):
    spark.conf.set("spark.sql.shuffle.partitions", 1)
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    (tmp_path / "in").mkdir()
    lines = [{"ts": f"2026-11-01T0{hour}:30:00.000Z", "k": hour % 2} for hour in range(4, 9)]
    (tmp_path / "in" / "1.json").write_text("\n".join(map(json.dumps, lines)))
    orders = spark.readStream.schema("ts timestamp, k int").json(str(tmp_path / "in"))
    query = ContinuousQuery(
        "SELECT x.ts AS one, y.ts AS other FROM o [RANGE 2 HOURS] x, o [RANGE 2 HOURS] y "
        "WHERE x.k = y.k AND x.ts < y.ts",
        [stream("o", orders, "ts", lateness="10 minutes")],
    )
    live = query.run_on_spark({"o": orders}, control_dir=tmp_path / "control")
    writer = live.results.writeStream.format("memory").queryName("found")
    running = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    running.processAllAvailable()
    live.finish()
    running.processAllAvailable()
    running.stop()
    found = spark.sql(
        "SELECT unix_micros(one) AS one, unix_micros(other) AS other, unix_micros(valid_to) AS until FROM found"
    )
    hour = 3_600_000_000
    first = 1793507400_000_000
    expected = [(first + h * hour, first + (h + 2) * hour, first + (h + 2) * hour + 1) for h in range(3)]
    assert sorted(map(tuple, found.collect())) == expected

    rate = spark.readStream.format("rate").option("rowsPerSecond", 200).load()
    joined = ContinuousQuery(
        "SELECT x.value AS v FROM r [RANGE 1 SECOND] x, r [RANGE 1 SECOND] y WHERE x.value = y.value",
        [stream("r", rate, "timestamp")],
    ).run_on_spark({"r": rate}, control_dir=tmp_path / "rate")
    seen = []
    running = joined.results.writeStream.foreachBatch(
        lambda frame, number: seen.extend(row.v for row in frame.select("v").collect())
    ).start()
    while len(seen) < 300 and running.isActive:
        running.awaitTermination(0.2)
    running.stop()
    assert sorted(seen) == list(range(len(seen)))


def test_conditions_run_in_spark_and_hide_no_time(spark, tmp_path):
    spark.conf.set("spark.sql.shuffle.partitions", 1)
    query = ContinuousQuery(
        "SELECT a.k, COUNT(*) AS n FROM a [RANGE 10] WHERE a.k IN (3, 4) AND NOT a.k = 4 GROUP BY a.k",
        [Stream("a", SCHEMA, "ts")],
    )
    drop(tmp_path / "in", "a", 0, [(1, 3), (2, 4), (3, None), (90, 7)])
    reader = spark.readStream.schema("ts long, k long")
    live = query.run_on_spark({"a": reader.parquet(str(tmp_path / "in" / "a"))}, control_dir=tmp_path / "control")
    assert "in Spark SQL: a where" in live.explain()
    got = []
    writer = live.results.writeStream.foreachBatch(lambda frame, number: got.extend(frame.collect()))
    writer.trigger(availableNow=True).start().awaitTermination()
    # The row of time 90 is not wanted, but it says how late it is.
    assert live.metrics()["watermark"] == 90
    assert [tuple(row) for row in got] == [(3, 1, 1, 12)]


def test_batches_are_computed_to_the_end(spark):
    one = spark.createDataFrame([(0, 1), (5, 1), (70, 2)], "ts long, k long")
    two = spark.createDataFrame([(3, 1), (71, 2), (500, 1)], "ts long, k long")
    live = ContinuousQuery(COUNTED, STREAMS).run_on_spark({"a": one, "b": two})
    assert not live.results.isStreaming
    expected = ContinuousQuery(COUNTED, STREAMS).run_locally()
    rows = expected.push({"a": one.toArrow(), "b": two.toArrow()}).to_pylist() + expected.finish().to_pylist()
    assert sorted(map(str, live.results.toArrow().to_pylist())) == sorted(map(str, rows))
    for action in (lambda: live.migrate("b a"), live.finish, lambda: live.declare_idle("a")):
        with pytest.raises(NotStreaming):
            action()


def test_frames_that_do_not_fit_are_refused(spark):
    query = ContinuousQuery(COUNTED, STREAMS)
    good = spark.createDataFrame([(0, 1)], "ts long, k long")
    streaming = spark.readStream.format("rate").load().select(F.col("value").alias("ts"), F.col("value").alias("k"))
    for given, error, text in [
        ({"a": good}, UnknownStreamPushed, 'no DataFrame for "b"'),
        ({"a": good, "b": good, "c": good}, UnknownStreamPushed, 'stream "c" is not one of'),
        ({"a": good, "b": good.drop("k")}, MissingColumn, 'column "k" of stream "b" is missing'),
        ({"a": good, "b": good.withColumn("more", F.lit(1)).toDF("ts", "k", "K")}, MissingColumn, "more than once"),
        ({"a": good, "b": good.select("ts", F.col("k").cast("int"))}, PushedTypeMismatch, "is int in the DataFrame"),
        ({"a": good, "b": streaming}, NotStreaming, '"a" are batches'),
        ({"a": good, "b": [1]}, PushedTypeMismatch, "a mapping from stream names to DataFrames"),
    ]:
        with pytest.raises(error, match=text):
            query.run_on_spark(given)
    with pytest.raises(BadPlan, match="cells"):
        query.run_on_spark({"a": good, "b": good}, cells=0)
    with pytest.raises(BadPlan, match="idle_after"):
        query.run_on_spark({"a": good, "b": good}, idle_after=-1)
