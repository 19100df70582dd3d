"""Spark's packages for Kafka and Avro, which PySpark does not include: resolved from Maven when the session starts.

Their version is Spark's own. A session that has them already, or names others (``spark.jars``,
``spark.jars.packages``), is left unchanged, so local jars can be used where no repository can be reached.

>>> with_kafka_packages({"spark.jars": "/jars/spark-sql-kafka-0-10_2.13-4.3.0.jar"})
{'spark.jars': '/jars/spark-sql-kafka-0-10_2.13-4.3.0.jar'}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyspark

__all__ = ["kafka_packages", "with_kafka_packages"]

_KAFKA, _AVRO = "spark-sql-kafka-0-10_2.13", "spark-avro_2.13"


def kafka_packages(with_avro: bool = False) -> list[str]:
    """Maven coordinates of the packages that Spark needs."""
    return [f"org.apache.spark:{name}:{pyspark.__version__}" for name in ([_KAFKA, _AVRO] if with_avro else [_KAFKA])]


def with_kafka_packages(settings: Mapping[str, str], with_avro: bool = False) -> dict[str, str]:
    """The settings, extended for a session that reads or writes Kafka topics."""
    there = [*settings.get("spark.jars", "").split(","), *settings.get("spark.jars.packages", "").split(",")]
    there += [jar.name for jar in (Path(pyspark.__file__).parent / "jars").glob("spark-*.jar")]
    missing = [package for package in kafka_packages(with_avro) if not _is_among(package, there)]
    if not missing:
        return dict(settings)
    named = [name for name in settings.get("spark.jars.packages", "").split(",") if name]
    return {**settings, "spark.jars.packages": ",".join([*named, *missing])}


def _is_among(package: str, there: list[str]) -> bool:
    name = package.split(":")[1]
    return any(name in one for one in there)
