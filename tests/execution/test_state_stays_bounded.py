"""However long a stream runs, an operator holds what its windows hold, not more."""

import numpy as np
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "s": pa.string(), "x": pa.float64()})
STREAMS = [Stream(name, SCHEMA, "ts", lateness=50) for name in ("a", "b")]

QUERIES = {
    "join": "SELECT a.s FROM a [RANGE 500], b [RANGE 300] WHERE a.k = b.k",
    "text join": "SELECT a.s FROM a [RANGE 500], b [RANGE 300] WHERE a.s = b.s AND a.k < 2",
    "range join": "SELECT a.s FROM a [RANGE 200], b [NOW] WHERE ABS(a.x - b.x) < 0.01",
    "distinct": "SELECT DISTINCT a.s, a.k FROM a [RANGE 500]",
    "aggregate": "SELECT a.k, COUNT(*), SUM(a.x), MIN(a.x), MAX(a.s), COUNT(DISTINCT a.s) FROM a [RANGE 500]"
    " GROUP BY a.k",
    "tumbling": "SELECT COUNT(*) FROM a [RANGE 500 SLIDE 500]",
    "difference": "SELECT a.k FROM a [RANGE 500] EXCEPT ALL SELECT b.k FROM b [RANGE 300]",
    "beside the unbounded": "SELECT a.k AS n FROM a [RANGE 100], b [RANGE 100] WHERE a.k = b.k"
    " UNION ALL SELECT COUNT(*) AS n FROM b [RANGE UNBOUNDED] WHERE b.k < 0",
    "mixed windows": "SELECT a.s FROM (SELECT b.k AS k FROM b [RANGE UNBOUNDED] WHERE b.k < 0 UNION ALL"
    " SELECT b.k AS k FROM b [NOW]) u, a [RANGE 50] WHERE a.k = u.k",
    "nested": "SELECT b.s, n.c FROM b [RANGE 100], (SELECT a.k AS k, COUNT(*) AS c FROM a [RANGE 500] GROUP BY a.k) n"
    " WHERE b.k = n.k",
}


def _table(random: np.random.Generator, now: int) -> pa.Table:
    times = now + random.integers(-40, 10, 60)
    return pa.table(
        {
            "ts": times,
            "k": random.integers(0, 40, 60),
            # Ever new values: dictionaries of keys must forget too.
            "s": [f"{now // 100}-{i}" for i in random.integers(0, 9, 60)],
            "x": random.random(60) + now,
        },
        schema=SCHEMA,
    )


def test_a_row_from_the_future_does_not_hold_back_the_others():
    run = ContinuousQuery(QUERIES["text join"].replace("a.k < 2", "a.k < 99"), STREAMS).run_locally()
    random = np.random.default_rng(1)
    ahead = pa.table({"ts": [10**12], "k": [1], "s": ["59-3"], "x": [0.0]}, schema=SCHEMA)
    run.push({"a": ahead})
    held = []
    for now in range(0, 12_000, 20):
        run.push({stream: _table(random, now) for stream in ("a", "b")})
        held.append(run.metrics()["state_rows"])
    assert max(held[300:]) <= 1.5 * max(held[50:300])
    last = pa.table({"ts": [10**12 + 1], "k": [1], "s": ["59-3"], "x": [0.0]}, schema=SCHEMA)
    assert run.push({"b": last})["s"].to_pylist() == ["59-3"]


@pytest.mark.parametrize("name", QUERIES)
def test_state_does_not_grow_with_the_length_of_the_stream(name):
    random = np.random.default_rng(1)
    run = ContinuousQuery(QUERIES[name], STREAMS).run_locally()
    used = {window.stream.name for window in run.plan.windows()}
    sizes, held = [], []
    for now in range(0, 12_000, 20):
        run.push({stream: _table(random, now) for stream in used})
        metrics = run.metrics()
        sizes.append(metrics["state_bytes"])
        held.append(metrics["state_rows"])
    assert max(sizes[300:]) <= 1.5 * max(sizes[50:300])
    assert max(held[300:]) <= 1.5 * max(held[50:300])
    run.finish()
    assert run.metrics()["state_rows"] == 0
