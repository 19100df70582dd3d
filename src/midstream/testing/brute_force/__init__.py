"""The brute force: a second judge that evaluates a continuous query's snapshots row by row, in plain Python.

It reads the query's text with a parser of its own and computes from the definition in docs/semantics.md: at every
instant the result is the relational query over the rows valid then. It shares nothing with the DuckDB oracle but the
type of the result, and nothing with the compiler, the planner and the engine, so that a misreading of the language
by one judge is seen by the other. On inputs of a few rows, as random tests have them, it is also the faster one; it
looks at every combination of rows, so it is not for large inputs.

`reader` turns text into a tree (`syntax`), `expressions` gives names and types (`value_types`) to its expressions
and makes Python functions of them (`functions`, `casts`, `aggregates`), `evaluation` computes relations at an instant.

>>> import pyarrow as pa
>>> from types import SimpleNamespace
>>> stream = SimpleNamespace(name="s", schema=pa.schema({"ts": pa.int64(), "k": pa.string()}), event_time="ts")
>>> rows = pa.table({"ts": [1, 2], "k": ["a", "a"]})
>>> series = brute_force_snapshots("SELECT k, COUNT(*) AS n FROM s [RANGE 3] GROUP BY k", [stream], {"s": rows})
>>> series.instants, series.at(2), series.at(5)
((1, 2, 5, 6), [('a', 2)], [('a', 1)])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from midstream.testing.brute_force.arrow import column_of
from midstream.testing.brute_force.evaluation import Inputs, relation_of
from midstream.testing.brute_force.reader import read
from midstream.testing.brute_force.syntax import BruteForceError
from midstream.testing.snapshot_series import Rows, SnapshotSeries, StreamLike

__all__ = ["BruteForceError", "brute_force_snapshots"]


def brute_force_snapshots(
    text: str,
    streams: Sequence[StreamLike],
    tables: Mapping[str, Rows],
    instants: Iterable[int] | None = None,
) -> SnapshotSeries:
    """The bag of result rows at every critical instant, or at the given ones only.

    Late rows are the caller's business: the tables must hold what the query is to see. Rows without an event time
    are never seen. Text that is not understood raises `BruteForceError`.
    """
    inputs = Inputs(streams, tables)
    relation = relation_of(read(text), inputs)
    chosen = tuple(sorted(inputs.critical_instants if instants is None else set(instants)))
    marks: list[int] = []
    found: list[tuple[object, ...]] = []
    for instant in chosen:
        rows = relation.rows(instant)
        marks += [instant] * len(rows)
        found += rows
    values = list(zip(*found, strict=True)) or [()] * len(relation.columns.types)
    columns = [column_of(column, kind) for column, kind in zip(values, relation.columns.types, strict=True)]
    table = pa.table([pa.array(marks, pa.int64()), *columns], names=["instant", *relation.columns.names])
    return SnapshotSeries(chosen, table, sampled=instants is not None)
