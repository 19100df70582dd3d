"""What a judge of continuous queries takes and gives: declared streams and their rows, and a series of snapshots.

Both judges, the DuckDB oracle and the brute force, share these types and nothing else.

>>> series = SnapshotSeries((1, 4), pa.table({"instant": [1, 1], "k": ["a", "b"]}))
>>> series.at(0), series.at(3), series.at(4)
([], [('a',), ('b',)], [])
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

__all__ = ["Rows", "SnapshotSeries", "StreamLike"]

Rows: TypeAlias = pa.Table | pa.RecordBatch | Sequence[pa.Table | pa.RecordBatch]


class StreamLike(Protocol):
    """What a judge reads of a stream's declaration."""

    @property
    def name(self) -> str:
        """The name the query text uses."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""

    @property
    def event_time(self) -> str:
        """The column of event times, integers or timestamps."""


@dataclass(frozen=True, eq=False)
class SnapshotSeries:
    """The result's snapshots: the bag at `instants[i]` holds until `instants[i + 1]`, the last one for ever.

    `table` has an instant per row in its first column, then the select list. Before the first instant
    nothing is valid. If `sampled`, the snapshots hold at their own instants only.
    """

    instants: tuple[int, ...]
    table: pa.Table
    sampled: bool = False

    def at(self, instant: int) -> list[tuple[Any, ...]]:
        """The bag of result rows valid at this instant, in no particular order."""
        index = bisect_right(self.instants, instant) - 1
        if index < 0 or (self.sampled and self.instants[index] != instant):
            if self.sampled:
                raise KeyError(f"no snapshot was taken at {instant}")
            return []
        rows = zip(*(column.to_pylist() for column in self.table.columns), strict=True)
        return [row[1:] for row in rows if row[0] == self.instants[index]]
