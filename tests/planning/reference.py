"""What a plan means on one snapshot, in plain Python: the judge of the rewrite rules.

Operators are snapshot-reducible, so two plans are equivalent if they give equal bags on every snapshot. Only what the
tests' plans use is understood: whole numbers, texts, NULL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow.types as pat

from midstream.algebra.aggregates import AggregateCall
from midstream.algebra.expressions import Call, Cast, Column, Expression, Literal
from midstream.algebra.plan import (
    Aggregate,
    Alias,
    Difference,
    Distinct,
    Join,
    Plan,
    Project,
    Select,
    Union,
    Window,
)

Row = tuple[Any, ...]
Snapshot = Mapping[str, Sequence[Row]]


def evaluate(plan: Plan, snapshot: Snapshot) -> Counter[Row]:
    """The bag of the plan's rows, given the rows of each stream."""
    if isinstance(plan, Window):
        return Counter(snapshot[plan.stream.name])
    below = [evaluate(child, snapshot) for child in plan.inputs]
    if isinstance(plan, Alias):
        return below[0]
    if isinstance(plan, Select):
        holds = _compiled(plan.predicate, plan.input)
        return Counter({row: n for row, n in below[0].items() if holds(row) is True})
    if isinstance(plan, Project):
        parts = [_compiled(item.expression, plan.input) for item in plan.items]
        result: Counter[Row] = Counter()
        for row, n in below[0].items():
            result[tuple(part(row) for part in parts)] += n
        return result
    if isinstance(plan, Join):
        conditions = [_compiled(predicate, plan) for predicate in plan.predicates]
        pairs: Counter[Row] = Counter()
        for left, n in below[0].items():
            for right, m in below[1].items():
                if all(holds(left + right) is True for holds in conditions):
                    pairs[left + right] += n * m
        return pairs
    if isinstance(plan, Distinct):
        return Counter(dict.fromkeys(below[0], 1))
    if isinstance(plan, Union):
        return below[0] + below[1]
    if isinstance(plan, Difference):
        if plan.keep == "all":
            return below[0] - below[1]
        return Counter({row: 1 for row in below[0] if row not in below[1]})
    assert isinstance(plan, Aggregate)
    return _aggregate(plan, below[0])


def _aggregate(plan: Aggregate, rows: Counter[Row]) -> Counter[Row]:
    keys = [_compiled(key.expression, plan.input) for key in plan.keys]
    groups: dict[Row, list[Row]] = {}
    for row in rows.elements():
        groups.setdefault(tuple(key(row) for key in keys), []).append(row)
    return Counter(
        group + tuple(_aggregated(a.call, plan.input, members) for a in plan.aggregates)
        for group, members in groups.items()
    )


def _aggregated(call: AggregateCall, plan: Plan, rows: list[Row]) -> Any:
    if call.argument is None:
        return len(rows)
    argument = _compiled(call.argument, plan)
    values = [value for row in rows if (value := argument(row)) is not None]
    if call.distinct:
        values = list(set(values))
    if call.function == "count":
        return len(values)
    if not values:
        return None
    if call.function == "avg":
        return float(sum(values)) / len(values)
    return {"sum": sum, "min": min, "max": max}[call.function](values)


def _compiled(expression: Expression, plan: Plan) -> Callable[[Row], Any]:
    places = {field.column: place for place, field in enumerate(plan.schema)}
    return lambda row: _value(expression, row, places)


def _value(expression: Expression, row: Row, places: Mapping[Column, int]) -> Any:
    if isinstance(expression, Column):
        return row[places[expression]]
    if isinstance(expression, Literal):
        return expression.value
    values = [_value(argument, row, places) for argument in expression.arguments]
    if isinstance(expression, Cast):
        assert pat.is_integer(expression.type) or pat.is_decimal(expression.type) or pat.is_floating(expression.type)
        return values[0]
    assert isinstance(expression, Call)
    return _applied(expression.function, values)


def _applied(function: str, values: list[Any]) -> Any:
    if function == "and":
        return False if False in values else None if None in values else True
    if function == "or":
        return True if True in values else None if None in values else False
    if function == "is_null":
        return values[0] is None
    if None in values:
        return None
    return {
        "=": lambda a, b: a == b,
        "<>": lambda a, b: a != b,
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "not": lambda a: not a,
    }[function](*values)
