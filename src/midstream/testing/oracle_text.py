"""CQL text, read only as far as the oracle needs it.

The oracle must not trust the query compiler it checks, so it has its own reader. This module cuts CQL text
into tokens and finds the blocks of the query: its SELECTs, the windowed streams and subqueries in their FROM
clauses, and the set operations between them. Expressions stay what they are, sequences of tokens, because
DuckDB evaluates them. Text outside the grammar (ORDER BY, scalar subqueries) is handed on, not diagnosed:
the compiler's error messages are its own business.

>>> query = read_query("SELECT a.k FROM s [RANGE 10 SLIDE 5] AS a, (SELECT k FROM r [NOW]) b WHERE a.k = b.k")
>>> [(source.alias, source.window) for source in query.selects()[0].sources()]
[('a', Window(length=10, slide=5)), ('b', None)]
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

__all__ = ["OracleError", "Query", "Select", "Source", "Token", "Window", "read_query", "tokenize"]

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<string>'(?:[^']|'')*')
      | (?P<quoted>"(?:[^"]|"")*")
      | (?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)
      | (?P<word>[^\W\d]\w*)
      | (?P<symbol><=|>=|<>|!=|\|\||::|[-+*/%=<>(),.\[\];])""",
    re.VERBOSE | re.DOTALL,
)
_MICROSECONDS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
_SET_OPERATORS = ("UNION", "EXCEPT", "INTERSECT")
_JOIN_WORDS = ("JOIN", "INNER", "CROSS")
_AGGREGATES = ("COUNT", "SUM", "AVG", "MIN", "MAX")
_NEVER_ENDS = 2**63 - 1


class OracleError(ValueError):
    """The oracle cannot evaluate this query text."""


@dataclass(frozen=True)
class Token:
    """One token; `kind` is string, quoted, number, word or symbol."""

    kind: str
    text: str

    def is_word(self, *words: str) -> bool:
        """Whether this is one of these keywords, in any case."""
        return self.kind == "word" and self.text.upper() in words

    def is_symbol(self, symbol: str) -> bool:
        """Whether this is the given operator or punctuation mark."""
        return self.kind == "symbol" and self.text == symbol

    @property
    def name(self) -> str:
        """The identifier this token stands for, without its quotes."""
        return self.text[1:-1].replace('""', '"') if self.kind == "quoted" else self.text


@dataclass(frozen=True)
class Window:
    """A window in ticks. `length` None never ends; `slide` None does not jump.

    >>> Window(length=10, slide=None).validity(-3), Window(length=10, slide=5).validity(-3)
    ((-3, 8), (0, 10))
    """

    length: int | None
    slide: int | None = None

    def validity(self, event_time: int) -> tuple[int, int | None] | None:
        """The row's [from, to) with `to` None for never, or None if no instant sees the row."""
        if self.length is None:
            return event_time, None
        if self.slide is None:
            start, end = event_time, event_time + self.length + 1
        else:
            start = -(-event_time // self.slide) * self.slide
            end = -(-(event_time + self.length) // self.slide) * self.slide
        if end <= start:
            return None
        return start, None if end > _NEVER_ENDS else end


@dataclass
class Source:
    """One FROM item: a stream with its window, or a subquery."""

    alias: str
    stream: str = ""
    window: Window | None = None
    subquery: Query | None = None


@dataclass
class Select:
    """One SELECT block; `from_parts` holds sources and, between them, commas, JOIN words and ON conditions."""

    distinct: bool = False
    items: list[Token] = field(default_factory=list)
    from_parts: list[Source | Token] = field(default_factory=list)
    clauses: dict[str, list[Token]] = field(default_factory=dict)

    def sources(self) -> list[Source]:
        """The FROM items in text order."""
        return [part for part in self.from_parts if isinstance(part, Source)]

    @property
    def aggregates_without_groups(self) -> bool:
        """Whether SQL would return one row for an empty input here."""
        if "GROUP BY" in self.clauses:
            return False
        return "HAVING" in self.clauses or _calls_aggregate(self.items)

    @property
    def only_joins(self) -> bool:
        """Whether this block is select, project and join alone."""
        return not (self.distinct or {"GROUP BY", "HAVING"} & set(self.clauses) or _calls_aggregate(self.items))


@dataclass
class Query:
    """SELECT blocks and parenthesised queries, with the set operators between them."""

    parts: list[Select | Query | str] = field(default_factory=list)

    def selects(self) -> list[Select]:
        """Every SELECT block, subqueries included, outer blocks first."""
        found: list[Select] = []
        for part in self.parts:
            if isinstance(part, Query):
                found += part.selects()
            elif isinstance(part, Select):
                found.append(part)
                for source in part.sources():
                    found += source.subquery.selects() if source.subquery else []
        return found

    def set_operators(self) -> Iterator[str]:
        """Every set operator, those of subqueries included."""
        for part in self.parts:
            if isinstance(part, str):
                yield part
            elif isinstance(part, Query):
                yield from part.set_operators()
            else:
                for source in part.sources():
                    if source.subquery:
                        yield from source.subquery.set_operators()


def tokenize(text: str) -> list[Token]:
    """Cut text into tokens; comments and white space are dropped.

    >>> [token.text for token in tokenize("SELECT 'it''s [NOW]' -- [NOW]")]
    ['SELECT', "'it''s [NOW]'"]
    """
    tokens, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise OracleError(f"cannot read the query text at {text[position : position + 20]!r}")
        if match.lastgroup and match.lastgroup != "space":
            tokens.append(Token(match.lastgroup, match.group()))
        position = match.end()
    return tokens


def read_query(text: str) -> Query:
    """Read CQL text into blocks."""
    tokens = tokenize(text)
    if tokens and tokens[-1].is_symbol(";"):
        tokens.pop()
    reader = _Reader(tokens)
    query = reader.query()
    if reader.position < len(tokens):
        raise OracleError(f"unexpected {reader.peek().text!r} after the query")
    return query


def _calls_aggregate(tokens: list[Token]) -> bool:
    return any(token.is_word(*_AGGREGATES) and follower.is_symbol("(") for token, follower in pairwise(tokens))


class _Reader:
    """A cursor over the tokens of one query."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.position = 0

    def peek(self, ahead: int = 0) -> Token:
        index = self.position + ahead
        return self.tokens[index] if index < len(self.tokens) else Token("end", "")

    def take(self) -> Token:
        token = self.peek()
        self.position += 1
        return token

    def expect(self, text: str) -> None:
        token = self.take()
        if token.text.upper() != text:
            raise OracleError(f"expected {text!r}, found {token.text!r}")

    def query(self) -> Query:
        query = Query([self.term()])
        while self.peek().is_word(*_SET_OPERATORS):
            operator = self.take().text.upper()
            if self.peek().is_word("ALL", "DISTINCT"):
                operator += " " + self.take().text.upper()
            query.parts += [operator, self.term()]
        return query

    def term(self) -> Select | Query:
        if self.peek().is_symbol("("):
            self.take()
            query = self.query()
            self.expect(")")
            return query
        return self.select()

    def select(self) -> Select:
        self.expect("SELECT")
        select = Select()
        if self.peek().is_word("DISTINCT", "ALL"):
            select.distinct = self.take().is_word("DISTINCT")
        select.items = self.until("FROM")
        self.expect("FROM")
        select.from_parts.append(self.source())
        while True:
            condition = self.until("WHERE", "GROUP", "HAVING", *_SET_OPERATORS, *_JOIN_WORDS, comma=True)
            select.from_parts += condition
            if self.peek().is_symbol(","):
                select.from_parts += [self.take(), self.source()]
            elif self.peek().is_word(*_JOIN_WORDS):
                while self.peek().is_word(*_JOIN_WORDS):
                    select.from_parts.append(self.take())
                select.from_parts.append(self.source())
            else:
                break
        while self.peek().is_word("WHERE", "GROUP", "HAVING"):
            clause = self.take().text.upper()
            if clause == "GROUP":
                self.expect("BY")
                clause = "GROUP BY"
            select.clauses[clause] = self.until("WHERE", "GROUP", "HAVING", *_SET_OPERATORS)
        return select

    def source(self) -> Source:
        if self.peek().is_symbol("("):
            self.take()
            subquery = self.query()
            self.expect(")")
            return Source(self.alias(default=None), subquery=subquery)
        stream = self.take().name
        window = self.window() if self.peek().is_symbol("[") else Window(length=None)
        return Source(self.alias(default=stream), stream=stream, window=window)

    def alias(self, default: str | None) -> str:
        if self.peek().is_word("AS"):
            self.take()
            return self.take().name
        keywords = ("WHERE", "GROUP", "HAVING", "ON", "USING", *_SET_OPERATORS, *_JOIN_WORDS)
        if self.peek().kind == "quoted" or (self.peek().kind == "word" and not self.peek().is_word(*keywords)):
            return self.take().name
        if default is None:
            raise OracleError("a subquery in FROM needs an alias")
        return default

    def window(self) -> Window:
        self.expect("[")
        if self.peek().is_word("NOW"):
            self.take()
            window = Window(length=0)
        else:
            self.expect("RANGE")
            if self.peek().is_word("UNBOUNDED"):
                self.take()
                window = Window(length=None)
            else:
                length, slide = self.ticks(), None
                if self.peek().is_word("SLIDE"):
                    self.take()
                    slide = self.ticks()
                window = Window(length, slide)
        self.expect("]")
        return window

    def ticks(self) -> int:
        count = int(self.take().text)
        if self.peek().kind != "word" or self.peek().is_word("SLIDE"):
            return count
        unit = self.take().text.upper()
        return count * _MICROSECONDS[unit if unit in _MICROSECONDS else unit.removesuffix("S")]

    def until(self, *words: str, comma: bool = False) -> list[Token]:
        """The tokens up to one of these words (or a comma) outside parentheses, or the end of the block."""
        start, depth = self.position, 0
        while (token := self.peek()).kind != "end":
            if token.is_symbol("("):
                depth += 1
            elif token.is_symbol(")"):
                if depth == 0:
                    break
                depth -= 1
            elif depth == 0 and (token.is_word(*words) or (comma and token.is_symbol(","))):
                # IS [NOT] DISTINCT FROM is a comparison, not the FROM clause.
                previous = self.tokens[self.position - 1]
                if not (token.is_word("FROM") and previous.is_word("DISTINCT") and self.position - 1 > start):
                    break
            self.position += 1
        return self.tokens[start : self.position]
