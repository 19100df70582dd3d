"""Values of every type come back from a query as they were, and rows meet by keys of every type that has one.

What is right is what Spark itself says: of its own values, and of a join of its own.
"""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from midstream import ContinuousQuery
from midstream.errors import BadStreamDeclaration, MidstreamError
from midstream.spark import stream

ROWS = 6
ZONE = "America/New_York"

TYPES = {
    "boolean": "i % 2 = 0",
    "byte": "cast(i - 3 as byte)",
    "short": "cast(i * 1000 as short)",
    "int": "cast(i - 2147483648 as int)",
    "long": "9223372036854775807 - i div 2",
    "float": "element_at(array(float('NaN'), float('-0.0'), float('0.0'), float('inf'), float(1.1)), int(i + 1))",
    "double": "element_at(array(double('NaN'), -0.0d, 0.0d, double('-inf'), 1.1d), int(i + 1))",
    "decimal": "cast(i div 2 as decimal(5, 2))",
    "long_decimal": "cast('99999999999999999999999999.123456789' as decimal(38, 9)) - i",
    "text": "element_at(array('', 'a', 'A', 'ä', 'a '), int(i + 1))",
    "binary": "cast(substr('\\0x', 1, int(i)) as binary)",
    "date": "date_add(date'0001-01-01', int(i div 2))",
    # Clocks go back in New York between the second and the third.
    "timestamp": "timestamp'2021-11-07 05:30:00Z' + i * interval '30' minute",
    "old_timestamp": "timestamp'1677-01-01 00:00:00Z' + (i div 2) * interval '0.000001' second",
    "wall_clock": "timestamp_ntz'9999-12-31 23:59:59.999999' - (i div 2) * interval '1' day",
    "time": "cast(element_at(array('00:00:00', '23:59:59.999999', '12:00:00'), int(i div 2 + 1)) as time(6))",
    "days": "make_dt_interval(int(i div 2), 3, 0, 0.000001)",
    "array": "array(i, null, i * 2)",
    "arrays": "array(array(string(i)), null, array(), array(null))",
    "struct": "named_struct('a', i, 'b', if(i = 1, null, array(i)))",
    "structs": "array(named_struct('x', i, 'y', named_struct('z', string(i))), null)",
    "map": "map(string(i), if(i = 2, null, i))",
    "maps": "map(i, array(map('k', named_struct('d', date'2020-01-01'))))",
}
"""A value for each ``i``; for the last one it is NULL."""

NO_KEYS = {"map", "maps", "array", "arrays", "struct", "structs"}


@pytest.fixture(scope="module")
def ids(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ids")
    for number in range(2):
        path = folder / f"{number}.parquet"
        pq.write_table(pa.table({"i": pa.array(range(number, ROWS, 2), pa.int64())}), path)
        os.utime(path, (1e9 + number, 1e9 + number))
    return str(folder)


def with_types(frame):
    columns = [f"if(i = {ROWS - 1}, null, {expression}) as {name}" for name, expression in TYPES.items()]
    return frame.selectExpr("i", *columns)


def values(rows):
    """Rows in an order of their own, NaN and zeros as text."""
    return sorted(repr(tuple(row)) for row in rows)


def test_values_of_every_type_come_back_as_they_were(spark, tmp_path, ids):
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    frame = with_types(spark.readStream.schema("i long").option("maxFilesPerTrigger", 1).parquet(ids))
    streams = [stream(name, frame, "i", lateness=ROWS) for name in "st"]
    columns = ", ".join(f"s.{name}" for name in ["i", *TYPES])
    query = ContinuousQuery(f"SELECT {columns} FROM s [RANGE 10], t [RANGE 10] WHERE s.i = t.i", streams)
    live = query.run_on_spark({"s": frame, "t": frame})
    declared = {field.name: field.dataType.simpleString() for field in frame.schema}
    found = {field.name: field.dataType.simpleString() for field in live.results.schema}
    assert {name: found[name] for name in declared} == declared
    results = {}

    def take(batch, number):
        results[number] = batch.drop("valid_from", "valid_to").collect()

    writer = live.results.writeStream.foreachBatch(take)
    live.run_to_end(writer.option("checkpointLocation", str(tmp_path / "checkpoint")))
    found = [row for rows in results.values() for row in rows]
    expected = with_types(spark.read.parquet(ids)).collect()
    for name in ["i", *TYPES]:
        assert values((row.i, row[name]) for row in found) == values((row.i, row[name]) for row in expected), name


@pytest.mark.parametrize("cells", [1, 3])
def test_rows_meet_by_keys_of_every_type(spark, ids, cells):
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    frame = with_types(spark.read.parquet(ids))
    streams = [stream(name, frame, "i") for name in "st"]
    names = [name for name in TYPES if name not in NO_KEYS]
    text = " UNION ALL ".join(
        f"SELECT '{name}' AS q, s.i AS i, t.i AS j FROM s [RANGE 10], t [RANGE 10] WHERE s.{name} = t.{name}"
        for name in names
    )
    live = ContinuousQuery(text, streams).run_on_spark({"s": frame, "t": frame}, cells=cells)
    assert live.partitioning.cells == cells
    s, t = frame.alias("s"), frame.alias("t")
    pairs = [
        s.join(t, F.col(f"s.{name}") == F.col(f"t.{name}")).select(F.lit(name), F.col("s.i"), F.col("t.i"))
        for name in names
    ]
    expected = values(row for pair in pairs for row in pair.collect())
    assert values(live.results.select("q", "i", "j").collect()) == expected


@pytest.mark.parametrize("name", sorted(NO_KEYS))
def test_other_types_are_no_keys(spark, ids, name):
    frame = with_types(spark.read.parquet(ids))
    streams = [stream(name, frame, "i") for name in "st"]
    with pytest.raises(MidstreamError, match=name):
        ContinuousQuery(f"SELECT s.i FROM s [RANGE 10], t [RANGE 10] WHERE s.{name} = t.{name}", streams)


@pytest.mark.parametrize("cells", [1, 3])
def test_groups_by_keys_of_every_type(spark, ids, cells):
    frame = with_types(spark.read.parquet(ids))
    declared = stream("s", frame, "i")
    names = [name for name in TYPES if name not in NO_KEYS]
    text = " UNION ALL ".join(
        f"SELECT '{name}' AS q, COUNT(*) AS n FROM s [RANGE UNBOUNDED] GROUP BY {name}" for name in names
    )
    results = ContinuousQuery(text, [declared]).run_on_spark({"s": frame}, cells=cells).results
    # How many are in each group at the end.
    last = results.where("valid_to is null").select("q", "n").collect()
    counts = [frame.groupBy(name).count().select(F.lit(name), "count").collect() for name in names]
    assert values(last) == values(row for rows in counts for row in rows)


@pytest.mark.parametrize("expression", ["make_ym_interval(1, 3)", "make_interval(1, 2)", "'a' collate UNICODE_CI"])
def test_types_that_cannot_be_carried_are_refused(spark, expression):
    frame = spark.range(3).selectExpr("id as i", f"{expression} as v")
    with pytest.raises(BadStreamDeclaration, match='column "v" of stream "s"'):
        stream("s", frame, "i")
