"""From the syntax tree to a plan: names resolved, types checked, operators in the order SQL gives them.

    FROM a, b JOIN c ON p   Join(Join(a, b), c, p)      left-deep, in the order of the text
    WHERE p                 Select
    GROUP BY, aggregates    Aggregate; HAVING is a Select above it
    select list             Project, with its output names
    DISTINCT, UNION         Distinct;  UNION ALL: Union;  EXCEPT [ALL]: Difference

Planning moves conditions to where they cost least; here they stay where the text has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from sqlglot import exp

from midstream.algebra.expressions import Expression, conjunction, conjuncts
from midstream.algebra.functions import coerce
from midstream.algebra.plan import Alias, Difference, Distinct, Item, Join, Plan, Project, Select, Union, Window
from midstream.algebra.stream import Stream, TimeDomain
from midstream.algebra.types import common_type, is_comparable, type_name
from midstream.cql.dialect import StreamReference, start
from midstream.cql.expressions import ExpressionBinder
from midstream.cql.grouping import GroupedBinder, Grouping, aliased, has_aggregate, ungrouped
from midstream.cql.scope import Relation, Scope, unique_match
from midstream.cql.window_clause import window_spec
from midstream.errors import BadGrouping, DuplicateName, TypeMismatch, UnknownStream, did_you_mean, quoted

__all__ = ["Binder"]

_RESERVED_OUTPUT = ("valid_from", "valid_to")

_Output = tuple[str, Expression, int]
"""An output column: its name (not yet made unique), its value, its position in the text."""


class Binder:
    """Binds one query against the declared streams."""

    def __init__(self, text: str, streams: Mapping[str, Stream]) -> None:
        self._text = text
        self._streams = streams
        self._first: Stream | None = None
        # Where in the text each output column of each SELECT stands.
        self._positions: dict[int, list[int]] = {}

    def plan(self, query: exp.Expr) -> Plan:
        """The plan of a whole query."""
        plan = self._query(query)
        while isinstance(query, exp.SetOperation):
            query = query.this
        for field, position in zip(plan.schema, self._positions[id(query)], strict=True):
            if field.name.lower() in _RESERVED_OUTPUT:
                raise DuplicateName(
                    f'the output column "{field.name}" has a reserved name',
                    detail='Results carry their validity as "valid_from" and "valid_to".',
                    hint="Give it another name with AS.",
                    text=self._text,
                    position=position,
                )
        return plan

    def _query(self, query: exp.Expr) -> Plan:
        # Set operations are a chain to the left, as long as the query.
        operations: list[exp.SetOperation] = []
        while isinstance(query, exp.SetOperation):
            operations.append(query)
            query = query.this
        assert isinstance(query, exp.Select)
        plan = self._select(query)
        for operation in reversed(operations):
            plan = self._set_operation(operation, plan, self._query(operation.expression))
        return plan

    def _set_operation(self, node: exp.SetOperation, left: Plan, right: Plan) -> Plan:
        name = "UNION" if isinstance(node, exp.Union) else "EXCEPT"
        position = start(node.expression)
        if len(left.schema) != len(right.schema):
            raise TypeMismatch(
                f"{name} of {len(left.schema)} and {len(right.schema)} columns",
                hint="Select equally many on both sides.",
                text=self._text,
                position=position,
            )
        types = []
        for one, other in zip(left.schema, right.schema, strict=True):
            meeting = common_type(one.type, other.type)
            if meeting is None and one.type == other.type:
                meeting = one.type
            if meeting is None:
                raise TypeMismatch(
                    f'{name} cannot combine "{one.name}" ({type_name(one.type)})'
                    f' with "{other.name}" ({type_name(other.type)})',
                    hint="Cast one side to the other's type.",
                    text=self._text,
                    position=position,
                )
            types.append(meeting)
        left, right = (_as_types(side, types) for side in (left, right))
        distinct = bool(node.args["distinct"])
        if isinstance(node, exp.Except):
            self._check_comparable(left, "EXCEPT", position)
            return Difference(left, right, "distinct" if distinct else "all")
        return self._distinct(Union(left, right), "UNION", position) if distinct else Union(left, right)

    def _distinct(self, plan: Plan, what: str, position: int) -> Plan:
        self._check_comparable(plan, what, position)
        return Distinct(plan)

    def _check_comparable(self, plan: Plan, what: str, position: int) -> None:
        for field in plan.schema:
            if not is_comparable(field.type):
                raise TypeMismatch(
                    f'{what} compares rows, but "{field.name}" is of type {type_name(field.type)}',
                    hint="Leave the column out.",
                    text=self._text,
                    position=position,
                )

    def _select(self, node: exp.Select) -> Plan:
        plan, scope = self._from(node)
        where, having = node.args.get("where"), node.args.get("having")
        if where is not None:
            plan = Select(plan, ExpressionBinder(self._text, scope, "WHERE").condition(where.this))
        values = [_value(item) for item in node.expressions]
        if node.args.get("group") or having or has_aggregate(values):
            plan, items = self._grouped(node, plan, scope)
        else:
            binder = ExpressionBinder(self._text, scope, "")
            items = [named for item in node.expressions for named in self._items(item, scope, binder)]
        self._positions[id(node)] = [position for _, _, position in items]
        plan = Project(plan, _output(items))
        return self._distinct(plan, "DISTINCT", start(node)) if node.args.get("distinct") else plan

    def _from(self, node: exp.Select) -> tuple[Plan, Scope]:
        scope = Scope(self._text)
        plan = self._relation(node.args["from_"].this, scope)
        for join in node.args["joins"]:
            right = self._relation(join.this, scope)
            condition = join.args.get("on")
            if condition is None:
                plan = Join(plan, right, ())
            else:
                bound = ExpressionBinder(self._text, scope, "ON").condition(condition)
                plan = _joined(plan, right, list(conjuncts(bound)))
        return plan, scope

    def _relation(self, node: exp.Expr, scope: Scope) -> Plan:
        alias = node.args.get("alias")
        if isinstance(node, StreamReference):
            stream = self._stream(node)
            name = stream.name if alias is None else alias.name
            plan: Plan = Window(stream, name, window_spec(node, stream, self._text))
            title = f'stream "{stream.name}"'
        else:
            assert alias is not None
            name = alias.name
            plan = Alias(self._query(node.this), name)
            title = f'subquery "{name}"'
        scope.add(Relation(name, title, plan), start(node if alias is None else alias))
        return plan

    def _stream(self, node: StreamReference) -> Stream:
        found = unique_match(node.this, self._streams)
        if found is None:
            raise UnknownStream(
                f'stream "{node.name}" does not exist',
                detail=f"The streams are {quoted(self._streams)}." if self._streams else "No streams are declared.",
                hint=did_you_mean(node.name, list(self._streams)),
                text=self._text,
                position=start(node),
            )
        stream = self._streams[found]
        self._first = self._first or stream
        if _kind(stream.time_domain) != _kind(self._first.time_domain):
            raise TypeMismatch(
                f'the event times of streams "{self._first.name}" and "{stream.name}" cannot meet',
                detail=f'"{self._first.event_time}" is {_kind(self._first.time_domain)},'
                f' "{stream.event_time}" is {_kind(stream.time_domain)}.',
                hint="Declare the streams of one query with event times of one kind.",
                text=self._text,
                position=start(node),
            )
        return stream

    def _items(self, item: exp.Expr, scope: Scope, binder: ExpressionBinder) -> list[_Output]:
        """The output columns an item of the select list stands for."""
        if item.is_star:
            table = item.args.get("table")
            relations = scope.relations if table is None else [scope.relation(table)]
            return [(c.name, c, start(item)) for relation in relations for c in relation.columns.values()]
        if isinstance(item, exp.Alias):
            return [(item.alias, binder.bind(item.this), start(item.args["alias"]))]
        bound = binder.bind(item)
        return [(_column_name(item, bound, scope), bound, start(item))]

    def _grouped(self, node: exp.Select, plan: Plan, scope: Scope) -> tuple[Plan, list[_Output]]:
        aliases = {item.alias: item.this for item in node.expressions if isinstance(item, exp.Alias)}
        grouping = Grouping(self._text, scope)
        group = node.args.get("group")
        for key in group.expressions if group else ():
            grouping.add_key(self._group_key(key, node, scope, aliases))
        binder = GroupedBinder(self._text, scope, grouping, {})
        items = []
        for item in node.expressions:
            if not item.is_star:
                items += self._items(item, scope, binder)
                continue
            for name, column, position in self._items(item, scope, binder):
                assert column.columns
                grouped = grouping.key(column)
                if grouped is None:
                    raise ungrouped(next(iter(column.columns)), self._text, position)
                items.append((name, grouped, position))
        having = node.args.get("having")
        if having is None:
            return grouping.plan(plan), items
        condition = GroupedBinder(self._text, scope, grouping, aliases).condition(having.this)
        return Select(grouping.plan(plan), condition), items

    def _group_key(self, key: exp.Expr, select: exp.Select, scope: Scope, aliases: Mapping[str, exp.Expr]) -> exp.Expr:
        """The expression that a key means: the key itself, or the select item it gives by position or alias."""
        if isinstance(key, exp.Literal) and not key.is_string:
            items = select.expressions
            if not (str(key.this).isdecimal() and len(str(key.this)) < 9 and 1 <= int(key.this) <= len(items)):
                raise BadGrouping(
                    f"GROUP BY {key.this} is not a position in the select list",
                    detail=f"The positions go from 1 to {len(items)}.",
                    text=self._text,
                    position=start(key),
                )
            item: exp.Expr = items[int(key.this) - 1]
            if item.is_star:
                message = f"GROUP BY {key.this} means a star"
                raise BadGrouping(message, hint="Name the columns.", text=self._text, position=start(key))
            return _value(item)
        return aliased(key, scope, aliases) or key


def _value(item: exp.Expr) -> exp.Expr:
    value: exp.Expr = item.this if isinstance(item, exp.Alias) else item
    return value


def _kind(domain: TimeDomain) -> str:
    if domain.timestamp is None:
        return "a whole number"
    return "a timestamp without time zone" if domain.timestamp.tz is None else "a timestamp with time zone"


def _joined(left: Plan, right: Plan, conditions: Sequence[Expression]) -> Plan:
    """The join on the conditions that connect both sides; others select from the side they read, or from the result."""
    left_names = {field.relation for field in left.schema}
    right_names = {field.relation for field in right.schema}
    own: list[Expression] = []
    across: list[Expression] = []
    rest: list[Expression] = []
    for condition in conditions:
        if condition.relations & left_names and condition.relations & right_names:
            across.append(condition)
        else:
            (own if condition.relations and condition.relations <= right_names else rest).append(condition)
    plan: Plan = Join(left, Select(right, conjunction(own)) if own else right, tuple(across))
    return Select(plan, conjunction(rest)) if rest else plan


def _column_name(item: exp.Expr, bound: Expression, scope: Scope) -> str:
    return scope.column(item).name if isinstance(item, exp.Column) else bound.text


def _output(items: Sequence[_Output]) -> tuple[Item, ...]:
    """The items under different names: a repeated one gets _1, _2, ... behind it."""
    taken, repeats = {name for name, _, _ in items}, Counter[str]()
    result: dict[str, Item] = {}
    for base, expression, _ in items:
        name = base
        while name in result or (name in taken and name != base):
            repeats[base] += 1
            name = f"{base}_{repeats[base]}"
        result[name] = Item("", name, expression)
    return tuple(result.values())


def _as_types(plan: Plan, types: Sequence[object]) -> Plan:
    """The plan with its columns cast to the types, where they are not of them already."""
    if [field.type for field in plan.schema] == list(types):
        return plan
    source, given = (plan.input, plan.items) if isinstance(plan, Project) else (plan, _passed_on(plan))
    items = [
        Item(item.relation, item.name, coerce(item.expression, data_type))
        for item, data_type in zip(given, types, strict=True)
    ]
    return Project(source, tuple(items))


def _passed_on(plan: Plan) -> tuple[Item, ...]:
    return tuple(Item(field.relation, field.name, field.column) for field in plan.schema)
