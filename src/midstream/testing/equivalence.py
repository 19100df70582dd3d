"""Are two results the same continuous result?

Results are compared as a user of snapshots sees them: as bags of rows at every instant. How a result is cut
into intervals does not matter, so [1, 5) and [1, 3) plus [3, 5) are equal, and so are any two row orders.
Columns are compared by position and by value, not by name or storage type: NULL equals NULL, NaN equals NaN,
-0.0 equals 0.0, integers and decimals are exact at any size, floats may differ by rounding.

The check is one sweep. Every row gets a number, equal rows the same one; each interval adds +1 at its start
and -1 at its end, the other side the opposite; after each instant every row's balance must be zero.

>>> import pyarrow as pa
>>> whole = pa.table({"k": ["a"], "valid_from": [1], "valid_to": [5]})
>>> parts = pa.table({"k": ["a", "a"], "valid_from": [3, 1], "valid_to": [5, 3]})
>>> assert_snapshot_equivalent(parts, whole)
>>> assert_same_bag(parts, whole)
Traceback (most recent call last):
    ...
AssertionError: results differ: 2 rows, expected 1
  missing:  ('a', valid_from=1, valid_to=5)
  too many: ('a', valid_from=1, valid_to=3)
  too many: ('a', valid_from=3, valid_to=5)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.testing.snapshot_series import SnapshotSeries

__all__ = ["BagDifference", "assert_same_bag", "assert_snapshot_equivalent", "compare_bags"]

RELATIVE_TOLERANCE = 1e-9
ABSOLUTE_TOLERANCE = 1e-12

_Integers: TypeAlias = npt.NDArray[np.int64]

_SHOWN_ROWS = 4
_SHOWN_CHARACTERS = 200
_VALIDITY = ("valid_from", "valid_to")
_UNIT_NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def assert_snapshot_equivalent(actual: pa.Table | SnapshotSeries, expected: pa.Table | SnapshotSeries) -> None:
    """Fail unless both results have equal bags of rows at every instant.

    An interval table has the select list plus `valid_from` and `valid_to` (NULL: never ends). A sampled
    series is compared at its own instants only.
    """
    sides = [_Side(actual), _Side(expected)]
    numbers = _number_rows([side.columns for side in sides])
    sampled = isinstance(expected, SnapshotSeries) and expected.sampled
    if isinstance(expected, SnapshotSeries) and sampled:
        for side in sides:
            side.restrict_to(np.array(expected.instants, np.int64))
    difference = _first_difference(sides, numbers)
    if difference is None:
        return
    instant, until, balances = difference
    if isinstance(expected, SnapshotSeries) and sampled:
        headline = f"snapshots differ first at the sampled instant {expected.instants[instant]}"
    else:
        headline = f"snapshots differ first at instant {instant}, and so until {until}"
    raise AssertionError("\n".join([headline, *_show(balances, sides, numbers)]))


def assert_same_bag(actual: pa.Table, expected: pa.Table) -> None:
    """Fail unless both tables hold the same rows equally often, validity included, in any order."""
    difference = compare_bags(actual, expected)
    if difference.examples:
        lines = [f"results differ: {difference.rows} rows, expected {difference.expected_rows}"]
        raise AssertionError("\n".join([*lines, *difference.examples]))


@dataclass(frozen=True)
class BagDifference:
    """How two bags of rows differ, in rows, and a few of them as text."""

    rows: int
    expected_rows: int
    missing: int
    """Rows that are there less often than they should be, counted as often as they lack."""
    repeated: int
    """Rows that are there more often than they should be."""
    unexpected: int
    """Rows that should not be there at all."""
    examples: tuple[str, ...]


def compare_bags(actual: pa.Table, expected: pa.Table) -> BagDifference:
    """How far the tables are from holding the same rows equally often, validity included, in any order.

    >>> one, two = (pa.table({"k": ["a"] * n, "valid_from": [1] * n, "valid_to": [5] * n}) for n in (1, 2))
    >>> difference = compare_bags(two, one)
    >>> difference.missing, difference.repeated, difference.unexpected
    (0, 1, 0)
    """
    sides = [_Side(actual, as_rows=True), _Side(expected, as_rows=True)]
    numbers = _number_rows([side.columns for side in sides])
    size = max((int(part.max()) + 1 for part in numbers if len(part)), default=0)
    found, wanted = (np.bincount(part, minlength=size) for part in numbers)
    balance = found - wanted
    balances = {int(row): int(balance[row]) for row in np.flatnonzero(balance)}
    too_many = np.maximum(balance, 0)
    return BagDifference(
        len(numbers[0]),
        len(numbers[1]),
        missing=int(np.maximum(-balance, 0).sum()),
        repeated=int(too_many[wanted > 0].sum()),
        unexpected=int(too_many[wanted == 0].sum()),
        examples=tuple(_show(balances, sides, numbers)),
    )


class _Side:
    """One of the two results: its value columns and, per row, when the row begins and ends."""

    def __init__(self, result: pa.Table | SnapshotSeries, as_rows: bool = False) -> None:
        self.columns: list[pa.ChunkedArray]
        self.labels: list[str]
        if isinstance(result, SnapshotSeries):
            self.columns = result.table.columns[1:]
            self.labels = [""] * len(self.columns)
            self._follow_instants(result)
            return
        names = result.column_names
        missing = [name for name in _VALIDITY if name not in names]
        if missing:
            raise AssertionError(f"the result has no column {missing[0]!r}; it has {names}")
        validity = [_ticks(result.column(name)) for name in _VALIDITY]
        self.columns = [result.column(index) for index, name in enumerate(names) if name not in _VALIDITY]
        self.labels = [""] * len(self.columns)
        if as_rows:
            self.columns += validity
            self.labels += ["valid_from=", "valid_to="]
        else:
            if validity[0].null_count:
                raise AssertionError("the result has rows whose valid_from is NULL")
            self.starts: _Integers = validity[0].to_numpy()
            self.never: npt.NDArray[np.bool_] = validity[1].is_null().to_numpy()
            self.ends: _Integers = validity[1].fill_null(0).to_numpy()

    def _follow_instants(self, series: SnapshotSeries) -> None:
        instants = np.array(series.instants, np.int64)
        self.starts = series.table.column(0).to_numpy().astype(np.int64)
        following = np.searchsorted(instants, self.starts) + 1
        self.never = following >= len(instants)
        self.ends = np.append(instants, 0)[np.minimum(following, len(instants))]

    def restrict_to(self, instants: _Integers) -> None:
        """Count time in sampled instants: the first is 0, the next 1."""
        self.starts = np.searchsorted(instants, self.starts).astype(np.int64)
        self.ends = np.where(self.never, len(instants), np.searchsorted(instants, self.ends)).astype(np.int64)
        self.never = np.zeros(len(self.starts), np.bool_)

    def row(self, index: int) -> str:
        """The row as text, shortened."""
        values = [column[index].as_py() for column in self.columns]
        text = ", ".join(label + repr(value) for label, value in zip(self.labels, values, strict=True))
        return "(" + (text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…") + ")"


def _first_difference(sides: list[_Side], numbers: list[_Integers]) -> tuple[int, int | str, dict[int, int]] | None:
    """The first instant where balances are not zero, the next change, and the balances by row."""
    times, rows, changes = [], [], []
    for side, numbered, sign in zip(sides, numbers, (1, -1), strict=True):
        # An interval that ends before it starts is no interval; its rows are visible nowhere.
        visible = side.never | (side.starts < side.ends)
        ending = visible & ~side.never
        times += [side.starts[visible], side.ends[ending]]
        rows += [numbered[visible], numbered[ending]]
        changes += [np.full(int(visible.sum()), sign), np.full(int(ending.sum()), -sign)]
    time, row, change = np.concatenate(times), np.concatenate(rows), np.concatenate(changes)
    if not len(time):
        return None
    order = np.lexsort((time, row))
    time, row, change = time[order], row[order], change[order]
    # Balance per row after each change: the running sum, less what it was when the row's changes began.
    running = np.cumsum(change)
    begins = np.flatnonzero(np.append(True, row[1:] != row[:-1]))
    before = np.append(0, running)[begins]
    balance = running - np.repeat(before, np.diff(np.append(begins, len(row))))
    settled = np.append((row[1:] != row[:-1]) | (time[1:] != time[:-1]), True)
    wrong = settled & (balance != 0)
    if not wrong.any():
        return None
    instant = int(time[wrong].min())
    later = time[settled & (time > instant)]
    at_instant = wrong & (time == instant)
    balances = {int(r): int(b) for r, b in zip(row[at_instant], balance[at_instant], strict=True)}
    return instant, int(later.min()) if len(later) else "the end of time", balances


def _show(balances: dict[int, int], sides: list[_Side], numbers: list[_Integers]) -> list[str]:
    """The differing rows, a few of each kind: those with a negative balance are missing."""
    lines: list[str] = []
    for label, side, numbered, wanted in (
        ("missing: ", sides[1], numbers[1], -1),
        ("too many:", sides[0], numbers[0], 1),
    ):
        found = {row: abs(balance) for row, balance in balances.items() if balance * wanted > 0}
        shown = []
        for row in list(found)[:_SHOWN_ROWS]:
            index = int(np.flatnonzero(numbered == row)[0])
            shown.append(f"  {label} {side.row(index)}" + (f" x {found[row]}" if found[row] > 1 else ""))
        lines += sorted(shown)
        if len(found) > _SHOWN_ROWS:
            lines.append(f"  {label} ... and {len(found) - _SHOWN_ROWS} more different rows")
    return lines


def _ticks(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    return column.cast(pa.int64())


def _number_rows(sides: list[list[pa.ChunkedArray]]) -> list[_Integers]:
    """A number for each row of both sides, the same for equal rows."""
    if len(sides[0]) != len(sides[1]):
        raise AssertionError(f"the result has {len(sides[0])} columns, expected {len(sides[1])}")
    lengths = [len(columns[0]) if columns else 0 for columns in sides]
    numbers = np.zeros(sum(lengths), np.int64)
    for pair in zip(*sides, strict=True):
        codes = _number_values(list(pair))
        combined = numbers * (int(codes.max(initial=0)) + 1) + codes
        numbers = np.unique(combined, return_inverse=True)[1].astype(np.int64)
    return [numbers[: lengths[0]], numbers[lengths[0] :]]


def _number_values(pair: list[pa.ChunkedArray]) -> _Integers:
    """A number for each value of a column on both sides, one after the other; NULL is a value."""
    pair = [column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column for column in pair]
    floats = any(pa.types.is_floating(column.type) for column in pair)
    distinct: list[list[Any]] = []
    indices: list[_Integers] = []
    for column in pair:
        key = _float_key if floats and _is_number(column.type) else _key_function(column.type)
        if pa.types.is_nested(column.type):
            values, index = column.to_pylist(), np.arange(len(column))
        else:
            encoded = column.combine_chunks().dictionary_encode()
            encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
            # NULL takes the place after the last value.
            values = [*_python_values(encoded.dictionary), None]
            index = encoded.indices.fill_null(len(values) - 1).to_numpy().astype(np.int64)
        distinct.append([None if value is None else key(value) for value in values])
        indices.append(index)
    keys = [key for keys in distinct for key in keys]
    codes_of = _cluster_floats(keys) if floats else {}
    codes: dict[Any, int] = {}
    for key in keys:
        codes.setdefault(codes_of.get(key, key), len(codes))
    coded = [np.array([codes[codes_of.get(key, key)] for key in keys], np.int64) for keys in distinct]
    return np.concatenate([code[index] for code, index in zip(coded, indices, strict=True)])


def _cluster_floats(keys: list[Any]) -> dict[Any, float]:
    """Floats within rounding of their neighbour stand for one value: the smallest of them."""
    representative: dict[Any, float] = {}
    previous = leader = math.nan
    for value in sorted({key for key in keys if isinstance(key, float) and math.isfinite(key)}):
        tolerance = max(RELATIVE_TOLERANCE * max(abs(value), abs(previous)), ABSOLUTE_TOLERANCE)
        if not value - previous <= tolerance:
            leader = value
        representative[value] = leader
        previous = value
    return representative


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _float_key(value: Any) -> Any:
    number = float(value)
    return "NaN" if math.isnan(number) else number + 0.0


def _python_values(values: pa.Array) -> list[Any]:
    """Python values; times as exact nanoseconds, because datetime has microseconds only."""
    kind = values.type
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind):
        factor = _UNIT_NANOSECONDS[kind.unit]
        integers = values.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64())
        return [None if value is None else value * factor for value in integers.to_pylist()]
    return list(values.to_pylist())


def _key_function(kind: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_nested(kind):
        return _nested_key
    if pa.types.is_boolean(kind):
        return lambda value: ("boolean", value)
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind):
        return lambda value: ("time", value)
    return lambda value: value


def _nested_key(value: Any) -> Any:
    """A hashable stand-in for a nested value; floats in it are compared exactly."""
    if isinstance(value, dict):
        return ("struct", *(_nested_key(item) for item in value.values()))
    if isinstance(value, list | tuple):
        return ("list", *map(_nested_key, value))
    if isinstance(value, float):
        return _float_key(value)
    return ("boolean", value) if isinstance(value, bool) else Decimal(value) if isinstance(value, int) else value
