"""Migrations of a query on Spark, by every strategy, overlapped, each with a restart in its middle."""

import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from midstream import ContinuousQuery, Stream
from midstream.errors import BadJoinOrder, BadPlan, CheckpointMismatch, FinishedRun, MigrationRefused
from midstream.testing import assert_same_bag, join_intervals
from tests.runtime.test_control import NO_COMMANDS
from tests.strategies import ways

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "v": pa.string()})
STREAMS = [Stream(name, SCHEMA, event_time="ts") for name in "abc"]
TEXT = "SELECT a.v AS x, b.v AS y, c.v AS z FROM a [RANGE 40], b [RANGE 40], c [RANGE 40] WHERE a.k = b.k AND b.k = c.k"
WAYS = ways(
    "jisc",
    "moving-state",
    "parallel-track",
    "coalesce",
    "reference-point",
    "positive-negative, shortened",
    "jisc as published",
)
ORDERS = ["a (b c)", "(a c) b", "(a b) c", "b (c a)", "(c b) a", "c (b a)", "a (c b)"]


class Feed:
    """Folders with a file per stream and micro-batch, thirty ticks each."""

    def __init__(self, folder, names="abc"):
        self.folder, self.names = folder, names
        self.random = np.random.default_rng(3)
        self.batches = []
        for name in names:
            (folder / name).mkdir(parents=True)

    def drop(self, batches=1):
        for _ in range(batches):
            number = len(self.batches)
            tables = {name: self._rows(name, number) for name in self.names}
            for name, table in tables.items():
                path = self.folder / name / f"_{number:05d}"
                pq.write_table(table, path)
                os.utime(path, (10**9 + number, 10**9 + number))
                path.rename(path.with_name(f"{number:05d}.parquet"))
            self.batches.append(tables)

    def _rows(self, name, number):
        times = self.random.integers(0, 30, 25) + 30 * number
        keys = [int(k) if k else None for k in self.random.integers(0, 8, 25)]
        return pa.table({"ts": times, "k": keys, "v": [f"{name}{number}-{i}" for i in range(25)]}, SCHEMA)

    def frames(self, spark):
        return {
            name: spark.readStream.schema("ts long, k long, v string")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.folder / name))
            for name in self.names
        }

    def whole(self):
        return {name: pa.concat_tables([batch[name] for batch in self.batches]) for name in self.names}


@pytest.mark.parametrize("cells, sequence", [(1, WAYS), (2, WAYS[2:4])])
def test_every_strategy_with_a_restart_in_its_middle(spark, tmp_path, cells, sequence):
    spark.conf.set("spark.sql.shuffle.partitions", cells)
    feed = Feed(tmp_path / "in")

    def start():
        live = ContinuousQuery(TEXT, STREAMS).run_on_spark(
            feed.frames(spark), plan="(a b) c", cells=cells, control_dir=tmp_path / "control"
        )
        writer = live.results.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        return live, writer.start(str(tmp_path / "out"))

    feed.drop(2)
    live, running = start()
    running.processAllAvailable()
    assert any(line.startswith(f"{cells} cell") for line in live.explain().splitlines())
    for (strategy, options), order in zip(sequence, ORDERS, strict=False):
        live.migrate(order, strategy, **options)
        feed.drop()
        running.processAllAvailable()
        # In the middle of it: W is more than a batch, and the one before may not have ended either.
        running.stop()
        live, running = start()
        feed.drop()
        running.processAllAvailable()
        assert live.plan == live.query.plan(order)
    feed.drop(4)
    running.processAllAvailable()
    assert [migration.state for migration in live.history()] == ["completed"] * len(sequence)
    # What they did in processes that have ended is known, too.
    assert all(migration.seconds is not None for migration in live.history())
    assert not live.metrics()["migrating"]
    live.finish()
    running.processAllAvailable()
    metrics = live.metrics()
    running.stop()
    assert metrics["finished"]
    assert metrics["streams"] == {
        name: {
            "rows": 25 * len(feed.batches),
            "without_event_time": 0,
            "event_time_out_of_range": 0,
            "late": 0,
            "bad_messages": 0,
        }
        for name in "abc"
    }
    found = spark.read.parquet(str(tmp_path / "out")).toArrow()
    _check(found, feed)


def _check(found, feed):
    expected = join_intervals(TEXT, STREAMS, feed.whole())
    assert_same_bag(found.select(expected.column_names), expected)


def test_what_cannot_be_done_is_refused_and_the_query_goes_on(spark, tmp_path):
    spark.conf.set("spark.sql.shuffle.partitions", 1)
    feed = Feed(tmp_path / "in")
    feed.drop(2)
    query = ContinuousQuery(TEXT, STREAMS)
    live = query.run_on_spark(feed.frames(spark), control_dir=tmp_path / "control")
    writer = live.results.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    other = ContinuousQuery(TEXT.replace("a.k = b.k", "a.v = b.v"), STREAMS)
    for plan, strategy, options, error in [
        ("a (b x)", "jisc", {}, BadJoinOrder),
        (other.plan(), "jisc", {}, BadPlan),
        ("a (b c)", "jisk", {}, MigrationRefused),
        ("a (b c)", "gen-mig", {"variant": "coalesced"}, MigrationRefused),
        ("a (b c)", "jisc", {"fast": True}, MigrationRefused),
        ("a (b c)", "pause-drain-resume", {}, MigrationRefused),
    ]:
        with pytest.raises(error):
            live.migrate(plan, strategy, **options)
    assert live.history() == []
    for number, text in enumerate(NO_COMMANDS, 1):
        (tmp_path / "control" / "commands" / f"{number:08d}.json").write_text(text)
    (tmp_path / "control" / "commands" / "notes.json").write_text(NO_COMMANDS[-1])
    assert live.migrate(query.plan()).number == len(NO_COMMANDS) + 1
    live.run_to_end(writer.option("path", str(tmp_path / "out")))
    assert [migration.state for migration in live.history()] == ["unchanged"]
    with pytest.raises(FinishedRun):
        live.migrate("a (b c)")
    _check(spark.read.parquet(str(tmp_path / "out")).toArrow(), feed)


def test_commands_are_obeyed_by_the_query_they_were_given_to(spark, tmp_path):
    """By its checkpoint: a new one begins anew, whatever an old control directory holds; and the other way round."""
    spark.conf.set("spark.sql.shuffle.partitions", 1)
    feed = Feed(tmp_path / "in")
    feed.drop(2)

    def started(checkpoint):
        live = ContinuousQuery(TEXT, STREAMS).run_on_spark(feed.frames(spark), control_dir=tmp_path / "control")
        writer = live.results.writeStream.format("parquet").option("path", str(tmp_path / f"{checkpoint} out"))
        return live, writer.option("checkpointLocation", str(tmp_path / checkpoint))

    def check(checkpoint):
        _check(spark.read.parquet(str(tmp_path / f"{checkpoint} out")).toArrow(), feed)

    live, writer = started("first")
    live.migrate("a (b c)")
    live.run_to_end(writer)
    check("first")
    # The end of the first is not the end of the second, which is stopped before its own.
    live, writer = started("second")
    running = writer.start()
    running.processAllAvailable()
    running.stop()
    assert not live.metrics()["finished"]
    assert live.plan == live.query.plan()
    # Its directory is lost. The new one numbers its commands from one again.
    shutil.rmtree(tmp_path / "control")
    feed.drop()
    live, writer = started("second")
    live.run_to_end(writer)
    assert live.metrics()["finished"]
    assert live.metrics()["streams"]["a"]["late"] == 0
    check("second")


def test_another_query_cannot_go_on_from_a_checkpoint(spark, tmp_path):
    spark.conf.set("spark.sql.shuffle.partitions", 1)
    feed = Feed(tmp_path / "in")
    feed.drop()

    def run(text, control):
        live = ContinuousQuery(text, STREAMS).run_on_spark(feed.frames(spark), control_dir=tmp_path / control)
        writer = live.results.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    run(TEXT, "control")
    feed.drop()
    other = TEXT.replace("a.k = b.k", "a.v = b.v")
    with pytest.raises(CheckpointMismatch, match=r"(?s)a query with another text.*a\.k = b\.k.*a\.v = b\.v"):
        run(other, "control")
    with pytest.raises(StreamingQueryException, match=r"\[M3005\] the checkpoint belongs to a query with another text"):
        run(other, "another")
    run(TEXT.replace("SELECT ", "SELECT  "), "control")
