"""``midstream run`` from and to Delta tables, ``verify`` and ``vacuum``."""

import datetime
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from midstream.cli.sinks import check_unused, read_sink
from midstream.delta import commits
from midstream.errors import BadArgument, PathProblem
from tests.cli.commanding import call
from tests.delta.writing import OTHER, Driver, names_on_disk

TEXT = (
    "SELECT a.v AS x, b.v AS y, b.day AS day, a.ts AS at FROM a [RANGE 9 SECONDS], b [RANGE 9 SECONDS] WHERE a.k = b.k"
)


def drop(folder):
    noon = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)
    for number in range(2):
        for name in "ab":
            times = [noon + datetime.timedelta(seconds=30 * number + place) for place in range(30)]
            table = pa.table(
                {
                    "ts": pa.array(times, pa.timestamp("us", "UTC")),
                    "k": [place % 4 for place in range(30)],
                    "v": [f"{name}{number}-{place}" for place in range(30)],
                    "day": [datetime.date(2024, 3, 1 + place % 2) for place in range(30)],
                }
            )
            path = folder / name / f"{number}.parquet"
            path.parent.mkdir(exist_ok=True)
            pq.write_table(table, path)
            os.utime(path, (10**9 + number, 10**9 + number))


def test_a_run_into_a_table_is_verified_and_nobody_else_writes_to_it(spark, spark_in, tmp_path, monkeypatch):
    spark_in(tmp_path)
    drop(tmp_path)
    asked = ["run", "-q", TEXT, "-s", "a=a", "-s", "b=b", "--until-end", "-o", "maxFilesPerTrigger=1"]
    sink = ["--sink", "delta:out", "--sink-option", "partition_by=day", "--sink-option", "delta.appendOnly=true"]
    ran = call(*asked, *sink, "--control", "first.control")
    assert ran.code == 0, ran.err
    assert "to compare with DuckDB: midstream verify first.control" in ran.out
    table = DeltaTable("out")
    assert table.metadata().partition_columns == ["day"]
    assert table.metadata().configuration == {"delta.appendOnly": "true"}
    verified = call("verify", "first.control")
    assert verified.code == 0, verified.out + verified.err
    assert verified.out.strip() == f"{table.count():,} results, 0 missing, 0 repeated"
    again = call(*asked, *sink, "--control", "second.control")
    assert (again.code, "already has the results of another run" in again.err) == (1, True)
    assert "--sink-option append=true" in again.err
    # Another driver writes to the table while this one runs.
    monkeypatch.setattr(commits, "epoch_of", lambda table: 77)
    beside = call(*asked, *sink, "--sink-option", "append=true", "--control", "third.control")
    assert beside.code == 1
    assert beside.err.splitlines()[-3].endswith(f"[M3015] another query writes to the table {tmp_path / 'out'}")
    assert "Traceback" not in beside.err


def test_a_run_over_tables_is_verified_by_what_is_in_them(spark, spark_in, tmp_path):
    spark_in(tmp_path)
    drop(tmp_path)
    for name in "ab":
        for number in range(2):
            write_deltalake(f"tables/{name}", pq.read_table(tmp_path / name / f"{number}.parquet"), mode="append")
        DeltaTable(f"tables/{name}").optimize.compact()
        # Neither are files that were rewritten part of a table, nor those that no version names.
        pq.write_table(pq.read_table(tmp_path / name / "0.parquet"), f"tables/{name}/orphan.parquet")
    asked = ["run", "-q", TEXT, "-s", "a=tables/a", "-s", "b=delta:tables/b", "--until-end", "--sink", "delta:out"]
    misspelt = call(*asked, "--schema", "a=ts timestamp, k long, w string", "--control", "misspelt.control")
    assert (misspelt.code, 'column "w" is not in the table' in misspelt.err) == (1, True)
    ran = call(*asked, "--control", "tables.control")
    assert ran.code == 0, ran.err
    verified = call("verify", "tables.control")
    assert verified.code == 0, verified.out + verified.err
    assert verified.out.strip() == f"{DeltaTable('out').count():,} results, 0 missing, 0 repeated"


def test_sink_options_of_a_table():
    for option, words in (
        ("partitionby=day", 'Did you mean "partition_by"'),
        ("append=yes", "append=true or append=false"),
        ("checkpointLocation=x", "has no option"),
    ):
        with pytest.raises(BadArgument, match=words):
            read_sink("delta:out", [option])
    with pytest.raises(BadArgument, match="--sink delta:DIR"):
        read_sink("delta", [])


def test_a_table_with_the_results_of_another_run_is_refused(tmp_path):
    sink = read_sink(f"delta:{tmp_path / 't'}", [])
    check_unused(sink)
    driver = Driver(tmp_path / "t")
    check_unused(sink)
    driver.run(0, 1)
    with pytest.raises(PathProblem, match="already has the results of another run"):
        check_unused(sink)
    check_unused(read_sink(f"delta:{tmp_path / 't'}", ["append=true"]))


def test_vacuum_removes_what_failed_attempts_left(tmp_path):
    driver = Driver(tmp_path / "t")
    (failed,) = driver.write(0, 1)
    driver.run(0, 1)
    (waiting,) = Driver(tmp_path / "t", OTHER).write(0, 2)
    listed = call("vacuum", tmp_path / "t", "--dry-run")
    assert (listed.code, listed.out) == (0, f"1 file of failed attempts found\n  {failed.name}\n")
    assert call("vacuum", f"delta:{tmp_path / 't'}", "--json").document["files"] == [failed.name]
    assert failed.name not in names_on_disk(tmp_path / "t")
    assert waiting.name in names_on_disk(tmp_path / "t")
    assert call("vacuum", tmp_path / "t").out == "0 files of failed attempts removed\n"
    missing = call("vacuum", tmp_path / "u")
    assert (missing.code, "[M5002] there is no Delta table" in missing.err) == (1, True)
