"""One selection for all conditions at a place.

    σ p
     │          σ p AND q
    σ q   ⟶        │
     │             R
     R

Why: one pass over the rows instead of several. Conditions that occur twice are kept once, and TRUE is dropped. It does
not apply to selections with another operator between them: ``push_down_selections`` brings them together first.
"""

from __future__ import annotations

from midstream.algebra.expressions import Expression, Literal, conjunction, conjuncts
from midstream.algebra.plan import Plan, Select
from midstream.planning.rewrite import rewrite

__all__ = ["merge_selections"]


def merge_selections(plan: Plan) -> Plan:
    """Turn selections on top of each other into one, with the conditions of the upper one first."""
    return rewrite(plan, _merge)


def _merge(node: Plan) -> Plan:
    if not isinstance(node, Select):
        return node
    conditions: dict[Expression, None] = dict.fromkeys(conjuncts(node.predicate))
    below = node.input
    while isinstance(below, Select):
        conditions.update(dict.fromkeys(conjuncts(below.predicate)))
        below = below.input
    kept = [c for c in conditions if not (isinstance(c, Literal) and c.value is True)]
    if not kept:
        return below
    merged = conjunction(kept)
    return node if below is node.input and merged == node.predicate else Select(below, merged)
