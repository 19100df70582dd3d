"""Rows as bytes: a JSON header, and tables of any schemas as Arrow IPC streams behind it.

This is the form in which rows travel to their cell and in which the rows of windows lie in the checkpoint.

    | 4 bytes: length of the header | header | IPC stream | IPC stream | ...

The header tells the length of each stream under ``"lengths"``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

__all__ = ["from_bytes", "to_bytes"]


def to_bytes(header: Mapping[str, Any], batches: Iterable[pa.RecordBatch], compression: str | None = None) -> bytes:
    """A header and tables in one piece.

    >>> header, (batch,) = from_bytes(to_bytes({"stream": "bids"}, [pa.record_batch({"price": [3, 4]})]))
    >>> header["stream"], batch.to_pydict()
    ('bids', {'price': [3, 4]})
    """
    options = pa.ipc.IpcWriteOptions(compression=compression)
    bodies = []
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
            writer.write_batch(batch)
        bodies.append(sink.getvalue())
    head = json.dumps({**header, "lengths": [body.size for body in bodies]}, separators=(",", ":")).encode()
    return b"".join([len(head).to_bytes(4, "little"), head, *bodies])


def from_bytes(data: bytes) -> tuple[dict[str, Any], list[pa.RecordBatch]]:
    """The header and the tables; these refer to the bytes, nothing is copied unless it was compressed."""
    buffer = pa.py_buffer(data)
    start = 4 + int.from_bytes(data[:4], "little")
    header = json.loads(bytes(data[4:start]))
    batches = []
    for length in header.pop("lengths"):
        with pa.ipc.open_stream(buffer.slice(start, length)) as reader:
            batches.append(reader.read_next_batch())
        start += length
    return header, batches
