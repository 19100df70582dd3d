"""Inputs are subtracted in the order of their size, the largest first.

        −                  −
       ╱ ╲                ╱ ╲
      −   C      ⟶       −   B        where C is estimated larger than B
     ╱ ╲                ╱ ╲
    A   B              A   C

Why: what has been subtracted early need not be kept by the differences above. Sound for EXCEPT ALL (multiplicities:
max(0, max(0, a − b) − c) = max(0, a − b − c)) and for EXCEPT (a row stays if neither side has it). It does not apply
across the two kinds: ``(A EXCEPT ALL B) EXCEPT C`` is not ``(A EXCEPT C) EXCEPT ALL B``. Sizes are estimates from the
text (``planning/size_estimate``); inputs that look equally large stay in text order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal as OneOf

from midstream.algebra.identity import difference_chain
from midstream.algebra.plan import Difference, Plan
from midstream.planning.rewrite import rewrite
from midstream.planning.size_estimate import estimated_rows

__all__ = ["reorder_differences", "subtract"]


def reorder_differences(plan: Plan) -> Plan:
    """Subtract the largest input first, in every chain of differences of one kind."""
    return rewrite(plan, _reorder)


def _reorder(node: Plan) -> Plan:
    if not isinstance(node, Difference):
        return node
    base, subtracted = difference_chain(node)
    ordered = sorted(subtracted, key=estimated_rows, reverse=True)
    if all(new is old for new, old in zip(ordered, subtracted, strict=True)):
        return node
    return subtract(base, ordered, node.keep)


def subtract(base: Plan, subtracted: Iterable[Plan], keep: OneOf["all", "distinct"]) -> Plan:
    """The differences of one kind, one after the other."""
    for right in subtracted:
        base = Difference(base, right, keep)
    return base
