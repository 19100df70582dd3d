"""Every rule and every enumerated plan gives what the given plan gives, on random plans and snapshots."""

from __future__ import annotations

from itertools import islice
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from midstream.algebra.plan import Plan
from midstream.planning.default_plan import default_plan
from midstream.planning.equivalents import equivalent_plans
from midstream.planning.join_order.join_enumeration import enumerate_join_orders
from midstream.planning.join_order.reorder_joins import join_graphs, map_join_blocks
from midstream.planning.rules import RULES
from tests.planning.reference import evaluate
from tests.planning.strategies import plans, snapshots

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))

MORE = settings(SLOW, max_examples=100)

Rows = dict[str, list[tuple[Any, ...]]]


# Making a plan takes longer than everything that is asked of it: each is given to all rules.


@MORE
@given(plan=plans(), snapshot=snapshots())
def test_every_rule_keeps_rows_and_schema(plan: Plan, snapshot: Rows) -> None:
    expected = evaluate(plan, snapshot)
    for rule in RULES:
        rewritten = rule(plan)
        assert rewritten.schema == plan.schema, rule.__name__
        assert evaluate(rewritten, snapshot) == expected, rule.__name__


@MORE
@given(plan=plans())
def test_every_rule_has_nothing_left_to_do(plan: Plan) -> None:
    for rule in RULES:
        once = rule(plan)
        assert rule(once).explain() == once.explain(), rule.__name__


@SLOW
@given(plan=plans(), snapshot=snapshots())
def test_default_plan_keeps_rows_and_schema(plan: Plan, snapshot: Rows) -> None:
    default = default_plan(plan)
    assert default.schema == plan.schema
    assert evaluate(default, snapshot) == evaluate(plan, snapshot)


@SLOW
@given(plan=plans())
def test_default_plan_of_a_default_plan_is_the_same(plan: Plan) -> None:
    default = default_plan(plan)
    assert default_plan(default).explain() == default.explain()


@SLOW
@given(plan=plans(), snapshot=snapshots())
def test_equivalent_plans_agree_and_differ_in_structure(plan: Plan, snapshot: Rows) -> None:
    expected = evaluate(plan, snapshot)
    found = list(islice(equivalent_plans(plan), 40))
    assert found[0] == default_plan(plan)
    assert len({variant.explain() for variant in found}) == len(found)
    for variant in found:
        assert variant.schema == plan.schema
        assert evaluate(variant, snapshot) == expected, variant.explain()


@SLOW
@given(plan=plans(), snapshot=snapshots(), data=st.data())
def test_any_join_order_keeps_rows_and_schema(plan: Plan, snapshot: Rows, data: st.DataObject) -> None:
    def choose(graph: Any) -> Any:
        orders = list(enumerate_join_orders(graph, sided=True))
        return data.draw(st.sampled_from(orders))

    reordered = map_join_blocks(plan, choose)
    assert reordered.schema == plan.schema
    assert evaluate(reordered, snapshot) == evaluate(plan, snapshot)


@SLOW
@given(plan=plans(depth=0), data=st.data())
def test_identity_does_not_depend_on_the_order(plan: Plan, data: st.DataObject) -> None:
    default = default_plan(plan)
    for graph in join_graphs(default):
        orders = list(enumerate_join_orders(graph, sided=True))
        one, other = (graph.build(data.draw(st.sampled_from(orders))) for _ in range(2))
        assert one.identity == other.identity
