"""A pack: rows of one stream on their way to a cell, as bytes, with what was seen of the stream on the way."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pyarrow as pa

from midstream.runtime.transport import from_bytes, to_bytes

__all__ = ["Pack", "PackHeader"]


class PackHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Which windows the rows are for, and what the map task saw of the stream."""

    stream: str
    windows: list[str]
    counts: bool
    """Whether the figures below are to be counted: of several packs of the same rows, one counts."""
    rows: int
    without_event_time: int
    event_time_out_of_range: int
    latest: int | None
    """The latest event time seen, in ticks."""


@dataclass(frozen=True)
class Pack:
    """Rows of one stream for some of its windows."""

    header: PackHeader
    batch: pa.RecordBatch

    def to_bytes(self) -> bytes:
        return to_bytes(self.header, [self.batch])

    @classmethod
    def of_bytes(cls, data: bytes) -> Pack:
        header, (batch,) = from_bytes(data, PackHeader)
        return cls(header, batch)
