"""Results of a cell as parquet files: complete, within bounds, and with statistics that do not mislead."""

import datetime
import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream.delta import file_statistics, result_files
from midstream.delta.commits import TableWriter
from midstream.delta.delta_types import delta_schema
from midstream.delta.file_names import FileName
from midstream.delta.location import TableLocation
from midstream.delta.result_files import ResultFile, ResultTarget, results_as_files
from midstream.delta.table import prepare_table
from midstream.errors import PathProblem
from tests.delta.writing import APPLICATION

NAN, DAY = float("nan"), datetime.date(2024, 2, 29)


def target(path, partition_by=(), batch=0):
    return ResultTarget(TableLocation.of(path), APPLICATION, 1, batch, 0, tuple(partition_by))


def written(batches, path, partition_by=()):
    return list(results_as_files(batches, target(path, partition_by)))


def read(files, path):
    return pa.concat_tables(pq.read_table(path / file.name) for file in files)


def statistics(column, path, data_type=None):
    (file,) = written([pa.record_batch([pa.array(column, data_type)], ["x"])], path)
    found = json.loads(file.statistics)
    assert found["numRecords"] == len(column)
    assert found["nullCount"] == {"x": sum(value is None for value in column)}
    if "minValues" not in found:
        return None
    assert found["minValues"].keys() == found["maxValues"].keys()
    return found["minValues"].get("x"), found["maxValues"].get("x")


def test_rows_come_back_as_they_were_in_their_order(tmp_path):
    batches = [pa.record_batch({"k": np.arange(start, start + 1000), "s": ["x"] * 1000}) for start in (0, 1000)]
    (file,) = written(batches, tmp_path)
    assert read([file], tmp_path).equals(pa.Table.from_batches(batches))
    assert file.rows == 2000
    assert file.size == (tmp_path / file.name).stat().st_size
    assert FileName.parsed(file.name) == FileName(APPLICATION, 1, 0, 0)
    assert written([], tmp_path) == []
    assert written([batches[0].slice(0, 0)], tmp_path) == []


def test_whatever_is_no_result_passes_through(tmp_path):
    passed = written([pa.record_batch({"k": [1]}), "figures"], tmp_path)
    assert passed[0] == "figures"
    assert isinstance(passed[1], ResultFile)


def test_rows_are_buffered_within_bounds(tmp_path, monkeypatch):
    monkeypatch.setattr(result_files, "GROUP_ROWS", 250)
    monkeypatch.setattr(result_files, "MOST_BYTES", 4_000)
    monkeypatch.setattr(result_files, "FILE_BYTES", 8_000)
    random = np.random.default_rng(1)
    batches = [pa.record_batch({"k": random.integers(0, 1 << 60, 100)}) for _ in range(50)]
    files = written(batches, tmp_path)
    assert len(files) > 3
    assert max(file.size for file in files) < 16_000
    groups = [pq.read_metadata(tmp_path / file.name) for file in files]
    assert max(group.row_group(place).num_rows for group in groups for place in range(group.num_row_groups)) <= 250
    assert read(files, tmp_path).equals(pa.Table.from_batches(batches))
    wide = written([pa.record_batch({"s": ["x" * 3_000]})] * 5, tmp_path)
    assert pq.read_metadata(tmp_path / wide[0].name).num_row_groups > 1


def test_an_attempt_that_fails_removes_its_files(tmp_path, monkeypatch):
    monkeypatch.setattr(result_files, "FILE_BYTES", 1)
    monkeypatch.setattr(result_files, "GROUP_ROWS", 1)

    def failing():
        yield pa.record_batch({"k": [1]})
        yield pa.record_batch({"k": [2]})
        assert list(tmp_path.iterdir())
        raise RuntimeError("the cell failed")

    with pytest.raises(RuntimeError):
        written(failing(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_partition_has_files_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(result_files, "MOST_OPEN", 2)
    days = [DAY, None, DAY + datetime.timedelta(1)]
    batch = pa.record_batch({"day": [days[i % 3] for i in range(12)], "room": list("aab") * 4, "k": range(12)})
    files = written([batch, batch], tmp_path, ["room", "day"])
    assert {(file.partition["room"], file.partition["day"]) for file in files} == {
        ("a", "2024-02-29"), ("a", None), ("b", "2024-03-01"),
    }  # fmt: skip
    assert all(pq.read_schema(tmp_path / file.name).names == ["k"] for file in files)
    assert all(file.name.startswith(f"room={file.partition['room']}/day=") for file in files)
    first = [file for file in files if file.partition["day"] == "2024-02-29"]
    assert read(first, tmp_path).column("k").to_pylist() == [0, 3, 6, 9] * 2
    assert sum(file.rows for file in files) == 24


PARTITIONS = {
    "whole numbers": pa.array([1, 2, None], pa.uint16()),
    "text": pa.array(["a b/c=d%é", "x", None]),
    "dates": pa.array([DAY, DAY, None]),
    "truth values": pa.array([True, False, None]),
    "instants": pa.array([0, 1_234_567, None], pa.timestamp("us", "Europe/Paris")),
    "wall clock times": pa.array([0, 1_234_567, None], pa.timestamp("us")),
    "decimals": pa.array([Decimal("1.50"), Decimal("-2.00"), None]),
}


@pytest.mark.parametrize("column", PARTITIONS.values(), ids=PARTITIONS)
def test_partition_values_come_back_from_the_table(tmp_path, column):
    batch = pa.record_batch({"p": column, "k": [0, 1, 2]})
    location, schema = TableLocation.of(tmp_path / "t"), delta_schema(batch.schema)
    table = prepare_table(location, schema, ["p"])
    TableWriter(table, location, schema, ["p"], APPLICATION, 1).commit(0, written([batch], tmp_path / "t", ["p"]))
    table.update_incremental()
    found = table.to_pyarrow_table().sort_by("k").column("p").combine_chunks()
    assert found.to_pylist() == column.cast(schema.field("p").type).to_pylist()


STATISTICS = {
    "whole numbers": ([3, None, -1], None, (-1, 3)),
    "wide whole numbers": ([2**63 - 1, -(2**63)], pa.int64(), (-(2**63), 2**63 - 1)),
    "unsigned numbers that need a decimal": ([2**64 - 1], pa.uint64(), (2**64 - 1, 2**64 - 1)),
    "floats": ([1.5, -0.5, None], None, (-0.5, 1.5)),
    "floats with a NaN": ([1.5, NAN], None, None),
    "floats without end": ([1.5, float("inf")], None, None),
    "decimals": ([Decimal("1.25"), Decimal("-9.00")], None, (-9.0, 1.25)),
    "dates": ([DAY, None], None, ("2024-02-29", "2024-02-29")),
    "instants": ([1, 2], pa.timestamp("ms", "UTC"), ("1970-01-01T00:00:00.001000Z", "1970-01-01T00:00:00.002000Z")),
    "wall clock times": ([1], pa.timestamp("s"), ("1970-01-01T00:00:01.000000",) * 2),
    "times that calendars lack": ([1 << 60], pa.timestamp("us"), None),
    "short text": (["b", "ä"], None, ("b", "ä")),
    "long text": (["x" * 40], None, ("x" * 32, "x" * 31 + "y")),
    "text without a successor": (["\U0010ffff" * 40], None, None),
    "truth values": ([True, False], None, (False, True)),
    "binary": ([b"x"], None, (None, None)),
    "NULLs": ([None, None], pa.int64(), (None, None)),
}


@pytest.mark.parametrize(("column", "data_type", "bounds"), STATISTICS.values(), ids=STATISTICS)
def test_statistics_bound_the_values_or_say_nothing(tmp_path, column, data_type, bounds):
    assert statistics(column, tmp_path, data_type) == bounds


def test_a_long_text_is_bounded_above_by_one_that_is_later():
    for text in ("a" * 40, "퟿" * 40, "\U0010ffff" * 31 + "a" * 9, "a" + "\U0010ffff" * 39):
        upper = file_statistics._upper(text)
        assert upper.encode() > text.encode()
        assert len(upper) <= 32


def test_decimals_are_exact_in_the_log(tmp_path):
    column = pa.array([Decimal("12345678901234567890.12")], pa.decimal128(38, 2))
    (file,) = written([pa.record_batch([column], ["x"])], tmp_path)
    assert '"minValues":{"x":12345678901234567890.12}' in file.statistics


def test_either_all_columns_have_bounds_or_none_has(tmp_path):
    """delta-rs would skip a file in which only some have."""
    batch = pa.record_batch({"k": [1, 2], "x": [1.5, NAN], "none": pa.nulls(2, pa.int64()), "l": [[1], [2]]})
    (file,) = written([batch], tmp_path)
    assert json.loads(file.statistics) == {"numRecords": 2, "nullCount": {"k": 0, "x": 0, "none": 2}}
    (file,) = written([batch.slice(0, 1)], tmp_path)
    assert json.loads(file.statistics)["minValues"] == {"k": 1, "x": 1.5}


def test_bounds_are_those_of_all_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(result_files, "GROUP_ROWS", 2)
    batches = [pa.record_batch({"x": pa.array(values, pa.int64())}) for values in ([5, 6], [None, None], [1, 2])]
    (file,) = written(batches, tmp_path)
    found = json.loads(file.statistics)
    assert (found["minValues"], found["maxValues"], found["nullCount"]) == ({"x": 1}, {"x": 6}, {"x": 2})
    assert pq.read_metadata(tmp_path / file.name).num_row_groups == 3


def test_rows_of_a_rare_partition_do_not_keep_the_others(tmp_path):
    target = ResultTarget(TableLocation.of(tmp_path), "9f" * 16, 1, 0, 0, ("p",))
    rows = 20_000
    before = pa.total_allocated_bytes()

    def batches():
        for _ in range(40):
            yield pa.record_batch({"p": ["rare"] + ["usual"] * (rows - 1), "x": np.arange(rows)})
            held.append(pa.total_allocated_bytes() - before)

    held: list[int] = []
    list(results_as_files(batches(), target))
    assert max(held) < result_files.GROUP_ROWS * 8 * 4


def test_what_storage_refuses_is_reported(tmp_path):
    (tmp_path / "t").write_text("a file where a directory should be")
    target = ResultTarget(TableLocation.of(tmp_path / "t"), "9f" * 16, 1, 0, 0)
    with pytest.raises(PathProblem, match="cannot write files of the table"):
        list(results_as_files([pa.record_batch({"x": [1]})], target))
