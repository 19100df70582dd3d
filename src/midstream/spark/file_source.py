"""The Python data source that numbers the files of streams, and passes them to cells.

Files are read in the order of their modification times, those with equal times by path (``runtime/file_log``); Spark's
own source reads files with equal times in any order. Where they are read depends on the number of cells:

- **One cell** reads them itself: Spark passes on only their paths, which the driver supplies, and no task besides the
  cell's is needed.
- **Several cells** share the work: each task of the source reads some of the files, with Arrow, and gives Spark packs
  for all cells (``runtime/pack``).

In both cases the offsets determine which files a micro-batch has, so that one that is run again reads the same ones, in
the same order.

The log of files is in the control directory. Each query has a separate log there, named in its offsets: a query that
starts with a new checkpoint begins with the files that are there at that time.

When a query starts, Spark calls a data source in several processes, one after the other. So this module imports little;
what reading needs is imported in the tasks that read.
"""

from __future__ import annotations

import base64
import os
import pickle
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from midstream.runtime.file_log import FileLog
from midstream.runtime.pack_place import MOST_PARTS, pack_place
from midstream.spark.packed import FILE, PACKED

if TYPE_CHECKING:
    import pyarrow as pa

    from midstream.runtime.file_reading import FileReading

__all__ = ["FileSource", "FilesToRead", "StreamFiles"]


@dataclass(frozen=True)
class StreamFiles:
    """One stream: its number in the places of packs, and the path of its files."""

    number: int
    stream: str
    path: str
    files_per_batch: int | None


@dataclass(frozen=True)
class FilesToRead:
    """What the driver and the tasks know of a query's files."""

    sources: list[StreamFiles]
    log: str
    """The directory of the logs."""
    cell_keys: list[int]
    reading: bytes
    """A pickled ``FileReading``: what a task needs to read and pack files."""


class FileSource(DataSource):
    """The data source: its rows are files, or packs if there are several cells."""

    @classmethod
    def name(cls) -> str:
        return "midstream_files"

    def schema(self) -> str:
        return PACKED

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        setup = self._setup()
        if len(setup.cell_keys) == 1:
            # The inherited method raises "not implemented": Spark then asks for a simple reader.
            return super().streamReader(schema)
        return PackedFilesReader(setup)

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return FileNamesReader(self._setup())

    def _setup(self) -> FilesToRead:
        setup: FilesToRead = pickle.loads(base64.b64decode(self.options["setup"]))
        return setup


class _FileOffsets:
    """Numbers files as they appear. An offset has the name of a log and, per stream, the number of files read."""

    def __init__(self, setup: FilesToRead) -> None:
        self._sources = setup.sources
        self._directory = Path(setup.log)
        self._initial = {"log": uuid.uuid4().hex, "files": {source.stream: 0 for source in setup.sources}}
        self._logs: dict[str, FileLog] = {}
        self._last: dict[str, int] | None = None
        """The total number of files of each stream to read, if the query is to end after them."""
        self.ends_with_these = False
        """Whether to read only the files that are there at the next look."""

    def initial(self) -> dict[str, Any]:
        """The same on each call: Spark calls it repeatedly, and uses this offset to find what was read from there."""
        return self._initial

    def latest(self, start: dict[str, Any], is_limited: bool = True) -> dict[str, Any]:
        """The end of the next micro-batch, with as many files of each stream as its limit allows."""
        log = self._log(start["log"])
        for source in self._sources:
            log.require(source.stream, start["files"].get(source.stream, 0))
        if self._last is None:
            log.discover({source.stream: source.path for source in self._sources})
        known = self._last or {source.stream: log.count(source.stream) for source in self._sources}
        if self.ends_with_these:
            self._last = known
        ends = {}
        for source in self._sources:
            read = start["files"].get(source.stream, 0)
            most = source.files_per_batch if is_limited and source.files_per_batch is not None else known[source.stream]
            ends[source.stream] = max(read, min(known[source.stream], read + min(most, MOST_PARTS)))
        return {"log": start["log"], "files": ends}

    def between(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, str]]:
        """The places and files of a micro-batch: stream by stream, in the order of their numbers."""
        log = self._log(end["log"])
        files = []
        for source in self._sources:
            first, last = start["files"].get(source.stream, 0), end["files"].get(source.stream, 0)
            for place, file in enumerate(log.files(source.stream, first, last)):
                files.append((pack_place(source.number, place), file))
        return files

    def _log(self, name: str) -> FileLog:
        if name not in self._logs:
            self._logs[name] = FileLog(self._directory / f"{name}.jsonl")
        return self._logs[name]


class FileNamesReader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    """Passes the paths of the files to the only cell.

    Spark caches what a simple reader has read in the driver, for the task to fetch. If that is lost, or the query was
    restarted, it reads again, in the task: then the files are found in the log.
    """

    def __init__(self, setup: FilesToRead) -> None:
        self._offsets = _FileOffsets(setup)
        (self._cell_key,) = setup.cell_keys

    def initialOffset(self) -> dict[str, Any]:
        return self._offsets.initial()

    def prepareForTriggerAvailableNow(self) -> None:
        self._offsets.ends_with_these = True

    def read(self, start: dict[str, Any]) -> tuple[Iterator[tuple[Any, ...]], dict[str, Any]]:
        end = self._offsets.latest(start)
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
        files = self._offsets.between(start, end)
        return iter([(self._cell_key, FILE, place, os.fsencode(path)) for place, path in files])


@dataclass
class _Files(InputPartition):
    """Files for one task: their places and paths."""

    files: list[tuple[int, str]]


class PackedFilesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Numbers the files in the driver; reads and packs them in tasks."""

    def __init__(self, setup: FilesToRead) -> None:
        self._setup = setup
        self._offsets = _FileOffsets(setup)

    def initialOffset(self) -> dict[str, Any]:
        return self._offsets.initial()

    def prepareForTriggerAvailableNow(self) -> None:
        self._offsets.ends_with_these = True

    def getDefaultReadLimit(self) -> ReadLimit:
        limits = [source.files_per_batch for source in self._setup.sources if source.files_per_batch is not None]
        return ReadMaxFiles(sum(limits)) if limits else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._offsets.latest(start, is_limited=not isinstance(limit, ReadAllAvailable))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """As many tasks as there are cells, each with files of about equal size."""
        tasks: list[list[tuple[int, str]]] = [[] for _ in self._setup.cell_keys]
        sizes = [0] * len(tasks)
        for file in sorted(self._offsets.between(start, end), key=lambda file: (-_size(file[1]), file)):
            smallest = sizes.index(min(sizes))
            tasks[smallest].append(file)
            sizes[smallest] += _size(file[1])
        return [_Files(sorted(task)) for task in tasks if task]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from midstream.spark.packing import pack_table
        from midstream.spark.python_workers import freeze_loaded

        assert isinstance(partition, _Files)
        reading: FileReading = pickle.loads(self._setup.reading)
        freeze_loaded()
        keys = self._setup.cell_keys
        for first, path in partition.files:
            packs = reading.packs(first, path)
            for _, piece in groupby(packs, key=lambda pack: pack[1]):
                yield pack_table([(keys[cell], place, pack) for cell, place, pack in piece])


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        # Reading it will report that.
        return 0
