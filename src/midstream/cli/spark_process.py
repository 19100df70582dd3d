"""A Spark session for a command: started quietly, stopped at the end, with its log in a file.

With ``--debug`` the log goes to the terminal.
"""

from __future__ import annotations

import contextlib
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
    """A session whose process writes to ``log``, or to the terminal if that is None.

    ``shows_rows``: what Java prints is for the user (the console sink), so standard output stays.
    """
    from midstream.spark.session import is_one_machine, passing_session

    try:
        with passing_session(master, cells or 1, settings, log, keep_output=shows_rows) as spark:
            if cells is None and not is_one_machine(master):
                # One partition per cell of the query.
                spark.conf.set("spark.sql.shuffle.partitions", str(max(1, spark.sparkContext.defaultParallelism)))
            yield spark
    except Exception as problem:
        if is_of_spark(problem):
            problem.midstream_log = log  # type: ignore[attr-defined]
        raise
