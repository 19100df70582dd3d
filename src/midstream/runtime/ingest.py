"""Rows entering a local run: pushed tables are checked against their stream's declaration before anything else happens.

A table that does not fit raises a :class:`DataError` and changes nothing. Rows without an event time, rows whose event
time is out of range and late rows are dropped and counted (``stream_counters``). On Spark, rows are checked when they
are packed, and late ones are dropped in the cell (``durable_cell``), by the same rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from midstream.algebra.stream import Stream
from midstream.algebra.types import dense_type, type_name
from midstream.algebra.window_spec import BEGINNING, FARTHEST
from midstream.engine.kernels import Flags, Ints
from midstream.engine.state.window_store import Rows
from midstream.errors import MissingColumn, PushedTypeMismatch, UnknownStreamPushed, did_you_mean, quoted
from midstream.runtime.messages import EventTimeProgress
from midstream.runtime.stream_counters import StreamCounters, in_time
from midstream.runtime.watermark import EventTime

__all__ = ["Ingest", "ticks"]

_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}


@dataclass(frozen=True)
class _Read:
    """A pushed table, checked: all rows with their event times, and which rows have one that counts."""

    stream: Stream
    rows: Rows
    timed: Flags
    out_of_range: int


class Ingest:
    """Checks, times and counts the rows of a query's streams, and derives the watermark from them."""

    def __init__(self, streams: Mapping[str, Stream]) -> None:
        self.streams = dict(streams)
        self.counters = {name: StreamCounters() for name in streams}
        self._time = EventTime({name: stream.lateness_ticks for name, stream in streams.items()})

    @property
    def watermark(self) -> int:
        """No later row that counts is older."""
        return self._time.watermark

    @property
    def latest(self) -> Mapping[str, int]:
        """The latest event time of each stream, in ticks."""
        return self._time.latest

    def check(self, tables: Mapping[str, object]) -> list[_Read]:
        """The tables as rows with event times; raises, and changes nothing, if one does not fit its stream."""
        if not isinstance(tables, Mapping):
            raise PushedTypeMismatch(
                f"push takes a mapping from stream names to tables, not a {type(tables).__name__}",
                hint='Write push({"orders": table}).',
            )
        return [_read(self._stream(name), table) for name, table in tables.items()]

    def accept(self, reads: list[_Read]) -> dict[str, Rows]:
        """The rows that are in time. Late means: older than the watermark in force before this push."""
        accepted = {}
        for read in reads:
            name = read.stream.name
            counters = self.counters[name]
            times = read.rows.times
            timely = in_time(times, self.watermark)
            untimed = int(np.count_nonzero(~read.timed))
            counters.count(len(times), untimed - read.out_of_range, read.out_of_range)
            counters.count_late(timely, among=read.timed)
            if read.timed.any():
                self._time.see(name, int(times[read.timed].max()))
            accepted[name] = read.rows.filtered(read.timed & timely)
        return accepted

    def advance(self, at_least: int | None) -> int:
        """Move the watermark: to what the rows say, or to what the caller says if that is later."""
        return self._time.advance(BEGINNING if at_least is None else at_least)

    def progress(self) -> EventTimeProgress:
        """How far the streams are, for ``restore``."""
        return self._time.progress()

    def restore(self, progress: EventTimeProgress, counters: Mapping[str, StreamCounters]) -> None:
        """Continue from there."""
        self._time.restore(progress)
        self.counters = dict(counters)

    def _stream(self, name: str) -> Stream:
        if name not in self.streams:
            raise UnknownStreamPushed(
                f'stream "{name}" is not one of the query\'s streams',
                detail=f"The query reads {quoted(self.streams)}.",
                hint=did_you_mean(str(name), self.streams),
            )
        return self.streams[name]


def _read(stream: Stream, table: object) -> _Read:
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise PushedTypeMismatch(
            f'rows of stream "{stream.name}" came as a {type(table).__name__}',
            hint="Push a pyarrow Table or RecordBatch.",
        )
    columns = {field.name: _column(stream, field, table) for field in stream.schema}
    times, timed = ticks(columns[stream.event_time])
    out_of_range = int(np.count_nonzero(~timed)) - columns[stream.event_time].null_count
    return _Read(stream, Rows(times, columns), timed, out_of_range)


def _column(stream: Stream, field: pa.Field, table: pa.Table) -> pa.Array:
    found = table.schema.get_all_field_indices(field.name)
    if len(found) != 1:
        raise MissingColumn(
            f'column "{field.name}" of stream "{stream.name}" is '
            + ("missing from the pushed rows" if not found else "there more than once in the pushed rows"),
            detail=f"The pushed rows have the columns {quoted(table.schema.names)}.",
            hint=None if found else did_you_mean(field.name, table.schema.names),
        )
    column = table.column(found[0])
    declared, given = dense_type(field.type), dense_type(column.type)
    if given != declared and not pat.is_null(given):
        raise PushedTypeMismatch(
            f'column "{field.name}" of stream "{stream.name}" is of type {type_name(column.type)}',
            detail=f"The stream declares it as {type_name(field.type)}.",
            hint="Cast the column, or change the declaration.",
        )
    if pat.is_run_end_encoded(column.type):
        column = pa.chunked_array([pc.run_end_decode(chunk) for chunk in column.chunks], column.type.value_type)
    if column.type != declared:
        column = column.cast(declared)
    try:
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], declared)
    except pa.ArrowInvalid as problem:
        raise PushedTypeMismatch(
            f'column "{field.name}" of stream "{stream.name}" has too much in one push',
            detail=str(problem),
            hint=f"Push fewer rows at a time, or declare it as large_{declared}.",
        ) from None


def ticks(column: pa.Array) -> tuple[Ints, Flags]:
    """Event times in ticks, and which rows have a usable one: not NULL, and at most 2^62 ticks from 0.

    The limit keeps window arithmetic within int64, whose extreme values stand for the beginning and the end of time.
    """
    timed = np.asarray(column.is_valid())
    if pat.is_timestamp(column.type):
        values = np.asarray(column.cast(pa.int64()).fill_null(0))
        if column.type.unit == "ns":
            return values // 1000, timed
        factor = _MICROSECONDS[column.type.unit]
        limit = FARTHEST // factor
        timed = timed & (values >= -limit) & (values <= limit)
        return np.where(timed, values, 0) * factor, timed
    if pat.is_uint64(column.type):
        values = np.asarray(column.fill_null(0))
        timed = timed & (values <= FARTHEST)
        return np.where(timed, values, 0).astype(np.int64), timed
    values = np.asarray(column.fill_null(0)).astype(np.int64)
    return values, timed & (values >= -FARTHEST) & (values <= FARTHEST)
