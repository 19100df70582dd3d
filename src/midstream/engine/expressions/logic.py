"""Three-valued logic and choice: AND, OR, NOT, IS NULL, CASE, COALESCE.

>>> _case([pa.array([True, None]), pa.array([1, 2]), pa.scalar(9)], pa.int64()).to_pylist()
[1, 9]
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from midstream.engine.expressions.arrow_values import Datum, Kernel

__all__ = ["KERNELS"]


def _case(operands: Sequence[Datum], result: pa.DataType) -> Datum:
    """The value of the first branch whose condition is true (not NULL), else the last operand."""
    if pat.is_null(result):
        return pa.scalar(None, result)
    conditions, chosen, otherwise = [], [], operands[-1]
    for condition, value in zip(operands[:-1:2], operands[1::2], strict=True):
        if not isinstance(condition, pa.Scalar):
            conditions.append(condition)
            chosen.append(value)
        elif condition.is_valid and condition.as_py():
            otherwise = value
            break
    return pc.case_when(pc.make_struct(*conditions), *chosen, otherwise) if conditions else otherwise


def _coalesce(operands: Sequence[Datum], result: pa.DataType) -> Datum:
    return pa.scalar(None, result) if pat.is_null(result) else pc.coalesce(*operands)


KERNELS: dict[str, Kernel] = {
    "and": lambda operands, result: pc.and_kleene(*operands),
    "or": lambda operands, result: pc.or_kleene(*operands),
    "not": lambda operands, result: pc.invert(operands[0]),
    "is_null": lambda operands, result: pc.is_null(operands[0]),
    "case": _case,
    "coalesce": _coalesce,
}
