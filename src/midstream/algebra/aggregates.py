"""Aggregate functions: what they take and give. How they are kept up to date is in ``engine/operators/aggregate``.

>>> from midstream.algebra.expressions import Column
>>> aggregate_call("sum", Column("", "x", pa.int32())).type
DataType(int64)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.types as pat

from midstream.algebra.expressions import Expression
from midstream.algebra.types import is_comparable, is_numeric, type_name
from midstream.errors import TypeMismatch

__all__ = ["AGGREGATES", "AggregateCall", "aggregate_call"]

AGGREGATES = ("count", "sum", "avg", "min", "max")


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate over the rows of a group. ``argument`` None is COUNT(*); NULL arguments are ignored.

    ``distinct`` is kept for COUNT, SUM and AVG only: for MIN and MAX it changes nothing.
    """

    function: str
    argument: Expression | None
    distinct: bool
    data_type: pa.DataType

    @property
    def type(self) -> pa.DataType:
        return self.data_type

    @cached_property
    def text(self) -> str:
        argument = "*" if self.argument is None else str(self.argument)
        return f"{self.function.upper()}({'DISTINCT ' if self.distinct else ''}{argument})"

    def __str__(self) -> str:
        return self.text


def aggregate_call(function: str, argument: Expression | None, distinct: bool = False) -> AggregateCall:
    """The aggregate with its type; refused where the argument's type has no such aggregate."""
    assert function in AGGREGATES
    if function == "count":
        if distinct and argument is not None and not is_comparable(argument.type):
            raise TypeMismatch(f"cannot count different values of {argument} ({type_name(argument.type)})")
        return AggregateCall(function, argument, distinct, pa.int64())
    assert argument is not None
    data_type = argument.type
    if function in ("min", "max"):
        if not is_comparable(data_type):
            raise TypeMismatch(f"{function.upper()} takes comparable values, not {argument} ({type_name(data_type)})")
        return AggregateCall(function, argument, False, data_type)
    if not (is_numeric(data_type) or pat.is_null(data_type)):
        raise TypeMismatch(f"{function.upper()} takes numbers, not {argument} ({type_name(data_type)})")
    if pat.is_decimal256(data_type):
        raise TypeMismatch(
            f"{function.upper()} of {argument} ({type_name(data_type)}) may need more than 38 digits",
            hint="Cast it to a decimal of at most 38 digits, or to DOUBLE.",
        )
    result = pa.float64() if function == "avg" else sum_type(data_type)
    return AggregateCall(function, argument, distinct, result)


def sum_type(data_type: pa.DataType) -> pa.DataType:
    """The type of a sum: wide enough for exact sums of any realistic number of rows."""
    if pat.is_decimal(data_type):
        return pa.decimal128(38, data_type.scale)
    if pat.is_floating(data_type):
        return pa.float64()
    return pa.decimal128(38, 0) if pat.is_uint64(data_type) else pa.int64()
