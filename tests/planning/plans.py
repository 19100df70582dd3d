"""Short ways to write plans in tests: streams of integers and texts, columns, conditions."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa

from midstream.algebra.aggregates import aggregate_call
from midstream.algebra.expressions import Column, Expression, Literal, conjunction
from midstream.algebra.functions import call
from midstream.algebra.plan import Aggregate, Item, Join, NamedAggregate, Plan, Project, Select, Window
from midstream.algebra.stream import Stream
from midstream.algebra.window_spec import WindowSpec

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "x": pa.int64(), "s": pa.string()})
TYPES = {name: SCHEMA.field(name).type for name in SCHEMA.names}


def window(alias: str, width: int = 10, stream: str | None = None) -> Window:
    return Window(Stream(stream or alias, SCHEMA, "ts"), alias, WindowSpec(width))


def column(text: str) -> Column:
    """``a.k`` or, above a projection, ``k``."""
    relation, _, name = text.rpartition(".")
    return Column(relation, name, TYPES.get(name, pa.int64()))


def value(of: int | str | Expression) -> Expression:
    """An expression; a text is a column, a number a literal."""
    if isinstance(of, Expression):
        return of
    return Literal(of, pa.int64()) if isinstance(of, int) else column(of)


def condition(left: int | str | Expression, comparison: str, right: int | str | Expression) -> Expression:
    return call(comparison, value(left), value(right))


def equal(*pairs: str) -> list[Expression]:
    """``equal("a.k=b.k", "b.k=c.k")``."""
    return [
        condition(*pair.replace(" ", "").split("=")[:1], "=", pair.replace(" ", "").split("=")[1]) for pair in pairs
    ]


def cross(*plans: Plan) -> Plan:
    result, *rest = plans
    for plan in rest:
        result = Join(result, plan, ())
    return result


def where(plan: Plan, *conditions: Expression) -> Plan:
    return Select(plan, conjunction(conditions))


def joined(aliases: str, *conditions: Expression) -> Plan:
    """What the binder makes of FROM a, b, c WHERE conditions."""
    plan = cross(*(window(alias) for alias in aliases.split()))
    return where(plan, *conditions) if conditions else plan


def items(*texts: str) -> tuple[Item, ...]:
    return tuple(Item("", text.replace(".", "_"), column(text)) for text in texts)


def project(plan: Plan, *texts: str) -> Plan:
    return Project(plan, items(*texts))


def group(plan: Plan, keys: str, **aggregates: tuple[str, str | None]) -> Plan:
    named = tuple(
        NamedAggregate(name, aggregate_call(function, None if argument is None else value(argument)))
        for name, (function, argument) in aggregates.items()
    )
    return Aggregate(plan, items(*keys.split()), named)


def chain_equalities(names: list[str]) -> list[Expression]:
    return equal(*(f"{left}.k={right}.k" for left, right in pairwise(names)))
