"""A DISTINCT moves below the join while the query runs, by GenMig: the migration that strategy was designed for.

Look at how many pairs the join produces before and after, and at the last line: at every instant the results equal
those of a run without the migration.
"""

import numpy as np
import pyarrow as pa

from midstream import ContinuousQuery, Plan, Stream

schema = pa.schema({"ts": pa.int64(), "page": pa.int64(), "user": pa.int64()})
query = ContinuousQuery(
    """SELECT DISTINCT c.page FROM clicks [RANGE 300] c, purchases [RANGE 300] p WHERE c.page = p.page""",
    streams=[Stream(name, schema, event_time="ts") for name in ("clicks", "purchases")],
)
above = query.plan()


def distincts(plan: Plan) -> int:
    return plan.explain().count("Distinct")


below = max(query.plans(), key=distincts)
print(f"At first:\n{above}\n\nThen:\n{below}\n")


def tables(begin: int) -> dict[str, pa.Table]:
    """A thousand clicks and purchases on fifty pages, in 100 ticks."""
    random = np.random.default_rng(begin)
    made = {}
    for name in ("clicks", "purchases"):
        times, pages = np.sort(random.integers(begin, begin + 100, 1_000)), random.integers(0, 50, 1_000)
        made[name] = pa.table({"ts": times, "page": pages, "user": random.integers(0, 9, 1_000)})
    return made


def pairs(run) -> list[int]:
    """What the join of each plan at work has made since its plan began."""
    return [o["rows_out"] for o in run.metrics()["operators"] if o["kind"] == "join"]


run, unchanged = query.run_locally(above), query.run_locally(above)
emitted, expected = set(), set()
for begin in range(0, 1_200, 100):
    if begin == 500:
        run.migrate(below, strategy="gen-mig")
    for each, seen in ((run, emitted), (unchanged, expected)):
        for row in each.push(tables(begin)).to_pylist():
            seen.update((row["page"], instant) for instant in range(row["valid_from"], row["valid_to"]))
    print(f"up to {begin + 100:5}: pairs of each plan at work, since it began: {pairs(run)}")
record = run.metrics()["migrations"][0]
print(f"the change began at {record['began_at']} and was over at {record['ended_at']}")
print(f"{len(emitted):,} pages at an instant, the same without the change: {emitted == expected}")
