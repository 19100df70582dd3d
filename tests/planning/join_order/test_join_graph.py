"""What is joined on what, apart from any order."""

from __future__ import annotations

import pyarrow as pa
import pytest

from midstream.algebra.expressions import Column, Literal
from midstream.algebra.functions import call
from midstream.algebra.plan import Join, Plan, Select, Window
from midstream.algebra.stream import Stream
from midstream.algebra.window_spec import WindowSpec
from midstream.errors import BadJoinOrder
from midstream.planning.join_order.join_enumeration import enumerate_join_orders
from midstream.planning.join_order.join_graph import JoinGraph
from midstream.planning.join_order.join_order import parse_join_order
from tests.planning.plans import condition, equal, joined, value, where, window


def graph_of(aliases: str, *conditions: object) -> JoinGraph:
    return JoinGraph.of(joined(aliases, *conditions))  # type: ignore[arg-type]


def built(graph: JoinGraph, order: str) -> Plan:
    return graph.build(parse_join_order(order, graph.names))


def predicates(plan: Plan) -> dict[str, list[str]]:
    """The conditions of each join, under the aliases it joins."""
    return {
        "".join(sorted({field.relation for field in node.schema})): [predicate.text for predicate in node.predicates]
        for node in plan.walk()
        if isinstance(node, Join)
    }


def selections(plan: Plan) -> list[str]:
    return [node.predicate.text for node in plan.walk() if isinstance(node, Select)]


def class_texts(graph: JoinGraph) -> list[list[str]]:
    return [[member.expression.text for member in members] for members in graph.classes]


def test_implied_equality_joins_a_and_c_directly() -> None:
    graph = graph_of("a b c", *equal("a.k=b.k", "b.k=c.k"))
    assert class_texts(graph) == [["a.k", "b.k", "c.k"]]
    assert predicates(built(graph, "(a c) b")) == {"ac": ["a.k = c.k"], "abc": ["a.k = b.k"]}


def test_classes_meet_through_a_later_equality() -> None:
    graph = graph_of("a b c d", *equal("a.k=b.k", "c.k=d.k", "b.k=d.k"))
    assert class_texts(graph) == [["a.k", "b.k", "c.k", "d.k"]]


def test_two_members_of_a_class_on_one_input_are_equal_there() -> None:
    graph = graph_of("a b c", *equal("a.x=b.k", "a.k=b.k", "b.k=c.k"))
    plan = built(graph, "(a c) b")
    assert selections(plan) == ["a.k = a.x"]
    assert predicates(plan) == {"ac": ["a.k = c.k"], "abc": ["a.k = b.k"]}


def test_an_equality_inside_one_input_extends_the_class() -> None:
    graph = graph_of("a b c", *equal("a.x=a.k", "a.x=b.k", "a.k=c.k"))
    assert predicates(built(graph, "(b c) a"))["bc"] == ["b.k = c.k"]


def test_class_member_over_two_inputs_is_connected_as_soon_as_both_are_there() -> None:
    graph = graph_of("a b c", condition(call("+", value("a.x"), value("b.x")), "=", "c.x"), *equal("c.x=b.k"))
    assert predicates(built(graph, "(a b) c")) == {"ab": ["b.k = a.x + b.x"], "abc": ["b.k = c.x"]}
    assert predicates(built(graph, "(b c) a")) == {"bc": ["b.k = c.x"], "abc": ["b.k = a.x + b.x"]}


def test_expressions_are_class_members() -> None:
    graph = graph_of("a b c", condition(call("+", value("a.x"), value(1)), "=", "b.x"), *equal("b.x=c.x"))
    assert predicates(built(graph, "(a c) b")) == {"ac": ["c.x = a.x + 1"], "abc": ["b.x = c.x"]}


def test_comparison_across_types_is_not_transitive() -> None:
    def of(alias: str, data_type: pa.DataType) -> tuple[Plan, Column]:
        stream = Stream(alias, pa.schema({"ts": pa.int64(), "v": data_type}), "ts")
        return Window(stream, alias, WindowSpec(9)), Column(alias, "v", data_type)

    (a, a_v), (b, b_v), (c, c_v) = of("a", pa.int64()), of("b", pa.float64()), of("c", pa.int64())
    plan = where(Join(Join(a, b, ()), c, ()), call("=", a_v, b_v), call("=", b_v, c_v))
    graph = JoinGraph.of(plan)
    assert class_texts(graph) == [["b.v", "CAST(a.v AS double)", "CAST(c.v AS double)"]]
    # As floats a and c may be equal though as integers they are not: 2**53 and 2**53 + 1.
    assert predicates(built(graph, "(a c) b"))["ac"] == ["CAST(a.v AS double) = CAST(c.v AS double)"]
    graph = JoinGraph.of(where(Join(Join(a, b, ()), c, ()), call("=", a_v, b_v), call("=", a_v, c_v)))
    assert class_texts(graph) == [["a.v", "c.v"], ["b.v", "CAST(a.v AS double)"]]


def test_conditions_go_to_the_lowest_join_that_has_their_relations() -> None:
    either = call("or", condition("a.x", "=", 1), condition("c.x", "=", 1))
    graph = graph_of("a b c d", either, condition("b.x", "<", "c.x"), condition("a.s", "=", value("d.s")))
    assert predicates(built(graph, "((a b) c) d")) == {
        "ab": [],
        "abc": ["a.x = 1 OR c.x = 1", "b.x < c.x"],
        "abcd": ["a.s = d.s"],
    }


def test_conditions_on_one_input_go_to_it() -> None:
    graph = graph_of("a b", condition("a.x", "=", 1), condition("b.x", ">", "b.k"), condition("b.x", "<", 5))
    assert selections(built(graph, "a b")) == ["a.x = 1", "b.x > b.k AND b.x < 5"]


def test_condition_without_columns_goes_to_the_first_input_and_stays_there() -> None:
    graph = graph_of("a b", condition(1, "=", 2))
    again = JoinGraph.of(built(graph, "b a"))
    for plan in (built(graph, "a b"), built(again, "a b"), built(again, "b a")):
        leaf = next(node for node in plan.walk() if isinstance(node, Select))
        assert leaf.input == window("a")


def test_true_is_no_condition() -> None:
    graph = graph_of("a b", Literal(True, pa.bool_()))
    assert not selections(built(graph, "a b"))


def test_null_is_a_condition() -> None:
    assert selections(built(graph_of("a b", Literal(None, pa.bool_())), "a b")) == ["NULL"]


def test_conditions_do_not_depend_on_the_plan_the_graph_came_from() -> None:
    first = graph_of("c b a", *equal("c.k=b.k", "b.k=a.k"), condition("a.x", "<", "c.x"))
    for order in enumerate_join_orders(first, sided=True):
        again = JoinGraph.of(first.build(order))
        assert again.order == order
        for other in enumerate_join_orders(first, sided=True):
            assert again.build(other) == first.build(other)


def test_identity_does_not_depend_on_the_order() -> None:
    conditions = [condition(call("+", value("z.x"), value("y.x")), "=", "a.k"), *equal("a.k=z.k")]
    graph = graph_of("a z y", *conditions)
    assert len({graph.build(order).identity for order in enumerate_join_orders(graph, sided=True)}) == 1


def test_links_of_conditions_over_three_inputs() -> None:
    graph = graph_of("a b c", condition(call("+", value("a.x"), value("b.x")), "=", "c.x"))
    a, b, c = 1, 2, 4
    assert not graph.are_linked(a, b)
    assert graph.are_linked(a | b, c)
    assert graph.are_linked_by_equality(a | b, c)
    assert graph.are_linked(a | c, b)
    assert not graph.are_linked_by_equality(a | c, b)
    assert graph.components(a | b | c) == [a, b, c]


def test_components_grow_by_wide_conditions_once_their_parts_are_joined() -> None:
    wide = condition(call("+", value("a.x"), value("b.x")), "=", call("+", value("c.x"), value("d.x")))
    graph = graph_of("a b c d", wide, *equal("a.k=b.k", "c.k=d.k"))
    assert graph.components(graph.everything) == [graph.everything]
    assert graph.components(0b0111) == [0b0011, 0b0100]


def test_order_with_other_aliases_is_refused() -> None:
    graph = graph_of("a b")
    with pytest.raises(BadJoinOrder, match='join order "a c" does not name each alias once'):
        graph.build(parse_join_order("a c", ["a", "c"]))
