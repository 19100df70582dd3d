"""What each rule does to typical plans, drawn in golden/<rule>.txt.

``MIDSTREAM_UPDATE_GOLDEN=1 pytest tests/planning/test_rules.py`` writes the files anew; read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from midstream.algebra.aggregates import aggregate_call
from midstream.algebra.expressions import Cast, Column, Literal
from midstream.algebra.functions import call
from midstream.algebra.plan import (
    Aggregate,
    Alias,
    Difference,
    Distinct,
    Item,
    Join,
    NamedAggregate,
    Plan,
    Project,
    Select,
    Union,
    Window,
)
from midstream.algebra.stream import Stream
from midstream.algebra.window_spec import WindowSpec
from midstream.planning import rules
from midstream.planning.rules import RULES, Rule
from tests.planning.plans import column, condition, cross, equal, group, items, joined, project, value, where, window

GOLDEN = Path(__file__).parent / "golden"

SMALL, LARGE = condition("a.x", "<", 3), condition("a.x", ">", 5)
FLOATS = Window(
    Stream("f", pa.schema({"ts": pa.int64(), "k": pa.int64(), "v": pa.float64()}), "ts"), "f", WindowSpec(9)
)
F_V = Column("f", "v", pa.float64())
NESTED = Window(
    Stream("l", pa.schema({"ts": pa.int64(), "k": pa.int64(), "list": pa.list_(pa.int64())}), "ts"), "l", WindowSpec(9)
)
NO_LIST = call("is_null", NESTED.schema[2].column)
V_AS_TEXT = Cast(F_V, pa.string())


def side(alias: str, width: int = 10) -> Plan:
    return project(window(alias, width), f"{alias}.k", f"{alias}.x")


def subquery(plan: Plan, name: str) -> Plan:
    return Alias(plan, name)


def grouped() -> Plan:
    return group(window("a"), "a.k", n=("count", None), total=("sum", "a.x"))


def floats_by_text() -> Plan:
    return Select(
        Distinct(Project(FLOATS, (Item("", "v", F_V),))),
        call("=", Cast(Column("", "v", pa.float64()), pa.string()), Literal("0.0", pa.string())),
    )


def having(plan: Plan, text: str, comparison: str, number: int) -> Plan:
    return where(plan, condition(text, comparison, number))


AB = joined("a b", *equal("a.k=b.k"))
ABC = joined("a b c", *equal("a.k=b.k", "b.k=c.k"))

CASES: dict[str, dict[str, Callable[[], Plan]]] = {
    "split_conjunctions": {
        "two conditions": lambda: where(window("a"), SMALL, LARGE),
        "three conditions above an aggregation": lambda: where(
            grouped(), condition("n", ">", 1), condition("total", ">", 2), condition("a_k", "=", 3)
        ),
        "an OR stays whole": lambda: where(window("a"), call("or", SMALL, LARGE)),
    },
    "merge_selections": {
        "two selections": lambda: where(where(window("a"), SMALL), LARGE),
        "the same condition twice": lambda: where(where(window("a"), SMALL), SMALL, LARGE),
        "TRUE is dropped": lambda: where(where(window("a"), SMALL), Literal(True, pa.bool_())),
        "a projection between them": lambda: having(project(where(window("a"), SMALL), "a.x"), "a_x", ">", 5),
    },
    "push_down_selections": {
        "to inputs and joins": lambda: joined("a b c", *equal("a.k=b.k", "b.x=c.x"), SMALL, condition("c.k", "=", 1)),
        "implied equalities connect what is joined first": lambda: where(
            Join(Join(window("a"), window("c"), ()), window("b"), ()), *equal("a.k=b.k", "b.k=c.k")
        ),
        "two members of a class on one input": lambda: joined("a b", *equal("a.k=b.k", "a.x=b.k")),
        "an OR across inputs": lambda: joined(
            "a b c", call("or", condition("a.x", "=", 1), condition("b.x", "=", 2)), *equal("a.k=c.k")
        ),
        "a sum over two inputs": lambda: joined(
            "a b c", condition(call("+", value("a.x"), value("b.x")), "=", "c.x"), *equal("a.k=c.k")
        ),
        "a condition without columns": lambda: joined("a b", condition(1, "=", 2), *equal("a.k=b.k")),
        "through a projection": lambda: having(
            Project(window("a"), (Item("", "y", call("+", value("a.x"), value(1))),)), "y", "<", 3
        ),
        "into a subquery": lambda: where(
            cross(subquery(project(window("a"), "a.k", "a.x"), "s"), window("b")),
            condition("s.a_x", "<", 3),
            condition("s.a_k", "=", "b.k"),
        ),
        "through distinct and union": lambda: having(Distinct(Union(side("a"), side("b"))), "a_x", "<", 3),
        "into both sides of a difference": lambda: having(Difference(side("a"), side("b"), "all"), "a_x", "<", 3),
        "keys pass an aggregation, results do not": lambda: where(
            grouped(), condition("a_k", "=", 1), condition("n", ">", 2)
        ),
        "HAVING FALSE without keys": lambda: where(
            group(window("a"), "", n=("count", None)), Literal(False, pa.bool_())
        ),
        "0.0 and -0.0 differ as texts": floats_by_text,
    },
    "push_down_projections": {
        "inputs of joins": lambda: project(
            Join(Select(window("a"), SMALL), window("b"), tuple(equal("a.k=b.k"))), "a.k", "b.x"
        ),
        "a subquery": lambda: project(
            Join(subquery(side("a"), "s"), window("b"), (condition("s.a_k", "=", "b.k"),)), "b.x"
        ),
        "aggregates nobody reads": lambda: project(
            Join(subquery(grouped(), "s"), window("b"), (condition("s.a_k", "=", "b.k"),)), "b.x", "s.n"
        ),
        "a row needs a column": lambda: group(cross(window("a"), window("b")), "", n=("count", None)),
        "distinct needs all its columns": lambda: Project(
            subquery(Distinct(side("a")), "s"), (Item("", "k", column("s.a_k")),)
        ),
        "difference needs all its columns": lambda: Project(
            subquery(Difference(side("a"), side("b"), "all"), "s"), (Item("", "k", column("s.a_k")),)
        ),
    },
    "reorder_differences": {
        "the larger first": lambda: Difference(Difference(side("a"), side("b", 5), "all"), side("c", 50), "all"),
        "EXCEPT too": lambda: Difference(
            Difference(side("a"), side("b", 5), "distinct"), side("c", 50), "distinct"
        ),
        "equally large ones stay": lambda: Difference(Difference(side("a"), side("b"), "all"), side("c"), "all"),
        "not across kinds": lambda: Difference(
            Difference(side("a"), side("b", 5), "all"), side("c", 50), "distinct"
        ),
    },
    "push_distinct_below_join": {
        "the upper distinct stays": lambda: Distinct(project(AB, "a.x", "b.x")),
        "dropped where an equality determines the rest": lambda: Distinct(project(AB, "a.k", "a.x", "b.x")),
        "dropped without a projection": lambda: Distinct(AB),
        "an input without duplicates": lambda: Distinct(
            project(Join(subquery(grouped(), "s"), window("b"), (condition("s.a_k", "=", "b.k"),)), "s.n", "b.x")
        ),
        "no join": lambda: Distinct(side("a")),
        "an input with a nested column stays": lambda: Distinct(
            Project(Join(NESTED, window("b"), (call("or", NO_LIST, condition("b.x", "=", "l.k")),)), items("b.x"))
        ),
        "0.0 and -0.0 differ as texts": lambda: Distinct(
            Project(Join(FLOATS, window("b"), (condition("f.k", "=", "b.k"),)), (Item("", "t", V_AS_TEXT),))
        ),
    },
    "push_partial_aggregate_below_join": {
        "count and sum": lambda: group(AB, "b.x", n=("count", None), total=("sum", "a.x")),
        "the smallest part with all arguments": lambda: Aggregate(
            ABC,
            items("c.x"),
            (NamedAggregate("both", aggregate_call("sum", call("*", value("a.x"), value("b.x")))),),
        ),
        "count alone": lambda: group(
            where(cross(window("a", 5), window("b", 50)), *equal("a.k=b.k")), "a.x", n=("count", None)
        ),
        "minimum of the other side": lambda: group(AB, "b.x", total=("sum", "a.x"), least=("min", "b.k")),
        "an expression as key": lambda: Aggregate(
            AB,
            (Item("", "bucket", call("%", value("a.x"), value(10))),),
            (NamedAggregate("n", aggregate_call("count", column("a.s"))),),
        ),
        "no keys": lambda: group(cross(window("a"), window("b")), "", n=("count", "a.x")),
        "arguments of both sides": lambda: group(AB, "", one=("sum", "a.x"), other=("sum", "b.x")),
        "average is rounded once": lambda: group(AB, "b.x", mean=("avg", "a.x")),
        "float sums are rounded once": lambda: Aggregate(
            Join(FLOATS, window("b"), (condition("f.k", "=", "b.k"),)),
            items("b.x"),
            (NamedAggregate("total", aggregate_call("sum", F_V)),),
        ),
        "distinct aggregates": lambda: Aggregate(
            AB, items("b.x"), (NamedAggregate("n", aggregate_call("count", column("a.x"), distinct=True)),)
        ),
    },
}  # fmt: skip

NAMED = [(rule, name) for rule in CASES for name in CASES[rule]]


def rule_called(name: str) -> Rule:
    return next(rule for rule in RULES if rule.__name__ == name)


def drawn(rule: str) -> str:
    parts = []
    for name, make in CASES[rule].items():
        plan = make()
        after = rule_called(rule)(plan).explain()
        before = plan.explain()
        parts.append(f"# {name}\n\n{before}\n\n=> {'unchanged' if after == before else chr(10) + chr(10) + after}\n")
    return "\n".join(parts).replace("=> \n\n", "=>\n\n")


def test_every_rule_is_a_file_of_its_own_name() -> None:
    folder = Path(rules.__file__).parent
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == {rule.__name__ for rule in RULES}


@pytest.mark.parametrize("rule", CASES)
def test_rule_draws_as_in_its_golden_file(rule: str) -> None:
    path = GOLDEN / f"{rule}.txt"
    if os.environ.get("MIDSTREAM_UPDATE_GOLDEN"):
        path.write_text(drawn(rule), encoding="utf-8")
    assert drawn(rule) == path.read_text(encoding="utf-8")


def test_every_rule_has_a_golden_file() -> None:
    assert {rule.__name__ for rule in RULES} == set(CASES) == {path.stem for path in GOLDEN.glob("*.txt")}


@pytest.mark.parametrize(("rule", "case"), NAMED)
def test_rule_keeps_the_schema(rule: str, case: str) -> None:
    plan = CASES[rule][case]()
    assert rule_called(rule)(plan).schema == plan.schema


@pytest.mark.parametrize(("rule", "case"), NAMED)
@pytest.mark.parametrize("other", RULES, ids=lambda rule: rule.__name__)
def test_every_rule_keeps_the_schema_of_every_case(rule: str, case: str, other: Rule) -> None:
    plan = CASES[rule][case]()
    assert other(plan).schema == plan.schema


def test_a_rule_gives_the_same_object_where_it_has_nothing_to_do() -> None:
    plan = Distinct(side("a"))
    for rule in RULES:
        assert rule(plan) is plan, rule.__name__
