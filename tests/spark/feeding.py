"""Feeding queries on a real Spark, and collecting what they give.

Spark needs seconds to start a streaming query. So many queries of midstream run side by side in one of Spark's: they
read the same files, and their results are united, each in a column of its own.

A micro-batch is one file with the rows of all streams, each in a column of its own: so all streams advance together,
and a test knows what is in which batch. No test sleeps: ``go`` returns when everything was worked on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from midstream import Stream
from midstream.spark import LiveQuery

__all__ = ["Feed", "Running", "everything", "united"]


class Feed:
    """A folder of files, each the rows of one micro-batch; streams by the name of their column."""

    def __init__(self, spark: SparkSession, folder: Path, streams: Mapping[str, Stream] | Sequence[Stream]) -> None:
        self._spark = spark
        self._folder = folder
        self._folder.mkdir()
        self._streams = dict(streams) if isinstance(streams, Mapping) else {stream.name: stream for stream in streams}
        self._batches = 0

    def drop(self, *batches: Mapping[str, pa.Table]) -> None:
        """Let rows come: a micro-batch each."""
        for tables in batches:
            rows = sum(table.num_rows for table in tables.values())
            columns, before = [], 0
            for name, stream in self._streams.items():
                table = tables.get(name, stream.schema.empty_table()).combine_chunks()
                whole = pa.StructArray.from_arrays(
                    [column.combine_chunks() for column in table.columns], fields=list(table.schema)
                )
                after = rows - before - table.num_rows
                columns.append(pa.concat_arrays([pa.nulls(before, whole.type), whole, pa.nulls(after, whole.type)]))
                before += table.num_rows
            path = self._folder / f"{self._batches:05d}.parquet"
            pq.write_table(pa.table(columns, names=list(self._streams)), path.with_name("_" + path.name))
            # The source takes files in the order of their times.
            os.utime(path.with_name("_" + path.name), (1e9 + self._batches, 1e9 + self._batches))
            path.with_name("_" + path.name).rename(path)
            self._batches += 1

    def frames(self, names: Mapping[str, str] | None = None, streaming: bool = True) -> dict[str, DataFrame]:
        """A DataFrame for each stream; ``names`` says by which column, if it is not the stream's name."""
        schema = StructType([StructField(name, _spark_schema(stream)) for name, stream in self._streams.items()])
        reader = self._spark.readStream.option("maxFilesPerTrigger", 1) if streaming else self._spark.read
        frame = reader.schema(schema).parquet(str(self._folder))
        chosen = {name: name for name in self._streams} if names is None else names
        return {
            stream: frame.where(F.col(f"`{column}`").isNotNull()).select(f"`{column}`.*")
            for stream, column in chosen.items()
        }


def _spark_schema(stream: Stream) -> StructType:
    schema = pa.schema([(name, stream.column_type(name)) for name in stream.schema.names])
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def united(lives: Mapping[str, LiveQuery]) -> DataFrame:
    """The results of all queries; those of each are in the column of its name, and the others NULL."""
    parts = []
    for name, live in lives.items():
        numbers = [str(place) for place in range(len(live.results.columns))]
        parts.append(live.results.toDF(*numbers).select(F.struct(*numbers).alias(name)))
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)


def _of(name: str, live: LiveQuery, tables: Sequence[pa.Table]) -> pa.Table:
    """The results of one query among those of many."""
    column = pa.chunked_array([chunk for table in tables for chunk in table.column(name).chunks])
    parts = column.filter(column.is_valid()).combine_chunks().flatten()
    return pa.table(parts, names=live.results.columns)


def everything(lives: Mapping[str, LiveQuery]) -> dict[str, pa.Table]:
    """The results of queries over batches."""
    table = united(lives).toArrow()
    return {name: _of(name, live, [table]) for name, live in lives.items()}


class Running:
    """Queries at work in one streaming query. What earlier runs from the same checkpoint gave can be handed on."""

    def __init__(self, lives: Mapping[str, LiveQuery], checkpoint: Path, before: Running | None = None) -> None:
        self.lives = dict(lives)
        # By the number of the micro-batch: one that is worked on again gives its results again.
        self._tables: dict[int, pa.Table] = {} if before is None else before._tables
        writer = united(lives).writeStream.foreachBatch(self._take)
        self.query = writer.option("checkpointLocation", str(checkpoint)).start()

    def _take(self, frame: DataFrame, number: int) -> None:
        self._tables[number] = frame.toArrow()

    def go(self) -> None:
        """Work on everything that is there."""
        self.query.processAllAvailable()

    def finish(self) -> None:
        """End the streams, and stop."""
        for live in self.lives.values():
            live.finish()
        self.go()
        self.stop()

    def stop(self) -> None:
        self.query.stop()

    def results(self, name: str) -> pa.Table:
        """All results of a query so far."""
        return _of(name, self.lives[name], [self._tables[number] for number in sorted(self._tables)])

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *problem: object) -> None:
        self.stop()
