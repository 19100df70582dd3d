"""From expressions of the syntax tree to typed expressions of the algebra.

Everything is built with :func:`midstream.algebra.functions.call`, which checks types; a mismatch found there is
placed at the innermost expression that has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.types as pat
from sqlglot import exp

from midstream.algebra.aggregates import AGGREGATES
from midstream.algebra.expressions import Expression, Literal, connected
from midstream.algebra.functions import FUNCTIONS, call, cast, coerce
from midstream.algebra.types import type_name
from midstream.cql import literals
from midstream.cql.dialect import Length, start
from midstream.cql.scope import Scope
from midstream.errors import BadGrouping, NotSupported, QueryError, TypeMismatch, UnknownFunction, did_you_mean

__all__ = ["ExpressionBinder", "is_aggregate"]

_BINARY: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.DPipe: "||",
    exp.Like: "like",
}
_DATE_PARTS = ("year", "month", "day", "hour", "minute", "second")
# The algebra's functions that query text writes as operators or in a form of their own.
_OPERATORS = {"in", "and", "or", "not", "is_null", "like", "case", "negate"}
_OTHER_NAMES = {
    "ceiling": "ceil",
    "char_length": "length",
    "ifnull": "coalesce",
    "mod": "%",
    "pow": "power",
    "substr": "substring",
}
_CALLABLE = {
    **{name: name for name in FUNCTIONS if name.replace("_", "").isalpha() and name not in _OPERATORS},
    **_OTHER_NAMES,
}

_COMPARE = "Compare it with something."


def is_aggregate(node: exp.Expr) -> bool:
    """Whether the node is a call of an aggregate function."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES


class ExpressionBinder:
    """Binds expressions over one scope's columns. ``place`` is the clause that messages name if it has aggregates."""

    def __init__(self, text: str, scope: Scope, place: str) -> None:
        self.text = text
        self.scope = scope
        self._place = place

    def bind(self, node: exp.Expr) -> Expression:
        """The typed expression; every refusal names the position."""
        try:
            return self._handler(node)(self, node)
        except QueryError as error:
            # Where a position is given already, the text may not have been at hand.
            error.text = self.text
            raise error.at(self.text, start(node)) from None

    def condition(self, node: exp.Expr) -> Expression:
        """The expression as a condition: of type bool, where an untyped NULL is never true."""
        bound = self.bind(node)
        if pat.is_null(bound.type):
            return coerce(bound, pa.bool_())
        if not pat.is_boolean(bound.type):
            raise TypeMismatch(
                f"{bound} is not a condition but of type {bound.type}",
                hint=_COMPARE,
                text=self.text,
                position=start(node),
            )
        return bound

    def _handler(self, node: exp.Expr) -> Callable[[ExpressionBinder, exp.Expr], Expression]:
        if type(node) in _BINARY:
            return ExpressionBinder._binary
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise NotSupported(f"{node.key.upper()} is not supported")
        return handler

    def aggregate(self, node: exp.Anonymous) -> Expression:
        """An aggregate call; allowed above a grouping only."""
        hint = "Put the condition into HAVING." if self._place == "WHERE" else None
        raise BadGrouping(f"{node.name.upper()} is an aggregate, and {self._place} cannot have aggregates", hint=hint)

    def column(self, node: exp.Column) -> Expression:
        return self.scope.column(node)

    def _binary(self, node: exp.Expr) -> Expression:
        return call(_BINARY[type(node)], self.bind(node.this), self.bind(node.expression))

    def _connector(self, node: exp.Expr) -> Expression:
        function = "and" if isinstance(node, exp.And) else "or"
        parts = []
        for part in _chain(node):
            bound = self.bind(part)
            if not (pat.is_boolean(bound.type) or pat.is_null(bound.type)):
                message = f"{function.upper()} takes conditions, not {bound} ({type_name(bound.type)})"
                raise TypeMismatch(message, hint=_COMPARE, text=self.text, position=start(part))
            parts.append(coerce(bound, pa.bool_()))
        return connected(function, parts)

    def _not(self, node: exp.Expr) -> Expression:
        return call("not", self.bind(node.this))

    def _negate(self, node: exp.Expr) -> Expression:
        operand = self.bind(node.this)
        constant = literals.negated(operand) if isinstance(operand, Literal) else None
        return call("negate", operand) if constant is None else constant

    def _is_null(self, node: exp.Expr) -> Expression:
        return call("is_null", self.bind(node.this))

    def _between(self, node: exp.Expr) -> Expression:
        value = self.bind(node.this)
        low, high = self.bind(node.args["low"]), self.bind(node.args["high"])
        return call("and", call(">=", value, low), call("<=", value, high))

    def _in(self, node: exp.Expr) -> Expression:
        return call("in", self.bind(node.this), *(self.bind(item) for item in node.expressions))

    def _literal(self, node: exp.Expr) -> Expression:
        return Literal(str(node.this), pa.string()) if node.is_string else literals.number(str(node.this))

    def _null(self, node: exp.Expr) -> Expression:
        return Literal(None, pa.null())

    def _boolean(self, node: exp.Expr) -> Expression:
        return Literal(bool(node.this), pa.bool_())

    def _date(self, node: exp.Expr) -> Expression:
        return literals.date(str(node.this.this))

    def _timestamp(self, node: exp.Expr) -> Expression:
        return literals.timestamp(str(node.this.this))

    def _interval(self, node: exp.Expr) -> Expression:
        assert isinstance(node, Length)
        return literals.duration(node)

    def _column(self, node: exp.Expr) -> Expression:
        assert isinstance(node, exp.Column)
        return self.column(node)

    def _cast(self, node: exp.Expr) -> Expression:
        return cast(self.bind(node.this), literals.arrow_type(node.args["to"]))

    def _case(self, node: exp.Expr) -> Expression:
        operand = None if node.this is None else self.bind(node.this)
        arguments: list[Expression] = []
        for branch in node.args["ifs"]:
            condition = self.condition(branch.this) if operand is None else self._equals(operand, branch.this)
            arguments += [condition, self.bind(branch.args["true"])]
        default = node.args.get("default")
        return call("case", *arguments, Literal(None, pa.null()) if default is None else self.bind(default))

    def _equals(self, operand: Expression, node: exp.Expr) -> Expression:
        try:
            return call("=", operand, self.bind(node))
        except QueryError as error:
            raise error.at(self.text, start(node)) from None

    def _extract(self, node: exp.Expr) -> Expression:
        part = str(node.this.this).lower()
        if part not in _DATE_PARTS:
            raise NotSupported(
                f"EXTRACT({part.upper()} ...) is not supported",
                detail=f"The parts are {', '.join(_DATE_PARTS).upper()}.",
                hint=did_you_mean(part, [name.upper() for name in _DATE_PARTS]),
                text=self.text,
                position=start(node.this),
            )
        return call(part, self.bind(node.expression))

    def _function(self, node: exp.Expr) -> Expression:
        assert isinstance(node, exp.Anonymous)
        if is_aggregate(node):
            return self.aggregate(node)
        name = node.name.lower()
        if name not in _CALLABLE and name not in ("if", "iif"):
            raise _unknown_function(node.name)
        if any(isinstance(argument, exp.Distinct) for argument in node.expressions):
            raise NotSupported(
                f"DISTINCT is not supported in {node.name.upper()}", hint="Only aggregates accept DISTINCT."
            )
        if name in ("if", "iif"):
            return self._if(node)
        return call(_CALLABLE[name], *(self.bind(argument) for argument in node.expressions))

    def _if(self, node: exp.Anonymous) -> Expression:
        if len(node.expressions) != 3:
            raise TypeMismatch(f"function {node.name.upper()} takes 3 arguments, not {len(node.expressions)}")
        condition, value, other = node.expressions
        return call("case", self.condition(condition), self.bind(value), self.bind(other))


def _unknown_function(name: str) -> UnknownFunction:
    known = sorted({*_CALLABLE, "if", "cast", "extract"})
    return UnknownFunction(
        f"function {name.upper()} does not exist",
        detail=f"The functions are {', '.join(known).upper()}; the aggregates are {', '.join(AGGREGATES).upper()}.",
        hint=did_you_mean(name, [candidate.upper() for candidate in (*known, *AGGREGATES)]),
    )


def _chain(node: exp.Expr) -> Iterator[exp.Expr]:
    """The operands of a chain of ANDs, or of ORs, left to right; without recursion, since chains are long."""
    kind, pending = type(node), [node]
    while pending:
        part = pending.pop()
        if type(part) is kind:
            pending += [part.expression, part.this]
        else:
            yield part


_HANDLERS: dict[type[exp.Expr], Callable[[ExpressionBinder, exp.Expr], Expression]] = {
    exp.And: ExpressionBinder._connector,
    exp.Or: ExpressionBinder._connector,
    exp.Not: ExpressionBinder._not,
    exp.Neg: ExpressionBinder._negate,
    exp.Is: ExpressionBinder._is_null,
    exp.Between: ExpressionBinder._between,
    exp.In: ExpressionBinder._in,
    exp.Literal: ExpressionBinder._literal,
    exp.Null: ExpressionBinder._null,
    exp.Boolean: ExpressionBinder._boolean,
    exp.DateStrToDate: ExpressionBinder._date,
    exp.TimeStrToTime: ExpressionBinder._timestamp,
    Length: ExpressionBinder._interval,
    exp.Column: ExpressionBinder._column,
    exp.Cast: ExpressionBinder._cast,
    exp.Case: ExpressionBinder._case,
    exp.Extract: ExpressionBinder._extract,
    exp.Anonymous: ExpressionBinder._function,
}
