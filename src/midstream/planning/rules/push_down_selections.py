"""Conditions move down to the inputs they read.

    σ a.x = 1 AND a.k = b.k            ⋈ a.k = b.k
              │                       ╱ ╲
              ×               ⟶   σ a.x=1  b
             ╱ ╲                     │
            a   b                    a

A condition passes

- a projection or alias, written in terms of what lies below;
- distinct; both sides of a union; both sides of a difference: rows that are equal pass the condition or fail it alike,
  and a right row that fails cannot be subtracted from a left row that passes;
- an aggregation, if it reads the keys only (or nothing at all: an aggregation of no rows has no row);
- joins, down to the lowest one that has all its relations, or to a single input. Equalities work as classes there, so
  implied ones appear where they help: see ``planning/join_order/join_graph``.

It stays above where it could see a difference between rows that count as equal (``planning/equal_values``), and above
an aggregation whose results it reads. The order of the joins does not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from midstream.algebra.expressions import Expression, Literal, substitute
from midstream.algebra.identity import selections
from midstream.algebra.plan import Aggregate, Alias, Difference, Distinct, Item, Plan, Project, Select, Union
from midstream.planning.columns import renamed
from midstream.planning.equal_values import separates_equal_values
from midstream.planning.join_order.join_graph import JoinGraph, is_join_block, select
from midstream.planning.rewrite import over

__all__ = ["push_down_selections"]


def push_down_selections(plan: Plan) -> Plan:
    """Move every condition as far down as it goes."""
    return _push(plan, [])


def _push(plan: Plan, conditions: Sequence[Expression]) -> Plan:
    """The plan's rows for which the conditions hold, with these and its own conditions moved down."""
    if is_join_block(plan):
        graph = JoinGraph.of(plan, conditions)
        leaves = [_push(base, own) for base, own in zip(graph.bases, graph.selections, strict=True)]
        return graph.with_leaves(leaves).build(graph.order)
    if isinstance(plan, Select):
        base, own = selections(plan)
        found = dict.fromkeys([*conditions, *own])
        return _push(base, [part for part in found if not (isinstance(part, Literal) and part.value is True)])
    if isinstance(plan, Project):
        return over(plan, [_push(plan.input, _through(plan.items, conditions))])
    if isinstance(plan, Alias):
        return over(plan, [_push(plan.input, [renamed(c, plan, plan.input) for c in conditions])])
    if isinstance(plan, Union):
        return over(plan, [_push(side, [renamed(c, plan, side) for c in conditions]) for side in plan.inputs])
    if isinstance(plan, Distinct | Difference | Aggregate):
        readable = {key.field.column for key in plan.keys} if isinstance(plan, Aggregate) else None
        passing: list[Expression] = []
        staying: list[Expression] = []
        for c in conditions:
            passes = (readable is None or c.columns <= readable) and not separates_equal_values(c)
            (passing if passes else staying).append(c)
        if isinstance(plan, Aggregate):
            below = [_push(plan.input, _through(plan.keys, passing))]
        else:
            below = [_push(side, [renamed(c, plan, side) for c in passing]) for side in plan.inputs]
        return select(over(plan, below), staying)
    return select(over(plan, [_push(child, []) for child in plan.inputs]), conditions)


def _through(items: Iterable[Item], conditions: Iterable[Expression]) -> list[Expression]:
    """The conditions over the items' input instead of their output."""
    below = {item.field.column: item.expression for item in items}
    return [substitute(condition, lambda column: below[column]) for condition in conditions]
