"""``midstream verify`` below Spark: what is missing, repeated or wrong is found and counted."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream import ContinuousQuery, Stream
from midstream.cli import verify
from midstream.cli.schemas import check_columns
from midstream.errors import MissingColumn
from midstream.runtime.stream_counters import StreamCounters

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64()})
STREAMS = [Stream(name, SCHEMA, "ts") for name in "ab"]
JOIN = "SELECT a.ts AS x, b.ts AS y FROM a [RANGE 20], b [RANGE 20] WHERE a.k = b.k"
COUNT = "SELECT k, COUNT(*) AS n FROM a [RANGE 20] GROUP BY k"


def ran(text: str, rows: int):
    """A finished run in this process, as verify sees one: the query, its input and its result."""
    random = np.random.default_rng(5)
    query = ContinuousQuery(text, STREAMS)
    read = {window.stream.name for window in query.plan().windows()}
    tables = {
        name: pa.table({"ts": np.sort(random.integers(0, 300, rows)), "k": random.integers(0, 5, rows)}, SCHEMA)
        for name in sorted(read)
    }
    run = query.run_locally()
    results = pa.concat_tables([run.push(tables), run.finish()])
    streams = [stream for stream in STREAMS if stream.name in read]
    return SimpleNamespace(query=SimpleNamespace(text=text, streams=streams)), tables, results


def test_joins_are_compared_row_by_row():
    remote, tables, results = ran(JOIN, 200)
    verdict = verify._rows_compared(remote, tables, results)
    assert verdict.is_same
    assert verdict.sentence == f"{results.num_rows:,} results, 0 missing, 0 repeated"
    wrong = results.slice(0, 1).set_column(0, "x", pa.array([-1], results.schema.field("x").type))
    verdict = verify._rows_compared(remote, tables, pa.concat_tables([results.slice(2), results.slice(2, 1), wrong]))
    assert not verdict.is_same
    assert verdict.sentence.endswith("2 missing, 1 repeated, 1 that should not be there")
    assert any("missing: " in line for line in verdict.examples)


@pytest.mark.parametrize(("most", "words"), [(10**9, "at all"), (100, "at a sample of 20 instants")])
def test_aggregates_are_compared_as_snapshots(monkeypatch, most, words):
    monkeypatch.setattr(verify, "SNAPSHOT_WORK", most)
    remote, tables, results = ran(COUNT, 150)
    verdict = verify._snapshots_compared(remote, tables, results)
    assert verdict.is_same
    assert words in verdict.sentence
    verdict = verify._snapshots_compared(remote, tables, results.slice(results.num_rows // 2))
    assert not verdict.is_same
    assert "snapshots differ first at" in verdict.sentence


def test_rows_that_came_later_are_mentioned():
    _, tables, _ = ran(COUNT, 10)
    metrics = SimpleNamespace(streams={"a": StreamCounters(rows=8, late=3)})
    assert verify._remarks(metrics, tables) == [
        "3 rows of a were late and dropped by the query.",
        "The query read 8 rows of a; now there are 10.",
    ]


def test_a_declared_column_that_no_parquet_file_has_is_missed(tmp_path):
    """Spark would read it as NULL."""
    pq.write_table(pa.table({"ts": [1], "price": [2]}), tmp_path / "a.parquet")
    check_columns("s", pa.schema({"TS": pa.int64()}), tmp_path / "a.parquet")
    with pytest.raises(MissingColumn, match=r'(?s)column "prise" of stream "s".*Did you mean "price"'):
        check_columns("s", pa.schema({"prise": pa.int64()}), tmp_path / "a.parquet")
