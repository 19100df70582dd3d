"""Places where rows come from and results go: on this machine, or somewhere that only Spark can look."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["exists", "is_remote"]


def is_remote(path: str) -> bool:
    """A place that Spark knows and Python's own file functions do not: anything with a scheme, even ``file:``."""
    return "://" in path or path.startswith(("hdfs:", "file:"))


def exists(spark: SparkSession, path: str) -> bool:
    """Whether there is anything at a place that Spark knows."""
    context = spark.sparkContext
    place = context._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
    return bool(place.getFileSystem(context._jsc.hadoopConfiguration()).exists(place))
