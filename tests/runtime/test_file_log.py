"""Files get their numbers by modification time and name, once and for all."""

from __future__ import annotations

import os

import pytest

from midstream.errors import BrokenRun, MalformedMessage
from midstream.runtime.data_files import data_files
from midstream.runtime.file_log import FileLog


def write(path, modified=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    os.utime(path, ns=(modified, modified))
    return str(path)


@pytest.fixture
def log(tmp_path):
    return FileLog(tmp_path / "logs" / "q.jsonl")


def test_files_are_numbered_by_modification_time_and_then_by_name(tmp_path, log):
    folder = tmp_path / "a"
    last = write(folder / "1", 7)
    second, first = write(folder / "c", 5), write(folder / "nested" / "b", 5)
    log.discover({"a": str(folder)})
    assert log.files("a", 0, 3) == [second, first, last]
    assert str(folder / "c") < str(folder / "nested" / "b")


def test_a_file_that_appears_later_comes_later_however_old_it_is(tmp_path, log):
    new = write(tmp_path / "a" / "new", 9)
    log.discover({"a": str(tmp_path / "a")})
    old = write(tmp_path / "a" / "old", 1)
    log.discover({"a": str(tmp_path / "a")})
    log.discover({"a": str(tmp_path / "a")})
    assert log.count("a") == 2
    assert log.files("a", 0, 2) == [new, old]


def test_another_process_finds_the_same_numbers_though_files_are_gone(tmp_path, log):
    paths = {name: str(tmp_path / name) for name in "ab"}
    files = [write(tmp_path / "a" / str(number), 10 - number) for number in range(3)]
    other = write(tmp_path / "b" / "x")
    log.discover(paths)
    os.remove(files[2])
    again = FileLog(tmp_path / "logs" / "q.jsonl")
    again.discover(paths)
    assert again.files("a", 0, 3) == files[::-1]
    assert again.files("b", 0, 1) == [other]


@pytest.mark.parametrize(
    "line", ["{", "[]", '["a"]', '["a", 3]', '["a", ["f"], 1]', '["a", "f", 1, "id"]', '["a", [3], 1, "id"]', "\xff"]
)
def test_a_damaged_line_is_named(tmp_path, log, line):
    write(tmp_path / "a" / "x", 1)
    log.discover({"a": str(tmp_path / "a")})
    path = tmp_path / "logs" / "q.jsonl"
    path.write_bytes(path.read_bytes() + line.encode("latin-1") + b"\n")
    with pytest.raises(MalformedMessage, match=r"\[M3011\] line 2 of .*q.jsonl, the log of the files"):
        FileLog(path)


def test_a_line_that_was_being_written_does_not_count(tmp_path, log):
    first = write(tmp_path / "a" / "1", 1)
    log.discover({"a": str(tmp_path / "a")})
    with open(tmp_path / "logs" / "q.jsonl", "ab") as torn:
        torn.write(b'["a", "/nowhe')
    again = FileLog(tmp_path / "logs" / "q.jsonl")
    assert again.count("a") == 1
    second = write(tmp_path / "a" / "2", 2)
    again.discover({"a": str(tmp_path / "a")})
    for read in (again, FileLog(tmp_path / "logs" / "q.jsonl")):
        assert read.files("a", 0, 2) == [first, second]


def test_an_offset_beyond_the_log_is_refused(tmp_path, log):
    write(tmp_path / "a" / "1")
    log.discover({"a": str(tmp_path / "a")})
    with pytest.raises(BrokenRun, match=r'(?s)is gone or incomplete.*has 1 files of stream "a".*that 2 were'):
        log.files("a", 0, 2)
    log.require("a", 1)
    with pytest.raises(BrokenRun, match="Restore the control directory"):
        log.require("a", 2)


def test_files_that_a_pattern_matches_twice_are_read_once(tmp_path, log):
    files = [write(tmp_path / "in" / name, 1) for name in ("1", "2020/2", "2020/01/3")]
    for pattern in ("in/**", "in/**/*", "in/*"):
        assert sorted(data_files(str(tmp_path / pattern))) == sorted(files)
    log.discover({"a": str(tmp_path / "in" / "**")})
    assert log.count("a") == 3


def test_what_is_not_data_is_left_alone_by_patterns_too(tmp_path):
    """A file is written under such a name, and renamed when it is complete."""
    data = write(tmp_path / "_in" / "1.parquet")
    for name in ("_2.parquet", ".3.parquet", "_temporary/4.parquet", "nested/_5.parquet"):
        write(tmp_path / "_in" / name)
    for pattern in ("_in/*.parquet", "_in/**/*.parquet", "_in/*", "*/*.parquet"):
        found = list(data_files(str(tmp_path / pattern)))
        assert found == ([] if pattern.startswith("*") else [data]), pattern


def test_a_log_that_another_process_has_added_to_is_not_changed(tmp_path, log):
    """Two drivers, each of which sees another file first: only one of them may say which number it has."""
    paths = {"a": str(tmp_path / "a")}
    other = FileLog(tmp_path / "logs" / "q.jsonl")
    first = write(tmp_path / "a" / "2", 2)
    log.discover(paths)
    write(tmp_path / "a" / "1", 1)
    with pytest.raises(BrokenRun, match="another process reads the same files"):
        other.discover(paths)
    assert FileLog(tmp_path / "logs" / "q.jsonl").files("a", 0, 1) == [first]


def test_a_directory_that_is_gone_again_has_no_files(tmp_path, monkeypatch):
    data = write(tmp_path / "a" / "1")
    write(tmp_path / "a" / "nested" / "2")
    scandir = os.scandir

    def renamed(path):
        if str(path).endswith("nested"):
            raise FileNotFoundError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", renamed)
    assert list(data_files(str(tmp_path / "a"))) == [data]


def test_what_is_not_data_is_left_alone(tmp_path):
    folder = tmp_path / "a"
    data = write(folder / "data")
    for name in ("_temporary/x", ".hidden", "_being_written"):
        write(folder / name)
    os.mkfifo(folder / "pipe")
    assert list(data_files(str(folder))) == [data]
    assert list(data_files(data)) == [data]
    assert list(data_files(str(tmp_path / "*" / "d*"))) == [data]
    assert list(data_files(str(tmp_path / "nowhere"))) == []


def test_a_name_with_letters_of_a_pattern_is_a_name_if_it_exists(tmp_path):
    data = write(tmp_path / "a[1]" / "data")
    assert list(data_files(str(tmp_path / "a[1]"))) == [data]


def test_a_link_that_leads_back_is_not_followed(tmp_path):
    data = write(tmp_path / "a" / "data")
    os.symlink(tmp_path / "a", tmp_path / "a" / "again")
    assert list(data_files(str(tmp_path / "a"))) == [data]
