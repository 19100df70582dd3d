"""A query on Spark that replaces its own plan."""

import numpy as np
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.adaptation import Adaptation
from midstream.errors import BadOption, NotStreaming
from midstream.planning.cost import CostCoefficients
from midstream.runtime.remote import RemoteQuery
from midstream.testing import assert_same_bag, join_intervals
from tests.spark.feeding import Feed

COLUMNS = {"a": ["x"], "b": ["x", "y"], "c": ["y"]}
STREAMS = [
    Stream(name, pa.schema([(column, pa.int64()) for column in ("ts", "id", *columns)]), event_time="ts")
    for name, columns in COLUMNS.items()
]
TEXT = (
    "SELECT a.id AS i, b.id AS j, c.id AS k FROM a [RANGE 40], b [RANGE 40], c [RANGE 40] WHERE a.x = b.x AND b.y = c.y"
)
POLICY = Adaptation(measure_every=0, measure_share=1e6, least_rows=100, regret=0, coefficients=CostCoefficients())


def rows(number: int) -> dict[str, pa.Table]:
    """A micro-batch: nearly every row of a finds partners in b, hardly any row of b finds one in c."""
    generator = np.random.default_rng(number)
    values = {"x": 3, "y": 400}
    return {
        stream.name: pa.table(
            {
                "ts": np.sort(generator.integers(0, 30, 100)) + 30 * number,
                "id": np.arange(100) + 100 * number,
                **{column: generator.integers(0, values[column], 100) for column in COLUMNS[stream.name]},
            },
            stream.schema,
        )
        for stream in STREAMS
    }


def test_a_bad_plan_is_replaced_once_and_a_restart_knows_why(spark, tmp_path):
    spark.conf.set("spark.sql.shuffle.partitions", 1)
    feed, fed = Feed(spark, tmp_path / "in", STREAMS), []

    def start(**options):
        live = ContinuousQuery(TEXT, STREAMS).run_on_spark(
            feed.frames(), plan="(a b) c", cells=1, control_dir=tmp_path / "control", **options
        )
        writer = live.results.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        return live, writer.start(str(tmp_path / "out"))

    def work(running):
        fed.append(rows(len(fed)))
        feed.drop(fed[-1])
        running.processAllAvailable()

    live, running = start(adapt=POLICY)
    # What was decided takes effect with the next micro-batch, or the one after it.
    while live.plan == live.query.plan("(a b) c") and len(fed) < 30:
        work(running)
    running.stop()
    live.write_status()
    known = live.decisions()
    changed = [decision for decision in known if decision.outcome == "changed"]
    assert [decision.number for decision in known] == list(range(1, len(known) + 1))
    assert changed[0].plan == "a b c"
    assert {join.inputs for join in changed[0].joins if join.in_best} >= {("b", "c")}
    (first, *_) = live.history()
    assert first.decision == changed[0].number

    live, running = start()
    assert live.decisions()[: len(known)] == known
    for _ in range(3):
        work(running)
    # The driver decides when the figures of a micro-batch have arrived, which may be after its end.
    while len(live.decisions()) == len(known) and len(fed) < 60:
        work(running)
    assert len(RemoteQuery(tmp_path / "control").adaptation()) >= len(live.decisions()) > len(known)
    assert live.history()[0].decision == changed[0].number
    live.write_status()
    statistics = live.statistics()
    assert [one.alias for one in statistics.streams] == [window.alias for window in live.plan.windows()]
    for one in statistics.streams:
        # A hundred rows in thirty ticks.
        assert (one.late_share, one.selectivity) == (0.0, 1.0)
        assert one.rate == pytest.approx(100 / 30, rel=0.2)
    assert next(live.query.plans(statistics=statistics)) is not None
    assert statistics.sizes is not None and "q-error" in live.query.explain(live.plan, statistics=statistics)
    assert statistics.hot_keys and all(keys.pairs > 0 for keys in statistics.hot_keys)
    assert RemoteQuery(tmp_path / "control").status().streams == statistics.streams
    live.finish()
    running.processAllAvailable()
    running.stop()
    whole = {stream.name: pa.concat_tables([batch[stream.name] for batch in fed]) for stream in STREAMS}
    expected = join_intervals(TEXT, STREAMS, whole)
    found = spark.read.parquet(str(tmp_path / "out")).toArrow().select(expected.column_names)
    assert expected.num_rows > 0
    assert_same_bag(found, expected)


def test_what_cannot_adapt_is_refused(spark, tmp_path):
    feed = Feed(spark, tmp_path / "in", STREAMS)
    feed.drop(rows(0))
    query = ContinuousQuery(TEXT, STREAMS)
    with pytest.raises(NotStreaming, match="adapt is for a query over streams"):
        query.run_on_spark(feed.frames(streaming=False), adapt="auto")
    assert query.run_on_spark(feed.frames(streaming=False), adapt="off").decisions() == []
    with pytest.raises(BadOption, match="adapt cannot be 'atuo'"):
        query.run_on_spark(feed.frames(), control_dir=tmp_path / "control", adapt="atuo")
    assert not (tmp_path / "control").exists()
