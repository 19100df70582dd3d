"""Text read as numbers, truth values, dates and timestamps; what cannot be read is NULL.

White space around numbers, dates and timestamps does not count. Read are

- numbers: ``12``, ``-1.5``, ``+.5``, ``1e-3``; rounded half away from zero where the type has fewer digits; as a
  float also ``inf``, ``infinity`` and ``nan``
- truth values: ``true t yes y 1`` and ``false f no n 0``, in any case
- dates: ``2024-02-29``; timestamps: a date, then ``T`` or a space, ``HH:MM``, optionally ``:SS`` and a fraction (cut
  off at microseconds), optionally ``Z`` or ``+HH``, ``+HHMM``, ``+HH:MM``. The offset is applied for an instant; a
  wall clock time ignores it, as in DuckDB and PostgreSQL.

The common forms are read by kernels; the others (exponents, more digits than the type has) row by row.

>>> read_text(pa.array(["7", " 2.5 ", "seven", None]), pa.int64()).to_pylist()
[7, 3, None, None]
"""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from midstream.engine.expressions.arrow_values import (
    Values,
    build,
    build_integers,
    either_null,
    null_rows,
    truth_of,
    values,
    working_type,
)
from midstream.engine.expressions.decimals import from_unscaled, unscaled
from midstream.engine.expressions.temporal import SECONDS_PER_DAY, TICKS_PER_SECOND, convert_ticks

__all__ = ["read_text"]

_WHITE_SPACE = " \t\n\v\f\r"
_NUMBER = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"
_FLOAT = rf"^({_NUMBER}|[+-]?(?i:inf|infinity|nan))$"
_MOMENT = (
    r"^(?P<year>[0-9]{1,7})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
    r"(?:[T ](?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2})(?::(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]*))?)?"
    r"(?: ?(?:Z|(?P<sign>[+-])(?P<offset_hours>[0-9]{2})(?::?(?P<offset_minutes>[0-9]{2}))?))?)?$"
)
_TRUE, _FALSE = ["true", "t", "yes", "y", "1"], ["false", "f", "no", "n", "0"]
_MOST_DIGITS = 77  # one more than any decimal type has
_TOO_LARGE: int = 10**_MOST_DIGITS


def read_text(text: pa.Array, data_type: pa.DataType) -> pa.Array:
    """The texts as values of the type's working type."""
    if pat.is_boolean(data_type):
        return _read_truth(text)
    text = pc.utf8_trim(text, characters=_WHITE_SPACE)
    if pat.is_floating(data_type):
        return _read_float(text, data_type)
    if pat.is_integer(data_type):
        return _read_integer(text, data_type)
    if pat.is_decimal(data_type):
        return _read_decimal(text, working_type(data_type))
    return _read_moment(text, data_type)


def _only(text: pa.Array, pattern: str) -> pa.Array:
    """The texts that match the pattern, NULL for the others."""
    return pc.if_else(pc.match_substring_regex(text, pattern=pattern), text, pa.scalar(None, text.type))


def _read_truth(text: pa.Array) -> pa.Array:
    lower = pc.utf8_lower(text)
    known = pa.array(_TRUE + _FALSE, text.type)
    return pc.less(pc.index_in(lower, value_set=known), len(_TRUE))


def _read_float(text: pa.Array, data_type: pa.DataType) -> pa.Array:
    text = _only(text, _FLOAT)
    if pat.is_float16(data_type):
        with np.errstate(over="ignore"):
            doubles = _read_float(text, pa.float64())
            return build(values(doubles).astype(np.float16).astype(np.float32), null_rows(doubles), pa.float32())
    try:
        return pc.cast(text, data_type)
    except pa.ArrowInvalid:
        return pa.array([None if t is None else float(t) for t in text.to_pylist()], data_type)


def _read_integer(text: pa.Array, data_type: pa.DataType) -> pa.Array:
    plain = pc.cast(pc.utf8_ltrim(_only(text, r"^[+-]?[0-9]{1,18}$"), characters="+"), pa.int64())
    rows, stored = _read_exactly(text, plain, 0)
    if not len(rows):
        return build_integers(values(plain), null_rows(plain), data_type)
    numbers, nulls = values(plain).astype(object), null_rows(plain)
    assert nulls is not None
    numbers[rows], nulls[rows] = stored, False
    return build_integers(numbers, nulls, data_type)


def _read_decimal(text: pa.Array, data_type: pa.DataType) -> pa.Array:
    before, after = max(data_type.precision - data_type.scale, 1), data_type.scale
    plain_form = rf"^[+-]?[0-9]{{1,{before}}}(\.[0-9]{{0,{after}}})?$"
    if data_type.precision == data_type.scale:
        plain_form = rf"^[+-]?0?\.[0-9]{{1,{after}}}$"
    plain = pc.cast(pc.utf8_ltrim(_only(text, plain_form), characters="+"), data_type)
    rows, stored = _read_exactly(text, plain, after)
    if not len(rows):
        return plain
    numbers, nulls = unscaled(plain).astype(object), null_rows(plain)
    assert nulls is not None
    numbers[rows], nulls[rows] = stored, False
    return from_unscaled(numbers, nulls, data_type)


def _read_exactly(text: pa.Array, plain: pa.Array, scale: int) -> tuple[Values, Values]:
    """The rows that hold numbers not in plain form, and these numbers times a power of ten, rounded."""
    number = pc.match_substring_regex(text, pattern=f"^{_NUMBER}$")
    rows = np.flatnonzero(truth_of(pc.and_(number, pc.is_null(plain))))
    stored = np.empty(len(rows), object)
    stored[:] = [_rounded(t, scale) for t in text.take(pa.array(rows)).to_pylist()]
    return rows, stored


def _rounded(text: str, scale: int) -> int:
    """The number times a power of ten, halves away from zero; beyond all types, some number that is too.

    >>> _rounded("-1.25e1", 0), _rounded("1e-9999999", 2), _rounded("1e9999999", 2) > 10**76
    (-13, 0, True)
    """
    try:
        number = decimal.Decimal(text)
    except decimal.InvalidOperation:  # an exponent of twenty digits
        return 0 if "-" in text.lower().partition("e")[2] else _TOO_LARGE
    if not number or number.adjusted() + scale < -1:
        return 0
    if number.adjusted() >= _MOST_DIGITS:
        return _TOO_LARGE
    with decimal.localcontext(prec=len(text) + 2 * _MOST_DIGITS):
        return int(number.scaleb(scale).to_integral_value(decimal.ROUND_HALF_UP))


def _read_moment(text: pa.Array, data_type: pa.DataType) -> pa.Array:
    parts = pc.extract_regex(text, pattern=_MOMENT)
    year, month, day = (_number(parts, name) for name in ("year", "month", "day"))
    hour, minute, second = (_number(parts, name) for name in ("hour", "minute", "second"))
    digits = pc.utf8_slice_codeunits(pc.utf8_rpad(pc.struct_field(parts, "fraction"), 9, "0"), start=0, stop=9)
    nanosecond = values(pc.cast(digits, pa.int64()).fill_null(0))
    months = (year - 1970) * 12 + month - 1
    first, following = _first_day(months), _first_day(months + 1)
    in_day = (hour < 24) | ((hour == 24) & (minute == 0) & (second == 0) & (nanosecond == 0))
    real = (month >= 1) & (month <= 12) & (day >= 1) & (day <= following - first)
    real &= in_day & (minute < 60) & (second < 60)
    nulls = either_null(null_rows(parts), ~real)
    seconds = (first + day - 1) * SECONDS_PER_DAY
    if pat.is_date(data_type):
        return convert_ticks(build(seconds, nulls, pa.timestamp("s")), data_type)
    seconds = seconds + hour * 3600 + minute * 60 + second
    if data_type.tz is not None:
        east = np.where(truth_of(pc.equal(pc.struct_field(parts, "sign"), "-")), -60, 60)
        seconds = seconds - east * (_number(parts, "offset_hours") * 60 + _number(parts, "offset_minutes"))
    unit = "ns" if data_type.unit == "ns" else "us"
    per_second = TICKS_PER_SECOND[unit]
    fraction = nanosecond // (10**9 // per_second)
    last, rest = divmod(2**63 - 1, per_second)
    beyond = (seconds > last) | (seconds < -last) | ((seconds == last) & (fraction > rest))
    moments = build(seconds * per_second + fraction, either_null(nulls, beyond), pa.timestamp(unit))
    return convert_ticks(moments, data_type)


def _number(parts: pa.StructArray, name: str) -> Values:
    digits = pc.struct_field(parts, name)
    return values(pc.cast(pc.if_else(pc.equal(digits, ""), "0", digits), pa.int64()).fill_null(0))


def _first_day(months: Values) -> Values:
    """The first day of each month, both counted from January 1970."""
    days: Values = months.astype("M8[M]").astype("M8[D]").view(np.int64)
    return days
