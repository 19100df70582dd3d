"""``midstream migrate`` and ``midstream status`` against a query in another process, here played by a thread."""

import json
import os
import re
import threading

import pytest

from midstream.cli.run import _check_control
from midstream.cli.run_file import RunFile, is_running, note_failure, running
from midstream.cli.sinks import Sink
from midstream.cli.sources import StreamSource
from midstream.errors import AlreadyRunning, CheckpointMismatch, NotRunning, PathProblem
from midstream.spark.control import is_for
from midstream.spark.remote import RemoteQuery
from tests.cli.commanding import call, control_of, told

RECORD = {"seconds": 0.5, "is_over": True}


@pytest.fixture
def control(tmp_path):
    made = control_of(tmp_path / "control", "(o p) s")
    told(made, "(o p) s", [])
    return made


def answering(control, *states, why=None):
    """A query that takes a command and says, one after the other, what becomes of it."""

    def answer():
        while not control.commands():
            is_over.wait(0.01)
        (command,) = control.commands()
        for state in states:
            cells = [{"cell": 0, "outcome": state, "why": why, "record": RECORD}]
            entry = {key: command[key] for key in ("id", "strategy", "options", "written")}
            told(control, "o (p s)" if state == "ended" else "(o p) s", [{**entry, "state": state, "cells": cells}])
            is_over.wait(0.3)

    is_over = threading.Event()
    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    return thread


def test_a_change_is_accepted_begun_and_ended(control):
    query = answering(control, "begun", "ended")
    called = call("migrate", control.path, "o (p s)", "--strategy", "gen-mig", "--variant", "reference-point")
    query.join()
    words = [line.partition(":")[0] for line in called.out.splitlines()]
    assert (called.code, words[:3]) == (0, ["accepted", "begun", "ended"])
    assert RemoteQuery(control.path).query.plan("o (p s)").explain() in called.out
    (command,) = control.commands()
    assert (command["kind"], command["strategy"], command["options"]) == (
        "migrate",
        "gen-mig",
        {"variant": "reference-point"},
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["o (p x)"], 'names "x", which is no alias'),
        (["o p"], 'does not name "s"'),
        (["#9"], "no plan #9"),
        (["o (p s)", "--strategy", "jisk"], 'Did you mean "jisc"?'),
        (["o (p s)", "--strategy", "moving-state", "--shortened"], 'has no option "shortened"'),
        (["o (p s)", "--strategy", "gen-mig", "--variant", "coalesced"], "coalesced"),
        (["o (p s)", "--strategy", "pause-drain-resume"], "[M3004]"),
    ],
)
def test_what_is_refused_leaves_the_query_untouched(control, arguments, said):
    called = call("migrate", control.path, *arguments)
    assert called.code == 1
    assert said in called.err
    assert "refused: the query goes on untouched" in called.err
    assert control.commands() == []
    assert called.out == ""


def test_a_cell_may_refuse_what_only_rows_can_tell(control):
    query = answering(control, "refused", why="[M3004] 33 plans are too many")
    called = call("migrate", control.path, "o (p s)", "--json")
    query.join()
    assert called.code == 1
    assert called.document["state"] == "refused"
    assert called.document["why"] == "[M3004] 33 plans are too many"
    assert "refused: the query goes on with its plan" in called.err


def test_a_query_that_says_nothing_does_not_seem_to_run(control):
    called = call("migrate", control.path, "o (p s)", "--timeout", 0)
    assert called.code == 3
    assert "the query does not seem to run, it told nothing for" in called.out
    with running(control.path):
        called = call("migrate", control.path, "o (p s)", "--timeout", 0)
        assert "the query runs, but it told nothing for" in called.out
    # Once its process is gone there is nothing to wait for.
    called = call("migrate", control.path, "o (p s)", "--timeout", 600)
    assert called.code == 3
    assert "does not run now: the plan changes when it is resumed" in called.out


def test_streams_that_have_ended_need_no_other_plan(control):
    told(control, "(o p) s", [], finished=True)
    called = call("migrate", control.path, "o (p s)")
    assert called.code == 1
    assert "[M3002]" in called.err
    assert control.commands() == []


def test_status_shows_what_the_query_told(control):
    entry = {"id": 1, "strategy": "jisc", "options": {}, "written": 1.0, "state": "ended"}
    RemoteQuery(control.path).migrate("o (p s)")
    told(control, "o (p s)", [{**entry, "cells": [{"cell": 0, "why": None, "record": RECORD}]}], migrating=True)
    called = call("status", control.path)
    assert called.code == 0
    for words in ["started by a program", "Join p.id = s.id", "4,242", "1,235 per second", "shipments (idle)", "0.50"]:
        assert words in called.out, words
    document = call("status", control.path, "--json").document
    assert document["is_running"] is None
    assert document["metrics"]["streams"]["orders"]["late"] == 7
    assert call("status", control.path, "--watch", "--json").code == 2


def test_a_directory_without_a_query_is_named(tmp_path):
    for command in (["status", tmp_path / "no"], ["migrate", tmp_path, "a b"], ["verify", tmp_path]):
        called = call(*command)
        assert called.code == 1
        assert "[M5006] there is no query in" in called.err


@pytest.mark.parametrize(
    "change",
    [
        lambda path, stored: path.write_text("[" * 100_000),
        lambda path, stored: path.write_text(json.dumps({**stored, "cells": "1"})),
        lambda path, stored: path.write_text(json.dumps({**stored, "streams": ["x"]})),
        lambda path, stored: path.write_text(
            json.dumps({name: stored[name] for name in stored if name != "first_plan"})
        ),
        lambda path, stored: (path.unlink(), os.mkfifo(path)),
    ],
    ids=["deep", "text for a number", "no stream", "no plan", "named pipe"],
)
def test_a_damaged_query_is_told_of_with_a_code_of_its_own(control, change):
    path = control.path / "query.json"
    change(path, json.loads(path.read_text()))
    called = call("status", control.path)
    assert called.code == 1
    assert re.search(r"\[M[2-5]\d\d[1-9]\]", called.err), called.err


@pytest.mark.parametrize("content", ["[" * 100_000, '{"version": 1}', None], ids=["deep", "little", "named pipe"])
def test_a_damaged_run_file_is_told_of(tmp_path, content):
    path = tmp_path / "run.json"
    os.mkfifo(path) if content is None else path.write_text(content)
    with pytest.raises((NotRunning, PathProblem), match=r"run\.json"):
        RunFile.read(tmp_path)


def test_a_lock_that_is_a_named_pipe_keeps_nobody_waiting(tmp_path):
    os.mkfifo(tmp_path / "run.lock")
    with pytest.raises(PathProblem, match="not a regular file"):
        is_running(tmp_path)


def test_only_one_process_runs_a_query(tmp_path):
    assert is_running(tmp_path) is None
    with running(tmp_path):
        assert is_running(tmp_path) is True
        with pytest.raises(AlreadyRunning), running(tmp_path):
            pass
    assert is_running(tmp_path) is False


def test_a_command_before_the_first_batch_of_a_new_checkpoint_is_not_for_the_query_before(control, tmp_path):
    told(control, "(o p) s", [], query="before")
    control.claim("before")
    asked = RunFile(
        "SELECT ts FROM s [NOW]", (), Sink("parquet", str(tmp_path / "out")), control.path, str(tmp_path / "new")
    )
    assert _check_control(asked, until_end=False) is None
    number = RemoteQuery(control.path).migrate("o (p s)")
    (command,) = [command for command in control.commands() if command["id"] == number]
    assert is_for(command, "new", control.claims())


def test_status_says_what_the_last_run_failed_of(control):
    told(control, "(o p) s", [])
    with running(control.path):
        note_failure(control.path, "[M4004] a row does not fit")
        assert "running as process" in call("status", control.path).out
        assert call("status", control.path, "--json").document["failure"] is None
    assert "failed: [M4004] a row does not fit; told " in call("status", control.path).out
    assert call("status", control.path, "--json").document["failure"] == "[M4004] a row does not fit"
    with running(control.path):
        pass
    assert "stopped; told" in call("status", control.path).out


def test_a_run_is_taken_up_with_what_it_began_with(tmp_path):
    stream = StreamSource("s", "csv", "/data/s", {"header": "true"}, "ts long", "ts", "30")
    asked = RunFile(
        "SELECT ts FROM s [NOW]", (stream,), Sink("parquet", "/out"), tmp_path, str(tmp_path / "checkpoint")
    )
    asked.write()
    read = RunFile.read(tmp_path)
    assert read == asked
    assert not read.has_begun
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    (tmp_path / "checkpoint" / "offsets" / "0").touch()
    assert read.has_begun
    moved = RunFile(**{**vars(asked), "sink": Sink("parquet", "/elsewhere")})
    with pytest.raises(CheckpointMismatch, match="another sink"):
        moved.check_same_as(read)
    # The end of its streams was asked for: rows that come now would be late.
    control = control_of(tmp_path)
    control.write({"kind": "finish"})
    refused = call("run", "--resume", tmp_path)
    assert (refused.code, refused.err[:7]) == (1, "[M3002]")
    assert "add --until-end" in refused.err
    # All cells have told of the end, but it is not known to be committed.
    told(control, "(o p) s", [], finished=True)
    assert "[M3000] the run has not come to its end" in call("verify", tmp_path).err
    told(control, "(o p) s", [], has_ended=True, finished=True)
    refused = call("run", "--resume", tmp_path, "--until-end")
    assert "[M3002] this run has come to its end" in refused.err
    for content in ("{", json.dumps({"version": 99})):
        asked.path.write_text(content)
        with pytest.raises(NotRunning, match="cannot be read"):
            RunFile.read(tmp_path)
    assert call("run", "--resume", tmp_path / "no").code == 1
    assert call("run", "--resume", tmp_path, "--plan", "a b").code == 2
