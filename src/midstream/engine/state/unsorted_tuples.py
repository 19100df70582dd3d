"""Tuples that nobody has asked for yet, in chunks as they came: cheaper than a sorted state, and as short-lived.

Small batches are put together to chunks of some size, so that few chunks have to be looked at; a chunk is dropped when
its last tuple has ended.
"""

from __future__ import annotations

import numpy as np

from midstream.algebra.window_spec import BEGINNING
from midstream.engine.fixed_width import new_array
from midstream.engine.kernels import Ints
from midstream.engine.state.join_state import FROM, REFERENCES, TO

__all__ = ["UnsortedTuples"]

_SMALL_CHUNK = 4096
"""A chunk of fewer tuples takes the next ones in."""


class UnsortedTuples:
    """Tuples as columns: rows of a matrix are valid_from, valid_to and the references."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._chunks: list[tuple[int, Ints]] = []
        """Each with the end of its last tuple."""
        self._count = 0
        self._frontier = BEGINNING

    def __len__(self) -> int:
        """Tuples held, including those that have ended but are not yet dropped."""
        return self._count

    @property
    def bytes(self) -> int:
        return sum(chunk.nbytes for _, chunk in self._chunks)

    def add(self, valid_from: Ints, valid_to: Ints, references: Ints) -> None:
        """Hold tuples."""
        if len(valid_from) == 0:
            return
        end = int(valid_to.max())
        last = np.empty((REFERENCES + self._width, 0), np.int64)
        if self._chunks and self._chunks[-1][1].shape[1] < _SMALL_CHUNK:
            last_end, last = self._chunks.pop()
            self._count -= last.shape[1]
            last = last[:, last[TO] > self._frontier]
            end = max(end, last_end)
        before = last.shape[1]
        chunk = new_array((len(last), before + len(valid_from)))
        chunk[:, :before] = last
        chunk[FROM, before:], chunk[TO, before:], chunk[REFERENCES:, before:] = valid_from, valid_to, references
        self._chunks.append((end, chunk))
        self._count += chunk.shape[1]

    def everything(self) -> Ints:
        """All tuples."""
        return np.concatenate(
            [np.empty((REFERENCES + self._width, 0), np.int64), *(chunk for _, chunk in self._chunks)], axis=1
        )

    def take(self) -> Ints:
        """All tuples, which are no longer held."""
        tuples = self.everything()
        self._chunks, self._count = [], 0
        return tuples

    def expire(self, frontier: int) -> None:
        """Drop tuples that have ended by the frontier, at the latest with the others of their chunk."""
        self._frontier = frontier
        if self._chunks and any(end <= frontier for end, _ in self._chunks):
            self._chunks = [(end, chunk) for end, chunk in self._chunks if end > frontier]
            self._count = sum(chunk.shape[1] for _, chunk in self._chunks)
