"""A stage's cell: what a stage computes, with windows that outlive the process and can follow the stage elsewhere.

It is a cell like any other (``runtime/cell``) whose leaves are the window of a source or remote sources. As everywhere,
only the rows inside their windows are stored; the rest is derived, and completed on demand where the cell is restored:
after a crash on the same node, or on another node to which the stage has moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from midstream.algebra.plan import Plan
from midstream.algebra.window_spec import BEGINNING
from midstream.engine.batch import Batch
from midstream.engine.state.window_store import ReceivedRows, Rows, WindowProgress
from midstream.migration.state_matching import Completion
from midstream.runtime.cell import Cell
from midstream.runtime.messages import encode
from midstream.runtime.segment_log import SegmentLog
from midstream.runtime.state_backend import MANIFEST, PROGRESS, SEGMENT, StateBackend, refusing_damage

__all__ = ["StageCell", "concatenated"]


class _StageProgress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far the cell of a stage has come."""

    watermark: int
    frontier: int
    next_segment: int
    looked_at: int
    taken: dict[str, int]
    """How many messages of each edge are part of the state."""
    segments: list[tuple[int, int]]
    windows: list[tuple[int, int, int, int]]
    """As in ``CellProgress``."""


class StageCell:
    """The cell of one stage."""

    def __init__(self, plan: Plan) -> None:
        self.cell = Cell(plan)
        self.frontier = BEGINNING
        """No later output begins to be valid earlier."""
        self.taken: Counter[str] = Counter()
        """How many messages of each edge are part of the state."""
        self._log = SegmentLog(self.cell.windows)
        self._manifest_changed = True

    @property
    def watermark(self) -> int:
        return self.cell.watermark

    def push(
        self, rows: Mapping[str, Rows | ReceivedRows], watermark: int, messages: Mapping[str, int] | None = None
    ) -> ReceivedRows:
        """The output that the rows, by the identity of their leaf, and the watermark cause.

        ``messages`` says how many of each edge brought the rows.
        """
        output = _received(self.cell.push(rows, watermark), self.cell.plan)
        reached = self.cell.output_frontier
        if reached is not None:
            assert reached >= self.frontier, "a frontier never moves back"
            self.frontier = reached
        self.taken.update(messages or {})
        return output

    def migrate(self, plan: Plan, strategy: str, options: Mapping[str, Any]) -> None:
        """Replace the stage's plan by an equivalent one. Raises, and changes nothing, if the strategy cannot."""
        self.cell.migrate(plan, strategy, **options)
        self._manifest_changed = True

    # Durability

    def save(self, backend: StateBackend) -> None:
        """Make durable what changed since the last call."""
        if self.cell.windows.keeps_rows:
            self._log.write(backend)
        if self._manifest_changed or self.cell.has_running_migrations:
            backend.put(MANIFEST, msgspec.json.encode(self.cell.manifest()))
            self._manifest_changed = False
        windows = self.cell.windows.progress()
        progress = _StageProgress(
            watermark=self.cell.watermark,
            frontier=self.frontier,
            next_segment=self._log.next_number,
            looked_at=self._log.looked_at,
            taken=self.taken,
            segments=self._log.numbers,
            windows=[
                (windows.ends[i], windows.released[i], windows.latest_start[i], windows.latest_end[i])
                for i in windows.ends
            ],
        )
        backend.put(PROGRESS, encode(progress))

    @classmethod
    def restored(cls, plan: Plan, kept: Mapping[str, bytes]) -> StageCell:
        """The cell from all that a state backend holds of it. ``plan`` is the one that the stage began with."""
        restored = cls(plan)
        windows = restored.cell.windows
        with refusing_damage("The state of a stage"):
            progress = msgspec.json.decode(kept[PROGRESS], type=_StageProgress)
            manifest = msgspec.json.decode(kept[MANIFEST])
            segments = {key: kept[key] for key in sorted(kept) if key.startswith(SEGMENT)}
            parts = list(restored._log.read(segments, progress.segments))
            by_window = (
                dict(zip(windows.ends(), values, strict=True)) for values in zip(*progress.windows, strict=True)
            )
            windows.restore(parts, WindowProgress(*by_window))
        restored._log.resume(progress.next_segment, progress.looked_at)
        restored.cell.restore(manifest, progress.watermark, Completion.LAZY)
        restored.frontier = progress.frontier
        restored.taken.update(progress.taken)
        restored._manifest_changed = restored.cell.has_running_migrations
        return restored


def _received(batches: Iterator[Batch], plan: Plan) -> ReceivedRows:
    pieces = [ReceivedRows(batch.valid_from.copy(), batch.valid_to.copy(), batch.columns()) for batch in batches]
    return concatenated(pieces, [field.type for field in plan.schema])


def concatenated(pieces: Iterable[ReceivedRows], types: Iterable[pa.DataType]) -> ReceivedRows:
    """All rows in one piece; ``types`` are those of the columns."""
    pieces = [piece for piece in pieces if len(piece)]
    if len(pieces) == 1:
        return pieces[0]
    if not pieces:
        none = np.empty(0, np.int64)
        return ReceivedRows(none, none, [pa.array([], kind) for kind in types])
    return ReceivedRows(
        np.concatenate([piece.valid_from for piece in pieces]),
        np.concatenate([piece.valid_to for piece in pieces]),
        [pa.concat_arrays(column) for column in zip(*(piece.columns for piece in pieces), strict=True)],
    )
