"""One selection per condition.

    σ p AND q            σ p
        │         ⟶       │
        R                σ q
                          │
                          R

Why: each condition can then be pushed down by itself. It does not apply to OR, nor to the conditions of a join, which
are held apart already.
"""

from __future__ import annotations

from midstream.algebra.expressions import conjuncts
from midstream.algebra.plan import Plan, Select
from midstream.planning.rewrite import rewrite

__all__ = ["split_conjunctions"]


def split_conjunctions(plan: Plan) -> Plan:
    """Turn each selection with AND into selections on top of each other, the first condition on top."""
    return rewrite(plan, _split)


def _split(node: Plan) -> Plan:
    if not isinstance(node, Select):
        return node
    parts = list(conjuncts(node.predicate))
    if len(parts) == 1:
        return node
    result = node.input
    for part in reversed(parts):
        result = Select(result, part)
    return result
