"""Which columns a plan needs, and which identify its rows."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from midstream.algebra.expressions import Column, Expression, substitute
from midstream.algebra.plan import (
    Aggregate,
    Alias,
    Difference,
    Distinct,
    Field,
    Item,
    Join,
    MultiJoin,
    Plan,
    Project,
    Select,
)
from midstream.planning.join_order.join_graph import JoinGraph

__all__ = ["closure", "narrow", "plain_item", "renamed", "unique_columns"]


def plain_item(field: Field) -> Item:
    """The item that passes a column on under its own name."""
    return Item(field.relation, field.name, field.column)


def narrow(plan: Plan, columns: AbstractSet[Column]) -> Plan:
    """The plan with only these columns; with its first one if it has none of them, since a row needs a column."""
    kept = [field for field in plan.schema if field.column in columns] or list(plan.schema[:1])
    if len(kept) == len(plan.schema):
        return plan
    return Project(plan, tuple(plain_item(field) for field in kept))


def renamed(expression: Expression, upper: Plan, lower: Plan) -> Expression:
    """The expression over the columns of ``upper``, read from the columns of ``lower`` at the same places."""
    below = {u.column: v.column for u, v in zip(upper.schema, lower.schema, strict=True)}
    return substitute(expression, lambda column: below[column])


def unique_columns(plan: Plan) -> frozenset[Column] | None:
    """Columns in which no two rows of an instant agree; None if rows may repeat."""
    if isinstance(plan, Distinct):
        return plan.columns
    if isinstance(plan, Aggregate):
        return frozenset(key.field.column for key in plan.keys)
    if isinstance(plan, Difference):
        return plan.columns if plan.keep == "distinct" else unique_columns(plan.left)
    if isinstance(plan, Select):
        return unique_columns(plan.input)
    if isinstance(plan, Alias):
        below = unique_columns(plan.input)
        pairs = zip(plan.schema, plan.input.schema, strict=True)
        return None if below is None else frozenset(upper.column for upper, lower in pairs if lower.column in below)
    if isinstance(plan, Project):
        below = unique_columns(plan.input)
        passed = {item.expression: item.field.column for item in plan.items}
        return frozenset(passed[column] for column in below) if below is not None and below <= passed.keys() else None
    if isinstance(plan, Join | MultiJoin):
        found = [unique_columns(child) for child in plan.inputs]
        return None if None in found else frozenset[Column]().union(*(columns for columns in found if columns))
    return None


def closure(columns: Iterable[Column], graph: JoinGraph) -> frozenset[Column]:
    """The columns whose values follow from the given ones by the equalities of the block."""
    known = set(columns)
    grows = True
    while grows:
        grows = False
        for members in graph.classes:
            if any(member.expression.columns <= known for member in members):
                new = {m.expression for m in members if isinstance(m.expression, Column)} - known
                known |= new
                grows = grows or bool(new)
    return frozenset(known)
