"""Results of one cell and micro-batch as parquet files, written where the cell is.

Files are those of a table that is not partitioned, or of one partition each, in a directory that names it: by Delta's
log alone it could be anywhere, but some readers look at the path. Rows are buffered until they make a row
group: at most ``GROUP_ROWS`` of a file and ``MOST_BYTES`` of all files. A row group is encoded in a thread of its own,
one at a time, while the cell goes on: where a core is idle, results are written while more of them are computed. A file
that has grown to ``FILE_BYTES`` is closed, and the next one begun. Compression is snappy, and only text is
dictionary-encoded: dictionaries of numbers take more than twice the time and save a third of the size (measured on
results of a four-way join).

Nothing is part of the table before its driver has committed it. An attempt that fails removes what it wrote, if it
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
"""Rows of a row group: enough for readers that work on groups in parallel, and few enough to be buffered. When a
cell is done, its last rows are still to be written: larger groups leave more of them."""
MOST_BYTES = 64 << 20
"""Bytes of rows that wait for their row group, in all files together."""
FILE_BYTES = 128 << 20
"""A file that has grown to this size is closed."""
MOST_OPEN = 32
"""Files that are open at once: of a table with many partitions, the one that was not written to for longest is
closed."""

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
Other = TypeVar("Other")
Key = tuple[str | None, ...]


class TableTarget(msgspec.Struct, frozen=True):
    """Where the results of all cells go."""

    table: TableLocation
    epoch: int | None
    """Which of the table's writers this is; None: a backfill."""
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
    """A file that was written, as the driver needs it to commit it."""

    name: str
    """Its path in the table."""
    size: int
    rows: int
    partition: dict[str, str | None]
    statistics: str
    written_ms: int


def results_as_files(results: Iterable[pa.RecordBatch | Other], target: ResultTarget) -> Iterator[ResultFile | Other]:
    """Write the record batches among the results to files, which come last; whatever else there is passes through."""
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
    """Report what storage refuses (a full disk, missing permissions) as an error of ours, with the table's address."""
    try:
        yield
    except OSError as problem:
        raise PathProblem(f"cannot write files of the table {table.address}", detail=f"{problem}.") from problem


class _Background:
    """Does one piece of work at a time in a thread of its own."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "midstream result files")
        self._work: Future[None] | None = None

    def begin(self, work: Callable[[], None]) -> None:
        assert self._work is None, "one at a time"
        self._work = self._thread.submit(work)

    def wait(self) -> None:
        """Until the work is done; raises what it raised."""
        if self._work is not None:
            work, self._work = self._work, None
            work.result()

    def end(self) -> None:
        self._thread.shutdown()


class _OpenFile:
    """A file that rows are written to, and the rows that wait for its next row group."""

    def __init__(self, target: ResultTarget, key: Key, schema: pa.Schema, background: _Background) -> None:
        self._background = background
        self._partition = dict(zip(target.partition_by, key, strict=True))
        self.name = "".join([*(_directory(*part) for part in self._partition.items()), target.file_name.new()])
        self._schema = schema
        self._sink = target.table.open_file(self.name)
        self._metadata: list[pq.FileMetaData] = []
        # Of nested columns, the parts that have text are not looked for.
        text = [field.name for field in schema if pat.is_string(field.type) or pat.is_binary(field.type)]
        self._writer = pq.ParquetWriter(
            self._sink, schema, compression="snappy", use_dictionary=text or False, metadata_collector=self._metadata
        )
        self._waiting: list[pa.RecordBatch] = []
        self._with_nan: set[str] = set()
        self.rows = self.bytes = 0
        self.written = 0
        """How large the file is, without the row group that may be being written."""

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes

    def write_group(self) -> None:
        """Begin to write the rows that wait, when what was begun before is written."""
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
        """The file that was written to last comes last."""
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
        # It stays among the open ones until it is closed: if that fails, it is removed.
        self._done.append(self._open[key].close())
        del self._open[key]

    def abandon(self) -> None:
        """Remove what was written; what cannot be removed now is an orphan, and removed later."""
        self._background.end()
        for file in self._open.values():
            with contextlib.suppress(Exception):
                file.abandon()
        for name in [*(file.name for file in self._open.values()), *(file.name for file in self._done)]:
            with contextlib.suppress(Exception):
                self._target.table.remove_file(name)


def _partitioned(batch: pa.RecordBatch, partition_by: tuple[str, ...]) -> Iterator[tuple[Key, pa.RecordBatch]]:
    """The rows of each partition, in the order they came, without the columns that its key has."""
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
        # Copies: a slice that waits for its row group would keep all the others.
        yield tuple(text[row].as_py() for text in texts), rest.take(pa.array(order[start:end]))


def _directory(name: str, value: str | None) -> str:
    return f"{name}={_NO_VALUE if value is None else quote(value, safe='')}/"


def _partition_texts(column: pa.Array) -> pa.Array:
    """Values of a partition column as texts, as Delta writes them; an empty text means NULL there."""
    if pat.is_timestamp(column.type):
        if column.type.tz is None:
            return pc.strftime(column, format="%Y-%m-%d %H:%M:%S")
        return pc.binary_join_element_wise(pc.strftime(column, format="%Y-%m-%dT%H:%M:%S"), "Z", "")
    text = column.cast(pa.string())
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
