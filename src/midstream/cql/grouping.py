"""Expressions above a grouping: over its keys and aggregates only.

Binding goes from the outside in. A part that equals a grouping expression becomes that key's column; an aggregate
becomes the column it fills; what is left must be built from these, and a column that is not is refused.

    SELECT price % 10, 1 + SUM(price) FROM bids [RANGE 9] GROUP BY price % 10
           └─ key ───┘ └┬┘ └aggregate┘
                     constant
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp

from midstream.algebra.aggregates import aggregate_call
from midstream.algebra.expressions import Column, Expression
from midstream.algebra.plan import Aggregate, Distinct, Item, NamedAggregate, Plan, Project
from midstream.algebra.types import is_comparable, type_name
from midstream.cql.dialect import start
from midstream.cql.expressions import ExpressionBinder, is_aggregate
from midstream.cql.scope import Scope, unique_match
from midstream.errors import AmbiguousColumn, BadGrouping, TypeMismatch, UnknownColumn

__all__ = ["GroupedBinder", "Grouping", "aliased", "has_aggregate", "ungrouped"]


def has_aggregate(nodes: Iterable[exp.Expr]) -> bool:
    """Whether an aggregate is called anywhere in the expressions."""
    return any(is_aggregate(part) for node in nodes for part in node.find_all(exp.Anonymous))


class Grouping:
    """The keys of one SELECT and the aggregates its parts ask for."""

    def __init__(self, text: str, scope: Scope) -> None:
        self._text = text
        self._keys: dict[Expression, Item] = {}
        self._aggregates: dict[str, NamedAggregate] = {}
        self.argument_binder = ExpressionBinder(text, scope, "an aggregate")
        self._key_binder = ExpressionBinder(text, scope, "GROUP BY")

    def add_key(self, node: exp.Expr) -> None:
        """Group by the expression, too."""
        bound = self._key_binder.bind(node)
        if not is_comparable(bound.type):
            message = f"cannot group by {bound} ({type_name(bound.type)})"
            raise TypeMismatch(message, text=self._text, position=start(node))
        relation, name = (bound.relation, bound.name) if isinstance(bound, Column) else ("", bound.text)
        self._keys[bound] = Item(relation, name, bound)

    def key(self, expression: Expression) -> Column | None:
        """The column that carries the expression's value above the grouping, if it is a key."""
        item = self._keys.get(expression)
        return None if item is None else item.field.column

    def aggregate(self, function: str, argument: Expression | None, distinct: bool) -> Column:
        """The column that the aggregate fills."""
        call = aggregate_call(function, argument, distinct)
        return self._aggregates.setdefault(call.text, NamedAggregate(call.text, call)).field.column

    def plan(self, source: Plan) -> Plan:
        """The grouping of the source. Groups without aggregates are the different keys."""
        keys = tuple({item.field: item for item in self._keys.values()}.values())
        if not self._aggregates:
            if keys:
                return Distinct(Project(source, keys))
            self.aggregate("count", None, False)
        return Aggregate(source, keys, tuple(self._aggregates.values()))


class _BelowBinder(ExpressionBinder):
    """Binds as below the grouping, each part once: keys are looked for at every level of an expression."""

    def __init__(self, text: str, scope: Scope) -> None:
        super().__init__(text, scope, "")
        self._bound: dict[int, Expression] = {}

    def bind(self, node: exp.Expr) -> Expression:
        if id(node) not in self._bound:
            self._bound[id(node)] = super().bind(node)
        return self._bound[id(node)]


class GroupedBinder(ExpressionBinder):
    """Binds the select list and HAVING of a grouped SELECT. ``aliases`` are output names that may stand for items."""

    def __init__(self, text: str, scope: Scope, grouping: Grouping, aliases: Mapping[str, exp.Expr]) -> None:
        super().__init__(text, scope, "")
        self._grouping = grouping
        self._aliases = aliases
        self._below = _BelowBinder(text, scope)
        self._above: dict[int, bool] = {}

    def bind(self, node: exp.Expr) -> Expression:
        if not self._is_above(node):
            key = self._grouping.key(self._below.bind(node))
            if key is not None:
                return key
        return super().bind(node)

    def column(self, node: exp.Column) -> Expression:
        item = aliased(node, self.scope, self._aliases)
        if item is not None:
            return GroupedBinder(self.text, self.scope, self._grouping, {}).bind(item)
        raise ungrouped(self.scope.column(node), self.text, start(node))

    def aggregate(self, node: exp.Anonymous) -> Expression:
        function, arguments, distinct = node.name.lower(), node.expressions, False
        if arguments and isinstance(arguments[0], exp.Distinct):
            arguments, distinct = arguments[0].expressions, True
        if len(arguments) != 1:
            raise TypeMismatch(f"{function.upper()} takes 1 argument, not {len(arguments)}")
        (argument,) = arguments
        if isinstance(argument, exp.Star):
            return self._grouping.aggregate(function, None, False)
        return self._grouping.aggregate(function, self._grouping.argument_binder.bind(argument), distinct)

    def _is_above(self, node: exp.Expr) -> bool:
        """Whether an aggregate, or an output name, is in the expression: then it has no meaning below the grouping."""
        if id(node) not in self._above:
            # Children first, without recursion: a chain of ANDs is a deep tree.
            for part in reversed(list(node.dfs())):
                self._above[id(part)] = (
                    is_aggregate(part)
                    or (isinstance(part, exp.Column) and aliased(part, self.scope, self._aliases) is not None)
                    or any(self._above[id(child)] for child in part.iter_expressions())
                )
        return self._above[id(node)]


def aliased(node: exp.Expr, scope: Scope, aliases: Mapping[str, exp.Expr]) -> exp.Expr | None:
    """The select item that a name means by its alias, if it means no column: columns come first."""
    if not isinstance(node, exp.Column) or node.args.get("table") is not None:
        return None
    name = unique_match(node.this, aliases)
    if name is None:
        return None
    try:
        scope.column(node)
    except (UnknownColumn, AmbiguousColumn):
        return aliases[name]
    return None


def ungrouped(column: Column, text: str, position: int) -> BadGrouping:
    """The error for a column that has more than one value in a group."""
    return BadGrouping(
        f"column {column} is neither grouped nor inside an aggregate",
        hint=f"Add it to GROUP BY, or write MIN({column}) or MAX({column}).",
        text=text,
        position=position,
    )
