"""The segment log: the rows in a cell's windows, durable, in pieces that are written once and dropped as a whole.

A micro-batch writes its own rows as one *segment*. Segments are dropped when all their rows have left their windows, so
that what is written is proportional to the batch. They stay few: small ones are merged geometrically, as in an LSM tree
(a row is rewritten at most log₂ 4096 times), and one of whose rows only a quarter is alive, because some lie far ahead
in time, is rewritten without the others.

A segment begins with the checksum of what follows, which includes its number, and the progress of the cell lists the
segments there must be (see ``messages.CellProgress``): one that is missing, damaged or in another's place is refused
when the cell is restored.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa

from midstream.engine.state.window_store import KeptRows, WindowStore
from midstream.runtime.state_backend import SEGMENT, StateBackend, damaged_checkpoint, refusing_damage
from midstream.runtime.transport import from_bytes, to_bytes

__all__ = ["SegmentHeader", "SegmentLog", "read_segment"]

SMALL_SEGMENT = 4096
"""Rows. Smaller segments are merged: each costs a read when the cell is restored, and an entry in the store."""
SPARSE = 4
"""A segment with less than one row in so many alive is rewritten."""
_CHECKSUM_BYTES = 4


class SegmentHeader(msgspec.Struct, frozen=True):
    """Which segment it is, which windows it has rows of, by their place, and of every window the first row's number and
    the end."""

    number: int
    windows: list[int]
    first: list[int]
    last: list[int]


@dataclass
class _Segment:
    """Consecutive rows: their numbers, until when they are needed, how many there are."""

    number: int
    first: dict[str, int]
    last: dict[str, int]
    latest_end: dict[str, int]
    rows: int

    @property
    def key(self) -> str:
        return segment_key(self.number)


def segment_key(number: int) -> str:
    """Where a segment is in the state backend; the keys are in the order of the numbers."""
    return f"{SEGMENT}{number:015d}"


class SegmentLog:
    """The segments of one cell: which there are, and what each micro-batch writes and drops."""

    def __init__(self, windows: WindowStore) -> None:
        self._windows = windows
        self._identities = list(windows.ends())
        self._segments: list[_Segment] = []
        self._written_ends = windows.ends()
        self.next_number = 0
        self.looked_at = 0
        """The segment that was last examined for dead rows; they take turns, also across restarts."""
        self.bytes_written = 0

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def rows(self) -> int:
        """Rows in all segments, also those that have left their windows since."""
        return sum(segment.rows for segment in self._segments)

    @property
    def numbers(self) -> list[tuple[int, int]]:
        """The numbers of all segments, as runs of consecutive ones: the first of each and the last."""
        runs: list[tuple[int, int]] = []
        for segment in self._segments:
            if runs and runs[-1][1] + 1 == segment.number:
                runs[-1] = runs[-1][0], segment.number
            else:
                runs.append((segment.number, segment.number))
        return runs

    def read(self, segments: Mapping[str, bytes], numbers: Iterable[tuple[int, int]]) -> Iterator[dict[str, KeptRows]]:
        """Take over segments in the order of their rows; the rows of each, by window.

        ``numbers`` says which there must be. Raises ``MalformedMessage`` if one is missing, left over or damaged.
        """
        left = set(segments)
        for first_number, last_number in numbers:
            for number in range(first_number, last_number + 1):
                key = segment_key(number)
                if key not in left:
                    raise damaged_checkpoint(f"Segment {number} of the rows in their windows is missing.")
                left.remove(key)
                with refusing_damage(f"Segment {number}"):
                    kept = self._read_segment(number, segments[key])
                yield kept
        if left:
            raise damaged_checkpoint(f"There is {min(left)}, which is none of this state.")

    def _read_segment(self, number: int, data: bytes) -> dict[str, KeptRows]:
        header, batches = read_segment(data)
        if header.number != number:
            raise ValueError(f"it is segment {header.number}")
        kept = {self._identities[place]: _as_kept(batch) for place, batch in zip(header.windows, batches, strict=True)}
        first, last = (dict(zip(self._identities, ends, strict=True)) for ends in (header.first, header.last))
        self._segments.append(_segment(number, kept, first, last))
        return kept

    def resume(self, next_number: int, looked_at: int) -> None:
        """Continue after the rows that are in their windows now."""
        self.next_number, self.looked_at = next_number, looked_at
        self._written_ends = self._windows.ends()

    def write(self, backend: StateBackend) -> None:
        """Make the rows durable that entered their windows since the last call, and drop what is not needed."""
        self._drop_ended(backend)
        self._write_rows(backend)
        self._rewrite_sparse(backend)

    def _drop_ended(self, backend: StateBackend) -> None:
        """Drop segments whose rows have all left their windows."""
        released = self._windows.progress().released
        for segment in [s for s in self._segments if all(e <= released[i] for i, e in s.latest_end.items())]:
            backend.remove(segment.key)
            self._segments.remove(segment)

    def _write_rows(self, backend: StateBackend) -> None:
        """Write the new rows, with small segments that came before."""
        first, last = self._written_ends, self._windows.ends()
        self._written_ends = last
        if first == last:
            return
        kept = self._windows.kept(first, last)
        rows = sum(map(len, kept.values()))
        if rows == 0:
            return
        while self._merges_with_previous(len(self._segments), rows):
            previous = self._segments.pop()
            backend.remove(previous.key)
            first = previous.first
            kept = self._windows.kept(first, last)
            rows = sum(map(len, kept.values()))
        self._segments.append(self._write_segment(backend, self.next_number, kept, first, last))
        self.next_number += 1

    def _rewrite_sparse(self, backend: StateBackend) -> None:
        """Examine one segment per batch: if most of its rows are dead, rewrite it, with small ones before it."""
        if not self._segments:
            return
        self.looked_at = (self.looked_at + 1) % len(self._segments)
        place = self.looked_at
        segment = self._segments[place]
        rows = self._windows.living(segment.first, segment.last)
        if rows * SPARSE >= segment.rows and not self._merges_with_previous(place, rows):
            return
        kept = self._windows.kept(segment.first, segment.last)
        first = segment.first
        while self._merges_with_previous(place, rows):
            place -= 1
            previous = self._segments.pop(place)
            backend.remove(previous.key)
            first = previous.first
            kept = self._windows.kept(first, segment.last)
            rows = sum(map(len, kept.values()))
        if rows:
            self._segments[place] = self._write_segment(backend, segment.number, kept, first, segment.last)
        else:
            backend.remove(segment.key)
            del self._segments[place]

    def _merges_with_previous(self, place: int, rows: int) -> bool:
        """Whether so many rows are few enough to be written together with the segment before the place."""
        return place > 0 and rows < SMALL_SEGMENT and self._segments[place - 1].rows <= 2 * rows

    def _write_segment(
        self,
        backend: StateBackend,
        number: int,
        kept: Mapping[str, KeptRows],
        first: dict[str, int],
        last: dict[str, int],
    ) -> _Segment:
        kept = {identity: rows for identity, rows in kept.items() if len(rows)}
        segment = _segment(number, kept, first, last)
        places = [self._identities.index(identity) for identity in kept]
        header = SegmentHeader(number, places, list(first.values()), list(last.values()))
        content = to_bytes(header, [_as_batch(rows) for rows in kept.values()], compression="zstd")
        data = b"".join([_checksum(content), content])
        backend.put(segment.key, data)
        self.bytes_written += len(data)
        return segment


def read_segment(data: bytes) -> tuple[SegmentHeader, list[pa.RecordBatch]]:
    """The header of a segment, and the rows of each of its windows; a ValueError if it is not what was written."""
    content = memoryview(data)[_CHECKSUM_BYTES:]
    if data[:_CHECKSUM_BYTES] != _checksum(content):
        raise ValueError("it is not what its checksum says")
    return from_bytes(content, SegmentHeader)


def _checksum(content: bytes | memoryview) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "little")


def _segment(number: int, kept: Mapping[str, KeptRows], first: dict[str, int], last: dict[str, int]) -> _Segment:
    latest_end = {identity: int(rows.valid_to.max()) for identity, rows in kept.items()}
    return _Segment(number, first, last, latest_end, sum(map(len, kept.values())))


def _as_batch(rows: KeptRows) -> pa.RecordBatch:
    """Numbers as steps and ends as durations: they compress to almost nothing."""
    steps = np.diff(rows.numbers, prepend=np.int64(0))
    # Instants may lie anywhere in int64: the difference wraps around, and so does the sum that undoes it.
    durations = (rows.valid_to.view(np.uint64) - rows.valid_from.view(np.uint64)).view(np.int64)
    own = [pa.array(steps), pa.array(rows.valid_from), pa.array(durations)]
    arrays = own + rows.columns
    return pa.RecordBatch.from_arrays(arrays, names=[str(place) for place in range(len(arrays))])


def _as_kept(batch: pa.RecordBatch) -> KeptRows:
    steps, valid_from, durations = (batch.column(place).to_numpy() for place in range(3))
    valid_to = (valid_from.view(np.uint64) + durations.view(np.uint64)).view(np.int64)
    return KeptRows(np.cumsum(steps), valid_from, valid_to, batch.columns[3:])
