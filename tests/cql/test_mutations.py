"""Mutated queries: whatever happens to a query's text, it is read or refused, with a place in the text."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.algebra.plan import Plan
from midstream.cql import parse
from midstream.errors import QueryError
from tests.cql.declared import STREAMS

QUERIES = [
    "SELECT b.*, id FROM bids [RANGE 5 MINUTES SLIDE 1 MINUTE] b, auctions [NOW] AS a WHERE auction = a.id AND NOT ok",
    "SELECT name FROM bids [NOW] JOIN auctions [RANGE 1 DAY] a ON price = a.id CROSS JOIN people [RANGE UNBOUNDED] p",
    """SELECT auction % 10 AS tens, COUNT(*), SUM(DISTINCT price) / COUNT(price) AS mean FROM bids [NOW]
       WHERE price BETWEEN 1 AND 2.5 OR bidder NOT LIKE 'a%' GROUP BY auction % 10 HAVING COUNT(*) > 3 AND mean < 1""",
    "(SELECT id FROM auctions [NOW] EXCEPT ALL SELECT id FROM people) UNION SELECT * FROM (SELECT 1 n FROM bids)q",
    """SELECT DISTINCT CASE price WHEN 1 THEN 'one' ELSE bidder || 'x' END, CAST(price AS DECIMAL(10, 2)), -price,
       EXTRACT(YEAR FROM ts), ts + INTERVAL '5' MINUTE, price IN (1, 2), "bidder" IS NOT NULL FROM bids [NOW];""",
    "SELECT x, IF(x > 1, y, NULL), TIMESTAMP '2020-01-01 00:00:00' FROM ticks [RANGE 10 SLIDE 5] -- end",
]
TOKEN = re.compile(r"'[^']*'|\"[^\"]*\"|\w+|\s+|.", re.DOTALL)
NOISE = [
    "(",
    ")",
    "[",
    "]",
    ",",
    "*",
    ".",
    "'",
    '"',
    "--",
    "/*",
    ";",
    "NOT",
    "AS",
    "SELECT",
    "NULL",
    "0",
    "1e",
    "é",
    "\n",
    "{",
]


@st.composite
def mutated(draw: st.DrawFn) -> str:
    tokens = TOKEN.findall(draw(st.sampled_from(QUERIES)))
    others = TOKEN.findall(draw(st.sampled_from(QUERIES)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, max(0, len(tokens) - 1)))
        other = draw(st.integers(0, max(0, len(tokens) - 1)))
        match draw(st.sampled_from(["delete", "repeat", "swap", "cut", "noise", "borrow"])):
            case "delete":
                del tokens[at : at + draw(st.integers(1, 4))]
            case "repeat":
                tokens[at:at] = tokens[at : at + draw(st.integers(1, 4))]
            case "swap" if tokens:
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case "cut":
                del tokens[at:]
            case "noise":
                tokens.insert(at, draw(st.sampled_from(NOISE)))
            case "borrow":
                tokens.insert(at, f" {draw(st.sampled_from(others))} ")
    return "".join(tokens)


@settings(max_examples=400, deadline=None)
@given(mutated())
def test_mutated_query_is_read_or_refused_with_a_position(text: str) -> None:
    try:
        plan = parse(text, STREAMS)
    except QueryError as error:
        assert error.text == text
        assert error.position is not None
        assert 0 <= error.position <= len(text)
        assert str(error)
    else:
        assert isinstance(plan, Plan)
        assert plan.explain()


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_refused_with_a_position(text: str) -> None:
    try:
        parse(f"SELECT {text} FROM bids", STREAMS)
    except QueryError as error:
        assert error.position is not None
        assert str(error)


def test_unmutated_queries_are_read() -> None:
    for query in QUERIES:
        assert parse(query, STREAMS).explain()
