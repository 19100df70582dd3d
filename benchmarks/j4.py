"""J4: four streams joined on one key within a window, against DuckDB joining the whole input at once.

All quadruples with equal k and pairwise |Δts| ≤ W, all twelve columns out as Arrow. midstream is fed batch by batch and
hands out the results of each batch; DuckDB (2 threads) joins everything into a table. The result rows are compared as
bags. Bars: time at most 1.5 times (small) and 2.5 times (large) DuckDB's, peak memory at most 2 times.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.measuring import Bar, in_turns, peak_mebibytes, report_peak, save
from midstream import ContinuousQuery, Stream

STREAMS = "abcd"


def select_list(streams: str = STREAMS) -> list[str]:
    """All columns of the streams, each with the name of its stream."""
    return [f"{stream}.{column} AS {stream}_{column}" for stream in streams for column in ("ts", "k", "v")]


COLUMNS = select_list()
SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "v": pa.float64()})


@dataclass(frozen=True)
class Size:
    """N rows per stream and batch, the number of batches, window W, number of keys D, and the results it gives."""

    rows: int
    batches: int
    window: int
    keys: int
    results: int | None = None


SIZES = {
    "small": Size(20_000, 8, 40_000, 20_000, 4_175_937),
    "large": Size(100_000, 5, 200_000, 100_000, 11_191_948),
}
TRIAL = Size(2_000, 12, 4_000, 2_000)
"""Too small to measure anything, but it shows whether everything works."""


def make_batches(size: Size) -> list[dict[str, pa.Table]]:
    """The input, batch by batch; drawn stream after stream."""
    random = np.random.default_rng(0)
    batches: list[dict[str, pa.Table]] = [{} for _ in range(size.batches)]
    for stream in STREAMS:
        for number, batch in enumerate(batches):
            times = np.sort(random.integers(0, size.rows, size.rows)) + number * size.rows
            keys = random.integers(0, size.keys, size.rows)
            batch[stream] = pa.table({"ts": times, "k": keys, "v": random.random(size.rows)})
    return batches


def query(size: Size, streams: str = STREAMS) -> ContinuousQuery:
    """The continuous query, over all streams or the first ones."""
    windows = ", ".join(f"{stream} [RANGE {size.window}]" for stream in streams)
    text = f"SELECT {', '.join(select_list(streams))} FROM {windows} WHERE {_equal_keys(streams)}"
    return ContinuousQuery(text, [Stream(name, SCHEMA, event_time="ts") for name in streams])


def _equal_keys(streams: str) -> str:
    return " AND ".join(f"{one}.k = {other}.k" for one, other in pairwise(streams))


def run_midstream(size: Size, batches: list[dict[str, pa.Table]]) -> None:
    """Push batch by batch; the results of each are handed out as Arrow, counted and dropped."""
    run = query(size).run_locally()
    counts = [run.push(batch).num_rows for batch in batches]
    counts.append(run.finish().num_rows)
    assert size.results in (None, sum(counts)), counts


def duckdb_sql(size: Size, streams: str = STREAMS) -> str:
    """The same join as plain SQL over the whole input."""
    within = " AND ".join(f"abs({x}.ts - {y}.ts) <= {size.window}" for x, y in combinations(streams, 2))
    tables = ", ".join(streams)
    return f"SELECT {', '.join(select_list(streams))} FROM {tables} WHERE {_equal_keys(streams)} AND {within}"


def connect(batches: list[dict[str, pa.Table]]) -> duckdb.DuckDBPyConnection:
    """A database with the whole input as tables of its own."""
    database = duckdb.connect()
    database.execute("SET threads = 2")
    for stream in STREAMS:
        database.register(f"{stream}_input", pa.concat_tables([batch[stream] for batch in batches]))
        database.execute(f"CREATE TABLE {stream} AS SELECT * FROM {stream}_input")
    return database


def run_duckdb(size: Size, database: duckdb.DuckDBPyConnection) -> None:
    """Join everything at once into a table."""
    database.execute(f"CREATE OR REPLACE TABLE joined AS {duckdb_sql(size)}")


def differing_rows(size: Size, batches: list[dict[str, pa.Table]]) -> int:
    """How many rows one of both results has and the other has not, as bags."""
    run = query(size).run_locally()
    results = pa.concat_tables([*(run.push(batch) for batch in batches), run.finish()])
    database = connect(batches)
    database.register("results", results.drop_columns(["valid_from", "valid_to"]))
    expected = duckdb_sql(size)
    database.execute(f"CREATE TABLE expected AS {expected}")
    (total,), (missing,) = (
        database.execute(f"SELECT count(*) FROM {what}").fetchall()[0]
        for what in ("expected", "(FROM expected EXCEPT ALL FROM results)")
    )
    assert total == size.results, total
    return int(missing + (results.num_rows - total + missing))


def measure(name: str) -> dict[str, Any]:
    """The figures of one size."""
    size = SIZES[name]
    batches = make_batches(size)
    differing = differing_rows(size, batches)
    database = connect(batches)
    seconds = in_turns(
        {"midstream": lambda: run_midstream(size, batches), "duckdb": lambda: run_duckdb(size, database)}
    )
    database.close()
    peaks = {who: peak_mebibytes("benchmarks.j4", "--peak", who, name) for who in ("midstream", "duckdb")}
    return {
        "results": size.results,
        "rows differing from DuckDB's": differing,
        "midstream seconds": seconds["midstream"],
        "duckdb seconds": seconds["duckdb"],
        "time ratio": seconds["midstream"] / seconds["duckdb"],
        "midstream peak MiB": peaks["midstream"],
        "duckdb peak MiB": peaks["duckdb"],
        "memory ratio": peaks["midstream"] / peaks["duckdb"],
        "input rows per second": 4 * size.rows * size.batches / seconds["midstream"],
        "results per second": (size.results or 0) / seconds["midstream"],
    }


def main() -> bool:
    """Measure both sizes."""
    met = []
    for name, limit in (("small", 1.5), ("large", 2.5)):
        bars = (Bar("rows differing from DuckDB's", 0), Bar("time ratio", limit), Bar("memory ratio", 2.0))
        met.append(save(f"j4_{name}", measure(name), *bars))
    return all(met)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peak", choices=["midstream", "duckdb"], required=True)
    parser.add_argument("size", choices=list(SIZES))
    chosen = parser.parse_args()
    its_size = SIZES[chosen.size]
    its_batches = make_batches(its_size)
    if chosen.peak == "midstream":
        run_midstream(its_size, its_batches)
    else:
        run_duckdb(its_size, connect(its_batches))
    report_peak()
