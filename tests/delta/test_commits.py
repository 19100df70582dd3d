"""Each micro-batch is in the table exactly once, whatever fails in between, and one query writes at a time."""

import errno
import fcntl
import shutil

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from midstream.delta import commits
from midstream.delta.commits import commit_backfill, epoch_of, has_backfill
from midstream.delta.delta_types import delta_schema
from midstream.delta.location import TableLocation
from midstream.delta.result_files import ResultFile, ResultTarget, results_as_files
from midstream.delta.table import prepare_table
from midstream.delta.writer_lock import WriterLock
from midstream.errors import PathProblem, TableConflict, TableMismatch
from tests.delta.writing import (
    APPLICATION,
    OTHER,
    SCHEMA,
    Driver,
    between_check_and_commit,
    check_race,
    names_on_disk,
    rows_of,
)


def test_a_micro_batch_is_one_transaction_with_its_number(tmp_path):
    driver = Driver(tmp_path / "t")
    assert driver.writer.commit(0, driver.write(0, 1) + driver.write(0, 2, cell=1))
    assert driver.run(1, 3)
    table = DeltaTable(tmp_path / "t")
    assert table.version() == 2
    assert table.transaction_version(f"midstream-{APPLICATION}") == 1
    assert rows_of(tmp_path / "t") == [1, 2, 3]


def test_a_micro_batch_without_results_is_no_transaction(tmp_path):
    driver = Driver(tmp_path / "t")
    assert driver.run(0, 1)
    assert not driver.writer.commit(1, [])
    assert driver.run(2, 2)
    assert DeltaTable(tmp_path / "t").version() == 2


def test_the_first_micro_batch_is_a_transaction_even_without_results(tmp_path):
    driver = Driver(tmp_path / "t")
    assert driver.writer.commit(0, [])
    assert not driver.writer.commit(1, [])
    assert DeltaTable(tmp_path / "t").transaction_version(f"midstream-{APPLICATION}") == 0
    later = Driver(tmp_path / "t")
    assert not later.writer.commit(0, [])
    assert later.run(2, 5)
    assert rows_of(tmp_path / "t") == [5]


def test_a_table_made_again_while_the_query_was_stopped_is_refused(tmp_path):
    Driver(tmp_path / "t").run(0, 1)
    shutil.rmtree(tmp_path / "t")
    driver = Driver(tmp_path / "t")
    with pytest.raises(TableMismatch, match="has no results of this query, which is at micro-batch 1"):
        driver.run(1, 2)
    assert rows_of(tmp_path / "t") == []


def test_files_of_attempts_that_failed_are_never_seen(tmp_path):
    driver = Driver(tmp_path / "t")
    driver.write(0, 1, 2, 3)
    succeeded = driver.write(0, 1, 2, 3)
    driver.write(0, 1, 2, 3)
    driver.writer.commit(0, succeeded)
    assert rows_of(tmp_path / "t") == [1, 2, 3]
    assert len(names_on_disk(tmp_path / "t")) == 3


def test_a_driver_that_dies_before_the_commit_loses_nothing(tmp_path):
    first = Driver(tmp_path / "t")
    first.run(0, 1)
    first.write(1, 2)
    second = Driver(tmp_path / "t")
    assert second.run(1, 2)
    assert rows_of(tmp_path / "t") == [1, 2]


def test_a_driver_that_dies_after_the_commit_repeats_nothing(tmp_path):
    first = Driver(tmp_path / "t")
    first.run(0, 1)
    first.run(1, 2)
    second = Driver(tmp_path / "t")
    assert not second.run(1, 2)
    assert second.run(2, 3)
    third = Driver(tmp_path / "t")
    assert not third.run(2, 3)
    assert rows_of(tmp_path / "t") == [1, 2, 3]


def test_a_table_remembers_its_batches_when_its_log_was_cleaned_up(tmp_path):
    """A checkpoint of the log, by anybody, replaces the files before it."""
    path = tmp_path / "t"
    driver = Driver(path)
    driver.run(0)
    driver.run(7, 1)
    DeltaTable(path).create_checkpoint()
    write_deltalake(path, pa.table({"k": [10], "v": ["x"]}), mode="append")
    for version in (0, 1, 2):
        (path / "_delta_log" / f"{version:020}.json").unlink()
    driver = Driver(path)
    assert driver.epoch == 2
    assert not driver.run(7, 1)
    assert driver.run(8, 2)
    assert rows_of(path) == [1, 2, 10]


def test_a_log_that_is_cleaned_up_meanwhile_is_the_same(tmp_path):
    path = tmp_path / "t"
    driver = Driver(path)
    driver.run(0, 1)
    DeltaTable(path).create_checkpoint()
    for version in (0, 1):
        (path / "_delta_log" / f"{version:020}.json").unlink()
    assert not driver.writer.commit(1, [])
    assert rows_of(path) == [1]


def test_a_new_checkpoint_is_a_new_application(tmp_path):
    Driver(tmp_path / "t").run(0, 1)
    assert Driver(tmp_path / "t", OTHER).run(0, 2)
    assert rows_of(tmp_path / "t") == [1, 2]


def test_files_of_another_batch_or_run_are_refused(tmp_path):
    driver = Driver(tmp_path / "t")
    for files in (driver.write(1, 1), Driver(tmp_path / "t", OTHER).write(0, 1)):
        with pytest.raises(AssertionError, match="is no file of batch 0"):
            driver.writer.commit(0, files)


@pytest.mark.parametrize("application", [APPLICATION, OTHER])
def test_of_two_drivers_that_begin_at_once_the_second_to_commit_stops(tmp_path, application):
    one, other = Driver(tmp_path / "t"), Driver(tmp_path / "t", application)
    files = one.write(0, 1)
    assert other.run(0, 1)
    with pytest.raises(TableConflict, match=r"\[M3015\] another query writes to the table"):
        one.writer.commit(0, files)
    assert other.run(1, 2)
    assert rows_of(tmp_path / "t") == [1, 2]


@pytest.mark.parametrize("application", [APPLICATION, OTHER])
def test_a_driver_that_was_replaced_stops(tmp_path, application):
    old = Driver(tmp_path / "t")
    old.run(0, 1)
    new = Driver(tmp_path / "t", application)
    assert old.run(1, 2), "a new driver that has committed nothing changes nothing"
    new.run(2 if application == APPLICATION else 0, 3)
    with pytest.raises(TableConflict, match="begun to write after this one"):
        old.run(2, 3)
    assert rows_of(tmp_path / "t") == [1, 2, 3]


def test_two_drivers_in_a_race_commit_a_batch_once(tmp_path, monkeypatch):
    check_race(monkeypatch, tmp_path / "t")


def test_an_old_copy_of_a_checkpoint_is_refused(tmp_path):
    driver = Driver(tmp_path / "t")
    driver.run(0)
    driver.run(5, 1)
    with pytest.raises(TableConflict, match="has micro-batch 5 of this query, which is at 3"):
        Driver(tmp_path / "t").run(3, 2)


def test_others_may_change_the_table_meanwhile(tmp_path, monkeypatch):
    driver = Driver(tmp_path / "t")
    driver.run(0, 1)
    driver.run(1, 2)
    changes = between_check_and_commit(
        monkeypatch,
        driver,
        lambda: write_deltalake(tmp_path / "t", pa.table({"k": [10], "v": ["x"]}), mode="append"),
        lambda: DeltaTable(tmp_path / "t").optimize.compact(),
    )
    assert driver.run(2, 3)
    assert not changes
    assert rows_of(tmp_path / "t") == [1, 2, 3, 10]


@pytest.mark.parametrize("failure", [CommitFailedError, DeltaError, OSError])
def test_a_commit_that_was_written_though_a_failure_was_reported_counts(tmp_path, monkeypatch, failure):
    driver = Driver(tmp_path / "t")
    create = DeltaTable.create_write_transaction
    calls = []

    def unsure(self, *arguments, **options):
        create(self, *arguments, **options)
        calls.append(1)
        raise failure("the connection was lost")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", unsure)
    assert driver.run(0, 1)
    monkeypatch.undo()
    assert driver.run(1, 2)
    assert len(calls) == 1
    assert rows_of(tmp_path / "t") == [1, 2]


def test_a_table_that_is_always_busy_is_given_up(tmp_path, monkeypatch):
    driver = Driver(tmp_path / "t")

    def busy(self, *arguments, **options):
        write_deltalake(tmp_path / "t", pa.table({"k": [9], "v": ["other"]}), mode="append")
        raise CommitFailedError("the version exists")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", busy)
    monkeypatch.setattr(commits, "_ATTEMPTS", 5)
    with pytest.raises(TableConflict, match=r"(?s)changed by others too often.*tried 5 times.*the version exists"):
        driver.run(0, 1)
    assert rows_of(tmp_path / "t") == [9] * 5


def test_the_history_of_a_table_is_read_only_after_a_failure(tmp_path, monkeypatch):
    driver = Driver(tmp_path / "t")
    monkeypatch.setattr(DeltaTable, "history", None)
    for batch in range(3):
        assert driver.run(batch, batch)
    assert rows_of(tmp_path / "t") == [0, 1, 2]


@pytest.mark.parametrize(
    ("failure", "error"),
    [(CommitFailedError, TableMismatch), (DeltaError, TableMismatch), (PermissionError, PathProblem)],
)
def test_a_table_that_refuses_a_commit_is_not_said_to_be_busy(tmp_path, monkeypatch, failure, error):
    driver = Driver(tmp_path / "t")
    tries = []

    def refused(*_, **__):
        tries.append(1)
        raise failure("the table needs the feature x")

    monkeypatch.setattr(commits, "_PAUSE_SECONDS", 0)
    monkeypatch.setattr(DeltaTable, "create_write_transaction", refused)
    with pytest.raises(error, match=r"(?s)cannot commit to the table.*needs the feature x"):
        driver.run(0, 1)
    assert len(tries) == 3
    monkeypatch.undo()
    assert driver.run(0, 1)


def test_storage_that_fails_once_is_asked_again(tmp_path, monkeypatch):
    driver = Driver(tmp_path / "t")
    create = DeltaTable.create_write_transaction
    failures = [OSError("timed out")]

    def unreliable(self, *arguments, **options):
        if failures:
            raise failures.pop()
        create(self, *arguments, **options)

    monkeypatch.setattr(commits, "_PAUSE_SECONDS", 0)
    monkeypatch.setattr(DeltaTable, "create_write_transaction", unreliable)
    assert driver.run(0, 1)
    assert rows_of(tmp_path / "t") == [1]


@pytest.mark.parametrize("failure", [DeltaError, OSError])
@pytest.mark.parametrize("what", ["update_incremental", "transaction_version"])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_log_that_cannot_be_read_is_asked_for_again(tmp_path, monkeypatch, what, failure, times):
    driver = Driver(tmp_path / "t")
    driver.run(0, 1)
    read = getattr(DeltaTable, what)
    failures = [failure("timed out")] * times

    def unreliable(self, *arguments):
        if failures:
            raise failures.pop()
        return read(self, *arguments)

    monkeypatch.setattr(commits, "_PAUSE_SECONDS", 0)
    monkeypatch.setattr(DeltaTable, what, unreliable)
    if times < 3:
        assert driver.run(1, 2)
        assert rows_of(tmp_path / "t") == [1, 2]
        return
    with pytest.raises(
        (PathProblem, TableMismatch), match=r"(?s)cannot commit to the table .*timed out.*nothing is lost"
    ):
        driver.run(1, 2)


def test_a_commit_is_made_once_though_neither_it_nor_the_history_is_answered(tmp_path, monkeypatch):
    driver = Driver(tmp_path / "t")
    create, history = DeltaTable.create_write_transaction, DeltaTable.history
    unanswered = ["create", "history"]

    def creating(self, *arguments, **options):
        create(self, *arguments, **options)
        if "create" in unanswered:
            unanswered.remove("create")
            raise OSError("timed out")

    def asking(self, *arguments):
        if "history" in unanswered:
            unanswered.remove("history")
            raise OSError("timed out")
        return history(self, *arguments)

    monkeypatch.setattr(commits, "_PAUSE_SECONDS", 0)
    monkeypatch.setattr(DeltaTable, "create_write_transaction", creating)
    monkeypatch.setattr(DeltaTable, "history", asking)
    assert driver.run(0, 1)
    assert not unanswered
    assert driver.run(1, 2)
    assert rows_of(tmp_path / "t") == [1, 2]


def test_a_table_that_no_longer_fits_is_not_written_to(tmp_path):
    driver = Driver(tmp_path / "t")
    driver.run(0, 1)
    write_deltalake(tmp_path / "t", pa.table({"other": [1]}), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(TableMismatch, match='has no column "k"'):
        driver.run(1, 2)


def test_a_table_that_was_replaced_is_not_written_to(tmp_path):
    driver = Driver(tmp_path / "t")
    driver.run(0, 1)
    DeltaTable.create(tmp_path / "t", schema=pa.schema(SCHEMA), mode="overwrite")
    with pytest.raises(TableMismatch, match="was replaced by another one while the query ran"):
        driver.run(1, 2)


@pytest.mark.parametrize("versions", [0, 1, 2, 5])
def test_a_table_that_was_removed_is_not_written_to(tmp_path, versions):
    """Whether it is made again, with as many versions as it had, more or fewer."""
    driver = Driver(tmp_path / "t")
    driver.run(0, 1)
    files = driver.write(1, 2)
    shutil.rmtree(tmp_path / "t")
    if versions:
        prepare_table(driver.location, delta_schema(SCHEMA))
        for _ in range(versions - 1):
            write_deltalake(tmp_path / "t", pa.table({"k": [9], "v": ["other"]}), mode="append")
    with pytest.raises(TableMismatch, match="was removed or replaced while the query ran"):
        driver.writer.commit(1, files)


def test_a_backfill_is_one_transaction_beside_a_running_query(tmp_path):
    driver = Driver(tmp_path / "t")
    driver.run(0, 1)
    for _ in range(2):
        table = DeltaTable(tmp_path / "t")
        target = ResultTarget(driver.location, OTHER, None, 0, 0)
        rows = pa.record_batch({"k": [7], "v": ["past"]}, schema=SCHEMA)
        files = [file for file in results_as_files([rows], target) if isinstance(file, ResultFile)]
        is_new = not has_backfill(table, OTHER)
        assert commit_backfill(table, driver.location, delta_schema(SCHEMA), (), OTHER, files) == is_new
    assert driver.run(1, 2)
    assert rows_of(tmp_path / "t") == [1, 2, 7]
    assert epoch_of(DeltaTable(tmp_path / "t")) == 1


def test_on_a_file_system_the_second_query_is_refused_at_once(tmp_path):
    location = TableLocation.of(tmp_path)
    lock = WriterLock(location)
    with pytest.raises(TableConflict, match=r"(?s)another query writes to the table .* \(pid \d+ on .*\).*Stop it"):
        WriterLock(location)
    lock.release()
    WriterLock(location).release()
    WriterLock(TableLocation.of("s3://bucket/t")).release()


def test_on_a_file_system_without_locks_the_epoch_decides(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    first, second = Driver(tmp_path / "t"), Driver(tmp_path / "t", OTHER)
    locks = [WriterLock(driver.location) for driver in (first, second)]
    first.run(0, 1)
    with pytest.raises(TableConflict, match="another query writes to the table"):
        second.run(0, 2)
    for lock in locks:
        lock.release()
    assert rows_of(tmp_path / "t") == [1]
