"""Join orders as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.errors import BadJoinOrder
from midstream.planning.join_order.join_order import JoinOrder, parse_join_order

NAMES = ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b c d", "a b c d"),
        ("((a b) c) d", "a b c d"),
        ("(((a) (b)) c)\n d", "a b c d"),
        ("(a b)(c d)", "a b (c d)"),
        ("a (b (c d))", "a (b (c d))"),
        ("a (b c) d", "a (b c) d"),
        ("A B C D", "a b c d"),
        ("{a b c d}", "{a b c d}"),
        ("{a b c}d", "{a b c} d"),
        ("a{(b c) d}", "a {(b c) d}"),
        ("{a b} ({c d})", "{a b} {c d}"),
        ("{ {a b} c } d", "{{a b} c} d"),
        ("{a b}:eddy {c d}:eager-stairs", "{a b}:eddy {c d}:eager-stairs"),
        ("{a b c d}:fixed", "{a b c d}"),
    ],
)
def test_text_is_shown_with_the_fewest_parentheses(text: str, shown: str) -> None:
    order = parse_join_order(text, NAMES)
    assert str(order) == shown
    assert parse_join_order(shown, NAMES) == order


@given(st.data())
def test_any_order_parses_back(data: st.DataObject) -> None:
    parts = [JoinOrder.leaf(name) for name in ["a", "b c", 'd"', "(e)", "f", "{g", "}:h"]]
    while len(parts) > 1:
        left = parts.pop(data.draw(st.integers(0, len(parts) - 1)))
        right = parts.pop(data.draw(st.integers(0, len(parts) - 1)))
        routing = data.draw(st.sampled_from([None, "fixed", "eddy", "stairs", "eager-stairs"]))
        parts.append(JoinOrder.join(left, right) if routing is None else JoinOrder.braces([left, right], routing))
    (order,) = parts
    assert parse_join_order(str(order), order.aliases) == order


def test_shapes_are_recognised() -> None:
    assert parse_join_order("a b c d", NAMES).is_left_deep
    assert parse_join_order("a (b (c d))", NAMES).is_right_deep
    bushy = parse_join_order("(a b) (c d)", NAMES)
    assert not bushy.is_left_deep
    assert not bushy.is_right_deep
    braces = parse_join_order("{a b} c d", NAMES)
    assert braces.aliases_in_braces == {"a", "b"} and not braces.is_left_deep and not bushy.aliases_in_braces


def test_aliases_that_differ_in_case_only_are_told_apart() -> None:
    assert parse_join_order("A a", ["a", "A"]).aliases == ("A", "a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "",
            '[M2002] the join order is empty\n  detail: The query joins "a", "b", "c", "d".\n'
            '  hint: Write for example "a b c d".',
        ),
        (
            "(a b) c",
            '[M2002] join order "(a b) c" does not name "d"\n  detail: The query joins "a", "b", "c", "d".\n'
            "  hint: Name each alias of the query once.",
        ),
        ("a b c c", '[M2002] join order "a b c c" names "c" twice\n  hint: Name each alias of the query once.'),
        ("(a b) (c d", '[M2002] join order "(a b) (c d" does not close a parenthesis'),
        ("{a b} {c d", '[M2002] join order "{a b} {c d" does not close a brace'),
        ("{a {b {c d}", '[M2002] join order "{a {b {c d}" does not close 2 braces'),
        ("(a b} c d", '[M2002] join order "(a b} c d" closes a brace that it did not open'),
        ("{a b) c d", '[M2002] join order "{a b) c d" closes a parenthesis that it did not open'),
        ("a b {} c d", '[M2002] join order "a b {} c d" has braces around nothing'),
        (
            "{a} b c d",
            '[M2002] join order "{a} b c d" has braces around a single input\n  hint: Join at least two in braces.',
        ),
        (
            "{a b}:edy c d",
            '[M2002] join order "{a b}:edy c d" asks for the routing "edy", which does not exist\n'
            '  detail: There are "fixed", "eddy", "stairs", "eager-stairs".\n  hint: Did you mean "eddy"?',
        ),
        ("((a b) (c d", '[M2002] join order "((a b) (c d" does not close 2 parentheses'),
        ("a b) c d", '[M2002] join order "a b) c d" closes a parenthesis that it did not open'),
        ("a () b c d", '[M2002] join order "a () b c d" has parentheses around nothing'),
        ('a "b c d', '[M2002] join order "a "b c d" has a quote that does not end'),
    ],
)
def test_bad_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadJoinOrder) as raised:
        parse_join_order(text, NAMES)
    assert str(raised.value) == message


def test_unknown_alias_is_refused_with_the_closest_one() -> None:
    with pytest.raises(BadJoinOrder) as raised:
        parse_join_order("orders paymets", ["orders", "payments"])
    assert str(raised.value) == (
        '[M2002] join order "orders paymets" names "paymets", which is no alias of the query\n'
        '  detail: The query joins "orders", "payments".\n'
        '  hint: Did you mean "payments"?'
    )
