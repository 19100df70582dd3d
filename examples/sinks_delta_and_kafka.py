"""Results go to any Spark sink: for Delta and Kafka, two lines differ from parquet.

Look at `write`. It runs with parquet as it is; with Delta if the session has Delta's extension, with Kafka if
KAFKA_SERVERS names brokers. Both need their package, for example:

    spark-submit --packages io.delta:delta-spark_2.13:VERSION \\
        --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension \\
        --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog THIS_FILE
    KAFKA_SERVERS=broker:9092 spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION THIS_FILE

Parquet and Delta contain every result exactly once, also after a crash. Spark's Kafka sink may then repeat results.
A Delta table that cells write themselves needs no package and is faster: live.write_delta, see docs/delta.md.
"""

import os
import shutil
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from midstream import ContinuousQuery
from midstream.spark import session, stream


def write(results: DataFrame, sink: str, folder: Path) -> DataStreamWriter:
    """The writer for a sink: only its format, and where it writes to, differ."""
    if sink == "kafka":
        results = results.selectExpr("CAST(room AS STRING) AS key", "to_json(struct(*)) AS value")
        writer = results.writeStream.format("kafka").option("topic", "rooms")
        writer = writer.option("kafka.bootstrap.servers", os.environ["KAFKA_SERVERS"])
    elif sink == "delta":
        writer = results.writeStream.format("delta").option("path", str(folder / "rooms"))
    else:
        writer = results.writeStream.format("parquet").option("path", str(folder / "rooms"))
    return writer.option("checkpointLocation", str(folder / "checkpoint"))


spark = session()
folder = Path(tempfile.mkdtemp())
sink = "kafka" if "KAFKA_SERVERS" in os.environ else "parquet"
sink = "delta" if "delta" in (spark.conf.get("spark.sql.extensions", "") or "") else sink

rows = spark.range(600).selectExpr("id AS second", "id % 3 AS room", "20 + id % 7 AS celsius")
rows.write.parquet(str(folder / "readings"))
readings = spark.readStream.schema(rows.schema).parquet(str(folder / "readings"))
query = ContinuousQuery(
    "SELECT room, AVG(celsius) AS mean FROM readings [RANGE 300 SLIDE 300] GROUP BY room",
    streams=[stream("readings", readings, event_time="second", lateness=600)],
)
live = query.run_on_spark({"readings": readings}, control_dir=folder / "control")
live.run_to_end(write(live.results, sink, folder))  # reads what is there, then ends the streams

print(f"written to {sink}:")
if sink != "kafka":
    spark.read.format(sink).load(str(folder / "rooms")).orderBy("valid_from", "room").show()
shutil.rmtree(folder)
