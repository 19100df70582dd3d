"""Streams of files that midstream reads itself: in order, the same ones in the same micro-batch after a restart."""

from __future__ import annotations

import datetime
import os
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from midstream import ContinuousQuery, Stream
from midstream.errors import BadOption, BadStreamDeclaration, MissingColumn, PathProblem, UnreadableFile
from midstream.planning.partitioning import partition
from midstream.runtime.file_reading import FileReading
from midstream.runtime.pack import Pack, StreamPacker
from midstream.spark import FileStream, cell_work
from midstream.spark.file_source import FileNamesReader, FilesToRead, PackedFilesReader, StreamFiles
from midstream.testing import assert_same_bag, join_intervals

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64()})
STREAMS = [Stream(name, SCHEMA, "ts") for name in "ab"]
TEXT = "SELECT a.ts AS x, b.ts AS y, a.k AS k FROM a [RANGE 20], b [RANGE 20] WHERE a.k = b.k"
DDL = "ts long, k long"


def rows(stream, number, count=40):
    random = np.random.default_rng([number, ord(stream)])
    times = np.sort(random.integers(number * 50, number * 50 + 50, count))
    return pa.table({"ts": times, "k": random.integers(0, 5, count)}, SCHEMA)


def drop(folder, name, table, modified=1_000_000_000):
    """A file that appears at once, with this modification time."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / f"_{name}")
    os.utime(folder / f"_{name}", ns=(modified, modified))
    os.rename(folder / f"_{name}", folder / name)


def drop_both(directory, name, number):
    """The rows with this number, as a file of each stream."""
    for stream in "ab":
        drop(directory / "in" / stream, name, rows(stream, number))


# Without Spark


def reader(tmp_path, limits=(None, None), text=TEXT, streams=STREAMS, cells=1, kind=PackedFilesReader):
    """As Spark gets it: in another process."""
    plan = ContinuousQuery(text, streams).plan()
    sources, packers = [], {}
    for place, (stream, limit) in enumerate(zip(streams, limits, strict=True)):
        windows = [window for window in plan.windows() if window.stream.name == stream.name]
        packers[place] = StreamPacker(windows, stream.schema.names, partition(plan, cells))
        sources.append(StreamFiles(place, stream.name, str(tmp_path / stream.name), limit))
    keys = [100 + cell for cell in range(cells)]
    setup = FilesToRead(sources, str(tmp_path / "logs"), keys, pickle.dumps(FileReading(packers)))
    return kind(pickle.loads(pickle.dumps(setup)))


def read(source, start, end):
    """Stream, event times and key of the cell of each pack, in the order in which the cell takes them."""
    packs = []
    for part in source.partitions(start, end):
        for table in source.read(part):
            for one in table.to_pylist():
                pack = Pack.of(one["blob"])
                packs.append((one["place"], one["cell"], pack.header.stream, pack.rows.column("__time").to_pylist()))
    return [pack[1:] for pack in sorted(packs)]


def test_files_with_equal_times_are_read_by_name(tmp_path):
    for number in (2, 0, 1):
        drop(tmp_path / "a", f"{number}.parquet", rows("a", number, 3))
    source = reader(tmp_path)
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    assert end["files"] == {"a": 3, "b": 0}
    assert [times for _, _, times in read(source, start, end)] == [rows("a", n, 3)["ts"].to_pylist() for n in range(3)]


def test_a_micro_batch_has_as_many_files_as_are_asked_for(tmp_path):
    for number in range(3):
        for stream in "ab":
            drop(tmp_path / stream, f"{number}.parquet", rows(stream, number))
    source = reader(tmp_path, limits=(2, None))
    start = source.initialOffset()
    limit = source.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxFiles)
    first = source.latestOffset(start, limit)
    assert first["files"] == {"a": 2, "b": 3}
    second = source.latestOffset(first, limit)
    assert second["files"] == {"a": 3, "b": 3}
    assert source.latestOffset(second, limit) == second
    assert source.partitions(second, second) == []
    assert source.latestOffset(start, ReadAllAvailable())["files"] == {"a": 3, "b": 3}
    assert isinstance(reader(tmp_path).getDefaultReadLimit(), ReadAllAvailable)


def test_a_query_over_what_is_there_does_not_take_what_comes_later(tmp_path):
    drop(tmp_path / "a", "0.parquet", rows("a", 0))
    source = reader(tmp_path)
    source.prepareForTriggerAvailableNow()
    first = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    drop(tmp_path / "a", "1.parquet", rows("a", 1))
    assert source.latestOffset(first, ReadAllAvailable()) == first


def test_a_new_process_reads_the_same_files_between_the_same_offsets(tmp_path):
    drop(tmp_path / "a", "5.parquet", rows("a", 5))
    source = reader(tmp_path)
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    before = read(source, start, end)
    drop(tmp_path / "a", "1.parquet", rows("a", 1), modified=1)
    again = reader(tmp_path)
    assert read(again, start, end) == before
    later = again.latestOffset(end, ReadAllAvailable())
    assert [times for _, _, times in read(again, end, later)] == [rows("a", 1)["ts"].to_pylist()]


def test_a_query_that_starts_anew_has_a_log_of_its_own(tmp_path):
    drop(tmp_path / "a", "0.parquet", rows("a", 0))
    source = reader(tmp_path)
    source.latestOffset(source.initialOffset(), ReadAllAvailable())
    os.remove(tmp_path / "a" / "0.parquet")
    drop(tmp_path / "a", "1.parquet", rows("a", 1))
    source = reader(tmp_path)
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    assert [times for _, _, times in read(source, start, end)] == [rows("a", 1)["ts"].to_pylist()]


def test_a_query_begins_at_the_same_offset_however_often_spark_asks(tmp_path):
    source = reader(tmp_path, kind=FileNamesReader)
    assert source.initialOffset() == source.initialOffset()


def test_every_cell_gets_a_pack_of_every_file_and_tasks_share_the_files(tmp_path):
    for number in range(4):
        drop(tmp_path / "a", f"{number}.parquet", rows("a", number))
    source = reader(tmp_path, cells=2)
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    assert [len(part.files) for part in source.partitions(start, end)] == [2, 2]
    packs = read(source, start, end)
    assert [cell for cell, _, _ in packs] == [100, 101] * 4
    assert sorted(t for _, _, times in packs for t in times) == sorted(
        t for number in range(4) for t in rows("a", number)["ts"].to_pylist()
    )


def test_columns_are_found_in_any_case_and_missing_ones_are_null(tmp_path):
    drop(tmp_path / "a", "0.parquet", pa.table({"TS": pa.array([1, 2], pa.int32()), "other": ["x", "y"]}))
    source = reader(tmp_path)
    start = source.initialOffset()
    (part,) = source.partitions(start, source.latestOffset(start, ReadAllAvailable()))
    (table,) = source.read(part)
    batch = Pack.of(table.to_pylist()[0]["blob"]).rows
    assert batch.column("k").to_pylist() == [None, None]
    assert batch.column("ts").to_pylist() == [1, 2]


def test_a_column_of_another_type_is_named_with_its_file(tmp_path):
    drop(tmp_path / "a", "0.parquet", pa.table({"ts": [1], "k": ["ten"]}))
    source = reader(tmp_path)
    start = source.initialOffset()
    (part,) = source.partitions(start, source.latestOffset(start, ReadAllAvailable()))
    with pytest.raises(BadStreamDeclaration, match=r'column "k" of ".*0.parquet" is not int64'):
        list(source.read(part))


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    for number in range(2):
        drop(tmp_path / "a", f"{number}.parquet", rows("a", number))
    source = reader(tmp_path)
    start = source.initialOffset()
    (part,) = source.partitions(start, source.latestOffset(start, ReadAllAvailable()))
    (tmp_path / "a" / "0.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    with pytest.raises(UnreadableFile, match=r"cannot read the file .*0\.parquet"):
        list(source.read(part))
    os.remove(tmp_path / "a" / "0.parquet")
    with pytest.raises(UnreadableFile, match=r"the file .*0\.parquet is gone"):
        list(source.read(part))


@pytest.mark.parametrize("int96", [False, True])
def test_instants_are_the_same_whatever_form_a_file_has_them_in(tmp_path, int96):
    schema = pa.schema({"ts": pa.timestamp("us", "UTC"), "k": pa.int64()})
    moment = datetime.datetime(2024, 5, 17, 12, 30, 1, 250_000, datetime.UTC)
    folder = tmp_path / "a"
    folder.mkdir()
    table = pa.table({"ts": pa.array([moment], pa.timestamp("us", "UTC")), "k": [1]})
    pq.write_table(table, folder / "0.parquet", use_deprecated_int96_timestamps=int96)
    text = "SELECT a.k FROM a [RANGE 20 seconds], b [RANGE 20 seconds] WHERE a.k = b.k"
    source = reader(tmp_path, text=text, streams=[Stream(name, schema, "ts") for name in "ab"])
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    assert read(source, start, end) == [(100, "a", [int(moment.timestamp() * 1_000_000)])]


def test_one_cell_is_given_the_files_that_tasks_would_read(tmp_path):
    for number in (2, 0, 1):
        for stream in "ab":
            drop(tmp_path / stream, f"{number}.parquet", rows(stream, number))
    packed, named = reader(tmp_path, (2, None)), reader(tmp_path, (2, None), kind=FileNamesReader)
    start = packed.initialOffset()
    end = packed.latestOffset(start, packed.getDefaultReadLimit())
    given, until = named.read(start)
    assert until == end
    given = list(given)
    assert given == list(reader(tmp_path, kind=FileNamesReader).readBetweenOffsets(start, end))
    found = [(pack.header.stream, pack.rows.column("__time").to_pylist()) for pack in as_the_cell_reads(packed, given)]
    assert found == [(stream, times) for _, stream, times in read(packed, start, end)]
    assert len(found) == 5
    rest, last = named.read(end)
    assert [os.path.basename(path) for _, _, _, path in rest] == [b"2.parquet"]
    assert list(named.read(last)[0]) == []
    named.prepareForTriggerAvailableNow()
    named.read(last)
    drop(tmp_path / "b", "3.parquet", rows("b", 3))
    assert named.read(last)[1] == last


def as_the_cell_reads(source, given):
    """The packs that the operator makes of rows that Spark carries, in whatever order they come."""
    frame = pd.DataFrame(given, columns=["cell", "kind", "place", "blob"]).sample(frac=1, random_state=1)
    commands, packs = cell_work._received(iter([frame]), pickle.loads(source._setup.reading))
    assert not commands
    return packs


# On Spark


def live_query(spark, tmp_path, text=TEXT, cells=1, limit=None):
    streams = {name: FileStream(spark, tmp_path / "in" / name, DDL, limit) for name in "ab"}
    return ContinuousQuery(text, STREAMS).run_on_spark(streams, control_dir=tmp_path / "control", cells=cells)


def work(live, tmp_path):
    running = (
        live.results.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        running.processAllAvailable()
    finally:
        running.stop()
    return running


def expected(numbers, text=TEXT):
    tables = {name: pa.concat_tables(rows(name, number) for number in numbers) for name in "ab"}
    return join_intervals(text, STREAMS, tables)


@pytest.mark.parametrize("cells", [1, 2])
def test_results_are_exact_through_restarts_and_a_change_of_plan(spark, tmp_path, cells):
    spark.conf.set("spark.sql.shuffle.partitions", cells)
    for number in range(3):
        for stream in "ab":
            drop(tmp_path / "in" / stream, f"{number}.parquet", rows(stream, number))
    running = work(live_query(spark, tmp_path, cells=cells, limit=1), tmp_path)
    assert len([p for p in running.recentProgress if p.numInputRows]) == 3
    for stream in "ab":
        # What was read is no longer needed.
        os.remove(tmp_path / "in" / stream / "0.parquet")
        drop(tmp_path / "in" / stream, "3.parquet", rows(stream, 3))
    live = live_query(spark, tmp_path, cells=cells)
    live.migrate("b a", "jisc")
    work(live, tmp_path)
    live.finish()
    work(live, tmp_path)
    assert_same_bag(pq.read_table(tmp_path / "out"), expected(range(4)))
    assert live.metrics()["streams"]["a"]["rows"] == 160


def test_a_micro_batch_that_is_run_again_has_the_same_files(spark, tmp_path):
    drop_both(tmp_path, "0.parquet", 0)
    work(live_query(spark, tmp_path), tmp_path)
    before = set((tmp_path / "out").glob("*.parquet"))
    drop_both(tmp_path, "2.parquet", 1)
    work(live_query(spark, tmp_path), tmp_path)
    # As if it had been killed before it wrote that the second one was through: in the checkpoint, and in the sink.
    for log in ("checkpoint/commits", "out/_spark_metadata"):
        for name in ("1", ".1.crc"):
            (tmp_path / log / name).unlink(missing_ok=True)
    for file in set((tmp_path / "out").glob("*.parquet")) - before:
        file.unlink()
    for stream in "ab":
        # It comes first by its name, but later.
        drop(tmp_path / "in" / stream, "1.parquet", rows(stream, 2))
    live = live_query(spark, tmp_path)
    live.finish()
    work(live, tmp_path)
    assert_same_bag(pq.read_table(tmp_path / "out"), expected(range(3)))
    assert live.metrics()["streams"]["a"]["rows"] == 120
    assert live.metrics()["streams"]["a"]["late"] == 0


def test_a_file_that_the_cell_cannot_read_fails_the_query_and_nothing_else(spark, tmp_path):
    drop_both(tmp_path, "0.parquet", 0)
    work(live_query(spark, tmp_path), tmp_path)
    (tmp_path / "in" / "a" / "1.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    with pytest.raises(StreamingQueryException, match=r"cannot read the file .*1\.parquet"):
        work(live_query(spark, tmp_path), tmp_path)
    os.remove(tmp_path / "in" / "a" / "1.parquet")
    drop_both(tmp_path, "1.parquet", 1)
    live = live_query(spark, tmp_path)
    live.finish()
    work(live, tmp_path)
    assert_same_bag(pq.read_table(tmp_path / "out"), expected(range(2)))


def test_rows_that_no_window_wants_stay_behind_and_count_for_the_watermark(spark, tmp_path):
    text = f"{TEXT} AND a.k = 1 AND a.ts % 2 = 0"
    drop_both(tmp_path, "0.parquet", 0)
    live = live_query(spark, tmp_path, text)
    live.finish()
    work(live, tmp_path)
    assert_same_bag(pq.read_table(tmp_path / "out"), expected([0], text))
    assert live.metrics()["streams"]["a"]["rows"] == 40


def test_a_stream_of_files_beside_one_that_spark_reads(spark, tmp_path):
    drop_both(tmp_path, "0.parquet", 0)
    frames = {
        "a": FileStream(spark, tmp_path / "in" / "a"),
        "b": spark.readStream.schema(DDL).parquet(str(tmp_path / "in" / "b")),
    }
    live = ContinuousQuery(TEXT, STREAMS).run_on_spark(frames, control_dir=tmp_path / "control", cells=1)
    live.finish()
    work(live, tmp_path)
    assert_same_bag(pq.read_table(tmp_path / "out"), expected([0]))


def test_a_stream_without_files_needs_a_schema(spark, tmp_path):
    with pytest.raises(PathProblem, match="there are no files"):
        FileStream(spark, tmp_path / "nowhere")
    for wrong in (0, True, "3"):
        with pytest.raises(BadStreamDeclaration, match="files_per_batch is"):
            FileStream(spark, tmp_path, DDL, wrong)
    with pytest.raises(BadStreamDeclaration, match="the schema of a stream of files is"):
        FileStream(spark, tmp_path, {"ts": "long"})
    for wrong in (None, "", Path("s3://bucket/in")):
        with pytest.raises(BadOption, match="of a stream of files"):
            FileStream(spark, wrong, DDL)


@pytest.mark.parametrize("cells", [1, 2])
def test_from_delta_tables_to_a_delta_table_through_a_restart(spark, tmp_path, cells):
    spark.conf.set("spark.sql.shuffle.partitions", cells)
    for number in range(4):
        for stream in "ab":
            write_deltalake(tmp_path / stream, rows(stream, number), mode="append")
        if number % 2 == 0:
            # Not part of the tables.
            drop(tmp_path / "a", "orphan.parquet", rows("a", 7))
            continue
        frames = {stream: FileStream(spark, tmp_path / stream, files_per_batch=1) for stream in "ab"}
        live = ContinuousQuery(TEXT, STREAMS).run_on_spark(frames, control_dir=tmp_path / "control", cells=cells)
        running = live.write_delta(tmp_path / "out", tmp_path / "checkpoint")
        try:
            running.processAllAvailable()
            if number == 3:
                live.finish()
                running.processAllAvailable()
        finally:
            running.stop()
    assert_same_bag(DeltaTable(tmp_path / "out").to_pyarrow_table(), expected(range(4)))


def test_a_query_does_not_read_what_it_writes(spark, tmp_path):
    for stream in "ab":
        write_deltalake(tmp_path / stream, rows(stream, 0))
    frames = {stream: FileStream(spark, tmp_path / stream) for stream in "ab"}
    live = ContinuousQuery(TEXT, STREAMS).run_on_spark(frames, control_dir=tmp_path / "control")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for path in (tmp_path / "link", (tmp_path / "a").as_uri()):
        with pytest.raises(BadOption, match='stream "a" reads the table'):
            live.write_delta(path, tmp_path / "checkpoint")
    with pytest.raises(BadOption, match="the path of a table is None"):
        live.write_delta(None, tmp_path / "checkpoint")


def test_an_empty_table_has_columns(spark, tmp_path):
    DeltaTable.create(tmp_path / "a", schema=SCHEMA)
    assert FileStream(spark, tmp_path / "a").schema.names == ["ts", "k"]


def test_columns_that_a_table_does_not_have_are_refused(spark, tmp_path):
    """They would be NULL; of loose files, some may have a column and others not."""
    DeltaTable.create(tmp_path / "a", schema=SCHEMA)
    assert FileStream(spark, tmp_path / "a", "K long").schema.names == ["K"]
    with pytest.raises(MissingColumn, match=r'(?s)column "kk" is not in the table.*Did you mean "k"'):
        FileStream(spark, tmp_path / "a", "ts long, kk long")


def test_a_table_from_which_rows_are_deleted_ends_the_query(spark, tmp_path):
    for stream in "ab":
        write_deltalake(tmp_path / stream, rows(stream, 0))
    frames = {stream: FileStream(spark, tmp_path / stream) for stream in "ab"}
    live = ContinuousQuery(TEXT, STREAMS).run_on_spark(frames, control_dir=tmp_path / "control")
    work(live, tmp_path)
    DeltaTable(tmp_path / "a").delete("k = 1")
    with pytest.raises(StreamingQueryException, match="were deleted or changed, by version 1"):
        work(live, tmp_path)


@pytest.mark.parametrize("url", ["s3://bucket/in", "hdfs://host/in"])
def test_files_elsewhere_are_for_spark(spark, url):
    with pytest.raises(BadStreamDeclaration, match="cannot read files of"):
        FileStream(spark, url, DDL)


def test_a_path_may_be_a_url_or_have_characters_of_patterns(spark, tmp_path):
    drop(tmp_path / "a [1]", "0.parquet", rows("a", 0))
    assert FileStream(spark, tmp_path / "a [1]").schema.names == ["ts", "k"]
    assert FileStream(spark, f"file://{tmp_path}/a%20[1]").path == str(tmp_path / "a [1]")
