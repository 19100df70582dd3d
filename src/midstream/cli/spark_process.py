"""Spark for a command: started quietly, stopped at the end, its log in a file.

Spark's launcher, its Java and the Python workers below it write to whatever standard error was when they started. So
that is a file while they start; with ``--debug`` it is the terminal.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from midstream.cli.spark_failures import is_of_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark_session"]


@contextlib.contextmanager
def spark_session(
    master: str, cells: int | None, settings: Mapping[str, str], log: Path | None, shows_rows: bool = False
) -> Iterator[SparkSession]:
    """A session whose process writes to ``log``; to the terminal, if that is None.

    ``shows_rows``: what Java prints is for the user (the console sink), so standard output stays.
    """
    from midstream.spark.session import session

    try:
        with contextlib.nullcontext() if log is None else _written_to(log, keep_output=shows_rows):
            spark = session(master, cells or 1, settings)
        if cells is None and (not master.startswith("local") or master.startswith("local-cluster")):
            # As many as the query will have.
            spark.conf.set("spark.sql.shuffle.partitions", str(max(1, spark.sparkContext.defaultParallelism)))
        try:
            yield spark
        finally:
            # The process may be gone: then there is nothing to stop.
            with contextlib.suppress(Exception):
                spark.stop()
    except Exception as problem:
        if is_of_spark(problem):
            problem.midstream_log = log  # type: ignore[attr-defined]
        raise


@contextlib.contextmanager
def _written_to(log: Path, keep_output: bool) -> Iterator[None]:
    """Standard error, and unless it is kept standard output, go to a file for processes that start meanwhile."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    replaced = [2] if keep_output else [1, 2]
    kept = {number: os.dup(number) for number in replaced}
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    try:
        for number in replaced:
            os.dup2(written, number)
        yield
    finally:
        os.close(written)
        for number, before in kept.items():
            os.dup2(before, number)
            os.close(before)
