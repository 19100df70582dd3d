"""``midstream explain``: plans by name, without Spark."""

import os

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from midstream import ContinuousQuery
from midstream.cli.explain import declared
from midstream.cli.plan_names import name_of, plan_named
from midstream.cli.schemas import schema_from_ddl
from midstream.cli.sources import stream_sources
from midstream.errors import BadPlan
from tests.cli.commanding import TEXT, call


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = pa.table({"ts": [1, 2], "id": [1, 2]})
    for name in ("orders", "payments"):
        (tmp_path / name).mkdir()
    pq.write_table(table, "orders/1.parquet")
    pa_csv.write_csv(table, "payments/1.csv")
    (tmp_path / "shipments.json").write_text('{"ts": 1, "id": 2}\n')
    (tmp_path / "q.cql").write_text(TEXT)
    return tmp_path


STREAMS = ("-s", "orders=orders", "-s", "payments=payments", "-s", "shipments=shipments.json")


def test_the_columns_are_found_in_files_of_every_format(folder):
    called = call("explain", "q.cql", *STREAMS, "--plan", "o (p s)", "--cells", 4)
    assert (called.code, called.err) == (0, "")
    assert "└─ Join o.id = p.id" in called.out
    assert "4 cells: 4 by o.id = p.id = s.id" in called.out


def test_every_plan_has_a_name_that_means_it(folder):
    document = call("explain", "q.cql", *STREAMS, "--plans", "--json").document
    assert [plan["name"] for plan in document["plans"]] == ["o p s", "o s p", "o (p s)"]
    # A DISTINCT below a join is no join order.
    text = "SELECT DISTINCT o.id FROM orders [RANGE 600] o, payments [RANGE 600] p WHERE o.id = p.id"
    query = ContinuousQuery(text, [declared(s) for s in stream_sources(["orders=orders", "payments=payments"])])
    plans = list(query.plans())
    names = [name_of(query, plan, number) for number, plan in enumerate(plans, start=1)]
    assert names == ["o p", "#2"]
    assert [plan_named(query, name) for name in names] == plans
    for name in ("#0", "#3"):
        with pytest.raises(BadPlan, match=f"no plan {name}"):
            plan_named(query, name)


def test_types_of_spark_are_read_without_spark():
    ddl = "a long, b timestamp, c timestamp_ntz, d array<struct<x: int, y: string>>, `e f` decimal(9,2) not null"
    assert schema_from_ddl(ddl, "s") == pa.schema(
        {
            "a": pa.int64(),
            "b": pa.timestamp("us", "UTC"),
            "c": pa.timestamp("us"),
            "d": pa.list_(pa.struct({"x": pa.int32(), "y": pa.string()})),
            "e f": pa.decimal128(9, 2),
        }
    )


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "the query is missing"),
        (["q.cql", "-q", "SELECT 1"], 2, "the query is given twice"),
        (["no.cql", *STREAMS], 1, 'cannot read the query file "no.cql": no such file'),
        (["SELECT ts FROM orders", *STREAMS], 1, "Pass the text of a query with --query"),
        (["q.cql", "-s", "orders=orders"], 1, '[M1003] stream "payments"'),
        (["-q", "SELECT o.idd FROM orders [NOW] o", *STREAMS], 1, 'Did you mean "id"?'),
        (["-q", "SELECT o.id FROM orders [NOW] o", *STREAMS, "--event-time", "orders=tz"], 1, '"tz" does not exist'),
        (["q.cql", *STREAMS, "--plan", "o (p x)"], 1, '[M2002] join order "o (p x)" names "x"'),
        (["q.cql", "-s", "orders=kafka"], 1, 'the columns of stream "orders" are not known'),
        (["q.cql", "-s", "orders=orders/2.parquet"], 1, "cannot read"),
        (["--no-such-option"], 2, "No such option"),
    ],
)
def test_what_is_wrong_is_one_message_and_an_exit_code(folder, arguments, code, said):
    (folder / "orders" / "2.parquet").write_bytes(b"PAR1 is not enough")
    called = call("explain", *arguments)
    assert said in called.err
    assert "Traceback" not in called.err
    assert called.out == ""
    assert called.code == code or (code == 1 and called.code == 2 and "M5001" in called.err)


def test_a_failure_is_a_document_for_machines_and_a_traceback_for_authors(folder):
    called = call("explain", "-q", "SELECT x FROM orders [NOW]", *STREAMS, "--json")
    assert called.code == 1
    assert called.document["error"]["code"] == "M1004"
    assert "[M1004]" in called.err
    assert "Traceback" in call("explain", "-q", "SELECT x FROM orders [NOW]", *STREAMS, "--debug").err


def test_a_named_pipe_among_the_data_keeps_nobody_waiting(tmp_path):
    (tmp_path / "b.csv").write_text("ts,k\n1,2\n")
    # The first by name.
    os.mkfifo(tmp_path / "a.csv")
    called = call("explain", "--query", "SELECT k FROM s [NOW]", "--stream", f"s=csv:{tmp_path}")
    assert (called.code, "k" in called.out) == (0, True), called.err
