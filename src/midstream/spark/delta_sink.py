"""The Delta sink on Spark: cells write files, Spark passes on their names, the driver commits them.

    cells ─▶ a row for each file ─▶ foreachBatch, in the driver ─▶ one transaction of the table ─▶ Spark's own commit

Spark decides which attempt of a task counts: the rows that arrive here name only the files of that attempt. A
micro-batch that Spark runs again, because it was killed before its own commit, is not added again
(``midstream.delta.commits``).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import threading
import uuid
from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from midstream.delta.commits import TableWriter, commit_backfill, epoch_of, has_backfill
from midstream.delta.delta_types import delta_schema
from midstream.delta.file_names import application_of
from midstream.delta.location import TableLocation
from midstream.delta.orphans import OrphanRemoval, remove_files_of
from midstream.delta.result_files import ResultFile, TableTarget
from midstream.delta.table import open_table, prepare_table
from midstream.delta.writer_lock import WriterLock
from midstream.errors import BadOption, TableMismatch
from midstream.spark.checkpoints import checked_checkpoint
from midstream.spark.file_systems import exists

__all__ = ["FILES", "DeltaBackfill", "DeltaSink"]

FILES = "file string"
"""The schema of the DataFrame of files: one row per file, as JSON."""
_LOG = logging.getLogger(__name__)


class _Table:
    """The table for a query's results, created or checked before anything runs."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: pa.Schema,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        has_begun: bool = False,
    ) -> None:
        if properties is not None and not isinstance(properties, Mapping):
            raise BadOption(f"properties is {properties!r}", hint='Give a dict: {"delta.appendOnly": "true"}.')
        self._location = TableLocation.of(path, storage_options)
        self._schema = delta_schema(schema)
        self._partition_by = partition_by
        self._table = prepare_table(self._location, self._schema, partition_by, properties, has_begun)

    def _open_again(self) -> None:
        """The table as it is now, long after it was checked perhaps; raises if it is another one."""
        table = open_table(self._location)
        if table is None or table.metadata().id != self._table.metadata().id:
            raise TableMismatch(
                f"the table {self._location.address} was removed or replaced after the query was started",
                hint="Start the query again.",
            )
        self._table = table


class DeltaSink(_Table):
    """A function for ``foreachBatch``: commits the files of a micro-batch."""

    def __init__(
        self,
        spark: SparkSession,
        path: str | os.PathLike[str],
        checkpoint: str | os.PathLike[str] | None,
        schema: pa.Schema,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self.checkpoint = checked_checkpoint(checkpoint)
        # Spark writes this file when the query starts for the first time, after the table was created.
        has_begun = exists(spark, f"{self.checkpoint}/metadata")
        super().__init__(path, schema, partition_by, properties, storage_options, has_begun)
        self._spark = spark
        self._epoch = epoch_of(self._table) + 1
        self.target = TableTarget(self._location, self._epoch, tuple(partition_by))
        self._removal = OrphanRemoval(self._location)
        self._writer: TableWriter | None = None
        self._run: str | None = None
        """Spark's id of the query run that this sink belongs to."""
        # Fails at once if another query writes to the table; the lock itself is taken when this query runs.
        _release_if_over(self._location)
        WriterLock(self._location).release()

    def __call__(self, frame: DataFrame, batch: int) -> None:
        # Spark runs all jobs of a streaming query in a group of this name.
        run = self._spark.sparkContext.getLocalProperty("spark.jobGroup.id")
        if self._writer is None:
            self._writer, self._run = self._begin(), run
        elif run != self._run:
            raise BadOption(
                "a writer of a Delta table was started twice",
                hint="Make one for each start: write_delta(...), or delta_writer(...).start().",
            )
        files = [msgspec.json.decode(row.file, type=ResultFile) for row in frame.collect()]
        if self._writer.commit(batch, files) and self._removal.is_due:
            self._remove_orphans()

    def _begin(self) -> TableWriter:
        query = self._spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        application = application_of(query)
        running = self._spark.streams.get(str(query))
        assert running is not None, "a streaming query is active while it works on a micro-batch"
        self._open_again()
        _hold_lock(self._location, running)
        schema, partition_by = self._schema, self._partition_by
        return TableWriter(self._table, self._location, schema, partition_by, application, self._epoch)

    def _remove_orphans(self) -> None:
        try:
            self._table.update_incremental()
            removed = self._removal.remove(self._table)
        except Exception as problem:
            # They only take space, and can be removed the next time.
            _LOG.warning("files of failed attempts could not be removed from %s: %s", self._location.address, problem)
            return
        if removed:
            _LOG.info("removed %d files of failed attempts from %s", len(removed), self._location.address)


class DeltaBackfill(_Table):
    """Commits the results of a query over batches in one transaction."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        application: str | None,
        schema: pa.Schema,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        """With the same ``application``, results are written once, however often the backfill is retried."""
        if application is not None and not (isinstance(application, str) and application):
            raise BadOption(f"application is {application!r}", hint='Give a text, as in application="2026-11".')
        super().__init__(path, schema, partition_by, properties, storage_options)
        self._is_named = application is not None
        named = uuid.uuid4().hex if application is None else hashlib.sha256(application.encode()).hexdigest()[:32]
        self.application = named
        self.target = TableTarget(self._location, None, tuple(partition_by))

    @property
    def is_complete(self) -> bool:
        """Whether the table has the results already."""
        return has_backfill(self._table, self.application)

    def write(self, files: DataFrame) -> None:
        """Run the query that writes the files, and commit them."""
        written: list[ResultFile] = []
        try:
            written = [msgspec.json.decode(row.file, type=ResultFile) for row in files.collect()]
            self._open_again()
            commit_backfill(self._table, self._location, self._schema, self._partition_by, self.application, written)
        except Exception:
            with contextlib.suppress(Exception):
                self._remove(written)
            raise

    def _remove(self, written: Sequence[ResultFile]) -> None:
        """Remove the files of this attempt, if they are known: another attempt may be about to commit its own."""
        self._table.update_incremental()
        if self.is_complete:
            return
        if self._is_named:
            for file in written:
                self._location.remove_file(file.name)
        else:
            remove_files_of(self._table, self._location, self.application)


# Locks of tables that queries of this process write to

_HELD: dict[str, tuple[WriterLock, StreamingQuery]] = {}
_HELD_LOCK = threading.Lock()


def _hold_lock(location: TableLocation, query: StreamingQuery) -> None:
    """Lock the table until the query ends."""
    _release_if_over(location)
    with _HELD_LOCK:
        _HELD[location.address] = WriterLock(location), query

    def release() -> None:
        # The reason why it ended does not matter here.
        with contextlib.suppress(Exception):
            query.awaitTermination()
        _release_if_over(location)

    threading.Thread(target=release, name="midstream table lock", daemon=True).start()


def _release_if_over(location: TableLocation) -> None:
    """Release the table's lock if this process holds it for a query that has ended."""
    with _HELD_LOCK:
        held = _HELD.get(location.address)
        if held is not None and not _is_active(held[1]):
            held[0].release()
            del _HELD[location.address]


def _is_active(query: StreamingQuery) -> bool:
    try:
        return query.isActive
    except Exception:
        # Its Spark session has been stopped.
        return False
