"""Migrations on Spark of queries whose operators are final up to different instants, each with a restart in its middle.

The sink's rows are compared with the oracle's snapshots: a row that a successor repeats or leaves out differs there.
``test_sliding_cells.py`` runs the same queries without Spark, many times.
"""

import os
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream import ContinuousQuery
from midstream.testing import assert_snapshot_equivalent, snapshots
from tests.spark.sliding import AHEAD, BETWEEN, QUERIES, STREAMS, micro_batches
from tests.strategies import ways

SEQUENCE = ways(
    "jisc",
    "moving-state",
    "coalesce",
    # From here on the migration before has not ended.
    "jisc",
    "coalesce, shortened",
    "positive-negative",
    "moving-state",
)
SHORT = [*SEQUENCE[:3], SEQUENCE[-1]]
CASES = {
    "distinct over an aggregate and streams": (1, SEQUENCE),
    "union of an aggregate and a join": (2, SHORT),
    "difference over a distinct": (1, SHORT),
}
"""How many cells, and which migrations."""
SEED = 1


class RestartedQuery:
    """A query on Spark with a parquet sink, its input, and everything that outlives it."""

    def __init__(self, spark, folder, name, cells=1, ends=BETWEEN):
        spark.conf.set("spark.sql.shuffle.partitions", cells)
        self.spark, self.folder, self.cells = spark, folder, cells
        self.query = ContinuousQuery(QUERIES[name], STREAMS)
        self.plans = list(islice(self.query.plans(), 12))
        self.ends, self.batches = ends, micro_batches(40, SEED, ends)
        self.dropped = 0
        for stream in STREAMS:
            (folder / stream.name).mkdir()
        self.drop()
        self.start()

    def start(self):
        frames = {
            stream.name: self.spark.readStream.schema("ts long, k long, v long")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.folder / stream.name))
            for stream in STREAMS
        }
        self.live = self.query.run_on_spark(
            frames, plan=self.plans[0], cells=self.cells, control_dir=self.folder / "control"
        )
        writer = self.live.results.writeStream.format("parquet")
        self.running = writer.option("checkpointLocation", str(self.folder / "checkpoint")).start(
            str(self.folder / "out")
        )
        self.running.processAllAvailable()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.running.stop()

    def restart(self):
        self.running.stop()
        self.start()

    def drop(self, count=1):
        """Write the next micro-batches' files."""
        for number in range(self.dropped, self.dropped + count):
            for name, table in self.batches[number].items():
                path = self.folder / name / f"_{number:05d}"
                pq.write_table(table, path)
                os.utime(path, (10**9 + number, 10**9 + number))
                path.rename(path.with_name(f"{number:05d}.parquet"))
        self.dropped += count

    def work(self, count=1):
        """Micro-batches; the watermark is then at the last one's end."""
        self.drop(count)
        self.running.processAllAvailable()
        assert self.live.metrics()["watermark"] == self.ends[self.dropped - 1]

    def migrate(self, strategy, options=()):
        """Change to the plan after the one in force."""
        place = self.plans.index(self.live.plan)
        self.live.migrate(self.plans[(place + 1) % len(self.plans)], strategy, **dict(options))

    def states(self):
        return [migration.state for migration in self.live.history()]

    def finish(self):
        self.live.finish()
        self.running.processAllAvailable()
        finished = self.live.metrics()
        self.running.stop()
        assert finished["finished"]
        assert all(counts["late"] == 0 for counts in finished["streams"].values())
        found = self.spark.read.parquet(str(self.folder / "out")).toArrow()
        read = self.batches[: self.dropped]
        whole = {stream.name: pa.concat_tables([batch[stream.name] for batch in read]) for stream in STREAMS}
        assert_snapshot_equivalent(found, snapshots(self.query.text, STREAMS, whole))


@pytest.mark.parametrize("name", CASES)
def test_every_strategy_between_slides_with_a_restart_in_its_middle(spark, tmp_path, name):
    cells, sequence = CASES[name]
    with RestartedQuery(spark, tmp_path, name, cells) as run:
        assert run.live.metrics()["watermark"] == BETWEEN[0]
        for strategy, options in sequence:
            run.migrate(strategy, options)
            run.work()
            run.restart()
            run.work()
        run.work(6)
        states = run.states()
        run.finish()
    assert states == ["completed"] * len(sequence)


def test_an_aggregate_that_is_ahead_is_replaced_when_the_other_rows_have_caught_up(spark, tmp_path):
    """Between two slides it has emitted what another one cannot know yet; gen-mig does not need to."""
    with RestartedQuery(spark, tmp_path, AHEAD, ends=[*BETWEEN[:4], 20, *BETWEEN[5:]]) as run:
        for strategy in ("jisc", "moving-state"):
            run.migrate(strategy)
            run.work()
        assert run.states() == ["refused", "refused"]
        run.restart()
        run.work(2)
        assert run.live.metrics()["watermark"] == 20
        for strategy in ("jisc", "gen-mig"):
            run.migrate(strategy)
            run.work()
            run.restart()
        run.work(6)
        states = run.states()
        run.finish()
    assert states == ["refused", "refused", "completed", "completed"]
