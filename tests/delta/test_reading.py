"""What other engines read from a table is what was written, also where they skip files by statistics."""

import datetime
from decimal import Decimal

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from midstream.delta.commits import TableWriter
from midstream.delta.delta_types import delta_schema
from midstream.delta.location import TableLocation
from midstream.delta.result_files import ResultTarget, results_as_files
from midstream.delta.table import prepare_table
from tests.delta.writing import APPLICATION

ROWS = 120
ROOMS = ["a", "b", None, "ü/ =%"]


def rows(batch):
    numbers = range(batch * ROWS, batch * ROWS + ROWS)
    return pa.record_batch(
        {
            "room": [ROOMS[n % 4] for n in numbers],
            "n": pa.array(numbers, pa.uint64()),
            # Only the second file has a NaN: it has no bounds.
            "x": [float("nan") if n == ROWS + 5 else n / 2 for n in numbers],
            "s": ["x" * (n % 50) for n in numbers],
            "bytes": [bytes([n % 256]) for n in numbers],
            "is_even": [n % 2 == 0 for n in numbers],
            "price": [Decimal(n) / 4 for n in numbers],
            "day": [datetime.date(2024, 1, 1) + datetime.timedelta(n) for n in numbers],
            "at": pa.array([n * 1_000_001 for n in numbers], pa.timestamp("us", "Europe/Paris")),
            "parts": [{"p": n} for n in numbers],
            "list": [[n] for n in numbers],
            "valid_to": pa.nulls(ROWS, pa.int64()),
        }
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("reading") / "t"
    location, schema = TableLocation.of(path), delta_schema(rows(0).schema)
    writer = TableWriter(prepare_table(location, schema, ["room"]), location, schema, ["room"], APPLICATION, 1)
    for batch in range(3):
        target = ResultTarget(location, APPLICATION, 1, batch, 0, ("room",))
        list(results_as_files([rows(batch)], target))
        writer.commit(batch, list(results_as_files([rows(batch)], target)))
    return path


def written(path, columns):
    """A table of one file with these columns, as Arrow reads it."""
    rows = pa.record_batch(columns)
    location, schema = TableLocation.of(path), delta_schema(rows.schema)
    writer = TableWriter(prepare_table(location, schema), location, schema, (), APPLICATION, 1)
    writer.commit(0, list(results_as_files([rows], ResultTarget(location, APPLICATION, 1, 0, 0))))
    return DeltaTable(path).to_pyarrow_dataset()


def test_pandas(path):
    frame = DeltaTable(path).to_pandas()
    assert len(frame) == 3 * ROWS
    assert int(frame["n"].sum()) == sum(range(3 * ROWS))
    assert frame["room"].isna().sum() == 3 * ROWS // 4
    assert str(frame["at"].dtype) == "datetime64[us, UTC]"


CONDITIONS = {
    "n >= 350": 10,
    # To DuckDB, as to Spark, NaN is larger than anything.
    "x > 178": 4,
    "x < 60.5 AND n > 118": 2,
    "is_even": 180,
    "s = '" + "x" * 45 + "'": 7,
    "room = 'ü/ =%' AND n < 8": 2,
    "room IS NULL": 90,
    "price = 30.25": 1,
    "day = DATE '2024-01-03'": 1,
    "valid_to IS NULL": 360,
    "bytes = '\\x05'::BLOB": 2,
    "parts.p = 121": 1,
    "\"at\" < TIMESTAMPTZ '1970-01-01 00:00:03+00'": 3,
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_duckdb(path, condition):
    results = DeltaTable(path).to_pyarrow_dataset()
    ((count,),) = duckdb.connect().execute(f"SELECT count(*) FROM results WHERE {condition}").fetchall()
    assert count == CONDITIONS[condition]
    assert results.count_rows() == 3 * ROWS


def test_filters_of_arrow(path):
    table = DeltaTable(path).to_pyarrow_dataset()
    assert table.count_rows(filter=ds.field("x") > 178) == 3
    assert table.count_rows(filter=ds.field("is_even")) == 180
    assert table.count_rows(filter=ds.field("bytes") == b"\x05") == 2
    assert table.count_rows(filter=ds.field("n") == pa.scalar(Decimal(125), pa.decimal128(20, 0))) == 1


def test_polars(path):
    found = polars.scan_delta(str(path)).filter(polars.col("n") >= 350).collect()
    assert found["room"].null_count() == 3
    assert sorted(int(n) for n in found["n"]) == list(range(350, 360))


@pytest.mark.parametrize("scale", [2, 7, 18, 37])
def test_bounds_of_decimals_have_no_exponent(tmp_path, scale):
    """delta-rs reads such a bound as NULL, and skips the file."""
    unit = Decimal(1).scaleb(-scale)
    there = written(tmp_path / "t", {"p": pa.array([0 * unit, unit, 7 * unit], pa.decimal128(38, scale))})
    assert there.count_rows(filter=ds.field("p") >= pa.scalar(unit, pa.decimal128(38, scale))) == 2
    assert there.count_rows(filter=ds.field("p") == pa.scalar(0 * unit, pa.decimal128(38, scale))) == 1


def test_structs_are_null_where_they_are(tmp_path):
    parts = pa.array([None, {"q": 1, "r": [1]}, {"q": None, "r": None}])
    results = written(tmp_path / "t", {"k": [1, 2, 3], "p": parts})
    connection = duckdb.connect()
    connection.register("results", results)
    for condition, count in {"p IS NULL": 1, "p IS NOT NULL": 2, "p.q = 1": 1, "p.q IS NULL": 2, "k = 2": 1}.items():
        ((found,),) = connection.execute(f"SELECT count(*) FROM results WHERE {condition}").fetchall()
        assert found == count, condition


@pytest.mark.parametrize("names", [("a.b", "a"), ("a", "a.b")])
def test_columns_named_like_a_part_of_another_keep_their_statistics(tmp_path, names):
    parts = pa.array([{"b": None, "c": None}] * 2, pa.struct({"b": pa.int64(), "c": pa.int64()}))
    columns = {"a.b": [1, 2], "a": parts}
    results = written(tmp_path / "t", {name: columns[name] for name in names})
    assert polars.scan_delta(str(tmp_path / "t")).filter(polars.col("a.b") == 1).collect().height == 1
    connection = duckdb.connect()
    connection.register("results", results)
    assert connection.execute('SELECT count(*) FROM results WHERE "a.b" IS NOT NULL').fetchall() == [(2,)]


def test_columns_that_only_the_table_has_are_null(tmp_path):
    schema = pa.schema({"k": pa.int64(), "price": pa.decimal128(38, 2)})
    more = [pa.field("more", pa.int64()), pa.field("nested", pa.list_(pa.int64()))]
    DeltaTable.create(tmp_path / "t", schema=pa.schema([*schema, *more]))
    location = TableLocation.of(tmp_path / "t")
    writer = TableWriter(prepare_table(location, schema), location, schema, (), APPLICATION, 1)
    target = ResultTarget(location, APPLICATION, 1, 0, 0)
    # More digits than a float has: rounded bounds would hide the row.
    prices = [Decimal("12345678901234567890.12"), Decimal("-12345678901234567890.12")]
    rows = pa.record_batch({"k": [1, 2], "price": prices}, schema=schema)
    writer.commit(0, list(results_as_files([rows], target)))
    there = DeltaTable(tmp_path / "t").to_pyarrow_dataset()
    assert there.count_rows(filter=ds.field("more").is_null()) == 2
    assert there.count_rows(filter=ds.field("more") == 1) == 0
    for price, condition in zip(prices, (pc.greater_equal, pc.less_equal), strict=True):
        bound = pa.scalar(price, pa.decimal128(38, 2))
        assert there.count_rows(filter=condition(ds.field("price"), bound)) == 1
    assert there.count_rows(filter=(ds.field("k") == 2) & ds.field("more").is_null()) == 1
