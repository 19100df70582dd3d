"""What became of each migration of a query, put together from what its cells report.

A migration is completed when every cell has completed it. What is final stays known, also after a restart, when cells
report one after the other and have forgotten old commands: ``status.json`` has the outcomes of the latest migrations,
and of those before them it says which were refused.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from midstream.migration.record import MigrationFigures
from midstream.runtime.messages import CellMigration, MigrationEntry, MigrationOutcome, MigrationState, Status
from midstream.runtime.progress import Progress

__all__ = ["SHOWN_MIGRATIONS", "MigrationOutcomes", "entries_shown", "outcome_in"]

SHOWN_MIGRATIONS = 50
"""Migrations in ``status.json``, the latest ones; and all that are not over."""
_WITHOUT_EFFECT: tuple[MigrationState, ...] = ("refused", "unchanged")


class MigrationOutcomes:
    """What became of migrations, by the number of their command. Thread-safe."""

    def __init__(self, progress: Progress, before: Status | None = None) -> None:
        """``before`` is what the query reported before it was restarted."""
        self._lock = threading.Lock()
        self._progress = progress
        self._query = None if before is None else before.metrics.query
        self._known = {} if before is None else _known(before)

    def of(self, number: int) -> MigrationOutcome:
        """What is known of a migration now."""
        with self._lock:
            query = self._progress.query
            if query is not None and query != self._query:
                # The control directory was another query's before.
                self._query = query
                self._known = {}
            known = self._known.get(number)
            if known is not None and known.is_over:
                return known
            reported = self._progress.outcomes(number)
            if known is None and not reported:
                # Cells have forgotten old ones, which are over.
                return MigrationOutcome(state="completed" if number < self._progress.latest_outcome else "submitted")
            before = {} if known is None else {cell.cell: cell for cell in known.cells}
            outcome = _together(before | reported, self._progress.cells)
            if outcome.is_over:
                self._known[number] = outcome
            return outcome


def entries_shown(
    entries: Sequence[tuple[int, MigrationState]],
) -> tuple[set[int], dict[MigrationState, list[int]]]:
    """Which of all migrations, given in order with their states, ``status.json`` has as entries; and of the others,
    those that had no effect, by state."""
    latest = {number for number, _ in entries[-SHOWN_MIGRATIONS:]}
    shown = latest | {number for number, state in entries if state in ("submitted", "running")}
    earlier = {
        kind: [number for number, state in entries if state == kind and number not in shown] for kind in _WITHOUT_EFFECT
    }
    return shown, {kind: numbers for kind, numbers in earlier.items() if numbers}


def outcome_in(status: Status | None, number: int) -> MigrationOutcome:
    """What a status says of a migration; it is "submitted" until the status has it."""
    if status is None:
        return MigrationOutcome()
    known = _known(status, with_submitted=True).get(number)
    if known is not None:
        return known
    is_earlier = len(status.history) >= SHOWN_MIGRATIONS and number < status.history[-1].number
    return MigrationOutcome(state="completed" if is_earlier else "submitted")


def _known(status: Status, with_submitted: bool = False) -> dict[int, MigrationOutcome]:
    def is_known(entry: MigrationEntry) -> bool:
        return with_submitted or entry.outcome.state != "submitted"

    earlier = {number: MigrationOutcome(state=kind) for kind, numbers in status.earlier.items() for number in numbers}
    return earlier | {entry.number: entry.outcome for entry in status.history if is_known(entry)}


def _together(by_cell: Mapping[int, CellMigration], count: int) -> MigrationOutcome:
    """What became of a migration in a query of so many cells: all have to be done with it."""
    cells = [by_cell[cell] for cell in sorted(by_cell)]
    for cell in cells:
        if cell.state in _WITHOUT_EFFECT:
            return MigrationOutcome(state=cell.state, reason=cell.reason, cells=cells)
    is_over = len(cells) == count and all(cell.state == "completed" for cell in cells)
    figures = [cell.figures for cell in cells if cell.figures is not None]
    return MigrationOutcome(
        state="completed" if is_over else "running", figures=_added(figures, is_over) if figures else None, cells=cells
    )


def _added(figures: list[MigrationFigures], is_over: bool) -> MigrationFigures:
    """The figures of all cells: rows are added; states are those of one cell, because each has them all."""
    began_at = [one.began_at for one in figures if one.began_at is not None]
    ended = [one.ended for one in figures if one.ended is not None]
    ended_at = [one.ended_at for one in figures if one.ended_at is not None]
    return MigrationFigures(
        started=min(one.started for one in figures),
        ended=max(ended) if is_over and ended else None,
        began_at=min(began_at, default=None),
        ended_at=max(ended_at, default=None) if is_over else None,
        states_shared=max(one.states_shared for one in figures),
        states_incomplete=max(one.states_incomplete for one in figures),
        rows_recomputed=sum(one.rows_recomputed for one in figures),
        rows_buffered=sum(one.rows_buffered for one in figures),
        old_results=sum(one.old_results for one in figures),
        new_results=sum(one.new_results for one in figures),
    )
