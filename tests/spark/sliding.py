"""Queries whose operators are final up to different instants, and input that stops between the ends of their slides.

A window that slides knows the future up to its next slide: between two slides, what reads it alone is ahead of what
reads other windows. A plan that takes over there must begin exactly where each part of the old one stood.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from midstream import Stream

__all__ = ["AHEAD", "BETWEEN", "QUERIES", "SCHEMA", "STREAMS", "micro_batches"]

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "v": pa.int64()})
STREAMS = [Stream(name, SCHEMA, "ts") for name in "abc"]

AHEAD = "union of an aggregate that is ahead"
"""The query in which a plan with another aggregate can take over only where a slide ends."""

QUERIES = {
    "distinct over an aggregate and streams": "SELECT DISTINCT x.n, c.v FROM c [RANGE 14], b [RANGE 20],"
    " (SELECT k, SUM(v) AS n FROM a [RANGE 8 SLIDE 2] GROUP BY k) x WHERE x.n > b.v AND b.k = c.k",
    "union of an aggregate and a join": "SELECT b.k, SUM(a.v) AS n FROM a [RANGE 8 SLIDE 2], b [RANGE 10]"
    " WHERE a.k = b.k GROUP BY b.k UNION SELECT b.k, x.n FROM b [RANGE 9],"
    " (SELECT k, COUNT(*) AS n FROM c [RANGE 7 SLIDE 3] GROUP BY k) x WHERE b.k = x.k",
    "difference over a distinct": "SELECT DISTINCT x.k, c.v FROM c [RANGE 12], (SELECT k FROM a [RANGE 13 SLIDE 4]"
    " EXCEPT ALL SELECT DISTINCT k FROM b [RANGE 8 SLIDE 2]) x WHERE x.k = c.k",
    AHEAD: "SELECT b.k, SUM(a.v) AS n FROM a [RANGE 8 SLIDE 2], b [RANGE 12 SLIDE 2]"
    " WHERE a.k = b.k GROUP BY b.k UNION ALL SELECT b.k, c.v AS n FROM b [RANGE 9], c [RANGE 7] WHERE b.k = c.k",
}

BETWEEN = [instant for instant in range(7, 1000) if all(instant % slide for slide in (2, 3, 5))]
"""No window of the queries slides at these instants."""


def micro_batches(count: int, seed: int, ends: list[int] = BETWEEN) -> list[dict[str, pa.Table]]:
    """A few rows of each stream per micro-batch; after each of them the watermark is at the next of the ends."""
    generator = np.random.default_rng(seed)
    batches, begin = [], 0
    for end in ends[:count]:
        # No stream is ahead of the others: the watermark is the last instant of all.
        batches.append({stream.name: _rows(generator, begin, end) for stream in STREAMS})
        begin = end
    return batches


def _rows(generator: np.random.Generator, begin: int, end: int) -> pa.Table:
    count = int(generator.integers(1, 5))
    keys, values = generator.integers(0, 2, count), generator.integers(1, 3, count)
    times = [*generator.integers(begin, end + 1, count - 1), end]
    return pa.table({"ts": times, "k": pa.array(keys, mask=generator.random(count) < 0.05), "v": values}, SCHEMA)
