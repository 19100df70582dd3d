"""Comparisons and what follows from an order of values: ``= <> < <= > >=``, IN, GREATEST, LEAST, NULLIF.

Every type has a total order. For floats it is that of DuckDB and Spark, not IEEE's: NaN equals NaN and is greater
than everything else, and -0.0 equals 0.0. So ``NOT (a < b)`` is ``a >= b`` for all values that are not NULL.

>>> compare_values("<", np.array([1.0, np.nan]), np.array([np.nan, 1.0]))
array([ True, False])
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from midstream.algebra.identity import flip
from midstream.engine.expressions.arrow_values import (
    Datum,
    Kernel,
    Values,
    array_of,
    build,
    either_null,
    empty_where,
    is_fixed_width,
    null_rows,
    values,
)

__all__ = ["KERNELS", "NEGATIONS", "compare", "compare_values"]

NEGATIONS = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_ARROW = {
    "=": pc.equal, "<>": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip


def compare_values(function: str, left: Values, right: Values) -> Values:
    """The comparison on raw values of one NumPy type, at most one of them a scalar."""
    if left.dtype.kind != "f":
        result: Values = _OPERATORS[function](left, right)
        return result
    if left.ndim == 0:
        return compare_values(flip(function), right, left)
    if function in ("<>", ">", ">="):
        return ~compare_values(NEGATIONS[function], left, right)
    # What IEEE gets wrong for =, < and <= : where the right side is NaN (a NaN on the left alone gives false).
    if right.ndim == 0:
        if not np.isnan(right):
            result = _OPERATORS[function](left, right)
        elif function == "=":
            result = np.isnan(left)
        else:
            result = ~np.isnan(left) if function == "<" else np.ones(left.shape, np.bool_)
        return result
    if function == "=":
        result = (left == right) | (np.isnan(left) & np.isnan(right))
    elif function == "<":
        result = ~(left >= right) & ~np.isnan(left)
    else:
        result = (left <= right) | np.isnan(right)
    return result


def compare(function: str, left: Datum, right: Datum) -> Datum:
    """The comparison as a boolean array; NULL where a side is NULL."""
    if pat.is_null(left.type):
        return pa.scalar(None, pa.bool_())
    if not is_fixed_width(left.type):
        return _ARROW[function](left, right)
    nulls = either_null(null_rows(left), null_rows(right))
    return build(compare_values(function, values(left), values(right)), nulls, pa.bool_())


def _comparison(function: str) -> Kernel:
    return lambda operands, result: compare(function, operands[0], operands[1])


def _in(operands: Sequence[Datum], result: pa.DataType) -> Datum:
    """True if an item equals the value, else NULL if the value or an item is NULL, else false."""
    value, items = operands[0], operands[1:]
    if pat.is_null(value.type):
        return pa.scalar(None, pa.bool_())
    # Arrow's lookup tells NaNs with different bits and the two zeros apart: floats are compared one by one.
    if isinstance(value, pa.Scalar) or pat.is_floating(value.type) or not all(isinstance(i, pa.Scalar) for i in items):
        return _in_any(value, items)
    valid = [pa.repeat(item, 1) for item in items if item.is_valid]
    if not valid:
        return pa.scalar(None, pa.bool_())
    found = pc.is_in(value, value_set=pa.concat_arrays(valid))
    if len(valid) < len(items):
        return pc.if_else(found, True, pa.scalar(None, pa.bool_()))
    return found if value.null_count == 0 else empty_where(pc.is_null(value), found)


def _in_any(value: Datum, items: Sequence[Datum]) -> Datum:
    length = max(len(d) for d in (value, *items) if not isinstance(d, pa.Scalar))
    found: Datum = pa.scalar(False)
    for item in items:
        if any(isinstance(d, pa.Scalar) and not d.is_valid for d in (value, item)):
            equal: Datum = pa.scalar(None, pa.bool_())
        elif isinstance(value, pa.Scalar) and isinstance(item, pa.Scalar):
            equal = compare("=", array_of(value, length), item)
        else:
            equal = compare("=", value, item)
        found = pc.or_kleene(found, equal)
    return found


def _extreme(function: str) -> Kernel:
    """GREATEST (``>``) and LEAST (``<``): of the values that are not NULL, the first of equal ones."""

    def extreme(operands: Sequence[Datum], result: pa.DataType) -> Datum:
        if pat.is_null(result):
            return pa.scalar(None, result)
        length = max(len(d) for d in operands if not isinstance(d, pa.Scalar))
        best: Datum | None = None
        for operand in operands:
            if isinstance(operand, pa.Scalar) and not operand.is_valid:
                continue
            if best is None:
                best = array_of(operand, length)
            else:
                better = compare(function, operand, best)
                # Where one of them is NULL, so is the comparison, and the other is taken.
                best = pc.coalesce(pc.if_else(better, operand, best), best, operand)
        return pa.scalar(None, result) if best is None else best

    return extreme


def _nullif(operands: Sequence[Datum], result: pa.DataType) -> Datum:
    value, other = operands
    if pat.is_null(result) or any(isinstance(d, pa.Scalar) and not d.is_valid for d in operands):
        return value
    return empty_where(compare("=", value, other), value)


KERNELS: dict[str, Kernel] = {
    **{name: _comparison(name) for name in _OPERATORS},
    "in": _in,
    "greatest": _extreme(">"),
    "least": _extreme("<"),
    "nullif": _nullif,
}
