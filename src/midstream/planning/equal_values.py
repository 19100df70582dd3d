"""Which expressions can tell apart two values that compare as equal.

Distinct, grouping, difference and equality see 0.0 and -0.0 as one value and keep either. Moving a condition across
them is safe only if it gives the same answer for both, which almost every expression does; writing the number as text
does not, nor does a negative power.

>>> from midstream.algebra.expressions import Cast, Column
>>> import pyarrow as pa
>>> separates_equal_values(Cast(Column("a", "x", pa.float64()), pa.string()))
True
>>> separates_equal_values(Cast(Column("a", "x", pa.int64()), pa.string()))
False
"""

from __future__ import annotations

import pyarrow.types as pat

from midstream.algebra.expressions import Call, Cast, Expression
from midstream.algebra.types import is_string

__all__ = ["separates_equal_values"]


def separates_equal_values(expression: Expression) -> bool:
    """Whether the expression may give different values for inputs that compare as equal."""
    if isinstance(expression, Cast) and pat.is_floating(expression.argument.type) and is_string(expression.type):
        return True
    if isinstance(expression, Call) and expression.function == "power":
        return True
    return any(separates_equal_values(argument) for argument in expression.arguments)
