"""Results of one cell and micro-batch as parquet files, written where the cell is.

In a partitioned table, each file belongs to one partition and is in a directory named after it: for Delta's log it
could be anywhere, but some readers look at the path. Rows are buffered until they fill a row group: at most
``GROUP_ROWS`` per file and ``MOST_BYTES`` over all files. Row groups are encoded in a separate thread, one at a time,
while the cell continues: if a core is idle, results are written while more of them are computed. A file that has grown
to ``FILE_BYTES`` is closed, and the next one is opened. Compression is snappy, and only text is dictionary-encoded:
dictionaries of numbers take more than twice the time and save a third of the size (measured on results of a four-way
join).

Nothing is part of the table before the driver has committed it. An attempt that fails removes the files it wrote, if it
still can.

>>> import tempfile
>>> table = TableLocation.of(tempfile.mkdtemp())
>>> target = ResultTarget(table, "9f" * 16, epoch=1, batch=41, cell=0)
>>> (file,) = results_as_files([pa.record_batch({"room": ["a", "b"], "mean": [20.5, 21]})], target)
>>> file.statistics
'{"numRecords":2,"nullCount":{"room":0,"mean":0},"minValues":{"room":"a","mean":20.5},"maxValues":{"room":"b","mean":21.0}}'
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import TypeVar
from urllib.parse import quote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pat

from midstream.delta.delta_types import delta_schema
from midstream.delta.file_names import FileName
from midstream.delta.file_statistics import columns_with_nan, statistics_json
from midstream.delta.location import TableLocation
from midstream.engine.portable_types import as_type
from midstream.errors import PathProblem

__all__ = ["ResultFile", "ResultTarget", "TableTarget", "results_as_files"]

GROUP_ROWS = 1 << 17
"""Rows of a row group: enough for readers that process groups in parallel, and few enough to be buffered. When a
cell is done, its last rows still have to be written: larger groups leave more of them."""
MOST_BYTES = 64 << 20
"""Bytes of buffered rows, in all files together."""
FILE_BYTES = 128 << 20
"""A file that has grown to this size is closed."""
MOST_OPEN = 32
"""Files that are open at once: in a table with many partitions, the least recently written one is closed."""

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
Other = TypeVar("Other")
Key = tuple[str | None, ...]


class TableTarget(msgspec.Struct, frozen=True):
    """Where the results of all cells go."""

    table: TableLocation
    epoch: int | None
    """The epoch of the table's writer; None for a backfill."""
    partition_by: tuple[str, ...] = ()

    def of(self, application: str, batch: int, cell: int) -> ResultTarget:
        return ResultTarget(self.table, application, self.epoch, batch, cell, self.partition_by)


class ResultTarget(msgspec.Struct, frozen=True):
    """Where the results of one cell and micro-batch go."""

    table: TableLocation
    application: str
    epoch: int | None
    batch: int
    cell: int
    partition_by: tuple[str, ...] = ()

    @property
    def file_name(self) -> FileName:
        return FileName(self.application, self.epoch, self.batch, self.cell)


class ResultFile(msgspec.Struct, frozen=True):
    """A written file, with what the driver needs to commit it."""

    name: str
    """Its path, relative to the table."""
    size: int
    rows: int
    partition: dict[str, str | None]
    statistics: str
    written_ms: int


def results_as_files(results: Iterable[pa.RecordBatch | Other], target: ResultTarget) -> Iterator[ResultFile | Other]:
    """Write the record batches among the results to files, which come last; everything else passes through."""
    writer = _ResultWriter(target)
    try:
        for result in results:
            if isinstance(result, pa.RecordBatch):
                with _refusing(target.table):
                    writer.write(result)
            else:
                yield result
        with _refusing(target.table):
            files = writer.close()
    except BaseException:
        writer.abandon()
        raise
    yield from files


@contextlib.contextmanager
def _refusing(table: TableLocation) -> Iterator[None]:
    """Report storage errors (a full disk, missing permissions) as midstream errors, with the table's address."""
    try:
        yield
    except OSError as problem:
        raise PathProblem(f"cannot write files of the table {table.address}", detail=f"{problem}.") from problem


class _Background:
    """Runs one task at a time in a background thread."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "midstream result files")
        self._work: Future[None] | None = None

    def begin(self, work: Callable[[], None]) -> None:
        assert self._work is None, "one at a time"
        self._work = self._thread.submit(work)

    def wait(self) -> None:
        """Wait until the work is done; raises what it raised."""
        if self._work is not None:
            work, self._work = self._work, None
            work.result()

    def end(self) -> None:
        self._thread.shutdown()


class _OpenFile:
    """A file that rows are written to, and the rows buffered for its next row group."""

    def __init__(self, target: ResultTarget, key: Key, schema: pa.Schema, background: _Background) -> None:
        self._background = background
        self._partition = dict(zip(target.partition_by, key, strict=True))
        self.name = "".join([*(_directory(*part) for part in self._partition.items()), target.file_name.new()])
        self._schema = schema
        self._sink = target.table.open_file(self.name)
        self._metadata: list[pq.FileMetaData] = []
        # Text inside nested columns is not dictionary-encoded.
        text = [field.name for field in schema if pat.is_string(field.type) or pat.is_binary(field.type)]
        self._writer = pq.ParquetWriter(
            self._sink, schema, compression="snappy", use_dictionary=text or False, metadata_collector=self._metadata
        )
        self._waiting: list[pa.RecordBatch] = []
        self._with_nan: set[str] = set()
        self.rows = self.bytes = 0
        self.written = 0
        """The size of the file, without a row group that is still being written."""

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes

    def write_group(self) -> None:
        """Begin to write the buffered rows, once the previous row group is written."""
        if self._waiting:
            self._background.wait()
            self.written = self._sink.tell()
            self._background.begin(partial(self._write, pa.Table.from_batches(self._waiting)))
            self._waiting, self.rows, self.bytes = [], 0, 0

    def _write(self, group: pa.Table) -> None:
        self._with_nan |= columns_with_nan(group)
        self._writer.write_table(group, row_group_size=GROUP_ROWS)

    def close(self) -> ResultFile:
        self.write_group()
        self._background.wait()
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        (metadata,) = self._metadata
        statistics = statistics_json(self._schema, metadata, self._with_nan)
        return ResultFile(
            self.name, size, metadata.num_rows, self._partition, statistics, written_ms=time.time_ns() // 1_000_000
        )

    def abandon(self) -> None:
        self._writer.close()
        self._sink.close()


class _ResultWriter:
    """Distributes rows over files, within the bounds above."""

    def __init__(self, target: ResultTarget) -> None:
        self._target = target
        self._open: dict[Key, _OpenFile] = {}
        """Ordered by last write: the most recently written file comes last."""
        self._done: list[ResultFile] = []
        self._schema: pa.Schema | None = None
        self._background = _Background()

    def write(self, batch: pa.RecordBatch) -> None:
        if self._schema is None:
            self._schema = delta_schema(batch.schema)
        columns = [as_type(column, field.type) for column, field in zip(batch.columns, self._schema, strict=True)]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        for key, part in _partitioned(batch, self._target.partition_by):
            file = self._open.pop(key, None) or _OpenFile(self._target, key, part.schema, self._background)
            self._open[key] = file
            file.add(part)
            if file.rows >= GROUP_ROWS:
                file.write_group()
            if file.written >= FILE_BYTES:
                self._close(key)
            elif len(self._open) > MOST_OPEN:
                self._close(next(iter(self._open)))
        while sum(file.bytes for file in self._open.values()) > MOST_BYTES:
            max(self._open.values(), key=lambda file: file.bytes).write_group()

    def close(self) -> list[ResultFile]:
        for key in list(self._open):
            self._close(key)
        self._background.end()
        return self._done

    def _close(self, key: Key) -> None:
        # It stays among the open files until it is closed: if closing fails, ``abandon`` removes it.
        self._done.append(self._open[key].close())
        del self._open[key]

    def abandon(self) -> None:
        """Remove what was written; a file that cannot be removed now is an orphan, removed later."""
        self._background.end()
        for file in self._open.values():
            with contextlib.suppress(Exception):
                file.abandon()
        for name in [*(file.name for file in self._open.values()), *(file.name for file in self._done)]:
            with contextlib.suppress(Exception):
                self._target.table.remove_file(name)


def _partitioned(batch: pa.RecordBatch, partition_by: tuple[str, ...]) -> Iterator[tuple[Key, pa.RecordBatch]]:
    """The rows of each partition, in arrival order, without the partition columns."""
    if not partition_by or not batch.num_rows:
        if batch.num_rows:
            yield (), batch
        return
    texts = [_partition_texts(batch.column(name)).dictionary_encode("encode") for name in partition_by]
    codes = np.zeros(batch.num_rows, np.int64)
    for text in texts:
        codes = codes * len(text.dictionary) + text.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    rest = batch.select([name for name in batch.schema.names if name not in partition_by])
    for start, end in pairwise([*starts.tolist(), batch.num_rows]):
        row = int(order[start])
        # A copy: a buffered slice would keep the whole batch in memory.
        yield tuple(text[row].as_py() for text in texts), rest.take(pa.array(order[start:end]))


def _directory(name: str, value: str | None) -> str:
    return f"{name}={_NO_VALUE if value is None else quote(value, safe='')}/"


def _partition_texts(column: pa.Array) -> pa.Array:
    """Values of a partition column as text, in Delta's format; an empty string means NULL."""
    if pat.is_timestamp(column.type):
        if column.type.tz is None:
            return pc.strftime(column, format="%Y-%m-%d %H:%M:%S")
        return pc.binary_join_element_wise(pc.strftime(column, format="%Y-%m-%dT%H:%M:%S"), "Z", "")
    text = column.cast(pa.string())
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
