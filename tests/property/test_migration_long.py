"""Long runs over dense data, migrated again and again: still what DuckDB says, and for joins each row once."""

import random
from itertools import islice

import numpy as np
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.engine.state import row_store
from midstream.errors import MigrationRefused
from midstream.testing import STRATEGIES, assert_same_bag, assert_snapshot_equivalent, join_intervals, snapshots

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "j": pa.int32(), "s": pa.string()})
STREAMS = [Stream(name, SCHEMA, "ts", lateness=6) for name in "abcde"]

JOINS = {
    "one key": "SELECT a.ts AS i, b.ts AS l, c.ts AS m, d.ts AS n"
    " FROM a [RANGE 30], b [RANGE 30], c [RANGE 30], d [RANGE 30] WHERE a.k = b.k AND b.k = c.k AND c.k = d.k",
    "chain of keys": "SELECT a.ts AS i, b.ts AS l, c.ts AS m, d.ts AS n"
    " FROM a [RANGE 20], b [RANGE 40], c [RANGE 20 SLIDE 10], d [RANGE 25]"
    " WHERE a.k = b.k AND b.j = c.j AND c.s = d.s",
    "cycle": "SELECT a.ts AS i, b.ts AS l, c.ts AS m FROM a [RANGE 25], b [RANGE 25], c [RANGE 35]"
    " WHERE a.k = b.k AND b.j = c.j AND c.s = a.s",
    "range": "SELECT a.ts AS i, b.ts AS l, c.ts AS m FROM a [RANGE 15], b [RANGE 15], c [RANGE 15]"
    " WHERE ABS(a.k - b.k) < 2 AND b.j = c.j AND a.j <= c.j",
    "two keys": "SELECT a.s, b.ts AS l, c.ts AS m, d.k FROM a [RANGE 30], b [RANGE 30], c [RANGE 30], d [NOW]"
    " WHERE a.k = b.k AND a.j = b.j AND b.k = c.k AND c.j = d.j AND a.s = d.s",
    "five": "SELECT a.ts AS i, b.ts AS l, c.ts AS m, d.ts AS n, e.ts AS o"
    " FROM a [RANGE 14], b [RANGE 14], c [RANGE 14], d [RANGE 14], e [RANGE 14]"
    " WHERE a.k = b.k AND b.k = c.k AND c.k = d.k AND d.j = e.j",
    "computed": "SELECT x.n + b.j AS p, c.ts AS m"
    " FROM (SELECT a.k + 1 AS n, a.j AS j FROM a [RANGE 25] WHERE a.k > 0) x, b [RANGE 25], c [RANGE 25]"
    " WHERE x.n = b.k AND b.j = c.j",
    "united": "SELECT a.ts AS i, c.k FROM a [RANGE 20], b [RANGE 20], c [RANGE 20] WHERE a.k = b.k AND b.k = c.k"
    " UNION ALL SELECT d.ts AS i, e.k FROM d [RANGE 9], e [RANGE 9] WHERE d.s = e.s",
}
OTHERS = {
    "distinct": "SELECT DISTINCT a.k, b.j FROM a [RANGE 30], b [RANGE 30], c [RANGE 20] WHERE a.k = b.k AND b.k = c.k",
    "aggregate": "SELECT a.k, COUNT(*) AS n, SUM(c.j) AS t, MIN(b.s) AS lo"
    " FROM a [RANGE 30], b [RANGE 20], c [RANGE 20] WHERE a.k = b.k AND b.j = c.j GROUP BY a.k",
    "count of distinct": "SELECT COUNT(*) AS n"
    " FROM (SELECT DISTINCT a.k, a.j FROM a [RANGE 25]) x, b [RANGE 20], c [RANGE 20] WHERE x.k = b.k AND b.j = c.j",
    "difference": "SELECT k, j FROM a [RANGE 40] EXCEPT ALL SELECT k, j FROM b [RANGE 20]"
    " EXCEPT ALL SELECT k, j FROM c [RANGE 30] EXCEPT ALL SELECT k, j FROM d [RANGE 10 SLIDE 5]",
    "except distinct": "SELECT k FROM a [RANGE 40] EXCEPT SELECT k FROM b [RANGE 4] EXCEPT SELECT k FROM c [RANGE 3]",
    "join with totals": "SELECT b.ts AS l, c.ts AS m, t.n"
    " FROM (SELECT a.k AS k, COUNT(*) AS n FROM a [RANGE 20] GROUP BY a.k) t, b [RANGE 15], c [RANGE 15]"
    " WHERE t.k = b.k AND b.j = c.j",
    "union": "SELECT a.k FROM a [RANGE 20], b [RANGE 20], c [RANGE 10] WHERE a.k = b.k AND b.j = c.j"
    " UNION SELECT d.k FROM d [RANGE 9]",
}


def _table(generator: np.random.Generator, now: int, keys: int) -> pa.Table:
    count = int(generator.integers(0, 7))
    return pa.table(
        {
            "ts": now + generator.integers(-5, 3, count),
            "k": pa.array(generator.integers(0, keys, count), mask=generator.random(count) < 0.1),
            "j": pa.array(generator.integers(0, 4, count), pa.int32()),
            "s": [f"{key}" for key in generator.integers(0, 5, count)],
        },
        schema=SCHEMA,
    )


def run_dense(text: str, seed: int, crashes: bool) -> tuple[pa.Table, dict, list[Stream], set[str]]:
    """Forty pushes with about ten changes; the results, the whole input, and the strategies that were used."""
    generator, choose = np.random.default_rng(seed), random.Random(seed)
    query = ContinuousQuery(text, STREAMS)
    plans = list(islice(query.plans(), 40))
    run = query.run_locally(chunk_rows=choose.choice([8, 200, 1 << 20]))
    used = [stream for stream in STREAMS if stream.name in {w.stream.name for w in run.plan.windows()}]
    everything = {stream.name: [SCHEMA.empty_table()] for stream in used}
    results, done = [], set()
    for now in range(0, 160, 4):
        tables = {stream.name: _table(generator, now, 6) for stream in used}
        for name, table in tables.items():
            everything[name].append(table)
        results.append(run.push(tables))
        if crashes and choose.random() < 0.15:
            run.rebuild(choose.choice(["moving-state", "jisc"]))
        if choose.random() < 0.3:
            strategy, options = choose.choice(list(STRATEGIES.values()))
            try:
                run.migrate(choose.choice(plans), strategy, **options)
            except MigrationRefused:
                continue
            done.add(strategy)
    results.append(run.finish())
    for result in results:
        assert result.column("valid_from").to_pylist() == sorted(result.column("valid_from").to_pylist())
    tables = {name: pa.concat_tables(parts) for name, parts in everything.items()}
    return pa.concat_tables(results), tables, used, done


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", JOINS)
def test_joins_give_each_row_once(name, seed, monkeypatch):
    monkeypatch.setattr(row_store, "_SMALLEST", 4)
    results, tables, used, _ = run_dense(JOINS[name], seed, crashes=seed > 0)
    expected = join_intervals(JOINS[name], used, tables)
    assert expected.num_rows > 50
    assert_same_bag(results, expected)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", OTHERS)
def test_other_operators_equal_the_oracle(name, seed, monkeypatch):
    monkeypatch.setattr(row_store, "_SMALLEST", 4)
    results, tables, used, _ = run_dense(OTHERS[name], seed, crashes=seed > 0)
    instants = sorted(random.Random(3).sample(range(-10, 220), 60))
    assert_snapshot_equivalent(results, snapshots(OTHERS[name], used, tables, instants))


TOTALS_OVER_DISTINCT = [
    "SELECT COUNT(*) AS n FROM (SELECT DISTINCT k FROM a [RANGE 25]) x",
    "SELECT k, COUNT(*) AS n FROM (SELECT DISTINCT k FROM a [RANGE 25]) x GROUP BY k",
    "SELECT k FROM (SELECT DISTINCT k FROM a [RANGE 25]) x EXCEPT SELECT k FROM b [RANGE 10]",
    "SELECT COUNT(*) AS n FROM (SELECT DISTINCT a.k, b.j FROM a [RANGE 12], b [RANGE 9] WHERE a.k = b.k) x",
    "SELECT MAX(n) AS m FROM (SELECT k, COUNT(*) AS n FROM a [RANGE 12] GROUP BY k) y",
]


@pytest.mark.parametrize("text", TOTALS_OVER_DISTINCT)
def test_segments_do_not_depend_on_where_a_distinct_cuts_rows(text):
    """After a rebuild a distinct cuts rows elsewhere, and no segment is emitted twice or left out."""
    for seed in range(12):
        generator = np.random.default_rng(seed)
        run = ContinuousQuery(text, STREAMS).run_locally()
        used = [stream for stream in STREAMS if stream.name in {w.stream.name for w in run.plan.windows()}]
        everything = {stream.name: [SCHEMA.empty_table()] for stream in used}
        results = []
        for now in range(0, 100, 4):
            tables = {stream.name: _table(generator, now, 2).slice(0, 2) for stream in used}
            for name, table in tables.items():
                everything[name].append(table)
            results.append(run.push(tables))
            if generator.random() < 0.4:
                run.rebuild("moving-state" if seed % 2 else "jisc")
        results.append(run.finish())
        tables = {name: pa.concat_tables(parts) for name, parts in everything.items()}
        assert_snapshot_equivalent(pa.concat_tables(results), snapshots(text, used, tables))
