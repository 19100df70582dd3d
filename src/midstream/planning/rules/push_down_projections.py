"""Columns that nobody reads are dropped at the inputs of the joins, and inside subqueries.

    π a.x                         π a.x
      │                             │
      ⋈ a.k = b.k      ⟶            ⋈ a.k = b.k
     ╱ ╲                           ╱ ╲
    a   b                  π a.k, a.x   π b.k
                                │        │
                                a        b

Why: a join keeps its inputs' rows for as long as they are valid; fewer columns are less memory. A column read only by
a condition on the input itself is dropped above that condition. Between joins nothing is projected: intermediate
results hold references to rows, which do not grow with the columns.

Distinct, difference and union need all columns they have, and an aggregation all its keys; only aggregates that nobody
reads are dropped. The output of the plan stays as it is. A row needs a column: where none is read, one stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from midstream.algebra.expressions import Column, Expression
from midstream.algebra.plan import Aggregate, Alias, Plan, Project, Select
from midstream.planning.columns import narrow
from midstream.planning.join_order.join_graph import is_join_block
from midstream.planning.rewrite import fold, over

__all__ = ["push_down_projections"]


def push_down_projections(plan: Plan) -> Plan:
    """Drop columns as soon as nobody above reads them."""
    return _prune(plan, plan.columns)


def _prune(plan: Plan, needed: AbstractSet[Column]) -> Plan:
    """The plan with at least the needed columns, in the order it has them, and few others."""
    if is_join_block(plan):
        return _prune_block(plan, needed)
    if isinstance(plan, Select):
        return over(plan, [_prune(plan.input, needed | plan.predicate.columns)])
    if isinstance(plan, Project):
        items = tuple(item for item in plan.items if item.field.column in needed) or plan.items[:1]
        below = _prune(plan.input, _read_by(item.expression for item in items))
        unchanged = below is plan.input and len(items) == len(plan.items)
        return plan if unchanged else Project(below, items)
    if isinstance(plan, Alias):
        pairs = zip(plan.schema, plan.input.schema, strict=True)
        return over(plan, [_prune(plan.input, {lower.column for upper, lower in pairs if upper.column in needed})])
    if isinstance(plan, Aggregate):
        kept = tuple(aggregate for aggregate in plan.aggregates if aggregate.field.column in needed)
        if not kept and not plan.keys:
            kept = plan.aggregates[:1]
        arguments = [a.call.argument for a in kept if a.call.argument is not None]
        below = _prune(plan.input, _read_by([*(key.expression for key in plan.keys), *arguments]))
        unchanged = below is plan.input and len(kept) == len(plan.aggregates)
        return plan if unchanged else Aggregate(below, plan.keys, kept)
    return over(plan, [_prune(child, child.columns) for child in plan.inputs])


def _prune_block(plan: Plan, needed: AbstractSet[Column]) -> Plan:
    """A tree of joins: each input keeps what is read above the tree or by any condition in it."""
    read = set(needed)

    def inputs(node: Plan) -> tuple[Plan, ...]:
        if not is_join_block(node):
            return ()
        read.update(_read_by(node.expressions))
        return node.inputs

    fold(plan, inputs, lambda node, _: node)

    def rebuild(node: Plan, new: tuple[Plan, ...]) -> Plan:
        if is_join_block(node):
            return over(node, new)
        own = read & node.columns
        return narrow(_prune(node, own), own)

    return fold(plan, inputs, rebuild)


def _read_by(expressions: Iterable[Expression]) -> frozenset[Column]:
    return frozenset().union(*(expression.columns for expression in expressions))
