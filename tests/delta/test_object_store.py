"""In an object store, too, each micro-batch is in the table once: commits are safe by conditional writes."""

import threading

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from midstream.delta.commits import commit_backfill
from midstream.delta.delta_types import delta_schema
from midstream.delta.orphans import remove_orphans
from midstream.delta.result_files import ResultFile, ResultTarget, results_as_files
from midstream.delta.table import open_table
from midstream.errors import PathProblem, TableConflict, TableMismatch
from tests.delta.object_store import ObjectStore
from tests.delta.writing import OTHER, SCHEMA, Driver, check_race, rows_of


@pytest.fixture(scope="module")
def store():
    with ObjectStore() as store:
        yield store


def names_there(location):
    """The names of the files that are there, in the table or not."""
    table = open_table(location)
    assert table is not None
    everything = table.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False, full=True)
    return {*everything, *(path.rpartition("/t/")[2] for path in table.file_uris())}


def test_micro_batches_are_there_once_whatever_dies(store):
    location = store.place()
    first = Driver(location)
    first.run(0, 1)
    lost = first.write(1, 2)
    second = Driver(location)
    assert not second.run(0, 1)
    assert second.run(1, 2)
    assert second.run(2, 3)
    assert rows_of(location) == [1, 2, 3]
    assert {file.name for file in lost} <= names_there(location)
    table = open_table(location)
    assert {file.name for file in lost} <= set(remove_orphans(table, location))
    assert not {file.name for file in lost} & names_there(location)
    assert rows_of(location) == [1, 2, 3]


def test_two_drivers_in_a_race_commit_a_batch_once(store, monkeypatch):
    check_race(monkeypatch, store.place())


def test_the_first_of_two_drivers_stops_when_the_second_commits(store):
    location = store.place()
    first, second = Driver(location), Driver(location, OTHER)
    first.run(0, 1)
    with pytest.raises(TableConflict, match="another query writes to the table"):
        second.run(0, 2)
    third = Driver(location, OTHER)
    assert third.run(0, 3)
    with pytest.raises(TableConflict, match="another query writes to the table"):
        first.run(1, 4)
    assert rows_of(location) == [1, 3]


def test_of_commits_at_once_none_is_lost(store):
    """Backfills may be committed at any time, each in a transaction of its own."""
    location = store.place()
    Driver(location).run(0, 0)
    failures = []

    def backfill(number):
        try:
            application = f"{number:032x}"
            target = ResultTarget(location, application, None, 0, 0)
            rows = pa.record_batch({"k": [number], "v": ["past"]}, schema=SCHEMA)
            files = [file for file in results_as_files([rows], target) if isinstance(file, ResultFile)]
            table = DeltaTable(location.address, storage_options=location.storage_options)
            commit_backfill(table, location, delta_schema(SCHEMA), (), application, files)
        except BaseException as problem:
            failures.append(problem)

    threads = [threading.Thread(target=backfill, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert rows_of(location) == list(range(9))
    assert open_table(location).version() == 9


def test_a_store_that_is_away_is_reported(store):
    with ObjectStore() as passing:
        location = passing.place()
        location.storage_options.update(max_retries="1", retry_timeout="1s")
        driver = Driver(location)
        driver.run(0, 1)
        files = driver.write(1, 2)
    with pytest.raises((PathProblem, TableMismatch), match="cannot commit to the table s3://bucket"):
        driver.writer.commit(1, files)
