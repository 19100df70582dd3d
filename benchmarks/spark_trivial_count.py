"""What a micro-batch costs on Spark before an operator does anything: a Python operator that only counts.

Rows of one or several (unioned) parquet sources go to ``transformWithStateInPandas``, one key per partition. For each
key the operator reads a count from its state, adds the number of rows, writes it back and gives one row. Whatever
midstream takes for a small micro-batch is to be compared with this, under the same settings: RocksDB with changelog
checkpointing, and a checkpoint file manager that starts no processes.

Each source is one more scan to plan and one more log to write, hence one source and four are measured. The first 40
micro-batches are left out: the Java machine is still warming up.

Run alone: ``.venv/bin/python -m benchmarks.spark_trivial_count --sources 4``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from benchmarks.spark_native_j4 import NativeSettings, finished_batches, local_session

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["run_trivial", "write_trivial_input"]

WARM_UP = 40
"""Micro-batches to discard."""

BATCHES = 140
ROWS = 1_000

_FIRST_MODIFIED = 1_700_000_000
"""Modification time of the first input file (seconds): the file source reads in this order, not by name."""


def write_trivial_input(
    directory: str | Path, sources: int = 1, batches: int = BATCHES, rows: int = ROWS
) -> list[Path]:
    """Write one directory per source, one file per micro-batch; the rows of a micro-batch are shared among the sources.

    The columns are those of J4's streams, so that either input fits ``run_trivial``.
    """
    random = np.random.default_rng(0)
    directories = [Path(directory) / f"source_{number}" for number in range(sources)]
    for number, path in enumerate(directories):
        path.mkdir(parents=True, exist_ok=True)
        share = rows // sources + (number < rows % sources)
        for batch in range(batches):
            times = np.sort(random.integers(0, rows, share)) + batch * rows
            table = pa.table({"ts": times, "k": random.integers(0, rows, share), "v": random.random(share)})
            file = path / f"{batch:05}.parquet"
            pq.write_table(table, file)
            os.utime(file, (_FIRST_MODIFIED + batch, _FIRST_MODIFIED + batch))
    return directories


def _count_processor() -> StatefulProcessor:
    """The operator. Its class is made here, so that workers get it by value and need not find this module."""

    class CountProcessor(StatefulProcessor):
        """Per key: how many rows there were so far."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self.count = handle.getValueState("count", "n long")

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
            import pandas as pd

            before = self.count.get()
            total = (before[0] if before else 0) + sum(len(frame) for frame in rows)
            self.count.update((total,))
            yield pd.DataFrame({"cell": [key[0]], "n": [total]})

        def close(self) -> None:
            pass

    return CountProcessor()


def cell_keys(spark: SparkSession, partitions: int) -> list[int]:
    """One key for each partition that Spark would shuffle it to."""
    found = spark.range(64 * partitions).select("id", F.pmod(F.hash("id"), F.lit(partitions)).alias("partition"))
    first = dict((row["partition"], row["id"]) for row in reversed(found.collect()))
    return [first[partition] for partition in range(partitions)]


def _cell(keys: Sequence[int]) -> Column:
    """The key of the cell that a row belongs to."""
    return F.get(F.array(*[F.lit(key).cast("long") for key in keys]), F.pmod("k", F.lit(len(keys))).cast("int"))


def run_trivial(
    spark: SparkSession,
    input_dirs: Sequence[str | Path],
    checkpoint_dir: str | Path,
    partitions: int = 2,
    *,
    discard: int = WARM_UP,
    timeout_seconds: float = 600,
) -> list[int]:
    """Count all rows there are, a file of each source per micro-batch; milliseconds of each batch after the warm-up.

    The given session's settings stay as they are: the query runs in a session of its own on the same Spark. After the
    timeout the query is stopped, and the batches finished until then are given.
    """
    session = spark.newSession()
    for key, value in NativeSettings("rocksdb", partitions).configuration().items():
        session.conf.set(key, value)
    cell = _cell(cell_keys(session, partitions))
    sources = [
        session.readStream.schema("ts long, k long, v double")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(path))
        .withColumn("cell", cell)
        for path in input_dirs
    ]
    counts = (
        reduce(DataFrame.unionAll, sources)
        .groupBy("cell")
        .transformWithStateInPandas(_count_processor(), "cell long, n long", outputMode="Update", timeMode="None")
    )
    query = (
        counts.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint_dir))
        .outputMode("update")
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(timeout_seconds):
        query.stop()
    return [report["durationMs"]["triggerExecution"] for report in finished_batches(query.recentProgress)][discard:]


def main() -> None:
    """Measure with one source, four, or as many as asked for; print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sources", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--batches", type=int, default=BATCHES)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows per micro-batch, shared among the sources")
    parser.add_argument("--timeout", type=float, default=600, help="seconds, for each number of sources")
    chosen = parser.parse_args()
    print("sources partitions batches median ms  10 % ms  90 % ms")
    with tempfile.TemporaryDirectory(prefix="spark_trivial_count_") as directory:
        spark = local_session(memory="2g")
        try:
            for sources in chosen.sources:
                place = Path(directory) / str(sources)
                inputs = write_trivial_input(place / "input", sources, chosen.batches, chosen.rows)
                times = run_trivial(
                    spark, inputs, place / "checkpoint", chosen.partitions, timeout_seconds=chosen.timeout
                )
                if len(times) < 2:
                    print(f"{sources:>7} {chosen.partitions:>10} too few batches before the timeout")
                    continue
                tenths = statistics.quantiles(times, n=10)
                print(
                    f"{sources:>7} {chosen.partitions:>10} {len(times):>7} {statistics.median(times):>9.0f} "
                    f"{tenths[0]:>8.0f} {tenths[-1]:>8.0f}"
                )
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
