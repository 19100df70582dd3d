"""The policy of the default plan."""

from __future__ import annotations

import time
from itertools import islice, pairwise

import pyarrow as pa
import pytest

from midstream.algebra.expressions import Expression
from midstream.algebra.functions import call
from midstream.algebra.plan import Item, Plan, Project, Window
from midstream.algebra.stream import Stream
from midstream.algebra.window_spec import WindowSpec
from midstream.planning.default_plan import BALANCED_FROM, default_join_order, default_plan
from midstream.planning.equivalents import equivalent_plans
from midstream.planning.join_order.join_graph import JoinGraph
from midstream.planning.join_order.reorder_joins import join_graphs
from tests.planning.plans import chain_equalities, condition, cross, equal, group, joined, project, value, where, window


def order_of(plan: Plan) -> str:
    return str(default_join_order(JoinGraph.of(plan)))


def test_text_order_where_nothing_tells_the_inputs_apart() -> None:
    assert order_of(joined("c b a", *equal("a.k=b.k", "b.k=c.k"))) == "c b a"


def test_short_windows_come_first() -> None:
    plan = where(cross(window("a", 100), window("b", 50), window("c", 10)), *equal("a.k=b.k", "b.k=c.k"))
    assert order_of(plan) == "c b a"


def test_selective_conditions_come_first() -> None:
    assert order_of(joined("a b c", *equal("a.k=b.k", "b.k=c.k"), condition("c.x", "=", 1))) == "c a b"


def test_linked_inputs_come_before_smaller_ones() -> None:
    plan = where(cross(window("a", 1), window("b", 2), window("c", 100)), *equal("a.k=c.k", "b.x=c.x"))
    assert order_of(plan) == "a c b"


def test_equalities_come_before_comparisons() -> None:
    assert order_of(joined("a b c", condition("a.x", "<", "b.x"), *equal("a.k=c.k", "b.s=c.s"))) == "a c b"


def test_unlinked_parts_are_crossed_last() -> None:
    assert order_of(joined("a b c d", *equal("a.k=c.k", "b.k=d.k"))) == "a c (b d)"


def test_many_inputs_on_one_key_are_joined_in_a_balanced_tree() -> None:
    def depth(count: int) -> int:
        names = [f"r{number}" for number in range(count)]
        order = default_join_order(JoinGraph.of(joined(" ".join(names), *chain_equalities(names))))
        deepest, pending = 0, [(order, 0)]
        while pending:
            node, level = pending.pop()
            deepest = max(deepest, level)
            pending += [(side, level + 1) for side in node.sides or ()]
        return deepest

    assert depth(BALANCED_FROM - 1) == BALANCED_FROM - 2
    assert depth(BALANCED_FROM) == 2
    assert depth(8) == 3
    assert depth(64) == 6
    assert depth(100) <= 8


def test_star_stays_left_deep() -> None:
    names = [f"r{number}" for number in range(20)]
    hub, *rays = names
    order = default_join_order(
        JoinGraph.of(joined(" ".join(names), *(condition(f"{hub}.k", "<", f"{ray}.k") for ray in rays)))
    )
    assert order.is_left_deep


def test_parts_that_only_a_wide_condition_links_are_joined_in_themselves_first() -> None:
    total, other = call("+", value("a.x"), value("b.x")), call("+", value("c.x"), value("d.x"))
    plan = joined("a b c d", call("=", total, other), *equal("a.k=b.k", "c.k=d.k"))
    assert order_of(plan) == "a b (c d)"


def test_selections_and_columns_go_to_the_windows() -> None:
    plan = project(joined("a b", *equal("a.k=b.k"), condition("a.x", "<", 3)), "b.x")
    assert default_plan(plan).explain() == (
        "Project b.x AS b_x\n"
        "└─ Join a.k = b.k\n"
        "   ├─ Project a.k\n"
        "   │  └─ Select a.x < 3\n"
        "   │     └─ Window a [RANGE 10]\n"
        "   └─ Project b.k, b.x\n"
        "      └─ Window b [RANGE 10]"
    )


def hundred(kind: str) -> Plan:
    names = [f"r{number}" for number in range(100)]
    conditions: dict[str, list[Expression]] = {
        "clique": chain_equalities(names),
        "path": equal(*(f"{a}.k={b}.x" for a, b in pairwise(names))),
        "star": [condition("r0.k", "<", f"{name}.k") for name in names[1:]],
        "unlinked": [],
    }
    return project(joined(" ".join(names), *conditions[kind]), "r0.x", "r99.x")


@pytest.mark.parametrize("kind", ["clique", "path", "star", "unlinked"])
def test_default_plan_of_a_hundred_inputs_takes_less_than_two_seconds(kind: str) -> None:
    plan = hundred(kind)
    began = time.perf_counter()
    default = default_plan(plan)
    assert time.perf_counter() - began < 2
    assert default.schema == plan.schema
    assert sorted(next(join_graphs(default)).names) == sorted(f"r{number}" for number in range(100))


@pytest.mark.parametrize("kind", ["clique", "path", "star", "unlinked"])
def test_equivalent_plans_of_a_hundred_inputs_come_at_once(kind: str) -> None:
    plan = hundred(kind)
    began = time.perf_counter()
    found = list(islice(equivalent_plans(plan), 5))
    assert time.perf_counter() - began < 5
    assert len({variant.explain() for variant in found}) == 5


def test_all_columns_of_a_hundred_wide_streams_are_planned_in_less_than_two_seconds() -> None:
    schema = pa.schema({"ts": pa.int64(), "k": pa.int64(), **{f"c{number}": pa.string() for number in range(20)}})
    names = [f"r{number}" for number in range(100)]
    sources = [Window(Stream(name, schema, "ts"), name, WindowSpec(9)) for name in names]
    began = time.perf_counter()
    joins = where(cross(*sources), *chain_equalities(names))
    plan = Project(joins, tuple(Item("", f.column.text, f.column) for f in joins.schema))
    assert default_plan(plan).schema == plan.schema
    assert time.perf_counter() - began < 2


def test_aggregation_over_a_hundred_inputs() -> None:
    names = [f"r{number}" for number in range(100)]
    plan = group(joined(" ".join(names), *chain_equalities(names)), "r0.k", n=("count", None), total=("sum", "r50.x"))
    found = list(islice(equivalent_plans(plan), 4))
    assert all(variant.schema == plan.schema for variant in found)
