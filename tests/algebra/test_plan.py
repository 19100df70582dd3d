"""Plans cannot be wrong once built."""

from __future__ import annotations

import pyarrow as pa
import pytest

from midstream.algebra.bounded_state import check_bounded_state
from midstream.algebra.expressions import Column, Literal
from midstream.algebra.functions import call
from midstream.algebra.plan import (
    Aggregate,
    Alias,
    Difference,
    Distinct,
    Field,
    Item,
    Join,
    Plan,
    Project,
    Select,
    Union,
    Window,
)
from midstream.algebra.stream import Stream
from midstream.algebra.window_spec import NEVER, WindowSpec
from midstream.errors import BadPlan, UnboundedState
from tests.planning.plans import condition, cross, equal, group, joined, project, value, where, window

LISTS = Window(Stream("l", pa.schema({"ts": pa.int64(), "list": pa.list_(pa.int64())}), "ts"), "l", WindowSpec(9))


def one(alias: str, *names: str) -> Plan:
    return project(window(alias), *(f"{alias}.{name}" for name in names))


BAD_PLANS = {
    "select of a missing column": (
        lambda: Select(window("a"), condition("b.x", "=", 1)),
        "[M2001] select reads b.x, which its input does not have\n  detail: The input has a.ts, a.k, a.x, a.s.",
    ),
    "select by a number": (
        lambda: Select(window("a"), value("a.x")),
        "[M2001] the predicate a.x is of type int64, not bool",
    ),
    "column of another type": (
        lambda: Project(window("a"), (Item("", "x", Column("a", "x", pa.int32())),)),
        "[M2001] project reads a.x, which its input does not have\n  detail: The input has a.ts, a.k, a.x, a.s.",
    ),
    "two columns of one name": (
        lambda: Project(window("a"), (Item("", "x", value("a.x")), Item("", "x", value("a.k")))),
        "[M2001] project has more than one column called x",
    ),
    "join of one alias with itself": (
        lambda: Join(window("a"), window("a"), ()),
        "[M2001] both sides of a join are called a",
    ),
    "join on two conditions in one": (
        lambda: Join(window("a"), window("b"), (call("and", *equal("a.k=b.k", "a.x=b.x")),)),
        "[M2001] a.k = b.k AND a.x = b.x is not a single condition",
    ),
    "union of different types": (
        lambda: Union(one("a", "k"), one("b", "s")),
        "[M2001] the sides of a union have different types\n  detail: Left: int64. Right: string.",
    ),
    "difference of different widths": (
        lambda: Difference(one("a", "k"), one("b", "k", "x"), "all"),
        "[M2001] the sides of a difference have different types\n  detail: Left: int64. Right: int64, int64.",
    ),
    "distinct of lists": (
        lambda: Distinct(LISTS),
        "[M2001] distinct compares l.list, which is of the nested type list<item: int64>",
    ),
    "grouping by lists": (
        lambda: Aggregate(LISTS, (Item("", "list", LISTS.schema[1].column),), ()),
        "[M2001] aggregate compares list, which is of the nested type list<item: int64>",
    ),
}


@pytest.mark.parametrize("name", BAD_PLANS)
def test_wrong_plan_cannot_be_built(name: str) -> None:
    make, message = BAD_PLANS[name]
    with pytest.raises(BadPlan) as raised:
        make()
    assert str(raised.value) == message


def test_schema_of_each_operator() -> None:
    a, b = one("a", "k"), one("b", "k")
    assert Alias(a, "s").schema == (Field("s", "a_k", pa.int64()),)
    assert Union(a, b).schema == Difference(a, b, "all").schema == a.schema
    assert [field.relation for field in cross(window("a"), window("b")).schema] == ["a"] * 4 + ["b"] * 4
    assert group(window("a"), "a.k", n=("count", None)).schema == (
        Field("", "a_k", pa.int64()),
        Field("", "n", pa.int64()),
    )


def test_conditions_of_a_join_are_a_set() -> None:
    one_way = Join(window("a"), window("b"), tuple(equal("a.k=b.k", "a.x=b.x")))
    assert one_way == Join(window("a"), window("b"), tuple(equal("a.x=b.x", "a.k=b.k", "a.x=b.x")))


def test_longest_validity() -> None:
    short, long = window("a", 5), window("b", 50)
    assert Join(short, long, ()).longest == 6
    assert Union(project(short, "a.k"), project(long, "b.k")).longest == 51
    assert group(long, "b.k", n=("count", None)).longest == 51
    assert Difference(project(short, "a.k"), project(long, "b.k"), "all").longest == 6
    unbounded = Window(short.stream, "a", WindowSpec(None))
    assert group(unbounded, "", n=("count", None)).longest == NEVER


def test_explain_draws_the_plan() -> None:
    plan = Distinct(project(where(cross(window("a"), window("b", stream="a")), *equal("a.k=b.k")), "a.x"))
    assert plan.explain() == (
        "Distinct\n"
        "└─ Project a.x AS a_x\n"
        "   └─ Select a.k = b.k\n"
        "      └─ Join (cross product)\n"
        "         ├─ Window a [RANGE 10]\n"
        "         └─ Window a AS b [RANGE 10]"
    )


def test_walk_is_parents_first_left_before_right() -> None:
    plan = joined("a b c", *equal("a.k=b.k"))
    assert [node.alias for node in plan.windows()] == ["a", "b", "c"]
    assert isinstance(next(plan.walk()), Select)


def test_with_inputs_checks_anew() -> None:
    plan = where(window("a"), condition("a.x", "<", 3))
    assert plan.with_inputs(window("a", 5)).explain() == "Select a.x < 3\n└─ Window a [RANGE 5]"
    with pytest.raises(BadPlan, match=r"select reads a\.x"):
        plan.with_inputs(window("b"))


# Bounded state


def endless(alias: str, declared: bool = False) -> Plan:
    return Window(window(alias).stream, alias, WindowSpec(None, declared=declared))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Join(endless("a"), window("b"), ()),
        lambda: Join(window("b"), Select(endless("a"), condition("a.x", "<", 3)), ()),
        lambda: Distinct(project(endless("a"), "a.x")),
        lambda: group(endless("a"), "a.k", n=("count", None)),
        lambda: Difference(one("b", "k"), project(endless("a"), "a.k"), "all"),
    ],
)
def test_stream_without_a_window_is_refused_where_rows_are_kept(make: object) -> None:
    with pytest.raises(UnboundedState, match='stream "a" has no window, and its rows would be kept for ever'):
        check_bounded_state(make())  # type: ignore[operator]


def test_refusal_says_where_and_what_to_do() -> None:
    with pytest.raises(UnboundedState) as raised:
        check_bounded_state(Join(endless("a"), window("b"), tuple(equal("a.k=b.k"))))
    assert str(raised.value) == (
        '[M2003] stream "a" has no window, and its rows would be kept for ever\n'
        "  detail: The join above it keeps the rows it may need again.\n"
        '  hint: Give "a" a window, or say [RANGE UNBOUNDED] if you mean it.'
    )


def test_stream_without_a_window_may_pass_through() -> None:
    plan = project(where(endless("a"), condition("a.x", "<", 3)), "a.x")
    check_bounded_state(Union(plan, plan))
    check_bounded_state(Select(plan, Literal(True, pa.bool_())))


def test_declared_unbounded_window_may_be_kept() -> None:
    check_bounded_state(Join(endless("a", declared=True), window("b"), ()))
