"""In which order rows visit the inputs of a multi-way join, and how a user names it."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.algebra.plan import MultiJoin
from midstream.algebra.plan_json import plan_from_json, plan_to_json
from midstream.errors import BadJoinOrder, BadOption, BadPlan, MigrationRefused

COLUMNS = {"a": "k", "b": "kl", "c": "lm", "d": "m"}
STREAMS = [
    Stream(name, pa.schema({column: pa.int64() for column in ("t", *columns)}), "t")
    for name, columns in COLUMNS.items()
]
WINDOWS = ", ".join(f"{name} [RANGE 10]" for name in COLUMNS)
CHAIN = ContinuousQuery(f"SELECT a.t FROM {WINDOWS} WHERE a.k = b.k AND b.l = c.l AND c.m = d.m", STREAMS)


def multi_join(plan):
    return next(node for node in plan.walk() if isinstance(node, MultiJoin))


def test_rows_go_on_to_what_a_condition_links():
    assert multi_join(CHAIN.plan("{a b c d}")).probe_orders == ((1, 2, 3), (0, 2, 3), (1, 0, 3), (2, 1, 0))
    assert multi_join(CHAIN.plan("{d c b a}")).names == ("d", "c", "b", "a")


def test_an_equality_is_preferred_to_other_conditions():
    query = ContinuousQuery(f"SELECT a.t FROM {WINDOWS} WHERE a.k < b.k AND a.k = c.l AND c.m = d.m", STREAMS)
    assert multi_join(query.plan("{a b c d}")).probe_orders[0] == (2, 3, 1)


def test_an_input_that_is_a_join_has_one_place():
    plan = multi_join(CHAIN.plan("{a (b c) d}", probe_orders={"d": "c a", "a": "b d"}))
    assert plan.names == ("a", "b+c", "d")
    assert plan.probe_orders == ((1, 2), (0, 2), (1, 0))


def test_named_probe_orders_stay_when_a_plan_is_taken_apart_and_built_again():
    plan = CHAIN.plan("{a b c d}", probe_orders={"b": "c d a"})
    assert multi_join(plan).probe_orders[1] == (2, 3, 0)
    assert "b probes c d a" in plan.explain()
    again = plan_from_json(json.loads(json.dumps(plan_to_json(plan))))
    assert again == plan and plan != CHAIN.plan("{a b c d}")
    assert CHAIN.has(again) and again.identity == CHAIN.plan().identity


@pytest.mark.parametrize("routing", ["eddy", "stairs", "eager-stairs"])
def test_routing_is_part_of_the_plan_and_not_of_what_it_computes(routing):
    plan = CHAIN.plan("{a b c} d", routing=routing)
    assert f"MultiJoin by {routing} a.k = b.k AND b.l = c.l" in plan.explain()
    assert plan == CHAIN.plan(f"{{a b c}}:{routing} d")
    assert plan_from_json(plan_to_json(plan)) == plan
    assert plan.identity == CHAIN.plan().identity


@pytest.mark.parametrize(
    ("order", "options", "error", "message"),
    [
        ("{a b c d}", {"routing": "lottery"}, BadOption, "routing cannot be 'lottery'"),
        ("a b c d", {"routing": "eddy"}, BadOption, "for multi-way joins"),
        (None, {"routing": "eddy"}, BadOption, "for a join order with braces"),
        ("{a b c d}", {"routing": "eddy", "probe_orders": {"a": "b c d"}}, BadOption, "for fixed routing"),
        ("{a b c d}", {"probe_orders": "a b c d"}, BadOption, "must be a dict of texts, by alias"),
        ("{a b c d}", {"probe_orders": {"a": 3}}, BadOption, "must be a dict of texts, by alias"),
        ("{a b c d}", {"probe_orders": {"a": "b d"}}, BadJoinOrder, 'the probe order of "a" does not name each'),
        ("{a b c d}", {"probe_orders": {"a": "b c c"}}, BadJoinOrder, 'the probe order of "a" does not name each'),
        ("{a b c} d", {"probe_orders": {"a": "b c d"}}, BadJoinOrder, 'the probe order of "a" does not name each'),
        ("{a b c} d", {"probe_orders": {"d": "a b"}}, BadJoinOrder, 'there are no braces around "d"'),
        ("{a b c} d", {"probe_orders": {"x": "a b"}}, BadJoinOrder, '"x", which is no alias of the query'),
    ],
)
def test_what_cannot_be_meant_is_refused(order, options, error, message):
    with pytest.raises(error) as raised:
        CHAIN.plan(order, **options)
    assert message in str(raised.value)


def test_probe_orders_name_aliases_as_join_orders_do():
    """In any case, and in quotes where an alias is no word."""
    assert CHAIN.plan("{a b c d}", probe_orders={"B": "C A d"}) == CHAIN.plan("{a b c d}", probe_orders={"b": "c a d"})
    query = ContinuousQuery(
        'SELECT x.ts AS ts FROM s [RANGE 9] "my a", s [RANGE 9] x, s [RANGE 9] y WHERE "my a".k = x.k AND x.k = y.k',
        [Stream("s", pa.schema({"ts": pa.int64(), "k": pa.int64()}), "ts")],
    )
    assert "x probes y my a" in str(query.plan('{"my a" x y}', probe_orders={"x": 'y "my a"', "my a": "y x"}))


def test_a_migration_says_that_routing_belongs_to_the_plan():
    run = CHAIN.run_locally()
    with pytest.raises(MigrationRefused, match=r"belongs to the plan: migrate\(query.plan\("):
        run.migrate("{a b c d}", routing="eddy")


def test_a_multi_way_join_is_checked_when_it_is_built():
    plan = multi_join(CHAIN.plan("{a b c d}"))
    for parts, routing, orders, message in [
        (plan.parts[:1], "eddy", (), "at least two inputs"),
        (plan.parts, "lottery", (), "routed by 'lottery'"),
        (plan.parts, "fixed", (), "has 4 probe orders"),
        (plan.parts, "eddy", plan.probe_orders, "has 0 probe orders"),
        (plan.parts, "fixed", ((0, 1, 2),) * 4, "does not name each other input once"),
        ((plan.parts[0], *plan.parts), "eddy", (), "two inputs of a join are called a"),
    ]:
        with pytest.raises(BadPlan, match=message):
            MultiJoin(parts, plan.predicates if len(parts) > 1 else (), routing, orders)


def test_json_with_a_wrong_number_of_inputs_is_refused():
    data = plan_to_json(CHAIN.plan("{a b c d}"))
    joined = next(operator for operator in data["operators"] if operator["kind"] == "multijoin")
    for count in (-1, 0, 1, 3, 5, 10**9):
        joined["parts"] = count
        with pytest.raises(BadPlan):
            plan_from_json(data)
