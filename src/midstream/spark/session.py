"""A Spark session with the settings that suit midstream: for the command line, tests and first steps.

Nothing else in midstream creates a session, and nothing but :func:`passing_session` stops one. A Java is found or
brought along, see ``java``. On a session of your own, set what matters to you of :data:`SETTINGS`; only the state store
provider is required.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from midstream.spark.java import provide_java

__all__ = ["SETTINGS", "is_one_machine", "passing_session", "session"]

SETTINGS: Mapping[str, str] = {
    # The only provider that transformWithState works with; its changelog makes a commit as large as the change.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Hadoop's local file system forks a process per file; this one does not: a third off an empty micro-batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Packs are few and large.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    # By TCP, a small message to a Python worker waits 40 ms for the acknowledgement of the one before it.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.metricsEnabled": "false",
}
"""What :func:`session` sets, with the reason beside it where it is not plain."""

MASTER = "local[2,4]"
"""Two cores of this machine, and four attempts at a task: with one, a killed worker would end the query."""

_COLLECTOR = {"spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}
"""Throughput counts here, not pauses, and the heap stays small: ``benchmarks/spark_j4.py --only settings`` compares."""
_CHOSEN_ELSEWHERE = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
"""Where the environment may name a collector: Java does not start with two."""

_ON_THIS_MACHINE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""What nobody else need reach."""


def session(master: str = MASTER, cells: int = 1, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session on this machine (by default two cores, and four attempts at a task) or a cluster.

    ``cells`` is the number that queries will have: one partition each.
    """
    # Python workers must find midstream and everything it needs where the driver does.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if SparkContext._gateway is None:
        # Else Java runs already.
        provide_java()
    builder = SparkSession.builder.master(master).appName("midstream")
    near = _ON_THIS_MACHINE if master.startswith("local") or "//127.0.0.1:" in master else {}
    chosen = {**SETTINGS, **near, **_collector(master), "spark.sql.shuffle.partitions": str(cells), **(settings or {})}
    for name, value in chosen.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _collector(master: str) -> Mapping[str, str]:
    """How Java collects garbage, unless the environment says so; executors elsewhere are their cluster's matter."""
    is_chosen = any("GC" in os.environ.get(name, "") for name in _CHOSEN_ELSEWHERE)
    return {} if is_chosen or not is_one_machine(master) else _COLLECTOR


@contextlib.contextmanager
def passing_session(
    master: str = MASTER,
    cells: int = 1,
    settings: Mapping[str, str] | None = None,
    log: Path | None = None,
    keep_output: bool = False,
) -> Iterator[SparkSession]:
    """A session that is stopped at the end; if there is one already, that one, and it stays.

    What Spark's Java and its Python workers write goes to ``log`` instead of the terminal, if that is given; with
    ``keep_output`` only what goes to standard error.
    """
    there = SparkSession.getActiveSession()
    if there is not None:
        yield there
        return
    with _written_to(log, keep_output):
        spark = session(master, cells, settings)
    try:
        yield spark
    finally:
        # Java may be gone: then there is nothing to stop.
        with contextlib.suppress(Exception):
            spark.stop()


def is_one_machine(master: str) -> bool:
    """Whether Spark's tasks run in the driver's own process."""
    return master.startswith("local") and not master.startswith("local-cluster")


@contextlib.contextmanager
def _written_to(log: Path | None, keep_output: bool = False) -> Iterator[None]:
    """Standard error, and unless it is kept standard output, are a file for processes that start meanwhile.

    Spark's launcher, its Java and the Python workers below it write to whatever these were when they started. Without a
    file nothing changes.
    """
    if log is None:
        yield
        return
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    kept = {number: os.dup(number) for number in ([2] if keep_output else [1, 2])}
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    try:
        for number in kept:
            os.dup2(written, number)
        yield
    finally:
        os.close(written)
        for number, before in kept.items():
            os.dup2(before, number)
            os.close(before)
