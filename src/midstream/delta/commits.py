"""Micro-batches of a streaming query as transactions of a table: each exactly once.

A transaction adds the files named by the successful attempts of a micro-batch's tasks, and records in the table's log,
as application transactions:

    midstream-APPLICATION    the number of the micro-batch
    midstream                the epoch: how many writers the table has had

**A batch is committed once.** After a crash, Spark runs the last micro-batch again if it is not sure that it was
complete. If the log has its number, its files are not added: the results are there already. The application is the id
that Spark keeps in the checkpoint, so a new checkpoint is a new application.

The first micro-batch of an application makes a transaction even without files. So if an application is past its first
micro-batch and the table has no transaction of it, this is not the table that has its results.

**One query writes at a time.** A writer reads the epoch when it begins, and takes the next one with its first
transaction. If the table's epoch differs from the one that the writer expects, another writer is active, and this one
stops. So of two drivers, on the same checkpoint or not, one stops before it adds anything, without a lock or a clock.
On a file system the later one is refused at once (``writer_lock``).

**Check and commit are one step.** A commit must be the version right after the one that was checked (the storage must
create a file only if it does not exist); after any other writer's commit, everything is checked again.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.schema import PrimitiveType
from deltalake.transaction import AddAction

from midstream.delta.file_names import FileName, transaction_id
from midstream.delta.file_statistics import with_nulls
from midstream.delta.location import TableLocation
from midstream.delta.log_entries import EntryMark, entry_mark, has_version
from midstream.delta.result_files import ResultFile
from midstream.delta.table import check_fits, sentence
from midstream.errors import MidstreamError, PathProblem, TableConflict, TableMismatch

__all__ = ["WRITER", "TableWriter", "commit_backfill", "epoch_of", "has_backfill"]

WRITER = "midstream"
"""The application id under which a table counts its writers."""
_ATTEMPTS = 100
"""How often other writers may commit first; each time, one of them makes progress."""
_MOST_REFUSALS = 3
"""How often a commit may fail although no other writer has committed."""
_PAUSE_SECONDS = 0.5
"""The pause after the first such failure, doubled after the second: storage may have recovered by then."""
_METADATA = "midstream.writer"
_REPLACED = "Start the query with a new checkpoint, if the new table is to have its results."


def epoch_of(table: DeltaTable) -> int:
    """How many writers the table has had; 0 if no midstream query has written to it."""
    return table.transaction_version(WRITER) or 0


class _Commits:
    """Commits files to a table, each time as the version right after the one that was checked."""

    def __init__(
        self, table: DeltaTable, location: TableLocation, schema: pa.Schema, partition_by: Sequence[str]
    ) -> None:
        self._table = table
        self._location = location
        self._schema = schema
        self._partition_by = list(partition_by)
        self._id = table.metadata().id
        self._mark = uuid.uuid4().hex
        self._checked = table.version()
        """The version whose schema and features were checked."""
        self._latest = table.version()
        """The latest version that is known to exist."""
        self._mark_of_latest = self._find_mark()

    def is_complete(self) -> bool:
        """Check the current table; return whether there is nothing left to commit."""
        raise NotImplementedError

    def _is_needed(self) -> bool:
        """Whether a transaction is needed even without files."""
        return False

    def _transactions(self) -> list[Transaction]:
        raise NotImplementedError

    def _commit(self, label: str, files: Sequence[ResultFile]) -> bool:
        """Add the files in one transaction, unless it exists already; return whether it was made now."""
        mark = f"{self._mark} {label}"
        failure: Exception | None = None
        refused = 0
        unsure_since: int | None = None
        for _ in range(_ATTEMPTS):
            before = self._latest
            try:
                self._refresh()
                if unsure_since is not None and self._table.version() > unsure_since and self._is_there(mark):
                    # The storage reported a failure, but the commit was written.
                    return True
                unsure_since = None
                if self.is_complete() or not (files or self._is_needed()):
                    return False
                unsure_since = self._table.version()
                self._add(files, mark)
            except (DeltaError, OSError) as problem:
                failure = problem
                refused = 0 if self._latest > before else refused + 1
                if refused == _MOST_REFUSALS:
                    raise self._refused(problem) from problem
                if not isinstance(problem, CommitFailedError):
                    time.sleep(_PAUSE_SECONDS * refused)
                continue
            self._latest = self._table.version() + 1
            self._mark_of_latest = self._find_mark()
            return True
        raise TableConflict(
            f"the table {self._location.address} is changed by others too often",
            detail=f"A commit was tried {_ATTEMPTS} times. The last failure: {sentence(failure)}",
            hint="Restart the query when the table is less busy: nothing is lost or repeated.",
        )

    def _refresh(self) -> None:
        """Read what has been committed since; raises if the table was replaced, or no longer fits."""
        directory = self._location.directory
        if directory is not None:
            # delta-rs only looks for later versions: the next commit could be added to the log of another table.
            mark = self._find_mark()
            is_cleaned_up = mark is None and has_version(directory, self._latest)
            if mark != self._mark_of_latest and not is_cleaned_up:
                raise TableMismatch(
                    f"the table {self._location.address} was removed or replaced while the query ran", hint=_REPLACED
                )
        self._table.update_incremental()
        self._latest = self._table.version()
        self._mark_of_latest = self._find_mark()
        if self._latest == self._checked:
            return
        if self._table.metadata().id != self._id:
            raise TableMismatch(
                f"the table {self._location.address} was replaced by another one while the query ran", hint=_REPLACED
            )
        check_fits(self._table, self._location, self._schema, self._partition_by)
        self._checked = self._latest

    def _refused(self, problem: Exception) -> MidstreamError:
        kind = PathProblem if isinstance(problem, OSError) else TableMismatch
        return kind(
            f"cannot commit to the table {self._location.address}",
            detail=sentence(problem),
            hint="Restart the query once this is fixed: nothing is lost or repeated.",
        )

    def _find_mark(self) -> EntryMark | None:
        """Identifies the latest known entry of the log; None in object stores, which only delta-rs reads."""
        directory = self._location.directory
        return None if directory is None else entry_mark(directory, self._latest)

    def _add(self, files: Sequence[ResultFile], mark: str) -> None:
        self._table.create_write_transaction(
            [self._add_action(file) for file in files],
            mode="append",
            schema=Schema.from_arrow(self._schema),
            partition_by=self._partition_by,
            commit_properties=CommitProperties(
                custom_metadata={_METADATA: mark},
                max_commit_retries=0,
                app_transactions=self._transactions(),
            ),
        )

    def _add_action(self, file: ResultFile) -> AddAction:
        """The action that adds the file to the table, which may have more columns than the results."""
        columns = [field.name for field in self._table.schema().fields if isinstance(field.type, PrimitiveType)]
        missing = [name for name in columns if name not in self._schema.names]
        statistics = with_nulls(file.statistics, missing, file.rows) if missing else file.statistics
        return AddAction(file.name, file.size, file.partition, file.written_ms, True, statistics)

    def _is_there(self, mark: str) -> bool:
        return any(commit.get(_METADATA) == mark for commit in self._table.history(_ATTEMPTS))


class TableWriter(_Commits):
    """The only writer of a table, for one run of a streaming query."""

    def __init__(
        self,
        table: DeltaTable,
        location: TableLocation,
        schema: pa.Schema,
        partition_by: Sequence[str],
        application: str,
        epoch: int,
    ) -> None:
        """``epoch`` is the table's epoch when the writer began, plus one; it is part of the writer's file names."""
        super().__init__(table, location, schema, partition_by)
        self._application = application
        self._epoch = epoch
        self._has_begun = False
        self._batch = -1

    def commit(self, batch: int, files: Sequence[ResultFile]) -> bool:
        """Commit a micro-batch; false if the table has it already, or there is nothing to add."""
        for file in files:
            name = FileName.parsed(file.name)
            assert name is not None and (name.application, name.epoch, name.batch) == (
                self._application,
                self._epoch,
                batch,
            ), f"{file.name} is no file of batch {batch} of {self._application}, epoch {self._epoch}"
        self._batch = batch
        made = self._commit(str(batch), files)
        self._has_begun |= made
        return made

    def is_complete(self) -> bool:
        expected = self._epoch if self._has_begun else self._epoch - 1
        if epoch_of(self._table) != expected:
            raise TableConflict(
                f"another query writes to the table {self._location.address}",
                detail="It has begun to write after this one.",
                hint="Stop one of them. This one can be started again with its checkpoint: nothing is lost.",
            )
        last = self._last_batch()
        if last is None and self._batch > 0:
            raise TableMismatch(
                f"the table {self._location.address} has no results of this query, which is at micro-batch "
                f"{self._batch}",
                detail="It is not the table that the query has written to.",
                hint="Restore that table, or start the query with a new checkpoint.",
            )
        if last is not None and last > self._batch:
            raise TableConflict(
                f"the table {self._location.address} has micro-batch {last} of this query, which is at {self._batch}",
                detail="The query was run elsewhere with this checkpoint, or the checkpoint is an old copy.",
                hint="Use the latest checkpoint, or a new one and a new table.",
            )
        return last == self._batch

    def _last_batch(self) -> int | None:
        return self._table.transaction_version(transaction_id(self._application))

    def _is_needed(self) -> bool:
        return self._last_batch() is None

    def _transactions(self) -> list[Transaction]:
        return [Transaction(transaction_id(self._application), self._batch), Transaction(WRITER, self._epoch)]


class _Backfill(_Commits):
    """Results of a query over batches: one transaction, concurrent with any other writer of the table."""

    def __init__(
        self,
        table: DeltaTable,
        location: TableLocation,
        schema: pa.Schema,
        partition_by: Sequence[str],
        application: str,
    ) -> None:
        super().__init__(table, location, schema, partition_by)
        self._application = application

    def is_complete(self) -> bool:
        return has_backfill(self._table, self._application)

    def _transactions(self) -> list[Transaction]:
        return [Transaction(transaction_id(self._application, is_backfill=True), 0)]


def has_backfill(table: DeltaTable, application: str) -> bool:
    """Whether the table has the results of a backfill."""
    return table.transaction_version(transaction_id(application, is_backfill=True)) is not None


def commit_backfill(
    table: DeltaTable,
    location: TableLocation,
    schema: pa.Schema,
    partition_by: Sequence[str],
    application: str,
    files: Sequence[ResultFile],
) -> bool:
    """Commit the results of a backfill; false if the table has them already, or there are none."""
    return _Backfill(table, location, schema, partition_by, application)._commit("backfill", files)
