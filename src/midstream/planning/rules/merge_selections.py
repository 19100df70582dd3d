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

from midstream.algebra.expressions import Literal, conjunction
from midstream.algebra.identity import selections
from midstream.algebra.plan import Plan, Select
from midstream.planning.rewrite import fold, over

__all__ = ["merge_selections"]


def merge_selections(plan: Plan) -> Plan:
    """Turn selections on top of each other into one, with the conditions of the upper one first."""
    # Selections in a row are one step: merged one by one they would be copied as often as there are some.
    return fold(plan, lambda node: [selections(node)[0]] if isinstance(node, Select) else node.inputs, _merge)


def _merge(node: Plan, inputs: tuple[Plan, ...]) -> Plan:
    if not isinstance(node, Select):
        return over(node, inputs)
    (below,) = inputs
    conditions = dict.fromkeys(selections(node)[1])
    kept = [c for c in conditions if not (isinstance(c, Literal) and c.value is True)]
    if not kept:
        return below
    merged = conjunction(kept)
    return node if below is node.input and merged == node.predicate else Select(below, merged)
