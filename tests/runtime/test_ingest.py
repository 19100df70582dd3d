"""Ingest: every row gets its tick or is counted among those that have none; late is older than the watermark before."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.algebra.stream import Stream
from midstream.algebra.window_spec import NEVER
from midstream.engine.operators.operator import BEGINNING
from midstream.errors import MissingColumn, PushedTypeMismatch, UnknownStreamPushed
from midstream.runtime.ingest import Ingest

examples = settings(derandomize=True, deadline=None, max_examples=80, database=None)

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
LIMIT = 2**62


def ingest_of(data_type: pa.DataType, lateness: int | str = 0) -> Ingest:
    return Ingest({"s": Stream("s", pa.schema({"ts": data_type, "n": pa.int64()}), "ts", lateness)})


def table(times: list, data_type: pa.DataType) -> pa.Table:
    return pa.table({"ts": pa.array(times, data_type), "n": pa.array(range(len(times)), pa.int64())})


def ticks(times: list, data_type: pa.DataType) -> tuple[list[int], list[int], Ingest]:
    """The ticks of the rows that have one, which rows these are, and the ingest."""
    ingest = ingest_of(data_type)
    rows = ingest.accept(ingest.check({"s": table(times, data_type)}))["s"]
    assert rows.times.dtype == np.int64
    assert rows.columns["ts"].equals(pa.array([times[i] for i in rows.columns["n"].to_pylist()], data_type))
    return rows.times.tolist(), rows.columns["n"].to_pylist(), ingest


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize(("unit", "factor"), [("s", 1_000_000), ("ms", 1000), ("us", 1)])
def test_timestamps_become_microseconds(unit, factor, zone):
    values = [-1_000_001, -1, 0, 1, 999_999, 1_600_000_000]
    assert ticks(values, pa.timestamp(unit, zone))[0] == [value * factor for value in values]


def test_nanoseconds_are_rounded_down_also_before_1970():
    values = [-1_000_001, -1_000_000, -1001, -1000, -999, -1, 0, 1, 999, 1000, 1999, INT64_MIN + 1, INT64_MAX]
    assert ticks(values, pa.timestamp("ns"))[0] == [value // 1000 for value in values]


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_whole_numbers_are_their_own_ticks(bits):
    signed, unsigned = getattr(pa, f"int{bits}")(), getattr(pa, f"uint{bits}")()
    top = min(2 ** (bits - 1) - 1, LIMIT)
    assert ticks([-top, -1, 0, 1, top], signed)[0] == [-top, -1, 0, 1, top]
    top = min(2**bits - 1, LIMIT - 1)
    assert ticks([0, 1, top], unsigned)[0] == [0, 1, top]


@pytest.mark.parametrize(
    ("data_type", "inside", "outside"),
    [
        (pa.int64(), [-LIMIT, LIMIT], [-LIMIT - 1, LIMIT + 1, INT64_MIN, INT64_MAX]),
        (pa.uint64(), [LIMIT - 1, LIMIT], [LIMIT + 1, 2**63 - 1, 2**63, 2**64 - 1]),
        (pa.timestamp("us"), [-LIMIT, LIMIT], [-LIMIT - 1, LIMIT + 1, INT64_MIN, INT64_MAX]),
        (pa.timestamp("ms"), [LIMIT // 1000, -(LIMIT // 1000)], [LIMIT // 1000 + 1, INT64_MIN, INT64_MAX]),
        (pa.timestamp("s"), [LIMIT // 10**6, -(LIMIT // 10**6)], [-(LIMIT // 10**6) - 1, INT64_MIN, INT64_MAX]),
    ],
    ids=str,
)
def test_times_outside_the_ticks_are_dropped_and_counted(data_type, inside, outside):
    times, numbers, ingest = ticks([*inside, None, *outside], data_type)
    assert numbers == list(range(len(inside)))
    assert len(times) == len(inside)
    counters = ingest.counters["s"]
    assert counters.rows == len(inside) + 1 + len(outside)
    assert (counters.without_event_time, counters.event_time_out_of_range, counters.late) == (1, len(outside), 0)


@pytest.mark.parametrize("data_type", [pa.int64(), pa.uint64(), pa.timestamp("s"), pa.timestamp("us")], ids=str)
def test_times_outside_the_ticks_move_no_watermark(data_type):
    ingest = ingest_of(data_type)
    ingest.accept(ingest.check({"s": table([INT64_MAX, None], data_type)}))
    assert ingest.advance(None) == BEGINNING


def test_nulls_are_dropped_and_counted_and_their_slots_say_nothing():
    values = pa.array([5, 7, 9], pa.int64(), mask=np.array([False, True, False]))
    ingest = ingest_of(pa.int64())
    rows = ingest.accept(ingest.check({"s": pa.table({"ts": values, "n": [0, 1, 2]})}))["s"]
    assert rows.times.tolist() == [5, 9]
    assert rows.columns["n"].to_pylist() == [0, 2]


@pytest.mark.parametrize("data_type", [pa.int64(), pa.timestamp("ns"), pa.timestamp("s")], ids=str)
def test_slices_and_chunks_are_read_where_they_are(data_type):
    whole = table([1000, 2000, 3000, 4000, 5000], data_type)
    pushed = pa.concat_tables([whole.slice(1, 2), whole.slice(4, 1)])
    ingest = ingest_of(data_type)
    rows = ingest.accept(ingest.check({"s": pushed}))["s"]
    factor = {"int64": 1000, "timestamp[ns]": 1, "timestamp[s]": 10**9}[str(data_type)]
    assert rows.times.tolist() == [2 * factor, 3 * factor, 5 * factor]
    assert rows.columns["n"].to_pylist() == [1, 2, 4]


@examples
@given(
    st.lists(st.tuples(st.lists(st.integers(-30, 30), max_size=8), st.integers(-30, 30) | st.none()), max_size=8),
    st.integers(0, 10),
)
def test_late_is_older_than_the_watermark_before_the_push(pushes, lateness):
    ingest = ingest_of(pa.int64(), lateness)
    watermark, latest, late, rows = BEGINNING, None, 0, 0
    for times, heartbeat in pushes:
        accepted = ingest.accept(ingest.check({"s": table(times, pa.int64())}))["s"]
        assert accepted.times.tolist() == [time for time in times if time >= watermark]
        late += sum(time < watermark for time in times)
        rows += len(times)
        latest = max([*times, *([] if latest is None else [latest])], default=None)
        said = (
            [watermark] + ([] if latest is None else [latest - lateness]) + ([] if heartbeat is None else [heartbeat])
        )
        assert ingest.advance(heartbeat) >= watermark
        watermark = max(said)
        assert ingest.watermark == watermark
        assert (ingest.counters["s"].late, ingest.counters["s"].rows) == (late, rows)


def two_streams() -> Ingest:
    schema = pa.schema({"ts": pa.int64(), "n": pa.int64()})
    return Ingest({"a": Stream("a", schema, "ts"), "b": Stream("b", schema, "ts", lateness=5)})


def test_the_watermark_is_that_of_the_slowest_stream():
    ingest = two_streams()
    ingest.accept(ingest.check({"a": table([100], pa.int64())}))
    assert ingest.advance(None) == BEGINNING
    ingest.accept(ingest.check({"b": table([50], pa.int64())}))
    assert ingest.advance(None) == 45
    ingest.accept(ingest.check({"b": table([300], pa.int64())}))
    assert ingest.advance(None) == 100
    assert ingest.advance(NEVER) == NEVER


def test_lateness_cannot_carry_the_watermark_before_the_beginning_of_time():
    ingest = ingest_of(pa.int64(), NEVER - 1)
    ingest.accept(ingest.check({"s": table([-LIMIT], pa.int64())}))
    assert ingest.advance(None) == BEGINNING


def test_a_table_that_does_not_fit_changes_nothing():
    ingest = two_streams()
    good, bad = table([5], pa.int64()), pa.table({"ts": pa.array([1], pa.int32()), "n": [1]})
    with pytest.raises(PushedTypeMismatch, match="M4"):
        ingest.check({"a": good, "b": bad})
    with pytest.raises(UnknownStreamPushed, match='stream "c" is not one'):
        ingest.check({"a": good, "c": good})
    with pytest.raises(MissingColumn, match='column "n" of stream "a" is missing'):
        ingest.check({"a": good.select(["ts"])})
    with pytest.raises(MissingColumn, match="more than once"):
        ingest.check({"a": pa.Table.from_arrays([*good.columns, good["n"]], ["ts", "n", "n"])})
    for tables in ([good], {"a": [1, 2]}):
        with pytest.raises(PushedTypeMismatch):
            ingest.check(tables)
    assert ingest.advance(None) == BEGINNING
    assert ingest.counters["a"].rows == 0


def test_columns_in_any_order_and_more_than_declared_are_taken():
    ingest = ingest_of(pa.int64())
    pushed = pa.table({"more": ["x"], "n": [7], "ts": [3]})
    rows = ingest.accept(ingest.check({"s": pushed.to_batches()[0]}))["s"]
    assert rows.times.tolist() == [3]
    assert {name: column.to_pylist() for name, column in rows.columns.items()} == {"ts": [3], "n": [7]}


def test_encoded_columns_are_read_as_their_values():
    ingest = Ingest({"s": Stream("s", pa.schema({"ts": pa.timestamp("us"), "x": pa.string()}), "ts")})
    moment = datetime.datetime(1970, 1, 1, 0, 0, 1)
    pushed = pa.table(
        {"ts": pa.array([moment], pa.timestamp("us")).dictionary_encode(), "x": pa.array(["k"]).dictionary_encode()}
    )
    rows = ingest.accept(ingest.check({"s": pushed}))["s"]
    assert rows.times.tolist() == [1_000_000]
    assert rows.columns["x"].equals(pa.array(["k"]))
    rows = ingest.accept(ingest.check({"s": pa.table({"ts": pa.array([moment]), "x": pa.nulls(1)})}))["s"]
    assert rows.columns["x"].equals(pa.nulls(1, pa.string()))
