"""Moments: the parts of dates and timestamps, and their change from one unit to another.

Dates are days, timestamps are ticks of their unit since 1970, both at UTC. A timestamp with a time zone is an instant:
its parts, its date and its text are those of UTC, whatever the zone's name, so that results do not depend on a zone
database. Years before 1 and after 9999 count like any other.

>>> import datetime
>>> moment = pa.array([datetime.datetime(2024, 2, 29, 23, 59, 58)], pa.timestamp("us", "Asia/Tokyo"))
>>> [KERNELS[part]([moment], pa.int64())[0].as_py() for part in ("year", "month", "day", "hour", "minute", "second")]
[2024, 2, 29, 23, 59, 58]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from midstream.engine.expressions.arrow_values import Datum, Kernel, Values, build, either_null, null_rows, values
from midstream.engine.expressions.decimals import divide_half_away

__all__ = ["KERNELS", "SECONDS_PER_DAY", "TICKS_PER_SECOND", "convert_ticks", "days_of", "ticks_per_day"]

SECONDS_PER_DAY = 86_400
TICKS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def ticks_per_day(data_type: pa.DataType) -> int:
    """How many of the integers that store a date, time, timestamp or duration make a day."""
    if pat.is_date32(data_type):
        return 1
    return SECONDS_PER_DAY * TICKS_PER_SECOND["ms" if pat.is_date64(data_type) else data_type.unit]


def days_of(array: pa.Array) -> Values:
    """The day of each moment, counted from 1970-01-01, as int64."""
    days: Values = values(array).astype(np.int64, copy=False) // ticks_per_day(array.type)
    return days


def convert_ticks(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Moments or durations in another type; NULL where it cannot hold them.

    A timestamp or duration is rounded to a coarser unit, halves away from 1970, as in DuckDB. A date is the day the
    moment lies in, and a time of day is cut off: neither may turn into the next day.
    """
    nulls, ticks = null_rows(array), values(array).astype(np.int64, copy=False)
    old, new = ticks_per_day(array.type), ticks_per_day(data_type)
    if pat.is_date(data_type):
        ticks, old = ticks // old, 1
    if new >= old:
        most = (2**63 - 1) // (new // old)
        nulls = either_null(nulls, (ticks > most) | (ticks < -most))
        ticks = ticks * (new // old)
    elif pat.is_time(data_type):
        ticks = ticks // (old // new)
    else:
        ticks = divide_half_away(ticks, old // new)
    if data_type.bit_width == 32:
        nulls = either_null(nulls, (ticks >= 2**31) | (ticks < -(2**31)))
    return build(ticks, nulls, data_type)


def _year(days: npt.NDArray[np.datetime64]) -> Values:
    return days.astype("M8[Y]").view(np.int64) + 1970


def _month(days: npt.NDArray[np.datetime64]) -> Values:
    return days.astype("M8[M]").view(np.int64) % 12 + 1


def _day(days: npt.NDArray[np.datetime64]) -> Values:
    first = days.astype("M8[M]").astype("M8[D]")
    return days.view(np.int64) - first.view(np.int64) + 1


def _part_of_date(part: Callable[[npt.NDArray[np.datetime64]], Values]) -> Kernel:
    def compute(operands: Sequence[Datum], result: pa.DataType) -> Datum:
        days = np.ascontiguousarray(days_of(operands[0])).view("M8[D]")
        return build(part(days), null_rows(operands[0]), result)

    return compute


def _part_of_day(seconds: int, count: int) -> Kernel:
    """Of the time of day, how many of a unit that lasts so many seconds, up to the given count."""

    def compute(operands: Sequence[Datum], result: pa.DataType) -> Datum:
        per_second = TICKS_PER_SECOND[operands[0].type.unit]
        return build(values(operands[0]) // (per_second * seconds) % count, null_rows(operands[0]), result)

    return compute


KERNELS: dict[str, Kernel] = {
    "year": _part_of_date(_year),
    "month": _part_of_date(_month),
    "day": _part_of_date(_day),
    "hour": _part_of_day(3_600, 24),
    "minute": _part_of_day(60, 60),
    "second": _part_of_day(1, 60),
}
