"""Functions applied to values the short way, for the tests of ``engine/expressions/evaluate``.

Every call is evaluated in four ways that must agree: the whole columns, slices of longer columns, one row at a time,
and each row as literals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from midstream.algebra.expressions import Column, Expression, Literal
from midstream.algebra.functions import call, cast
from midstream.engine.expressions.evaluate import evaluate

__all__ = ["columns_of", "evaluated", "run", "run_cast", "same"]

Operand = Any  # a pyarrow array is a column, an expression is itself, anything else is a literal


def run(function: str, *operands: Operand) -> list[Any]:
    """The function's values, row by row."""
    return evaluated(operands, lambda *expressions: call(function, *expressions))


def run_cast(array: pa.Array, data_type: pa.DataType) -> list[Any]:
    """The array's values cast to the type."""
    return evaluated([array], lambda argument: cast(argument, data_type))


def columns_of(arrays: dict[str, pa.Array]) -> Any:
    return lambda column: arrays[column.name]


def evaluated(operands: Sequence[Operand], build: Any) -> list[Any]:
    arrays = {f"c{i}": operand for i, operand in enumerate(operands) if isinstance(operand, pa.Array)}
    length = len(next(iter(arrays.values()))) if arrays else 1
    expression = build(*(_expression(f"c{i}", operand) for i, operand in enumerate(operands)))
    result = _checked(expression, arrays, length)

    longer = {name: pa.concat_arrays([a, a, a]) for name, a in arrays.items()}
    sliced = {name: array.slice(length, length) for name, array in longer.items()}
    assert same(_checked(expression, sliced, length), result)
    by_row = [_checked(expression, {n: a.slice(i, 1) for n, a in arrays.items()}, 1)[0] for i in range(length)]
    assert same(by_row, result)
    literals = []
    for row in range(length):
        constants = [_literal(o[row], o.type) if isinstance(o, pa.Array) else _expression("", o) for o in operands]
        literals.append(_checked(build(*constants), {}, 1)[0])
    assert same(literals, result)
    return result


def same(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Equal values, NaN being equal to itself."""
    return len(left) == len(right) and all(
        a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))
        for a, b in zip(left, right, strict=True)
    )


def _checked(expression: Expression, arrays: dict[str, pa.Array], length: int) -> list[Any]:
    result = evaluate(expression, columns_of(arrays), length)
    assert isinstance(result, pa.Array)
    assert result.type == expression.type
    assert len(result) == length
    result.validate(full=True)
    return _values(result)


def _values(array: pa.Array) -> list[Any]:
    # Nanoseconds, and years beyond 9999, have no Python value without pandas: compare the integers.
    if pa.types.is_timestamp(array.type) or pa.types.is_duration(array.type) or pa.types.is_date(array.type):
        try:
            return array.to_pylist()
        except (ValueError, OverflowError):
            return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64()).to_pylist()
    return array.to_pylist()


def _literal(scalar: pa.Scalar, data_type: pa.DataType) -> Literal:
    try:
        return Literal(scalar.as_py(), data_type)
    except (ValueError, OverflowError):
        return Literal(scalar.value, data_type)


def _expression(name: str, operand: Operand) -> Expression:
    if isinstance(operand, pa.Array):
        return Column("", name, operand.type)
    if isinstance(operand, Expression):
        return operand
    return Literal(operand, pa.scalar(operand).type)
