"""``midstream migrate`` and ``midstream status`` against a query in another process, here played by a thread."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.algebra.plan_json import plan_to_json
from midstream.cli.run import _check_control
from midstream.cli.saved_run import RunFile, is_running, note_failure, running
from midstream.cli.sinks import Sink
from midstream.cli.sources import StreamSource
from midstream.errors import AlreadyRunning, CheckpointMismatch, FinishedRun, MalformedMessage, PathProblem
from midstream.execution.just_in_time import JustInTime
from midstream.migration.record import MigrationFigures
from midstream.planning.partitioning import partition
from midstream.runtime.control import ControlDirectory
from midstream.runtime.messages import (
    CellMigration,
    CommandOutcome,
    Finish,
    MigrationEntry,
    MigrationOutcome,
    OperatorFigures,
    SwitchJustInTime,
)
from midstream.runtime.query_fingerprint import QueryFingerprint
from midstream.runtime.remote import RemoteQuery
from midstream.runtime.stream_counters import StreamCounters
from tests.cli.commanding import call, control_of, reported

FIGURES = MigrationFigures(started=1.0, ended=1.5)


def entry(number, state, reason=None):
    """A migration as the query reports it."""
    cells = [CellMigration(cell=0, state=state, reason=reason, figures=FIGURES)]
    return MigrationEntry(
        number=number,
        strategy="jisc",
        options={},
        old_plan="",
        new_plan="",
        submitted=1.0,
        outcome=MigrationOutcome(state=state, reason=reason, figures=FIGURES, cells=cells),
    )


@pytest.fixture
def control(tmp_path):
    made = control_of(tmp_path / "control", "(o p) s")
    reported(made, "(o p) s")
    return made


def answering(control, *states, why=None):
    """A query that takes a command and says, one after the other, what becomes of it."""

    def answer():
        while not control.commands():
            is_over.wait(0.01)
        (command,) = control.commands()
        for state in states:
            plan = "o (p s)" if state == "completed" else "(o p) s"
            reported(control, plan, [entry(command.number, state, why)])
            is_over.wait(0.3)

    is_over = threading.Event()
    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    return thread


def test_a_change_is_submitted_runs_and_is_completed(control):
    query = answering(control, "running", "completed")
    called = call("migrate", control.path, "o (p s)", "--strategy", "gen-mig", "--variant", "reference-point")
    query.join()
    words = [line.partition(":")[0] for line in called.out.splitlines()]
    assert (called.code, words[:3]) == (0, ["submitted", "running", "completed"])
    assert RemoteQuery(control.path).query.plan("o (p s)").explain() in called.out
    (command,) = control.commands()
    assert (command.action.strategy, command.action.options) == (
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
    assert "refused: the query continues unchanged" in called.err
    assert control.commands() == []
    assert called.out == ""


def test_a_cell_may_refuse_what_only_rows_can_tell(control):
    query = answering(control, "refused", why="[M3004] 33 plans are too many")
    called = call("migrate", control.path, "o (p s)", "--json")
    query.join()
    assert called.code == 1
    assert called.document["state"] == "refused"
    assert called.document["reason"] == "[M3004] 33 plans are too many"
    assert "refused: the query keeps its plan" in called.err


def test_a_query_that_says_nothing_does_not_seem_to_run(control):
    called = call("migrate", control.path, "o (p s)", "--timeout", 0)
    assert called.code == 3
    assert "the query does not seem to run (last report" in called.out
    with running(control.path):
        called = call("migrate", control.path, "o (p s)", "--timeout", 0)
        assert "the query runs (last report" in called.out
    # Once its process is gone there is nothing to wait for.
    called = call("migrate", control.path, "o (p s)", "--timeout", 600)
    assert called.code == 3
    assert "does not run now: the plan changes when it is resumed" in called.out


def test_streams_that_have_ended_need_no_other_plan(control):
    reported(control, "(o p) s", finished=True)
    called = call("migrate", control.path, "o (p s)")
    assert called.code == 1
    assert "[M3002]" in called.err
    assert control.commands() == []


@pytest.mark.parametrize(
    ("state", "reason", "code", "said"),
    [
        ("completed", None, 0, "just-in-time processing is on"),
        ("unchanged", None, 0, "just-in-time processing is on"),
        ("refused", "not now", 1, "not now"),
    ],
)
def test_just_in_time_processing_is_switched_and_what_became_of_it_is_said(control, state, reason, code, said):
    def answer():
        while not control.commands():
            is_over.wait(0.01)
        (command,) = control.commands()
        outcome = CommandOutcome(directory=control.mark, number=command.number, state=state, reason=reason)
        reported(control, "(o p) s", commands=[outcome])

    is_over = threading.Event()
    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    called = call("just-in-time", control.path, "on")
    thread.join()
    assert called.code == code
    assert said in called.out
    (command,) = control.commands()
    assert command.action == SwitchJustInTime(options=JustInTime())


def test_a_switch_of_just_in_time_processing_waits_no_longer_than_it_is_told_to(control):
    called = call("just-in-time", control.path, "off", "--timeout", 0)
    assert called.code == 3
    assert "takes effect with the next micro-batch" in called.out
    assert call("just-in-time", control.path, "perhaps").code == 2
    reported(control, "(o p) s", finished=True)
    called = call("just-in-time", control.path, "on")
    assert (called.code, "[M3002]" in called.err) == (1, True)
    assert len(control.commands()) == 1


def test_status_shows_just_in_time_processing(control):
    figures = dict.fromkeys(("rows_in", "rows_out", "probes", "compared", "state_bytes"), 0)
    waiting = OperatorFigures(
        operator="Suspend Window o", kind="suspend", subplan="", suspended=70, resumed=9, state_rows=50,
        suspended_keys=8, consumers=2, consumers_asked=1, **figures,
    )  # fmt: skip
    join = OperatorFigures(operator="Join o.id = p.id", kind="join", subplan="", avoided=1234, state_rows=3, **figures)
    reported(control, "(o p) s", just_in_time=JustInTime(), operators=[waiting, join])
    shown = " ".join(call("status", control.path).out.split())
    assert "on, 50 rows (8 keys) wait, at least about 1,234 partial results avoided" in shown
    assert "suspended 70, resumed 9, 50 waiting (8 keys)" in shown
    document = call("status", control.path, "--json").document
    assert document["metrics"]["just_in_time"]["detection"] == "bloom"


def test_status_shows_what_the_query_told(control):
    RemoteQuery(control.path).migrate("o (p s)")
    reported(control, "o (p s)", [entry(1, "completed")], migrating=True)
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
    ("place", "value"),
    [
        (["metrics", "streams", "orders", "rows"], "many"),
        (["metrics", "cells", 0, "idle"], 5),
        (["rates", "rows"], []),
        (["reported"], None),
        (["mood"], "good"),
        (["format"], 99),
    ],
)
def test_a_status_with_a_wrong_value_inside_is_refused_with_its_place(control, place, value):
    path = control.path / "status.json"
    status = json.loads(path.read_text())
    inner = status
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    path.write_text(json.dumps(status))
    for command in (["status"], ["migrate"]):
        called = call(*command, control.path, *(["o (p s)"] if command == ["migrate"] else []))
        assert called.code == 1
        assert re.search(r"\[M30(11|05)\].*status\.json", called.err), called.err
        assert str(place[-1]) in called.err or "format 99" in called.err
    assert control.commands() == []


@pytest.fixture
def lost(control):
    """A control directory whose query has reported, and whose report was removed."""
    reported(control, "o (p s)", query="q1")
    control.claim("q1")
    (control.path / "status.json").unlink()
    return control


def test_a_missing_status_is_said_and_no_plan_is_taken_for_the_one_in_force(lost):
    with running(lost.path):
        shown = call("status", lost.path).out
        assert re.search(
            r"running \(pid \d+\), no report yet\nstatus\.json is missing: .*; the first plan was\n", shown
        )
        document = call("status", lost.path, "--json").document
        assert (document["plan"], document["metrics"]) == (None, None)
    reported(lost, "o (p s)", query="q1")
    assert "missing" not in call("status", lost.path).out


def test_a_query_that_has_not_reported_yet_misses_nothing(tmp_path):
    control = control_of(tmp_path / "control", "(o p) s")
    for command in (["status"], ["migrate", "o (p s)", "--timeout", 0], ["just-in-time", "on", "--timeout", 0]):
        called = call(command[0], control.path, *command[1:])
        assert "missing" not in called.out + called.err
    assert "started by a program, no report yet\n" in call("status", control.path).out


@pytest.mark.parametrize("command", [["migrate", "o (p s)"], ["just-in-time", "on"]])
def test_a_command_without_a_status_to_check_it_by_is_submitted_with_a_word(lost, command):
    called = call(command[0], lost.path, *command[1:], "--timeout", 0)
    assert called.code == 3
    assert "status.json is missing" in called.err
    assert len(lost.commands()) == 1
    called = call(command[0], lost.path, *command[1:], "--timeout", 0, "--json")
    assert called.document["state"] == "submitted"


def test_a_change_is_not_checked_against_a_plan_that_may_not_be_in_force(lost):
    """Pause-drain-resume refuses these plans: the cells say so, whatever plan is in force."""
    called = call("migrate", lost.path, "o (p s)", "--strategy", "pause-drain-resume", "--timeout", 0)
    assert (called.code, len(lost.commands())) == (3, 1)
    called = call("migrate", lost.path, "o (p s)", "--strategy", "jisk")
    assert (called.code, len(lost.commands())) == (1, 1)


def test_a_run_whose_status_is_missing_is_not_verified_and_not_resumed_past_its_end(lost, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "0").touch()
    asked = RunFile("SELECT ts FROM s [NOW]", (), Sink("parquet", str(tmp_path / "out")), lost.path, str(checkpoint))
    asked.write()
    assert "its status.json is missing" in call("verify", lost.path).err
    assert _check_control(asked, until_end=False) is None
    lost.write(Finish(), "q1")
    with pytest.raises(FinishedRun, match="interrupted while its streams were ending"):
        _check_control(asked, until_end=False)


def test_files_that_are_no_commands_are_shown(control):
    (control.commands_path / "00000007.json").write_text('{"id": 7, "command": "{}"}')
    assert "ignored: [M3005] the command in" in call("status", control.path).out
    assert len(call("status", control.path, "--json").document["ignored"]) == 1


LOADS = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.cli.commanding import call
called = call(*sys.argv[1:])
print(called.code, sorted(name for name in sys.modules if name.partition(".")[0] in ("pyspark", "py4j")))
"""


@pytest.mark.parametrize("arguments", [["status"], ["migrate", "o (p s)", "--timeout", "0"]])
def test_status_and_migrate_load_no_spark(control, arguments):
    command, *others = arguments
    asked = [sys.executable, "-c", LOADS, command, str(control.path), *others]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("0 []", "3 []"), done.stdout


@pytest.mark.parametrize(
    "change",
    [
        lambda path, stored: path.write_text("[" * 100_000),
        lambda path, stored: path.write_text(json.dumps({**stored, "query": {**stored["query"], "cells": "1"}})),
        lambda path, stored: path.write_text(json.dumps({**stored, "query": {**stored["query"], "streams": ["x"]}})),
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
    with pytest.raises((MalformedMessage, PathProblem), match=r"run\.json"):
        RunFile.read(tmp_path)


@pytest.mark.parametrize("place", ["version", "query", "streams", "sink", "checkpoint", "settings"])
@pytest.mark.parametrize("value", [None, 5, [5], {"format": 5}, "x"])
def test_a_damaged_run_file_does_not_switch_off_the_check_of_the_sink(tmp_path, place, value):
    """A run was continued with another sink then, and its results were in two places."""
    asked = RunFile("SELECT ts FROM s [NOW]", (), Sink("parquet", "/out"), tmp_path, str(tmp_path / "checkpoint"))
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    (tmp_path / "checkpoint" / "offsets" / "0").touch()
    asked.write()
    moved = dataclasses.replace(asked, sink=Sink("parquet", "/elsewhere"))
    with pytest.raises(CheckpointMismatch, match="another sink"):
        _check_control(moved, until_end=False)
    content = json.loads(asked.path.read_text())
    asked.path.write_text(json.dumps(content | {place: value}))
    # Some values could have been written; the sink is another one nevertheless.
    with pytest.raises((CheckpointMismatch, MalformedMessage), match=r"belongs to a run|is damaged"):
        _check_control(moved, until_end=False)


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
    reported(control, "(o p) s", query="before")
    control.claim("before")
    asked = RunFile(
        "SELECT ts FROM s [NOW]", (), Sink("parquet", str(tmp_path / "out")), control.path, str(tmp_path / "new")
    )
    assert _check_control(asked, until_end=False) is None
    number = RemoteQuery(control.path).migrate("o (p s)")
    (command,) = [command for command in control.commands() if command.number == number]
    assert control.claims().is_for(command, "new")


def test_status_says_what_the_last_run_failed_of(control):
    reported(control, "(o p) s")
    with running(control.path):
        note_failure(control.path, "[M4004] a row does not fit")
        assert "running (pid" in call("status", control.path).out
        assert call("status", control.path, "--json").document["failure"] is None
    assert "failed: [M4004] a row does not fit, last report " in call("status", control.path).out
    assert call("status", control.path, "--json").document["failure"] == "[M4004] a row does not fit"
    with running(control.path):
        pass
    assert "stopped, last report" in call("status", control.path).out


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
    control.write(Finish())
    refused = call("run", "--resume", tmp_path)
    assert (refused.code, refused.err[:7]) == (1, "[M3002]")
    assert "add --until-end" in refused.err
    # All cells have told of the end, but it is not known to be committed.
    reported(control, "(o p) s", finished=True)
    assert "[M3000] the run has not finished" in call("verify", tmp_path).err
    assert _check_control(asked, until_end=True).metrics.finished
    reported(control, "(o p) s", has_ended=True, finished=True)
    refused = call("run", "--resume", tmp_path, "--until-end")
    assert "[M3002] this run has come to its end" in refused.err
    for content in ("{", json.dumps({"version": 99})):
        asked.path.write_text(content)
        with pytest.raises(MalformedMessage, match=r"\[M3011\].*run.json is damaged"):
            RunFile.read(tmp_path)
    assert call("run", "--resume", tmp_path / "no").code == 1
    assert call("run", "--resume", tmp_path, "--plan", "a b").code == 2


@pytest.mark.parametrize(
    ("ticks", "shown"),
    [
        (0, "1970-01-01 00:00:00.000 UTC"),
        (1_999_999, "1970-01-01 00:00:01.999 UTC"),
        (253_402_300_800_000_000, "10000-01-01 00:00:00.000 UTC"),
        (2**62, "148108-07-06 14:00:27.387 UTC"),
        (-(2**62), "-144169-06-28 09:59:32.612 UTC"),
    ],
)
def test_event_times_beyond_the_years_of_a_calendar_are_shown(tmp_path, ticks, shown):
    """They were an internal error."""
    schema = pa.schema({"ts": pa.timestamp("us", "UTC")})
    query = ContinuousQuery("SELECT ts FROM s [NOW]", [Stream("s", schema, "ts")])
    control = ControlDirectory(tmp_path)
    control.create(QueryFingerprint.of(query, partition(query.plan(), 1)), plan_to_json(query.plan()))
    reported(control, "(o p) s", watermark=ticks)
    called = call("status", control.path)
    assert (called.code, shown in called.out) == (0, True), called.out + called.err


def test_names_cannot_control_the_terminal(control):
    """Escape sequences in a plan, a stream or an option reached the terminal as they were."""
    evil = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f"
    streams = {f"orders{evil}": StreamCounters(rows=1)}
    reported(control, "(o p) s", streams=streams, history=[entry_with(evil)])
    (control.commands_path / f"00000099-{evil.replace('/', '')}.json").write_text("{")
    for arguments in ([control.path], [control.path, "--json"], [f"{control.path}{evil}"]):
        called = call("status", *arguments)
        assert "owned" in called.out + called.err
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", called.out + called.err), (arguments, called.out)


def entry_with(evil):
    return msgspec.structs.replace(entry(1, "refused", evil), strategy=f"jisc{evil}", options={evil: evil})
