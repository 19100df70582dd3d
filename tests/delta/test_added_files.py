"""The files of a table that a stream reads: in the order of commits, each once."""

import json
import os
import shutil
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from midstream.delta import added_files
from midstream.delta.added_files import added_since, files_now
from midstream.delta.log_entries import log_entry
from midstream.errors import BadStreamDeclaration, TableMismatch
from midstream.runtime.file_log import FileLog


def add(path, *values):
    write_deltalake(path, pa.table({"ts": list(values)}), mode="append")


def values(files):
    return [pq.read_table(file).column("ts").to_pylist() for file in files]


@pytest.fixture
def table(tmp_path):
    path = str(tmp_path / "a table")
    add(path, 1)
    add(path, 2)
    return path


def discovered(log, table):
    log.discover({"a": table})
    return values(log.files("a", 0, log.count("a")))


def test_a_stream_begins_with_what_the_table_has_and_follows_its_log(table, tmp_path):
    log = FileLog(tmp_path / "log")
    assert discovered(log, table) == [[1], [2]]
    add(table, 3)
    add(table, 4)
    assert discovered(log, table) == [[1], [2], [3], [4]]
    assert discovered(log, table) == [[1], [2], [3], [4]]
    add(table, 5)
    assert discovered(FileLog(tmp_path / "log"), table) == [[1], [2], [3], [4], [5]]


def test_files_that_are_not_part_of_the_table_are_not_read(table, tmp_path):
    pq.write_table(pa.table({"ts": [9]}), os.path.join(table, "orphan.parquet"))
    assert discovered(FileLog(tmp_path / "log"), table) == [[1], [2]]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_rows_that_are_rewritten_are_not_read_again(table, tmp_path, is_restarted):
    log = FileLog(tmp_path / "log")
    discovered(log, table)
    DeltaTable(table).optimize.compact()
    add(table, 3)
    if is_restarted:
        log = FileLog(tmp_path / "log")
    assert discovered(log, table) == [[1], [2], [3]]


def test_a_log_that_was_cut_off_is_completed(table, tmp_path):
    """The process died while it wrote what it had found: then nobody has an offset with these files."""
    log = FileLog(tmp_path / "log")
    discovered(log, table)
    kept = (tmp_path / "log").read_text()
    add(table, 3)
    discovered(log, table)
    (tmp_path / "log").write_text((tmp_path / "log").read_text()[: len(kept) + 20])
    DeltaTable(table).optimize.compact()
    assert discovered(FileLog(tmp_path / "log"), table) == [[1], [2], [3]]


@pytest.mark.parametrize("rows", [1, 5])
def test_a_table_that_was_made_again_is_noticed(table, tmp_path, rows):
    discovered(FileLog(tmp_path / "log"), table)
    shutil.rmtree(table)
    for row in range(rows):
        add(table, row)
    with pytest.raises(TableMismatch, match="was removed or replaced"):
        FileLog(tmp_path / "log").discover({"a": table})


@pytest.mark.parametrize("rows", [0, 1, 2, 5])
def test_what_happens_to_a_table_is_noticed_while_the_query_runs(table, tmp_path, rows):
    """Whether it is made again, with as many versions as it had, more or fewer."""
    log = FileLog(tmp_path / "log")
    discovered(log, table)
    discovered(log, table)
    shutil.rmtree(table)
    for row in range(rows):
        add(table, row)
    with pytest.raises(TableMismatch, match="was removed or replaced"):
        log.discover({"a": table})


def test_a_table_is_opened_once_as_long_as_its_log_goes_on(table, tmp_path, monkeypatch):
    log = FileLog(tmp_path / "log")
    discovered(log, table)
    discovered(log, table)
    monkeypatch.setattr(added_files, "_opened", None)
    add(table, 3)
    discovered(log, table)
    assert discovered(log, table) == [[1], [2], [3]]


def test_a_log_whose_last_known_entry_was_removed_goes_on(table, tmp_path):
    """By a clean-up after a checkpoint."""
    log = FileLog(tmp_path / "log")
    discovered(log, table)
    DeltaTable(table).create_checkpoint()
    add(table, 3)
    for version in range(2):
        log_entry(table, version).unlink()
    assert discovered(log, table) == [[1], [2], [3]]
    add(table, 4)
    assert discovered(log, table) == [[1], [2], [3], [4]]


def test_text_may_have_any_letter(tmp_path):
    """Some of them separate lines, for Python, and are in the log as they are."""
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"ts": [1], "v": ["x"]}))
    log = FileLog(tmp_path / "log")
    discovered(log, path)
    write_deltalake(path, pa.table({"ts": [2], "v": ["a\u2028b\u0085c"]}), mode="append")
    assert discovered(log, path) == [[1], [2]]


def test_names_may_have_any_letter(tmp_path):
    """They are percent-encoded in the log."""
    path = str(tmp_path / "t")
    add(path, 1)
    for number, name in enumerate(["a b.parquet", "ü+#?.parquet", "100%25.parquet"], start=2):
        pq.write_table(pa.table({"ts": [number]}), os.path.join(path, name))
        size = os.path.getsize(os.path.join(path, name))
        action = {"path": quote(name), "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True}
        log_entry(path, number - 1).write_text(json.dumps({"add": action}) + "\n")
    found = files_now(path)
    assert sorted(values(found.files)) == [[1], [2], [3], [4]]
    assert values(added_since(path, found._replace(version=0), is_thorough=False).files) == [[2], [3], [4]]


def test_a_table_that_is_being_made_has_no_files_yet(tmp_path):
    os.makedirs(tmp_path / "t" / "_delta_log")
    log = FileLog(tmp_path / "log")
    assert discovered(log, str(tmp_path / "t")) == []
    add(tmp_path / "t", 1)
    assert discovered(log, str(tmp_path / "t")) == [[1]]


def test_files_that_were_read_before_there_was_a_log_are_not_mixed_with_the_table(tmp_path):
    """A writer that makes a table may write files first, also those of an attempt that fails."""
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"ts": [9]}), tmp_path / "t" / "first.parquet")
    log = FileLog(tmp_path / "log")
    assert discovered(log, str(tmp_path / "t")) == [[9]]
    add(tmp_path / "t", 1)
    with pytest.raises(BadStreamDeclaration, match="has become a Delta table"):
        log.discover({"a": str(tmp_path / "t")})


@pytest.mark.parametrize("place", ["", "a*", "a table/*.parquet", "**"])
def test_files_of_a_table_are_not_read_without_its_log(table, tmp_path, place):
    with pytest.raises(BadStreamDeclaration, match="is a Delta table among the files"):
        FileLog(tmp_path / "log").discover({"a": str(tmp_path / place)})


@pytest.mark.parametrize("change", ["delete", "overwrite"])
def test_rows_that_are_taken_back_end_the_query(table, tmp_path, change):
    log = FileLog(tmp_path / "log")
    discovered(log, table)
    if change == "delete":
        DeltaTable(table).delete("ts = 1")
    else:
        write_deltalake(table, pa.table({"ts": [7]}), mode="overwrite")
    with pytest.raises(TableMismatch, match="were deleted or changed, by version 2"):
        log.discover({"a": table})


def test_a_log_without_the_next_version_is_refused(table):
    known = files_now(table)
    add(table, 3)
    add(table, 4)
    log_entry(table, known.version + 1).unlink()
    with pytest.raises(TableMismatch, match=f"no longer has version {known.version + 1}"):
        added_since(table, known, is_thorough=True)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (
            {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}},
            "deletionVectors",
        ),
        ({"protocol": {"minReaderVersion": 2}}, "column mapping"),
        ({"metaData": {"partitionColumns": ["day"]}}, 'partition column "day"'),
        ({"add": {"path": "x.parquet", "dataChange": True, "deletionVector": {"a": 1}}}, "deletion vectors"),
        ({"add": {"path": "s3://elsewhere/x.parquet", "dataChange": True}}, "files in other places"),
        ({"add": {"path": "file:/elsewhere/x.parquet", "dataChange": True}}, "files in other places"),
        ({"add": {"path": "/elsewhere/x.parquet", "dataChange": True}}, "files in other places"),
    ],
)
def test_what_plain_files_do_not_have_is_refused(table, action, words):
    known = files_now(table)
    log_entry(table, known.version + 1).write_text(json.dumps(action))
    with pytest.raises(TableMismatch, match=words):
        added_since(table, known, is_thorough=False)


def test_a_partitioned_table_is_refused(tmp_path):
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"ts": [1], "v": [2]}), partition_by=["ts"])
    with pytest.raises(TableMismatch, match='partition column "ts"'):
        files_now(path)
