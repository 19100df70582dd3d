"""The dialect of SQL that midstream speaks, for sqlglot.

sqlglot gives the tokenizer, the tree and the dialect's place in its registry. The grammar is our own
(``query_grammar``, ``expression_grammar``): sqlglot's reads the union of thirty dialects and drops, without a word,
much of what it does not keep. A continuous query that ignores a clause is worse than one that is refused.

Nodes are sqlglot's, except a stream with its window; each knows where it starts in the text:

>>> (select,) = Cql().parse("SELECT price FROM bids [RANGE 5 MINUTES] b")
>>> stream = select.find(StreamReference)
>>> stream.name, stream.alias, stream.args["window"].kind, start(stream)
('bids', 'b', 'RANGE', 18)
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import Dialect, Token, TokenType, exp, parser, tokens

__all__ = ["Cql", "Length", "StreamReference", "StreamWindow", "start"]


class Length(exp.Expression):
    """A length of time: a number, and a unit unless it counts ticks. (sqlglot's Interval would rewrite the unit.)"""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "unit": False}

    @property
    def amount(self) -> str:
        return str(self.this.this)

    @property
    def unit(self) -> exp.Var | None:
        return self.args.get("unit")


class StreamWindow(exp.Expression):
    """A window in square brackets. ``kind`` is RANGE, UNBOUNDED or NOW."""

    arg_types: ClassVar[dict[str, bool]] = {"kind": True, "width": False, "slide": False}

    @property
    def kind(self) -> str:
        return str(self.args["kind"])

    @property
    def width(self) -> Length | None:
        return self.args.get("width")

    @property
    def slide(self) -> Length | None:
        return self.args.get("slide")


class StreamReference(exp.Table):
    """A stream in FROM, with its window if it has one."""

    arg_types: ClassVar[dict[str, bool]] = {**exp.Table.arg_types, "window": False}

    @property
    def window(self) -> StreamWindow | None:
        return self.args.get("window")


class Cql(Dialect):
    """SQL with windows; registered with sqlglot as ``cql``."""

    class Tokenizer(tokens.Tokenizer):
        # No word is a keyword for the tokenizer: the grammar knows where a word means something, and everywhere else
        # streams and columns may be called "date", "range" or "offset".
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            "||": TokenType.DPIPE,
            ">=": TokenType.GTE,
            "<=": TokenType.LTE,
            "<>": TokenType.NEQ,
            "!=": TokenType.NEQ,
        }
        COMMANDS: ClassVar[set[TokenType]] = set()

    class Parser(parser.Parser):
        def parse(self, raw_tokens: list[Token], sql: str) -> list[exp.Expr | None]:
            from midstream.cql.query_grammar import QueryGrammar

            return [QueryGrammar(sql, raw_tokens).parse()]

        def parse_into(self, *_: Any, **__: Any) -> list[exp.Expr | None]:
            raise NotImplementedError("CQL is read as whole queries only")


def start(node: exp.Expr) -> int:
    """The offset of the node's first character in the query text."""
    return int(node.meta["start"])
