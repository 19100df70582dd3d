"""Comparisons of floats, IN, GREATEST, LEAST, NULLIF."""

from __future__ import annotations

import itertools
from decimal import Decimal

import pyarrow as pa
import pytest

from midstream.algebra.expressions import Column, Literal
from midstream.algebra.functions import call
from midstream.engine.expressions.evaluate import truth
from tests.engine.expressions.evaluated import columns_of, run, same

NAN, INF = float("nan"), float("inf")
# Ascending; values of one group are equal.
ORDER = [[-INF], [-1.5], [-0.0, 0.0], [5e-324], [1.5], [INF], [NAN, -NAN]]
RANKED = [(rank, value) for rank, group in enumerate(ORDER) for value in group]
PAIRS = list(itertools.product(RANKED, RANKED))
COMPARE = {
    "=": lambda a, b: a == b, "<>": lambda a, b: a != b, "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip


@pytest.mark.parametrize("function", COMPARE)
@pytest.mark.parametrize("data_type", [pa.float64(), pa.float32(), pa.float16()], ids=str)
def test_floats_have_a_total_order_with_nan_above_all(function: str, data_type: pa.DataType) -> None:
    pairs = PAIRS if data_type == pa.float64() else [p for p in PAIRS if 5e-324 not in (p[0][1], p[1][1])]
    left = pa.array([a for (_, a), _ in pairs], pa.float32()).cast(data_type)
    right = pa.array([b for _, (_, b) in pairs], pa.float32()).cast(data_type)
    if data_type == pa.float64():
        left, right = pa.array([a for (_, a), _ in pairs]), pa.array([b for _, (_, b) in pairs])
    expected = [COMPARE[function](a, b) for (a, _), (b, _) in pairs]
    assert run(function, left, right) == expected
    predicate = call(function, Column("", "l", data_type), Column("", "r", data_type))
    arrays = columns_of({"l": left, "r": right})
    assert truth(predicate, arrays, len(pairs)).tolist() == expected
    assert truth(call("not", predicate), arrays, len(pairs)).tolist() == [not e for e in expected]


@pytest.mark.parametrize("function", COMPARE)
def test_float_literals_compare_as_columns_do(function: str) -> None:
    column = Column("", "c", pa.float64())
    values = columns_of({"c": pa.array([v for _, v in RANKED])})
    for rank, value in RANKED:
        literal = Literal(value, pa.float64())
        expected = [COMPARE[function](a, rank) for a, _ in RANKED]
        assert truth(call(function, column, literal), values, len(RANKED)).tolist() == expected
        expected = [COMPARE[function](rank, a) for a, _ in RANKED]
        assert truth(call(function, literal, column), values, len(RANKED)).tolist() == expected


def test_large_integers_are_compared_exactly() -> None:
    assert run("=", pa.array([2**53 + 1]), pa.array([2**53])) == [False]
    assert run("<", pa.array([2**63 - 2]), 2**63 - 1) == [True]
    assert run("<", pa.array([-1], pa.int64()), pa.array([2**64 - 1], pa.uint64())) == [True]
    assert run("=", pa.array([2**63 - 1]), pa.array([Decimal(2**63 - 1)], pa.decimal128(25, 2))) == [True]


def test_text_is_ordered_by_code_point() -> None:
    assert run("<", pa.array(["a", "a", "é", "", None]), pa.array(["B", "aa", "z", "a", "b"])) == [
        False, True, False, True, None,
    ]  # fmt: skip
    assert run("=", pa.array(["a"], pa.large_string()), pa.array(["a"])) == [True]


def test_in_is_null_where_a_null_might_have_matched() -> None:
    values = pa.array([1, 2, None])
    assert run("in", values, 1, 3) == [True, False, None]
    assert run("in", values, 1, Literal(None, pa.null())) == [True, None, None]
    assert run("in", values, pa.array([1, 1, 1]), pa.array([None, 2, None], pa.int64())) == [True, True, None]
    assert run("in", 1, values, 7) == [True, False, None]


def test_in_finds_floats_that_are_equal() -> None:
    values = pa.array([NAN, -NAN, -0.0, 0.0, 1.0])
    assert run("in", values, NAN, 0.0) == [True, True, True, True, False]
    assert run("in", values, -0.0) == [False, False, True, True, False]


def test_greatest_and_least_ignore_nulls() -> None:
    left, right = pa.array([1, None, 5, None]), pa.array([2, 3, None, None])
    assert run("greatest", left, right) == [2, 3, 5, None]
    assert run("least", left, right) == [1, 3, 5, None]
    assert run("greatest", left, Literal(None, pa.null()), 4) == [4, 4, 5, 4]
    assert run("least", left, 4, right) == [1, 3, 4, 4]
    assert run("greatest", left) == [1, None, 5, None]


def test_greatest_and_least_follow_the_order_of_floats() -> None:
    left, right = pa.array([NAN, 1.0, -0.0]), pa.array([1.0, NAN, 0.0])
    assert same(run("greatest", left, right), [NAN, NAN, 0.0])
    assert same(run("least", left, right), [1.0, 1.0, 0.0])


def test_greatest_and_least_of_other_types() -> None:
    assert run("greatest", pa.array(["b", None]), "a") == ["b", "a"]
    assert run("least", pa.array([True, None]), False) == [False, False]
    prices = pa.array([Decimal("1.50"), None], pa.decimal128(5, 2))
    assert run("greatest", prices, 1) == [Decimal("1.50"), Decimal(1)]


def test_nullif_is_null_where_both_are_equal() -> None:
    assert run("nullif", pa.array([1, 2, None]), 1) == [None, 2, None]
    assert run("nullif", pa.array([1, 2, None]), pa.array([None, 2, 1])) == [1, None, None]
    assert run("nullif", 1, pa.array([1, 2, None])) == [None, 1, 1]
    assert same(run("nullif", pa.array([NAN, -0.0, 1.0]), pa.array([-NAN, 0.0, 2.0])), [None, None, 1.0])
