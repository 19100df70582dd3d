"""What failed attempts left is removed; what could still be committed, or was once, is not."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from midstream.delta import orphans
from midstream.delta.location import TableLocation
from midstream.delta.orphans import LEAST_SECONDS, OrphanRemoval, find_orphans, remove_orphans
from midstream.delta.result_files import ResultTarget, results_as_files
from tests.delta.writing import OTHER, SCHEMA, Driver, names_on_disk, rows_of


def removed(path, driver, **options):
    return set(remove_orphans(DeltaTable(path), driver.location, **options))


def names(files):
    return {file.name for file in files}


def test_files_of_a_batch_in_the_making_stay_until_it_is_committed(tmp_path):
    driver = Driver(tmp_path / "t")
    failed, succeeded = driver.write(0, 1), driver.write(0, 1)
    assert removed(tmp_path / "t", driver) == set()
    driver.writer.commit(0, succeeded)
    in_the_making = driver.write(1, 2)
    assert removed(tmp_path / "t", driver) == names(failed)
    assert names_on_disk(tmp_path / "t") == names(succeeded) | names(in_the_making)
    driver.writer.commit(1, in_the_making)
    assert rows_of(tmp_path / "t") == [1, 2]


def test_files_of_a_dead_driver_are_removed_once_another_has_taken_over(tmp_path):
    dead = Driver(tmp_path / "t")
    dead.run(0, 1)
    left = dead.write(1, 2)
    driver = Driver(tmp_path / "t")
    own = driver.write(1, 2)
    assert removed(tmp_path / "t", driver) == set(), "the first driver may be alive"
    driver.writer.commit(1, own)
    assert removed(tmp_path / "t", driver) == names(left)
    assert rows_of(tmp_path / "t") == [1, 2]


def test_files_that_another_query_may_commit_stay(tmp_path):
    driver, other = Driver(tmp_path / "t"), Driver(tmp_path / "t", OTHER)
    driver.run(0, 1)
    waiting = other.write(0, 2)
    assert removed(tmp_path / "t", driver) == set()
    later = Driver(tmp_path / "t", OTHER)
    later.run(0, 3)
    assert removed(tmp_path / "t", driver) == names(waiting)


def test_files_of_an_abandoned_checkpoint_are_removed_once_another_query_writes(tmp_path):
    abandoned = Driver(tmp_path / "t", OTHER)
    left = abandoned.write(0, 1)
    driver = Driver(tmp_path / "t")
    driver.run(0, 1)
    assert removed(tmp_path / "t", driver) == set(), "both took the same epoch: it could be the other's"
    Driver(tmp_path / "t").run(1, 2)
    assert removed(tmp_path / "t", driver) == names(left)


def test_files_of_a_batch_that_was_run_again_in_vain_are_removed(tmp_path):
    Driver(tmp_path / "t").run(0, 1)
    again = Driver(tmp_path / "t")
    files = again.write(0, 1)
    assert not again.writer.commit(0, files)
    assert removed(tmp_path / "t", again) == names(files)


def test_a_file_that_is_committed_meanwhile_stays(tmp_path):
    driver = Driver(tmp_path / "t")
    driver.run(0, 1)
    table = DeltaTable(tmp_path / "t")
    driver.run(1, 2)
    assert find_orphans(table) == []


def test_files_that_were_removed_from_the_table_belong_to_earlier_versions(tmp_path):
    driver = Driver(tmp_path / "t")
    driver.run(0, 1)
    driver.run(1, 2)
    failed = driver.write(1, 2)
    DeltaTable(tmp_path / "t").optimize.compact()
    DeltaTable(tmp_path / "t").delete("k = 1")
    assert removed(tmp_path / "t", driver) == names(failed)
    assert DeltaTable(tmp_path / "t", version=2).to_pyarrow_table().num_rows == 2


def test_files_of_others_stay(tmp_path):
    driver = Driver(tmp_path / "t")
    driver.run(0, 1)
    (tmp_path / "t" / "part-00000.parquet").write_bytes(b"of somebody else")
    assert removed(tmp_path / "t", driver) == set()


def test_what_a_killed_backfill_left_is_removed_on_request(tmp_path):
    driver = Driver(tmp_path / "t")
    driver.run(0, 1)
    rows = pa.record_batch({"k": [7], "v": ["past"]}, schema=SCHEMA)
    left = list(results_as_files([rows], ResultTarget(driver.location, OTHER, None, 0, 0)))
    assert removed(tmp_path / "t", driver) == set()
    assert removed(tmp_path / "t", driver, with_backfills=True) == names(left)


def test_partitioned_tables_are_cleaned_too(tmp_path):
    driver = Driver(tmp_path / "t", partition_by=["v"])
    failed = driver.write(0, 1)
    driver.run(0, 1)
    assert removed(tmp_path / "t", driver) == names(failed)


def test_files_are_written_and_removed_through_the_storage_of_delta_rs(tmp_path):
    """As in an object store: here one that is a directory, but is not treated as such."""
    store = TableLocation((tmp_path / "t").as_uri())
    assert store.directory is None
    driver = Driver(store, partition_by=["v"])
    failed, succeeded = driver.write(0, 1), driver.write(0, 1)
    driver.writer.commit(0, succeeded)
    assert removed(tmp_path / "t", driver) == names(failed)
    store.remove_file(failed[0].name)
    assert names_on_disk(tmp_path / "t") == names(succeeded)
    assert rows_of(tmp_path / "t") == [1]


def test_a_driver_looks_for_orphans_from_time_to_time(tmp_path):
    driver = Driver(tmp_path / "t")
    now = [0.0]
    removal = OrphanRemoval(driver.location, lambda: now[0])
    found = []
    for batch, passed in enumerate([0, 1, LEAST_SECONDS - 2, 1, 1]):
        now[0] += passed
        failed = driver.write(batch, 1)
        driver.run(batch, 1)
        if removal.is_due and removal.remove(DeltaTable(tmp_path / "t")):
            found.append(batch)
            assert not (tmp_path / "t" / failed[0].name).exists()
    assert found == [0, 3]


def test_a_driver_that_cannot_remove_orphans_does_not_try_each_time(tmp_path, monkeypatch):
    driver = Driver(tmp_path / "t")
    times = iter([0.0, 1.0, 2.0])
    removal = OrphanRemoval(driver.location, clock=lambda: next(times))

    def failing(*_):
        raise PermissionError("no")

    monkeypatch.setattr(orphans, "remove_orphans", failing)
    with pytest.raises(PermissionError):
        removal.remove(DeltaTable(tmp_path / "t"))
    assert not removal.is_due
