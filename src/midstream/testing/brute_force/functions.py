"""The functions and operators of CQL, each as a function from bound arguments to a bound result.

They are total: what has no value (overflow, division by zero, the root of a negative number) is NULL.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from midstream.testing.brute_force import calendar
from midstream.testing.brute_force.arithmetic import ARITHMETIC
from midstream.testing.brute_force.bound import (
    ANY_NUMBER,
    Bound,
    Function,
    Rows,
    comparable,
    meet,
    null,
    relations_of,
    strict,
)
from midstream.testing.brute_force.syntax import BruteForceError
from midstream.testing.brute_force.text_functions import TEXT_FUNCTIONS
from midstream.testing.brute_force.value_types import BOOLEAN, INTEGER

__all__ = ["call_function", "condition"]


def call_function(name: str, arguments: Sequence[Bound]) -> Bound:
    """The function or operator of this name, applied."""
    function = _FUNCTIONS.get(_ALIASES.get(name, name))
    if function is None:
        raise BruteForceError(f"function {name} does not exist")
    if not function.least <= len(arguments) <= function.most:
        raise BruteForceError(f"function {name} does not take {len(arguments)} arguments")
    return function.bind(*arguments)


def condition(argument: Bound) -> Bound:
    """The argument, if it is true, false or NULL."""
    if argument.type.kind not in ("boolean", "null"):
        raise BruteForceError(f"a condition is of type {argument.type.kind}")
    return argument


# Logic and comparison


def _connective(decides: bool) -> Callable[..., Bound]:
    """AND is decided by FALSE, OR by TRUE; if nothing decides, a NULL makes it NULL."""

    def bind(*arguments: Bound) -> Bound:
        evaluators = [condition(argument).evaluate for argument in arguments]

        def evaluate(rows: Rows) -> bool | None:
            result: bool | None = not decides
            for evaluator in evaluators:
                value: bool | None = evaluator(rows)
                if value is decides:
                    return decides
                if value is None:
                    result = None
            return result

        return Bound(BOOLEAN, evaluate, relations_of(arguments))

    return bind


def _not(argument: Bound) -> Bound:
    return strict(BOOLEAN, operator.not_, condition(argument))


def _is_null(argument: Bound) -> Bound:
    evaluate = argument.evaluate
    return Bound(BOOLEAN, lambda rows: evaluate(rows) is None, argument.relations)


def _comparison(compare: Callable[[Any, Any], bool]) -> Callable[..., Bound]:
    return lambda left, right: strict(BOOLEAN, compare, *comparable(left, right))


def _in(*arguments: Bound) -> Bound:
    subject, *candidates = comparable(*arguments)
    return _connective(True)(*(strict(BOOLEAN, operator.eq, subject, candidate) for candidate in candidates))


def _first_value(*arguments: Bound) -> Bound:
    met = meet(*arguments)
    evaluators = [argument.evaluate for argument in met]

    def evaluate(rows: Rows) -> Any:
        return next((value for evaluator in evaluators if (value := evaluator(rows)) is not None), None)

    return Bound(met[0].type, evaluate, relations_of(met))


def _null_if(subject: Bound, other: Bound) -> Bound:
    equal, evaluate = _comparison(operator.eq)(subject, other), subject.evaluate
    return Bound(subject.type, lambda rows: None if equal.evaluate(rows) else evaluate(rows), equal.relations)


def _extreme(choose: Callable[..., Any]) -> Callable[..., Bound]:
    def bind(*arguments: Bound) -> Bound:
        met = meet(*arguments)
        pairs = [(one.evaluate, key.evaluate) for one, key in zip(met, comparable(*met), strict=True)]

        def evaluate(rows: Rows) -> Any:
            known = [(key, value(rows)) for value, key_of in pairs if (key := key_of(rows)) is not None]
            return choose(known, key=operator.itemgetter(0))[1] if known else None

        return Bound(met[0].type, evaluate, relations_of(met))

    return bind


# Dates and timestamps


def _part(index: int) -> Callable[..., Bound]:
    """Year, month, day, hour, minute or second; of instants those of UTC."""

    def bind(argument: Bound) -> Bound:
        kind = argument.type.kind
        if kind == "null":
            return null(INTEGER)
        if kind not in ("date", "timestamp") or (kind == "date" and index > 2):
            raise BruteForceError(f"a {kind} has no such part")
        if index < 3:
            per_day = 1 if kind == "date" else calendar.DAY
            return strict(INTEGER, lambda value: calendar.date_of_day(value // per_day)[index], argument)
        length, modulus = ((3600, 24), (60, 60), (1, 60))[index - 3]
        return strict(INTEGER, lambda value: value // (length * calendar.SECOND) % modulus, argument)

    return bind


_ALIASES = {"MOD": "%", "CEILING": "CEIL", "POW": "POWER", "CHAR_LENGTH": "LENGTH", "SUBSTR": "SUBSTRING"}
_PARTS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_FUNCTIONS: dict[str, Function] = {
    "AND": Function(2, 2, _connective(False)),
    "OR": Function(2, 2, _connective(True)),
    "NOT": Function(1, 1, _not),
    "IS NULL": Function(1, 1, _is_null),
    "=": Function(2, 2, _comparison(operator.eq)),
    "<>": Function(2, 2, _comparison(operator.ne)),
    "<": Function(2, 2, _comparison(operator.lt)),
    "<=": Function(2, 2, _comparison(operator.le)),
    ">": Function(2, 2, _comparison(operator.gt)),
    ">=": Function(2, 2, _comparison(operator.ge)),
    "IN": Function(2, ANY_NUMBER, _in),
    "COALESCE": Function(1, ANY_NUMBER, _first_value),
    "IFNULL": Function(2, 2, _first_value),
    "NULLIF": Function(2, 2, _null_if),
    "GREATEST": Function(1, ANY_NUMBER, _extreme(max)),
    "LEAST": Function(1, ANY_NUMBER, _extreme(min)),
    **{part: Function(1, 1, _part(index)) for index, part in enumerate(_PARTS)},
    **ARITHMETIC,
    **TEXT_FUNCTIONS,
}
