"""What a session is started with."""

from __future__ import annotations

import pytest

from midstream.cli.saved_run import MASTER as MASTER_OF_RUNS
from midstream.spark.session import MASTER, _collector


def test_the_collector_is_left_to_the_environment_and_to_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    assert _collector("local[2,4]") == {"spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}
    assert _collector("spark://127.0.0.1:7077") == {}
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xmx1g -XX:+UseSerialGC")
    assert _collector("local[2,4]") == {}


def test_the_command_line_and_the_session_agree_on_the_master() -> None:
    """The command line has it a second time, so as not to load Spark."""
    assert MASTER_OF_RUNS == MASTER
