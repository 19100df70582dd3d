"""When a row is late, and what happens to it.

Look at the watermark: the latest time seen in *both* streams, minus the lateness of 10. A row older than the watermark
before its push is dropped and counted; one that is out of order, but not older, is not. An idle stream holds the
watermark until a heartbeat advances it.
"""

import pyarrow as pa

from midstream import ContinuousQuery, Stream

schema = pa.schema({"ts": pa.int64(), "item": pa.string()})
streams = [Stream(name, schema, event_time="ts", lateness=10) for name in ("asks", "bids")]
query = ContinuousQuery(
    "SELECT a.item, a.ts AS asked, b.ts AS bid FROM asks [RANGE 50] a, bids [RANGE 50] b WHERE a.item = b.item",
    streams=streams,
)
counts = ContinuousQuery("SELECT COUNT(*) AS n FROM bids [RANGE 20 SLIDE 20]", streams=streams)


def rows(*pairs: tuple[int, str]) -> pa.Table:
    return pa.table({"ts": [ts for ts, _ in pairs], "item": [item for _, item in pairs]}, schema=schema)


run = query.run_locally()
for tables, watermark in [
    ({"asks": rows((100, "pen"), (120, "cup")), "bids": rows((105, "pen"))}, None),
    ({"bids": rows((130, "cup"))}, None),
    ({"asks": rows((111, "bowl")), "bids": rows((110, "pen"), (109, "pen"))}, None),
    ({"bids": rows((140, "bowl"))}, None),
    ({}, 150),
    ({"asks": rows((149, "cup"), (150, "cup"))}, None),
]:
    shown = ", ".join(f"{name} at {table['ts'].to_pylist()}" for name, table in tables.items())
    results = run.push(tables, watermark=watermark)
    print(f"push of {shown or f'a heartbeat, {watermark}'}: watermark {run.watermark}")
    for row in results.to_pylist():
        print(f"    {row['item']}: asked at {row['asked']}, bid at {row['bid']}")
    late = {name: figures["late"] for name, figures in run.metrics()["streams"].items()}
    print(f"    late so far: {late}")

print("\nCounts per 20 ticks come when the watermark makes them certain; finish() gives the rest:")
run = counts.run_locally()
for ts in (101, 119, 125, 141, 135, 160):
    emitted = run.push({"bids": rows((ts, "pen"))}).to_pylist()
    print(f"bid at {ts}: {[(row['n'], row['valid_from'], row['valid_to']) for row in emitted]}")
print(f"the end:    {[(row['n'], row['valid_from'], row['valid_to']) for row in run.finish().to_pylist()]}")
