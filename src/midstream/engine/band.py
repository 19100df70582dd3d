"""Range predicates between two join inputs, brought into a form that sorted probes can use.

Comparisons are rearranged so that each input has a key of its own and the rest is a constant:

    a.x - b.y < 3                     →  b.y > a.x - 3
    ABS(a.x - b.y) < 3                →  b.y > a.x - 3  and  b.y < a.x + 3
    b.y BETWEEN a.x - 5 AND a.x + 5   →  b.y >= a.x - 5  and  b.y <= a.x + 5
    a.t < b.t                         →  b.t > a.t

The rearranged bounds only choose candidates: the predicates themselves are evaluated on every candidate pair. The
bounds must therefore never be too narrow. Whole numbers and timestamps are exact; for floats the bounds are widened
by more than the arithmetic can round, and a band is used only if one of its predicates is false for NaN (an upper
bound on a difference), because NaN counts as the greatest number and escapes every lower bound.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from midstream.algebra.expressions import Call, Cast, Expression, Literal
from midstream.algebra.identity import flip
from midstream.engine.codes import order_codes
from midstream.engine.kernels import Flags, Ints

__all__ = ["Band", "find_band"]

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Bound:
    """right_key <comparison> left_key + offset."""

    comparison: str
    offset: int | float


@dataclass(frozen=True)
class Band:
    """A key for each side, and bounds between them."""

    left_key: Expression
    right_key: Expression
    bounds: tuple[Bound, ...]

    @property
    def is_two_sided(self) -> bool:
        return {"<", "<="} & {b.comparison for b in self.bounds} != set() and (
            {">", ">="} & {b.comparison for b in self.bounds} != set()
        )

    def mirrored(self) -> Band:
        """The same band seen from the other side."""
        bounds = tuple(Bound(flip(b.comparison), -b.offset) for b in self.bounds)
        return Band(self.right_key, self.left_key, bounds)

    def ranges(self, keys: pa.Array) -> tuple[Ints, Ints, Flags | None]:
        """For each left key the lowest and highest order code of right keys it can match; which are not NULL."""
        coded = order_codes(keys)
        assert coded is not None
        codes, valid = coded
        lows, highs = np.full(len(codes), _LOWEST), np.full(len(codes), _HIGHEST)
        for bound in self.bounds:
            edges = codes if bound.offset == 0 else _shifted(keys, codes, bound)
            if bound.comparison in (">", ">="):
                lows = np.maximum(lows, edges)
            if bound.comparison in ("<", "<="):
                highs = np.minimum(highs, edges)
        return lows, highs, valid


def _shifted(keys: pa.Array, codes: Ints, bound: Bound) -> Ints:
    """Order codes of key + offset, rounded away from the range."""
    sign = -1 if bound.comparison in (">", ">=") else 1
    if pat.is_floating(keys.type):
        values = np.asarray(keys.cast(pa.float64()).fill_null(0.0))
        margin = (np.abs(values) + abs(bound.offset)) * 1e-9
        shifted = order_codes(pa.array(values + bound.offset + sign * margin))
        assert shifted is not None
        return shifted[0]
    offset = int(bound.offset)
    # Saturate instead of wrapping around: an edge beyond int64 bounds nothing.
    if offset >= 0:
        return np.where(codes > _HIGHEST - offset, _HIGHEST, codes + np.int64(min(offset, _HIGHEST)))
    return np.where(codes < _LOWEST - offset, _LOWEST, codes + np.int64(max(offset, _LOWEST)))


def find_band(predicates: Iterable[Expression], left: frozenset[str], right: frozenset[str]) -> Band | None:
    """The best band among the predicates: two-sided before one-sided; None where there is none."""
    found: dict[tuple[str, str], tuple[Expression, Expression, list[Bound], bool]] = {}
    for predicate in predicates:
        for left_key, right_key, bound, excludes_nan in _bounds(predicate, left, right):
            names = (left_key.text, right_key.text)
            kept = found.setdefault(names, (left_key, right_key, [], False))
            kept[2].append(bound)
            found[names] = (*kept[:3], kept[3] or excludes_nan)
    bands = [
        Band(left_key, right_key, tuple(bounds))
        for left_key, right_key, bounds, excludes_nan in found.values()
        if excludes_nan or not pat.is_floating(left_key.type) or all(b.offset == 0 for b in bounds)
    ]
    return max(bands, key=lambda band: band.is_two_sided, default=None)


Term = tuple[int, Expression]


def _bounds(
    predicate: Expression, left: frozenset[str], right: frozenset[str]
) -> Iterable[tuple[Expression, Expression, Bound, bool]]:
    """The predicate as bounds, each with whether the predicate is false where its difference is NaN."""
    if not (isinstance(predicate, Call) and predicate.function in ("<", "<=", ">", ">=")):
        return
    comparison, (smaller, greater) = predicate.function, predicate.operands
    if comparison in (">", ">="):
        comparison, smaller, greater = flip(comparison), greater, smaller
    if isinstance(smaller, Call) and smaller.function == "abs" and isinstance(greater, Literal):
        inner = smaller.operands[0]
        yield from _difference(comparison, _terms(inner, 1) + _terms(greater, -1), left, right, True)
        yield from _difference(comparison, _terms(inner, -1) + _terms(greater, -1), left, right, True)
        return
    excludes_nan = isinstance(greater, Literal)
    bounds = list(_difference(comparison, _terms(smaller, 1) + _terms(greater, -1), left, right, excludes_nan))
    if bounds:
        yield from bounds
    else:
        # Sums within one side are keys as they stand.
        yield from _difference(comparison, [(1, smaller), (-1, greater)], left, right, False)


def _difference(
    comparison: str, terms: list[Term], left: frozenset[str], right: frozenset[str], excludes_nan: bool
) -> Iterable[tuple[Expression, Expression, Bound, bool]]:
    """``sum of terms < 0`` as a bound on the right side's term; nothing unless each side has one term."""
    offset: int | float = 0
    left_terms: list[Term] = []
    right_terms: list[Term] = []
    for sign, term in terms:
        number = _number(term)
        if number is not None:
            offset += sign * number
        elif term.relations and term.relations <= left:
            left_terms.append((sign, term))
        elif term.relations and term.relations <= right:
            right_terms.append((sign, term))
        else:
            return
    if len(left_terms) != 1 or len(right_terms) != 1 or left_terms[0][0] == right_terms[0][0]:
        return
    (left_sign, left_key), (_, right_key) = left_terms[0], right_terms[0]
    if left_key.type != right_key.type or order_codes(pa.array([], left_key.type)) is None:
        return
    if offset and not (left_key.type in (pa.int64(), pa.float64()) or _is_micro(left_key.type)):
        return
    # Positive left term: left + offset < right. Negative: right + offset < left.
    if left_sign > 0:
        yield left_key, right_key, Bound(flip(comparison), offset), excludes_nan
    else:
        yield left_key, right_key, Bound(comparison, -offset), excludes_nan


def _is_micro(data_type: pa.DataType) -> bool:
    return bool(pat.is_timestamp(data_type) and data_type.unit == "us")


def _number(expression: Expression) -> int | float | None:
    """The constant as a number of the key's units, if it is one."""
    value = expression.value if isinstance(expression, Literal) else None
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(microseconds=1)
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _terms(expression: Expression, sign: int) -> list[Term]:
    """The expression as a sum."""
    if isinstance(expression, Call) and expression.function in ("+", "-"):
        first, second = expression.operands
        return _terms(first, sign) + _terms(second, sign if expression.function == "+" else -sign)
    if isinstance(expression, Call) and expression.function == "negate":
        return _terms(expression.operands[0], -sign)
    if isinstance(expression, Cast) and isinstance(expression.argument, Literal) and pat.is_duration(expression.type):
        return _terms(expression.argument, sign)
    return [(sign, expression)]
