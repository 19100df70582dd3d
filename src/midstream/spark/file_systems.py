"""Files where only Spark can reach them, by Hadoop's file systems."""

from __future__ import annotations

from pyspark.sql import SparkSession

__all__ = ["exists", "file_names", "remove"]


def exists(spark: SparkSession, path: str) -> bool:
    """Whether the path exists, according to Spark."""
    context = spark.sparkContext
    place = context._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
    return bool(place.getFileSystem(context._jsc.hadoopConfiguration()).exists(place))


def file_names(spark: SparkSession, folder: str) -> list[str]:
    """The names of the files in a folder, according to Spark; none if there is no such folder."""
    context = spark.sparkContext
    place = context._jvm.org.apache.hadoop.fs.Path(folder)  # type: ignore[union-attr]
    files = place.getFileSystem(context._jsc.hadoopConfiguration())
    return [str(status.getPath().getName()) for status in files.listStatus(place)] if files.exists(place) else []


def remove(spark: SparkSession, path: str) -> None:
    """Remove a file, or a folder with all that is in it."""
    context = spark.sparkContext
    place = context._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
    place.getFileSystem(context._jsc.hadoopConfiguration()).delete(place, True)
