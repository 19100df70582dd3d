"""The demo's data: four streams of a web shop, and a release halfway through that turns a good plan into a bad one.

The query joins searches, views, carts and orders of the same visit within five minutes. At first the shop's app does
not pass the visit's number on to orders: nearly every order has a number of its own, which joins nothing, so a plan
that starts with the orders has few intermediate rows. Halfway through, a release fixes the orders and breaks the
searches instead. Now orders, carts and views join to millions of intermediate rows, which the last join, with the
searches, discards. A plan that starts with the searches is as fast as the first plan was before the release.

A visit lasts as long as a micro-batch, and starts within it or within the one before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from midstream.algebra.stream import Stream
from midstream.query import ContinuousQuery

__all__ = [
    "ALIASES",
    "FULL",
    "NEW_ORDER",
    "OLD_ORDER",
    "SPARK_SCHEMAS",
    "STREAMS",
    "TEXT",
    "WINDOW_MINUTES",
    "Size",
    "input_file",
    "make_batch",
    "query",
    "read_batch",
    "write_input",
]

WINDOW_MINUTES = 5
BATCH_MINUTES = 10
"""Event time covered by one micro-batch; also how long a visit lasts."""
OLD_ORDER = "((o c) v) s"
"""Orders first: good before the release."""
NEW_ORDER = "((s v) c) o"
"""Searches first: good after it."""
ALIASES = {"searches": "s", "views": "v", "carts": "c", "orders": "o"}
TEXT = f"""SELECT o.visit, s.id AS search, v.id AS view, c.id AS cart, o.id AS purchase, o.amount
FROM {", ".join(f"{name} [RANGE {WINDOW_MINUTES} MINUTES] {alias}" for name, alias in ALIASES.items())}
WHERE s.visit = v.visit AND v.visit = c.visit AND c.visit = o.visit"""

_COMMON = {"ts": pa.timestamp("us", "UTC"), "visit": pa.int64(), "id": pa.int64()}
STREAMS = [
    Stream(name, pa.schema(_COMMON | ({"amount": pa.float64()} if name == "orders" else {})), event_time="ts")
    for name in ALIASES
]
SPARK_SCHEMAS = {
    name: "ts timestamp, visit long, id long" + (", amount double" if name == "orders" else "") for name in ALIASES
}
_BEGINNING = np.datetime64("2026-03-02T08:00:00", "us").astype(np.int64)
_FIRST_MODIFIED = 1_700_000_000
"""Modification time of the first files, in seconds: Spark takes files in the order of these times."""


@dataclass(frozen=True)
class Size:
    """The size of the demo's input. Batches are counted from 0."""

    rows: int
    """Per stream and batch."""
    visits: int
    """Visits that start in one batch."""
    known: int
    """Rows per batch that have the number of a visit, in the stream in which nearly all lack it."""
    batches: int
    release: int
    """The first batch after the release."""
    migrate_after: int
    """Batches after the release that run with the old plan before the migration is requested."""
    warm_up: int = 4
    """Batches excluded from the medians: windows are filling and the JVM is warming up."""

    @property
    def rows_in_all(self) -> int:
        return len(ALIASES) * self.rows * self.batches


FULL = Size(rows=20_000, visits=1_000, known=24, batches=60, release=26, migrate_after=8)
"""The size that ``make demo`` runs."""


def query() -> ContinuousQuery:
    """The continuous query."""
    return ContinuousQuery(TEXT, STREAMS)


def make_batch(size: Size, number: int) -> dict[str, pa.Table]:
    """The rows of one micro-batch, by stream; deterministic."""
    tables = {}
    for place, stream in enumerate(STREAMS):
        random = np.random.default_rng([number, place])
        # The unit is batches since the start.
        moments = number + np.sort(random.random(size.rows))
        ids = np.arange(size.rows) + number * size.rows
        visits = np.floor((moments + random.random(size.rows)) * size.visits).astype(np.int64)
        unknown = _lacks_visit(stream.name, size, moments)
        unknown[random.permutation(size.rows)[: size.known]] = False
        visits[unknown] = -1 - ids[unknown]
        columns = {"ts": _timestamps(moments), "visit": pa.array(visits), "id": pa.array(ids)}
        if stream.name == "orders":
            columns["amount"] = pa.array(np.round(random.gamma(2.0, 30.0, size.rows), 2))
        tables[stream.name] = pa.table(columns, schema=stream.schema)
    return tables


def _lacks_visit(stream: str, size: Size, moments: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Which rows lack the number of their visit. The release reaches the searches one window's length before the
    orders: otherwise fixed orders would join searches from before the release.
    """
    if stream == "orders":
        return moments < size.release
    if stream == "searches":
        return moments >= size.release - WINDOW_MINUTES / BATCH_MINUTES
    return np.zeros(len(moments), np.bool_)


def _timestamps(moments: npt.NDArray[np.float64]) -> pa.Array:
    ticks = _BEGINNING + np.floor(moments * BATCH_MINUTES * 60_000_000).astype(np.int64)
    return pa.array(ticks).cast(pa.timestamp("us", "UTC"))


def input_file(folder: Path, stream: str, number: int) -> Path:
    """The file with the rows of a stream in one batch."""
    return folder / stream / f"{number:05d}.parquet"


def write_input(size: Size, folder: Path) -> Iterator[int]:
    """Write all rows as parquet files, one per stream and batch; yields each batch's number once it is written."""
    for name in ALIASES:
        (folder / name).mkdir(parents=True)
    for number in range(size.batches):
        for name, table in make_batch(size, number).items():
            path = input_file(folder, name, number)
            pq.write_table(table, path)
            os.utime(path, (_FIRST_MODIFIED + number, _FIRST_MODIFIED + number))
        yield number


def read_batch(folder: Path, number: int) -> Mapping[str, pa.Table]:
    """Read the rows of a batch from its files."""
    return {name: pq.ParquetFile(input_file(folder, name, number)).read() for name in ALIASES}
