"""Files where only Spark can reach them, by Hadoop's file systems."""

from __future__ import annotations

from pyspark.sql import SparkSession

__all__ = ["exists"]


def exists(spark: SparkSession, path: str) -> bool:
    """Whether the path exists, according to Spark."""
    context = spark.sparkContext
    place = context._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
    return bool(place.getFileSystem(context._jsc.hadoopConfiguration()).exists(place))
