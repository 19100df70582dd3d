"""The Delta sink on a real Spark: every result once, whatever dies between the files and the commits."""

from __future__ import annotations

import shutil

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from midstream import ContinuousQuery, Stream
from midstream.delta.commits import TableWriter, commit_backfill
from midstream.errors import BadOption, TableConflict, TableMismatch
from midstream.spark import delta_sink
from midstream.testing import assert_same_bag, join_intervals
from tests.delta.object_store import ObjectStore
from tests.spark.feeding import Feed

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64()})
STREAMS = [Stream(name, SCHEMA, "ts") for name in "ab"]
TEXT = "SELECT a.ts AS x, b.ts AS y, a.k AS k FROM a [RANGE 20], b [RANGE 20] WHERE a.k = b.k"


def batch(number):
    random = np.random.default_rng(number)
    rows = {name: np.sort(random.integers(number * 50, number * 50 + 50, 40)) for name in "ab"}
    return {name: pa.table({"ts": rows[name], "k": random.integers(0, 5, 40)}, SCHEMA) for name in "ab"}


def expected(batches):
    tables = {name: pa.concat_tables(batch(number)[name] for number in range(batches)) for name in "ab"}
    return join_intervals(TEXT, STREAMS, tables)


def results(path, **options):
    return DeltaTable(path, **options).to_pyarrow_table()


def files_on_disk(path):
    return {file.name for file in path.rglob("midstream-*.parquet")}


def files_in_table(path):
    return {uri.rpartition("/")[2] for uri in DeltaTable(path).file_uris()}


class Killed(Exception):
    """Stands for the death of the driver."""


@pytest.fixture
def feed(spark, tmp_path):
    return Feed(spark, tmp_path / "in", STREAMS)


def live_query(feed, tmp_path, cells=1):
    return ContinuousQuery(TEXT, STREAMS).run_on_spark(feed.frames(), control_dir=tmp_path / "control", cells=cells)


def test_every_result_is_in_the_table_once_though_drivers_die_around_the_commit(feed, tmp_path, monkeypatch):
    path, checkpoint = tmp_path / "t", tmp_path / "checkpoint"
    commit = TableWriter.commit

    def run(at_commit=commit, batches=()):
        monkeypatch.setattr(TableWriter, "commit", at_commit)
        feed.drop(*batches)
        running = live_query(feed, tmp_path).write_delta(path, checkpoint, partition_by=["k"])
        try:
            running.processAllAvailable()
        finally:
            running.stop()

    def killed_before(self, number, files):
        if number == 1:
            raise Killed
        return commit(self, number, files)

    def killed_after(self, number, files):
        made = commit(self, number, files)
        if number == 2:
            raise Killed
        return made

    with pytest.raises(Exception, match="Killed"):
        run(killed_before, [batch(0), batch(1)])
    left = files_on_disk(path) - files_in_table(path)
    assert left, "files were written, and not committed"
    with pytest.raises(Exception, match="Killed"):
        run(killed_after, [batch(2)])
    assert DeltaTable(path).version() == 3
    assert not left & files_on_disk(path), "the next driver has removed them"
    run(commit, [batch(3)])
    assert_same_bag(results(path), expected(4))
    # The table was created, then there was a transaction for each micro-batch.
    assert DeltaTable(path).version() == 4
    assert DeltaTable(path).metadata().partition_columns == ["k"]


def test_cells_in_processes_of_their_own_write_their_files(feed, tmp_path):
    feed.drop(batch(0), batch(1))
    path = tmp_path / "t"
    live = live_query(feed, tmp_path, cells=2)
    live.run_to_end(live.delta_writer(path, tmp_path / "checkpoint"))
    assert_same_bag(results(path), expected(2))
    assert {name.split("-")[4] for name in files_in_table(path)} == {"0", "1"}
    assert files_on_disk(path) == files_in_table(path)


def test_a_second_query_on_the_same_table_is_refused_and_the_first_goes_on(feed, tmp_path):
    feed.drop(batch(0))
    path = tmp_path / "t"
    live = live_query(feed, tmp_path)
    running = live.write_delta(path, tmp_path / "checkpoint")
    try:
        running.processAllAvailable()
        other = live_query(feed, tmp_path / "other")
        with pytest.raises(TableConflict, match=r"another query writes to the table .* \(pid"):
            other.write_delta(path, tmp_path / "other checkpoint")
        feed.drop(batch(1))
        running.processAllAvailable()
    finally:
        running.stop()
    assert_same_bag(results(path), expected(2))
    # Once it has ended, another may go on in its place at once.
    other.delta_writer(path, tmp_path / "other checkpoint")


def test_results_go_to_an_object_store(feed, tmp_path, monkeypatch):
    commit = TableWriter.commit

    def killed_before(self, number, files):
        if number == 1:
            raise Killed
        return commit(self, number, files)

    with ObjectStore() as store:
        place = store.place()
        for number, at_commit in enumerate((commit, killed_before, commit)):
            monkeypatch.setattr(TableWriter, "commit", at_commit)
            feed.drop(batch(number))
            checkpoint, options = tmp_path / "checkpoint", place.storage_options
            running = live_query(feed, tmp_path).write_delta(place.address, checkpoint, storage_options=options)
            try:
                running.processAllAvailable()
            except StreamingQueryException:
                assert at_commit is killed_before
            finally:
                running.stop()
        assert_same_bag(results(place.address, storage_options=place.storage_options), expected(3))


def test_what_cannot_work_is_refused_before_anything_runs(feed, tmp_path):
    live = live_query(feed, tmp_path)
    with pytest.raises(BadOption, match="needs a checkpoint"):
        live.write_delta(tmp_path / "t")
    with pytest.raises(BadOption, match="application is for batch DataFrames"):
        live.write_delta(tmp_path / "t", tmp_path / "checkpoint", application="x")
    with pytest.raises(BadOption, match='partition column "z"'):
        live.write_delta(tmp_path / "t", tmp_path / "checkpoint", partition_by=["z"])
    for wrong in ({"partition_by": None}, {"properties": "x=y"}, {"storage_options": 3}):
        with pytest.raises(BadOption, match=f"{next(iter(wrong))} is "):
            live.write_delta(tmp_path / "t", tmp_path / "checkpoint", **wrong)
    assert not (tmp_path / "t").exists()
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").touch()
    with pytest.raises(TableMismatch, match="there is no table"):
        live.write_delta(tmp_path / "t", tmp_path / "checkpoint")


def test_a_backfill_is_written_once(feed, tmp_path):
    feed.drop(batch(0), batch(1))
    path = tmp_path / "t"
    live = ContinuousQuery(TEXT, STREAMS).run_on_spark(feed.frames(streaming=False), cells=2)
    for _ in range(2):
        live.write_delta(path, application="before March")
    assert_same_bag(results(path), expected(2))
    assert DeltaTable(path).version() == 1
    assert files_on_disk(path) == files_in_table(path)
    with pytest.raises(BadOption, match="checkpoint is for streams"):
        live.write_delta(path, tmp_path / "checkpoint")


def test_a_writer_is_started_once(feed, tmp_path):
    feed.drop(batch(0))
    writer = live_query(feed, tmp_path).delta_writer(tmp_path / "t", tmp_path / "checkpoint")
    running = writer.start()
    running.processAllAvailable()
    running.stop()
    feed.drop(batch(1))
    again = writer.start()
    with pytest.raises(StreamingQueryException, match="was started twice"):
        again.processAllAvailable()


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_table_that_is_replaced_before_the_first_micro_batch_is_not_written_to(feed, tmp_path, is_made_again):
    path = tmp_path / "t"
    writer = live_query(feed, tmp_path).delta_writer(path, tmp_path / "checkpoint")
    shutil.rmtree(path)
    if is_made_again:
        DeltaTable.create(path, schema=pa.schema({"other": pa.int64()}))
    feed.drop(batch(0))
    running = writer.start()
    with pytest.raises(StreamingQueryException, match="was removed or replaced after the query was started"):
        running.processAllAvailable()


def test_a_cell_in_a_process_of_its_own_says_what_storage_refuses(feed, tmp_path, monkeypatch):
    feed.drop(batch(0))
    path = tmp_path / "t"
    live = live_query(feed, tmp_path, cells=2)
    writer = live.delta_writer(path, tmp_path / "checkpoint", partition_by=["k"])
    for key in range(5):
        (path / f"k={key}").write_text("a file where a directory should be")
    running = writer.start()
    with pytest.raises(StreamingQueryException, match="cannot write files of the table"):
        running.processAllAvailable()


@pytest.mark.parametrize("application", [None, "before March"])
@pytest.mark.parametrize("is_written", [False, True])
def test_a_backfill_that_fails_leaves_no_files(feed, tmp_path, monkeypatch, application, is_written):
    feed.drop(batch(0))
    path = tmp_path / "t"
    live = ContinuousQuery(TEXT, STREAMS).run_on_spark(feed.frames(streaming=False), cells=1)

    def failing(*arguments):
        if is_written:
            commit_backfill(*arguments)
        raise Killed

    monkeypatch.setattr(delta_sink, "commit_backfill", failing)
    with pytest.raises(Killed):
        live.write_delta(path, application=application)
    assert len(files_on_disk(path)) == len(files_in_table(path)) == int(is_written)
    if is_written:
        assert_same_bag(results(path), expected(1))
