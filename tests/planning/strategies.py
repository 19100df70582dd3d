"""Random plans in the shape the binder gives them, and random snapshots to judge them on."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from midstream.algebra.aggregates import aggregate_call
from midstream.algebra.expressions import Column, Expression, Literal
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
from tests.planning.plans import where, window

STREAMS = ("p", "q", "r", "t")

_small = st.one_of(st.none(), st.integers(0, 2))
_row = st.tuples(st.just(0), _small, _small, st.one_of(st.none(), st.sampled_from(["m", "n"])))


def snapshots() -> st.SearchStrategy[dict[str, list[tuple[Any, ...]]]]:
    """The valid rows of each stream at one instant."""
    return st.fixed_dictionaries({stream: st.lists(_row, max_size=4) for stream in STREAMS})


@st.composite
def plans(draw: st.DrawFn, depth: int = 2, most_leaves: int = 4) -> Plan:
    """A query: selects combined by UNION, EXCEPT, DISTINCT."""
    plan = draw(_selects(depth, most_leaves))
    kind = draw(st.sampled_from(["plain", "plain", "union", "except", "except all"])) if depth else "plain"
    if kind == "plain":
        return plan
    others = [draw(_selects(0, 2, width=len(plan.schema))) for _ in range(draw(st.integers(1, 2)))]
    for other in others:
        if [f.type for f in other.schema] != [f.type for f in plan.schema]:
            continue
        if kind == "union":
            plan = Union(plan, other)
        else:
            plan = Difference(plan, other, "all" if kind == "except all" else "distinct")
    top = draw(st.sampled_from(["nothing", "distinct", "select"]))
    if top == "distinct":
        return Distinct(plan)
    return plan if top == "nothing" else where(plan, draw(_condition(_numbers(plan))))


@st.composite
def _selects(draw: st.DrawFn, depth: int, most_leaves: int, width: int | None = None) -> Plan:
    plan: Plan = draw(_from(depth, most_leaves))
    numbers = _numbers(plan)
    kind = draw(st.sampled_from(["project", "aggregate", "aggregate"])) if width is None else "project"
    if kind == "aggregate":
        plan = draw(_aggregates(plan))
        if draw(st.booleans()):
            plan = where(plan, draw(_condition(_numbers(plan) or [Literal(1, pa.int64())])))
        if not draw(st.booleans()):
            return plan
        numbers = _numbers(plan)
    if width is None:
        width = draw(st.integers(1, 3))
    expressions = [draw(st.one_of(st.sampled_from(numbers), _sum(numbers))) for _ in range(width)]
    plan = Project(plan, tuple(Item("", f"c{place}", e) for place, e in enumerate(expressions)))
    return Distinct(plan) if draw(st.booleans()) else plan


@st.composite
def _from(draw: st.DrawFn, depth: int, most_leaves: int) -> Plan:
    plan: Plan | None = None
    for place in range(draw(st.integers(1, most_leaves))):
        leaf = draw(_leaf(f"{'abcdefg'[place]}", depth))
        if plan is None:
            plan = leaf
            continue
        both = [*_numbers(plan), *_numbers(leaf)]
        plan = Join(plan, leaf, tuple(draw(st.lists(_condition(both), max_size=1))))
    assert plan is not None
    for condition in draw(st.lists(_condition(_numbers(plan)), max_size=4)):
        plan = Select(plan, condition)
    return plan


@st.composite
def _leaf(draw: st.DrawFn, alias: str, depth: int) -> Plan:
    if depth and draw(st.integers(0, 4)) == 0:
        return Alias(draw(plans(depth - 1, 2)), alias)
    leaf = window(alias, draw(st.sampled_from([5, 10, 20])), draw(st.sampled_from(STREAMS)))
    assert isinstance(leaf, Window)
    return leaf


@st.composite
def _aggregates(draw: st.DrawFn, plan: Plan) -> Plan:
    numbers = _numbers(plan)
    keys = draw(st.lists(st.one_of(st.sampled_from(numbers), _sum(numbers)), max_size=2))
    calls = []
    for _ in range(draw(st.integers(1, 2))):
        function = draw(st.sampled_from(["count", "count", "sum", "sum", "min", "max", "avg"]))
        argument = draw(st.sampled_from(numbers))
        star = function == "count" and draw(st.booleans())
        calls.append(aggregate_call(function, None if star else argument, draw(st.integers(0, 5)) == 0))
    return Aggregate(
        plan,
        tuple(Item("", f"g{place}", key) for place, key in enumerate(keys)),
        tuple(NamedAggregate(f"n{place}", c) for place, c in enumerate(calls)),
    )


def _numbers(plan: Plan) -> list[Column]:
    """The columns of whole numbers (or the first one that stands in for them), without the event times."""
    numbers = [f.column for f in plan.schema if f.type == pa.int64() and f.name != "ts"]
    return numbers or [f.column for f in plan.schema][:1]


def _sum(numbers: list[Any]) -> st.SearchStrategy[Expression]:
    if any(number.type != pa.int64() for number in numbers):
        return st.sampled_from(numbers)
    return st.builds(lambda a, b: call("+", a, b), st.sampled_from(numbers), st.sampled_from(numbers))


@st.composite
def _condition(draw: st.DrawFn, numbers: list[Any]) -> Expression:
    """Mostly equalities between columns, so that classes meet; also thetas, sums, ORs, NULL tests, constants."""
    kind = draw(st.integers(0, 11))
    some = st.sampled_from(numbers)
    constant = st.builds(lambda n: Literal(n, pa.int64()), st.integers(0, 2))
    if kind < 6:
        return call("=", draw(some), draw(some))
    if kind == 6:
        return call("=", draw(_sum(numbers)), draw(st.one_of(some, _sum(numbers))))
    if kind == 7:
        return call("or", draw(_comparison(some, some)), draw(_comparison(some, constant)))
    if kind == 8:
        return call("is_null", draw(some))
    if kind == 9:
        return draw(_comparison(constant, constant))
    return draw(_comparison(some, st.one_of(some, constant)))


def _comparison(left: st.SearchStrategy[Any], right: st.SearchStrategy[Any]) -> st.SearchStrategy[Expression]:
    return st.builds(call, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), left, right)
