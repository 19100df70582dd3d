"""Canonical identity: what a subplan computes, independent of join order and side.

States of two plans are matched by it. A tree of joins (with selections between them) is described by its inputs,
the classes of expressions that its equalities make equal, and its other conditions; so ``(a b) c`` and ``a (c b)``
are the same, and so are ``a.k = b.k AND b.k = c.k`` and ``a.k = c.k AND a.k = b.k``. Everything else is described by
its operator, its parameters and its inputs' identities.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from midstream.algebra.expressions import Call, Expression, conjuncts
from midstream.algebra.plan import Difference, Join, MultiJoin, Plan, RemoteSource, Select, Union, Window

__all__ = [
    "canonical_text",
    "difference_chain",
    "equality_classes",
    "equality_sides",
    "flip",
    "identity",
    "join_block",
    "merged",
    "selections",
]

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def identity(plan: Plan) -> str:
    """A text equal for two plans that compute the same."""
    below, selected = selections(plan)
    if isinstance(below, Join | MultiJoin):
        leaves, conditions = join_block(plan)
        classes, residual = equality_classes(conditions)
        parts = [
            ", ".join(sorted(leaf.identity for leaf in leaves)),
            ", ".join(sorted(" = ".join(sorted(e.text for e in members)) for members in classes)),
            ", ".join(sorted({canonical_text(condition) for condition in residual})),
        ]
        return f"join({' | '.join(parts)})"
    if isinstance(plan, Window):
        return f"{plan.label} ON {plan.stream.event_time}"
    if isinstance(plan, RemoteSource):
        return f"remote({plan.subplan.identity})"
    if isinstance(plan, Select):
        texts = sorted({canonical_text(c) for c in selected})
        return f"select({' AND '.join(texts)}; {below.identity})"
    if isinstance(plan, Union):
        return f"union({', '.join(sorted(side.identity for side in _union_sides(plan)))})"
    if isinstance(plan, Difference):
        base, subtracted = difference_chain(plan)
        return f"{plan.label}({base.identity} - {', '.join(sorted(s.identity for s in subtracted))})"
    return f"{plan.label}({', '.join(child.identity for child in plan.inputs)})"


def join_block(plan: Plan) -> tuple[list[Plan], list[Expression]]:
    """The inputs of a tree of joins, left to right, and all its conditions."""
    leaves: list[Plan] = []
    conditions: list[Expression] = []
    pending = [plan]
    while pending:
        node = pending.pop()
        if isinstance(node, Join | MultiJoin):
            conditions.extend(node.predicates)
            pending += reversed(node.inputs)
            continue
        below, selected = selections(node)
        if isinstance(below, Join | MultiJoin):
            conditions.extend(selected)
            pending.append(below)
        else:
            leaves.append(node)
    return leaves, conditions


def selections(plan: Plan) -> tuple[Plan, list[Expression]]:
    """What lies below the selections on top of the plan, and their conditions, the uppermost first."""
    conditions: list[Expression] = []
    while isinstance(plan, Select):
        conditions.extend(conjuncts(plan.predicate))
        plan = plan.input
    return plan, conditions


def equality_classes(
    conditions: Iterable[Expression],
) -> tuple[list[frozenset[Expression]], list[Expression]]:
    """Classes of expressions made equal by equalities, and the other conditions.

    Equalities with a relation on both sides count too, though no join can look them up: which of a class's equalities
    a plan states depends on its join order, and only the whole class does not.
    """
    equalities: list[Sequence[Expression]] = []
    residual: list[Expression] = []
    for condition in conditions:
        sides = condition.operands if isinstance(condition, Call) and condition.function == "=" else ()
        if sides and all(side.relations for side in sides):
            equalities.append(sides)
        else:
            residual.append(condition)
    return [frozenset(members) for members in merged(equalities)], residual


def merged(equalities: Iterable[Sequence[Expression]]) -> list[list[Expression]]:
    """The classes that the equalities make, by union of the smaller into the larger."""
    classes: dict[Expression, list[Expression]] = {}
    for left, right in equalities:
        one, other = classes.setdefault(left, [left]), classes.setdefault(right, [right])
        if one is other:
            continue
        if len(one) < len(other):
            one, other = other, one
        one += other
        for expression in other:
            classes[expression] = one
    return list({id(members): members for members in classes.values()}.values())


def equality_sides(condition: Expression) -> tuple[Expression, Expression] | None:
    """Both sides of an equality that can serve as a join key: no relation on both sides, some on each."""
    if not (isinstance(condition, Call) and condition.function == "="):
        return None
    left, right = condition.operands
    if not left.relations or not right.relations or left.relations & right.relations:
        return None
    return left, right


def flip(comparison: str) -> str:
    """The comparison that holds with the sides exchanged.

    >>> flip("<")
    '>'
    """
    return _MIRRORED.get(comparison, comparison)


def canonical_text(condition: Expression) -> str:
    """The condition's text with the sides of a comparison in a fixed order."""
    if isinstance(condition, Call) and condition.function in ("=", "<>", "<", "<=", ">", ">="):
        left, right = condition.operands
        if right.text < left.text:
            return Call(flip(condition.function), (right, left), condition.data_type).text
    return condition.text


def _union_sides(plan: Plan) -> Iterable[Plan]:
    if isinstance(plan, Union):
        yield from _union_sides(plan.left)
        yield from _union_sides(plan.right)
    else:
        yield plan


def difference_chain(plan: Difference) -> tuple[Plan, list[Plan]]:
    """What differences of one kind start from, and what they subtract, in that order (which does not matter)."""
    subtracted: list[Plan] = []
    node: Plan = plan
    while isinstance(node, Difference) and node.keep == plan.keep:
        subtracted.append(node.right)
        node = node.left
    return node, subtracted[::-1]
