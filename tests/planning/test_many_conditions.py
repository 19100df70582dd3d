"""Queries with thousands of conditions: read, planned, written as JSON and run, in time proportional to the text."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.algebra.expressions import Column, conjunction, conjuncts
from midstream.algebra.functions import call
from midstream.algebra.plan import Plan, Select, Window
from midstream.algebra.plan_json import plan_from_json, plan_to_json
from midstream.algebra.window_spec import WindowSpec
from midstream.planning.partitioning import partition
from midstream.planning.rules import ALWAYS

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "x": pa.int64()})
STREAMS = [Stream(name, SCHEMA, "ts") for name in "ab"]
ROWS = pa.table({"ts": [1, 2], "k": [1, 2], "x": [-1, 7]})

FORMS: dict[str, Callable[[int], str]] = {
    "and": lambda n: "SELECT a.x FROM a [RANGE 5] WHERE " + " AND ".join(f"x <> {i}" for i in range(n)),
    "or": lambda n: "SELECT a.x FROM a [RANGE 5] WHERE " + " OR ".join(f"x = {i - n}" for i in range(n)),
    "both streams": lambda n: (
        "SELECT a.x FROM a [RANGE 5], b [RANGE 5] WHERE a.k = b.k AND "
        + " AND ".join(f"a.x + b.x <> {i}" for i in range(n))
    ),
    "equalities": lambda n: (
        "SELECT a.x FROM a [RANGE 5], b [RANGE 5] WHERE a.x < 0 AND "
        + " AND ".join(f"a.k + {i} = b.k + {i}" for i in range(n))
    ),
    "one class": lambda n: (
        "SELECT a.x FROM a [RANGE 5], b [RANGE 5] WHERE a.x < 0 AND a.k = b.k AND "
        + " AND ".join(f"a.k = b.k + b.x - b.x + {i} - {i}" for i in range(n))
    ),
    "ON": lambda n: (
        "SELECT a.x FROM a [RANGE 5] JOIN b [RANGE 5] ON a.k = b.k AND a.x < 0 AND "
        + " AND ".join(f"a.x + b.x <> {i}" for i in range(n))
    ),
    "HAVING": lambda n: (
        "SELECT x FROM a [RANGE 5] GROUP BY x HAVING x < 0 AND "
        + " AND ".join(f"COUNT(*) <> {i + 9}" for i in range(n))
    ),
    "subquery": lambda n: f"SELECT q.x FROM ({FORMS['and'](n)}) q WHERE " + " AND ".join(f"x <> {i}" for i in range(n)),
}


@pytest.mark.parametrize("form", ["and", "or", "both streams", "HAVING"])
def test_five_thousand_conditions_run(form: str) -> None:
    query = ContinuousQuery(FORMS[form](5000), STREAMS)
    plan = query.plan()
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan
    assert plan.explain()
    partition(plan, cells=4)
    run = query.run_locally()
    table = run.push({"a": ROWS, **({"b": ROWS} if " b " in query.text else {})})
    assert [*table.column("x").to_pylist(), *run.finish().column("x").to_pylist()] == [-1]


@pytest.mark.parametrize("form", FORMS)
def test_planning_time_is_proportional_to_the_conditions(form: str) -> None:
    few, many = (_calls(lambda n=n: ContinuousQuery(FORMS[form](n), STREAMS).plan().identity) for n in (250, 1000))
    assert many < 5 * few


@pytest.mark.parametrize("rule", ALWAYS, ids=lambda rule: rule.__name__)
def test_a_rule_takes_time_proportional_to_the_conditions(rule: Callable[[Plan], Plan]) -> None:
    column = Column("a", "x", pa.int64())

    def chain(length: int) -> Plan:
        plan: Plan = Window(STREAMS[0], "a", WindowSpec(5))
        for _ in range(length // 10):
            plan = Select(plan, conjunction([call("<>", column, call("negate", column))] * 10))
        return plan

    plans = chain(500), chain(2000)
    few, many = (_calls(lambda plan=plan: rule(plan)) for plan in plans)
    assert many < 5 * few


def test_a_chain_of_conditions_nests_as_deep_as_its_logarithm() -> None:
    query = ContinuousQuery(FORMS["and"](4096), STREAMS)
    (select,) = (node for node in query.plan().walk() if isinstance(node, Select))
    assert [str(part) for part in conjuncts(select.predicate)] == [f"a.x <> {i}" for i in range(4096)]
    depth, level = 0, [select.predicate]
    while level := [argument for part in level for argument in part.arguments]:
        depth += 1
    assert depth == 13


def _calls(work: Callable[[], object]) -> int:
    """How many Python functions the work calls: unlike its time, the same on every machine."""
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
