"""Conditions on single streams as Spark SQL expressions, so that Catalyst decides which rows are packed at all.

Only what means the same there is translated: Spark raises errors where midstream's expressions are NULL (division by
zero, overflow, casts), so that arithmetic, casts and functions stay with the windows, which check every condition
anyway. Comparisons, IS NULL, AND, OR and NOT over columns and literals mean the same, NULLs and NaN included.
"""

from __future__ import annotations

import datetime
import decimal
from functools import reduce

import pyarrow.types as pat
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from midstream.algebra.expressions import Call, Column, Expression, Literal

__all__ = ["as_spark_column", "column_name", "is_translatable"]

_COMPARISONS = {"=", "<>", "<", "<=", ">", ">="}
_CONNECTIVES = {"and", "or", "not", "is_null"}


def is_translatable(condition: Expression) -> bool:
    """Whether the condition means the same in Spark."""
    if isinstance(condition, Column):
        return not (pat.is_unsigned_integer(condition.type) or pat.is_nested(condition.type))
    if isinstance(condition, Literal):
        return isinstance(condition.value, bool | int | float | str | decimal.Decimal | datetime.date) and not (
            # Spark reads a naive datetime in the zone of the machine.
            isinstance(condition.value, datetime.datetime)
        )
    if not isinstance(condition, Call) or not all(map(is_translatable, condition.operands)):
        return False
    if condition.function in _COMPARISONS or condition.function == "in":
        # A single-precision number would be compared with a literal of double precision.
        return len({operand.type for operand in condition.operands}) == 1 and not pat.is_float32(
            condition.operands[0].type
        )
    return condition.function in _CONNECTIVES


def column_name(name: str) -> str:
    """A column's name as Spark SQL reads it, whatever letters it has."""
    return f"`{name.replace('`', '``')}`"


def as_spark_column(condition: Expression) -> SparkColumn:
    """The condition over a DataFrame with the stream's columns."""
    if isinstance(condition, Column):
        return F.col(column_name(condition.name))
    if isinstance(condition, Literal):
        if type(condition.value) is datetime.date:
            # As a date itself it would lose the zeros of its year on the way.
            return F.lit(condition.value.isoformat()).cast("date")
        return F.lit(condition.value)
    assert isinstance(condition, Call)
    operands = [as_spark_column(operand) for operand in condition.operands]
    match condition.function:
        case "and":
            return reduce(lambda a, b: a & b, operands)
        case "or":
            return reduce(lambda a, b: a | b, operands)
        case "not":
            return ~operands[0]
        case "is_null":
            return operands[0].isNull()
        case "in":
            return reduce(lambda a, b: a | b, [operands[0] == operand for operand in operands[1:]])
        case "=":
            return operands[0] == operands[1]
        case "<>":
            return operands[0] != operands[1]
        case "<":
            return operands[0] < operands[1]
        case "<=":
            return operands[0] <= operands[1]
        case ">":
            return operands[0] > operands[1]
        case ">=":
            return operands[0] >= operands[1]
        case other:
            raise AssertionError(f"{other} is not translatable")
