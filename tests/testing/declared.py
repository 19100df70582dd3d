"""Streams, rows and results for the tests of the judges, declared apart from the engine's own class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from midstream.testing import SnapshotSeries, brute_force_snapshots


@dataclass(frozen=True)
class Declaration:
    """A stream as a judge sees it."""

    name: str
    schema: pa.Schema
    event_time: str = "ts"


NUMBERS = pa.schema([("ts", pa.int64()), ("k", pa.string()), ("v", pa.int64())])
S, R, T = (Declaration(name, NUMBERS) for name in "srt")


def rows(*values: tuple[Any, ...], schema: pa.Schema = NUMBERS) -> pa.Table:
    """Rows written as tuples; integers in columns of times count their unit."""
    columns = list(zip(*values, strict=True)) or [()] * len(schema)
    return pa.table([_array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema)


def _array(values: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    if pa.types.is_run_end_encoded(kind):
        ends = pa.array(range(1, len(values) + 1), kind.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, kind.value_type))
    return pa.array(values, kind)


def intervals(series: SnapshotSeries) -> pa.Table:
    """Each row of a snapshot with the time until the next one."""
    ends = dict(zip(series.instants, [*series.instants[1:], None], strict=False))
    starts = series.table.column(0)
    columns = [*series.table.columns[1:], starts, pa.array([ends[start] for start in starts.to_pylist()], pa.int64())]
    return pa.table(columns, names=[*map(str, range(len(columns) - 2)), "valid_from", "valid_to"])


def bag(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows in an order of their own."""
    return sorted(found, key=repr)


def history(
    text: str, s: pa.Table, r: pa.Table | None = None, t: pa.Table | None = None
) -> dict[int, list[tuple[Any, ...]]]:
    """The snapshot at every critical instant, rows sorted."""
    tables = {"s": s, "r": rows() if r is None else r, "t": rows() if t is None else t}
    series = brute_force_snapshots(text, [S, R, T], tables)
    return {instant: bag(series.at(instant)) for instant in series.instants}


def at_one(text: str, *tables: pa.Table) -> list[tuple[Any, ...]]:
    """The snapshot at instant 1, rows sorted."""
    return history(text, *tables).get(1, [])


def column(kind: pa.DataType, *values: Any) -> tuple[Declaration, pa.Table]:
    """A stream with a column `x` of this type, each of its rows at instant 1 and numbered by `n`."""
    schema = pa.schema([("ts", pa.int64()), ("n", pa.int64()), ("x", kind)])
    table = rows(*((1, number, value) for number, value in enumerate(values)), schema=schema)
    return Declaration("s", schema), table


def evaluated(expression: str, kind: pa.DataType | None = None, value: Any = 1) -> Any:
    """The value of an expression over one row, whose column `x` has this type (int64 if none is given) and value."""
    stream, table = column(kind or pa.int64(), value)
    series = brute_force_snapshots(f"SELECT {expression} AS it FROM s [NOW]", [stream], {"s": table})
    ((result,),) = series.at(1)
    return result


def selected(condition: str, kind: pa.DataType, *values: Any) -> list[int]:
    """The positions of the values for which the condition holds."""
    stream, table = column(kind, *values)
    series = brute_force_snapshots(f"SELECT n FROM s [NOW] WHERE {condition}", [stream], {"s": table})
    return sorted(number for (number,) in series.at(1))
