"""Find and remove files left by failed attempts, but never one that could still be committed.

A midstream file (``file_names``) that the table does not name is an orphan if it can no longer be committed:

- its writer's epoch is before the table's: that writer stops at its next commit;
- its application has committed this micro-batch or a later one, so it is never committed again;
- it belongs to a backfill that has been committed.

All this is decided by a single version of the table, so a file that is committed meanwhile is kept. Files that were
committed and later removed from the table (by DELETE or OPTIMIZE) are not touched: they belong to earlier versions, and
Delta's own VACUUM removes them eventually. Only when the log has forgotten them
(``delta.deletedFileRetentionDuration``, by default a week) are they treated like any other file.

Files of a killed backfill are kept, because another process may be about to commit them. If no backfill runs,
``with_backfills`` removes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from deltalake import DeltaTable

from midstream.delta.commits import epoch_of, has_backfill
from midstream.delta.file_names import FileName, transaction_id
from midstream.delta.location import TableLocation

__all__ = ["OrphanRemoval", "find_orphans", "remove_files_of", "remove_orphans"]

LEAST_SECONDS = 60.0
SHARE = 0.01
"""The search for orphans takes at most this share of the time, and runs at most every ``LEAST_SECONDS``."""


def find_orphans(table: DeltaTable, with_backfills: bool = False) -> list[str]:
    """The names of orphans, according to this version of the table."""
    epoch = epoch_of(table)

    def is_dead(file: FileName) -> bool:
        if file.epoch is None:
            return with_backfills or has_backfill(table, file.application)
        committed = table.transaction_version(transaction_id(file.application))
        is_over = committed is not None and file.batch <= committed
        return file.epoch < epoch or is_over

    unnamed = _unnamed_files(table)
    parsed = {name: FileName.parsed(name) for name in unnamed}
    return sorted(name for name, file in parsed.items() if file is not None and is_dead(file))


def remove_orphans(table: DeltaTable, location: TableLocation, with_backfills: bool = False) -> list[str]:
    """Remove orphans and return their names."""
    orphans = find_orphans(table, with_backfills)
    for name in orphans:
        location.remove_file(name)
    return orphans


def remove_files_of(table: DeltaTable, location: TableLocation, application: str) -> None:
    """Remove the files of a backfill that has failed; those of other applications stay."""
    for name in _unnamed_files(table):
        file = FileName.parsed(name)
        if file is not None and file.epoch is None and file.application == application:
            location.remove_file(name)


def _unnamed_files(table: DeltaTable) -> set[str]:
    """Files that no version of the table names, as far as its log goes back."""
    removed = table.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False)
    unnamed = table.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False, full=True)
    return set(unnamed) - set(removed)


class OrphanRemoval:
    """Removes orphans from time to time; the first removal is due at once."""

    def __init__(self, location: TableLocation, clock: Callable[[], float] = time.monotonic) -> None:
        self._location = location
        self._clock = clock
        self._next: float | None = None

    @property
    def is_due(self) -> bool:
        """Whether it is time to remove orphans."""
        return self._next is None or self._clock() >= self._next

    def remove(self, table: DeltaTable) -> list[str]:
        """Remove orphans now and return their names."""
        began = self._clock()
        try:
            return remove_orphans(table, self._location)
        finally:
            ended = self._clock()
            self._next = ended + max(LEAST_SECONDS, (ended - began) / SHARE)
