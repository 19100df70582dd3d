"""The order of packs: which rows of a micro-batch a cell takes first."""

from __future__ import annotations

__all__ = ["pack_place", "stream_of"]


def pack_place(stream: int, part: int, piece: int = 0) -> int:
    """The place of a pack among those of its cell and micro-batch, which says in which order they are taken.

    Given the number of its stream, of the task or file that its rows are of, and of the piece of that.

    >>> pack_place(2, 7) < pack_place(2, 7, piece=1) < pack_place(2, 8), stream_of(pack_place(2, 8))
    (True, 2)
    """
    return (stream << 40) + (part << 20) + piece


def stream_of(place: int) -> int:
    """The number of the stream in the place of a pack."""
    return place >> 40
