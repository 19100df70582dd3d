"""Scalar expressions: immutable, typed when built, readable as text.

Four kinds are enough: a column, a literal, a cast, and a call (operators and functions alike). Calls are built
with :func:`midstream.algebra.functions.call`, which checks the arguments and inserts the casts they need.

>>> price = Column("b", "price", pa.int64())
>>> str(Call("<", (price, Literal(3, pa.int64())), pa.bool_()))
'b.price < 3'
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import pyarrow as pa

from midstream.algebra.durations import duration_text

__all__ = ["Call", "Cast", "Column", "Expression", "Literal", "conjunction", "conjuncts", "connected", "substitute"]

_INFIX = {
    "or": 1, "and": 2, "=": 4, "<>": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "like": 4,
    "||": 5, "+": 6, "-": 6, "*": 7, "/": 7, "%": 7,
}  # fmt: skip
_NOT, _POSTFIX, _ATOM = 3, 4, 9


@dataclass(frozen=True)
class Expression:
    """Base of the four kinds; ``type`` is the pyarrow type of its value."""

    @property
    def type(self) -> pa.DataType:
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        """Without what was computed from the fields, which may refer back to the expression."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _hash(self) -> int:
        """Kept, since planning puts the same expressions into one set after another, and hashing a type is slow."""
        return hash(tuple(getattr(self, field.name) for field in fields(self)))

    @property
    def arguments(self) -> tuple[Expression, ...]:
        return ()

    @cached_property
    def columns(self) -> frozenset[Column]:
        """All columns the expression reads."""
        return frozenset().union(*(argument.columns for argument in self.arguments))

    @cached_property
    def relations(self) -> frozenset[str]:
        """The aliases whose columns the expression reads."""
        return frozenset(column.relation for column in self.columns)

    @cached_property
    def text(self) -> str:
        """The expression as query text: equal texts mean equal expressions within one query."""
        return self._text(0)

    def _text(self, outer: int) -> str:
        raise NotImplementedError

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Column(Expression):
    """A column of the input, by alias and name; the alias is empty above a projection."""

    relation: str
    name: str
    data_type: pa.DataType

    @property
    def type(self) -> pa.DataType:
        return self.data_type

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def columns(self) -> frozenset[Column]:
        return frozenset((self,))

    def _text(self, outer: int) -> str:
        # Names that are not plain words are quoted, so that a column called "x + b.y" is not the sum's text.
        return ".".join(map(_name, (self.relation, self.name))) if self.relation else self.name


def _name(name: str) -> str:
    if name.isidentifier():
        return name
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class Literal(Expression):
    """A constant: a Python value that pyarrow accepts for the type, or None."""

    value: Any
    data_type: pa.DataType

    @property
    def type(self) -> pa.DataType:
        return self.data_type

    def __hash__(self) -> int:
        return self._hash

    def _text(self, outer: int) -> str:
        if self.value is None:
            return "NULL"
        if isinstance(self.value, bool):
            return str(self.value).upper()
        if isinstance(self.value, str):
            return "'" + self.value.replace("'", "''") + "'"
        if isinstance(self.value, datetime.datetime):
            return f"TIMESTAMP '{self.value}'"
        if isinstance(self.value, datetime.date):
            return f"DATE '{self.value}'"
        if isinstance(self.value, datetime.timedelta):
            return f"INTERVAL '{duration_text(self.value // datetime.timedelta(microseconds=1))}'"
        return str(self.value)


@dataclass(frozen=True)
class Cast(Expression):
    """The argument's value in another type, or NULL where it has none."""

    argument: Expression
    data_type: pa.DataType

    @property
    def type(self) -> pa.DataType:
        return self.data_type

    def __hash__(self) -> int:
        return self._hash

    @property
    def arguments(self) -> tuple[Expression, ...]:
        return (self.argument,)

    def _text(self, outer: int) -> str:
        return f"CAST({self.argument} AS {self.data_type})"


@dataclass(frozen=True)
class Call(Expression):
    """An operator or function applied to arguments of exactly the types it takes."""

    function: str
    operands: tuple[Expression, ...]
    data_type: pa.DataType

    @property
    def type(self) -> pa.DataType:
        return self.data_type

    def __hash__(self) -> int:
        return self._hash

    @property
    def arguments(self) -> tuple[Expression, ...]:
        return self.operands

    def _text(self, outer: int) -> str:
        name, operands = self.function, self.operands
        if name in _INFIX:
            level = _INFIX[name]
            # AND and OR are associative: how they nest does not show.
            left, right = operands[0]._text(level), operands[1]._text(level + (name not in ("and", "or")))
            word = name.upper() if name.isalpha() else name
            return _wrapped(f"{left} {word} {right}", level, outer)
        if name == "negate":
            inner = operands[0]._text(_ATOM)
            # Two signs in a row would begin a comment.
            return f"-({inner})" if inner.startswith("-") else f"-{inner}"
        if name == "not":
            return _wrapped(f"NOT {operands[0]._text(_NOT + 1)}", _NOT, outer)
        if name == "is_null":
            return _wrapped(f"{operands[0]._text(_POSTFIX + 1)} IS NULL", _POSTFIX, outer)
        if name == "in":
            items = ", ".join(str(item) for item in operands[1:])
            return _wrapped(f"{operands[0]._text(_POSTFIX + 1)} IN ({items})", _POSTFIX, outer)
        if name == "case":
            branches = [
                f"WHEN {condition} THEN {value}"
                for condition, value in zip(operands[:-1:2], operands[1::2], strict=True)
            ]
            return f"CASE {' '.join(branches)} ELSE {operands[-1]} END"
        return f"{name.upper()}({', '.join(str(operand) for operand in operands)})"


def _wrapped(text: str, level: int, outer: int) -> str:
    return f"({text})" if level < outer else text


def conjuncts(expression: Expression) -> Iterator[Expression]:
    """The parts that AND connects, left to right."""
    pending = [expression]
    while pending:
        part = pending.pop()
        if isinstance(part, Call) and part.function == "and":
            pending += reversed(part.operands)
        else:
            yield part


def conjunction(parts: Iterable[Expression]) -> Expression:
    """The parts connected by AND; TRUE for none."""
    given = list(parts)
    return connected("and", given) if given else Literal(True, pa.bool_())


def connected(function: str, parts: Iterable[Expression]) -> Expression:
    """The conditions, at least one, connected by AND or OR, as a balanced tree: a thousand of them nest ten deep."""
    level = list(parts)
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [Call(function, pair, pa.bool_()) for pair in pairs] + level[len(level) // 2 * 2 :]
    return level[0]


def substitute(expression: Expression, replace: Callable[[Column], Expression]) -> Expression:
    """The expression with each column replaced (by an expression of the same type)."""
    if isinstance(expression, Column):
        return replace(expression)
    if isinstance(expression, Cast):
        return Cast(substitute(expression.argument, replace), expression.data_type)
    if isinstance(expression, Call):
        operands = tuple(substitute(operand, replace) for operand in expression.operands)
        return Call(expression.function, operands, expression.data_type)
    return expression
