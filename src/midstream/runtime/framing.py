"""Frames: a header and any number of bodies as bytes, each with its length before it.

    | 4 bytes: length of the header | 4 bytes: number of bodies | 8 bytes: length of each body | header | body | ...

Packs and segments are frames in one piece (``transport``), the messages between a worker and a cell host are frames on
a socket (``cell_host``). All integers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import IO

__all__ = ["frame_prefix", "read_frame", "split_frame"]

_COUNTS = struct.Struct("<II")


def frame_prefix(header: bytes, lengths: Sequence[int]) -> bytes:
    """What comes before the bodies of a frame: the lengths and the header.

    >>> header, places = split_frame(frame_prefix(b"head", [2, 3]) + b"ABcde")
    >>> header, [(start, length) for start, length in places]
    (b'head', [(28, 2), (30, 3)])
    """
    return b"".join([_COUNTS.pack(len(header), len(lengths)), struct.pack(f"<{len(lengths)}Q", *lengths), header])


def split_frame(data: bytes | memoryview) -> tuple[bytes, Iterator[tuple[int, int]]]:
    """The header of a frame, and where each body begins and how long it is."""
    header_length, count = _COUNTS.unpack_from(data)
    lengths = struct.unpack_from(f"<{count}Q", data, _COUNTS.size)
    begin = _COUNTS.size + 8 * count
    return bytes(data[begin : begin + header_length]), _places(begin + header_length, lengths)


def read_frame(stream: IO[bytes]) -> tuple[bytes, list[bytes]]:
    """The header and the bodies of the next frame; an EOFError if the stream ends before it does."""
    header_length, count = _COUNTS.unpack(_exactly(stream, _COUNTS.size))
    lengths = struct.unpack(f"<{count}Q", _exactly(stream, 8 * count))
    return _exactly(stream, header_length), [_exactly(stream, length) for length in lengths]


def _places(start: int, lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    for length in lengths:
        yield start, length
        start += length


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise EOFError("the connection was closed")
    return data
