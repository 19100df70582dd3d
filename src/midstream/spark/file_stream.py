"""Parquet files as a stream that midstream reads itself, in a defined order, without Spark's readers in between.

Rows that Spark reads are passed from Java to Python as Arrow batches, only to be packed there, and each stream's source
is polled, planned and logged separately. For streams given as a :class:`FileStream`, a single Python data source
(``file_source``) numbers the files of all of them.
"""

from __future__ import annotations

import base64
import os
import pickle
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from midstream.delta.added_files import table_schema
from midstream.delta.log_entries import has_versions, is_table
from midstream.errors import BadStreamDeclaration, MissingColumn, PathProblem, did_you_mean, quoted
from midstream.local_paths import absolute_path
from midstream.runtime.data_files import data_files, without_patterns
from midstream.runtime.file_reading import FileReading
from midstream.runtime.pack import StreamPacker
from midstream.spark.file_source import FileSource, FilesToRead, StreamFiles

__all__ = ["FileStream", "files_to_read"]


class FileStream:
    """Parquet files (a directory, file or glob pattern) or a Delta table, for ``run_on_spark`` in place of a DataFrame.

    New files are read as they appear: write each under a name that begins with ``_`` or ``.``, or elsewhere on the same
    disk, and rename it when it is complete. A micro-batch has at most ``files_per_batch`` files, or all that are there.
    Columns that a file does not have are NULL. The driver and all executors must see the path.
    """

    isStreaming = True

    def __init__(
        self,
        spark: SparkSession,
        path: str | os.PathLike[str],
        schema: StructType | str | None = None,
        files_per_batch: int | None = None,
    ) -> None:
        """Without a ``schema`` the columns are those of the table, or of the first file, which must exist."""
        is_number = isinstance(files_per_batch, int) and not isinstance(files_per_batch, bool)
        if files_per_batch is not None and (not is_number or files_per_batch < 1):
            raise BadStreamDeclaration(f"files_per_batch is {files_per_batch!r}", hint="Give a number, 1 or more.")
        self.path = _local_path(path)
        self.files_per_batch = files_per_batch
        self.sparkSession = spark
        if schema is None:
            self.schema = self._columns_found()
            return
        columns = StructType.fromDDL(schema) if isinstance(schema, str) else schema
        if not isinstance(columns, StructType):
            raise BadStreamDeclaration(
                f"the schema of a stream of files is {schema!r}",
                hint='Give columns in Spark\'s DDL, "ts timestamp, id long", or a StructType.',
            )
        self.schema = columns
        if has_versions(self.path):
            self._check_columns_of_table()

    def _columns_found(self) -> StructType:
        """The columns of the table, or of the first file."""
        if is_table(self.path):
            return _columns_of_table(self.path)
        first = min(data_files(self.path), default=None)
        if first is None:
            raise PathProblem(
                f'there are no files in "{self.path}"',
                detail="The columns of a stream are those of its first file.",
                hint='Give them: FileStream(spark, path, "ts timestamp, id long").',
            )
        return self.sparkSession.read.parquet(f"file://{without_patterns(first)}").schema

    def _check_columns_of_table(self) -> None:
        """Refuse a declared column that the table lacks, ignoring case: it would be NULL."""
        there = _columns_of_table(self.path).names
        known = {name.lower() for name in there}
        for name in self.schema.names:
            if name.lower() not in known:
                raise MissingColumn(
                    f'column "{name}" is not in the table {self.path}',
                    detail=f"The table has the columns {quoted(there)}.",
                    hint=did_you_mean(name, there),
                )


def _columns_of_table(path: str) -> StructType:
    from midstream.spark.spark_types import spark_schema

    return spark_schema(table_schema(path))


def _local_path(path: str | os.PathLike[str]) -> str:
    absolute = absolute_path(path, "a stream of files")
    if "://" in absolute:
        raise BadStreamDeclaration(
            f'cannot read files of "{path}"',
            detail="midstream reads files that this machine, and those of all executors, see as local ones.",
            hint="Let Spark read it: spark.readStream.schema(...).parquet(...).",
        )
    return absolute


def files_to_read(
    streams: Mapping[int, tuple[FileStream, StreamPacker]], log: Path, cell_keys: list[int]
) -> tuple[DataFrame, FileReading]:
    """A DataFrame of the streams' files as they appear, or of packs, and what a cell needs to read the files.

    Streams are numbered as in the places of packs.
    """
    sources = [
        StreamFiles(number, packer.stream.name, stream.path, stream.files_per_batch)
        for number, (stream, packer) in streams.items()
    ]
    reading = FileReading({number: packer for number, (_, packer) in streams.items()})
    spark = next(iter(streams.values()))[0].sparkSession
    spark.dataSource.register(FileSource)
    setup = pickle.dumps(FilesToRead(sources, str(log), cell_keys, pickle.dumps(reading)))
    rows = spark.readStream.format(FileSource.name()).option("setup", base64.b64encode(setup).decode()).load()
    return rows, reading
