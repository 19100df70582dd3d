"""Equality classes: expressions that a block of joins makes equal, and how a join connects them.

Equalities are read as classes, because which of them a join can use depends on what has been joined before:
``a.k = b.k AND b.k = c.k`` lets a and c meet first. A class's members are whole expressions of one type, as they stand
in the equalities, casts included. That makes merging safe: ``a.i = b.f`` compares ``CAST(a.i AS double)``, which is
another expression than the ``a.i`` of ``a.i = c.i``, so the two equalities stay apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from midstream.algebra.expressions import Call, Column, Expression, Literal
from midstream.algebra.identity import merged

__all__ = ["Condition", "connections", "sort_conditions"]


@dataclass(frozen=True)
class Condition:
    """An expression and the leaves it reads: a residual condition, or a member of an equality class."""

    expression: Expression
    mask: int

    @property
    def is_of_one_leaf(self) -> bool:
        return self.mask & (self.mask - 1) == 0


def sort_conditions(
    conditions: Iterable[tuple[Expression, int | None]], leaf_of: Mapping[str, int], count: int
) -> tuple[tuple[tuple[Condition, ...], ...], tuple[tuple[Expression, ...], ...], tuple[Condition, ...]]:
    """Equality classes, each leaf's selections, and the residual conditions."""
    selections: list[dict[Expression, None]] = [{} for _ in range(count)]
    residuals: dict[Expression, int] = {}
    equalities: list[tuple[Expression, Expression]] = []
    masks: dict[Expression, int] = {}
    for condition, home in conditions:
        if isinstance(condition, Literal) and condition.value is True:
            continue
        sides = _class_sides(condition)
        if sides is not None:
            equalities.append(sides)
            for side in sides:
                masks[side] = _mask(side, leaf_of)
            continue
        mask = _mask(condition, leaf_of)
        if mask & (mask - 1):
            residuals[condition] = mask
        else:
            # A condition without columns holds for all rows or none: one leaf is enough to carry it.
            selections[mask.bit_length() - 1 if mask else home or 0][condition] = None
    classes: list[tuple[Condition, ...]] = []
    found = [
        sorted((Condition(e, masks[e]) for e in expressions), key=_preference) for expressions in merged(equalities)
    ]
    # In an order of their own, so that a plan taken apart and built again stays the same.
    for members in sorted(found, key=lambda members: [_preference(member) for member in members]):
        kept: dict[int, Condition] = {}
        spanning: list[Condition] = []
        for member in members:
            if not member.is_of_one_leaf:
                spanning.append(member)
            elif member.mask in kept:
                equality = _equality(kept[member.mask], member)
                selections[member.mask.bit_length() - 1][equality] = None
            else:
                kept[member.mask] = member
        if len(kept) + len(spanning) > 1:
            classes.append((*kept.values(), *spanning))
    return (
        tuple(classes),
        tuple(tuple(parts) for parts in selections),
        tuple(Condition(expression, mask) for expression, mask in residuals.items()),
    )


def _mask(expression: Expression, leaf_of: Mapping[str, int]) -> int:
    mask = 0
    for relation in expression.relations:
        mask |= 1 << leaf_of[relation]
    return mask


def _preference(member: Condition) -> tuple[int, bool, str]:
    """Plain columns of single leaves stand for their class first, whatever order the plan came in."""
    expression = member.expression
    return member.mask.bit_count(), not isinstance(expression, Column), expression.text


def _class_sides(condition: Expression) -> tuple[Expression, Expression] | None:
    """Both sides of an equality between two expressions of one type, neither a constant."""
    if not (isinstance(condition, Call) and condition.function == "="):
        return None
    left, right = condition.operands
    if not left.relations or not right.relations or left == right or left.type != right.type:
        return None
    return left, right


def connections(members: Sequence[Condition], left: int, right: int) -> list[Expression]:
    """The equalities that make all members of a class equal which a join of both sets can compute."""
    both = left | right
    # The first member of each side, in the class's order: the sides of a join must not change its conditions.
    ends: dict[bool, int] = {}
    across: list[int] = []
    for position, member in enumerate(members):
        if not member.mask & ~left:
            ends.setdefault(True, position)
        elif not member.mask & ~right:
            ends.setdefault(False, position)
        elif not member.mask & ~both:
            across.append(position)
    pairs = [tuple(ends.values())] if len(ends) == 2 else []
    if across:
        anchor, *others = [*ends.values()][:1] + across
        pairs += [(anchor, other) for other in others]
    return [_equality(*(members[position] for position in sorted(pair))) for pair in pairs]


def _equality(one: Condition, other: Condition) -> Expression:
    """The equality with its sides in the class's order: the same text whichever side of a join each is on."""
    return Call("=", (one.expression, other.expression), pa.bool_())
