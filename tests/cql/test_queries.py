"""Queries and the plans they mean, operator by operator."""

from __future__ import annotations

import textwrap

import pytest

from midstream.algebra.plan import Difference, Distinct, Union
from midstream.cql import parse
from midstream.errors import MidstreamError
from tests.cql.declared import BIDS, STREAMS, explained, refusal


def check(query: str, plan: str) -> None:
    assert explained(query) == textwrap.dedent(plan).strip()


def names(query: str) -> list[str]:
    return [field.name for field in parse(query, STREAMS).schema]


def test_select_list_is_a_projection() -> None:
    check(
        "SELECT price, price + 1 AS more FROM bids",
        """
        Project bids.price AS price, bids.price + 1 AS more
        └─ Window bids
        """,
    )


def test_where_is_one_selection() -> None:
    check(
        "select b.price from bids [now] as b where b.price > 3 and b.ok",
        """
        Project b.price AS price
        └─ Select b.price > 3 AND b.ok
           └─ Window bids AS b [NOW]
        """,
    )


def test_commas_are_cross_products_from_left_to_right() -> None:
    check(
        "SELECT p.name FROM bids [NOW] b, auctions [NOW] a, people [NOW] p WHERE b.auction = a.id AND name = Seller",
        """
        Project p.name AS name
        └─ Select b.auction = a.id AND p.name = a.Seller
           └─ Join (cross product)
              ├─ Join (cross product)
              │  ├─ Window bids AS b [NOW]
              │  └─ Window auctions AS a [NOW]
              └─ Window people AS p [NOW]
        """,
    )


def test_on_conditions_across_both_sides_are_the_joins() -> None:
    check(
        """SELECT 1 AS one FROM bids [NOW] b JOIN auctions [NOW] a ON b.auction = a.id
           INNER JOIN people [NOW] p ON p.name = a.Seller AND p.name = b.bidder""",
        """
        Project 1 AS one
        └─ Join p.name = a.Seller AND p.name = b.bidder
           ├─ Join b.auction = a.id
           │  ├─ Window bids AS b [NOW]
           │  └─ Window auctions AS a [NOW]
           └─ Window people AS p [NOW]
        """,
    )


def test_on_conditions_of_one_side_are_selections() -> None:
    check(
        "SELECT 1 AS one FROM bids [NOW] b JOIN auctions [NOW] a ON b.auction = a.id AND a.id > 3 AND b.ok AND TRUE",
        """
        Project 1 AS one
        └─ Select b.ok AND TRUE
           └─ Join b.auction = a.id
              ├─ Window bids AS b [NOW]
              └─ Select a.id > 3
                 └─ Window auctions AS a [NOW]
        """,
    )


def test_join_without_on_and_cross_join_are_cross_products() -> None:
    cross = explained("SELECT 1 FROM bids [NOW] CROSS JOIN auctions [NOW]")
    assert cross == explained("SELECT 1 FROM bids [NOW] JOIN auctions [NOW]")
    assert cross == explained("SELECT 1 FROM bids [NOW], auctions [NOW]")
    assert "Join (cross product)" in cross


def test_one_stream_joins_itself_under_two_aliases() -> None:
    check(
        "SELECT a.price FROM bids [NOW] a, bids [NOW] b WHERE a.price < b.price",
        """
        Project a.price AS price
        └─ Select a.price < b.price
           └─ Join (cross product)
              ├─ Window bids AS a [NOW]
              └─ Window bids AS b [NOW]
        """,
    )


def test_on_sees_only_what_stands_before_it() -> None:
    error = refusal("SELECT 1 FROM bids [NOW] b JOIN auctions [NOW] a ON ⟦p.id = a.id JOIN people [NOW] p ON TRUE")
    assert (error.code, error.message) == ("M1003", '"p" is not in FROM')


def test_star_is_every_column_and_repeated_names_are_numbered() -> None:
    assert names("SELECT * FROM auctions [NOW] a, people [NOW] p") == ["ts", "id", "Seller", "ts_1", "id_1", "name"]
    assert names("SELECT p.*, a.id FROM auctions [NOW] a, people [NOW] p") == ["ts", "id", "name", "id_1"]


def test_numbered_name_does_not_take_a_name_that_is_given() -> None:
    assert names("SELECT price AS x, price AS x, price AS x_1 FROM bids") == ["x", "x_2", "x_1"]


def test_output_names_are_alias_column_or_text() -> None:
    query = (
        'SELECT PRICE, price AS Cost, price total, bids.price "a b", price * 2, COUNT(*) FROM bids [NOW] GROUP BY price'
    )
    assert names(query) == ["price", "Cost", "total", "a b", "bids.price * 2", "COUNT(*)"]


def test_group_by_is_an_aggregate_under_having_and_projection() -> None:
    check(
        """SELECT auction, SUM(price) AS total, AVG(price) FROM bids [NOW] WHERE ok
           GROUP BY auction HAVING COUNT(*) > 2 AND auction <> 7""",
        """
        Project bids.auction AS auction, SUM(bids.price) AS total, AVG(bids.price)
        └─ Select COUNT(*) > 2 AND bids.auction <> 7
           └─ Aggregate SUM(bids.price), AVG(bids.price), COUNT(*) BY bids.auction
              └─ Select bids.ok
                 └─ Window bids [NOW]
        """,
    )


def test_expressions_over_keys_and_aggregates_are_projected() -> None:
    check(
        "SELECT price % 10 + 1, SUM(rate) / COUNT(*) AS mean FROM bids [NOW] GROUP BY price % 10",
        """
        Project bids.price % 10 + 1, SUM(bids.rate) / CAST(COUNT(*) AS double) AS mean
        └─ Aggregate SUM(bids.rate), COUNT(*) BY bids.price % 10
           └─ Window bids [NOW]
        """,
    )


@pytest.mark.parametrize("key", ["price % 10", "tens", "1", "bids.price % 10", "PRICE % 10"])
def test_group_by_takes_expression_alias_and_position(key: str) -> None:
    check(
        f"SELECT price % 10 AS tens, COUNT(*) AS n FROM bids [NOW] GROUP BY {key}",
        """
        Project bids.price % 10 AS tens, COUNT(*) AS n
        └─ Aggregate COUNT(*) BY bids.price % 10
           └─ Window bids [NOW]
        """,
    )


def test_group_by_prefers_a_column_to_an_alias() -> None:
    assert "BY bids.price" in explained("SELECT MAX(auction) AS price, price AS p FROM bids [NOW] GROUP BY price")


def test_having_may_use_output_names() -> None:
    check(
        "SELECT auction, COUNT(*) AS n FROM bids [NOW] GROUP BY auction HAVING n > 2",
        """
        Project bids.auction AS auction, COUNT(*) AS n
        └─ Select COUNT(*) > 2
           └─ Aggregate COUNT(*) BY bids.auction
              └─ Window bids [NOW]
        """,
    )


def test_aggregates_without_group_by_have_no_keys() -> None:
    check(
        "SELECT COUNT(*), COUNT(price), COUNT(DISTINCT price), SUM(DISTINCT price), MIN(DISTINCT ok) FROM bids [NOW]",
        """
        Project COUNT(*), COUNT(bids.price), COUNT(DISTINCT bids.price), SUM(DISTINCT bids.price), MIN(bids.ok)
        └─ Aggregate COUNT(*), COUNT(bids.price), COUNT(DISTINCT bids.price), SUM(DISTINCT bids.price), MIN(bids.ok)
           └─ Window bids [NOW]
        """,
    )


def test_group_by_without_aggregates_is_distinct_keys() -> None:
    check(
        "SELECT auction + 1 AS next FROM bids [NOW] GROUP BY auction, ok HAVING ok",
        """
        Project bids.auction + 1 AS next
        └─ Select bids.ok
           └─ Distinct
              └─ Project bids.auction, bids.ok
                 └─ Window bids [NOW]
        """,
    )


def test_having_alone_groups_everything() -> None:
    check(
        "SELECT 1 AS one FROM bids [NOW] HAVING TRUE",
        """
        Project 1 AS one
        └─ Select TRUE
           └─ Aggregate COUNT(*)
              └─ Window bids [NOW]
        """,
    )


def test_star_of_grouped_columns_is_allowed() -> None:
    assert names("SELECT q.*, COUNT(*) AS n FROM (SELECT price FROM bids [NOW]) q GROUP BY price") == ["price", "n"]


def test_distinct_stands_above_the_projection() -> None:
    check(
        "SELECT DISTINCT auction FROM bids [NOW]",
        """
        Distinct
        └─ Project bids.auction AS auction
           └─ Window bids [NOW]
        """,
    )
    assert not isinstance(parse("SELECT ALL auction FROM bids", STREAMS), Distinct)


def test_subquery_is_an_alias_over_its_plan() -> None:
    check(
        'SELECT q.n, q."MAX(bids.price)" FROM (SELECT COUNT(*) AS n, MAX(price) FROM bids [NOW]) AS q WHERE n > 1',
        """
        Project q.n AS n, q."MAX(bids.price)" AS MAX(bids.price)
        └─ Select q.n > 1
           └─ Alias q
              └─ Project COUNT(*) AS n, MAX(bids.price)
                 └─ Aggregate COUNT(*), MAX(bids.price)
                    └─ Window bids [NOW]
        """,
    )


def test_set_operations_associate_to_the_left() -> None:
    check(
        "SELECT id FROM auctions [NOW] EXCEPT SELECT id FROM people [NOW] UNION ALL SELECT 1 FROM bids [NOW]",
        """
        Union ALL
        ├─ Difference
        │  ├─ Project auctions.id AS id
        │  │  └─ Window auctions [NOW]
        │  └─ Project people.id AS id
        │     └─ Window people [NOW]
        └─ Project 1
           └─ Window bids [NOW]
        """,
    )


def test_parentheses_group_set_operations() -> None:
    plan = parse(
        "((SELECT id FROM auctions [NOW])) EXCEPT ALL (SELECT id FROM people [NOW] UNION SELECT 1 FROM bids [NOW])",
        STREAMS,
    )
    assert isinstance(plan, Difference)
    assert plan.keep == "all"
    assert isinstance(plan.right, Distinct)
    assert isinstance(plan.right.input, Union)


def test_set_operations_may_stand_in_from() -> None:
    query = "SELECT q.id FROM ((SELECT id FROM auctions [NOW]) UNION ALL SELECT id FROM people [NOW]) q"
    assert explained(query).split("\n")[:3] == ["Project q.id AS id", "└─ Alias q", "   └─ Union ALL"]


def test_union_casts_both_sides_to_common_types_and_keeps_the_left_names() -> None:
    check(
        "SELECT small AS s, NULL AS n FROM bids UNION ALL SELECT rate, ok FROM bids",
        """
        Union ALL
        ├─ Project CAST(bids.small AS double) AS s, NULL AS n
        │  └─ Window bids
        └─ Project bids.rate AS rate, bids.ok AS ok
           └─ Window bids
        """,
    )
    plan = parse("SELECT DISTINCT small FROM bids [NOW] UNION ALL SELECT price FROM bids", STREAMS)
    assert [(field.name, str(field.type)) for field in plan.schema] == [("small", "int64")]


def test_nested_columns_pass_union_all() -> None:
    assert names("SELECT tags FROM bids UNION ALL SELECT tags FROM bids") == ["tags"]


def test_names_match_exactly_first_then_without_case() -> None:
    assert names("SELECT SELLER, Seller, seller FROM Auctions") == ["Seller", "Seller_1", "Seller_2"]
    both = 'SELECT x, X FROM (SELECT price AS "x", auction AS "X" FROM bids) q'
    assert explained(both).startswith("Project q.x AS x, q.X AS X")


def test_quoted_names_match_as_written_only() -> None:
    assert refusal('SELECT ⟦"SELLER" FROM auctions').code == "M1004"
    assert refusal('SELECT 1 FROM ⟦"Auctions"').code == "M1003"
    assert refusal('SELECT ⟦"B".price FROM bids b').code == "M1003"


def test_clause_words_may_name_columns_and_aliases() -> None:
    check(
        'SELECT date, offset, left, "as" FROM (SELECT day date, price AS offset, 1 AS left, 2 AS "as" FROM bids) q',
        """
        Project q.date AS date, q.offset AS offset, q.left AS left, q.as AS as
        └─ Alias q
           └─ Project bids.day AS date, bids.price AS offset, 1 AS left, 2 AS as
              └─ Window bids
        """,
    )


def test_comments_and_a_last_semicolon_are_allowed() -> None:
    assert explained("SELECT price -- the price\n/* of /* all */ */ FROM bids; -- end") == explained(
        "SELECT price FROM bids"
    )


def test_inner_columns_may_be_called_valid_from() -> None:
    assert names("SELECT q.valid_from AS since FROM (SELECT ts AS valid_from FROM bids) q") == ["since"]


def test_two_streams_of_one_name_are_refused() -> None:
    with pytest.raises(MidstreamError, match=r'\[M1011\] two streams are called "bids"'):
        parse("SELECT 1 FROM bids", [BIDS, BIDS.__class__("bids", BIDS.schema, "ts", "1 second")])
