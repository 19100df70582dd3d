"""Many pushes, so that states are merged, purged, grown and shrunk on the way: still what DuckDB says."""

import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.engine.state import join_state, row_store
from midstream.testing import assert_snapshot_equivalent, snapshots

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "s": pa.string(), "x": pa.float64(), "d": pa.decimal128(30, 2)})
STREAMS = [Stream(name, SCHEMA, "ts", lateness=20) for name in ("a", "b", "c")]

QUERIES = [
    "SELECT * FROM a [RANGE 30], b [RANGE 60] WHERE a.k = b.k",
    "SELECT a.*, c.s AS cs FROM a [RANGE 40] JOIN b [RANGE 20] ON a.s = b.s JOIN c [NOW] ON c.k = b.k",
    "SELECT a.s, b.s AS bs FROM a [RANGE 50], b [RANGE 10] WHERE a.d = b.d AND a.k < b.k",
    "SELECT a.ts AS i, b.ts AS j FROM a [RANGE 30], b [RANGE 30] WHERE ABS(a.x - b.x) < 0.02",
    "SELECT DISTINCT a.s, b.k FROM a [RANGE 30], b [RANGE 30] WHERE a.k = b.k",
    "SELECT k, COUNT(*) AS n, SUM(x) AS sx, SUM(DISTINCT d) AS sd, AVG(k) AS m, MIN(s) AS lo, MAX(x) AS hi,"
    " COUNT(DISTINCT s) AS ns FROM a [RANGE 50] GROUP BY k HAVING COUNT(*) > 1",
    "SELECT s FROM a [RANGE 60] EXCEPT ALL SELECT s FROM b [RANGE 30]",
    "SELECT s FROM a [RANGE 60] EXCEPT SELECT s FROM b [RANGE 30] UNION SELECT s FROM c [RANGE 20 SLIDE 10]",
    "SELECT c.s, n.m FROM c [RANGE 15], (SELECT a.k AS k, MAX(b.x) AS m FROM a [RANGE 25], b [RANGE 25]"
    " WHERE a.s = b.s GROUP BY a.k) n WHERE c.k = n.k",
    "SELECT COUNT(*) AS n FROM a [RANGE 64 SLIDE 16], (SELECT DISTINCT k FROM b [RANGE UNBOUNDED]) u WHERE a.k = u.k",
]


def _table(generator: np.random.Generator, now: int) -> pa.Table:
    count = int(generator.integers(0, 24))
    keys = generator.integers(0, 6, count)
    return pa.table(
        {
            "ts": now + generator.integers(-15, 5, count),
            "k": pa.array(keys, mask=generator.random(count) < 0.1),
            # New values all the time, so that keys are forgotten and their places used again.
            "s": [f"{now // 40}:{key}" for key in keys],
            "x": generator.integers(0, 200, count) / 100,
            "d": pa.array([Decimal(int(key) * 10**20) for key in keys], pa.decimal128(30, 2)),
        },
        schema=SCHEMA,
    )


@pytest.mark.parametrize("text", QUERIES)
def test_a_long_run_equals_the_oracle(text, monkeypatch):
    # Small rings and early merging: what usually takes a million rows happens within a thousand.
    monkeypatch.setattr(row_store, "_SMALLEST", 4)
    generator = np.random.default_rng(7)
    query = ContinuousQuery(text, STREAMS)
    run = query.run_locally(chunk_rows=64)
    used = [stream for stream in STREAMS if stream.name in {w.stream.name for w in run.plan.windows()}]
    everything = {stream.name: [SCHEMA.empty_table()] for stream in used}
    results = []
    for now in range(0, 600, 8):
        tables = {stream.name: _table(generator, now) for stream in used}
        for name, table in tables.items():
            everything[name].append(table)
        results.append(run.push(tables))
    results.append(run.finish())
    assert all(counts["late"] == 0 for counts in run.metrics()["streams"].values())
    tables = {name: pa.concat_tables(parts) for name, parts in everything.items()}
    instants = sorted(random.Random(3).sample(range(-20, 700), 24))
    assert_snapshot_equivalent(pa.concat_tables(results), snapshots(text, used, tables, instants))


def test_runs_of_join_states_stay_few():
    state = join_state.JoinState(1)
    for number in range(500):
        times = np.array([number])
        state.insert(join_state.NewTuples.sorted_by_code(times % 7, times, times + 100, times[None], None))
        state.expire(number)
    assert len(state._runs) <= 6
    assert len(state) < 400
