"""Large queries are read fast; too large ones are refused with a position, never with a crash."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest

from midstream import ContinuousQuery
from midstream.algebra.stream import Stream
from midstream.cql import parse
from midstream.cql.query_grammar import MAX_RELATIONS
from midstream.errors import BadJoinOrder, BadStreamDeclaration, NotSupported, ParseError, QueryError
from tests.cql.declared import STREAMS

MANY = [
    Stream(f"s{i}", pa.schema({"ts": pa.timestamp("us"), "k": pa.int64(), "v": pa.string()}), "ts") for i in range(130)
]


def comma_join(ways: int) -> str:
    items = ", ".join(f"s{i} [RANGE 1 MINUTE] a{i}" for i in range(ways))
    return f"SELECT a0.v FROM {items} WHERE {' AND '.join(f'a0.k = a{i}.k' for i in range(1, ways))}"


def test_hundred_way_join_binds_within_a_second() -> None:
    began = time.perf_counter()
    plan = parse(comma_join(100), MANY)
    assert time.perf_counter() - began < 1
    assert len(list(plan.windows())) == 100
    assert plan.identity


def test_hundred_way_join_with_on_binds_within_two_seconds() -> None:
    joins = " ".join(f"JOIN s{i} [NOW] ON s{i}.k = s0.k" for i in range(1, 100))
    began = time.perf_counter()
    parse(f"SELECT s0.v FROM s0 [NOW] {joins}", MANY)
    assert time.perf_counter() - began < 2


def test_relations_are_limited() -> None:
    parse(comma_join(MAX_RELATIONS), MANY).explain()
    with pytest.raises(NotSupported, match="more than 128 streams"):
        parse(comma_join(MAX_RELATIONS + 1), MANY)
    with pytest.raises(NotSupported, match="more than 128 streams"):
        parse(" UNION ALL ".join(["SELECT 1 FROM s0"] * 1000), MANY)


@pytest.mark.parametrize(
    ("opening", "core", "closing"),
    [
        ("(", "price", ")"),
        ("- ", "price", ""),
        ("ABS(", "price", ")"),
        ("COALESCE(1, ", "price", ")"),
        ("CASE WHEN price > 1 THEN 1 ELSE ", "price", " END"),
        ("1 - (", "price", ")"),
        ("", "price", " + 1"),
        ("", "bidder", " || 'x'"),
    ],
)
@pytest.mark.parametrize("tail", ["FROM bids", "FROM bids [NOW] GROUP BY price, bidder"])
def test_nesting_is_read_or_refused_but_never_crashes(opening: str, core: str, closing: str, tail: str) -> None:
    for depth in (40, 60, 80, 90, 95, 97, 100, 5000):
        text = f"SELECT {opening * depth}{core}{closing * depth} {tail}"
        try:
            plan = parse(text, STREAMS)
        except NotSupported as error:
            assert depth > 40
            assert error.position
        else:
            assert depth < 5000
            assert plan.explain()
            assert plan.identity


def test_nested_conditions_are_refused() -> None:
    with pytest.raises(NotSupported, match="nested too deeply"):
        parse(f"SELECT 1 FROM bids WHERE {'NOT ' * 5000} ok", STREAMS)


def test_nested_subqueries_are_read_thirty_deep() -> None:
    def nested(depth: int) -> str:
        return "SELECT * FROM (" * depth + "SELECT * FROM bids [NOW]" + ") q" * depth

    assert parse(nested(30), STREAMS).longest == 1
    with pytest.raises(NotSupported, match="nested too deeply"):
        parse(nested(300), STREAMS)
    with pytest.raises(NotSupported, match="nested too deeply"):
        parse("(" * 3000 + "SELECT 1 FROM bids" + ")" * 3000, STREAMS)


@pytest.mark.parametrize("word", ["AND", "OR"])
def test_thousands_of_conditions_are_read(word: str) -> None:
    plan = parse("SELECT 1 FROM bids WHERE " + f" {word} ".join(f"price <> {i}" for i in range(5000)), STREAMS)
    assert "price <> 4999" in plan.explain()
    grouped = "SELECT price FROM bids [NOW] GROUP BY price HAVING " + f" {word} ".join(["price <> 1"] * 2000)
    assert parse(grouped, STREAMS).identity


def test_long_lists_are_read() -> None:
    values = ", ".join(map(str, range(20_000)))
    assert "19999" in parse(f"SELECT 1 FROM bids WHERE price IN ({values})", STREAMS).explain()
    plan = parse(f"SELECT {', '.join(['price'] * 5000)} FROM bids", STREAMS)
    assert plan.schema[-1].name == "price_4999"


def test_endless_text_is_refused() -> None:
    with pytest.raises(NotSupported, match="the query has 1000019 characters; at most 1000000 are read"):
        parse("SELECT 1 FROM bids " + " " * 1_000_000, STREAMS)


@pytest.mark.parametrize(
    "noise", ["[", "(", "'", '"', "/*", "-- ", "CASE ", "1 + ", "SELECT ", ",", ";", "\0", "NOT ", "{#"]
)
def test_noise_is_refused(noise: str) -> None:
    for prefix in ("", "SELECT ", "SELECT 1 FROM bids ", "SELECT 1 FROM bids WHERE "):
        if prefix == "SELECT 1 FROM bids " and noise == "-- ":
            continue
        with pytest.raises(QueryError):
            parse(prefix + noise * 3001, STREAMS)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT {} FROM bids",
        'SELECT "{}" FROM bids',
        "SELECT bids.{} FROM bids",
        "SELECT {}.price FROM bids",
        "SELECT price FROM {}",
        "SELECT {}(price) FROM bids",
        "SELECT price FROM bids [{} 5]",
        "SELECT price {} FROM bids b c",
        "SELECT price + '{}' FROM bids",
        "SELECT DATE '{}' FROM bids",
    ],
)
def test_a_name_of_100_000_letters_does_not_fill_the_message(text: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text.format("x" * 100_000), STREAMS)
    assert len(str(caught.value)) < 5_000
    assert len(caught.value.message) < 1_500


@pytest.mark.parametrize("text", [None, b"SELECT price FROM bids", 5, ["SELECT 1"]])
def test_what_is_no_text_is_refused_as_such(text: Any) -> None:
    with pytest.raises(ParseError, match=f"the query is of type {type(text).__name__}, not text") as caught:
        ContinuousQuery(text, STREAMS)
    assert caught.value.hint


def test_streams_are_any_iterable_of_declarations() -> None:
    query = ContinuousQuery("SELECT price FROM bids [NOW]", (stream for stream in STREAMS))  # type: ignore[arg-type]
    assert query.streams == tuple(STREAMS)
    for streams in (None, "bids", {"bids": STREAMS[0]}, STREAMS[0], [None], 5):
        with pytest.raises(BadStreamDeclaration, match="list of Stream declarations"):
            ContinuousQuery("SELECT price FROM bids [NOW]", streams)  # type: ignore[arg-type]
    for name, event_time in ((None, "ts"), (b"bids", "ts"), ("bids", None)):
        with pytest.raises(BadStreamDeclaration, match="not text"):
            Stream(name, STREAMS[0].schema, event_time)  # type: ignore[arg-type]
    with pytest.raises(BadJoinOrder, match="a join order is text"):
        query.plan(5)  # type: ignore[arg-type]
