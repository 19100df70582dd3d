"""Expressions as text, their columns, and taking them apart."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from midstream.algebra.expressions import (
    Cast,
    Column,
    Expression,
    Literal,
    conjunction,
    conjuncts,
    substitute,
)
from midstream.algebra.functions import call

A, B = Column("a", "x", pa.int64()), Column("b", "y", pa.int64())
S = Column("", "s", pa.string())


def number(value: int) -> Literal:
    return Literal(value, pa.int64())


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (call("+", A, call("*", B, number(2))), "a.x + b.y * 2"),
        (call("*", call("+", A, B), number(2)), "(a.x + b.y) * 2"),
        (call("-", A, call("-", B, number(2))), "a.x - (b.y - 2)"),
        (call("and", call("or", call("<", A, B), call("=", A, B)), call("=", A, number(1))),
         "(a.x < b.y OR a.x = b.y) AND a.x = 1"),
        (call("not", call("is_null", A)), "NOT a.x IS NULL"),
        (call("in", A, number(1), number(2)), "a.x IN (1, 2)"),
        (call("like", S, Literal("a'%", pa.string())), "s LIKE 'a''%'"),
        (call("case", call("is_null", A), number(0), A), "CASE WHEN a.x IS NULL THEN 0 ELSE a.x END"),
        (call("coalesce", A, number(0)), "COALESCE(a.x, 0)"),
        (Cast(A, pa.string()), "CAST(a.x AS string)"),
        (Column("a", "x + b.y", pa.int64()), 'a."x + b.y"'),
        (Literal(None, pa.int64()), "NULL"),
        (Literal(True, pa.bool_()), "TRUE"),
        (Literal(datetime.date(2020, 1, 2), pa.date32()), "DATE '2020-01-02'"),
        (Literal(datetime.datetime(2020, 1, 2, 3), pa.timestamp("us")), "TIMESTAMP '2020-01-02 03:00:00'"),
        (Literal(datetime.timedelta(seconds=1), pa.duration("us")), "INTERVAL '1 SECOND'"),
    ],
)  # fmt: skip
def test_expression_reads_as_query_text(expression: Expression, text: str) -> None:
    assert str(expression) == text


def test_columns_and_relations() -> None:
    expression = call("=", call("+", A, number(1)), B)
    assert expression.columns == {A, B}
    assert expression.relations == {"a", "b"}
    assert number(1).relations == frozenset()


def test_conjunction_and_conjuncts_are_inverse() -> None:
    parts = [call("<", A, B), call("=", A, number(1)), call("or", call("<", A, B), call("is_null", A))]
    assert list(conjuncts(conjunction(parts))) == parts
    assert conjunction([]) == Literal(True, pa.bool_())


def test_substitute_replaces_columns_everywhere() -> None:
    expression = call("case", call("<", A, B), Cast(A, pa.float64()), Literal(0.5, pa.float64()))
    assert substitute(expression, lambda column: B if column == A else number(7)).text == (
        "CASE WHEN b.y < 7 THEN CAST(b.y AS double) ELSE 0.5 END"
    )
