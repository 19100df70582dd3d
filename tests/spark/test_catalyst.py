"""Conditions for Spark SQL: only what means the same there is given to it."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.algebra.expressions import Column, Expression, Literal
from midstream.algebra.functions import call
from midstream.algebra.plan import Select
from midstream.spark.catalyst import is_translatable

SCHEMA = pa.schema(
    {
        "ts": pa.timestamp("us"),
        "n": pa.int64(),
        "m": pa.int64(),
        "i": pa.int32(),
        "u": pa.uint32(),
        "x": pa.float64(),
        "f": pa.float32(),
        "s": pa.string(),
        "b": pa.bool_(),
        "d": pa.date32(),
        "p": pa.decimal128(10, 2),
        "y": pa.binary(),
        "l": pa.list_(pa.int64()),
    }
)


def condition(text: str) -> Expression:
    query = ContinuousQuery(f"SELECT n FROM a [NOW] WHERE {text}", [Stream("a", SCHEMA, "ts")])
    (select,) = (node for node in query.plan().walk() if isinstance(node, Select))
    return select.predicate


@pytest.mark.parametrize(
    "text",
    [
        "n = m",
        "n <> 3",
        "n <= m OR n > 7",
        "NOT (n < m AND n >= 0)",
        "n BETWEEN 1 AND m",
        "n IN (1, 2, m)",
        "n IS NULL",
        "x IS NOT NULL",
        "x < 1.5e0",
        "s >= 'a'",
        "s IN ('a', 'b')",
        "b",
        "NOT b OR n = 1",
        "d > DATE '2020-01-01'",
        "y = y",
        "f IS NULL",
    ],
)
def test_comparisons_of_one_type_and_what_connects_them_are_translated(text):
    assert is_translatable(condition(text))


@pytest.mark.parametrize(
    "text",
    [
        # Spark fails where the result is NULL here.
        "n + 1 = m",
        "n / m = 1",
        "-n = 3",
        "CAST(s AS BIGINT) = 1",
        "LENGTH(s) = 1",
        "ABS(n) = 1",
        "s LIKE 'a%'",
        "COALESCE(n, 0) = 1",
        "CASE WHEN n = 1 THEN b ELSE NOT b END",
        # Spark has no such type, or would compare as another one.
        "u = u",
        "u IS NULL",
        "l IS NULL",
        "f = f",
        "f < x",
        "i = n",
        "n < 1.5",
        "p = 1",
        # In which zone?
        "ts > TIMESTAMP '2020-01-01 00:00:00'",
        # One part is enough.
        "n = 1 OR m + 1 = 2",
        "n IN (1, m + 1)",
        "NOT (n * 2 = m)",
    ],
)
def test_whatever_might_mean_something_else_is_not(text):
    assert not is_translatable(condition(text))


def test_constants_of_python_types_that_spark_knows_are_translated():
    n, x = Column("a", "n", pa.int64()), Column("a", "x", pa.float64())
    assert is_translatable(call("=", n, Literal(2**63 - 1, pa.int64())))
    assert is_translatable(call("<", x, Literal(math.inf, pa.float64())))
    assert not is_translatable(call("=", n, Literal(None, pa.int64())))
    assert not is_translatable(Literal(b"", pa.binary()))
