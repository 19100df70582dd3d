"""The grammar of expressions: operators by precedence, then literals, names, calls and CASE.

From loosest to tightest: OR, AND, NOT, IS, comparisons, BETWEEN/IN/LIKE, ``||``, ``+ -``, ``* / %``, sign.
Comparisons do not chain: ``a < b < c`` is refused rather than read as ``(a < b) < c``.
"""

from __future__ import annotations

from sqlglot import TokenType, exp

from midstream.cql.cursor import Cursor
from midstream.cql.dialect import Length
from midstream.cql.unsupported import RESERVED

__all__ = ["ExpressionGrammar"]

_LOOSEST, _OR, _AND, _NOT, _IS, _COMPARISON, _RANGE, _CONCATENATION, _SUM, _PRODUCT, _SIGN = range(11)

_SYMBOLS: dict[TokenType, tuple[int, type[exp.Expression]]] = {
    TokenType.EQ: (_COMPARISON, exp.EQ),
    TokenType.NEQ: (_COMPARISON, exp.NEQ),
    TokenType.LT: (_COMPARISON, exp.LT),
    TokenType.LTE: (_COMPARISON, exp.LTE),
    TokenType.GT: (_COMPARISON, exp.GT),
    TokenType.GTE: (_COMPARISON, exp.GTE),
    TokenType.DPIPE: (_CONCATENATION, exp.DPipe),
    TokenType.PLUS: (_SUM, exp.Add),
    TokenType.DASH: (_SUM, exp.Sub),
    TokenType.STAR: (_PRODUCT, exp.Mul),
    TokenType.SLASH: (_PRODUCT, exp.Div),
    TokenType.MOD: (_PRODUCT, exp.Mod),
}
_WORDS = {"OR": _OR, "AND": _AND, "IS": _IS, "BETWEEN": _RANGE, "IN": _RANGE, "LIKE": _RANGE, "NOT": _RANGE}

_TYPES: dict[str, exp.DType] = {
    **dict.fromkeys(("BOOLEAN", "BOOL"), exp.DType.BOOLEAN),
    "TINYINT": exp.DType.TINYINT,
    "SMALLINT": exp.DType.SMALLINT,
    **dict.fromkeys(("INT", "INTEGER"), exp.DType.INT),
    "BIGINT": exp.DType.BIGINT,
    **dict.fromkeys(("REAL", "FLOAT"), exp.DType.FLOAT),
    "DOUBLE": exp.DType.DOUBLE,
    **dict.fromkeys(("DECIMAL", "NUMERIC"), exp.DType.DECIMAL),
    **dict.fromkeys(("VARCHAR", "TEXT", "STRING"), exp.DType.TEXT),
    **dict.fromkeys(("BLOB", "BINARY", "VARBINARY"), exp.DType.VARBINARY),
    "DATE": exp.DType.DATE,
    "TIMESTAMP": exp.DType.TIMESTAMP,
    "TIMESTAMPTZ": exp.DType.TIMESTAMPTZ,
}
_PARAMETERS = (TokenType.PLACEHOLDER, TokenType.PARAMETER, TokenType.COLON)


class ExpressionGrammar(Cursor):
    """Reads one expression, from where the cursor stands to the first token that cannot belong to it."""

    def expression(self, level: int = _LOOSEST) -> exp.Expr:
        """An expression of operators that bind tighter than the level."""
        self.enter()
        first = self.token.start
        left = self._prefix(level)
        while (operator := self._operator_level()) > level:
            left = self._infix(left, first, operator)
        self.nesting -= 1
        return left

    def _operator_level(self) -> int:
        if self.token.token_type in _SYMBOLS:
            return _SYMBOLS[self.token.token_type][0]
        return _WORDS.get(self.word, _LOOSEST)

    def _infix(self, left: exp.Expr, first: int, level: int) -> exp.Expr:
        operator = self.advance()
        if operator.token_type in _SYMBOLS:
            _, kind = _SYMBOLS[operator.token_type]
            node: exp.Expr = kind(this=left, expression=self.expression(level))
            if level == _COMPARISON and self._operator_level() == _COMPARISON:
                raise self.problem("comparisons do not chain", hint="Write a < b AND b < c, or use parentheses.")
            return self.node(node, first)
        word = operator.text.upper()
        if word in ("AND", "OR"):
            connector = exp.And if word == "AND" else exp.Or
            return self.node(connector(this=left, expression=self.expression(level)), first)
        if word == "IS":
            return self._is_null(left, first)
        negated = word == "NOT"
        if negated:
            word = self.take_word("BETWEEN", "IN", "LIKE")
        if word == "BETWEEN":
            node = self._between(left)
        elif word == "IN":
            node = exp.In(this=left, expressions=self._in_list())
        elif word == "LIKE":
            node = exp.Like(this=left, expression=self.expression(_RANGE))
        else:
            self.refuse("BETWEEN, IN or LIKE")
        self.node(node, first)
        return self.node(exp.Not(this=node), first) if negated else node

    def _is_null(self, left: exp.Expr, first: int) -> exp.Expr:
        negated = self.take_word("NOT")
        if self.word in ("TRUE", "FALSE", "UNKNOWN", "DISTINCT"):
            raise self.unsupported(f"IS {self.word} is not supported", hint="Use IS NULL or IS NOT NULL.")
        self.expect_word("NULL")
        node = self.node(exp.Is(this=left, expression=self.node(exp.Null(), self._tokens[self.index - 1].start)), first)
        return self.node(exp.Not(this=node), first) if negated else node

    def _between(self, left: exp.Expr) -> exp.Expr:
        if self.word in ("SYMMETRIC", "ASYMMETRIC"):
            raise self.unsupported(f"BETWEEN {self.word} is not supported")
        low = self.expression(_RANGE)
        self.expect_word("AND")
        return exp.Between(this=left, low=low, high=self.expression(_RANGE))

    def _in_list(self) -> list[exp.Expr]:
        self.expect(TokenType.L_PAREN, '"(" and a list of values')
        if self.word in ("SELECT", "WITH", "VALUES"):
            raise self.unsupported("subqueries in IN are not supported", hint="Join with the subquery in FROM.")
        values = [self.expression()]
        while self.take(TokenType.COMMA):
            values.append(self.expression())
        self.expect(TokenType.R_PAREN, '"," or ")"')
        return values

    def _prefix(self, level: int) -> exp.Expr:
        first = self.token.start
        if self.word == "NOT":
            if level > _NOT:
                raise self.problem("NOT needs parentheses here")
            self.advance()
            return self.node(exp.Not(this=self.expression(_NOT)), first)
        if self.take(TokenType.DASH):
            return self.node(exp.Neg(this=self.expression(_SIGN)), first)
        if self.take(TokenType.PLUS):
            return self.expression(_SIGN)
        if self.take(TokenType.L_PAREN):
            return self._parenthesised(first)
        if self.at(TokenType.NUMBER) or self._at_leading_point():
            return self._number(first)
        if self.at(TokenType.STRING):
            return self.node(exp.Literal(this=self.advance().text, is_string=True), first)
        if self.at(*_PARAMETERS):
            raise self.unsupported("parameters are not supported", hint="Write the value into the query.")
        if self.at(TokenType.STAR):
            raise self.problem('"*" is only allowed in the select list and in COUNT(*)')
        return self._word_or_name(first)

    def _parenthesised(self, first: int) -> exp.Expr:
        if self.word in ("SELECT", "WITH", "VALUES"):
            raise self.unsupported(
                "subqueries in expressions are not supported",
                first,
                hint="Put the subquery into FROM and join with it.",
            )
        inner = self.expression()
        if self.at(TokenType.COMMA):
            raise self.unsupported("rows of values are not supported", first, hint="Compare the values one by one.")
        self.expect(TokenType.R_PAREN, 'an operator or ")"')
        return inner

    def _at_leading_point(self) -> bool:
        return self.at(TokenType.DOT) and self.following.token_type == TokenType.NUMBER

    def _number(self, first: int) -> exp.Expr:
        self.take(TokenType.DOT)
        last = self.advance()
        return self.node(exp.Literal(this=self.text[first : last.end + 1], is_string=False), first)

    def _word_or_name(self, first: int) -> exp.Expr:
        word, following = self.word, self.following.token_type
        if word in ("NULL", "TRUE", "FALSE"):
            self.advance()
            return self.node(exp.Null() if word == "NULL" else exp.Boolean(this=word == "TRUE"), first)
        if word == "CASE":
            return self._case(first)
        if word in ("DATE", "TIMESTAMP") and following == TokenType.STRING:
            self.advance()
            text = self.node(exp.Literal(this=self.token.text, is_string=True), self.advance().start)
            return self.node(exp.DateStrToDate(this=text) if word == "DATE" else exp.TimeStrToTime(this=text), first)
        if word == "INTERVAL" and following in (TokenType.STRING, TokenType.NUMBER):
            self.advance()
            return self._interval(first)
        if word and (word not in RESERVED or word == "ALL") and following == TokenType.L_PAREN:
            return self._call(first)
        name = self.name("an expression")
        if not self.take(TokenType.DOT):
            return self.node(exp.Column(this=name), first)
        column = self.name("a column")
        if self.at(TokenType.DOT):
            raise self.unsupported("names of more than two parts are not supported", first, hint="Write alias.column.")
        return self.node(exp.Column(this=column, table=name), first)

    def name(self, what: str) -> exp.Identifier:
        """A name: a word that is not reserved, or anything in double quotes."""
        token = self.token
        quoted = token.token_type == TokenType.IDENTIFIER
        if quoted and not token.text:
            raise self.problem("a name cannot be empty")
        if not quoted and (not self.word or self.word in RESERVED):
            found = "but the query ends" if self.at_end() else f"found {self.shown()}"
            quote = self.word and what != "an expression"
            raise self.problem(f"expected {what}, {found}", hint="Quote it to use it as a name." if quote else None)
        self.advance()
        return self.node(exp.Identifier(this=token.text, quoted=quoted), token.start)

    def _case(self, first: int) -> exp.Expr:
        self.advance()
        operand = None if self.word == "WHEN" else self.expression()
        branches = []
        while self.word == "WHEN":
            branch = self.advance().start
            condition = self.expression()
            self.expect_word("THEN")
            branches.append(self.node(exp.If(this=condition, true=self.expression()), branch))
        if not branches:
            self.refuse("WHEN")
        default = self.expression() if self.take_word("ELSE") else None
        self.expect_word("END")
        return self.node(exp.Case(this=operand, ifs=branches, default=default), first)

    def _interval(self, first: int) -> exp.Expr:
        amount = self.advance()
        this = self.node(exp.Literal(this=amount.text, is_string=amount.token_type == TokenType.STRING), amount.start)
        unit = None
        if (
            self.word
            and self.word not in RESERVED
            and (amount.token_type == TokenType.NUMBER or " " not in amount.text)
        ):
            token = self.advance()
            unit = self.node(exp.Var(this=token.text.upper()), token.start)
        return self.node(Length(this=this, unit=unit), first)

    def _call(self, first: int) -> exp.Expr:
        function = self.advance().text
        self.advance()
        word = function.upper()
        if word in ("EXISTS", "ANY", "SOME", "ALL"):
            raise self.unsupported(f"{word} is not supported", first, hint="Join with the other stream instead.")
        if word in ("CAST", "TRY_CAST"):
            return self._cast(first, word)
        if word == "EXTRACT":
            return self._extract(first)
        arguments = self._arguments(word)
        self.expect(TokenType.R_PAREN, 'an operator, "," or ")"')
        if self.word in ("OVER", "FILTER", "WITHIN", "IGNORE", "RESPECT"):
            self.refuse("an operator")
        return self.node(exp.Anonymous(this=function, expressions=arguments), first)

    def _arguments(self, function: str) -> list[exp.Expr]:
        first = self.token.start
        if self.at(TokenType.R_PAREN):
            return []
        if self.at(TokenType.STAR) and function == "COUNT":
            self.advance()
            return [self.node(exp.Star(), first)]
        if self.word == "SELECT":
            raise self.unsupported("subqueries in expressions are not supported", hint="Put the subquery into FROM.")
        distinct = self.take_word("DISTINCT", "ALL") == "DISTINCT"
        arguments = [self.expression()]
        while self.take(TokenType.COMMA):
            arguments.append(self.expression())
        return [self.node(exp.Distinct(expressions=arguments), first)] if distinct else arguments

    def _cast(self, first: int, word: str) -> exp.Expr:
        if word == "TRY_CAST":
            raise self.unsupported("TRY_CAST is not supported", first, hint="Write CAST: it gives NULL where it fails.")
        value = self.expression()
        self.expect_word("AS")
        to = self._type()
        self.expect(TokenType.R_PAREN, '")"')
        return self.node(exp.Cast(this=value, to=to), first)

    def _type(self) -> exp.Expr:
        first = self.token.start
        if not self.word:
            self.refuse("a type")
        if self.word not in _TYPES:
            raise self.unsupported(
                f"the type {self.word} is not supported", hint=f"The types are {', '.join(sorted(_TYPES))}."
            )
        word = self.advance().text.upper()
        if word == "DOUBLE":
            self.take_word("PRECISION")
        parameters = []
        if self.at(TokenType.L_PAREN):
            if word not in ("DECIMAL", "NUMERIC"):
                raise self.unsupported(f"{word} takes no length", hint=f"Write {word}.")
            self.advance()
            parameters.append(self._number_parameter())
            if self.take(TokenType.COMMA):
                parameters.append(self._number_parameter())
            self.expect(TokenType.R_PAREN, '")"')
        return self.node(exp.DataType(this=_TYPES[word], expressions=parameters), first)

    def _number_parameter(self) -> exp.Expr:
        first = self.token.start
        token = self.expect(TokenType.NUMBER, "a number of digits")
        return self.node(exp.Literal(this=token.text, is_string=False), first)

    def _extract(self, first: int) -> exp.Expr:
        token = self.token
        if not self.word or self.following_word != "FROM":
            self.refuse("a part of the date and FROM")
        self.advance()
        part = self.node(exp.Var(this=token.text.upper()), token.start)
        self.expect_word("FROM")
        value = self.expression()
        self.expect(TokenType.R_PAREN, 'an operator or ")"')
        return self.node(exp.Extract(this=part, expression=value), first)
