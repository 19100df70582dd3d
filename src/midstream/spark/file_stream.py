"""Parquet files as a stream that midstream reads itself, in a defined order, without Spark's readers in between.

Rows that Spark reads cross from Java to Python one Arrow batch after the other, only to be packed there, and each
stream's source is asked, planned and logged on its own. Of streams that are given as a :class:`FileStream`, one Python
data source reads the files of all, with Arrow, and gives Spark nothing but packs (``runtime/pack``). Files are read in
the order of their modification times, those with equal times by name (``runtime/file_log``); of Spark's own source, the
latter come in any order.

The log of files is in the control directory. Each query has a log of its own there, which its offsets name: a query
that starts anew, with a new checkpoint, begins with the files that are there then.
"""

from __future__ import annotations

import base64
import os
import pickle
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from midstream.engine.portable_types import as_type
from midstream.errors import BadStreamDeclaration, PathProblem, UnreadableFile
from midstream.runtime.file_log import FileLog, data_files
from midstream.runtime.pack import StreamPacker
from midstream.spark.packing import PACKED, pack_table

__all__ = ["FileStream", "packed_files"]

_PIECE_ROWS = 1 << 20
"""Rows of a file that are packed at a time: a file of any size needs little memory."""


class FileStream:
    """A directory, file or glob pattern of parquet files, for ``run_on_spark`` in place of a DataFrame.

    New files are read as they appear: write each under a name that begins with ``_`` or ``.``, or elsewhere on the same
    disk, and rename it when it is complete. ``files_per_batch`` limits a micro-batch; all that are there otherwise.
    Columns that a file does not have are NULL. The path is one that the driver and all executors see.
    """

    isStreaming = True

    def __init__(
        self,
        spark: SparkSession,
        path: str | os.PathLike[str],
        schema: StructType | str | None = None,
        files_per_batch: int | None = None,
    ) -> None:
        """Without a ``schema`` the columns are those of the first file, which must be there."""
        if files_per_batch is not None and (not isinstance(files_per_batch, int) or files_per_batch < 1):
            raise BadStreamDeclaration(f"files_per_batch is {files_per_batch!r}", hint="Give a number, 1 or more.")
        self.path = os.path.abspath(os.fspath(path))
        self.files_per_batch = files_per_batch
        self.sparkSession = spark
        if schema is None:
            first = min(data_files(self.path), default=None)
            if first is None:
                raise PathProblem(
                    f'there are no files in "{path}"',
                    detail="The columns of a stream are those of its first file.",
                    hint='Give them: FileStream(spark, path, "ts timestamp, id long").',
                )
            schema = spark.read.parquet(f"file://{first}").schema
        columns = schema if isinstance(schema, StructType) else StructType.fromDDL(schema)
        assert isinstance(columns, StructType), "a schema is a list of columns"
        self.schema = columns


def packed_files(streams: Mapping[int, tuple[FileStream, StreamPacker]], log: Path, cell_keys: list[int]) -> DataFrame:
    """The packs of the streams' files as they appear. Streams are numbered as in the places of packs."""
    sources = [
        _Source(number, packer.stream.name, stream.path, stream.files_per_batch, packer)
        for number, (stream, packer) in streams.items()
    ]
    spark = next(iter(streams.values()))[0].sparkSession
    spark.dataSource.register(PackedFiles)
    setup = pickle.dumps(_Setup(sources, str(log), cell_keys))
    return spark.readStream.format(PackedFiles.name()).option("setup", base64.b64encode(setup).decode()).load()


@dataclass(frozen=True)
class _Source:
    """One stream: its number in the places of packs, and where its files are."""

    number: int
    stream: str
    path: str
    files_per_batch: int | None
    packer: StreamPacker


@dataclass(frozen=True)
class _Setup:
    """What the driver and the tasks know of a query's files."""

    sources: list[_Source]
    log: str
    """The directory of logs."""
    cell_keys: list[int]


class PackedFiles(DataSource):
    """The data source: its rows are packs."""

    @classmethod
    def name(cls) -> str:
        return "midstream_packed_files"

    def schema(self) -> str:
        return PACKED

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return PackedFilesReader(pickle.loads(base64.b64decode(self.options["setup"])))


@dataclass
class _Files(InputPartition):
    """Files for one task: the number of their stream among the sources, their place in the micro-batch, the path."""

    files: list[tuple[int, int, str]]


class PackedFilesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Numbers the files, in the driver; reads and packs them, in tasks.

    An offset is the name of a log, and for each stream how many of its files have been read.
    """

    def __init__(self, setup: _Setup) -> None:
        self._setup = setup
        self._logs: dict[str, FileLog] = {}
        self._last: dict[str, int] | None = None
        """How many files of each stream to read in all, if the query ends then."""
        self._ends_with_these = False

    def initialOffset(self) -> dict[str, Any]:
        return {"log": uuid.uuid4().hex, "files": {source.stream: 0 for source in self._setup.sources}}

    def prepareForTriggerAvailableNow(self) -> None:
        self._ends_with_these = True

    def getDefaultReadLimit(self) -> ReadLimit:
        limits = [source.files_per_batch for source in self._setup.sources if source.files_per_batch is not None]
        return ReadMaxFiles(sum(limits)) if limits else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        log = self._log(start["log"])
        if self._last is None:
            log.discover({source.stream: source.path for source in self._setup.sources})
        known = self._last or {source.stream: log.count(source.stream) for source in self._setup.sources}
        if self._ends_with_these:
            self._last = known
        is_limited = not isinstance(limit, ReadAllAvailable)
        ends = {}
        for source in self._setup.sources:
            read = start["files"].get(source.stream, 0)
            most = source.files_per_batch if is_limited and source.files_per_batch is not None else known[source.stream]
            ends[source.stream] = max(read, min(known[source.stream], read + most))
        return {"log": start["log"], "files": ends}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """As many tasks as there are cells, each with files of about equal size."""
        log = self._log(end["log"])
        files = []
        for number, source in enumerate(self._setup.sources):
            first, last = start["files"].get(source.stream, 0), end["files"].get(source.stream, 0)
            files += [(number, place, file) for place, file in enumerate(log.files(source.stream, first, last))]
        tasks: list[list[tuple[int, int, str]]] = [[] for _ in self._setup.cell_keys]
        sizes = [0] * len(tasks)
        for file in sorted(files, key=lambda file: (-_size(file[2]), file)):
            smallest = sizes.index(min(sizes))
            tasks[smallest].append(file)
            sizes[smallest] += _size(file[2])
        return [_Files(sorted(task)) for task in tasks if task]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Files)
        for number, place, path in partition.files:
            source = self._setup.sources[number]
            for piece, rows in enumerate(_rows(path, source.packer)):
                first = (source.number << 40) + (place << 20) + piece
                packs = [(self._setup.cell_keys[cell], first, data) for cell, data in source.packer.packs(rows)]
                yield pack_table(packs)

    def _log(self, name: str) -> FileLog:
        if name not in self._logs:
            self._logs[name] = FileLog(Path(self._setup.log) / f"{name}.jsonl")
        return self._logs[name]


def _rows(path: str, packer: StreamPacker) -> Iterator[pa.RecordBatch]:
    """The rows of a file, with the columns that the packer takes, of the types that its stream declares."""
    names = list(dict.fromkeys([*packer.columns, packer.stream.event_time]))
    try:
        with pq.ParquetFile(path, memory_map=True, coerce_int96_timestamp_unit="us") as file:
            there = _columns(file.schema_arrow.names, names)
            read = [name for name in there.values() if name is not None]
            for batch in file.iter_batches(_PIECE_ROWS, columns=read):
                types = [packer.stream.column_type(name) for name in names]
                columns = [_column(batch, found, type, path) for found, type in zip(there.values(), types, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, names=names)
    except FileNotFoundError:
        raise UnreadableFile(
            f"the file {path} is gone", hint="Keep the files of a stream until they have been read."
        ) from None
    except (pa.ArrowInvalid, OSError) as problem:
        raise UnreadableFile(
            f"cannot read the file {path}", detail=f"{problem}", hint="Fix or remove it, then resume."
        ) from None


def _columns(there: list[str], wanted: list[str]) -> dict[str, str | None]:
    """What each wanted column is called in a file, in whatever case; None where it has none."""
    folded = {name.lower(): name for name in reversed(there)}
    return {name: name if name in there else folded.get(name.lower()) for name in wanted}


def _column(batch: pa.RecordBatch, name: str | None, declared: pa.DataType, path: str) -> pa.Array:
    if name is None:
        return pa.nulls(batch.num_rows, declared)
    array = batch.column(name)
    try:
        return as_type(array, declared)
    except pa.ArrowInvalid as problem:
        raise BadStreamDeclaration(f'column "{name}" of "{path}" is not {declared}: {problem}') from None


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        # Reading it will say so.
        return 0
