"""Decimals of negative scale: wherever values are computed with or compared, they are the numbers they stand for.

Arrow has no kernels for them. Each query runs over such a column and over its equal without a negative scale.
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.algebra.types import decimal_type
from midstream.engine.state.window_store import Rows
from midstream.planning.partitioning import partition
from midstream.runtime.cell_routing import rows_by_cell

NEGATIVE = [pa.decimal128(5, -2), pa.decimal128(30, -5), pa.decimal128(38, -10), pa.decimal256(50, -2)]
UNITS = [1, 3, None, 1, 0, -7]

QUERIES = [
    "SELECT DISTINCT k FROM a [RANGE 9]",
    "SELECT DISTINCT k, v FROM a [RANGE 9]",
    "SELECT k, COUNT(*) AS n, COUNT(DISTINCT k) AS d, MIN(k) AS low, MAX(k) AS high FROM a [RANGE 9] GROUP BY k",
    "SELECT k FROM a [RANGE 9] EXCEPT SELECT k FROM a [RANGE 2]",
    "SELECT k FROM a [RANGE 9] UNION SELECT i FROM b [RANGE 9]",
    "SELECT a.k, b.i, COUNT(*) AS n FROM a [RANGE 9], b [RANGE 9] WHERE a.k = b.i GROUP BY a.k, b.i",
    "SELECT a.k, COUNT(*) AS n FROM a [RANGE 9], b [RANGE 9] WHERE a.k = b.k GROUP BY a.k",
    "SELECT a.k, b.k AS other FROM a [RANGE 9], b [RANGE 9] WHERE a.k < b.k",
    "SELECT k + 1, k - k, k * 2, k * k, k / 3, k % 7, -k, ABS(k), SIGN(k), ROUND(k, -3) FROM a [RANGE 9]",
    "SELECT k = 100, k IN (100, 300), k BETWEEN 100 AND 200, GREATEST(k, 150), NULLIF(k, 100) FROM a [RANGE 9]",
    "SELECT CAST(k AS BIGINT), CAST(k AS DOUBLE), CAST(k AS DECIMAL(20, 2)), COALESCE(k, 7) FROM a [RANGE 9]",
]
SUMS = "SELECT SUM(k) AS s, AVG(k) AS m, SUM(DISTINCT k) AS d, SUM(k + 1) AS more FROM a [RANGE 9]"


@pytest.mark.parametrize("data_type", NEGATIVE, ids=str)
@pytest.mark.parametrize("text", [*QUERIES, SUMS])
def test_negative_scale_changes_no_result(text: str, data_type: pa.DataType) -> None:
    if text == SUMS and pa.types.is_decimal256(data_type):
        return
    plain = decimal_type(data_type.precision - data_type.scale, 0)
    if text == SUMS and pa.types.is_decimal256(plain):
        plain = pa.decimal128(38, 0)
    assert _snapshots(text, data_type, data_type.scale) == _snapshots(text, plain, data_type.scale)


@pytest.mark.parametrize("data_type", NEGATIVE, ids=str)
def test_equal_keys_of_negative_scale_meet_in_one_cell(data_type: pa.DataType) -> None:
    streams = _streams(data_type)
    plan = ContinuousQuery(QUERIES[6], streams).plan()
    grid = partition(plan, cells=8)
    assert grid.cells == 8
    cells: dict[int | None, set[int]] = {}
    for window in plan.windows():
        columns = _table(data_type, data_type.scale)
        arrays = {name: columns[name].combine_chunks() for name in columns.column_names}
        for cell, rows in rows_by_cell(grid, window, Rows(np.arange(len(UNITS)), arrays)).items():
            for value in rows.columns["k"].to_pylist():
                cells.setdefault(None if value is None else int(value), set()).add(cell)
    assert all(len(found) == 1 for value, found in cells.items() if value is not None)


def _streams(data_type: pa.DataType) -> list[Stream]:
    schema = pa.schema({"ts": pa.int64(), "k": data_type, "i": pa.int64(), "v": pa.int64()})
    return [Stream(name, schema, "ts") for name in "ab"]


def _table(data_type: pa.DataType, scale: int) -> pa.Table:
    values = [None if unit is None else unit * 10**-scale for unit in UNITS]
    keys = pa.array([None if value is None else Decimal(value) for value in values], data_type)
    return pa.table({"ts": range(len(UNITS)), "k": keys, "i": pa.array(values, pa.int64()), "v": [1] * len(UNITS)})


def _snapshots(text: str, data_type: pa.DataType, scale: int) -> Counter[Any]:
    run = ContinuousQuery(text, _streams(data_type)).run_locally()
    table, found = _table(data_type, scale), []
    for first in (0, 3):
        rows = table.slice(first, 3)
        found += run.push({"a": rows, **({"b": rows} if " b " in text else {})}).to_pylist()
    found += run.finish().to_pylist()
    counts: Counter[Any] = Counter()
    for row in found:
        *values, begin, end = row.values()
        counts.update((instant, *map(str, map(_number, values))) for instant in range(begin, end))
    return counts


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, Decimal) and value == int(value) else value
