"""Arithmetic, functions of numbers, rounding."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal, localcontext

import pyarrow as pa
import pytest

from midstream.algebra.expressions import Literal
from tests.engine.expressions.evaluated import run, same

NAN, INF = float("nan"), float("inf")
LOW, HIGH = -(2**63), 2**63 - 1
EDGES = [LOW, LOW + 1, -(2**62), -(2**53) - 1, -3, -1, 0, 1, 2, 2**31, 3037000499, 3037000500, 2**62, HIGH - 1, HIGH]


def decimals(values: list[object], precision: int, scale: int) -> pa.Array:
    kind = pa.decimal128 if precision <= 38 else pa.decimal256
    return pa.array([None if v is None else Decimal(str(v)) for v in values], kind(precision, scale))


def in_range(value: int) -> int | None:
    return value if LOW <= value <= HIGH else None


@pytest.mark.parametrize("function", ["+", "-", "*", "%"])
def test_whole_numbers_are_exact_and_null_on_overflow(function: str) -> None:
    compute = {
        "+": lambda a, b: in_range(a + b),
        "-": lambda a, b: in_range(a - b),
        "*": lambda a, b: in_range(a * b),
        "%": lambda a, b: None if b == 0 else (abs(a) % abs(b)) * (-1 if a < 0 else 1),
    }[function]
    pairs = [(a, b) for a in EDGES for b in EDGES]
    left, right = pa.array([a for a, _ in pairs] + [None, 1]), pa.array([b for _, b in pairs] + [1, None])
    assert run(function, left, right) == [compute(a, b) for a, b in pairs] + [None, None]
    for constant in (LOW, -1, 0, 7, HIGH):
        assert run(function, pa.array(EDGES), constant) == [compute(a, constant) for a in EDGES]
        assert run(function, constant, pa.array(EDGES)) == [compute(constant, b) for b in EDGES]


def test_small_integers_do_not_overflow_their_own_type() -> None:
    assert run("*", pa.array([127], pa.int8()), pa.array([127], pa.int8())) == [16129]
    assert run("+", pa.array([2**64 - 1], pa.uint64()), pa.array([1])) == [Decimal(2**64)]


def test_an_overflow_under_a_null_does_not_matter() -> None:
    hidden = pa.Array.from_buffers(
        pa.int64(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(b"\x01" + b"\0" * 7 + b"\xff" * 7 + b"\x7f")]
    )
    assert run("+", hidden, 1) == [2, None]


def test_division_gives_doubles_and_null_for_zero() -> None:
    assert run("/", pa.array([7, -7, 1, 0, None]), pa.array([2, 2, 0, 0, 1])) == [3.5, -3.5, None, None, None]
    assert same(run("/", pa.array([1.0, NAN, 1.0]), pa.array([-0.0, 0.0, INF])), [None, None, 0.0])
    assert run("/", pa.array([1]), 0) == [None]
    assert run("/", 6, pa.array([4])) == [1.5]
    assert run("/", decimals(["1.50"], 5, 2), 2) == [0.75]


def test_float_arithmetic_is_ieee() -> None:
    big = pa.array([1e308, -1e308, INF, NAN])
    assert same(run("+", big, 1e308), [INF, 0.0, INF, NAN])
    assert same(run("-", big, INF), [-INF, -INF, NAN, NAN])
    assert same(run("*", big, 10), [INF, -INF, INF, NAN])


def test_float_modulo_has_the_dividends_sign() -> None:
    left, right = pa.array([7.5, -7.5, 7.5, INF, 2.0, 1.0, NAN]), pa.array([2.0, 2.0, -2.0, 2.0, INF, 0.0, 1.0])
    assert same(run("%", left, right), [1.5, -1.5, 1.5, NAN, 2.0, None, NAN])


def test_decimals_are_exact() -> None:
    left, right = decimals(["0.10", "-99.99", None], 4, 2), decimals(["0.2", "99.9", "1"], 3, 1)
    assert run("+", left, right) == [Decimal("0.30"), Decimal("-0.09"), None]
    assert run("-", left, right) == [Decimal("-0.10"), Decimal("-199.89"), None]
    assert run("*", left, right) == [Decimal("0.020"), Decimal("-9989.001"), None]
    assert run("%", left, right) == [Decimal("0.10"), Decimal("-0.09"), None]
    assert run("+", left, 1) == [Decimal("1.10"), Decimal("-98.99"), None]
    assert run("%", left, decimals([0, 0, 0], 3, 1)) == [None, None, None]


@pytest.mark.parametrize("function", ["+", "-", "*", "%"])
@pytest.mark.parametrize(
    "shapes", [((38, 0), (38, 0)), ((38, 2), (30, 10)), ((38, 38), (38, 0)), ((76, 10), (76, 5)), ((18, 6), (18, 6))]
)
def test_wide_decimals_are_exact_or_null(function: str, shapes: tuple[tuple[int, int], tuple[int, int]]) -> None:
    source = random.Random(7)
    columns = []
    for precision, scale in shapes:
        digits = [source.randint(1, precision) for _ in range(40)]
        whole = [source.randint(-(10**d) + 1, 10**d - 1) for d in digits] + [10**precision - 1, 1 - 10**precision, 0]
        with localcontext(prec=100):
            columns.append([Decimal(w).scaleb(-scale) for w in whole])
    left, right = (decimals(list(c), p, s) for c, (p, s) in zip(columns, shapes, strict=True))
    result = run(function, left, right)
    (p1, s1), (p2, s2) = shapes
    scale = s1 + s2 if function == "*" else max(s1, s2)
    most = p1 + p2 if function == "*" else max(p1 - s1, p2 - s2) + scale + (function != "%")
    for a, b, value in zip(*columns, result, strict=True):
        with localcontext(prec=200):
            if function == "%" and not b:
                exact = None
            else:
                exact = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}.get(
                    function, lambda a, b: a % b
                )(a, b)
            if exact is not None and abs(exact.scaleb(scale)) >= 10 ** min(38, most):
                exact = None
            assert value == exact


def test_negate_abs_and_sign() -> None:
    assert run("negate", pa.array([1, LOW, None, HIGH])) == [-1, None, None, -HIGH]
    assert run("abs", pa.array([-1, LOW, None, HIGH])) == [1, None, None, HIGH]
    assert run("sign", pa.array([-7, LOW, None, 0, HIGH])) == [-1, -1, None, 0, 1]
    assert same(run("negate", pa.array([1.5, -INF, NAN])), [-1.5, INF, NAN])
    assert same(run("abs", pa.array([-1.5, -INF, NAN])), [1.5, INF, NAN])
    assert run("sign", pa.array([-1.5, INF, NAN, -0.0])) == [-1, 1, 0, 0]
    values = decimals(["-0.50", "0.25", None, "0"], 2, 2)
    assert run("negate", values) == [Decimal("0.50"), Decimal("-0.25"), None, 0]
    assert run("abs", values) == [Decimal("0.50"), Decimal("0.25"), None, 0]
    assert run("sign", values) == [-1, 1, None, 0]
    assert run("abs", decimals([-(10**50), -5], 60, 0)) == [None, 5]
    assert run("negate", pa.array([2**64 - 1, 5], pa.uint64())) == [None, -5]


def test_floor_and_ceil() -> None:
    assert run("floor", pa.array([HIGH, LOW, None])) == [HIGH, LOW, None]
    assert same(run("floor", pa.array([1.5, -1.5, NAN, INF])), [1.0, -2.0, NAN, INF])
    assert same(run("ceil", pa.array([1.5, -1.5, NAN, -INF])), [2.0, -1.0, NAN, -INF])
    values = decimals(["999.99", "-999.99", "1.00", None, "-0.01"], 5, 2)
    assert run("floor", values) == [999, -1000, 1, None, -1]
    assert run("ceil", values) == [1000, -999, 1, None, 0]
    wide = decimals(["0.5", "-" + "9" * 18 + "." + "9" * 20, "-0." + "0" * 19 + "1"], 38, 20)
    assert run("floor", wide) == [0, -(10**18), -1]
    assert run("ceil", wide) == [1, -(10**18) + 1, 0]


def test_round_takes_halves_away_from_zero() -> None:
    assert same(
        run("round", pa.array([2.5, -2.5, 0.49999999999999994, -0.4, NAN, INF, 2.0**52 + 1])),
        [3.0, -3.0, 0.0, 0.0, NAN, INF, 2.0**52 + 1],
    )
    assert run("round", pa.array([2.675, 1.005, -0.125]), 2) == [2.68, 1.0, -0.13]
    assert same(run("round", pa.array([1250.0, -1250.5, INF, NAN]), -2), [1300.0, -1300.0, INF, NAN])
    assert run("round", pa.array([1.5, 1e300]), 400) == [1.5, 1e300]
    assert run("round", pa.array([1.5, 1e300]), -400) == [0.0, 0.0]
    assert run("round", pa.array([1.5]), Literal(None, pa.int64())) == [None]


def test_round_of_whole_numbers_stays_whole() -> None:
    values = pa.array([15, -15, 14, HIGH, LOW, None])
    assert run("round", values) == [15, -15, 14, HIGH, LOW, None]
    assert run("round", values, 3) == [15, -15, 14, HIGH, LOW, None]
    assert run("round", values, -1) == [20, -20, 10, None, None, None]
    assert run("round", values, -18) == [0, 0, 0, 9 * 10**18, -9 * 10**18, None]
    assert run("round", values, -19) == [0, 0, 0, None, None, None]
    assert run("round", values, -20) == [0, 0, 0, 0, 0, None]
    assert run("round", values, -(2**40)) == [0, 0, 0, 0, 0, None]
    assert run("round", pa.array([5 * 10**18 - 1, 1 - 5 * 10**18]), -19) == [0, 0]


def test_round_of_decimals() -> None:
    values = decimals(["2.55", "-2.55", "999.99", None, "2.54"], 5, 2)
    assert run("round", values, 1) == [Decimal("2.6"), Decimal("-2.6"), 1000, None, Decimal("2.5")]
    assert run("round", values) == [3, -3, 1000, None, 3]
    assert run("round", values, -1) == [0, 0, 1000, None, 0]
    assert run("round", values, -3) == [0, 0, 1000, None, 0]
    assert run("round", values, -4) == [0, 0, 0, None, 0]
    assert run("round", values, -100) == [0, 0, 0, None, 0]
    assert run("round", values, 9) == values.to_pylist()
    full = decimals([10**38 - 1, 1 - 10**38, 4], 38, 0)
    assert run("round", full, -1) == [None, None, 0]
    assert run("round", decimals(["0." + "5" * 38, "-0." + "4" * 38], 38, 38), 1) == [Decimal("0.6"), Decimal("-0.4")]


def test_functions_of_doubles_are_null_outside_their_domain() -> None:
    assert same(run("sqrt", pa.array([4.0, -1.0, -0.0, INF, -INF, NAN, None])), [2.0, None, 0.0, INF, None, NAN, None])
    assert same(run("ln", pa.array([1.0, 0.0, -0.0, -1.0, INF, NAN])), [0.0, None, None, None, INF, NAN])
    assert same(run("exp", pa.array([0.0, 1000.0, -1000.0, -INF, NAN, None])), [1.0, INF, 0.0, 0.0, NAN, None])
    assert run("sqrt", pa.array([9, -9])) == [3.0, None]
    assert run("sqrt", decimals(["2.25"], 5, 2)) == [1.5]


def test_power_is_null_where_it_is_undefined() -> None:
    base = pa.array([2.0, 0.0, 0.0, -8.0, -8.0, -2.0, -INF, 2.0, -2.0, None])
    exponent = pa.array([10.0, 0.0, -1.0, 1 / 3, 3.0, NAN, 0.5, 10000.0, INF, 1.0])
    assert same(run("power", base, exponent), [1024.0, 1.0, None, None, -512.0, NAN, None, INF, INF, None])
    assert run("power", pa.array([2, 3]), 2) == [4.0, 9.0]
    assert run("power", 2, pa.array([-1, 3])) == [0.5, 8.0]


def test_moments_and_durations_add_up() -> None:
    day = datetime.timedelta(days=1)
    noon = datetime.datetime(2024, 2, 28, 12)
    moments = pa.array([noon, None], pa.timestamp("us"))
    assert run("+", moments, day) == [noon + day, None]
    assert run("+", day, moments) == [noon + day, None]
    assert run("-", moments, day) == [noon - day, None]
    assert run("-", moments, pa.array([noon - day, noon], pa.timestamp("s"))) == [day, None]
    assert run("+", pa.array([noon.date()]), day) == [datetime.datetime(2024, 2, 29)]
    assert run("-", pa.array([noon.date()]), pa.array([datetime.date(2024, 2, 1)])) == [27 * day]
    assert run("+", pa.array([day, None], pa.duration("s")), pa.array([day, day], pa.duration("ms"))) == [2 * day, None]
    utc = noon.replace(tzinfo=datetime.UTC)
    assert run("+", pa.array([utc], pa.timestamp("us", "UTC")), day) == [utc + day]


def test_moments_out_of_range_are_null() -> None:
    edge = pa.array([HIGH, 0], pa.int64()).view(pa.timestamp("us"))
    assert run("+", edge, datetime.timedelta(microseconds=1))[0] is None
    assert run("-", edge, pa.array([-1, 0]).view(pa.timestamp("us")))[0] is None
