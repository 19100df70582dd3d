"""The grammar of queries: SELECT blocks, FROM items with windows, set operations.

query      = block { (UNION [ALL] | EXCEPT [ALL]) block }          set operations associate to the left
block      = "(" query ")" | SELECT [DISTINCT] items FROM item { ("," | [INNER | CROSS] JOIN) item [ON condition] }
             [WHERE condition] [GROUP BY expressions] [HAVING condition]
item       = stream [window] [[AS] alias] | "(" query ")" [AS] alias
window     = "[" (NOW | RANGE UNBOUNDED | RANGE length [SLIDE length]) "]"
length     = number unit                                           without unit for integer event times
"""

from __future__ import annotations

from typing import NoReturn

from sqlglot import TokenType, exp

from midstream.cql.dialect import Length, StreamReference, StreamWindow
from midstream.cql.expression_grammar import ExpressionGrammar
from midstream.cql.unsupported import CLAUSES, RESERVED, STATEMENTS

__all__ = ["MAX_RELATIONS", "QueryGrammar"]

# A subquery takes several levels of the plan and of the stack.
_QUERY_LEVELS = 3

MAX_RELATIONS = 128
"""Streams and subqueries in one query: a left-deep plan of them is as deep, and plans are walked recursively."""


class QueryGrammar(ExpressionGrammar):
    """Reads one whole query."""

    relations = 0

    def parse(self) -> exp.Expr:
        if self.at_end():
            raise self.problem("the query is empty", 0)
        query = self.query()
        if self.take(TokenType.SEMICOLON) and not self.at_end():
            raise self.unsupported("more than one statement is not supported", hint="Run each as a query of its own.")
        if not self.at_end():
            self.refuse("the end of the query")
        return query

    def query(self) -> exp.Expr:
        first = self.token.start
        for _ in range(_QUERY_LEVELS):
            self.enter()
        left = self._block()
        while operation := self.take_word("UNION", "EXCEPT"):
            distinct = self.take_word("ALL", "DISTINCT") != "ALL"
            if self.word in ("BY", "CORRESPONDING"):
                raise self.unsupported(
                    f"{operation} by column names is not supported", hint="Columns are matched by position."
                )
            kind = exp.Union if operation == "UNION" else exp.Except
            left = self.node(kind(this=left, expression=self._block(), distinct=distinct), first)
        self.nesting -= _QUERY_LEVELS
        return left

    def _block(self) -> exp.Expr:
        if self.take(TokenType.L_PAREN):
            query = self.query()
            self.expect(TokenType.R_PAREN, '")"')
            return query
        if self.word == "FROM":
            raise self.unsupported(
                "a query that starts with FROM is not supported", hint="Start the query with SELECT."
            )
        if self.word in STATEMENTS:
            raise self.unsupported(f"{self.word} is not supported", hint="Start the query with SELECT.")
        if self.word != "SELECT":
            self.refuse("SELECT")
        return self._select()

    def _select(self) -> exp.Expr:
        first = self.advance().start
        distinct = None
        if quantifier := self.take_word("DISTINCT", "ALL"):
            if self.word == "ON" and quantifier == "DISTINCT":
                raise self.unsupported("DISTINCT ON is not supported", hint="Use GROUP BY.")
            distinct = exp.Distinct() if quantifier == "DISTINCT" else None
        if self.word == "TOP" and self.following.token_type == TokenType.NUMBER:
            self.refuse("a select list")
        items = [self._select_item()]
        while self.take(TokenType.COMMA):
            items.append(self._select_item())
        if self.word != "FROM":
            self.refuse('"," or FROM')
        self.advance()
        source = self._from_item()
        joins = list(iter(self._join, None))
        parts: dict[str, exp.Expr | None] = {"where": None, "group": None, "having": None}
        if self.word == "WHERE":
            place = self.advance().start
            parts["where"] = self.node(exp.Where(this=self.expression()), place)
        if self.word == "GROUP":
            parts["group"] = self._group_by()
        if self.word == "HAVING":
            place = self.advance().start
            parts["having"] = self.node(exp.Having(this=self.expression()), place)
        self._check_end_of_block()
        select = exp.Select(expressions=items, from_=exp.From(this=source), joins=joins, distinct=distinct, **parts)
        return self.node(select, first)

    def _check_end_of_block(self) -> None:
        if self.at_end() or self.at(TokenType.R_PAREN, TokenType.SEMICOLON) or self.word in ("UNION", "EXCEPT"):
            return
        if self.word in ("WHERE", "GROUP", "HAVING"):
            raise self.problem(f"{self.word} is in the wrong place", hint="The order is WHERE, GROUP BY, HAVING.")
        if self.at(TokenType.L_BRACKET):
            raise self.problem(
                "a window must directly follow the stream's name", hint="Write: stream [RANGE ...] alias."
            )
        self.refuse("the end of the query")

    def _select_item(self) -> exp.Expr:
        first = self.token.start
        if self.take(TokenType.STAR):
            return self._star(self.node(exp.Star(), first))
        if self._at_qualified_star():
            table = self.name("an alias")
            self.advance()
            star = self.token.start
            self.advance()
            return self._star(self.node(exp.Column(this=self.node(exp.Star(), star), table=table), first))
        value = self.expression()
        alias = self._alias()
        return value if alias is None else self.node(exp.Alias(this=value, alias=alias), first)

    def _at_qualified_star(self) -> bool:
        return (
            self.at(TokenType.VAR, TokenType.IDENTIFIER)
            and self.following.token_type == TokenType.DOT
            and self._tokens[min(self.index + 2, len(self._tokens) - 1)].token_type == TokenType.STAR
        )

    def _star(self, star: exp.Expr) -> exp.Expr:
        if self.word in ("EXCEPT", "REPLACE"):
            raise self.unsupported(f"* {self.word} is not supported", hint="Name the columns.")
        return star

    def _alias(self) -> exp.Identifier | None:
        if self.take_word("AS"):
            return self.name("an alias")
        if self.at(TokenType.IDENTIFIER) or (self.word and self.word not in RESERVED and self.word not in CLAUSES):
            return self.name("an alias")
        return None

    def _group_by(self) -> exp.Expr:
        first = self.advance().start
        self.expect_word("BY")
        grouping = {"ROLLUP", "CUBE", "GROUPING"}
        keys = []
        while True:
            if self.word == "ALL" or (self.word in grouping and self.following.token_type != TokenType.COMMA):
                what = "GROUPING SETS" if self.word == "GROUPING" else self.word
                hint = "Name the grouping expressions." if what == "ALL" else "Use UNION ALL of several groupings."
                raise self.unsupported(f"GROUP BY {what} is not supported", hint=hint)
            keys.append(self.expression())
            if not self.take(TokenType.COMMA):
                break
        if self.word == "WITH":
            raise self.unsupported("WITH ROLLUP and WITH CUBE are not supported", hint="Use UNION ALL.")
        return self.node(exp.Group(expressions=keys), first)

    def _join(self) -> exp.Expr | None:
        first = self.token.start
        if self.take(TokenType.COMMA):
            return self.node(exp.Join(this=self._from_item()), first)
        kind = self.take_word("INNER", "CROSS")
        if not kind and self.word != "JOIN":
            return None
        if self.word == "APPLY":
            self.refuse("JOIN")
        self.expect_word("JOIN")
        item = self._from_item()
        condition = self.expression() if self.take_word("ON") else None
        return self.node(exp.Join(this=item, kind=kind or None, on=condition), first)

    def _from_item(self) -> exp.Expr:
        first = self.token.start
        self.relations += 1
        if self.relations > MAX_RELATIONS:
            raise self.unsupported(f"more than {MAX_RELATIONS} streams and subqueries in one query are not supported")
        if self.take(TokenType.L_PAREN):
            if self.word not in ("SELECT", "WITH", "VALUES") and not self.at(TokenType.L_PAREN):
                if self.at(TokenType.VAR, TokenType.IDENTIFIER):
                    raise self.unsupported("parentheses around joins are not supported", first, hint="Leave them out.")
                self.refuse("SELECT")
            query = self.query()
            self.expect(TokenType.R_PAREN, '")"')
            if self.at(TokenType.L_BRACKET):
                raise self.unsupported(
                    "a window on a subquery is not supported", hint="Give windows to the streams inside it."
                )
            alias = self._table_alias()
            if alias is None:
                raise self.problem("a subquery in FROM needs an alias", hint="Write (SELECT ...) AS name.")
            return self.node(exp.Subquery(this=query, alias=alias), first)
        if self.word in CLAUSES and self.following.token_type == TokenType.L_PAREN:
            self.refuse("a stream")
        if self.word == "LATERAL":
            self.refuse("a stream")
        stream = self.name("a stream")
        if self.at(TokenType.DOT):
            raise self.unsupported("stream names have one part", first, hint="Quote a name that contains a dot.")
        if self.at(TokenType.L_PAREN):
            raise self.unsupported("functions in FROM are not supported", first)
        window = self._window() if self.at(TokenType.L_BRACKET) else None
        alias = self._table_alias()
        return self.node(StreamReference(this=stream, alias=alias, window=window), first)

    def _table_alias(self) -> exp.Expr | None:
        first = self.token.start
        alias = self._alias()
        if alias is None:
            return None
        if self.at(TokenType.L_PAREN):
            raise self.unsupported("column names after an alias are not supported", hint="Name them inside with AS.")
        if self.at(TokenType.L_BRACKET):
            raise self.problem("the window must come before the alias", hint="Write: stream [RANGE ...] alias.")
        return self.node(exp.TableAlias(this=alias), first)

    def _window(self) -> StreamWindow:
        first = self.advance().start
        kind = self.take_word("RANGE", "NOW")
        width = slide = None
        if not kind:
            self._refuse_window()
        if kind == "RANGE" and self.take_word("UNBOUNDED"):
            kind = "UNBOUNDED"
        elif kind == "RANGE":
            width = self._length("a number or UNBOUNDED")
        if kind != "NOW" and self.take_word("SLIDE"):
            slide = self._length("a number")
        if not self.at(TokenType.R_BRACKET):
            self.refuse('"]"' if kind == "NOW" or slide else 'SLIDE or "]"')
        self.advance()
        return self.node(StreamWindow(kind=kind, width=width, slide=slide), first)

    def _refuse_window(self) -> NoReturn:
        if self.word == "ROWS":
            raise self.unsupported("ROWS windows are not supported", hint="Give a span of time: [RANGE 5 MINUTES].")
        if self.word == "PARTITION":
            raise self.unsupported("PARTITION windows are not supported", hint="Use GROUP BY, or a window per stream.")
        if self.word == "UNBOUNDED":
            raise self.problem("expected RANGE or NOW", hint="Write [RANGE UNBOUNDED].")
        self.refuse("RANGE or NOW")

    def _length(self, expected: str) -> Length:
        first = self.token.start
        token = self.expect(TokenType.NUMBER, expected)
        amount = self.node(exp.Literal(this=token.text, is_string=False), first)
        unit = None
        if self.word and self.word not in ("SLIDE", "PRECEDING"):
            token = self.advance()
            unit = self.node(exp.Var(this=token.text.upper()), token.start)
        return self.node(Length(this=amount, unit=unit), first)
