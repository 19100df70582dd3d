"""Rows as bytes: a typed header as JSON, and tables of any schemas as Arrow IPC streams behind it, in one frame.

This is the form in which rows travel to their cell and in which the rows of windows lie in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec
import pyarrow as pa

from midstream.runtime.framing import frame_prefix, split_frame

__all__ = ["from_bytes", "to_bytes"]

Header = TypeVar("Header", bound=msgspec.Struct)


def to_bytes(header: msgspec.Struct, batches: Iterable[pa.RecordBatch], compression: str | None = None) -> bytes:
    """A header and tables in one piece.

    >>> class Seen(msgspec.Struct):
    ...     stream: str
    >>> header, (batch,) = from_bytes(to_bytes(Seen("bids"), [pa.record_batch({"price": [3, 4]})]), Seen)
    >>> header.stream, batch.to_pydict()
    ('bids', {'price': [3, 4]})
    """
    options = pa.ipc.IpcWriteOptions(compression=compression)
    bodies = []
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
            writer.write_batch(batch)
        bodies.append(sink.getvalue())
    return b"".join([frame_prefix(msgspec.json.encode(header), [body.size for body in bodies]), *bodies])


def from_bytes(data: bytes | memoryview, kind: type[Header]) -> tuple[Header, list[pa.RecordBatch]]:
    """The header and the tables; these refer to the bytes, nothing is copied unless it was compressed."""
    buffer = pa.py_buffer(data)
    header, places = split_frame(data)
    batches = []
    for start, length in places:
        with pa.ipc.open_stream(buffer.slice(start, length)) as reader:
            batches.append(reader.read_next_batch())
    return msgspec.json.decode(header, type=kind), batches
