"""J4 in native Spark Structured Streaming: the baseline that midstream on Spark is compared with.

The query of ``benchmarks.j4`` as stream-stream joins with watermarks, written and set up to be as fast as we could make
it: the joins in the form of a tree, (a ⋈ b) ⋈ (c ⋈ d), the key carried once, no time kept twice. Three things decide
what the query looks like:

- Spark refuses a second join whose input has two event-time columns (MULTIPLE_EVENT_TIME_COLUMNS). After each join the
  time of the right side becomes a plain long; the first stream's stays the event time.
- The time range between the two event-time columns of a join is what lets Spark clean up. All other pairs of a join are
  plain conditions. Each of the six pairs of J4 is compared in exactly one join.
- Event times are ``ts + 1`` milliseconds. The watermark is 0 before the first batch, and Spark drops rows that are not
  later than it: with ``ts`` as it is, those with ts = 0, and with them 16 of the 4,175,937 results of the small size.
  With the shift the results are exactly DuckDB's. No delay is needed: a batch begins after all earlier ones have ended.

How far Spark cleans up depends on the shape: the watermark a join passes on is W behind its own, so rows stay for W in
the first join, 2 W in the next, 3 W in the third of a chain. The tree has only two levels, and stores no triples.

Run alone: ``.venv/bin/python -m benchmarks.spark_native_j4 --size small --sink noop``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.j4 import SIZES, STREAMS, Size, connect, duckdb_sql, make_batches
from midstream.spark.java import provide_java

__all__ = [
    "FASTEST",
    "NativeBatch",
    "NativeSettings",
    "expected_results",
    "local_session",
    "run_native",
    "state_bytes_written",
    "write_input",
]

LARGE_BATCHES = 12
"""Batches of the large size here: enough that state of 2 W + W is both filled and dropped."""

_FIRST_MODIFIED = 1_700_000_000
"""Modification time of the first input file (seconds): the file source reads in this order, not by name."""

_STATE = "org.apache.spark.sql.execution.streaming.state"
_PROVIDERS = {"hdfs": f"{_STATE}.HDFSBackedStateStoreProvider", "rocksdb": f"{_STATE}.RocksDBStateStoreProvider"}
FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Writes checkpoints without starting processes, unlike the default on a local file system."""


@dataclass(frozen=True)
class NativeSettings:
    """How the native query is written and run.

    ``format_version`` is that of the joins' state: 2 is Spark's default, 3 and 4 need RocksDB.
    """

    provider: Literal["hdfs", "rocksdb"] = "hdfs"
    partitions: int = 2
    format_version: int = 2
    shape: Literal["tree", "chain"] = "tree"

    def configuration(self) -> dict[str, str]:
        """The settings of a Spark session."""
        streaming = "spark.sql.streaming"
        return {
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": str(self.partitions),
            f"{streaming}.stateStore.providerClass": _PROVIDERS[self.provider],
            f"{streaming}.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
            f"{streaming}.join.stateFormatVersion": str(self.format_version),
            f"{streaming}.checkpointFileManagerClass": FILE_MANAGER,
            f"{streaming}.multipleWatermarkPolicy": "min",
            f"{streaming}.numRecentProgressUpdates": "10000",
        }


FASTEST = NativeSettings()
"""The fastest of those tried on J4 small into noop, in one process with little other load (one run each: trust the
order only).

Seconds as tree: HDFS-backed 21, RocksDB with format version 4 34, with 2 50, with 3 110 (perhaps disturbed). As chain:
HDFS-backed 48 (cold), RocksDB with 4 56, with 2 78, with 3 87. On a busy machine one partition took 181 s and two took
138 s, for about the same processor time. Not compared: the large size.
"""


@dataclass(frozen=True)
class NativeBatch:
    """What one micro-batch took and left behind.

    ``results`` are the rows given to the sink. ``state_rows`` counts rows in the state of all joins; format version 4
    counts otherwise. ``state_bytes`` is what was written for this batch below the checkpoint's state directory.
    """

    batch: int
    input_rows: int
    milliseconds: int
    results: int
    state_rows: int
    state_bytes: int

    @property
    def is_no_data(self) -> bool:
        """Whether Spark ran it only to move the watermark on (at the end of the input)."""
        return self.input_rows == 0


def local_session(
    memory: str = "8g", master: str = "local[2]", configuration: Mapping[str, str] | None = None
) -> SparkSession:
    """A quiet Spark session on this machine; its Python workers run in this environment."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    provide_java()
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(configuration or {}),
    }
    builder = SparkSession.builder.master(master).appName("midstream benchmarks")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def write_input(size: Size, directory: str | Path) -> dict[str, Path]:
    """Write J4's input as parquet, one directory per stream, one file per batch; the directories by stream.

    For another number of batches: ``write_input(replace(SIZES["large"], batches=12, results=None), directory)``.
    """
    directories = {stream: Path(directory) / stream for stream in STREAMS}
    for number, batch in enumerate(make_batches(size)):
        for stream, table in batch.items():
            directories[stream].mkdir(parents=True, exist_ok=True)
            path = directories[stream] / f"{number:05}.parquet"
            pq.write_table(table, path)
            modified = _FIRST_MODIFIED + number
            os.utime(path, (modified, modified))
    return directories


def expected_results(size: Size) -> int:
    """How many results the input of this size gives: the known number, or DuckDB's."""
    if size.results is not None:
        return size.results
    database = connect(make_batches(size))
    ((count,),) = database.execute(f"SELECT count(*) FROM ({duckdb_sql(size)})").fetchall()
    database.close()
    return int(count)


@dataclass(frozen=True)
class _Side:
    """One input of a join: of the first of its streams the event time is kept, of the others a long."""

    rows: DataFrame
    streams: tuple[str, ...]

    def event_time(self) -> Column:
        return F.col(f"{self.streams[0]}_time")

    def key(self) -> Column:
        return F.col(f"{self.streams[0]}_k")

    def milliseconds(self, stream: str) -> Column:
        return F.unix_millis(self.event_time()) if stream == self.streams[0] else F.col(f"{stream}_ms")


def _read(spark: SparkSession, stream: str, directory: str | Path, files_per_batch: int | None) -> _Side:
    """One stream, so many files per micro-batch, or all there are."""
    reader = spark.readStream.schema("ts long, k long, v double")
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_batch)
    rows = reader.parquet(str(directory))
    event_time = F.timestamp_millis(F.col("ts") + 1).alias(f"{stream}_time")
    named = rows.select(event_time, F.col("k").alias(f"{stream}_k"), F.col("v").alias(f"{stream}_v"))
    return _Side(named.withWatermark(f"{stream}_time", "0 seconds"), (stream,))


def _join(left: _Side, right: _Side, window: int) -> _Side:
    """Rows with equal keys, all pairs across both sides within the window; event time and key are the left side's."""
    interval = F.expr(f"INTERVAL '{window / 1000:.3f}' SECOND")
    condition = (
        (left.key() == right.key())
        & (right.event_time() >= left.event_time() - interval)
        & (right.event_time() <= left.event_time() + interval)
    )
    for one in left.streams:
        for other in right.streams:
            if (one, other) != (left.streams[0], right.streams[0]):
                condition &= F.abs(left.milliseconds(one) - right.milliseconds(other)) <= window
    first = right.streams[0]
    dropped = {f"{first}_time", f"{first}_k"}
    joined = left.rows.join(right.rows, condition)
    kept = [F.col(name) for name in joined.columns if name not in dropped]
    return _Side(
        joined.select(*kept, F.unix_millis(f"{first}_time").alias(f"{first}_ms")), left.streams + right.streams
    )


def native_query(
    spark: SparkSession,
    input_dirs: Mapping[str, str | Path],
    window: int,
    shape: Literal["tree", "chain"] = "tree",
    order: str = STREAMS,
    files_per_batch: int | None = 1,
) -> DataFrame:
    """J4 as native joins of the streams in some order: the twelve columns of ``benchmarks.j4``, in its own order.

    A chain may have fewer streams.
    """
    sides = [_read(spark, stream, input_dirs[stream], files_per_batch) for stream in order]
    if shape == "tree":
        a, b, c, d = sides
        joined = _join(_join(a, b, window), _join(c, d, window), window)
    else:
        joined = reduce(lambda left, right: _join(left, right, window), sides)
    columns = []
    for stream in sorted(order):
        columns += [
            (joined.milliseconds(stream) - 1).alias(f"{stream}_ts"),
            joined.key().alias(f"{stream}_k"),
            F.col(f"{stream}_v"),
        ]
    return joined.rows.select(*columns)


def run_native(
    spark: SparkSession,
    input_dirs: Mapping[str, str | Path],
    window: int,
    sink: Literal["noop", "parquet"],
    checkpoint_dir: str | Path,
    output_dir: str | Path | None = None,
    *,
    settings: NativeSettings = FASTEST,
    timeout_seconds: float = 3600,
) -> list[NativeBatch]:
    """Run J4 over all input there is; the micro-batches in order, the last one without data.

    After the timeout the query is stopped, and the batches that were finished until then are given. The given session's
    settings stay as they are: the query runs in a session of its own on the same Spark. State of a finished query stays
    in memory for up to a minute, so measure one run per process.
    """
    session = spark.newSession()
    for key, value in settings.configuration().items():
        session.conf.set(key, value)
    rows = native_query(session, input_dirs, window, settings.shape)
    writer = rows.writeStream.format(sink).option("checkpointLocation", str(checkpoint_dir)).outputMode("append")
    if sink == "parquet":
        if output_dir is None:
            raise ValueError("the parquet sink needs an output_dir")
        writer = writer.option("path", str(output_dir))
    query = writer.trigger(availableNow=True).start()
    if not query.awaitTermination(timeout_seconds):
        query.stop()
    written = state_bytes_written(checkpoint_dir)
    results = _rows_per_batch(Path(output_dir)) if sink == "parquet" and output_dir is not None else None
    return [
        NativeBatch(
            batch=progress["batchId"],
            input_rows=progress["numInputRows"],
            milliseconds=progress["durationMs"]["triggerExecution"],
            results=max(0, progress["sink"]["numOutputRows"]) if results is None else results[progress["batchId"]],
            state_rows=sum(operator["numRowsTotal"] for operator in progress["stateOperators"]),
            state_bytes=written.get(progress["batchId"], 0),
        )
        for progress in finished_batches(query.recentProgress)
    ]


def finished_batches(progresses: list[Any]) -> Iterator[dict[str, Any]]:
    """Those reports of a query's progress that are about a micro-batch it ran: others say that it was idle."""
    for progress in progresses:
        report: dict[str, Any] = json.loads(progress.json)
        if "addBatch" in report["durationMs"]:
            yield report


_VERSIONED = re.compile(r"\.?(\d+)(?:_[^.]*)?\.(?:delta|changelog|snapshot|zip)(?:\.crc)?")


def state_bytes_written(checkpoint_dir: str | Path) -> dict[int, int]:
    """Bytes of the files below the checkpoint's state directory, by the micro-batch they were written for.

    Version n of a state store is what batch n − 1 left. Both providers write the changes of each batch: the HDFS-backed
    one ``n.delta``, RocksDB ``n.changelog``, both compressed with lz4. Snapshots come now and then, from a thread that
    looks once a minute: ``n.snapshot``, or ``n.zip`` with those ``.sst`` files that it is the first to name.
    Without changelog checkpointing RocksDB uploads such a snapshot with every batch instead. Checksum files count.
    Files that belong to no batch (schema, metadata) do not, nor do those that were deleted: Spark keeps 100 batches.
    """
    state = Path(checkpoint_dir) / "state"
    written: defaultdict[int, int] = defaultdict(int)
    snapshots: list[tuple[int, Path]] = []
    for path in state.rglob("*"):
        match = _VERSIONED.fullmatch(path.name)
        if match and path.is_file():
            version = int(match[1])
            written[version - 1] += path.stat().st_size
            if path.suffix == ".zip":
                snapshots.append((version, path))
    seen: set[Path] = set()
    for version, path in sorted(snapshots):
        for file in _files_of_snapshot(path):
            if file not in seen and file.exists():
                seen.add(file)
                written[version - 1] += file.stat().st_size
    return dict(sorted(written.items()))


def _files_of_snapshot(path: Path) -> Iterator[Path]:
    """The table and log files that a snapshot of RocksDB refers to; they lie beside it."""
    with zipfile.ZipFile(path) as archive:
        _, _, described = archive.read("metadata").decode().partition("\n")
    contents = json.loads(described)
    for kind, folder in (("sstFiles", "SSTs"), ("logFiles", "logs")):
        for file in contents.get(kind) or []:
            name = file.get("dfsSstFileName") or file.get("dfsLogFileName")
            if name:
                yield path.parent / folder / name


def _rows_per_batch(output_dir: Path) -> defaultdict[int, int]:
    """Rows in the files that each micro-batch gave to the parquet sink, from the sink's log."""
    rows: defaultdict[int, int] = defaultdict(int)
    seen: set[str] = set()
    logs = [path for path in (output_dir / "_spark_metadata").iterdir() if not path.name.startswith(".")]
    # A compacted log repeats the files of earlier batches.
    for log in sorted(logs, key=lambda path: int(path.name.split(".")[0])):
        for line in log.read_text().splitlines()[1:]:
            file = Path(json.loads(line)["path"].removeprefix("file://")).name
            if file not in seen:
                seen.add(file)
                rows[int(log.name.split(".")[0])] += pq.read_metadata(output_dir / file).num_rows
    return rows


def main() -> None:
    """Run one size with one sink and print what each micro-batch took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", choices=list(SIZES), default="small")
    parser.add_argument("--batches", type=int, help=f"default: 8 (small), {LARGE_BATCHES} (large)")
    parser.add_argument("--sink", choices=["noop", "parquet"], default="noop")
    parser.add_argument("--provider", choices=list(_PROVIDERS), default=FASTEST.provider)
    parser.add_argument("--partitions", type=int, default=FASTEST.partitions)
    parser.add_argument("--format-version", type=int, choices=[2, 3, 4], default=FASTEST.format_version)
    parser.add_argument("--shape", choices=["tree", "chain"], default=FASTEST.shape)
    parser.add_argument("--timeout", type=float, default=3600, help="seconds")
    chosen = parser.parse_args()
    size = SIZES[chosen.size]
    batches = chosen.batches or (LARGE_BATCHES if chosen.size == "large" else size.batches)
    if batches != size.batches:
        size = replace(size, batches=batches, results=None)
    settings = NativeSettings(chosen.provider, chosen.partitions, chosen.format_version, chosen.shape)
    with tempfile.TemporaryDirectory(prefix="spark_native_j4_") as directory:
        inputs = write_input(size, Path(directory) / "input")
        spark = local_session()
        try:
            start = time.perf_counter()
            figures = run_native(
                spark,
                inputs,
                size.window,
                chosen.sink,
                Path(directory) / "checkpoint",
                Path(directory) / "output",
                settings=settings,
                timeout_seconds=chosen.timeout,
            )
            seconds = time.perf_counter() - start
        finally:
            spark.stop()
    print(f"{settings}, {chosen.size}, {batches} batches, sink {chosen.sink}")
    print(f"{'batch':>5} {'input rows':>10} {'ms':>8} {'results':>10} {'state rows':>10} {'state bytes':>12}")
    for figure in figures:
        print(
            f"{figure.batch:>5} {figure.input_rows:>10,} {figure.milliseconds:>8,} {figure.results:>10,} "
            f"{figure.state_rows:>10,} {figure.state_bytes:>12,}{'  no data' if figure.is_no_data else ''}"
        )
    got = sum(figure.results for figure in figures)
    unfinished = "" if any(figure.is_no_data for figure in figures) else ", stopped by the timeout"
    print(f"{seconds:.1f} s, {sum(f.input_rows for f in figures) / seconds:,.0f} input rows/s{unfinished}")
    print(f"{got:,} results, expected {expected_results(size):,}")


if __name__ == "__main__":
    main()
