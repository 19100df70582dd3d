"""Where results go: a Delta table that cells write themselves, a Kafka topic, or any sink of Spark's.

Look at `writer`. It writes a Delta table; to a topic if KAFKA_SERVERS names brokers (HOST:PORT), which needs Spark's
Kafka package, or with "parquet" as argument files by Spark's own sink:

    python examples/sinks_delta_and_kafka.py
    python examples/sinks_delta_and_kafka.py parquet
    KAFKA_SERVERS=localhost:9092 spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION THIS_FILE

The table and the files have every result exactly once, also after a crash. A topic may have some twice; its messages
have headers by which a consumer drops repeats (docs/kafka.md).
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql.streaming.readwriter import DataStreamWriter

from midstream import ContinuousQuery
from midstream.spark import LiveQuery, session, stream


def writer(live: LiveQuery, sink: str, folder: Path) -> DataStreamWriter:
    """The writer for a sink: what midstream has none for, Spark writes."""
    checkpoint = str(folder / "checkpoint")
    if sink == "delta":
        return live.delta_writer(folder / "rooms", checkpoint)
    if sink == "kafka":
        return live.kafka_writer(f"{os.environ['KAFKA_SERVERS']}/rooms", checkpoint, key="room")
    files = live.results.writeStream.format(sink).option("path", str(folder / "rooms"))
    return files.option("checkpointLocation", checkpoint)


spark = session()
folder = Path(tempfile.mkdtemp())
sink = "kafka" if "KAFKA_SERVERS" in os.environ else "delta" if len(sys.argv) == 1 else sys.argv[1]

rows = spark.range(600).selectExpr("id AS second", "id % 3 AS room", "20 + id % 7 AS celsius")
rows.write.parquet(str(folder / "readings"))
readings = spark.readStream.schema(rows.schema).parquet(str(folder / "readings"))
query = ContinuousQuery(
    "SELECT room, AVG(celsius) AS mean FROM readings [RANGE 300 SLIDE 300] GROUP BY room",
    streams=[stream("readings", readings, event_time="second", lateness=600)],
)
live = query.run_on_spark({"readings": readings}, control_dir=folder / "control")
live.run_to_end(writer(live, sink, folder))  # reads what is there, then ends the streams

print(f"written to {sink}:")
if sink == "delta":
    print(DeltaTable(folder / "rooms").to_pandas().sort_values(["valid_from", "room"]).to_string(index=False))
elif sink != "kafka":
    spark.read.format(sink).load(str(folder / "rooms")).orderBy("valid_from", "room").show()
shutil.rmtree(folder)
