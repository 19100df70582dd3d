"""Bands choose candidates: a pair for which the predicates are true is never left out."""

from __future__ import annotations

import datetime
import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.algebra.expressions import Column, Expression, Literal, conjunction
from midstream.algebra.functions import call, cast
from midstream.engine.codes import order_codes
from midstream.engine.expressions.evaluate import evaluate, truth
from midstream.engine.operators.band import Band, find_band

examples = settings(derandomize=True, deadline=None, max_examples=80, database=None)

LEFT, RIGHT = frozenset("a"), frozenset("b")
LOWEST, HIGHEST = -(2**63), 2**63 - 1
MICRO = pa.timestamp("us")

INTEGERS = [
    LOWEST,
    LOWEST + 1,
    LOWEST + 3,
    -(2**62),
    -6,
    -5,
    -3,
    -1,
    0,
    1,
    2,
    3,
    4,
    5,
    2**62,
    HIGHEST - 3,
    HIGHEST,
    None,
]
FLOATS = [
    -math.inf, -1.7976931348623157e308, -1e20, -1e16, -3.0000000000000004, -3.0, -1.0, -5e-324, -0.0, 0.0, 5e-324, 0.1,
    0.2, 0.30000000000000004, 1.0, 1.0000000000000002, 2.9999999999999996, 3.0, 4.0, 1e16, 1e20, 1.7976931348623157e308,
    math.inf, math.nan, None,
]  # fmt: skip
TIMES = [LOWEST + 1, -1_000_001, -1_000_000, -1, 0, 1, 999_999, 1_000_000, 1_000_001, 2_000_000, HIGHEST - 1, None]
VALUES = {pa.int64(): INTEGERS, pa.float64(): FLOATS, MICRO: TIMES}


def column(side: str, name: str, data_type: pa.DataType) -> Column:
    return Column(side, name, data_type)


def number(value: Any) -> Literal:
    return Literal(value, pa.float64() if isinstance(value, float) else pa.int64())


def seconds(value: float) -> Literal:
    return Literal(datetime.timedelta(seconds=value), pa.duration("us"))


def left_out(predicates: list[Expression], values: list[Any], data_type: pa.DataType) -> list[tuple[Any, Any]]:
    """Pairs for which the predicates are true, but which a band does not offer, from either side."""
    band = find_band(predicates, LEFT, RIGHT)
    if band is None:
        return []
    pairs = list(itertools.product(values, repeat=2))
    arrays = {side: pa.array([pair[i] for pair in pairs], data_type) for i, side in enumerate("ab")}
    wanted = truth(conjunction(predicates), lambda c: arrays[c.relation], len(pairs))
    missing = []
    for seen in (band, band.mirrored()):
        keys = [evaluate(key, lambda c: arrays[c.relation], len(pairs)) for key in (seen.left_key, seen.right_key)]
        # Tuples whose key is NULL are dropped before anyone asks.
        there = np.asarray(keys[0].is_valid()) & np.asarray(keys[1].is_valid())
        kept = pa.array(np.flatnonzero(there))
        with np.errstate(all="ignore"):  # whether anyone is warned is a test of its own
            lows, highs = seen.ranges(keys[0].take(kept))
        codes, _ = order_codes(keys[1].take(kept))
        offered = np.zeros(len(pairs), bool)
        offered[there] = (lows <= codes) & (codes <= highs)
        missing += [pairs[i] for i in np.flatnonzero(wanted & ~offered)]
    return missing


def shapes(a: Expression, b: Expression, constant: Any, comparison: str) -> dict[str, list[Expression]]:
    """Predicates over two keys and a constant."""
    c = constant
    minus, plus = call("-", a, b), call("+", a, c)
    return {
        "a ? b": [call(comparison, a, b)],
        "b ? a": [call(comparison, b, a)],
        "a - b ? c": [call(comparison, minus, c)],
        "c ? a - b": [call(comparison, c, minus)],
        "b - a ? c": [call(comparison, call("-", b, a), c)],
        "a + c ? b": [call(comparison, plus, b)],
        "c + a ? b": [call(comparison, call("+", c, a), b)],
        "a ? b + c": [call(comparison, a, call("+", b, c))],
        "a - c ? b": [call(comparison, call("-", a, c), b)],
        "a ? b - c": [call(comparison, a, call("-", b, c))],
        "a - b + c ? c": [call(comparison, call("+", minus, c), c)],
        "(a + c) - b ? c": [call(comparison, call("-", plus, b), c)],
        "a + c - c ? b": [call(comparison, call("-", plus, c), b)],
        "a + c ? b + c": [call(comparison, plus, call("+", b, c))],
        "c - a ? b": [call(comparison, call("-", c, a), b)],
        "c - a ? c - b": [call(comparison, call("-", c, a), call("-", c, b))],
        "-a ? -b": [call(comparison, call("negate", a), call("negate", b))],
        "-(a - b) ? c": [call(comparison, call("negate", minus), c)],
        "|a - b| ? c": [call(comparison, call("abs", minus), c)],
        "|b - a| ? c": [call(comparison, call("abs", call("-", b, a)), c)],
        "c ? |a - b|": [call(comparison, c, call("abs", minus))],
        "|a - b + c| ? c": [call(comparison, call("abs", call("+", minus, c)), c)],
        "b between a - c and a + c": [call(">=", b, call("-", a, c)), call("<=", b, plus)],
        "a between b and b + c": [call(">=", a, b), call("<=", a, call("+", b, c))],
        "a - b between -c and c": [call(">=", minus, call("negate", c)), call("<=", minus, c)],
        "a - b > c and b < a": [call(">", minus, c), call("<", b, a)],
        "a - b > c and a < b": [call(">", minus, c), call("<", a, b)],
        "a - b < c and a > b": [call("<", minus, c), call(">", a, b)],
        "a - b > c and a - b ? c": [call(">", minus, c), call(comparison, minus, c)],
        "a - b > c and b - a < c": [call(">", minus, c), call("<", call("-", b, a), c)],
        "a - b > c and b - c < a": [call(">", minus, c), call("<", call("-", b, c), a)],
        "a + a ? b": [call(comparison, call("+", a, a), b)],
        "a * c ? b": [call(comparison, call("*", a, c), b)],
        "a ? b and a - b ? c": [call(comparison, a, b), call(comparison, minus, c)],
    }


NUMBERS = {
    pa.int64(): [0, 1, -1, 3, -5, 2**62, HIGHEST, LOWEST, -HIGHEST],
    pa.float64(): [
        0.0, -0.0, 3.0, -3.0, 0.1, -0.1, 5e-324, 1e16, 1e20, -1e20, 1.7976931348623157e308, math.inf, -math.inf,
        math.nan,
    ],
}  # fmt: skip
CASES = [
    pytest.param(data_type, constant, comparison, id=f"{data_type} {constant} {comparison}")
    for data_type, constants in NUMBERS.items()
    for constant in constants
    for comparison in ("<", "<=", ">", ">=")
]


@pytest.mark.parametrize(("data_type", "constant", "comparison"), CASES)
def test_no_pair_of_numbers_is_left_out(data_type, constant, comparison):
    a, b = column("a", "x", data_type), column("b", "y", data_type)
    wrong = {
        name: missing[:5]
        for name, predicates in shapes(a, b, number(constant), comparison).items()
        if (missing := left_out(predicates, VALUES[data_type], data_type))
    }
    assert wrong == {}


def time_shapes(a: Expression, b: Expression, c: Expression, comparison: str) -> dict[str, list[Expression]]:
    minus = call("-", a, b)
    return {
        "a ? b": [call(comparison, a, b)],
        "a - b ? c": [call(comparison, minus, c)],
        "c ? b - a": [call(comparison, c, call("-", b, a))],
        "a + c ? b": [call(comparison, call("+", a, c), b)],
        "c + a ? b": [call(comparison, call("+", c, a), b)],
        "a ? b - c": [call(comparison, a, call("-", b, c))],
        "a - c - c ? b": [call(comparison, call("-", call("-", a, c), c), b)],
        "a + c - c ? b": [call(comparison, call("-", call("+", a, c), c), b)],
        "b between a - c and a + c": [call(">=", b, call("-", a, c)), call("<=", b, call("+", a, c))],
        "a - b between -c and c": [call(">=", minus, seconds(-1)), call("<=", minus, c)],
    }


@pytest.mark.parametrize("comparison", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("length", [0, 1, -1, 0.000001, 86_400 * 365 * 1000])
def test_no_pair_of_timestamps_is_left_out(length, comparison):
    a, b = column("a", "t", MICRO), column("b", "t", MICRO)
    wrong = {
        name: missing[:5]
        for name, predicates in time_shapes(a, b, seconds(length), comparison).items()
        if (missing := left_out(predicates, TIMES, MICRO))
    }
    assert wrong == {}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_durations_of_other_units_leave_no_pair_out(unit):
    """A duration literal of its own unit is cast to that of the keys."""
    data_type = pa.timestamp(unit)
    a, b = column("a", "t", data_type), column("b", "t", data_type)
    values = [-3, -1, 0, 1, 2, 3, 1000, 1_000_000, None]
    for length in (datetime.timedelta(seconds=2), datetime.timedelta(microseconds=2)):
        for comparison in ("<", ">="):
            duration = Literal(length, pa.duration("us"))
            assert left_out([call(comparison, call("-", a, b), duration)], values, data_type) == []
            assert left_out([call(comparison, call("+", a, duration), b)], values, data_type) == []


@pytest.mark.parametrize(
    "data_type", [pa.int8(), pa.uint32(), pa.float32(), pa.bool_(), pa.date32(), pa.decimal128(9, 2)], ids=str
)
def test_keys_of_other_types_are_compared_as_they_are(data_type):
    a, b = column("a", "x", data_type), column("b", "y", data_type)
    values = [0, 1, None] if not pa.types.is_boolean(data_type) else [False, True, None]
    for comparison in ("<", "<=", ">", ">="):
        band = find_band([call(comparison, a, b)], LEFT, RIGHT)
        assert band is not None
        assert left_out([call(comparison, a, b)], values, data_type) == []


@pytest.mark.parametrize("data_type", [pa.int32(), pa.float32(), pa.uint32()], ids=str)
def test_casts_that_arithmetic_needs_leave_no_pair_out(data_type):
    a, b = column("a", "x", data_type), column("b", "y", data_type)
    values = [0, 1, 2, 3, 100, 2**24, None]
    for name, predicates in shapes(a, b, number(2), "<").items():
        assert left_out(predicates, values, data_type) == [], name


def test_integers_compared_as_floats_leave_no_pair_out():
    a, b = cast(column("a", "x", pa.int64()), pa.float64()), cast(column("b", "y", pa.int64()), pa.float64())
    for name, predicates in shapes(a, b, number(0.5), "<=").items():
        assert left_out(predicates, [*INTEGERS, 2**53, 2**53 + 1, 2**53 + 2], pa.int64()) == [], name


any_float = st.one_of(st.sampled_from(FLOATS[:-1]), st.floats())
any_integer = st.one_of(st.sampled_from(INTEGERS[:-1]), st.integers(LOWEST, HIGHEST))


@examples
@given(st.lists(any_float, min_size=2, max_size=6), any_float, st.sampled_from(["<", "<=", ">", ">="]))
def test_no_pair_of_any_floats_is_left_out(values, constant, comparison):
    # Neighbours of sums and differences are where rounding bites.
    near = [math.nextafter(v + constant, w) for v in values for w in (-math.inf, math.inf)]
    values = [*values, *(v for v in near if not math.isnan(v))]
    a, b = column("a", "x", pa.float64()), column("b", "y", pa.float64())
    for name, predicates in shapes(a, b, number(constant), comparison).items():
        assert left_out(predicates, values, pa.float64()) == [], name


@examples
@given(st.lists(any_integer, min_size=2, max_size=8), any_integer, st.sampled_from(["<", "<=", ">", ">="]))
def test_no_pair_of_any_integers_is_left_out(values, constant, comparison):
    a, b = column("a", "x", pa.int64()), column("b", "y", pa.int64())
    for name, predicates in shapes(a, b, number(constant), comparison).items():
        assert left_out(predicates, values, pa.int64()) == [], name


def offered(band: Band, key: Any, others: list[Any], data_type: pa.DataType) -> list[Any]:
    """The right keys that a left key is offered."""
    lows, highs = band.ranges(pa.array([key], data_type))
    codes, _ = order_codes(pa.array(others, data_type))
    return [other for other, code in zip(others, codes, strict=True) if lows[0] <= code <= highs[0]]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a - b ? c", [8, 9, 10, 11, 12, 13, 14]),
        ("|a - b| ? c", [7, 8, 9, 10, 11, 12, 13]),
        ("b between a - c and a + c", [7, 8, 9, 10, 11, 12, 13]),
        ("a + c ? b", [13, 14]),
        ("a ? b", [10, 11, 12, 13, 14]),
        ("a between b and b + c", [7, 8, 9, 10]),
        ("a - b + c ? c", [10, 11, 12, 13, 14]),
    ],
)
def test_bands_are_as_narrow_as_the_documentation_promises(name, expected):
    """A band that offers everything would be right, too, and useless: for 10 of 0 to 14 and a constant of 3."""
    others = list(range(15))
    a, b = column("a", "x", pa.int64()), column("b", "y", pa.int64())
    predicates = shapes(a, b, number(3), "<")[name]
    band = find_band(predicates, LEFT, RIGHT)
    assert band is not None
    # Strict comparisons may offer the edge itself.
    assert set(offered(band, 10, others, pa.int64())) <= {expected[0] - 1, *expected, expected[-1] + 1}
    assert set(offered(band, 10, others, pa.int64())) >= {
        other for other in others if not left_out(predicates, [10, other], pa.int64()) and other in expected[1:-1]
    }
    two_sided = name not in ("a - b ? c", "a + c ? b", "a ? b", "a - b + c ? c")
    assert band.is_two_sided == two_sided


def test_float_bands_are_narrow_too():
    a, b = column("a", "x", pa.float64()), column("b", "y", pa.float64())
    band = find_band([call("<", call("abs", call("-", a, b)), number(0.5))], LEFT, RIGHT)
    assert band is not None
    assert offered(band, 1.0, [0.0, 0.4, 0.6, 1.0, 1.4, 1.6, math.inf, math.nan], pa.float64()) == [0.6, 1.0, 1.4]


@pytest.mark.parametrize("constant", [3.0, -3.0, 1.7976931348623157e308, -1.7976931348623157e308])
def test_ranges_at_the_ends_of_the_floats_warn_nobody(constant):
    a, b = column("a", "x", pa.float64()), column("b", "y", pa.float64())
    for predicates in shapes(a, b, number(constant), "<").values():
        band = find_band(predicates, LEFT, RIGHT)
        if band is not None:
            band.ranges(pa.array(FLOATS[:-1], pa.float64()))


def test_a_two_sided_band_is_preferred():
    a, b, c, d = (column(side, name, pa.int64()) for side, name in ("ax", "by", "az", "bz"))
    predicates = [call("<", a, b), call("<=", call("abs", call("-", c, d)), number(3)), call(">", a, d)]
    band = find_band(predicates, LEFT, RIGHT)
    assert band is not None
    assert (band.left_key, band.right_key) == (c, d)


@pytest.mark.parametrize(
    "predicate",
    [
        call("=", column("a", "x", pa.int64()), column("b", "x", pa.int64())),
        call("<>", column("a", "x", pa.int64()), column("b", "x", pa.int64())),
        call("<", column("a", "x", pa.int64()), number(3)),
        call("<", column("a", "x", pa.string()), column("b", "x", pa.string())),
        call("<", column("a", "x", pa.uint64()), column("b", "x", pa.uint64())),
        call("<", column("a", "x", pa.int64()), column("a", "y", pa.int64())),
        call("<", call("+", column("a", "x", pa.int64()), column("b", "x", pa.int64())), number(3)),
    ],
    ids=str,
)
def test_where_there_is_no_band_none_is_found(predicate):
    assert find_band([predicate], LEFT, RIGHT) is None


def test_a_mirrored_band_mirrored_is_the_band():
    a, b = column("a", "x", pa.int64()), column("b", "y", pa.int64())
    band = find_band([call("<", call("abs", call("-", a, b)), number(3))], LEFT, RIGHT)
    assert band is not None
    assert band.mirrored().mirrored() == band
