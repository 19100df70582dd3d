"""From a plan to running operators.

Only the columns that something reads are carried: each node is told which of its fields are needed. Where a join
sits on rows that are at hand, a store is put between them, so that the join can refer to them by number.
"""

from __future__ import annotations

from collections.abc import Set

from midstream.algebra.expressions import Expression
from midstream.algebra.plan import (
    Aggregate,
    Alias,
    Difference,
    Distinct,
    Field,
    Join,
    Plan,
    Project,
    Select,
    Union,
    Window,
)
from midstream.engine.aggregate import AggregateOperator
from midstream.engine.difference import DifferenceOperator
from midstream.engine.distinct import DistinctOperator
from midstream.engine.join import JoinOperator
from midstream.engine.operator import Operator
from midstream.engine.stateless import ComputeOperator, PickOperator, SelectOperator, StoreOperator, UnionOperator
from midstream.engine.window import WindowOperator

__all__ = ["compile_plan"]

Needed = Set[Field]


def compile_plan(plan: Plan, chunk_rows: int) -> Operator:
    """The operators that run the plan; the last one produces exactly the plan's schema."""
    return _picked(plan, _compile(plan, frozenset(plan.schema), chunk_rows))


def _compile(plan: Plan, needed: Needed, chunk_rows: int) -> Operator:
    if isinstance(plan, Window):
        return WindowOperator(plan, [field for field in plan.schema if field in needed])
    if isinstance(plan, Select):
        child = _compile(plan.input, needed | _fields(plan.predicate), chunk_rows)
        return SelectOperator(plan.label, child, plan.predicate)
    if isinstance(plan, Project):
        return _project(plan, needed, chunk_rows)
    if isinstance(plan, Alias):
        inner = dict(zip(plan.schema, plan.input.schema, strict=True))
        chosen = [field for field in plan.schema if field in needed]
        child = _compile(plan.input, {inner[field] for field in chosen}, chunk_rows)
        positions = [child.layout.position(inner[field].column) for field in chosen]
        return PickOperator(plan.label, child, positions, chosen)
    if isinstance(plan, Join):
        needed = needed | _fields(*plan.predicates)
        sides = [_stored(_compile(side, needed & frozenset(side.schema), chunk_rows)) for side in plan.inputs]
        return JoinOperator(plan.label, sides[0], sides[1], plan.predicates, chunk_rows)
    if isinstance(plan, Aggregate):
        arguments = [a.call.argument for a in plan.aggregates if a.call.argument is not None]
        read = _fields(*(key.expression for key in plan.keys), *arguments)
        return AggregateOperator(plan, _compile(plan.input, read, chunk_rows))
    # The others compare or align whole rows.
    sides = [_picked(side, _compile(side, frozenset(side.schema), chunk_rows)) for side in plan.inputs]
    if isinstance(plan, Distinct):
        return DistinctOperator(plan.label, sides[0])
    if isinstance(plan, Difference):
        return DifferenceOperator(plan, sides[0], sides[1])
    assert isinstance(plan, Union), plan
    return UnionOperator(plan.label, sides[0], sides[1], plan.schema)


def _project(plan: Project, needed: Needed, chunk_rows: int) -> Operator:
    items = [item for item in plan.items if item.field in needed]
    child = _compile(plan.input, _fields(*(item.expression for item in items)), chunk_rows)
    if all(item.is_plain for item in items):
        positions = [child.layout.position(next(iter(item.expression.columns))) for item in items]
        return PickOperator(plan.label, child, positions, [item.field for item in items])
    return ComputeOperator(plan.label, child, items)


def _fields(*expressions: Expression) -> frozenset[Field]:
    return frozenset(
        Field(column.relation, column.name, column.type) for expression in expressions for column in expression.columns
    )


def _stored(operator: Operator) -> Operator:
    """The operator, with a store above it if its rows are not references already."""
    if operator.layout.is_stored and operator.layout.stores:
        return operator
    return StoreOperator(f"Store of {operator.name}", operator)


def _picked(plan: Plan, operator: Operator) -> Operator:
    """The operator with its fields in the order of the plan's schema."""
    if operator.layout.fields == plan.schema:
        return operator
    positions = [operator.layout.position(field.column) for field in plan.schema]
    return PickOperator("Pick", operator, positions, plan.schema)
