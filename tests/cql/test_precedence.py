"""Operators bind as in DuckDB: an expression and its fully resolved text have the same value there."""

from __future__ import annotations

import duckdb
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cql.declared import item

ROW = "(SELECT 3 AS price, 5 AS auction, TRUE AS ok, 'ab' AS bidder) AS bids"


@st.composite
def numbers(draw: st.DrawFn, depth: int = 4) -> str:
    if depth == 0:
        return draw(st.sampled_from(["price", "auction", "2", "7", "NULL"]))
    left, right = draw(numbers(depth=depth - 1)), draw(numbers(depth=draw(st.integers(0, depth - 1))))
    operator = draw(st.sampled_from([*"+-*", "sign", "parentheses", "case"]))
    if operator == "sign":
        return f"- {left}"
    if operator == "parentheses":
        return f"({left})"
    if operator == "case":
        return f"CASE WHEN {draw(conditions(depth=depth - 1))} THEN {left} ELSE {right} END"
    return f"{left} {operator} {right}"


@st.composite
def conditions(draw: st.DrawFn, depth: int = 4) -> str:
    if depth == 0:
        return draw(st.sampled_from(["ok", "TRUE", "FALSE", "bidder || 'x' LIKE 'a%'", "bidder NOT LIKE 'b' = ok"]))
    inner = st.integers(0, depth - 1)
    number, condition = (lambda: draw(numbers(depth=draw(inner)))), (lambda: draw(conditions(depth=draw(inner))))
    negation = draw(st.sampled_from(["", "NOT "]))
    match draw(st.integers(0, 5)):
        case 0:
            return f"{number()} {draw(st.sampled_from(['=', '<>', '<', '<=', '>', '>=']))} {number()}"
        case 1:
            return f"{condition()} {draw(st.sampled_from(['AND', 'OR']))} {negation}{condition()}"
        case 2:
            return f"{negation}{condition()}"
        case 3:
            return f"{draw(st.sampled_from([number, condition]))()} IS {negation}NULL"
        case 4:
            return f"{number()} {negation}BETWEEN {number()} AND {number()}"
        case _:
            return f"{number()} {negation}IN ({number()}, {number()})"


@settings(max_examples=300, deadline=None)
@given(st.one_of(numbers(), conditions()))
def test_operators_bind_as_in_duckdb(text: str) -> None:
    resolved = item(text)
    written, meant = duckdb.sql(f"SELECT {text}, {resolved} FROM {ROW}").fetchall()[0]
    assert written == meant, resolved
