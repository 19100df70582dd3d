"""The equivalence checks accept what is equal and reject everything else."""

import time
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from midstream.testing import SnapshotSeries, assert_same_bag, assert_snapshot_equivalent, join_intervals, snapshots


def intervals(*rows: tuple[Any, int, int | None], kind: pa.DataType | None = None) -> pa.Table:
    values, starts, ends = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        [pa.array(values, kind), pa.array(starts, pa.int64()), pa.array(ends, pa.int64())],
        names=["x", "valid_from", "valid_to"],
    )


BASE = intervals(("a", 1, 5), ("a", 3, None), ("b", 2, 4))


@pytest.mark.parametrize(
    "other",
    [
        intervals(("b", 2, 4), ("a", 3, None), ("a", 1, 5)),
        intervals(("a", 1, 3), ("a", 3, 5), ("a", 3, None), ("b", 2, 4)),
        intervals(("a", 1, None), ("a", 3, 5), ("b", 2, 3), ("b", 3, 4)),
        intervals(("a", 1, 5), ("a", 3, 7), ("a", 7, None), ("b", 2, 4), ("z", 4, 4), ("z", 6, 5)),
    ],
    ids=["order", "cut", "exchanged ends", "empty intervals"],
)
def test_equal_snapshots_are_accepted(other: pa.Table) -> None:
    assert_snapshot_equivalent(other, BASE)
    assert_snapshot_equivalent(BASE, other)


@pytest.mark.parametrize(
    ("other", "instant"),
    [
        (intervals(("a", 1, 5), ("a", 3, None)), 2),
        (intervals(("a", 1, 5), ("a", 3, None), ("b", 2, 4), ("b", 2, 4)), 2),
        (intervals(("a", 1, 5), ("a", 3, None), ("b", 2, 5)), 4),
        (intervals(("a", 1, 5), ("a", 3, None), ("b", 1, 4)), 1),
        (intervals(("a", 1, 5), ("a", 3, 1000), ("b", 2, 4)), 1000),
        (intervals(("a", 1, 5), ("c", 3, None), ("b", 2, 4)), 3),
        (intervals(("a", 1, 5), (None, 3, None), ("b", 2, 4)), 3),
        (intervals(kind=pa.string()), 1),
    ],
    ids=["missing", "duplicate", "late end", "early start", "ends at all", "wrong value", "null", "empty"],
)
def test_different_snapshots_are_rejected_both_ways(other: pa.Table, instant: int) -> None:
    for actual, expected in ((other, BASE), (BASE, other)):
        with pytest.raises(AssertionError, match=f"differ first at instant {instant},"):
            assert_snapshot_equivalent(actual, expected)


def test_the_message_shows_the_rows_missing_and_too_many() -> None:
    with pytest.raises(AssertionError) as failure:
        assert_snapshot_equivalent(
            intervals(("a", 1, 5), ("c", 2, 4), ("c", 2, 9)), intervals(("a", 1, 5), ("b", 2, 4))
        )
    assert str(failure.value).splitlines() == [
        "snapshots differ first at instant 2, and so until 4",
        "  missing:  ('b')",
        "  too many: ('c') x 2",
    ]


def test_the_message_is_short() -> None:
    many = intervals(*((f"{number}" * 500, 1, 2) for number in range(100)))
    with pytest.raises(AssertionError) as failure:
        assert_snapshot_equivalent(many, intervals(kind=pa.string()))
    assert "and 96 more different rows" in str(failure.value)
    assert len(str(failure.value)) < 1500


EQUAL_VALUES = [
    (float("nan"), float("nan"), pa.float64(), pa.float64()),
    (-0.0, 0.0, pa.float64(), pa.float64()),
    (0.1 + 0.2, 0.3, pa.float64(), pa.float64()),
    (1e300 * (1 + 1e-12), 1e300, pa.float64(), pa.float64()),
    (3, 3.0, pa.int64(), pa.float64()),
    (3, 3, pa.int8(), pa.int64()),
    (3, Decimal("3.00"), pa.int64(), pa.decimal128(10, 2)),
    (2**64 - 1, Decimal(2**64 - 1), pa.uint64(), pa.decimal128(20, 0)),
    (Decimal("1.50"), Decimal("1.5000"), pa.decimal128(10, 2), pa.decimal128(20, 4)),
    ("a", "a", pa.string(), pa.large_string()),
    (1_000, 1_000_000, pa.timestamp("ms"), pa.timestamp("us")),
    (None, None, pa.int64(), pa.null()),
]


def single(value: Any, kind: pa.DataType) -> pa.Table:
    return pa.table([pa.array([value], kind), pa.array([1]), pa.array([2])], names=["x", "valid_from", "valid_to"])


@pytest.mark.parametrize(("left", "right", "left_type", "right_type"), EQUAL_VALUES, ids=repr)
def test_equal_values_are_equal_in_any_type(left: Any, right: Any, left_type: Any, right_type: Any) -> None:
    assert_snapshot_equivalent(single(left, left_type), single(right, right_type))
    assert_same_bag(single(left, left_type), single(right, right_type))


def test_nested_values_are_compared() -> None:
    kind = pa.list_(pa.struct({"x": pa.int64(), "y": pa.float64()}))
    value = [{"x": 2**53 + 1, "y": float("nan")}, None, {"x": None, "y": -0.0}]
    assert_snapshot_equivalent(single(value, kind), single([*value[:2], {"x": None, "y": 0.0}], kind))
    with pytest.raises(AssertionError):
        assert_snapshot_equivalent(single(value, kind), single([{"x": 2**53, "y": float("nan")}, *value[1:]], kind))


@pytest.mark.parametrize(
    ("left", "right", "kind"),
    [
        (2**53, 2**53 + 1, pa.int64()),
        (2**64 - 1, 2**64 - 2, pa.uint64()),
        (1.0, 1.0 + 1e-6, pa.float64()),
        (float("inf"), float("-inf"), pa.float64()),
        (float("nan"), None, pa.float64()),
        (Decimal("0.10"), Decimal("0.11"), pa.decimal128(38, 2)),
        ("", None, pa.string()),
        (b"a", b"b", pa.binary()),
        (True, False, pa.bool_()),
        ([1], [1, None], pa.list_(pa.int64())),
    ],
    ids=repr,
)
def test_different_values_are_different(left: Any, right: Any, kind: pa.DataType) -> None:
    with pytest.raises(AssertionError):
        assert_snapshot_equivalent(single(left, kind), single(right, kind))
    with pytest.raises(AssertionError):
        assert_same_bag(single(left, kind), single(right, kind))


def test_columns_are_compared_by_position_and_counted() -> None:
    renamed = BASE.rename_columns(["other", "valid_from", "valid_to"])
    assert_snapshot_equivalent(renamed, BASE)
    with pytest.raises(AssertionError, match="2 columns, expected 1"):
        assert_snapshot_equivalent(BASE.append_column("y", BASE.column("x")), BASE)


def test_a_result_without_validity_is_refused() -> None:
    with pytest.raises(AssertionError, match="no column 'valid_to'"):
        assert_snapshot_equivalent(BASE.drop_columns(["valid_to"]), BASE)


def test_timestamps_as_validity_are_ticks() -> None:
    micro, zoned = pa.timestamp("us"), pa.timestamp("us", "UTC")
    for kind in (micro, zoned):
        columns = [BASE.column("x"), BASE.column("valid_from").cast(kind), BASE.column("valid_to").cast(kind)]
        assert_snapshot_equivalent(pa.table(columns, names=BASE.column_names), BASE)


def test_same_bag_counts_duplicates_and_intervals() -> None:
    assert_same_bag(BASE.take([2, 0, 1]), BASE)
    for wrong in (BASE.take([0, 1]), BASE.take([0, 1, 2, 2]), intervals(("a", 1, 6), ("a", 3, None), ("b", 2, 4))):
        with pytest.raises(AssertionError, match="results differ"):
            assert_same_bag(wrong, BASE)


def test_snapshot_series_are_compared_between_their_instants() -> None:
    series = SnapshotSeries((1, 3), pa.table({"t": [1, 3, 3], "x": ["a", "a", "b"]}))
    assert_snapshot_equivalent(intervals(("a", 1, None), ("b", 3, None)), series)
    with pytest.raises(AssertionError, match="instant 2,"):
        assert_snapshot_equivalent(intervals(("a", 1, 2), ("a", 3, None), ("b", 3, None)), series)
    with pytest.raises(AssertionError, match="instant 0,"):
        assert_snapshot_equivalent(intervals(("a", 0, None), ("b", 3, None)), series)


def test_sampled_series_are_compared_at_their_instants_only() -> None:
    series = SnapshotSeries((1, 3), pa.table({"t": [1, 3, 3], "x": ["a", "a", "b"]}), sampled=True)
    assert_snapshot_equivalent(intervals(("a", 0, 2), ("a", 3, 4), ("b", 3, 9)), series)
    with pytest.raises(AssertionError, match="sampled instant 3"):
        assert_snapshot_equivalent(intervals(("a", 0, 2), ("b", 3, 9)), series)


def test_a_thousand_rows_are_compared_quickly() -> None:
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    stream = SimpleNamespace(name="s", schema=schema, event_time="ts")
    random = np.random.default_rng(1)
    table = pa.table({"ts": random.integers(0, 2000, 1000), "k": random.integers(0, 50, 1000)})
    text = "SELECT x.ts, y.ts, x.k FROM s [RANGE 100] x, s [RANGE 200] y WHERE x.k = y.k"
    result, series = join_intervals(text, [stream], {"s": table}), snapshots(text, [stream], {"s": table})
    started = time.process_time()
    assert_snapshot_equivalent(result, series)
    with pytest.raises(AssertionError):
        assert_snapshot_equivalent(result.slice(1), series)
    assert time.process_time() - started < 10
