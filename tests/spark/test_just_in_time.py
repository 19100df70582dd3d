"""Just-in-time processing on Spark: switched on and off by commands, with restarts and migrations in between."""

import pytest

from midstream import ContinuousQuery, JustInTime
from tests.spark.test_migrating import STREAMS, TEXT, Feed, _check


@pytest.mark.parametrize("cells", [1, 2])
def test_it_is_switched_in_every_cell_and_survives_restarts(spark, tmp_path, cells):
    spark.conf.set("spark.sql.shuffle.partitions", cells)
    feed = Feed(tmp_path / "in")

    def start():
        live = ContinuousQuery(TEXT, STREAMS).run_on_spark(
            feed.frames(spark),
            plan="(a b) c",
            cells=cells,
            control_dir=tmp_path / "control",
            just_in_time=JustInTime(least_share=0.0),
        )
        writer = live.results.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        return live, writer.start(str(tmp_path / "out"))

    def suspending():
        return any(operator["kind"] == "suspend" for operator in live.metrics()["operators"])

    feed.drop()
    live, running = start()
    running.processAllAvailable()
    assert suspending()
    running.stop()
    live, running = start()
    feed.drop()
    running.processAllAvailable()
    assert suspending()
    live.switch_just_in_time(False)
    feed.drop()
    running.processAllAvailable()
    assert not suspending()
    running.stop()
    # What was chosen last counts, not what the query began with.
    live, running = start()
    feed.drop()
    running.processAllAvailable()
    assert not suspending()
    live.switch_just_in_time(True)
    live.migrate("a (b c)", "gen-mig")
    feed.drop()
    running.processAllAvailable()
    assert suspending()
    feed.drop(2)
    running.processAllAvailable()
    live.finish()
    running.processAllAvailable()
    running.stop()
    _check(spark.read.parquet(str(tmp_path / "out")).toArrow(), feed)
