"""Rough sizes from the query alone: how many rows of a plan are valid at an instant, relative to other plans.

Nothing is known about the streams' rates before they run, so a window counts for its length and a condition for a
customary share. Only comparisons between two estimates mean anything; cost models with measured rates replace them.

>>> from midstream.algebra.expressions import Literal
>>> import pyarrow as pa
>>> selectivity(Literal(True, pa.bool_()))
1.0
"""

from __future__ import annotations

import math

from midstream.algebra.expressions import Call, Expression, Literal
from midstream.algebra.plan import Aggregate, Difference, Distinct, Join, Leaf, MultiJoin, Plan, Select, Union

__all__ = ["estimated_rows", "selectivity"]

# Customary shares (System R's spirit): what a condition of this kind lets through when nothing else is known.
_SHARES = {
    "=": 0.1,
    "<>": 0.9,
    "<": 0.3,
    "<=": 0.3,
    ">": 0.3,
    ">=": 0.3,
    "like": 0.2,
    "starts_with": 0.2,
    "is_null": 0.1,
}
_UNKNOWN_SHARE = 0.5
_DISTINCT_SHARE = 0.5
_GROUPS_SHARE = 0.1


def selectivity(condition: Expression) -> float:
    """The share of rows that the condition lets through, from 0 to 1."""
    if isinstance(condition, Literal):
        return 1.0 if condition.value is True else 0.0
    if not isinstance(condition, Call):
        return _UNKNOWN_SHARE
    if condition.function == "and":
        return math.prod(selectivity(operand) for operand in condition.operands)
    if condition.function == "or":
        return 1.0 - math.prod(1.0 - selectivity(operand) for operand in condition.operands)
    if condition.function == "not":
        return 1.0 - selectivity(condition.operands[0])
    if condition.function == "in":
        return min(1.0, _SHARES["="] * (len(condition.operands) - 1))
    return _SHARES.get(condition.function, _UNKNOWN_SHARE)


def estimated_rows(plan: Plan) -> float:
    """The plan's rows valid at an instant, in ticks of window length."""
    if isinstance(plan, Leaf):
        return float(plan.longest)
    below = [estimated_rows(child) for child in plan.inputs]
    if isinstance(plan, Select):
        return below[0] * selectivity(plan.predicate)
    if isinstance(plan, Distinct):
        return below[0] * _DISTINCT_SHARE
    if isinstance(plan, Aggregate):
        return below[0] * _GROUPS_SHARE if plan.keys else 1.0
    if isinstance(plan, Union):
        return sum(below)
    if isinstance(plan, Difference):
        return below[0]
    if isinstance(plan, Join | MultiJoin):
        # A row usually finds one partner by an equality (a foreign key), and all of them without a condition.
        return max(below) if plan.predicates else math.prod(below)
    return below[0]
