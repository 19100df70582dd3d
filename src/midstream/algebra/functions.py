"""Scalar functions and operators: which argument types each takes and what it gives.

:func:`call` is the only way to build a :class:`Call`: it finds the function's signature, casts the arguments to the
types it takes, and raises a :class:`TypeMismatch` where that is impossible. What a function computes is in
``engine/expressions/evaluate``; every function is total: where it has no value, it gives NULL.

>>> from midstream.algebra.expressions import Column
>>> a = Column("", "a", pa.int32())
>>> call("+", a, Literal(1, pa.int64())).type
DataType(int64)
>>> call("=", a, Literal("x", pa.string()))
Traceback (most recent call last):
midstream.errors.TypeMismatch: [M1007] cannot compare a (int32) with 'x' (string)
  hint: Cast one side to the other's type.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.types as pat

from midstream.algebra.expressions import Call, Cast, Expression, Literal
from midstream.algebra.types import (
    common_type,
    is_integer,
    is_numeric,
    is_string,
    is_temporal,
    timestamp_zone_clash,
    type_name,
)
from midstream.errors import TypeMismatch, UnknownFunction, did_you_mean

__all__ = ["COMPARISONS", "FUNCTIONS", "call", "cast", "coerce", "equal_types", "read_timestamp"]

COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_MOST_NANOSECONDS = datetime.timedelta(microseconds=(2**63 - 1) // 1000)
"""How far from 1970 an int64 of nanoseconds counts."""

# A resolver gives the arguments as the function takes them, and the type of its result.
Resolver = Callable[[str, Sequence[Expression]], tuple[Sequence[Expression], pa.DataType]]


def call(function: str, *arguments: Expression) -> Call:
    """The function applied to the arguments, cast to what it takes."""
    if function not in FUNCTIONS:
        raise UnknownFunction(
            f"function {function.upper()} does not exist",
            hint=did_you_mean(function, FUNCTIONS),
        )
    low, high, resolve = FUNCTIONS[function]
    if not low <= len(arguments) <= high:
        expected = str(low) if low == high else f"{low} to {high}" if high < _MANY else f"at least {low}"
        plural = "" if expected.endswith("1") else "s"
        raise TypeMismatch(f"function {function.upper()} takes {expected} argument{plural}, not {len(arguments)}")
    taken, data_type = resolve(function, arguments)
    return Call(function, tuple(taken), data_type)


def cast(argument: Expression, data_type: pa.DataType) -> Expression:
    """CAST(argument AS type), refused where no value of the one type has a counterpart in the other."""
    if argument.type == data_type:
        return argument
    source = argument.type
    allowed = (
        pat.is_null(source)
        or common_type(source, data_type) is not None
        or (is_string(data_type) and (is_numeric(source) or pat.is_boolean(source) or is_temporal(source)))
        or (is_string(source) and (is_numeric(data_type) or pat.is_boolean(data_type) or is_temporal(data_type)))
        or (pat.is_boolean(source) and is_numeric(data_type))
        or (pat.is_timestamp(source) and (pat.is_date(data_type) or pat.is_timestamp(data_type)))
        or (pat.is_date(source) and pat.is_timestamp(data_type))
    )  # fmt: skip
    if not allowed:
        raise TypeMismatch(f"cannot cast {argument} ({type_name(source)}) to {type_name(data_type)}")
    return coerce(argument, data_type)


def coerce(argument: Expression, data_type: pa.DataType) -> Expression:
    """The argument as the type, without a question; literals are converted at once where that is exact."""
    if argument.type == data_type:
        return argument
    if isinstance(argument, Literal):
        if argument.value is None:
            return Literal(None, data_type)
        if is_integer(argument.type) and is_integer(data_type):
            try:
                pa.scalar(argument.value, data_type)
            except (pa.ArrowInvalid, OverflowError):
                return Cast(argument, data_type)
            return Literal(argument.value, data_type)
        if is_integer(argument.type) and data_type == pa.float64() and abs(argument.value) <= 2**53:
            return Literal(float(argument.value), data_type)
    return Cast(argument, data_type)


def equal_types(function: str, arguments: Sequence[Expression]) -> tuple[list[Expression], pa.DataType]:
    """The arguments at their common type; text literals meeting dates and timestamps are read as such."""
    arguments = _read_temporal_literals(arguments)
    result: pa.DataType | None = pa.null()
    for argument in arguments:
        meeting = common_type(result, argument.type)
        if meeting is None:
            first = next(a for a in arguments if not pat.is_null(a.type))
            verb = "compare" if function in COMPARISONS or function == "in" else "combine"
            clash = timestamp_zone_clash(first.type, argument.type)
            raise TypeMismatch(
                f"cannot {verb} {first} ({type_name(first.type)}) with {argument} ({type_name(argument.type)})",
                detail="One is an instant, the other a wall clock time without a time zone." if clash else None,
                hint="Cast one side to the other's type.",
            )
        result = meeting
    assert result is not None
    if any(_is_beyond(argument, result) for argument in arguments):
        result = _with_microseconds(function, arguments, result)
    return [coerce(argument, result) for argument in arguments], result


def _is_beyond(argument: Expression, meeting: pa.DataType) -> bool:
    """Whether the argument is a constant date or timestamp that nanoseconds cannot count up to."""
    value = argument.value if isinstance(argument, Literal) else None
    if not (isinstance(value, datetime.date) and pat.is_timestamp(meeting) and meeting.unit == "ns"):
        return False
    midnight = datetime.datetime(value.year, value.month, value.day)
    moment = value.replace(tzinfo=None) if isinstance(value, datetime.datetime) else midnight
    return abs(moment - datetime.datetime(1970, 1, 1)) > _MOST_NANOSECONDS


def _with_microseconds(function: str, arguments: Sequence[Expression], meeting: pa.DataType) -> pa.DataType:
    """The type at which nanoseconds are compared with a constant beyond them; rounding does not change the answer."""
    if function in COMPARISONS:
        return pa.timestamp("us", meeting.tz)
    beyond = next(a for a in arguments if _is_beyond(a, meeting))
    raise TypeMismatch(
        f"{beyond} is out of range of {type_name(meeting)}",
        detail="Nanoseconds count from 1677-09-21 to 2262-04-11.",
        hint="Cast the other values to TIMESTAMP.",
    )


def _read_temporal_literals(arguments: Sequence[Expression]) -> list[Expression]:
    temporal = next((a.type for a in arguments if is_temporal(a.type)), None)
    if temporal is None:
        return list(arguments)
    return [
        _read_temporal(a, temporal) if isinstance(a, Literal) and isinstance(a.value, str) else a for a in arguments
    ]


def _read_temporal(literal: Literal, temporal: pa.DataType) -> Literal:
    try:
        if pat.is_date(temporal) and len(literal.value) <= 10:
            return Literal(datetime.date.fromisoformat(literal.value), pa.date32())
        moment = read_timestamp(literal.value)
    except ValueError:
        raise TypeMismatch(
            f"cannot read {literal} as a {'date' if pat.is_date(temporal) else 'timestamp'}",
            hint="Write it as 'YYYY-MM-DD' or 'YYYY-MM-DD HH:MM:SS'.",
        ) from None
    zone = getattr(temporal, "tz", None)
    if zone is not None and moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    if zone is None and moment.tzinfo is not None:
        moment = moment.replace(tzinfo=None)
    return Literal(moment, pa.timestamp("us", zone))


def read_timestamp(text: str) -> datetime.datetime:
    """The wall clock time in the text, or, where it has an offset, the instant in UTC; a ValueError for other text."""
    moment = datetime.datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        return moment
    try:
        return moment.astimezone(datetime.UTC)
    except OverflowError:
        raise TypeMismatch(
            f"the timestamp '{text}' is out of range",
            detail="Timestamps go from 0001-01-01 00:00:00 to 9999-12-31 23:59:59.999999 in UTC.",
        ) from None


def _refuse(function: str, arguments: Sequence[Expression], wanted: str) -> TypeMismatch:
    given = ", ".join(f"{a} ({type_name(a.type)})" for a in arguments)
    return TypeMismatch(f"{function.upper()} takes {wanted}, not {given}")


def _comparison(function: str, arguments: Sequence[Expression]) -> tuple[Sequence[Expression], pa.DataType]:
    taken, meeting = equal_types(function, arguments)
    if common_type(meeting, meeting) is None:
        raise _refuse(function, arguments, "values that can be compared")
    return taken, pa.bool_()


def _logical(function: str, arguments: Sequence[Expression]) -> tuple[Sequence[Expression], pa.DataType]:
    if not all(pat.is_boolean(a.type) or pat.is_null(a.type) for a in arguments):
        raise _refuse(function, arguments, "conditions")
    return [coerce(a, pa.bool_()) for a in arguments], pa.bool_()


def _additive(function: str, arguments: Sequence[Expression]) -> tuple[Sequence[Expression], pa.DataType]:
    left, right = arguments
    if is_temporal(left.type) and pat.is_duration(right.type):
        stamp = left.type if pat.is_timestamp(left.type) else pa.timestamp("us")
        stamp = pa.timestamp("us" if stamp.unit in ("s", "ms") else stamp.unit, stamp.tz)
        return [coerce(left, stamp), coerce(right, pa.duration(stamp.unit))], stamp
    if function == "+" and pat.is_duration(left.type) and is_temporal(right.type):
        return _additive(function, (right, left))
    if pat.is_duration(left.type) and pat.is_duration(right.type):
        taken, meeting = equal_types(function, arguments)
        return taken, meeting
    if function == "-" and is_temporal(left.type) and is_temporal(right.type):
        taken, meeting = equal_types(function, arguments)
        unit = meeting.unit if pat.is_timestamp(meeting) and meeting.unit in ("us", "ns") else "us"
        stamp = pa.timestamp(unit, getattr(meeting, "tz", None))
        return [coerce(a, stamp) for a in taken], pa.duration(unit)
    return _arithmetic(function, arguments)


def _arithmetic(function: str, arguments: Sequence[Expression]) -> tuple[Sequence[Expression], pa.DataType]:
    if not all(is_numeric(a.type) or pat.is_null(a.type) for a in arguments):
        raise _refuse(function, arguments, "numbers")
    meeting: pa.DataType = pa.null()
    for argument in arguments:
        meeting = common_type(meeting, argument.type)
    if pat.is_null(meeting) or is_integer(meeting):
        return [coerce(a, pa.int64()) for a in arguments], pa.int64()
    if pat.is_floating(meeting):
        return [coerce(a, pa.float64()) for a in arguments], pa.float64()
    return _decimal_arithmetic(function, [coerce(a, _decimal_of(a.type)) for a in arguments])


def _decimal_of(data_type: pa.DataType) -> pa.DataType:
    if pat.is_decimal(data_type):
        return data_type
    return common_type(pa.decimal128(1, 0), pa.int64() if pat.is_null(data_type) else data_type)


def _decimal_arithmetic(function: str, arguments: Sequence[Expression]) -> tuple[Sequence[Expression], pa.DataType]:
    scales = [a.type.scale for a in arguments]
    digits = [a.type.precision - a.type.scale for a in arguments]
    if function == "*":
        scale, precision = sum(scales), sum(digits) + sum(scales)
    else:
        scale = max(scales)
        precision = max(digits) + scale + (1 if function in "+-" else 0)
    if scale > 38:
        raise TypeMismatch(
            f"{arguments[0]} {function} {arguments[-1]} has {scale} digits after the point; 38 can be kept",
            hint="Cast the operands to decimals with fewer digits, or to DOUBLE.",
        )
    return arguments, pa.decimal128(min(38, precision), scale)


def _division(function: str, arguments: Sequence[Expression]) -> tuple[Sequence[Expression], pa.DataType]:
    if not all(is_numeric(a.type) or pat.is_null(a.type) for a in arguments):
        raise _refuse(function, arguments, "numbers")
    return [coerce(a, pa.float64()) for a in arguments], pa.float64()


def _same_number(function: str, arguments: Sequence[Expression]) -> tuple[Sequence[Expression], pa.DataType]:
    taken, data_type = _arithmetic(function, [arguments[0]])
    return taken, data_type


def _sign(function: str, arguments: Sequence[Expression]) -> tuple[Sequence[Expression], pa.DataType]:
    taken, _ = _arithmetic(function, [arguments[0]])
    return taken, pa.int64()


def _rounding(function: str, arguments: Sequence[Expression]) -> tuple[Sequence[Expression], pa.DataType]:
    taken, data_type = _arithmetic(function, [arguments[0]])
    digits = arguments[1] if len(arguments) == 2 else Literal(0, pa.int64())
    if not (isinstance(digits, Literal) and is_integer(digits.type)):
        raise _refuse(function, arguments, "a number and a constant number of digits")
    if pat.is_decimal(data_type):
        # One digit more before the point than the argument has: 9.9 may become 10.
        scale = max(0, min(data_type.scale, digits.value or 0))
        data_type = pa.decimal128(min(38, data_type.precision - data_type.scale + 1 + scale), scale)
    return [*taken, *arguments[1:]], data_type


def _floating(function: str, arguments: Sequence[Expression]) -> tuple[Sequence[Expression], pa.DataType]:
    return _division(function, arguments)


def _choice(function: str, arguments: Sequence[Expression]) -> tuple[Sequence[Expression], pa.DataType]:
    taken, data_type = equal_types(function, arguments)
    if function in ("greatest", "least") and common_type(data_type, data_type) is None:
        raise _refuse(function, arguments, "values that can be compared")
    return taken, data_type


def _nullif(function: str, arguments: Sequence[Expression]) -> tuple[Sequence[Expression], pa.DataType]:
    taken, data_type = equal_types("=", arguments)
    return taken, data_type


def _case(function: str, arguments: Sequence[Expression]) -> tuple[Sequence[Expression], pa.DataType]:
    conditions, values = arguments[:-1:2], [*arguments[1::2], arguments[-1]]
    if not all(pat.is_boolean(c.type) or pat.is_null(c.type) for c in conditions):
        raise _refuse("WHEN", conditions, "conditions")
    taken, data_type = equal_types(function, values)
    result: list[Expression] = []
    for condition, value in zip(conditions, taken[:-1], strict=True):
        result += [coerce(condition, pa.bool_()), value]
    return [*result, taken[-1]], data_type


def _is_null(function: str, arguments: Sequence[Expression]) -> tuple[Sequence[Expression], pa.DataType]:
    return arguments, pa.bool_()


def _text_arguments(*kinds: str, result: pa.DataType) -> Resolver:
    """A resolver for functions of text (``s``) and whole numbers (``i``)."""

    def resolve(function: str, arguments: Sequence[Expression]) -> tuple[Sequence[Expression], pa.DataType]:
        taken = []
        for argument, kind in zip(arguments, kinds * len(arguments), strict=False):
            fits = is_string(argument.type) if kind == "s" else is_integer(argument.type)
            if not (fits or pat.is_null(argument.type)):
                raise _refuse(function, arguments, "text" if kind == "s" else "text and whole numbers")
            taken.append(coerce(argument, pa.string() if kind == "s" else pa.int64()))
        return taken, result

    return resolve


def _like(function: str, arguments: Sequence[Expression]) -> tuple[Sequence[Expression], pa.DataType]:
    taken, _ = _text_arguments("s", result=pa.bool_())(function, arguments)
    if not isinstance(taken[1], Literal):
        raise _refuse(function, arguments, "text and a constant pattern")
    return taken, pa.bool_()


def _date_part(function: str, arguments: Sequence[Expression]) -> tuple[Sequence[Expression], pa.DataType]:
    (argument,) = arguments
    of_day = function in ("hour", "minute", "second")
    if not (pat.is_timestamp(argument.type) or (is_temporal(argument.type) and not of_day)):
        raise _refuse(function, arguments, "a timestamp" if of_day else "a date or timestamp")
    return arguments, pa.int64()


_MANY = 1 << 30
_STRING = pa.string()

FUNCTIONS: dict[str, tuple[int, int, Resolver]] = {
    **{name: (2, 2, _comparison) for name in COMPARISONS},
    "in": (2, _MANY, _comparison),
    "and": (2, 2, _logical),
    "or": (2, 2, _logical),
    "not": (1, 1, _logical),
    "is_null": (1, 1, _is_null),
    "like": (2, 2, _like),
    "case": (3, _MANY, _case),
    "coalesce": (1, _MANY, _choice),
    "greatest": (1, _MANY, _choice),
    "least": (1, _MANY, _choice),
    "nullif": (2, 2, _nullif),
    "+": (2, 2, _additive),
    "-": (2, 2, _additive),
    "*": (2, 2, _arithmetic),
    "/": (2, 2, _division),
    "%": (2, 2, _arithmetic),
    "negate": (1, 1, _same_number),
    "abs": (1, 1, _same_number),
    "sign": (1, 1, _sign),
    "floor": (1, 1, _rounding),
    "ceil": (1, 1, _rounding),
    "round": (1, 2, _rounding),
    "sqrt": (1, 1, _floating),
    "ln": (1, 1, _floating),
    "exp": (1, 1, _floating),
    "power": (2, 2, _floating),
    "lower": (1, 1, _text_arguments("s", result=_STRING)),
    "upper": (1, 1, _text_arguments("s", result=_STRING)),
    "trim": (1, 1, _text_arguments("s", result=_STRING)),
    "ltrim": (1, 1, _text_arguments("s", result=_STRING)),
    "rtrim": (1, 1, _text_arguments("s", result=_STRING)),
    "length": (1, 1, _text_arguments("s", result=pa.int64())),
    "substring": (2, 3, _text_arguments("s", "i", "i", result=_STRING)),
    "concat": (1, _MANY, _text_arguments("s", result=_STRING)),
    "||": (2, 2, _text_arguments("s", result=_STRING)),
    "replace": (3, 3, _text_arguments("s", result=_STRING)),
    "starts_with": (2, 2, _text_arguments("s", result=pa.bool_())),
    **{name: (1, 1, _date_part) for name in ("year", "month", "day", "hour", "minute", "second")},
}
