"""The functions and operators of CQL, each as a function from bound arguments to a bound result.

They are total: what has no value (overflow, division by zero, the root of a negative number) is NULL.
"""

from __future__ import annotations

import math
import operator
import re
import unicodedata
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from midstream.testing.brute_force import calendar
from midstream.testing.brute_force.bound import Bound, Rows, cast, comparable, meet, strict
from midstream.testing.brute_force.casts import in_unit, round_half_away
from midstream.testing.brute_force.syntax import BruteForceError
from midstream.testing.brute_force.value_types import (
    BOOLEAN,
    DOUBLE,
    EXACT,
    INTEGER,
    TEXT,
    Type,
    common_type,
    decimal_of,
    fits,
)

__all__ = ["call_function", "condition"]

_DECIMAL_DIGITS = 38
"""How many digits a computed decimal has at most; what needs more is NULL."""


def call_function(name: str, arguments: Sequence[Bound]) -> Bound:
    """The function or operator of this name, applied."""
    if name not in _FUNCTIONS:
        raise BruteForceError(f"function {name} does not exist")
    least, most, bind = _FUNCTIONS[name]
    if not least <= len(arguments) <= most:
        raise BruteForceError(f"function {name} does not take {len(arguments)} arguments")
    return bind(*arguments)


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

        return Bound(BOOLEAN, evaluate, _relations(arguments))

    return bind


def _relations(arguments: Sequence[Bound]) -> frozenset[int]:
    return frozenset[int]().union(*(argument.relations for argument in arguments))


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

    return Bound(met[0].type, evaluate, _relations(met))


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

        return Bound(met[0].type, evaluate, _relations(met))

    return bind


# Arithmetic


def _in_int64(number: int) -> int | None:
    return number if -(2**63) <= number < 2**63 else None


def _all_null(arguments: Sequence[Bound]) -> bool:
    return any(argument.type.kind == "null" for argument in arguments)


def _null(kind: Type = INTEGER) -> Bound:
    return Bound(kind, lambda rows: None)


def _needs_numbers(name: str, *arguments: Bound) -> None:
    if not all(argument.type.is_number for argument in arguments):
        raise BruteForceError(f"{name} takes numbers, not {', '.join(argument.type.kind for argument in arguments)}")


def _decimals(scale: int, function: Callable[..., Decimal], *arguments: Bound) -> Bound:
    """A function of exact numbers whose result is a decimal of 38 digits with this scale."""

    def compute(*values: Any) -> Decimal | None:
        result = function(*map(Decimal, values))
        # The sum with 0 makes 0 of -0, which no decimal column knows.
        return EXACT.add(result, Decimal(0)) if fits(result, _DECIMAL_DIGITS, scale) else None

    return strict(Type("decimal", precision=_DECIMAL_DIGITS, scale=scale), compute, *arguments)


def _arithmetic(
    symbol: str,
    integers: Callable[[int, int], int | None],
    floats: Callable[[float, float], float | None],
    decimals: Callable[[Decimal, Decimal], Decimal],
) -> Callable[..., Bound]:
    def bind(left: Bound, right: Bound) -> Bound:
        if symbol in "+-" and not (left.type.is_number or right.type.is_number):
            return _with_times(symbol, left, right)
        if _all_null((left, right)):
            return _null(right.type if left.type.kind == "null" and right.type.is_number else left.type)
        _needs_numbers(symbol, left, right)
        if "float" in (left.type.kind, right.type.kind):
            return strict(DOUBLE, floats, cast(left, DOUBLE), cast(right, DOUBLE))
        if left.type.kind == right.type.kind == "integer":

            def compute(one: int, other: int) -> int | None:
                number = integers(one, other)
                return None if number is None else _in_int64(number)

            return strict(INTEGER, compute, left, right)
        scales = decimal_of(left.type).scale, decimal_of(right.type).scale
        if symbol == "%":
            divisor = right.evaluate
            right = Bound(right.type, lambda rows: divisor(rows) or None, right.relations)
        return _decimals(sum(scales) if symbol == "*" else max(scales), decimals, left, right)

    return bind


def _remainder(one: int, other: int) -> int | None:
    if other == 0:
        return None
    rest = abs(one) % abs(other)
    return -rest if one < 0 else rest


def _float_remainder(one: float, other: float) -> float | None:
    if other == 0:
        return None
    return math.nan if math.isinf(one) or one != one or other != other else math.fmod(one, other)


def _divide(left: Bound, right: Bound) -> Bound:
    if not _all_null((left, right)):
        _needs_numbers("/", left, right)
    return strict(DOUBLE, lambda one, other: one / other if other else None, cast(left, DOUBLE), cast(right, DOUBLE))


def _with_times(symbol: str, left: Bound, right: Bound) -> Bound:
    """Sums and differences of timestamps and intervals."""
    if _all_null((left, right)):
        return _null(right.type if left.type.kind == "null" else left.type)
    sign = 1 if symbol == "+" else -1
    scales = {"date": 86_400 * 10**9, "timestamp": 1, "duration": 1}
    kinds = left.type.kind, right.type.kind
    if not set(kinds) <= set(scales):
        raise BruteForceError(f"{symbol} does not take {kinds[0]} and {kinds[1]}")
    if left.type.is_moment and right.type.is_moment:
        if symbol == "+" or common_type(left.type, right.type) is None:
            raise BruteForceError("these timestamps have no sum or difference")
        units, result = (left.type.unit, right.type.unit), "duration"
    else:
        moment = left.type if left.type.is_moment else right.type
        units, result = (left.type.unit, right.type.unit), "timestamp" if moment.is_moment else "duration"
    unit = next((name for name in ("ns", "us", "ms") if name in units), "s")
    first, second = scales[kinds[0]], scales[kinds[1]]
    zoned = result == "timestamp" and (left.type.zoned or right.type.zoned)
    return strict(
        Type(result, unit=unit, zoned=zoned),
        lambda one, other: in_unit(one * first + sign * other * second, unit),
        left,
        right,
    )


def _numeric(
    name: str,
    integers: Callable[[int], int],
    floats: Callable[[float], float],
    decimals: Callable[[Decimal], Decimal],
    scale: Callable[[int], int] = lambda scale: scale,
) -> Callable[..., Bound]:
    """A function of one number that keeps the family of its argument."""

    def bind(argument: Bound) -> Bound:
        kind = argument.type
        if kind.kind == "null":
            return _null()
        if kind.kind == "duration" and name == "-":
            return strict(kind, lambda value: in_unit(-value, kind.unit), argument)
        _needs_numbers(name, argument)
        if kind.kind == "float":
            return strict(DOUBLE, floats, argument)
        if kind.kind == "decimal":
            return _decimals(scale(kind.scale), decimals, argument)
        return strict(INTEGER, lambda value: _in_int64(integers(value)), argument)

    return bind


def _sign(argument: Bound) -> Bound:
    if argument.type.kind != "null":
        _needs_numbers("SIGN", argument)
    return strict(INTEGER, lambda value: (value > 0) - (value < 0), argument)


def _whole(rounding: Callable[[float], int]) -> Callable[[float], float]:
    return lambda value: float(rounding(value)) if math.isfinite(value) else value


def _round(argument: Bound, digits: Bound | None = None) -> Bound:
    if argument.type.kind == "null" or (digits is not None and digits.type.kind == "null"):
        return _null(argument.type)
    _needs_numbers("ROUND", argument)
    kind = argument.type
    places = digits or Bound(INTEGER, lambda rows: 0, literal=True)
    if places.type.kind != "integer":
        raise BruteForceError("ROUND takes a whole number of digits")
    if kind.kind == "float":
        return strict(DOUBLE, _round_float, argument, places)
    if kind.kind != "decimal":
        return strict(
            INTEGER, lambda value, places: _in_int64(int(_round_exact(Decimal(value), places))), argument, places
        )
    scale = kind.scale
    if places.literal:
        scale = max(min(scale, places.evaluate(())), min(scale, 0))

    def compute(value: Decimal, places: int) -> Decimal | None:
        rounded = _round_exact(value, places)
        return rounded if fits(rounded, _DECIMAL_DIGITS, scale) else None

    return strict(Type("decimal", precision=_DECIMAL_DIGITS, scale=scale), compute, argument, places)


def _round_exact(value: Decimal, places: int) -> Decimal:
    if places < -100:
        return Decimal(0)
    return value if places >= 100 else EXACT.add(round_half_away(value, places), Decimal(0)) if places < 100 else value


def _round_float(value: float, places: int) -> float:
    if not math.isfinite(value) or places > 308:
        return value
    if places < -308:
        return 0.0
    # As for CAST, the digits are counted in doubles.
    power = 10.0 ** abs(places)
    scaled = value * power if places >= 0 else value / power
    if not math.isfinite(scaled):
        return value
    whole = float(round_half_away(Decimal(scaled), 0))
    return whole / power if places >= 0 else whole * power


def _doubles(function: Callable[..., float | None], *defaults: Any) -> Callable[..., Bound]:
    def compute(*values: float) -> float | None:
        try:
            return function(*values)
        except OverflowError:
            return math.inf

    def bind(*arguments: Bound) -> Bound:
        if not _all_null(arguments):
            _needs_numbers("a function of doubles", *arguments)
        return strict(DOUBLE, compute, *(cast(argument, DOUBLE) for argument in arguments))

    return bind


def _power(base: float, exponent: float) -> float | None:
    if base < 0 and math.isfinite(exponent) and exponent != math.floor(exponent):
        return None
    if base == 0 and exponent < 0:
        return None
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and math.fmod(exponent, 2) else math.inf


# Text


def _text(kind: Type, function: Callable[..., Any], *numbers: int) -> Callable[..., Bound]:
    """A function of texts; the arguments at the positions `numbers` are integers."""

    def bind(*arguments: Bound) -> Bound:
        for index, argument in enumerate(arguments):
            wanted = "integer" if index in numbers else "text"
            if argument.type.kind not in (wanted, "null"):
                raise BruteForceError(f"a function of texts takes {wanted}, not {argument.type.kind}")
        return strict(kind, function, *arguments)

    return bind


def _concatenate(left: Bound, right: Bound) -> Bound:
    met = meet(left, right)
    if met[0].type.kind not in ("text", "null"):
        raise BruteForceError("|| takes texts")
    return strict(met[0].type, operator.add, *met)


def _concat(*arguments: Bound) -> Bound:
    _text(TEXT, str)(*arguments)
    evaluators = [argument.evaluate for argument in arguments]
    return Bound(TEXT, lambda rows: "".join(e(rows) or "" for e in evaluators), _relations(arguments))


def _substring(text: str, start: int, length: int | None = None) -> str:
    begin = len(text) + start if start < 0 else start - 1
    end = len(text) if length is None else begin + length
    if end < begin and length is not None:
        begin, end = end, begin
    return text[max(begin, 0) : max(end, 0)]


def _like(subject: Bound, pattern: Bound) -> Bound:
    if not pattern.literal:
        raise BruteForceError("the pattern of LIKE is a constant")
    if _all_null((subject, pattern)):
        return _null(BOOLEAN)
    parts = {"%": ".*", "_": "."}
    expression = "".join(parts.get(character) or re.escape(character) for character in pattern.evaluate(()))
    matches = re.compile(expression, re.DOTALL).fullmatch
    return _text(BOOLEAN, lambda text: matches(text) is not None)(subject)


def _change_case(change: Callable[[str], str]) -> Callable[[str], str]:
    """Case by case mapping of single characters, so that a text keeps its length."""

    def of_character(character: str) -> str:
        if character == "ß":
            return "ẞ" if change("a") == "A" else "ß"
        changed = change(character)
        return changed if len(changed) == 1 else changed[0] if character == "İ" else character

    return lambda text: "".join(map(of_character, text))


def _trim(left: bool, right: bool) -> Callable[[str], str]:
    def cut(text: str) -> str:
        begin, end = 0, len(text)
        while left and begin < end and unicodedata.category(text[begin]) == "Zs":
            begin += 1
        while right and begin < end and unicodedata.category(text[end - 1]) == "Zs":
            end -= 1
        return text[begin:end]

    return cut


# Dates and timestamps


def _part(index: int) -> Callable[..., Bound]:
    """Year, month, day, hour, minute or second; of instants those of UTC."""

    def bind(argument: Bound) -> Bound:
        kind = argument.type.kind
        if kind == "null":
            return _null()
        if kind not in ("date", "timestamp") or (kind == "date" and index > 2):
            raise BruteForceError(f"a {kind} has no such part")
        if index < 3:
            per_day = 1 if kind == "date" else calendar.DAY
            return strict(INTEGER, lambda value: calendar.date_of_day(value // per_day)[index], argument)
        length, modulus = ((3600, 24), (60, 60), (1, 60))[index - 3]
        return strict(INTEGER, lambda value: value // (length * calendar.SECOND) % modulus, argument)

    return bind


_MANY = 10**6
_FUNCTIONS: dict[str, tuple[int, int, Callable[..., Bound]]] = {
    "AND": (2, 2, _connective(False)),
    "OR": (2, 2, _connective(True)),
    "NOT": (1, 1, _not),
    "IS NULL": (1, 1, _is_null),
    "=": (2, 2, _comparison(operator.eq)),
    "<>": (2, 2, _comparison(operator.ne)),
    "<": (2, 2, _comparison(operator.lt)),
    "<=": (2, 2, _comparison(operator.le)),
    ">": (2, 2, _comparison(operator.gt)),
    ">=": (2, 2, _comparison(operator.ge)),
    "IN": (2, _MANY, _in),
    "COALESCE": (1, _MANY, _first_value),
    "IFNULL": (2, 2, _first_value),
    "NULLIF": (2, 2, _null_if),
    "GREATEST": (1, _MANY, _extreme(max)),
    "LEAST": (1, _MANY, _extreme(min)),
    "+": (2, 2, _arithmetic("+", operator.add, operator.add, EXACT.add)),
    "-": (2, 2, _arithmetic("-", operator.sub, operator.sub, EXACT.subtract)),
    "*": (2, 2, _arithmetic("*", operator.mul, operator.mul, EXACT.multiply)),
    "%": (2, 2, _arithmetic("%", _remainder, _float_remainder, EXACT.remainder)),
    "/": (2, 2, _divide),
    "sign -": (1, 1, _numeric("-", operator.neg, operator.neg, EXACT.minus)),
    "ABS": (1, 1, _numeric("ABS", abs, abs, EXACT.abs)),
    "SIGN": (1, 1, _sign),
    "FLOOR": (
        1,
        1,
        _numeric("FLOOR", int, _whole(math.floor), lambda x: Decimal(math.floor(x)), lambda scale: min(scale, 0)),
    ),
    "CEIL": (
        1,
        1,
        _numeric("CEIL", int, _whole(math.ceil), lambda x: Decimal(math.ceil(x)), lambda scale: min(scale, 0)),
    ),
    "ROUND": (1, 2, _round),
    "SQRT": (1, 1, _doubles(lambda value: None if value < 0 else math.sqrt(value))),
    "LN": (1, 1, _doubles(lambda value: None if value <= 0 else math.log(value))),
    "EXP": (1, 1, _doubles(math.exp)),
    "POWER": (2, 2, _doubles(_power)),
    "||": (2, 2, _concatenate),
    "CONCAT": (1, _MANY, _concat),
    "LOWER": (1, 1, _text(TEXT, _change_case(str.lower))),
    "UPPER": (1, 1, _text(TEXT, _change_case(str.upper))),
    "TRIM": (1, 1, _text(TEXT, _trim(True, True))),
    "LTRIM": (1, 1, _text(TEXT, _trim(True, False))),
    "RTRIM": (1, 1, _text(TEXT, _trim(False, True))),
    "LENGTH": (1, 1, _text(INTEGER, len)),
    "SUBSTRING": (2, 3, _text(TEXT, _substring, 1, 2)),
    "REPLACE": (3, 3, _text(TEXT, lambda text, old, new: text.replace(old, new) if old else text)),
    "STARTS_WITH": (2, 2, _text(BOOLEAN, str.startswith)),
    "LIKE": (2, 2, _like),
    **{part: (1, 1, _part(index)) for index, part in enumerate(("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"))},
}
_ALIASES = {"MOD": "%", "CEILING": "CEIL", "POW": "POWER", "CHAR_LENGTH": "LENGTH", "SUBSTR": "SUBSTRING"}
_FUNCTIONS |= {alias: _FUNCTIONS[name] for alias, name in _ALIASES.items()}
