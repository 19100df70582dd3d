"""Range predicates between two join inputs, brought into a form that sorted probes can use.

Comparisons are rearranged so that each input has a key of its own and the rest is a constant:

    a.x - b.y < 3                     →  b.y > a.x - 3
    ABS(a.x - b.y) < 3                →  b.y > a.x - 3  and  b.y < a.x + 3
    b.y BETWEEN a.x - 5 AND a.x + 5   →  b.y >= a.x - 5  and  b.y <= a.x + 5
    a.t < b.t                         →  b.t > a.t

The rearranged bounds only choose candidates: the predicates themselves are evaluated on every candidate pair. The
bounds must therefore never be too narrow. Whole numbers and timestamps are exact; for floats the bounds are widened by
more than the arithmetic can round. NaN counts as the greatest number: a key compared with the other side's key plus a
constant keeps its order, NaN included; a *difference* of keys is NaN where one of them is, and then greater than any
constant, whatever the keys. A bound on a difference is therefore used only if some predicate puts an upper bound on the
same difference, and so is false for NaN.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from midstream.algebra.expressions import Call, Cast, Expression, Literal
from midstream.algebra.identity import flip
from midstream.engine.codes import has_order_codes, order_codes
from midstream.engine.kernels import Ints

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

    def ranges(self, keys: pa.Array) -> tuple[Ints, Ints]:
        """For each left key (none is NULL) the lowest and highest order code of right keys it can match."""
        codes, _ = order_codes(keys)
        lows, highs = np.full(len(codes), _LOWEST), np.full(len(codes), _HIGHEST)
        for bound in self.bounds:
            edges = codes if bound.offset == 0 else _shifted(keys, codes, bound)
            if bound.comparison in (">", ">="):
                lows = np.maximum(lows, edges)
            if bound.comparison in ("<", "<="):
                highs = np.minimum(highs, edges)
        return lows, highs


def _shifted(keys: pa.Array, codes: Ints, bound: Bound) -> Ints:
    """Order codes of key + offset, rounded away from the range."""
    if pat.is_floating(keys.type):
        values = np.asarray(keys)
        finite = np.isfinite(values)
        numbers = np.where(finite, values, 0.0)
        margin = (np.abs(numbers) + abs(bound.offset)) * (-1e-9 if bound.comparison in (">", ">=") else 1e-9)
        # An edge beyond the largest float is infinite, and bounds what it should.
        with np.errstate(over="ignore"):
            edges, _ = order_codes(pa.array(numbers + bound.offset + margin))
        # Infinities and NaN stay what they are, whatever is added.
        return np.where(finite, edges, codes)
    offset = int(bound.offset)
    # Saturate instead of wrapping around: an edge beyond int64 bounds nothing.
    if offset >= 0:
        return np.where(codes > _HIGHEST - offset, _HIGHEST, codes + np.int64(min(offset, _HIGHEST)))
    return np.where(codes < _LOWEST - offset, _LOWEST, codes + np.int64(max(offset, _LOWEST)))


def find_band(predicates: Iterable[Expression], left: frozenset[str], right: frozenset[str]) -> Band | None:
    """The best band among the predicates: two-sided before one-sided; None where there is none."""
    found: dict[tuple[str, str], list[_Candidate]] = {}
    for predicate in predicates:
        for candidate in _candidates(predicate, left, right):
            found.setdefault((candidate.left_key.text, candidate.right_key.text), []).append(candidate)
    bands = []
    for candidates in found.values():
        excludes_nan = any(candidate.excludes_nan for candidate in candidates)
        usable = [c.bound for c in candidates if c.is_exact or excludes_nan]
        if usable:
            bands.append(Band(candidates[0].left_key, candidates[0].right_key, tuple(usable)))
    return max(bands, key=lambda band: band.is_two_sided, default=None)


@dataclass(frozen=True)
class _Candidate:
    """A bound, and what it is worth for floats.

    ``is_exact``: it holds whenever the predicate does, NaN included. ``excludes_nan``: the predicate is false where the
    difference of the keys is NaN.
    """

    left_key: Expression
    right_key: Expression
    bound: Bound
    is_exact: bool
    excludes_nan: bool


Term = tuple[int, Expression]


def _candidates(predicate: Expression, left: frozenset[str], right: frozenset[str]) -> Iterable[_Candidate]:
    """The predicate as bounds."""
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
    rearranged = list(
        _difference(comparison, _terms(smaller, 1) + _terms(greater, -1), left, right, isinstance(greater, Literal))
    )
    if not rearranged:
        # Sums within one side are keys as they stand.
        rearranged = list(_difference(comparison, [(1, smaller), (-1, greater)], left, right, False))
    for candidate in rearranged:
        is_kept_apart = _has_key(smaller, candidate) and _has_key(greater, candidate)
        yield replace(candidate, is_exact=candidate.is_exact or is_kept_apart)


def _has_key(operand: Expression, candidate: _Candidate) -> bool:
    """Whether the operand is one of the keys, or one of them plus or minus a constant."""
    keys = (candidate.left_key, candidate.right_key)
    terms = [(sign, term) for sign, term in _terms(operand, 1) if not isinstance(term, Literal)]
    return operand in keys or (len(terms) == 1 and terms[0][0] > 0 and terms[0][1] in keys)


def _difference(
    comparison: str, terms: list[Term], left: frozenset[str], right: frozenset[str], excludes_nan: bool
) -> Iterable[_Candidate]:
    """``sum of terms < 0`` as a bound on the right side's term; nothing unless each side has one term."""
    offset: int | float = 0
    constants = 0
    left_terms: list[Term] = []
    right_terms: list[Term] = []
    for sign, term in terms:
        number = _number(term)
        if number is not None:
            offset += sign * number
            constants += 1
        elif term.relations and term.relations <= left:
            left_terms.append((sign, term))
        elif term.relations and term.relations <= right:
            right_terms.append((sign, term))
        else:
            return
    if len(left_terms) != 1 or len(right_terms) != 1 or left_terms[0][0] == right_terms[0][0]:
        return
    (left_sign, left_key), (_, right_key) = left_terms[0], right_terms[0]
    if left_key.type != right_key.type or not has_order_codes(left_key.type):
        return
    if constants and not (left_key.type in (pa.int64(), pa.float64()) or _is_micro(left_key.type)):
        return
    if abs(offset) >= 2**62:
        # Beyond what saturated arithmetic can bound from both sides.
        return
    is_float = pat.is_floating(left_key.type)
    if is_float and constants > 1:
        # Several constants round one after the other: the sum of them says nothing about the error.
        return
    # Positive left term: left + offset < right. Negative: right + offset < left.
    bound = Bound(flip(comparison), offset) if left_sign > 0 else Bound(comparison, -offset)
    yield _Candidate(left_key, right_key, bound, not is_float, excludes_nan and is_float)


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
