"""Names that do not exist, exist twice or are reserved; columns that are not grouped."""

from __future__ import annotations

import pytest

from tests.cql.declared import refusal


@pytest.mark.parametrize(
    ("query", "code", "message", "detail", "hint"),
    [
        (
            "SELECT 1 FROM ⟦bid",
            "M1003",
            'stream "bid" does not exist',
            'The streams are "bids", "auctions", "people", "ticks", "zoned".',
            'Did you mean "bids"?',
        ),
        (
            "SELECT ⟦sller FROM auctions",
            "M1004",
            'column "sller" does not exist in stream "auctions"',
            'The stream has the columns "ts", "id", "Seller".',
            'Did you mean "Seller"?',
        ),
        (
            "SELECT a.⟦colour FROM auctions a",
            "M1004",
            'column "colour" does not exist in stream "auctions"',
            'The stream has the columns "ts", "id", "Seller".',
            None,
        ),
        (
            "SELECT q.⟦seller FROM (SELECT id FROM auctions) q",
            "M1004",
            'column "seller" does not exist in subquery "q"',
            'The subquery has the columns "id".',
            None,
        ),
        (
            "SELECT ⟦nam FROM auctions [NOW] a, people [NOW] p",
            "M1004",
            'column "nam" does not exist',
            "FROM has a(ts, id, Seller), p(ts, id, name).",
            'Did you mean "name"?',
        ),
        (
            "SELECT ⟦id FROM auctions [NOW] a, people [NOW] p",
            "M1005",
            'column "id" is ambiguous',
            'It exists in "a", "p".',
            "Write which one, as in a.id.",
        ),
        ("SELECT ⟦x.id FROM auctions a", "M1003", '"x" is not in FROM', 'FROM has "a".', None),
        (
            "SELECT ⟦auctions.id FROM auctions a",
            "M1003",
            '"auctions" is not in FROM',
            'FROM has "a".',
            'Its alias here is "a".',
        ),
        ("SELECT ⟦x.* FROM auctions a", "M1003", '"x" is not in FROM', 'FROM has "a".', None),
        (
            "SELECT 1 FROM auctions [NOW], ⟦auctions [NOW]",
            "M1009",
            '"auctions" is in FROM twice',
            None,
            "Give each its own alias: FROM bids [NOW] a, bids [NOW] b.",
        ),
        (
            "SELECT 1 FROM auctions [NOW] a, people [NOW] ⟦a",
            "M1009",
            '"a" is in FROM twice',
            None,
            "Give each its own alias: FROM bids [NOW] a, bids [NOW] b.",
        ),
        (
            "SELECT id, ts AS ⟦valid_from FROM auctions",
            "M1009",
            'the output column "valid_from" has a reserved name',
            'Results carry their validity as "valid_from" and "valid_to".',
            "Give it another name with AS.",
        ),
        (
            "SELECT 1, ⟦* FROM (SELECT id, ts AS valid_to FROM auctions) q UNION ALL SELECT 1, 2, ts FROM people",
            "M1009",
            'the output column "valid_to" has a reserved name',
            'Results carry their validity as "valid_from" and "valid_to".',
            "Give it another name with AS.",
        ),
    ],
)
def test_name_is_refused(query: str, code: str, message: str, detail: str | None, hint: str | None) -> None:
    error = refusal(query)
    assert (error.code, error.message, error.detail, error.hint) == (code, message, detail, hint)


def test_unknown_stream_among_none_is_said_so() -> None:
    assert refusal("SELECT 1 FROM ⟦bids", []).detail == "No streams are declared."


def test_unknown_function_names_the_close_one_and_all_that_exist() -> None:
    error = refusal("SELECT 1 + ⟦lenght(bidder) FROM bids")
    assert (error.code, error.message) == ("M1006", "function LENGHT does not exist")
    assert error.hint == 'Did you mean "LENGTH"?'
    assert error.detail is not None
    assert "SUBSTRING" in error.detail
    assert error.detail.endswith("the aggregates are COUNT, SUM, AVG, MIN, MAX.")


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        (
            "SELECT ⟦price, COUNT(*) FROM bids [NOW] GROUP BY auction",
            "M1010",
            "column bids.price is neither grouped nor inside an aggregate",
        ),
        (
            "SELECT price % 3 + ⟦price FROM bids [NOW] GROUP BY price % 3",
            "M1010",
            "column bids.price is neither grouped nor inside an aggregate",
        ),
        (
            "SELECT COUNT(*) FROM bids [NOW] GROUP BY auction HAVING SUM(price) > ⟦price",
            "M1010",
            "column bids.price is neither grouped nor inside an aggregate",
        ),
        (
            "SELECT ⟦* FROM bids [NOW] GROUP BY price",
            "M1010",
            "column bids.ts is neither grouped nor inside an aggregate",
        ),
        (
            "SELECT COUNT(*), ⟦price FROM bids [NOW]",
            "M1010",
            "column bids.price is neither grouped nor inside an aggregate",
        ),
        (
            "SELECT 1 FROM bids [NOW] WHERE ⟦SUM(price) > 1",
            "M1010",
            "SUM is an aggregate, and WHERE cannot have aggregates",
        ),
        (
            "SELECT 1 FROM bids [NOW] b JOIN auctions [NOW] a ON ⟦MAX(b.price) = a.id",
            "M1010",
            "MAX is an aggregate, and ON cannot have aggregates",
        ),
        (
            "SELECT 1 FROM bids [NOW] GROUP BY 1 + ⟦COUNT(*)",
            "M1010",
            "COUNT is an aggregate, and GROUP BY cannot have aggregates",
        ),
        (
            "SELECT SUM(1 + ⟦COUNT(*)) FROM bids [NOW]",
            "M1010",
            "COUNT is an aggregate, and an aggregate cannot have aggregates",
        ),
        ("SELECT price FROM bids [NOW] GROUP BY ⟦2", "M1010", "GROUP BY 2 is not a position in the select list"),
        ("SELECT price FROM bids [NOW] GROUP BY ⟦1.5", "M1010", "GROUP BY 1.5 is not a position in the select list"),
        ("SELECT * FROM bids [NOW] GROUP BY ⟦1", "M1010", "GROUP BY 1 means a star"),
        ("SELECT 1 FROM bids [NOW] GROUP BY ⟦tags", "M1007", "cannot group by bids.tags (list<item: string>)"),
        ("SELECT ⟦SUM(bidder) FROM bids [NOW]", "M1007", "SUM takes numbers, not bids.bidder (string)"),
        ("SELECT ⟦COUNT(price, auction) FROM bids [NOW]", "M1007", "COUNT takes 1 argument, not 2"),
        ("SELECT ⟦SUM() FROM bids [NOW]", "M1007", "SUM takes 1 argument, not 0"),
        ("SELECT 1 FROM bids WHERE ⟦price", "M1007", "bids.price is not a condition but of type int64"),
        ("SELECT COUNT(*) FROM bids [NOW] HAVING ⟦COUNT(*)", "M1007", "COUNT(*) is not a condition but of type int64"),
        (
            "SELECT 1 FROM bids UNION ALL ⟦SELECT 1, 2 FROM bids",
            "M1007",
            "UNION of 1 and 2 columns",
        ),
        (
            "SELECT price FROM bids [NOW] EXCEPT ⟦SELECT bidder FROM bids [NOW]",
            "M1007",
            'EXCEPT cannot combine "price" (int64) with "bidder" (string)',
        ),
        (
            "⟦SELECT DISTINCT tags FROM bids [NOW]",
            "M1007",
            'DISTINCT compares rows, but "tags" is of type list<item: string>',
        ),
        (
            "SELECT tags FROM bids [NOW] EXCEPT ⟦SELECT tags FROM bids [NOW]",
            "M1007",
            'EXCEPT compares rows, but "tags" is of type list<item: string>',
        ),
    ],
)
def test_meaningless_query_is_refused(query: str, code: str, message: str) -> None:
    error = refusal(query)
    assert (error.code, error.message) == (code, message)
