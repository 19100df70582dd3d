"""Parquet files of streams as packs, read by a task or a cell.

Columns are found by name, ignoring case, and get the types that their stream declares; columns that a file lacks are
NULL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from midstream.engine.portable_types import as_type
from midstream.errors import BadStreamDeclaration, UnreadableFile
from midstream.runtime.pack import Pack, StreamPacker
from midstream.runtime.pack_place import stream_of

__all__ = ["FileReading"]

_PIECE_ROWS = 1 << 20
"""Rows of a file that are packed at a time, so that a task that reads files for several cells needs little memory."""


class FileReading:
    """Reads the files of some streams, numbered as in the places of packs."""

    def __init__(self, packers: Mapping[int, StreamPacker]) -> None:
        self._packers = packers

    def packs(self, place: int, path: str) -> Iterator[tuple[int, int, Pack]]:
        """The cell, place and pack of each piece of a file, for all cells; ``place`` is that of the first piece."""
        packer = self._packers[stream_of(place)]
        for piece, rows in enumerate(_rows(path, packer)):
            for cell, pack in packer.packs(rows):
                yield cell, place + piece, pack


def _rows(path: str, packer: StreamPacker) -> Iterator[pa.RecordBatch]:
    """The rows of a file, with the columns that the packer needs, in the types that its stream declares."""
    names = list(dict.fromkeys([*packer.columns, packer.stream.event_time]))
    try:
        # One thread: waking up others takes longer than reading a file of a micro-batch.
        with pq.ParquetFile(path, memory_map=True, pre_buffer=False, coerce_int96_timestamp_unit="us") as file:
            there = _columns(file.schema_arrow.names, names)
            read = [name for name in there.values() if name is not None]
            for batch in file.iter_batches(_PIECE_ROWS, columns=read, use_threads=False):
                types = [packer.stream.column_type(name) for name in names]
                columns = [_column(batch, found, type, path) for found, type in zip(there.values(), types, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, names=names)
    except FileNotFoundError:
        raise UnreadableFile(
            f"the file {path} is gone",
            detail="The files of a stream must be kept until they have been read.",
            hint="Restore it, or put an empty table in its place under the same name, then resume.",
        ) from None
    except (pa.ArrowInvalid, OSError, KeyError, UnicodeError) as problem:
        # KeyError: a column that is there twice; UnicodeError: a name that is no text.
        raise UnreadableFile(
            f"cannot read the file {path}",
            detail=f"{problem}",
            hint="Put a complete file in its place, or an empty table to skip it, under the same name; then resume.",
        ) from None


def _columns(there: list[str], wanted: list[str]) -> dict[str, str | None]:
    """The name of each wanted column in a file, ignoring case; None if the file lacks it."""
    folded = {name.lower(): name for name in reversed(there)}
    return {name: name if name in there else folded.get(name.lower()) for name in wanted}


def _column(batch: pa.RecordBatch, name: str | None, declared: pa.DataType, path: str) -> pa.Array:
    if name is None:
        return pa.nulls(batch.num_rows, declared)
    array = batch.column(name)
    try:
        return as_type(array, declared)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        raise BadStreamDeclaration(f'column "{name}" of "{path}" is not {declared}: {problem}') from None
