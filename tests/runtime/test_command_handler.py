"""Commands that anybody could have written: what is wrong with them is refused, and the query continues."""

import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.algebra.plan_json import plan_to_json
from midstream.runtime.messages import Migrate
from tests.spark.simulated import LoneCell, command

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64()})
TEXT = "SELECT a.ts AS a, b.ts AS b FROM a [RANGE 50] a, b [RANGE 50] b WHERE a.k = b.k"
STREAMS = [Stream(name, SCHEMA, "ts") for name in "ab"]
ROWS = {name: pa.table({"ts": [1], "k": [1]}, schema=SCHEMA) for name in "ab"}


@pytest.mark.parametrize("name", ["plan", "strategy", "self", "nonsense"])
def test_options_of_any_name_are_refused(name):
    cell = LoneCell(TEXT, STREAMS, "a b")
    plan = cell.query.plan("b a")
    change = Migrate(plan=plan_to_json(plan), identity=plan.derived_from, strategy="jisc", options={name: 1})
    assert cell.run(ROWS, [command(1, change)]).num_rows == 1
    (outcome,) = cell.durable.figures().commands
    assert (outcome.state, f'"{name}"' in outcome.reason) == ("refused", True)


def test_a_plan_with_other_columns_is_refused():
    cell = LoneCell(TEXT, STREAMS, "a b")
    other = ContinuousQuery("SELECT a.ts FROM a [RANGE 50] a", STREAMS).plan()
    change = Migrate(plan=plan_to_json(other), identity=cell.query.plan().derived_from, strategy="jisc", options={})
    assert cell.run(ROWS, [command(1, change)]).num_rows == 1
    assert [outcome.state for outcome in cell.durable.figures().commands] == ["refused"]


OTHERS = {
    "another condition": TEXT.replace("a.k = b.k", "a.k < b.k"),
    "one condition more": TEXT + " AND a.ts < b.ts",
    "no condition": TEXT.split(" WHERE")[0],
    "other columns under the same names": TEXT.replace("a.ts AS a", "a.k AS a"),
    "distinct": TEXT.replace("SELECT", "SELECT DISTINCT"),
}


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_a_plan_of_another_query_over_the_same_windows_is_refused_whatever_it_says_it_belongs_to(text):
    cell = LoneCell(TEXT, STREAMS, "a b")
    other = ContinuousQuery(text, STREAMS).plan()
    change = Migrate(plan=plan_to_json(other), identity=cell.query.plan().derived_from, strategy="gen-mig", options={})
    assert cell.run(ROWS, [command(1, change)]).num_rows == 1
    (outcome,) = cell.durable.figures().commands
    assert outcome.state == "refused"
    assert "[M2001] the plan computes something else than the query" in outcome.reason
    assert cell.durable.cell.plan == cell.query.plan("a b")
