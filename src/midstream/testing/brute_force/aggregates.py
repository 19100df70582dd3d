"""Aggregates over the rows of a group."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial, reduce
from typing import Any

from midstream.testing.brute_force.bound import Bound, Rows, comparable, identity_key
from midstream.testing.brute_force.syntax import BruteForceError
from midstream.testing.brute_force.value_types import DOUBLE, EXACT, INTEGER, Type, fits

__all__ = ["Aggregate"]


@dataclass(frozen=True)
class Aggregate:
    """An aggregate: its type, and its value for the rows of a group."""

    type: Type
    over: Callable[[Sequence[Rows]], Any]

    @classmethod
    def of(cls, function: str, argument: Bound | None, distinct: bool) -> Aggregate:
        """COUNT, SUM, AVG, MIN or MAX; COUNT without an argument counts rows.

        >>> from midstream.testing.brute_force.bound import constant
        >>> Aggregate.of("SUM", constant(INTEGER, 2**62), distinct=False).over([(), ()]) is None
        True
        """
        if argument is None:
            return cls(INTEGER, len)
        kind = argument.type
        if function in ("MIN", "MAX"):
            return cls(kind, partial(_extreme, argument, max if function == "MAX" else min))
        if function == "COUNT":
            summarise: Callable[[list[Any]], Any] = len
            result = INTEGER
        else:
            if not kind.is_number and kind.kind != "null":
                raise BruteForceError(f"{function} takes numbers, not {kind.kind}")
            summarise, result = (_mean, DOUBLE) if function == "AVG" else _sum(kind)
        key = identity_key([kind]) if distinct else None

        def over(group: Sequence[Rows]) -> Any:
            values = [value for rows in group if (value := argument.evaluate(rows)) is not None]
            if key is not None:
                values = list({key((value,)): value for value in values}.values())
            return summarise(values)

        return cls(result, over)


def _extreme(argument: Bound, choose: Callable[..., Any], group: Sequence[Rows]) -> Any:
    (key,) = comparable(argument)
    known = [rows for rows in group if argument.evaluate(rows) is not None]
    return argument.evaluate(choose(known, key=key.evaluate)) if known else None


def _sum(kind: Type) -> tuple[Callable[[list[Any]], Any], Type]:
    if kind.kind == "float":
        return (lambda values: _rounded_sum(values) if values else None), DOUBLE
    if kind.kind in ("integer", "null"):
        return _sum_of_integers, INTEGER
    result = Type("decimal", precision=38, scale=kind.scale)

    def sum_of_decimals(values: list[Any]) -> Decimal | None:
        if not values:
            return None
        total = reduce(EXACT.add, map(Decimal, values))
        return total if fits(total, 38, kind.scale) else None

    return sum_of_decimals, result


def _sum_of_integers(values: list[int]) -> int | None:
    total = sum(values)
    return total if values and -(2**63) <= total < 2**63 else None


def _rounded_sum(values: list[float]) -> float:
    """The exact sum, rounded once.

    >>> _rounded_sum([1e308, 1e308, -1e308]), _rounded_sum([math.inf, -math.inf]), _rounded_sum([1e308, 1e308])
    (1e+308, nan, inf)
    """
    special = {value if value == value else math.nan for value in values if not math.isfinite(value)}
    if special:
        return special.pop() if len(special) == 1 else math.nan
    total = sum(map(Fraction, values))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def _mean(values: list[Any]) -> float | None:
    if not values:
        return None
    if isinstance(values[0], float):
        return _rounded_sum(values) / len(values)
    return float(sum(map(Fraction, values)) / len(values))
