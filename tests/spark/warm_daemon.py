"""Spark's Python daemon, with everything loaded that its workers need.

The daemon forks a worker for each task that finds none idle, and every worker loads pandas, Numba and midstream for
itself: about two seconds of processor time, more than most tasks of a test take. Loaded before, they are shared.
"""

import pandas  # noqa: F401
import pyspark.sql.worker
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import midstream.spark.cell_operator
import midstream.spark.packing  # noqa: F401

if __name__ == "__main__":
    manager()
