"""Which SELECT of a query a join order speaks of."""

from __future__ import annotations

import pytest

from midstream.algebra.plan import Alias, Distinct, Plan, Union
from midstream.errors import BadJoinOrder
from midstream.planning.default_plan import default_plan
from midstream.planning.equivalents import equivalent_plans
from midstream.planning.join_order.plan_with_join_order import plan_with_join_order
from midstream.planning.join_order.reorder_joins import join_graphs
from tests.planning.plans import condition, cross, equal, joined, project, where, window


def orders(plan: Plan) -> list[str]:
    return [str(graph.order) for graph in join_graphs(plan)]


def three() -> Plan:
    return project(joined("a b c", *equal("a.k=b.k", "b.k=c.k")), "a.x", "c.x")


def nested() -> Plan:
    """FROM (SELECT … FROM a, b, c …) s, d, a."""
    plan = cross(Alias(three(), "s"), window("d"), window("a"))
    return project(where(plan, condition("s.a_x", "=", "d.x"), condition("d.k", "=", "a.k")), "d.x")


def test_order_by_name() -> None:
    plan = plan_with_join_order(three(), "b (c a)")
    assert orders(plan) == ["b (c a)"]
    assert plan.schema == three().schema


def test_order_finds_the_select_over_just_its_aliases() -> None:
    assert orders(plan_with_join_order(nested(), "a (d s)")) == ["a (d s)", "a b c"]
    assert orders(plan_with_join_order(nested(), "a (b c)")) == ["s d a", "a (b c)"]


def test_both_sides_of_a_union_follow() -> None:
    assert orders(plan_with_join_order(Union(three(), three()), "c b a")) == ["c b a", "c b a"]


def test_columns_keep_their_places_without_a_projection() -> None:
    for plan in (joined("a b"), Distinct(joined("a b")), Alias(three(), "s"), Union(joined("a b"), joined("a b"))):
        reordered = plan_with_join_order(plan, " ".join(reversed(next(join_graphs(plan)).names)))
        assert reordered.schema == plan.schema


def test_default_plan_with_an_order_is_the_plan_of_that_order() -> None:
    default = default_plan(three())
    assert plan_with_join_order(three(), "a b c") == default
    assert plan_with_join_order(plan_with_join_order(default, "c (b a)"), "a b c") == default


def test_named_plan_is_among_the_equivalent_plans() -> None:
    named = plan_with_join_order(three(), "a (b c)")
    assert any(plan == named for plan in equivalent_plans(three()))


def test_error_speaks_of_the_select_that_shares_most_names() -> None:
    with pytest.raises(BadJoinOrder, match='join order "a b" does not name "c"'):
        plan_with_join_order(nested(), "a b")
    with pytest.raises(BadJoinOrder, match='join order "s d" does not name "a"'):
        plan_with_join_order(nested(), "s d")


def test_unknown_alias_is_refused() -> None:
    with pytest.raises(BadJoinOrder) as raised:
        plan_with_join_order(three(), "(a b) cc")
    assert str(raised.value) == (
        '[M2002] join order "(a b) cc" names "cc", which is no alias of the query\n'
        '  detail: The query joins "a", "b", "c".\n'
        '  hint: Did you mean "c"?'
    )


def test_query_without_joins_has_only_its_own_alias() -> None:
    plan = project(window("a"), "a.x")
    assert plan_with_join_order(plan, "a") == plan
    with pytest.raises(BadJoinOrder, match='join order "a b" finds no join in the query'):
        plan_with_join_order(plan, "a b")
