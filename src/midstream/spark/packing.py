"""The map task of a query on Spark: rows of all streams in, packs for its cells out (see ``runtime/pack``).

The cost of a small micro-batch depends on its tasks, not its rows. Hence one map task takes rows of all streams, which
arrive as one table: see :func:`shared_columns`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from midstream.engine.portable_types import as_type
from midstream.runtime.pack import BAD_MESSAGE, KEEP, Pack, StreamPacker
from midstream.runtime.pack_place import pack_place
from midstream.spark.packed import ROWS
from midstream.spark.python_workers import freeze_loaded

__all__ = ["STREAM", "Packer", "pack_table", "shared_columns"]

STREAM = "stream"
"""A column with the number of a row's stream, in a table of rows of several streams."""
PACK_BYTES = 32 << 20
"""A map task packs and sends its rows whenever they reach this many bytes, so it needs little memory."""


class Packer:
    """Packs the rows of all streams: a function for ``mapInArrow`` over their union.

    The union has :data:`STREAM`, the position of the row's stream in ``streams``, and shared columns.
    """

    def __init__(self, streams: list[StreamPacker], shared: Mapping[int, dict[str, str]], cell_keys: list[int]) -> None:
        self._streams = streams
        self._shared = shared
        self._cell_keys = cell_keys

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        freeze_loaded()
        context = TaskContext.get()
        task = context.partitionId() if context else 0
        for number, piece in enumerate(_pieces(batches)):
            packs = [
                (self._cell_keys[cell], pack_place(stream, task, number), pack)
                for stream, rows in _by_stream(piece)
                for cell, pack in self._streams[stream].packs(self._own(stream, rows))
            ]
            yield pack_table(packs)

    def _own(self, stream: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of one stream with the stream's own columns, in the types that it declares."""
        declared, shared = self._streams[stream].stream, self._shared[stream]
        columns = [
            rows.column(place)
            if name in (KEEP, BAD_MESSAGE)
            else as_type(rows.column(place), declared.column_type(name))
            for name, place in shared.items()
        ]
        return pa.RecordBatch.from_arrays(columns, names=list(shared))


def pack_table(packs: Sequence[tuple[int, int, Pack]]) -> pa.RecordBatch:
    """Packs as rows of ``packed.PACKED``, given the key of their cell and their place."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([cell for cell, _, _ in packs], pa.int64()),
            pa.array([ROWS] * len(packs), pa.string()),
            pa.array([place for _, place, _ in packs], pa.int64()),
            pa.array([pack.to_bytes() for _, _, pack in packs], pa.binary()),
        ],
        names=["cell", "kind", "place", "blob"],
    )


def shared_columns(streams: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Names under which the columns of several streams fit into one table, given the type of each column.

    Each column of the table serves one column of that type in every stream that has one, so the table stays narrow.
    """
    types = {type: number for number, type in enumerate(dict.fromkeys(t for own in streams for t in own.values()))}
    named = []
    for own in streams:
        seen: Counter[str] = Counter()
        names = {}
        for name, type in own.items():
            names[name] = f"{types[type]}_{seen[type]}"
            seen[type] += 1
        named.append(names)
    return named


def _by_stream(rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each stream, in arrival order."""
    streams = np.asarray(rows.column(STREAM))
    starts = np.flatnonzero(np.diff(streams, prepend=-1))
    found = streams[starts]
    if not len(found):
        return
    if len(found) == len(np.unique(found)):
        for stream, start, end in zip(found, starts, [*starts[1:], len(streams)], strict=True):
            yield int(stream), rows.slice(start, end - start)
        return
    for stream in np.unique(found):
        yield int(stream), rows.filter(pa.array(streams == stream))


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches of a task, combined into pieces of bounded size; none if there are no batches."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= PACK_BYTES:
            yield _together(waiting)
            waiting, size = [], 0
    if waiting:
        yield _together(waiting)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    (together,) = batches if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()
    return together
