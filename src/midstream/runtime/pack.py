"""Packs: rows of one stream on their way to a cell, as bytes, with figures about the stream.

Passing rows to a stateful operator one by one costs several times as much as the join itself. So each map task sorts
its rows by cell (see ``planning/partitioning``; the routing does not depend on the plan, so a change of the plan moves
no row) and sends each cell one *pack* per stream: the rows as Arrow, and figures about all rows of the stream that the
task saw. Every task sends a pack to every cell, even without rows for it, so that each cell knows the progress of each
stream and all agree on the watermark.

Two windows of one stream may be keyed differently (a self-join); their rows are then packed separately.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.expressions import Column, Expression, conjunction, substitute
from midstream.algebra.plan import Window
from midstream.engine.expressions.evaluate import truth
from midstream.engine.kernels import Ints
from midstream.planning.partitioning import Partitioning
from midstream.runtime.cell_routing import cells_of
from midstream.runtime.ingest import ticks
from midstream.runtime.transport import from_bytes, to_bytes

__all__ = ["BAD_MESSAGE", "KEEP", "Pack", "PackHeader", "StreamPacker"]

KEEP = "__keep"
"""A column that marks rows that some window needs; computed by Spark."""
BAD_MESSAGE = "__bad_message"
"""A column that marks messages that could not be read: they are counted, then dropped."""


class PackHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The windows that the rows are for, and the map task's figures about the stream."""

    stream: str
    windows: list[str]
    counts: bool
    """Whether to count the figures below: of several packs of the same rows, only one is counted."""
    rows: int
    without_event_time: int
    event_time_out_of_range: int
    bad_messages: int = 0
    latest: int | None
    """The latest event time seen, in ticks."""


class Pack(NamedTuple):
    """Rows of one stream for one cell, with event times in ticks, and figures about the stream."""

    header: PackHeader
    rows: pa.RecordBatch

    def to_bytes(self) -> bytes:
        return to_bytes(self.header, [self.rows])

    @classmethod
    def of(cls, pack: Pack | bytes | pa.Buffer) -> Pack:
        """A pack, decoded if it is bytes."""
        if isinstance(pack, Pack):
            return pack
        header, (rows,) = from_bytes(pack, PackHeader)
        return cls(header, rows)


class StreamPacker:
    """Packs the rows of one stream."""

    def __init__(
        self,
        windows: list[Window],
        columns: list[str],
        partitioning: Partitioning,
        conditions: Mapping[str, Iterable[Expression]] | None = None,
    ) -> None:
        """With ``conditions``, keyed by window identity, rows that no window's conditions accept are dropped."""
        self.stream = windows[0].stream
        self.columns = columns
        self._partitioning = partitioning
        self._groups = _alike(windows, partitioning)
        self._conditions: list[Expression] = []
        if conditions is not None and all(conditions[window.identity] for window in windows):
            self._conditions = [conjunction(conditions[window.identity]) for window in windows]

    def packs(self, batch: pa.RecordBatch) -> Iterator[tuple[int, Pack]]:
        """Each cell and the rows for it.

        Columns have their declared types; :data:`KEEP` and :data:`BAD_MESSAGE` may be among them.
        """
        rows_in = batch.num_rows
        if BAD_MESSAGE in batch.schema.names:
            batch = batch.filter(pc.invert(batch.column(BAD_MESSAGE)))
        event_times = batch.column(self.stream.event_time)
        times, timed = ticks(event_times)
        latest = int(times[timed].max()) if timed.any() else None
        out_of_range = int(np.count_nonzero(~timed)) - event_times.null_count
        wanted = timed
        if KEEP in batch.schema.names:
            wanted = timed & np.asarray(batch.column(KEEP).fill_null(False))
        if self._conditions:
            found = (truth(c, lambda c: batch.column(c.name), batch.num_rows) for c in self._conditions)
            wanted = timed & reduce(np.logical_or, found)
        columns = [batch.column(name) for name in self.columns]
        rows = pa.RecordBatch.from_arrays([pa.array(times), *columns], names=["__time", *self.columns])
        if not wanted.all():
            rows = rows.filter(pa.array(wanted))
        for number, group in enumerate(self._groups):
            header = PackHeader(
                stream=self.stream.name,
                windows=[window.identity for window in group],
                counts=number == 0,
                rows=rows_in,
                without_event_time=event_times.null_count,
                event_time_out_of_range=out_of_range,
                bad_messages=rows_in - batch.num_rows,
                latest=latest,
            )
            for cell, part in enumerate(self._split(rows, group[0])):
                yield cell, Pack(header, part)

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


def _sorted_by_cell(cells: Ints, count: int) -> tuple[Ints, Ints]:
    """An order that groups rows by cell, and the end of each cell's rows in it."""
    return np.argsort(cells, kind="stable"), np.cumsum(np.bincount(cells, minlength=count))


def _alike(windows: list[Window], partitioning: Partitioning) -> list[list[Window]]:
    """The windows of a stream, grouped by the cells that their rows go to."""
    groups: dict[tuple[str | None, ...], list[Window]] = {}
    for window in windows:
        keys = []
        for dimension in partitioning.dimensions:
            key = dimension.keys.get(window.identity)
            keys.append(None if key is None else substitute(key, lambda c: Column("", c.name, c.type)).text)
        groups.setdefault(tuple(keys), []).append(window)
    return list(groups.values())
