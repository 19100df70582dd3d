"""Paths of sources and sinks: on this machine, or on a file system that only Spark can access."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["exists", "is_remote"]


def is_remote(path: str) -> bool:
    """Whether only Spark can access the path: anything with a scheme, even ``file:``."""
    return "://" in path or path.startswith(("hdfs:", "file:"))


def exists(spark: SparkSession, path: str) -> bool:
    """Whether the path exists, according to Spark."""
    context = spark.sparkContext
    place = context._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
    return bool(place.getFileSystem(context._jsc.hadoopConfiguration()).exists(place))
