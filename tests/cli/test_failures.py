"""Whatever goes wrong is one message: what Spark's exceptions mean, in words taken from real ones."""

import builtins
import errno
import subprocess
import sys
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkRuntimeError, StreamingQueryException

from midstream.cli.bench import clone_among
from midstream.cli.failures import explained
from midstream.cli.spark_failures import explain_spark_failure
from midstream.errors import MidstreamError, PathProblem
from tests.cli.commanding import call


def of_spark(text: str) -> MidstreamError:
    problem = StreamingQueryException("[STREAM_FAILED] Query terminated.")
    # As exceptions that come from Java have it.
    problem._stackTrace = text
    return explained(problem)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (
            "org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file "
            "file:///in/a.csv. SQLSTATE: KD001\nCaused by: org.apache.spark.SparkException: "
            "[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected in record parsing: "
            '[null,7].\nParse Mode: FAILFAST.\nCaused by: java.lang.NumberFormatException: For input string: "x"',
            "M4004",
            ["does not match its stream's columns in /in/a.csv", '[null,7]: "x" cannot be read', "mode=PERMISSIVE"],
        ),
        (
            "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in/a.parquet. \n"
            "Caused by: java.lang.RuntimeException: file:/in/a.parquet is not a Parquet file. Expected magic number",
            "M4005",
            ["cannot read the file /in/a.parquet", "is not a Parquet file"],
        ),
        (
            "java.lang.IllegalArgumentException: CSV header does not conform to the schema.\n Header: ts, key\n "
            "Schema: ts, id\nExpected: id but found: key\nCSV file: file:///in/a.csv",
            "M4001",
            ["Its header is ts, key, the schema ts, id", "/in/a.csv"],
        ),
        (
            "midstream.errors.CheckpointMismatch: [M3005] the checkpoint belongs to a query with another text\n"
            "  detail: There: a. Now: b.\n  hint: Use the query.\n\tat org.apache",
            "M3005",
            ["another text", "detail: There: a. Now: b.", "hint: Use the query."],
        ),
        (
            "java.net.BindException: Address already in use: Service 'sparkDriver' failed after 16 retries (starting "
            "from 7077)! Consider explicitly setting the appropriate port for the service 'sparkDriver' (for example "
            "spark.ui.port for SparkUI) to an available port or increasing spark.port.maxRetries.",
            "M5004",
            ["a port that Spark needs is in use (of sparkDriver)", "--conf spark.driver.port=0"],
        ),
        (
            "[PATH_NOT_FOUND] Path does not exist: file:/no/where. SQLSTATE: 42K03",
            "M5002",
            ["/no/where does not exist"],
        ),
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: ordrs. Make sure", "M5003", ['"ordrs" is neither']),
        (
            "org.apache.spark.SparkException: Could not parse Master URL: 'loca'",
            "M5005",
            ['"loca" is not a Spark master'],
        ),
        ("Caused by: java.lang.OutOfMemoryError: Java heap space", "M5005", ["spark.driver.memory"]),
        (
            "[STREAM_FAILED] x\nCaused by: a.B: [NEW_THING.OF_SPARK] It went wrong in a new way. SQLSTATE: 1\n\tat x",
            "M5005",
            ["Spark failed: It went wrong in a new way."],
        ),
    ],
)
def test_the_reason_is_found_in_what_spark_says(text, code, said):
    failure = of_spark(text)
    assert failure.code == code
    for words in said:
        assert words in str(failure)
    assert "\tat" not in str(failure)


@pytest.mark.parametrize(
    ("log", "code", "said"),
    [
        ("env: 'java': No such file or directory", "M3008", "Java is not installed"),
        ("/x/bin/spark-class: line 97: java: command not found", "M3008", "Java is not installed"),
        ("Exception: java.lang.UnsupportedClassVersionError: x", "M3008", "too old"),
        ("[unresolved dependency: org.x#y;1.0: not found]", "M5001", "the package org.x#y;1.0 could not be found"),
        ("Error: Could not create the Java Virtual Machine: -Xmx9z", "M5005", "It said: Error: Could not create"),
    ],
)
def test_why_java_did_not_start_is_in_its_log(tmp_path, log, code, said):
    (tmp_path / "spark.log").write_text(log)
    problem = PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
    failure = explain_spark_failure(problem, tmp_path / "spark.log")
    assert failure.code == code
    assert said in str(failure)


def test_files_and_our_own_mistakes_are_told_apart():
    assert isinstance(explained(PermissionError(errno.EACCES, "Permission denied", "/x")), PathProblem)
    assert "/x: permission denied" in str(explained(PermissionError(errno.EACCES, "Permission denied", "/x")))
    assert "Please report it" in str(explained(TypeError("oh")))


def test_a_missing_package_is_named_with_what_brings_it(tmp_path, monkeypatch):
    assert '-m pip install "midstream[testing]' in str(explained(ModuleNotFoundError("x", name="duckdb")))
    real = builtins.__import__

    def without(name, *more):
        if name.partition(".")[0] == "typer":
            raise ModuleNotFoundError("No module named 'typer'", name="typer")
        return real(name, *more)

    from midstream.cli import app

    monkeypatch.delitem(sys.modules, "midstream.cli.commands", raising=False)
    monkeypatch.delitem(sys.modules, "midstream.cli.failures", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SystemExit, match=r'package typer\. Install .* with .*"midstream\[cli,spark,testing\]'):
        app.main()


def test_benchmarks_are_in_a_clone_only(tmp_path, monkeypatch):
    with pytest.raises(PathProblem, match="are in the repository, not in the installed package"):
        clone_among([tmp_path])
    for path in ("benchmarks/__main__.py", "src/midstream/__init__.py"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).touch()
    assert clone_among([tmp_path / "src", tmp_path]) == tmp_path
    asked = []
    monkeypatch.setattr(subprocess, "run", lambda *given, **more: asked.append(given) or SimpleNamespace(returncode=3))
    called = call("bench", "j4", "--json")
    assert (called.code, called.document["exit_code"]) == (3, 3)
    assert asked[0][0][1:] == ["-m", "benchmarks", "j4"]


def test_every_command_has_help_with_an_example():
    for command in ("run", "explain", "migrate", "status", "verify", "bench", "demo"):
        called = call(command, "--help")
        assert called.code == 0
        assert f"midstream {command}" in called.out.partition("Example")[2], command
    assert call("--version").out.startswith("midstream 0.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--json", "--nope"], "No such option: --nope"),
        (["status", "--json"], "Missing argument 'CONTROL_DIR'"),
        (["--json"], "No such option: --json"),
    ],
)
def test_with_json_a_usage_error_is_a_document_too(arguments, message):
    called = call(*arguments)
    assert called.code == 2
    assert called.document["error"]["message"].startswith(message)
    assert called.document["error"]["code"] == "M5001"
    assert message in called.err


def test_flags_are_shown_without_a_value():
    for command in ("run", "explain", "migrate", "status", "verify", "demo", "bench"):
        text = call(command, "--help").out
        assert "--json" in text and "<bool>" not in text
