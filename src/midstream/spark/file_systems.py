"""Files that only Spark can reach, through Hadoop's file systems."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

__all__ = ["exists", "file_names", "read_text", "remove", "write_once"]


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
    """Remove a file, or a folder and everything in it."""
    context = spark.sparkContext
    place = context._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
    place.getFileSystem(context._jsc.hadoopConfiguration()).delete(place, True)


def write_once(spark: SparkSession, path: str, text: str) -> None:
    """Write a small file unless it exists: if two processes do so at once, the text of one is kept.

    Spark writes the logs of a checkpoint in the same way.
    """
    files, place = _checkpoint_files(spark, path)
    files.mkdirs(place.getParent())
    stream = None
    try:
        stream = files.createAtomic(place, False)
        stream.write(text.encode())
        stream.close()
    except Py4JJavaError as problem:
        if stream is not None:
            stream.cancel()
        if "FileAlreadyExistsException" not in str(problem.java_exception):
            raise


def read_text(spark: SparkSession, path: str) -> str:
    """The text of a small file."""
    files, place = _checkpoint_files(spark, path)
    stream = files.open(place)
    try:
        context = spark.sparkContext
        return str(context._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))  # type: ignore[union-attr]
    finally:
        stream.close()


def _checkpoint_files(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Spark's manager of checkpoint files, and the path in the form that it accepts."""
    context: Any = spark.sparkContext
    place = context._jvm.org.apache.hadoop.fs.Path(path)
    settings = spark._jsparkSession.sessionState().newHadoopConf()
    manager = context._jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
    return manager.create(place.getParent(), settings), place
