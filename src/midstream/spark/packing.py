"""Routing and packing: rows go to the cells that need them, as one piece of bytes per map task and cell.

Row by row, the way into a stateful operator costs several times what the join costs. So each map task sorts its rows by
cell (see ``planning/partitioning``; the routing does not depend on the plan, so that a change of the plan moves no row)
and sends each cell one *pack* for each stream: the rows as Arrow, and what the task saw of the stream as a whole. Every
task sends to every cell, also when it has no row for it: so that each cell knows how far each stream has come, and all
agree on the watermark.

A small micro-batch costs what its tasks cost, not its rows. Hence one map task takes rows of all streams, which come to
it as one table: see :func:`shared_columns`.

Two windows of one stream may be keyed differently (a self-join); their rows are then packed apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from midstream.algebra.expressions import Column, substitute
from midstream.algebra.plan import Window
from midstream.engine.kernels import Ints
from midstream.planning.partitioning import Partitioning
from midstream.runtime.cell_routing import cells_of
from midstream.runtime.ingest import ticks
from midstream.runtime.pack import Pack, PackHeader
from midstream.spark.spark_types import as_type

__all__ = ["KEEP", "PACKED", "STREAM", "Packer", "StreamPacker", "shared_columns"]

KEEP = "__keep"
"""A column that says whether any window wants the row; computed by Spark."""
STREAM = "stream"
"""A column that says whose row it is, in a table of several streams' rows."""
PACK_BYTES = 32 << 20
"""Rows of a map task are sent on when they are as many bytes: a task of any size needs little memory."""
PACKED = "cell long, kind string, place long, blob binary"
"""What packs look like to Spark; ``place`` orders them."""


class StreamPacker:
    """Packs the rows of one stream."""

    def __init__(self, windows: list[Window], columns: list[str], partitioning: Partitioning) -> None:
        self.stream = windows[0].stream
        self.columns = columns
        self._partitioning = partitioning
        self._groups = _alike(windows, partitioning)

    def packs(self, batch: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
        """The rows for each cell, and the cell."""
        event_times = batch.column(self.stream.event_time)
        times, timed = ticks(event_times.cast(self.stream.column_type(self.stream.event_time)))
        latest = int(times[timed].max()) if timed.any() else None
        out_of_range = int(np.count_nonzero(~timed)) - event_times.null_count
        wanted = timed
        if KEEP in batch.schema.names:
            wanted = timed & np.asarray(batch.column(KEEP).fill_null(False))
        columns = [as_type(batch.column(name), self.stream.column_type(name)) for name in self.columns]
        rows = pa.RecordBatch.from_arrays([pa.array(times), *columns], names=["__time", *self.columns])
        if not wanted.all():
            rows = rows.filter(pa.array(wanted))
        for number, group in enumerate(self._groups):
            header = PackHeader(
                stream=self.stream.name,
                windows=[window.identity for window in group],
                counts=number == 0,
                rows=batch.num_rows,
                without_event_time=event_times.null_count,
                event_time_out_of_range=out_of_range,
                latest=latest,
            )
            for cell, part in enumerate(self._split(rows, group[0])):
                yield cell, Pack(header, part).to_bytes()

    def _split(self, rows: pa.RecordBatch, window: Window) -> Iterator[pa.RecordBatch]:
        """The rows for each cell, in the order of cells."""
        count = self._partitioning.cells
        if count == 1:
            yield rows
            return
        cells = cells_of(self._partitioning, window, lambda column: rows.column(column.name), rows.num_rows)
        places = np.tile(np.arange(rows.num_rows), len(cells))
        order, ends = _sorted_by_cell(cells.reshape(-1), count)
        taken = rows.take(pa.array(places[order]))
        start = 0
        for end in ends:
            yield taken.slice(start, int(end) - start)
            start = int(end)


class Packer:
    """Packs the rows of all streams: a function for ``mapInArrow`` over their union.

    The union has :data:`STREAM`, which says by its place in ``streams`` whose row it is, and shared columns.
    """

    def __init__(self, streams: list[StreamPacker], shared: list[dict[str, str]], cell_keys: list[int]) -> None:
        self._streams = streams
        self._shared = shared
        self._cell_keys = cell_keys

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = (context.partitionId() if context else 0) << 20
        for number, piece in enumerate(_pieces(batches)):
            packs = [
                (self._cell_keys[cell], (stream << 40) + task + number, data)
                for stream, rows in _by_stream(piece)
                for cell, data in self._streams[stream].packs(self._own(stream, rows))
            ]
            cells, places, blobs = zip(*packs, strict=True) if packs else ((), (), ())
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(cells, pa.int64()),
                    pa.array(["rows"] * len(packs), pa.string()),
                    pa.array(places, pa.int64()),
                    pa.array(blobs, pa.binary()),
                ],
                names=["cell", "kind", "place", "blob"],
            )

    def _own(self, stream: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of one stream with the stream's own columns."""
        shared = self._shared[stream]
        return pa.RecordBatch.from_arrays([rows.column(name) for name in shared.values()], names=list(shared))


def shared_columns(streams: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Names under which the columns of several streams fit into one table, given the type of each column.

    A column of the table serves one column of that type in every stream that has one; so it is no wider than need be.
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
    """The rows of each stream, in the order they came."""
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


def _sorted_by_cell(cells: Ints, count: int) -> tuple[Ints, Ints]:
    """An order that puts rows of the same cell together, and where each cell ends in it."""
    return np.argsort(cells, kind="stable"), np.cumsum(np.bincount(cells, minlength=count))


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches of a task together, in pieces of bounded size; none if there are none."""
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


def _alike(windows: list[Window], partitioning: Partitioning) -> list[list[Window]]:
    """The windows of a stream, those together whose rows go to the same cells."""
    groups: dict[tuple[str | None, ...], list[Window]] = {}
    for window in windows:
        keys = []
        for dimension in partitioning.dimensions:
            key = dimension.keys.get(window.identity)
            keys.append(None if key is None else substitute(key, lambda c: Column("", c.name, c.type)).text)
        groups.setdefault(tuple(keys), []).append(window)
    return list(groups.values())
