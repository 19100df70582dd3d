"""The control directory: commands have an order, are whole when they can be seen, and belong to one query."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from unittest import mock

import msgspec
import pyarrow as pa
import pytest
from msgspec.structs import replace

from midstream import ContinuousQuery, Stream
from midstream.errors import CheckpointMismatch, MalformedMessage, PathProblem
from midstream.planning.partitioning import partition
from midstream.runtime import control
from midstream.runtime.control import Claims, ControlDirectory
from midstream.runtime.messages import CONTROL_FORMAT, DeclareIdle, Finish, QueryFile, Rates, Status
from midstream.runtime.progress import Progress
from midstream.runtime.query_fingerprint import QueryFingerprint

QUERY = QueryFingerprint(text="SELECT k FROM a [NOW]", identity="x", streams=[{"name": "a"}], cells=2, partitioning=[])

QUERY_OF_A = ContinuousQuery(
    "SELECT k FROM a [NOW]", [Stream("a", pa.schema({"ts": pa.int64(), "k": pa.int64()}), "ts")]
)


@pytest.fixture
def directory(tmp_path) -> ControlDirectory:
    made = ControlDirectory(tmp_path / "control")
    made.create(QUERY, {})
    return made


def test_commands_are_numbered_from_one_in_the_order_they_were_given(directory):
    assert directory.last_number == 0
    assert directory.commands() == []
    assert [directory.write(DeclareIdle(stream=str(number))) for number in range(12)] == list(range(1, 13))
    assert directory.last_number == 12
    commands = directory.commands()
    assert [command.number for command in commands] == list(range(1, 13))
    assert [command.action.stream for command in commands] == [str(number) for number in range(12)]
    assert all(command.submitted > 0 for command in commands)
    # Another process, or the same query later.
    assert ControlDirectory(directory.path).commands() == commands


def test_a_file_is_one_line_with_the_number_and_the_command_as_text(directory):
    """As Spark reads it: ``id long, command string``."""
    directory.write(DeclareIdle(stream="one\ntwo é \u2028"))
    (path,) = directory.commands_path.iterdir()
    assert path.name == f"00000001-{directory.mark[:12]}.json"
    content = path.read_bytes()
    assert content.count(b"\n") == 1
    assert content.isascii()
    line = json.loads(content)
    assert line.keys() == {"id", "command"}
    assert line["id"] == json.loads(line["command"])["number"] == 1
    assert json.loads(line["command"])["action"]["stream"] == "one\ntwo é \u2028"


def test_a_command_has_its_final_name_only_when_it_is_whole(directory):
    seen = {}

    def die(source, target):
        seen.update({path.name: path.read_text() for path in directory.commands_path.iterdir()})
        raise KeyboardInterrupt

    with mock.patch.object(control.os, "link", die), pytest.raises(KeyboardInterrupt):
        directory.write(Finish())
    ((name, content),) = seen.items()
    # Spark leaves out files whose name begins with an underscore.
    assert re.fullmatch(r"_0+1-[0-9a-f]+\.json(_\d+){3}", name)
    assert json.loads(json.loads(content)["command"])["action"] == {"kind": "finish"}
    assert list(directory.commands_path.iterdir()) == []
    assert directory.write(Finish()) == 1


def test_a_number_that_another_writer_took_is_passed_over(directory):
    others = iter([1, 2])
    link = os.link

    def late_link(source, target):
        # Just before: two others were faster.
        for number in others:
            name = f"{number:08d}-{directory.mark[:12]}.json"
            (directory.commands_path / name).write_text(json.dumps({"id": number, "command": "{}"}))
        link(source, target)

    with mock.patch.object(control.os, "link", late_link):
        assert directory.write(Finish()) == 3
    assert directory.last_number == 3
    (third,) = directory.commands_path.glob("00000003*")
    assert json.loads(third.read_text())["id"] == 3
    assert len(list(directory.commands_path.iterdir())) == 3


WRITER = """
import sys
from midstream.runtime import messages as control
from midstream.runtime.control import Claims, ControlDirectory
directory = ControlDirectory(sys.argv[2])
sys.stdin.readline()
print(*[directory.write(control.DeclareIdle(stream=f"{sys.argv[3]} {number} " + "x" * 5000)) for number in range(20)])
"""


def test_writers_in_several_processes_get_numbers_of_their_own_and_readers_see_whole_files(directory):
    arguments = [sys.executable, "-c", WRITER, control.__file__, str(directory.path)]
    path = os.pathsep.join(["src", *filter(None, [os.environ.get("PYTHONPATH")])])
    writers = [
        subprocess.Popen(
            [*arguments, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        for name in "abc"
    ]
    is_over, problems, looks = threading.Event(), [], []

    def read() -> None:
        while not is_over.is_set():
            try:
                for file in directory.commands_path.glob("*.json"):
                    assert len(json.loads(json.loads(file.read_text())["command"])["action"]["stream"]) > 5000
                numbers = [command.number for command in ControlDirectory(directory.path).commands()]
                # Whoever sees a command sees all before it.
                assert numbers == list(range(1, len(numbers) + 1))
                looks.append(len(numbers))
            except Exception as problem:
                problems.append(problem)
                return

    reader = threading.Thread(target=read)
    reader.start()
    for writer in writers:
        writer.stdin.write("\n")
        writer.stdin.flush()
    answers = [writer.communicate(timeout=60)[0] for writer in writers]
    is_over.set()
    reader.join()
    assert problems == []
    assert looks
    numbers = [[int(number) for number in answer.split()] for answer in answers]
    assert sorted(number for own in numbers for number in own) == list(range(1, 61))
    assert all(own == sorted(own) for own in numbers)
    commands = directory.commands()
    for name, own in zip("abc", numbers, strict=True):
        streams = [command.action.stream.split(" x")[0] for command in commands if command.number in own]
        assert streams == [f"{name} {number}" for number in range(20)]
    assert {path.suffix for path in directory.commands_path.iterdir()} == {".json"}


def test_the_same_query_finds_its_directory_again(directory):
    directory.write(Finish())
    again = ControlDirectory(directory.path)
    again.create(replace(QUERY, text="select  k from a [now]"), {})
    assert again.query() == QueryFile(query=QUERY, first_plan={}, mark=directory.mark)
    assert again.last_number == 1


@pytest.mark.parametrize(
    ("name", "changed", "told"),
    [
        ("text", {"text": "SELECT 1 FROM b", "identity": "y"}, "There: SELECT k FROM a [NOW]. Now: SELECT 1 FROM b."),
        ("streams", {"streams": [{"name": "b"}]}, "There: [{'name': 'a'}]. Now: [{'name': 'b'}]."),
        ("cells", {"cells": 4}, "There: 2. Now: 4."),
    ],
)
def test_another_query_is_refused_and_the_difference_named(directory, name, changed, told):
    with pytest.raises(CheckpointMismatch) as refusal:
        ControlDirectory(directory.path).create(replace(QUERY, **changed), {})
    assert f"[M3005] the control directory {directory.path} belongs to a query with another {name}" in str(
        refusal.value
    )
    assert told in str(refusal.value)
    assert directory.query() == QueryFile(query=QUERY, first_plan={}, mark=directory.mark)


def status(reported: float) -> Status:
    metrics = Progress(QUERY_OF_A.plan(), partition(QUERY_OF_A.plan(), 1)).metrics()
    return Status(
        plan="x" * 10_000,
        plan_json={},
        history=[],
        metrics=metrics,
        rates=Rates(),
        has_ended=False,
        reported=reported,
    )


def test_a_status_is_replaced_as_a_whole(directory):
    assert directory.status() is None
    for number in (1.0, 2.0):
        directory.write_status(status(number))
        assert directory.status() == status(number)
    with mock.patch.object(Path, "replace", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        directory.write_status(status(3.0))
    assert directory.status().reported == 2


def test_a_command_is_for_the_query_that_it_names_or_that_claims_it_first(directory):
    directory.write(Finish())
    assert [directory.claims().is_for(command, "q1") for command in directory.commands()] == [True]
    directory.claim("q1")
    directory.write(Finish(), "q1")
    # The checkpoint was removed, and the query begins anew.
    directory.write(Finish())
    directory.claim("q2")
    directory.claim("q1")
    directory.write(Finish(), "q2")
    assert directory.claims() == ControlDirectory(directory.path).claims()
    assert directory.claims().queries == (("q1", 1), ("q2", 3))
    meant = {
        query: [c.number for c in directory.commands() if directory.claims().is_for(c, query)]
        for query in ("q1", "q2", "q3")
    }
    assert meant == {"q1": [1, 2], "q2": [3, 4], "q3": []}


def test_commands_from_before_query_json_was_removed_are_for_nobody(directory):
    """A first attempt failed before its first row: what was submitted to it, its end even, was done to the next one."""
    directory.write(Finish())
    directory.write(Finish(), "q1")
    (directory.path / "query.json").unlink()
    again = ControlDirectory(directory.path)
    again.create(QUERY, {})
    again.write(Finish())
    meant = {query: [c.number for c in again.commands() if again.claims().is_for(c, query)] for query in ("q1", "q2")}
    # What names its query stays that query's.
    assert meant == {"q1": [2, 3], "q2": [3]}


def test_a_directory_made_anew_gives_its_commands_other_names(directory):
    """Spark remembers which files it has read."""
    directory.write(Finish())
    names = {path.name for path in directory.commands_path.iterdir()}
    shutil.rmtree(directory.path)
    again = ControlDirectory(directory.path)
    again.create(QUERY, {})
    again.write(Finish())
    assert not names & {path.name for path in again.commands_path.iterdir()}


@pytest.mark.parametrize("name", ["q[1]", "{q}", "a*", "what?"])
def test_a_path_that_spark_takes_for_a_pattern_is_refused(tmp_path, name):
    with pytest.raises(PathProblem, match="pattern"):
        ControlDirectory(tmp_path / name).create(QUERY, {})
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["query", "status"])
def test_damaged_files_are_refused_with_a_code(directory, name):
    for content in ("", "{", "[]", "[" * 100_000, '{"format": 7}', '{"format": 7, "a": ' * 100_000, '{"format": "7"}'):
        (directory.path / f"{name}.json").write_text(content)
        with pytest.raises(MalformedMessage, match=rf"\[M3011\] .*{name}\.json is damaged"):
            getattr(directory, name)()


@pytest.mark.parametrize("name", ["query", "status"])
@pytest.mark.parametrize("content", ["{}", '{"format": 1}', '{"metrics": {}, "told": 1}'])
def test_files_of_another_version_are_refused_as_a_whole(directory, name, content):
    (directory.path / f"{name}.json").write_text(content)
    with pytest.raises(CheckpointMismatch, match=rf"\[M3005\] .*{name}\.json was written by another version"):
        getattr(directory, name)()


@pytest.mark.parametrize(
    ("name", "value"),
    [("cells", "2"), ("cells", True), ("cells", 2.0), ("text", 5), ("identity", None), ("streams", {}), ("more", 7)],
)
def test_a_stored_query_with_a_value_of_another_type_is_damaged(directory, name, value):
    stored = json.loads((directory.path / "query.json").read_text())
    stored["query"][name] = value
    (directory.path / "query.json").write_text(json.dumps(stored))
    with pytest.raises(MalformedMessage, match=r"query\.json is damaged") as caught:
        directory.query()
    assert name in caught.value.detail


def test_only_regular_files_are_opened(directory):
    """A named pipe would keep the reader waiting for ever."""
    directory.claim("q1")
    os.mkfifo(directory.path / "claims" / f"00000000-{directory.mark[:12]}.json")
    assert directory.claims().queries == (("q1", 0),)
    for name in ("query.json", "status.json"):
        (directory.path / name).unlink(missing_ok=True)
        os.mkfifo(directory.path / name)
    os.mkfifo(directory.commands_path / "00000007-x.json")
    (directory.commands_path / "00000008-x.json").write_text(json.dumps({"command": "[" * 100_000}))
    for read in (directory.query, directory.status, directory.claims):
        with pytest.raises(PathProblem, match=r"json is not a regular file"):
            read()
    assert directory.commands() == []


def test_claims_that_nobody_can_have_written_claim_nothing(directory):
    directory.claim("q1")
    for place, content in enumerate(['{"query": "a", "last": "x"}', "[" * 100_000, "", '{"query": 5, "last": 3}']):
        (directory.path / "claims" / f"0000001{place}-{directory.mark[:12]}.json").write_text(content)
    (directory.path / "claims" / "00000000-of another directory.json").write_text('{"query": "q0", "last": 9}')
    assert directory.claims().queries == (("q1", 0),)


def test_of_two_queries_that_begin_at_once_one_has_the_directory(tmp_path, monkeypatch):
    """The second replaced what the first had written, and commands to the first had a mark that nobody knew."""
    first, second = ControlDirectory(tmp_path), ControlDirectory(tmp_path)
    looked = iter([None])
    query = second.query
    monkeypatch.setattr(second, "query", lambda: next(looked, query()))
    assert second.query() is None
    looked = iter([None])
    first.create(QUERY, {})
    mark = first.mark
    second.create(QUERY, {})
    assert ControlDirectory(tmp_path).mark == second.mark == mark
    looked = iter([None])
    with pytest.raises(CheckpointMismatch, match="another cells"):
        second.create(msgspec.structs.replace(QUERY, cells=99), {})


def test_queries_that_report_at_once_both_have_their_claim(directory, monkeypatch):
    """One replaced the claim of the other, and commands were taken for those of a third."""
    other = ControlDirectory(directory.path)
    directory.write(Finish())
    with monkeypatch.context() as patched:
        patched.setattr(other, "claims", lambda: Claims(other.mark))
        directory.claim("q1")
        other.claim("q2")
    assert directory.claims().queries == other.claims().queries == (("q1", 1), ("q2", 1))


def test_a_command_that_could_not_be_read_once_is_read_the_next_time(directory, monkeypatch):
    """A moment of a network file system hid it for good."""
    number = directory.write(Finish())
    with monkeypatch.context() as patched:
        patched.setattr("midstream.runtime.control.read_text", lambda path: (_ for _ in ()).throw(OSError("stale")))
        assert directory.commands() == []
        assert "stale" in str(*directory.ignored().values())
    assert [command.number for command in directory.commands()] == [number]
    assert directory.ignored() == {}


def test_commands_carry_the_mark_of_their_directory(directory, tmp_path):
    """A query that is started again with another directory numbers its commands from one again."""
    other = ControlDirectory(tmp_path / "other")
    other.create(QUERY, {})
    for made in (directory, other):
        made.write(Finish())
    marks = [command.directory for made in (directory, other) for command in made.commands()]
    assert marks == [directory.mark, other.mark]
    assert marks[0] != marks[1]
    assert ControlDirectory(directory.path).mark == directory.mark


GOOD = {
    "format": CONTROL_FORMAT,
    "number": 5,
    "directory": "x",
    "query": None,
    "submitted": 1.0,
    "action": {"kind": "finish"},
}
NO_COMMANDS = [
    "{}",
    "no JSON",
    '{"id": 3}',
    '{"id": 4, "command": "x"}',
    *(
        json.dumps({"id": 5, "command": json.dumps(command)})
        for command in [
            [],
            GOOD | {"number": "5"},
            GOOD | {"format": 1},
            GOOD | {"more": 1},
            GOOD | {"action": {"kind": "drop"}},
            GOOD | {"action": {"kind": []}},
            GOOD | {"action": {"kind": "migrate"}},
            GOOD | {"action": {"kind": "idle", "stream": None}},
            {name: value for name, value in GOOD.items() if name != "directory"},
        ]
    ),
]


def test_files_that_are_no_commands_are_passed_over(directory):
    for number, text in enumerate(NO_COMMANDS, 1):
        (directory.commands_path / f"{number:08d}.json").write_text(text)
    (directory.commands_path / "notes.json").write_text("{}")
    assert directory.write(Finish()) == len(NO_COMMANDS) + 1
    assert [command.number for command in directory.commands()] == [len(NO_COMMANDS) + 1]
    ignored = directory.ignored()
    assert len(ignored) == len(NO_COMMANDS)
    assert {error.code for error in ignored.values()} == {"M3005", "M3011"}


def test_without_a_path_a_directory_of_its_own_is_made():
    one, other = ControlDirectory(), ControlDirectory()
    assert one.path != other.path
    assert one.path.is_absolute()
    assert one.query() is None
    assert (one.last_number, one.commands()) == (0, [])
    for made in (one, other):
        made.path.rmdir()


def test_a_temporary_control_directory_is_removed_with_its_process():
    script = "from midstream.runtime.control import ControlDirectory as C; p = C().path; print(p.is_dir(), p)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    was_there, _, path = done.stdout.strip().partition(" ")
    assert was_there == "True" and not Path(path).exists()
