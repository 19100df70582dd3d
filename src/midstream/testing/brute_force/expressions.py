"""Expressions get a meaning: names are found, types follow, and what comes out can be evaluated on rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from midstream.testing.brute_force.aggregates import Aggregate
from midstream.testing.brute_force.bound import Bound, Rows, cast, constant, meet
from midstream.testing.brute_force.functions import call_function, condition
from midstream.testing.brute_force.syntax import (
    BruteForceError,
    Call,
    Case,
    Cast,
    ColumnName,
    ColumnPlace,
    Constant,
    Expression,
    Name,
)
from midstream.testing.brute_force.value_types import BOOLEAN, DATE, DOUBLE, INTEGER, NULL, TEXT, Type, type_of_name

__all__ = ["Columns", "Scope", "bind"]

_AGGREGATES = ("COUNT", "SUM", "AVG", "MIN", "MAX")
_INTERVAL = Type("duration", unit="us")


@dataclass(frozen=True)
class Columns:
    """The columns of a relation."""

    names: list[str]
    types: list[Type]


@dataclass
class Scope:
    """What an expression may name: the columns of relations, and output names where they count.

    `aggregates` collects the aggregates that expressions call; None where aggregates are not allowed. Their values
    stand behind the rows of the relations.
    """

    aliases: list[str]
    relations: list[Columns]
    outputs: dict[str, Expression] = field(default_factory=dict)
    aggregates: list[Aggregate] | None = None

    def column(self, written: ColumnName) -> tuple[int, int] | None:
        """The relation and the position in it of the column, or None if there is none."""
        places = range(len(self.aliases)) if written.relation is None else [self.relation(written.relation)]
        candidates = [(place, index) for place in places for index in range(len(self.relations[place].names))]
        found = written.name.find([self.relations[place].names[index] for place, index in candidates])
        if len(found) > 1:
            raise BruteForceError(f"column {written.name.text!r} is ambiguous")
        return candidates[found[0]] if found else None

    def relation(self, name: Name) -> int:
        """The position of the relation with this alias."""
        found = name.find(self.aliases)
        if len(found) != 1:
            raise BruteForceError(f"{name.text!r} is not in FROM, or not the only one")
        return found[0]

    def output(self, written: ColumnName) -> Expression | None:
        """The expression of the select list with this name."""
        names = list(self.outputs)
        found = [] if written.relation else written.name.find(names)
        return self.outputs[names[found[0]]] if len(found) == 1 else None


def bind(expression: Expression, scope: Scope) -> Bound:
    """The expression with its type and its function of the rows."""
    match expression:
        case Constant():
            return _constant(expression)
        case ColumnName():
            return _named_column(expression, scope)
        case ColumnPlace(relation, index):
            return _column(relation, index, scope)
        case Case():
            return _case(expression, scope)
        case Cast(argument, target, digits):
            kind = type_of_name(target, digits)
            if kind is None:
                raise BruteForceError(f"the type {target} is not supported")
            return _not_literal(cast(bind(argument, scope), kind))
        case Call(function, arguments, distinct) if function in _AGGREGATES:
            return _aggregate(function, arguments, distinct, scope)
        case Call(function, arguments):
            return call_function(function, [bind(argument, scope) for argument in arguments])


def _not_literal(bound: Bound) -> Bound:
    return Bound(bound.type, bound.evaluate, bound.relations)


def _constant(written: Constant) -> Bound:
    value: Any = written.value
    match written.kind:
        case "null":
            return constant(NULL, None)
        case "boolean":
            return constant(BOOLEAN, value)
        case "text":
            return constant(TEXT, value)
        case "interval":
            return constant(_INTERVAL, value * 1000)
        case "date" | "timestamp":
            clock = value.strip().partition(" ")[2] or value.strip().partition("T")[2]
            zoned = any(mark in clock for mark in "+-Z")
            kind = DATE if written.kind == "date" else Type("timestamp", unit="us", zoned=zoned)
            read = cast(constant(TEXT, value), kind)
            if read.evaluate(()) is None:
                raise BruteForceError(f"cannot read {value!r} as a {written.kind}")
            return read
    if isinstance(value, float):
        return constant(DOUBLE, value)
    if -(2**63) <= value < 2**63:
        return constant(INTEGER, value)
    return cast(constant(TEXT, str(value)), Type("decimal", precision=76))


def _named_column(written: ColumnName, scope: Scope) -> Bound:
    place = scope.column(written)
    if place is not None:
        return _column(*place, scope)
    output = scope.output(written)
    if output is None:
        raise BruteForceError(f"column {written.name.text!r} does not exist")
    return bind(output, replace(scope, outputs={}))


def _column(relation: int, index: int, scope: Scope) -> Bound:
    kind = scope.relations[relation].types[index]
    return Bound(kind, lambda rows: rows[relation][index], frozenset([relation]))


def _case(written: Case, scope: Scope) -> Bound:
    conditions = [
        condition(bind(when if written.subject is None else Call("=", (written.subject, when)), scope))
        for when, _ in written.branches
    ]
    *values, otherwise = meet(*(bind(then, scope) for _, then in written.branches), bind(written.otherwise, scope))
    branches: Sequence[tuple[Callable[[Rows], Any], Callable[[Rows], Any]]] = [
        (test.evaluate, value.evaluate) for test, value in zip(conditions, values, strict=True)
    ]

    def evaluate(rows: Rows) -> Any:
        for test, value in branches:
            if test(rows):
                return value(rows)
        return otherwise.evaluate(rows)

    relations = frozenset[int]().union(*(part.relations for part in (*conditions, *values, otherwise)))
    return Bound(otherwise.type, evaluate, relations)


def _aggregate(function: str, arguments: Sequence[Expression], distinct: bool, scope: Scope) -> Bound:
    if scope.aggregates is None:
        raise BruteForceError(f"{function} is an aggregate, and none is allowed here")
    inner = Scope(scope.aliases, scope.relations)
    if len(arguments) > 1 or (not arguments and function != "COUNT"):
        raise BruteForceError(f"{function} does not take {len(arguments)} arguments")
    aggregate = Aggregate.of(function, bind(arguments[0], inner) if arguments else None, distinct)
    index, behind = len(scope.aggregates), len(scope.aliases)
    scope.aggregates.append(aggregate)
    return Bound(aggregate.type, lambda rows: rows[behind][index])
