"""A join of three streams on Spark whose plan is replaced while it runs.

Look at the two plans, at the results before and after the migration, and at the last line: Spark SQL joins the whole
input again, in one batch, and finds the same rows.
"""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from midstream import ContinuousQuery
from midstream.spark import session, stream

STREAMS = ("orders", "payments", "shipments")
folder = Path(tempfile.mkdtemp())
random = np.random.default_rng(1)


def deliver(begin: int) -> None:
    """Let the rows of the next 300 seconds come: a file per stream, which gets its name when it is complete."""
    for name in STREAMS:
        (folder / name).mkdir(exist_ok=True)
        table = pa.table({"ts": random.integers(begin, begin + 300, 2_000), "id": random.integers(0, 9_000, 2_000)})
        pq.write_table(table, folder / f"{name}.parquet")
        (folder / f"{name}.parquet").rename(folder / name / f"{begin:06d}.parquet")


deliver(0)
spark = session()
frames = {name: spark.readStream.schema("ts long, id long").parquet(str(folder / name)) for name in STREAMS}
query = ContinuousQuery(
    """SELECT o.id, o.ts AS ordered, p.ts AS paid, s.ts AS shipped
       FROM orders [RANGE 600] o, payments [RANGE 600] p, shipments [RANGE 600] s
       WHERE o.id = p.id AND o.id = s.id""",
    streams=[stream(name, frame, event_time="ts", lateness=300) for name, frame in frames.items()],
)
live = query.run_on_spark(frames, plan="(o p) s", control_dir=folder / "control")
running = live.results.writeStream.option("checkpointLocation", str(folder / "checkpoint")).start(str(folder / "out"))
running.processAllAvailable()
print(f"The plan at the start:\n{live.plan}\n{live.metrics()['results']:,} results so far\n")

live.migrate("o (p s)")  # with the next micro-batch; strategy="jisc" is the default
for begin in (300, 600):
    deliver(begin)
    running.processAllAvailable()
print(f"The plan now, {live.history()[0].state} after {live.metrics()['batches']} micro-batches:\n{live.plan}")
running.stop()

whole = spark.sql(f"""SELECT o.id, o.ts, p.ts, s.ts FROM parquet.`{folder}/orders` o
    JOIN parquet.`{folder}/payments` p USING (id) JOIN parquet.`{folder}/shipments` s USING (id)
    WHERE greatest(o.ts, p.ts, s.ts) - least(o.ts, p.ts, s.ts) <= 600""")
found = spark.read.parquet(str(folder / "out")).select("id", "ordered", "paid", "shipped")
missing, repeated = whole.exceptAll(found).count(), found.exceptAll(whole).count()
print(f"{found.count():,} results of {3 * 6_000:,} rows: {missing} missing, {repeated} repeated")
shutil.rmtree(folder)
