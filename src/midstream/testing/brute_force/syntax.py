"""The syntax tree of a CQL query, as the brute force reads it: what is written, before any name has a meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = [
    "Block",
    "BruteForceError",
    "Call",
    "Case",
    "Cast",
    "ColumnName",
    "ColumnPlace",
    "Constant",
    "Expression",
    "Item",
    "Name",
    "Query",
    "Reading",
    "SetOperation",
    "Source",
    "Star",
    "Window",
]


class BruteForceError(ValueError):
    """The brute force does not understand this query, or the query means nothing."""


@dataclass(frozen=True)
class Name:
    """An identifier; one without quotes is found whatever its case if that leaves one candidate.

    >>> Name("K").find(["k", "v"]), Name("k").find(["K", "k"]), Name("K", quoted=True).find(["k"])
    ([0], [1], [])
    """

    text: str
    quoted: bool = False

    def find(self, candidates: list[str]) -> list[int]:
        """The positions of the candidates this name may stand for."""
        exact = [index for index, candidate in enumerate(candidates) if candidate == self.text]
        if exact or self.quoted:
            return exact
        wanted = self.text.lower()
        return [index for index, candidate in enumerate(candidates) if candidate.lower() == wanted]


@dataclass(frozen=True)
class Constant:
    """A literal; `kind` is number, text, boolean, null, date, timestamp or interval (in microseconds)."""

    kind: str
    value: Any


@dataclass(frozen=True)
class ColumnName:
    """A column, perhaps with the alias of its relation."""

    relation: Name | None
    name: Name


@dataclass(frozen=True)
class Call:
    """A function, an operator or an aggregate with its arguments; COUNT(*) has none."""

    function: str
    arguments: tuple[Expression, ...]
    distinct: bool = False


@dataclass(frozen=True)
class Case:
    """CASE; `subject` is what the form `CASE subject WHEN value` compares."""

    subject: Expression | None
    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression


@dataclass(frozen=True)
class Cast:
    """CAST to a type by name, with the digits of a DECIMAL."""

    argument: Expression
    target: str
    digits: tuple[int, ...] = ()


@dataclass(frozen=True)
class ColumnPlace:
    """A column by the positions of its relation in FROM and its own in the relation, as a star means it."""

    relation: int
    index: int


Expression: TypeAlias = Constant | ColumnName | ColumnPlace | Call | Case | Cast


@dataclass(frozen=True)
class Star:
    """`*` or `alias.*` in a select list."""

    relation: Name | None


@dataclass(frozen=True)
class Item:
    """An expression of a select list, with its name if it has one."""

    expression: Expression
    name: str | None


@dataclass(frozen=True)
class Window:
    """A window in ticks: a range without an end has no length, one that does not slide no slide.

    >>> Window(10).validity(-3), Window(10, 5).validity(-3), Window(3, 10).validity(2), Window(None).validity(7)
    ((-3, 8), (0, 10), (10, 10), (7, None))
    """

    length: int | None
    slide: int | None = None

    def validity(self, event_time: int) -> tuple[int, int | None]:
        """The first tick at which the row is valid and the first at which it no longer is (None: never)."""
        if self.length is None:
            return event_time, None
        if self.slide is None:
            return event_time, event_time + self.length + 1
        return self._step(event_time), self._step(event_time + self.length)

    def _step(self, tick: int) -> int:
        """The first step at or after the tick."""
        assert self.slide is not None
        missing = -tick % self.slide
        return tick + missing


@dataclass(frozen=True)
class Reading:
    """A stream in FROM, with its window."""

    stream: Name
    window: Window


@dataclass(frozen=True)
class Source:
    """An item of FROM; `condition` is what stands in the ON behind it."""

    relation: Reading | Query
    alias: str
    condition: Expression | None = None


@dataclass(frozen=True)
class Block:
    """SELECT … FROM … WHERE … GROUP BY … HAVING."""

    distinct: bool
    items: tuple[Item | Star, ...]
    sources: tuple[Source, ...]
    where: Expression | None
    keys: tuple[Expression, ...]
    having: Expression | None


@dataclass(frozen=True)
class SetOperation:
    """UNION or EXCEPT of two queries, with or without ALL."""

    operator: str
    keeps_all: bool
    left: Query
    right: Query


Query: TypeAlias = Block | SetOperation
