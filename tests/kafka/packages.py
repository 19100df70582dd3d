"""Jars for the tests with Kafka, resolved from Maven by Ivy, which PySpark brings along.

The broker comes with all it needs. Spark's connector is named jar by jar, because some repositories have Spark's newest
version only in part: the first of :data:`CONNECTORS` that can be had as a whole is used. What was found is noted in
``.kafka/`` of the clone; a repository that cannot be reached is a reason to skip the tests, not to fail.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

import pyspark

from midstream.spark.java import provide_java

ROOT = Path(__file__).parent.parent.parent
FOUND = ROOT / ".kafka"
BROKER = "org.apache.kafka:kafka_2.13:4.1.0"


def _connector(sql: str, token: str, avro: str) -> list[str]:
    return [
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{sql}",
        f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{token}",
        f"org.apache.spark:spark-avro_2.13:{avro}",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    ]


CONNECTORS = [
    _connector(pyspark.__version__, pyspark.__version__, pyspark.__version__),
    # The newest that work with Spark 4.3 where its own cannot be had.
    _connector("4.2.0", "4.1.0-preview1", "4.1.1"),
]


class Unreachable(Exception):
    """A package cannot be had here."""


@cache
def broker_jars() -> list[str]:
    """The broker, and all it needs."""
    return _resolved(BROKER, is_whole=True)


@cache
def connector_jars() -> list[str]:
    """Spark's connector to Kafka, its Avro functions, and all they need beside Spark."""
    problem: Unreachable | None = None
    for packages in CONNECTORS:
        try:
            return [jar for package in packages for jar in _resolved(package)]
        except Unreachable as unreachable:
            problem = unreachable
    assert problem is not None
    raise problem


def _resolved(package: str, is_whole: bool = False) -> list[str]:
    """The jars of a package, with what it depends on if ``is_whole``."""
    note = FOUND / f"{package.replace(':', '_')}.classpath"
    if note.exists():
        jars = note.read_text().strip().split(os.pathsep)
        if all(map(os.path.exists, jars)):
            return jars
    missing = note.with_suffix(".missing")
    if missing.exists():
        # A repository said no: that it does not have it. It need not be asked again in every run.
        raise Unreachable(missing.read_text())
    java = provide_java().home / "bin" / "java"
    FOUND.mkdir(exist_ok=True)
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-2*.jar")
    command = [str(java), "-jar", str(ivy), *([] if is_whole else ["-notransitive"])]
    command += ["-dependency", *package.split(":"), "-confs", "default", "-cachepath", str(note)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise Unreachable(f"{package} cannot be resolved from Maven: {type(problem).__name__}") from None
    if done.returncode or not note.exists() or not note.read_text().strip():
        note.unlink(missing_ok=True)
        reason = f"{package} cannot be resolved from Maven"
        if "not found" in done.stdout and "Server access error" not in done.stdout + done.stderr:
            missing.write_text(reason)
        raise Unreachable(reason)
    return note.read_text().strip().split(os.pathsep)
