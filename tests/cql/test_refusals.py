"""What is refused, with which code, where, and what to do instead."""

from __future__ import annotations

import pytest

from midstream.cql import parse
from midstream.errors import NotSupported, ParseError
from tests.cql.declared import STREAMS, refusal

JOINED = "FROM bids [NOW] b"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (f"SELECT 1 {JOINED} ⟦LEFT JOIN auctions [NOW] a ON b.auction = a.id", "outer joins are not supported"),
        (f"SELECT 1 {JOINED} ⟦RIGHT OUTER JOIN auctions [NOW] a ON TRUE", "outer joins are not supported"),
        (f"SELECT 1 {JOINED} ⟦FULL JOIN auctions [NOW] a ON TRUE", "outer joins are not supported"),
        (f"SELECT 1 {JOINED} ⟦OUTER JOIN auctions [NOW] a ON TRUE", "outer joins are not supported"),
        (f"SELECT 1 {JOINED} ⟦SEMI JOIN auctions [NOW] a ON TRUE", "semi joins are not supported"),
        (f"SELECT 1 {JOINED} ⟦ANTI JOIN auctions [NOW] a ON TRUE", "anti joins are not supported"),
        (f"SELECT 1 {JOINED} ⟦NATURAL JOIN auctions [NOW] a", "natural joins are not supported"),
        (f"SELECT 1 {JOINED} ⟦ASOF JOIN auctions [NOW] a ON TRUE", "ASOF joins are not supported"),
        (f"SELECT 1 {JOINED} JOIN auctions [NOW] a ⟦USING (ts)", "USING is not supported"),
        (f"SELECT 1 {JOINED} CROSS ⟦APPLY f(x)", "APPLY is not supported"),
        (f"SELECT 1 {JOINED}, ⟦LATERAL (SELECT 1 FROM bids) q", "LATERAL is not supported"),
        ("SELECT 1 FROM ⟦UNNEST(tags)", "UNNEST is not supported"),
        ("SELECT 1 FROM ⟦generate(1)", "functions in FROM are not supported"),
        ("SELECT 1 FROM ⟦(bids JOIN auctions ON TRUE)", "parentheses around joins are not supported"),
        ("SELECT 1 FROM (⟦VALUES (1)) q", "VALUES is not supported"),
        ("⟦VALUES (1)", "VALUES is not supported"),
        ("SELECT 1 FROM bids ⟦TABLESAMPLE (10 PERCENT)", "TABLESAMPLE is not supported"),
        ("SELECT 1 FROM bids ⟦PIVOT (SUM(x) FOR y IN (1))", "PIVOT is not supported"),
        ("SELECT 1 FROM bids ⟦MATCH_RECOGNIZE (x)", "MATCH_RECOGNIZE is not supported"),
        ("SELECT 1 FROM bids ⟦FOR SYSTEM_TIME AS OF x", "FOR is not supported"),
        ("SELECT 1 FROM bids b⟦(x)", "column names after an alias are not supported"),
        ("SELECT 1 FROM ⟦db.bids", "stream names have one part"),
        ("SELECT 1 FROM bids ⟦ORDER BY price", "ORDER BY is not supported"),
        ("SELECT 1 FROM bids UNION ALL SELECT 2 FROM bids ⟦ORDER BY 1", "ORDER BY is not supported"),
        ("SELECT 1 FROM bids ⟦LIMIT 5", "LIMIT is not supported"),
        ("SELECT 1 FROM bids WHERE ok ⟦OFFSET 5", "OFFSET is not supported"),
        ("SELECT 1 FROM bids ⟦FETCH FIRST 5 ROWS ONLY", "FETCH is not supported"),
        ("SELECT ⟦TOP 5 price FROM bids", "TOP is not supported"),
        ("SELECT SUM(price) ⟦OVER (PARTITION BY auction) FROM bids", "window functions are not supported"),
        ("SELECT SUM(price) ⟦FILTER (WHERE ok) FROM bids", "FILTER is not supported"),
        ("SELECT MAX(price) ⟦WITHIN GROUP (ORDER BY x) FROM bids", "WITHIN GROUP is not supported"),
        ("SELECT MAX(price ⟦ORDER BY x) FROM bids", "ORDER BY is not supported"),
        ("SELECT 1 FROM bids ⟦WINDOW w AS (ORDER BY ts)", "the WINDOW clause is not supported"),
        ("SELECT 1 FROM bids ⟦QUALIFY x = 1", "QUALIFY is not supported"),
        ("⟦WITH q AS (SELECT 1 FROM bids) SELECT * FROM q", "common table expressions are not supported"),
        (
            "SELECT 1 FROM (⟦WITH q AS (SELECT 1 FROM bids) SELECT * FROM q) r",
            "common table expressions are not supported",
        ),
        ("SELECT 1 FROM bids WHERE ⟦EXISTS (SELECT 1 FROM auctions)", "EXISTS is not supported"),
        ("SELECT 1 FROM bids WHERE price IN (⟦SELECT id FROM auctions)", "subqueries in IN are not supported"),
        ("SELECT ⟦(SELECT 1 FROM bids) FROM bids", "subqueries in expressions are not supported"),
        ("SELECT 1 FROM bids WHERE price > ⟦ANY (SELECT 1 FROM bids)", "ANY is not supported"),
        ("SELECT 1 FROM bids WHERE price > ⟦ALL (SELECT 1 FROM bids)", "ALL is not supported"),
        ("SELECT 1 FROM bids WHERE ⟦(price, auction) = (1, 2)", "rows of values are not supported"),
        ("SELECT 1 FROM bids ⟦INTERSECT SELECT 1 FROM bids", "INTERSECT is not supported"),
        ("SELECT 1 FROM bids UNION ALL ⟦BY NAME SELECT 1 FROM bids", "UNION by column names is not supported"),
        ("SELECT 1 FROM bids GROUP BY ⟦ROLLUP (price)", "GROUP BY ROLLUP is not supported"),
        ("SELECT 1 FROM bids GROUP BY price, ⟦CUBE (price)", "GROUP BY CUBE is not supported"),
        ("SELECT 1 FROM bids GROUP BY ⟦GROUPING SETS ((price))", "GROUP BY GROUPING SETS is not supported"),
        ("SELECT 1 FROM bids GROUP BY ⟦ALL", "GROUP BY ALL is not supported"),
        ("SELECT 1 FROM bids GROUP BY price ⟦WITH ROLLUP", "WITH ROLLUP and WITH CUBE are not supported"),
        ("SELECT DISTINCT ⟦ON (price) price FROM bids", "DISTINCT ON is not supported"),
        ("SELECT * ⟦EXCEPT (price) FROM bids", "* EXCEPT is not supported"),
        ("SELECT * ⟦EXCLUDE (price) FROM bids", "* EXCLUDE is not supported"),
        ("SELECT bids.* ⟦REPLACE (1 AS price) FROM bids", "* REPLACE is not supported"),
        ("SELECT 1 ⟦INTO t FROM bids", "INTO is not supported"),
        ("SELECT 1 FROM bids; ⟦SELECT 2 FROM bids", "more than one statement is not supported"),
        ("⟦INSERT INTO bids SELECT 1 FROM bids", "INSERT is not supported"),
        ("⟦DROP TABLE bids", "DROP is not supported"),
        ("⟦FROM bids SELECT 1", "a query that starts with FROM is not supported"),
        ("SELECT ⟦/*+ BROADCAST(b) */ 1 FROM bids b", "hints are not supported"),
        ("SELECT ⟦? FROM bids", "parameters are not supported"),
        ("SELECT ⟦:x FROM bids", "parameters are not supported"),
        ("SELECT ⟦bids.tags.x FROM bids", "names of more than two parts are not supported"),
        ("SELECT bidder ⟦ILIKE 'x' FROM bids", "ILIKE is not supported"),
        ("SELECT bidder NOT ⟦ILIKE 'x' FROM bids", "ILIKE is not supported"),
        ("SELECT bidder LIKE 'x' ⟦ESCAPE '!' FROM bids", "ESCAPE is not supported"),
        ("SELECT ok IS ⟦TRUE FROM bids", "IS TRUE is not supported"),
        ("SELECT ok IS NOT ⟦DISTINCT FROM ok FROM bids", "IS DISTINCT is not supported"),
        ("SELECT price BETWEEN ⟦SYMMETRIC 2 AND 1 FROM bids", "BETWEEN SYMMETRIC is not supported"),
        ("SELECT price ⟦DIV 2 FROM bids", "DIV is not supported"),
        ("SELECT ⟦ABS(DISTINCT price) FROM bids", "DISTINCT is not supported in ABS"),
    ],
)
def test_known_sql_is_refused_by_name(query: str, message: str) -> None:
    error = refusal(query)
    assert isinstance(error, NotSupported)
    assert error.message == message


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("⟦", "the query is empty"),
        ("⟦ \n -- nothing", "the query is empty"),
        ("⟦PRICE", 'expected SELECT, found "PRICE"'),
        ("⟦;", 'expected SELECT, found ";"'),
        ("SELECT⟦", "expected an expression, but the query ends"),
        ("SELECT price⟦", 'expected "," or FROM, but the query ends'),
        ("SELECT price, ⟦FROM bids", 'expected an expression, found "FROM"'),
        ("SELECT price FROM⟦  ", "expected a stream, but the query ends"),
        ("SELECT price FROM bids,⟦", "expected a stream, but the query ends"),
        ("SELECT price FROM bids WHERE⟦", "expected an expression, but the query ends"),
        ("SELECT price FROM bids WHERE price = ⟦= 3", 'expected an expression, found "="'),
        ("SELECT price FROM bids GROUP ⟦price", 'expected BY, found "price"'),
        ("SELECT price AS ⟦FROM bids", 'expected an alias, found "FROM"'),
        ("SELECT price FROM ⟦'bids'", "expected a stream, found 'bids'"),
        ("SELECT price FROM bids b ⟦c", 'expected the end of the query, found "c"'),
        ("SELECT price FROM bids ⟦)", 'expected the end of the query, found ")"'),
        ("SELECT (price ⟦FROM bids", 'expected an operator or ")", found "FROM"'),
        ("SELECT ABS(price ⟦FROM bids", 'expected an operator, "," or ")", found "FROM"'),
        ("SELECT price⟦) FROM bids", 'expected "," or FROM, found ")"'),
        ("(SELECT price FROM bids⟦", 'expected ")", but the query ends'),
        ("SELECT 1 FROM (SELECT price FROM bids)⟦", "a subquery in FROM needs an alias"),
        ("SELECT price FROM bids HAVING ok ⟦WHERE ok", "WHERE is in the wrong place"),
        ("SELECT price FROM bids UNION⟦", "expected SELECT, but the query ends"),
        ("SELECT price FROM bids JOIN auctions ON⟦", "expected an expression, but the query ends"),
        ("SELECT price FROM bids INNER ⟦auctions", 'expected JOIN, found "auctions"'),
        ("SELECT ⟦'abc FROM bids", "the string is not closed"),
        ("SELECT ⟦'it''s FROM bids", "the string is not closed"),
        ('SELECT ⟦"abc FROM bids', "the quoted name is not closed"),
        ("SELECT 'a' FROM bids ⟦/* b /* c */", "the comment is not closed"),
        ('SELECT ⟦"" FROM bids', "a name cannot be empty"),
        ("SELECT price⟦–1 FROM bids", "unexpected character '–'"),
        ("SELECT ⟦{# note #} price FROM bids", "unexpected character '{'"),
        ("SELECT price⟦[1] FROM bids", 'expected "," or FROM, found "["'),
        ("SELECT price⟦::INT FROM bids", 'expected "," or FROM, found ":"'),
        ("SELECT ⟦N'x' FROM bids", "expected an expression, found \"N'x'\""),
    ],
)
def test_syntax_problem_says_what_was_expected(query: str, message: str) -> None:
    error = refusal(query)
    assert isinstance(error, ParseError)
    assert error.message == message


def test_refusal_shows_the_line_and_a_caret() -> None:
    assert str(refusal("SELECT price\nFROM bids\n\tWHERE ok ⟦LIMIT 3")) == (
        "[M1002] LIMIT is not supported\n"
        "  line 3: \tWHERE ok LIMIT 3\n"
        "          \t         ^\n"
        "  hint: Cut the result table instead."
    )


def test_half_a_surrogate_pair_is_refused_and_can_be_printed() -> None:
    with pytest.raises(ParseError, match="half of a character") as caught:
        parse("SELECT '\ud800' FROM bids", STREAMS)
    assert caught.value.position == 8
    assert "SELECT '?' FROM bids" in str(caught.value)
