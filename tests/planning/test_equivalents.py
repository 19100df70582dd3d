"""All plans that the rules reach."""

from __future__ import annotations

from midstream.algebra.plan import Aggregate, Alias, Difference, Distinct, Plan
from midstream.planning.default_plan import default_plan
from midstream.planning.equivalents import equivalent_plans
from midstream.planning.join_order.reorder_joins import join_graphs
from tests.planning.plans import condition, cross, equal, group, joined, project, where, window


def side(alias: str) -> Plan:
    return project(window(alias), f"{alias}.k")


def test_default_plan_comes_first() -> None:
    plan = project(joined("a b c", *equal("a.k=b.k", "b.k=c.k"), condition("c.x", "=", 1)), "a.x")
    assert next(equivalent_plans(plan)) == default_plan(plan)


def test_plan_without_joins_has_itself() -> None:
    plan = project(where(window("a"), condition("a.x", "<", 3)), "a.x")
    assert list(equivalent_plans(plan)) == [plan]


def test_join_of_four_has_fifteen_orders() -> None:
    plan = project(joined("a b c d", *equal("a.k=b.k", "b.k=c.k", "c.k=d.k")), "a.x")
    orders = [str(next(join_graphs(variant)).order.without_sides()) for variant in equivalent_plans(plan)]
    assert len(orders) == len(set(orders)) == 15


def test_each_order_comes_with_its_variants() -> None:
    plan = Distinct(project(joined("a b c", *equal("a.k=b.k", "b.k=c.k")), "a.x"))
    counts = [sum(isinstance(node, Distinct) for node in variant.walk()) for variant in equivalent_plans(plan)]
    assert counts == [1, 4] * 3
    plan = group(joined("a b c", *equal("a.k=b.k", "b.k=c.k")), "b.x", n=("count", None))
    counts = [sum(isinstance(node, Aggregate) for node in variant.walk()) for variant in equivalent_plans(plan)]
    assert counts == [1, 2] * 3


def test_blocks_are_combined() -> None:
    inner = Alias(project(joined("a b c", *equal("a.k=b.k", "b.k=c.k")), "a.k"), "s")
    outer = where(cross(inner, window("d"), window("e")), condition("s.a_k", "=", "d.k"), condition("d.k", "=", "e.k"))
    found = [tuple(str(g.order) for g in join_graphs(p)) for p in equivalent_plans(project(outer, "d.x"))]
    assert len(found) == len(set(found)) == 9
    assert [inner for _, inner in found[:3]] == [found[0][1]] * 3


def test_differences_are_reordered() -> None:
    plan: Plan = side("a")
    for alias in "bcd":
        plan = Difference(plan, side(alias), "all")
    found = list(equivalent_plans(plan))
    assert len({variant.explain() for variant in found}) == len(found) == 6
    assert len({variant.identity for variant in found}) == 1


def test_differences_of_two_kinds_are_not_reordered() -> None:
    plan = Difference(Difference(side("a"), side("b"), "all"), side("c"), "distinct")
    assert list(equivalent_plans(plan)) == [plan]
