"""Expressions evaluated on Arrow arrays: the engine's only reader of :mod:`midstream.algebra.expressions`.

:func:`evaluate` gives an expression's values as an array, :func:`truth` the rows in which a predicate is true. Both
compute column by column with Arrow and NumPy kernels; literals stay scalars until a result needs all rows. Functions
are total: a row without a value (overflow, division by zero, a cast that fails) is NULL and disturbs no other row, so
the result never depends on how rows are cut into batches.

What each function computes is in ``evaluation/``, one file per kind of value. To add a function: give it a signature
in ``algebra/functions``, and a kernel in the table of one of these files.

>>> import midstream.algebra.functions as functions
>>> price = Column("b", "price", pa.int64())
>>> columns = {"price": pa.array([7, None, 2**63 - 1])}
>>> doubled = functions.call("*", price, Literal(2, pa.int64()))
>>> evaluate(doubled, lambda column: columns[column.name], 3).to_pylist()
[14, None, None]
>>> truth(functions.call(">", price, Literal(5, pa.int64())), lambda column: columns[column.name], 3)
array([ True, False,  True])
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from midstream.algebra.expressions import Call, Cast, Column, Expression, Literal
from midstream.engine.expressions import arithmetic, comparison, logic, rounding, temporal, text
from midstream.engine.expressions.arrow_values import (
    Datum,
    Kernel,
    array_of,
    is_fixed_width,
    null_rows,
    truth_of,
    values,
    working_type,
)
from midstream.engine.expressions.casts import convert
from midstream.engine.expressions.comparison import NEGATIONS, compare_values
from midstream.engine.expressions.decimals import to_decimal

__all__ = ["evaluate", "truth"]

_KERNELS: dict[str, Kernel] = {
    **logic.KERNELS,
    **comparison.KERNELS,
    **arithmetic.KERNELS,
    **rounding.KERNELS,
    **text.KERNELS,
    **temporal.KERNELS,
}
# The functions that may have a value although an operand is NULL.
_TAKE_NULLS = {"and", "or", "is_null", "in", "case", "coalesce", "greatest", "least", "nullif", "concat"}


def evaluate(expression: Expression, column: Callable[[Column], pa.Array], length: int) -> pa.Array:
    """The expression's values in all rows, as an array of the expression's type.

    ``column`` gives an input column of ``length`` rows; it is asked once for each column the expression reads.
    """
    if isinstance(expression, Column):
        return column(expression)
    result = array_of(_Evaluation(column, length).value(expression), length)
    if result.type == expression.type:
        return result
    # From the working type back: the values fit, but for decimals with a negative scale.
    return to_decimal(result, expression.type) if pat.is_decimal(result.type) else pc.cast(result, expression.type)


def truth(expression: Expression, column: Callable[[Column], pa.Array], length: int) -> npt.NDArray[np.bool_]:
    """The rows in which the predicate is true; where it is false or NULL, it is not."""
    return _Evaluation(column, length).rows_where(expression, True)


class _Evaluation:
    """One evaluation on one batch: each column is fetched, each shared expression computed, only once."""

    def __init__(self, column: Callable[[Column], pa.Array], length: int) -> None:
        self._column = column
        self._length = length
        self._columns: dict[tuple[str, str], pa.Array] = {}
        # By identity: what BETWEEN and CASE compare repeatedly is one object, and hashing trees would cost more
        # than it saves.
        self._values: dict[int, Datum] = {}

    def value(self, expression: Expression) -> Datum:
        """The expression's values in its working type; a scalar if they do not depend on the row."""
        if isinstance(expression, Column):
            return self._input(expression)
        known = self._values.get(id(expression))
        if known is None:
            known = self._values[id(expression)] = self._compute(expression)
        return known

    def rows_where(self, expression: Expression, wanted: bool) -> npt.NDArray[np.bool_]:
        """The rows in which the predicate is true, or those in which it is false."""
        if isinstance(expression, Call):
            name = expression.function
            if name in ("and", "or"):
                return self._rows_where_both(expression, wanted, both=(name == "and") == wanted)
            if name == "not":
                return self.rows_where(expression.operands[0], not wanted)
            if name in NEGATIONS:
                return self._rows_where_compared(expression, name if wanted else NEGATIONS[name])
        found = self.value(expression)
        if not wanted:
            found = pc.invert(found)
        if isinstance(found, pa.Scalar):
            return np.full(self._length, found.is_valid and found.as_py(), np.bool_)
        return truth_of(found)

    def _rows_where_both(self, expression: Call, wanted: bool, both: bool) -> npt.NDArray[np.bool_]:
        left, right = expression.operands
        rows = self.rows_where(left, wanted)
        # One side may decide alone: a join's predicates seldom let a candidate through.
        if both and not rows.any():
            return rows
        if not both and rows.all():
            return rows
        others = self.rows_where(right, wanted)
        return rows & others if both else rows | others

    def _rows_where_compared(self, expression: Call, function: str) -> npt.NDArray[np.bool_]:
        left, right = (self.value(operand) for operand in expression.operands)
        scalars = [operand for operand in (left, right) if isinstance(operand, pa.Scalar)]
        if any(not scalar.is_valid for scalar in scalars):
            return np.zeros(self._length, np.bool_)
        if len(scalars) == 2:
            left = array_of(left, self._length)
        if pat.is_null(left.type):
            return np.zeros(self._length, np.bool_)
        if not is_fixed_width(left.type):
            return truth_of(comparison.compare(function, left, right))
        rows: npt.NDArray[np.bool_] = compare_values(function, values(left), values(right))
        for nulls in (null_rows(left), null_rows(right)):
            if nulls is not None:
                rows &= ~nulls
        return rows

    def _input(self, column: Column) -> pa.Array:
        key = (column.relation, column.name)
        array = self._columns.get(key)
        if array is None:
            array = self._column(column)
            working = working_type(column.type)
            if working is not column.type:
                array = pc.cast(array, working)
            self._columns[key] = array
        return array

    def _compute(self, expression: Expression) -> Datum:
        if isinstance(expression, Literal):
            return _scalar(expression)
        if isinstance(expression, Cast):
            argument = expression.argument
            # Not floats: 0.0 and -0.0 are equal, and so would be found for each other.
            if isinstance(argument, Literal) and not pat.is_floating(argument.type):
                return _constant(argument, expression.type)
            return _cast(self.value(argument), expression.type)
        operands = [self.value(argument) for argument in expression.arguments]
        assert isinstance(expression, Call)
        result = working_type(expression.type)
        if expression.function not in _TAKE_NULLS and any(
            isinstance(operand, pa.Scalar) and not operand.is_valid for operand in operands
        ):
            return pa.scalar(None, result)
        return _applied(_KERNELS[expression.function], operands, result)


def _scalar(literal: Literal) -> pa.Scalar:
    return pa.scalar(literal.value, working_type(literal.type))


@lru_cache(maxsize=4096)
def _constant(literal: Literal, data_type: pa.DataType) -> pa.Scalar:
    """A literal cast to another type, kept from batch to batch."""
    return _cast(_scalar(literal), data_type)


def _cast(operand: Datum, data_type: pa.DataType) -> Datum:
    return _applied(lambda operands, _: convert(operands[0], data_type), [operand], data_type)


def _applied(kernel: Kernel, operands: list[Datum], result: pa.DataType) -> Datum:
    """The kernel's result; for scalars alone a scalar, computed on arrays of one row."""
    if all(isinstance(operand, pa.Scalar) for operand in operands):
        single = kernel([*map(_one_row, operands[:1]), *operands[1:]], result)
        return single if isinstance(single, pa.Scalar) else single[0]
    return kernel(operands, result)


def _one_row(scalar: pa.Scalar) -> pa.Array:
    return array_of(scalar, 1)
