"""The order of packs: which rows of a micro-batch a cell processes first."""

from __future__ import annotations

__all__ = ["MOST_PARTS", "pack_place", "stream_of"]

_BITS = 20
MOST_PARTS = 1 << _BITS
"""The maximum number of files of a stream in a micro-batch."""


def pack_place(stream: int, part: int, piece: int = 0) -> int:
    """The place of a pack in the order in which a cell processes the packs of a micro-batch.

    It is made of the number of the stream, of the task or file that the rows come from, and of the piece of that.

    >>> pack_place(2, 7) < pack_place(2, 7, piece=1) < pack_place(2, 8), stream_of(pack_place(2, 8))
    (True, 2)
    """
    assert part < MOST_PARTS and piece < 1 << _BITS
    return (stream << 2 * _BITS) + (part << _BITS) + piece


def stream_of(place: int) -> int:
    """The number of the stream in the place of a pack."""
    return place >> 2 * _BITS
