"""A join of 100 streams on one key: planned and run. Bar: planned in under 5 seconds."""

from __future__ import annotations

import time

import pyarrow as pa

from benchmarks.measuring import Bar, save
from midstream import ContinuousQuery, Stream

WAYS = 100
KEYS = 200


def main() -> bool:
    """Plan, then push one row per stream and key, in three batches."""
    schema = pa.schema({"ts": pa.int64(), "k": pa.int64()})
    names = [f"s{number}" for number in range(WAYS)]
    froms = ", ".join(f"{name} [RANGE 1000]" for name in names)
    joined = " AND ".join(f"s0.k = {name}.k" for name in names[1:])
    start = time.perf_counter()
    query = ContinuousQuery(
        f"SELECT s0.k, {', '.join(f'{name}.ts AS {name}_ts' for name in names)} FROM {froms} WHERE {joined}",
        [Stream(name, schema, event_time="ts") for name in names],
    )
    plan = query.plan()
    planned = time.perf_counter() - start
    run = query.run_locally(plan)
    start = time.perf_counter()
    results = 0
    for number in range(3):
        table = pa.table({"ts": [number] * KEYS, "k": list(range(number * KEYS, (number + 1) * KEYS))})
        results += run.push(dict.fromkeys(names, table)).num_rows
    results += run.finish().num_rows
    ran = time.perf_counter() - start
    assert results == 3 * KEYS, results
    figures = {"streams": WAYS, "seconds to plan": planned, "seconds to run": ran, "results": results}
    return save("many_way_join", figures, Bar("seconds to plan", 5.0))


if __name__ == "__main__":
    main()
