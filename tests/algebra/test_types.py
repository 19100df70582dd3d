"""At which type two values meet."""

from __future__ import annotations

import pyarrow as pa
import pytest

from midstream.algebra.types import common_type, decimal_type, dense_type, is_comparable, timestamp_zone_clash


@pytest.mark.parametrize(
    ("left", "right", "meeting"),
    [
        (pa.int8(), pa.int8(), pa.int8()),
        (pa.int8(), pa.int16(), pa.int64()),
        (pa.uint8(), pa.int64(), pa.int64()),
        (pa.uint8(), pa.uint32(), pa.uint64()),
        (pa.uint64(), pa.int64(), pa.decimal128(20, 0)),
        (pa.int64(), pa.float32(), pa.float64()),
        (pa.float32(), pa.float32(), pa.float32()),
        (pa.decimal128(10, 2), pa.float64(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(8, 4), pa.decimal128(12, 4)),
        (pa.decimal128(38, 0), pa.decimal128(38, 10), pa.decimal256(48, 10)),
        (pa.int32(), pa.decimal128(5, 2), pa.decimal128(12, 2)),
        (pa.string(), pa.string(), pa.string()),
        (pa.string(), pa.large_string(), pa.large_string()),
        (pa.binary(), pa.large_binary(), pa.large_binary()),
        (pa.date32(), pa.date64(), pa.date64()),
        (pa.date32(), pa.timestamp("ms"), pa.timestamp("ms")),
        (pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("ns")),
        (pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
        (pa.duration("s"), pa.duration("ms"), pa.duration("ms")),
        (pa.time32("s"), pa.time64("ns"), pa.time64("ns")),
        (pa.bool_(), pa.bool_(), pa.bool_()),
        (pa.null(), pa.string(), pa.string()),
    ],
)
def test_types_of_one_family_meet(left: pa.DataType, right: pa.DataType, meeting: pa.DataType) -> None:
    assert common_type(left, right) == meeting
    assert common_type(right, left) == meeting


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.string(), pa.int64()),
        (pa.bool_(), pa.int64()),
        (pa.string(), pa.binary()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.date32(), pa.timestamp("us", "UTC")),
        (pa.date32(), pa.int32()),
        (pa.list_(pa.int64()), pa.list_(pa.int64())),
    ],
)
def test_types_of_different_families_do_not_meet(left: pa.DataType, right: pa.DataType) -> None:
    assert common_type(left, right) is None
    assert common_type(right, left) is None


def test_nested_types_are_not_comparable() -> None:
    assert is_comparable(pa.timestamp("us"))
    assert not is_comparable(pa.struct({"a": pa.int64()}))


def test_encodings_do_not_count() -> None:
    assert dense_type(pa.dictionary(pa.int32(), pa.string())) == pa.string()
    assert dense_type(pa.run_end_encoded(pa.int32(), pa.int64())) == pa.int64()


def test_instants_and_wall_clock_times_clash() -> None:
    assert timestamp_zone_clash(pa.timestamp("us"), pa.timestamp("us", "UTC"))
    assert not timestamp_zone_clash(pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin"))


def test_decimals_widen_to_at_most_76_digits() -> None:
    assert decimal_type(38, 2) == pa.decimal128(38, 2)
    assert decimal_type(90, 2) == pa.decimal256(76, 2)
