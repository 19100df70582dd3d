"""From CQL text to a syntax tree: a tokenizer and a recursive descent along the grammar of docs/cql.md.

The method for each level of precedence calls the one for the next tighter level.

>>> read("SELECT k FROM s [RANGE 2 SECONDS] WHERE NOT v + 1 = 2 IS NULL").where
Call(function='NOT', arguments=(Call(function='IS NULL', arguments=(Call(function='=', arguments=(Call(function='+',\
 arguments=(ColumnName(relation=None, name=Name(text='v', quoted=False)), Constant(kind='number', value=1)),\
 distinct=False), Constant(kind='number', value=2)), distinct=False),), distinct=False),), distinct=False)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import NoReturn, TypeVar

from midstream.testing.brute_force.syntax import (
    Block,
    BruteForceError,
    Call,
    Case,
    Cast,
    ColumnName,
    Constant,
    Expression,
    Item,
    Name,
    Query,
    Reading,
    SetOperation,
    Source,
    Star,
    Window,
)
from midstream.testing.brute_force.tokens import Token, tokens_of

__all__ = ["read"]

_Part = TypeVar("_Part")

_RESERVED = frozenset(
    """ALL AND AS BETWEEN BY CASE CROSS DISTINCT ELSE END EXCEPT FALSE FROM GROUP HAVING IN INNER INTERSECT IS JOIN
    LIKE NOT NULL ON OR SELECT THEN TRUE UNION WHEN WHERE WITH""".split()  # noqa: SIM905
)
_QUANTITY = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)", re.ASCII)
_COMPARISONS = ("=", "<>", "!=", "<", "<=", ">", ">=")
_AGGREGATES = ("COUNT", "SUM", "AVG", "MIN", "MAX")
_PARTS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 7 * 86_400_000_000,
}


def read(text: str) -> Query:
    """The syntax tree of a query."""
    reader = _Reader(text, tokens_of(text))
    query = reader.query()
    reader.takes(";")
    if reader.token.kind != "end":
        reader.fail("expected the end of the query")
    return query


class _Reader:
    """A position in the tokens of a query."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._index = 0
        self.token = tokens[0]

    # Tokens

    def fail(self, message: str) -> NoReturn:
        place = self._text[self.token.position : self.token.position + 20]
        raise BruteForceError(f"{message}, found {place!r}")

    def _advance(self) -> Token:
        taken = self.token
        self._index += 1
        self.token = self._tokens[min(self._index, len(self._tokens) - 1)]
        return taken

    def _next(self) -> Token:
        return self._tokens[min(self._index + 1, len(self._tokens) - 1)]

    def _sees(self, *words: str) -> bool:
        """Whether one of these keywords or symbols is next."""
        return self.token.word in words

    def takes(self, *words: str) -> bool:
        """Whether these keywords or symbols, one after the other, are next; if so, they are behind the reader."""
        if self.token.word != words[0]:
            return False
        if (
            len(words) > 1
            and tuple(token.word for token in self._tokens[self._index : self._index + len(words)]) != words
        ):
            return False
        for _ in words:
            self._advance()
        return True

    def _expect(self, *words: str) -> None:
        if not self.takes(*words):
            self.fail(f"expected {' '.join(words)}")

    def _name(self) -> Name:
        if self.token.kind == "quoted":
            return Name(self._advance().text, quoted=True)
        if self.token.kind != "word" or self.token.word in _RESERVED:
            self.fail("expected a name")
        return Name(self._advance().text)

    def _optional_name(self) -> str | None:
        """The name behind AS, or a name without AS."""
        if self.takes("AS") or self.token.kind == "quoted":
            return self._name().text
        if self.token.kind == "word" and self.token.word not in _RESERVED:
            return self._name().text
        return None

    # Queries

    def query(self) -> Query:
        left = self._operand()
        while self._sees("UNION", "EXCEPT"):
            operator = self._advance().text.upper()
            keeps_all = self.takes("ALL")
            left = SetOperation(operator, keeps_all, left, self._operand())
        return left

    def _operand(self) -> Query:
        if self.takes("("):
            query = self.query()
            self._expect(")")
            return query
        return self._block()

    def _block(self) -> Block:
        self._expect("SELECT")
        distinct = self.takes("DISTINCT")
        if not distinct:
            self.takes("ALL")
        items = self._list(self._item)
        self._expect("FROM")
        sources = [self._source()]
        while True:
            if self.takes(","):
                sources.append(self._source())
            elif self.takes("CROSS", "JOIN") or self.takes("INNER", "JOIN") or self.takes("JOIN"):
                source = self._source()
                sources.append(replace(source, condition=self._expression()) if self.takes("ON") else source)
            else:
                break
        where = self._expression() if self.takes("WHERE") else None
        keys = self._list(self._expression) if self.takes("GROUP", "BY") else ()
        having = self._expression() if self.takes("HAVING") else None
        return Block(distinct, items, tuple(sources), where, keys, having)

    def _list(self, read_part: Callable[[], _Part]) -> tuple[_Part, ...]:
        parts = [read_part()]
        while self.takes(","):
            parts.append(read_part())
        return tuple(parts)

    def _item(self) -> Item | Star:
        if self.takes("*"):
            return Star(None)
        start = self._index
        if self.token.kind in ("word", "quoted") and self._next().word == ".":
            relation = self._name()
            self._expect(".")
            if self.takes("*"):
                return Star(relation)
            self._index, self.token = start, self._tokens[start]
        return Item(self._expression(), self._optional_name())

    def _source(self) -> Source:
        if self.takes("("):
            query = self.query()
            self._expect(")")
            alias = self._optional_name()
            if alias is None:
                self.fail("expected the alias of a subquery")
            return Source(query, alias)
        stream = self._name()
        window = self._window() if self.takes("[") else Window(None)
        return Source(Reading(stream, window), self._optional_name() or stream.text)

    def _window(self) -> Window:
        if self.takes("NOW"):
            window = Window(0)
        elif self.takes("RANGE", "UNBOUNDED"):
            window = Window(None)
        else:
            self._expect("RANGE")
            window = Window(self._ticks(), self._ticks() if self.takes("SLIDE") else None)
            if window.slide == 0:
                self.fail("a window cannot slide by 0 ticks")
        self._expect("]")
        return window

    def _ticks(self) -> int:
        if self.token.kind != "number" or not self.token.text.isdigit():
            self.fail("expected a whole number")
        count = int(self._advance().text)
        return count if self._sees("SLIDE", "]") else count * self._unit(self._advance().text)

    def _unit(self, text: str) -> int:
        """The unit of time in microseconds."""
        name = text.upper()
        microseconds = _UNITS.get(name) or _UNITS.get(name.removesuffix("S"))
        if microseconds is None:
            self.fail(f"{text!r} is not a unit of time")
        return microseconds

    # Expressions, from the loosest to the tightest

    def _expression(self) -> Expression:
        left = self._conjunction()
        while self.takes("OR"):
            left = Call("OR", (left, self._conjunction()))
        return left

    def _conjunction(self) -> Expression:
        left = self._negation()
        while self.takes("AND"):
            left = Call("AND", (left, self._negation()))
        return left

    def _negation(self) -> Expression:
        return Call("NOT", (self._negation(),)) if self.takes("NOT") else self._null_test()

    def _null_test(self) -> Expression:
        left = self._comparison()
        while self.takes("IS"):
            negated = self.takes("NOT")
            self._expect("NULL")
            left = _negated(negated, Call("IS NULL", (left,)))
        return left

    def _comparison(self) -> Expression:
        left = self._predicate()
        if not self._sees(*_COMPARISONS):
            return left
        operator = self._advance().text
        compared = Call("<>" if operator == "!=" else operator, (left, self._predicate()))
        if self._sees(*_COMPARISONS):
            self.fail("comparisons do not chain")
        return compared

    def _predicate(self) -> Expression:
        left = self._concatenation()
        while True:
            negated = self.takes("NOT")
            if self.takes("BETWEEN"):
                low = self._concatenation()
                self._expect("AND")
                high = self._concatenation()
                left = Call("AND", (Call(">=", (left, low)), Call("<=", (left, high))))
            elif self.takes("IN"):
                self._expect("(")
                left = Call("IN", (left, *self._list(self._expression)))
                self._expect(")")
            elif self.takes("LIKE"):
                left = Call("LIKE", (left, self._concatenation()))
            else:
                if negated:
                    self.fail("expected BETWEEN, IN or LIKE")
                return left
            left = _negated(negated, left)

    def _concatenation(self) -> Expression:
        return self._infix(self._sum, "||")

    def _sum(self) -> Expression:
        return self._infix(self._product, "+", "-")

    def _product(self) -> Expression:
        return self._infix(self._signed, "*", "/", "%")

    def _infix(self, operand: Callable[[], Expression], *operators: str) -> Expression:
        left = operand()
        while self._sees(*operators):
            left = Call(self._advance().text, (left, operand()))
        return left

    def _signed(self) -> Expression:
        if self.takes("+"):
            return self._signed()
        if not self.takes("-"):
            return self._primary()
        literal = self.token.kind == "number"
        operand = self._signed()
        # The least int64 is the negative of a number that is none.
        if literal and isinstance(operand, Constant):
            return Constant(operand.kind, -operand.value)
        return Call("sign -", (operand,))

    def _primary(self) -> Expression:
        token = self.token
        if self.takes("("):
            inner = self._expression()
            self._expect(")")
            return inner
        if token.kind == "number":
            return self._number()
        if token.kind == "string":
            return Constant("text", self._advance().text)
        word = token.word if token.kind == "word" else ""
        if word in ("TRUE", "FALSE", "NULL"):
            self._advance()
            return Constant("null", None) if word == "NULL" else Constant("boolean", word == "TRUE")
        if word in ("DATE", "TIMESTAMP") and self._next().kind == "string":
            self._advance()
            return Constant(word.lower(), self._advance().text)
        if word == "INTERVAL" and self._next().kind in ("string", "number"):
            return self._interval()
        if word == "CASE":
            return self._case()
        if word and self._next().word == "(":
            return self._call(word)
        name = self._name()
        return ColumnName(name, self._name()) if self.takes(".") else ColumnName(None, name)

    def _number(self) -> Constant:
        text = self._advance().text
        if self.token.kind == "word" and self.token.position == self._tokens[self._index - 1].position + len(text):
            self.fail("expected a space behind the number")
        return Constant("number", int(text) if text.isdigit() else float(text))

    def _interval(self) -> Constant:
        self._advance()
        words = self._advance().text.split()
        unit = words[1] if len(words) == 2 else self._advance().text
        if not _QUANTITY.fullmatch(words[0]):
            self.fail("expected the length of an interval")
        microseconds = Decimal(words[0]) * self._unit(unit)
        if microseconds != int(microseconds):
            self.fail("an interval is a whole number of microseconds")
        return Constant("interval", int(microseconds))

    def _case(self) -> Case:
        self._expect("CASE")
        subject = None if self._sees("WHEN") else self._expression()
        branches = []
        while self.takes("WHEN"):
            condition = self._expression()
            self._expect("THEN")
            branches.append((condition, self._expression()))
        otherwise = self._expression() if self.takes("ELSE") else Constant("null", None)
        self._expect("END")
        return Case(subject, tuple(branches), otherwise)

    def _call(self, function: str) -> Expression:
        if function in _RESERVED:
            self.fail("expected an expression")
        self._advance()
        self._expect("(")
        if function == "CAST":
            return self._cast()
        if function == "EXTRACT":
            if not self._sees(*_PARTS):
                self.fail("expected a part of a date")
            part = self._advance().text.upper()
            self._expect("FROM")
            arguments: tuple[Expression, ...] = (self._expression(),)
            self._expect(")")
            return Call(part, arguments)
        if function == "COUNT" and self.takes("*", ")"):
            return Call("COUNT", ())
        distinct = function in _AGGREGATES and self.takes("DISTINCT")
        arguments = () if self._sees(")") else self._list(self._expression)
        self._expect(")")
        if function == "IF" and len(arguments) == 3:
            return Case(None, ((arguments[0], arguments[1]),), arguments[2])
        return Call(function, arguments, distinct)

    def _cast(self) -> Cast:
        argument = self._expression()
        self._expect("AS")
        target = self._advance().text.upper()
        if target == "DOUBLE":
            self.takes("PRECISION")
        digits: list[int] = []
        if self.takes("("):
            digits = [int(number.text) for number in self._list(self._advance)]
            self._expect(")")
        self._expect(")")
        return Cast(argument, target, tuple(digits))


def _negated(negated: bool, condition: Expression) -> Expression:
    return Call("NOT", (condition,)) if negated else condition
