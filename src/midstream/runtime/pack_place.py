"""The order of packs: which rows of a micro-batch a cell takes first."""

from __future__ import annotations

__all__ = ["MOST_PARTS", "pack_place", "stream_of"]

_BITS = 20
MOST_PARTS = 1 << _BITS
"""How many files of a stream a micro-batch can have."""


def pack_place(stream: int, part: int, piece: int = 0) -> int:
    """The place of a pack among those of its cell and micro-batch, which says in which order they are taken.

    Given the number of its stream, of the task or file that its rows are of, and of the piece of that.

    >>> pack_place(2, 7) < pack_place(2, 7, piece=1) < pack_place(2, 8), stream_of(pack_place(2, 8))
    (True, 2)
    """
    assert part < MOST_PARTS and piece < 1 << _BITS
    return (stream << 2 * _BITS) + (part << _BITS) + piece


def stream_of(place: int) -> int:
    """The number of the stream in the place of a pack."""
    return place >> 2 * _BITS
