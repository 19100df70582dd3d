"""Expressions that are ready to be evaluated: a type and a Python function of the rows at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from midstream.testing.brute_force.casts import cast_between
from midstream.testing.brute_force.syntax import BruteForceError
from midstream.testing.brute_force.value_types import NULL, Type, common_type

__all__ = [
    "ANY_NUMBER",
    "NAN",
    "Bound",
    "Function",
    "Rows",
    "any_null_type",
    "cast",
    "comparable",
    "constant",
    "identity_key",
    "meet",
    "null",
    "relations_of",
    "strict",
]

Rows: TypeAlias = Sequence[Sequence[Any]]
"""A combination of rows, one for each relation in FROM."""

NAN = (1, 0.0)


@dataclass(frozen=True)
class Bound:
    """An expression whose names and types are known; `relations` are the relations it reads."""

    type: Type
    evaluate: Callable[[Rows], Any]
    relations: frozenset[int] = frozenset()
    literal: bool = False


class Function(NamedTuple):
    """A function or operator: how many arguments it takes at least and at most, and what it makes of them."""

    least: int
    most: int
    bind: Callable[..., Bound]


ANY_NUMBER = 10**6
"""As many arguments as one likes."""


def relations_of(arguments: Sequence[Bound]) -> frozenset[int]:
    """The relations that one of the arguments reads."""
    return frozenset[int]().union(*(argument.relations for argument in arguments))


def any_null_type(arguments: Sequence[Bound]) -> bool:
    """Whether one of the arguments is a NULL without a type."""
    return any(argument.type.kind == "null" for argument in arguments)


def null(kind: Type) -> Bound:
    """NULL in a type."""
    return Bound(kind, lambda rows: None)


def constant(kind: Type, value: Any) -> Bound:
    """A literal."""
    return Bound(kind, lambda rows: value, literal=True)


def strict(kind: Type, function: Callable[..., Any], *arguments: Bound) -> Bound:
    """A function that is NULL if one of its arguments is."""
    relations = relations_of(arguments)
    if len(arguments) == 1:
        (only,) = (argument.evaluate for argument in arguments)

        def evaluate_one(rows: Rows) -> Any:
            value = only(rows)
            return None if value is None else function(value)

        return Bound(kind, evaluate_one, relations)
    if len(arguments) == 2:
        first, second = (argument.evaluate for argument in arguments)

        def evaluate_two(rows: Rows) -> Any:
            left = first(rows)
            if left is None:
                return None
            right = second(rows)
            return None if right is None else function(left, right)

        return Bound(kind, evaluate_two, relations)
    evaluators = [argument.evaluate for argument in arguments]

    def evaluate_all(rows: Rows) -> Any:
        values = [evaluate(rows) for evaluate in evaluators]
        return None if None in values else function(*values)

    return Bound(kind, evaluate_all, relations)


def cast(argument: Bound, target: Type) -> Bound:
    """The value in another type, NULL where it has no counterpart there."""
    if argument.type == target:
        return argument
    conversion = cast_between(argument.type, target)
    if conversion is None:
        raise BruteForceError(f"cannot cast {argument.type.kind} to {target.kind}")
    if argument.literal:
        value = argument.evaluate(())
        return constant(target, None if value is None else conversion(value))
    return strict(target, conversion, argument)


def meet(*arguments: Bound) -> tuple[Bound, ...]:
    """The arguments in their common type; text literals that meet dates or timestamps are read as such."""
    moments = [argument.type for argument in arguments if argument.type.is_moment]
    if moments:
        arguments = tuple(
            cast(argument, moments[0]) if argument.literal and argument.type.kind == "text" else argument
            for argument in arguments
        )
    kind: Type | None = NULL
    for argument in arguments:
        kind = common_type(kind, argument.type) if kind else None
    if kind is None:
        kinds = ", ".join(argument.type.kind for argument in arguments)
        raise BruteForceError(f"values of different families do not meet: {kinds}")
    return tuple(cast(argument, kind) for argument in arguments)


def comparable(*arguments: Bound) -> tuple[Bound, ...]:
    """The arguments in their common type, with values that Python compares as SQL does: NaN is above all floats."""
    met = meet(*arguments)
    kind = met[0].type
    if kind.kind == "nested":
        raise BruteForceError("nested values are not compared")
    if kind.kind != "float":
        return met
    return tuple(strict(kind, _float_order, argument) for argument in met)


def _float_order(value: float) -> tuple[int, float]:
    return NAN if value != value else (0, value)


def identity_key(kinds: Sequence[Type]) -> Callable[[Sequence[Any]], Any]:
    """A function from rows of these types to keys that are equal where the rows are; NaN and NULL equal themselves."""
    if any(kind.kind == "nested" for kind in kinds):
        raise BruteForceError("nested values are not compared")
    floats = [index for index, kind in enumerate(kinds) if kind.kind == "float"]
    if not floats:
        return lambda row: row

    def key(row: Sequence[Any]) -> Any:
        changed = list(row)
        for index in floats:
            if row[index] is not None and row[index] != row[index]:
                changed[index] = NAN
        return tuple(changed)

    return key
