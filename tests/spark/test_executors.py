"""Multi-way joins, eddies and STAIRs on Spark: migrated into each other, each with a restart in its middle."""

import pytest

from midstream import ContinuousQuery
from tests.spark.test_migrating import STREAMS, TEXT, Feed, _check

CHANGES = [
    ("{a b c}", "jisc"),
    ("{a b c}:eddy", "gen-mig"),
    ("a {b c}:stairs", "moving-state"),
    ("{a b c}:eager-stairs", "parallel-track"),
    ("(a c) b", "jisc"),
    ("{c a b}", "gen-mig"),
]


@pytest.mark.parametrize("cells, changes", [(1, CHANGES), (2, CHANGES[1:3])])
def test_executors_change_into_each_other_with_restarts(spark, tmp_path, cells, changes):
    spark.conf.set("spark.sql.shuffle.partitions", cells)
    feed = Feed(tmp_path / "in")
    query = ContinuousQuery(TEXT, STREAMS)

    def start():
        live = query.run_on_spark(feed.frames(spark), plan="(a b) c", cells=cells, control_dir=tmp_path / "control")
        writer = live.results.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        return live, writer.start(str(tmp_path / "out"))

    feed.drop(2)
    live, running = start()
    running.processAllAvailable()
    for order, strategy in changes:
        live.migrate(order, strategy)
        feed.drop()
        running.processAllAvailable()
        running.stop()
        live, running = start()
        feed.drop()
        running.processAllAvailable()
        assert live.plan == query.plan(order)
    feed.drop(3)
    running.processAllAvailable()
    assert [migration.state for migration in live.history()] == ["completed"] * len(changes)
    live.finish()
    running.processAllAvailable()
    running.stop()
    _check(spark.read.parquet(str(tmp_path / "out")).toArrow(), feed)
