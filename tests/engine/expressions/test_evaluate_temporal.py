"""Parts of dates and timestamps, and casts between moments."""

from __future__ import annotations

import datetime
import random

import numpy as np
import pyarrow as pa
import pytest

from midstream.algebra.functions import cast
from midstream.errors import TypeMismatch
from tests.engine.expressions.evaluated import evaluated, run, run_cast

PARTS = ["year", "month", "day", "hour", "minute", "second"]
LOW, HIGH = -(2**63), 2**63 - 1


def moments(*texts: str | None, unit: str = "us", zone: str | None = None) -> pa.Array:
    stamps = [None if t is None else int(np.datetime64(t, unit).astype(np.int64)) for t in texts]
    return pa.array(stamps, pa.int64()).view(pa.timestamp(unit, zone))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo", "+05:00"])
def test_parts_of_timestamps_are_those_of_utc(unit: str, zone: str | None) -> None:
    source = random.Random(3)
    stamps = [
        datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=source.randint(-(2**32), 2**33)) for _ in range(60)
    ]
    stamps += [
        datetime.datetime(1969, 12, 31, 23, 59, 59),
        datetime.datetime(2000, 2, 29),
        datetime.datetime(1900, 3, 1),
    ]
    column = moments(*(s.isoformat() for s in stamps), None, unit=unit, zone=zone)
    for part in PARTS:
        assert run(part, column) == [*(getattr(s, part) for s in stamps), None]


def test_a_fraction_of_a_second_belongs_to_it() -> None:
    column = moments("1969-12-31T23:59:59.999999", "1970-01-01T00:00:00.999999")
    assert run("second", column) == [59, 0]
    assert run("year", column) == [1969, 1970]


@pytest.mark.parametrize("data_type", [pa.date32(), pa.date64()], ids=str)
def test_parts_of_dates(data_type: pa.DataType) -> None:
    days = pa.array([datetime.date(1, 1, 1), datetime.date(2024, 2, 29), None, datetime.date(9999, 12, 31)], data_type)
    assert run("year", days) == [1, 2024, None, 9999]
    assert run("month", days) == [1, 2, None, 12]
    assert run("day", days) == [1, 29, None, 31]


def test_parts_of_moments_beyond_the_calendar() -> None:
    far = pa.array([LOW, HIGH], pa.int64()).view(pa.timestamp("us"))
    assert [run(part, far) for part in PARTS] == [[-290308, 294247], [12, 1], [21, 10], [19, 4], [59, 0], [5, 54]]
    days = pa.array([-(2**31), 2**31 - 1], pa.int32()).view(pa.date32())
    assert run("year", days) == [-5877641, 5881580]


def test_a_timestamp_becomes_the_day_it_lies_in() -> None:
    column = moments("1969-12-31T23:59:59.999999", "2024-02-29T12:00:00", None)
    expected = [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), None]
    assert run_cast(column, pa.date32()) == expected
    assert run_cast(column, pa.date64()) == expected
    assert run_cast(column.view(pa.timestamp("us", "Asia/Tokyo")), pa.date32()) == expected
    assert run_cast(pa.array(expected), pa.timestamp("us")) == moments("1969-12-31", "2024-02-29", None).to_pylist()


def test_units_change_rounding_halves_away_from_1970() -> None:
    column = moments("2020-01-01T00:00:30.5", "2020-01-01T00:00:30.499999", "1960-01-01T00:00:30.5", None)
    expected = moments("2020-01-01T00:00:31", "2020-01-01T00:00:30", "1960-01-01T00:00:30", None, unit="s")
    assert run_cast(column, pa.timestamp("s")) == expected.to_pylist()
    assert run_cast(column, pa.timestamp("ms", "UTC"))[0] == datetime.datetime(
        2020, 1, 1, 0, 0, 30, 500_000, datetime.UTC
    )


def test_moments_that_do_not_fit_the_type_are_null() -> None:
    assert run_cast(moments("3000-01-01", "2000-01-01", unit="s"), pa.timestamp("ns"))[0] is None
    assert run_cast(pa.array([HIGH, 0], pa.int64()).view(pa.timestamp("s")), pa.date32()) == [
        None,
        datetime.date(1970, 1, 1),
    ]
    assert run_cast(pa.array([2**31 - 1], pa.int32()).view(pa.date32()), pa.timestamp("us")) == [None]


def test_nanoseconds_are_compared_with_constants_beyond_them() -> None:
    for column in (moments("1677-09-22", "2262-04-11", None, unit="ns"), moments("2024-02-29", None, unit="ns")):
        for late in (datetime.datetime(9999, 12, 31), datetime.date(2262, 4, 12), "9999-12-31"):
            assert set(run("<", column, late)) == {True, None}
            assert set(run("=", column, late)) == {False, None}
        assert set(run(">=", column, datetime.datetime(1, 1, 1))) == {True, None}
    instants = moments("2024-02-29", unit="ns").view(pa.timestamp("ns", "UTC"))
    assert run("<", instants, datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)) == [True]
    near = pa.array([1], pa.int64()).view(pa.timestamp("ns"))
    assert run("=", near, datetime.datetime(1970, 1, 1)) == [False]
    with pytest.raises(TypeMismatch, match=r"out of range of timestamp\[ns\]"):
        run("greatest", near, datetime.datetime(9999, 12, 31))


def test_zones_are_names_and_wall_clocks_are_utc() -> None:
    column = moments("2020-07-01T10:00:00")
    for zone in (None, "UTC", "Europe/Berlin"):
        result = run_cast(column.view(pa.timestamp("us", zone)), pa.timestamp("us", "Asia/Tokyo"))
        assert result[0].astimezone(datetime.UTC) == datetime.datetime(2020, 7, 1, 10, tzinfo=datetime.UTC)
    assert run_cast(column.view(pa.timestamp("us", "Asia/Tokyo")), pa.timestamp("us")) == column.to_pylist()


def test_durations_and_times_of_day_change_units() -> None:
    durations = pa.array([1_500, -1_500, None, HIGH], pa.int64()).view(pa.duration("ms"))
    assert run_cast(durations.slice(0, 3), pa.duration("s")) == [
        datetime.timedelta(seconds=2), datetime.timedelta(seconds=-2), None,
    ]  # fmt: skip
    assert run_cast(durations, pa.duration("us"))[3] is None
    clock = pa.array([datetime.time(23, 59, 59, 999_999), None])
    assert run_cast(clock, pa.time32("s")) == [datetime.time(23, 59, 59), None]
    assert run_cast(pa.array([datetime.time(1, 2, 3)], pa.time32("s")), pa.time64("us")) == [datetime.time(1, 2, 3)]


def test_moments_are_written_as_text() -> None:
    column = moments("2020-01-02T03:04:05", "2020-01-02T03:04:05.120000", "2020-01-02T00:00:00.000001", None)
    expected = ["2020-01-02 03:04:05", "2020-01-02 03:04:05.12", "2020-01-02 00:00:00.000001", None]
    assert run_cast(column, pa.string()) == expected
    zoned = column.view(pa.timestamp("us", "Asia/Tokyo"))
    assert run_cast(zoned, pa.string()) == [None if text is None else text + "+00" for text in expected]
    assert run_cast(moments("2020-01-02T03:04:50", unit="s"), pa.string()) == ["2020-01-02 03:04:50"]
    assert run_cast(moments("2020-01-02T03:04:50.1", unit="ns"), pa.large_string()) == ["2020-01-02 03:04:50.1"]
    assert run_cast(pa.array([datetime.date(20, 1, 2), None]), pa.string()) == ["0020-01-02", None]
    assert run_cast(pa.array([2**31 - 1], pa.int32()).view(pa.date32()), pa.string()) == ["5881580-07-11"]
    assert run_cast(pa.array([LOW], pa.int64()).view(pa.timestamp("us")), pa.string()) == [None]
    assert run_cast(moments(), pa.string()) == []


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2020-01-02", "2020-01-02"),
        (" 2020-1-2\t", "2020-01-02"),
        ("2020-01-02T03:04:05", "2020-01-02T03:04:05"),
        ("2020-01-02 03:04:05", "2020-01-02T03:04:05"),
        ("2020-01-02 3:4", "2020-01-02T03:04"),
        ("2020-01-02 03:04:05.123456789", "2020-01-02T03:04:05.123456"),
        ("2020-01-02 03:04:05.9999999", "2020-01-02T03:04:05.999999"),
        ("2020-01-02 03:04:05.5Z", "2020-01-02T03:04:05.5"),
        ("2020-01-02 24:00:00", "2020-01-03"),
        ("0001-01-01", "0001-01-01"),
        ("294247-01-10 04:00:54.775806", "294247-01-10T04:00:54.775806"),
        ("294247-01-11", None),
        ("2020-02-30", None),
        ("2020-13-01", None),
        ("2020-00-01", None),
        ("2020-01-00", None),
        ("2020-01-02 25:00:00", None),
        ("2020-01-02 24:00:01", None),
        ("2020-01-02 10:60:00", None),
        ("2020-01-02 10:00:60", None),
        ("2020-01-02 10", None),
        ("2020-01-02x", None),
        ("", None),
        ("now", None),
    ],
)
def test_moments_are_read_from_text(text: str, moment: str | None) -> None:
    for data_type in (pa.string(), pa.large_string()):
        expected = moments(moment, None).view(pa.int64()).to_pylist()
        column = pa.array([text, None], data_type)
        result = run_cast(column, pa.timestamp("us"))
        assert [None if r is None else e for r, e in zip(result, expected, strict=True)] == expected
        if moment is not None and len(moment) < 30 and not moment.startswith("29"):
            assert result[0] == datetime.datetime.fromisoformat(moment.ljust(10))


def test_dates_are_read_from_text() -> None:
    texts = pa.array(["2024-02-29", " 2024-02-29 10:20:30 ", "2023-02-29", "2024-02-29 99:00", "", None, "9999-12-31"])
    leap = datetime.date(2024, 2, 29)
    assert run_cast(texts, pa.date32()) == [leap, leap, None, None, None, None, datetime.date(9999, 12, 31)]
    assert run_cast(texts, pa.date64()) == [leap, leap, None, None, None, None, datetime.date(9999, 12, 31)]


def test_an_offset_moves_an_instant_and_not_a_wall_clock() -> None:
    texts = pa.array(
        [
            "2020-01-01 10:00:00+02",
            "2020-01-01 10:00:00-0230",
            "2020-01-01T10:00Z",
            "2020-01-01 10:00:00 +02:30",
            "2020-01-01",
        ]
    )
    clocks = [datetime.datetime(2020, 1, 1, 10)] * 4 + [datetime.datetime(2020, 1, 1)]
    assert run_cast(texts, pa.timestamp("us")) == clocks
    hours = [(8, 0), (12, 30), (10, 0), (7, 30), (0, 0)]
    assert run_cast(texts, pa.timestamp("us", "UTC")) == [
        datetime.datetime(2020, 1, 1, h, m, tzinfo=datetime.UTC) for h, m in hours
    ]


def test_other_units_are_read_from_text() -> None:
    texts = pa.array(["2020-01-01 00:00:00.9999996", "3000-01-01", None])
    assert run_cast(texts, pa.timestamp("s"))[0] == datetime.datetime(2020, 1, 1, 0, 0, 1)
    nanoseconds = evaluated([texts], lambda text: cast(cast(text, pa.timestamp("ns")), pa.string()))
    assert nanoseconds == ["2020-01-01 00:00:00.9999996", None, None]
