"""Expressions: precedence, literals, functions and their types."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from midstream.algebra.expressions import Literal
from midstream.algebra.functions import FUNCTIONS
from midstream.algebra.plan import Project
from midstream.cql import parse
from tests.cql.declared import STREAMS, item, refusal, type_of


def literal(text: str) -> Literal:
    plan = parse(f"SELECT {text} AS it FROM bids", STREAMS)
    assert isinstance(plan, Project)
    expression = plan.items[0].expression
    assert isinstance(expression, Literal)
    return expression


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("price + small * 2 - 1", "bids.price + CAST(bids.small AS int64) * 2 - 1"),
        ("(price + 1) * 2", "(bids.price + 1) * 2"),
        ("price - (1 - price)", "bids.price - (1 - bids.price)"),
        ("price % 3 = 1", "bids.price % 3 = 1"),
        ("price / 2", "CAST(bids.price AS double) / 2.0"),
        ("ok OR ok AND NOT ok", "bids.ok OR bids.ok AND NOT bids.ok"),
        ("(ok OR ok) AND ok", "(bids.ok OR bids.ok) AND bids.ok"),
        ("NOT price = 1", "NOT bids.price = 1"),
        ("NOT ok = ok IS NULL", "NOT (bids.ok = bids.ok) IS NULL"),
        ("price = 1 IS NULL", "(bids.price = 1) IS NULL"),
        ("price + 1 IS NOT NULL", "NOT bids.price + 1 IS NULL"),
        ("price <> 1 AND price != 1", "bids.price <> 1 AND bids.price <> 1"),
        ("price BETWEEN 1 AND 2 AND ok", "bids.price >= 1 AND bids.price <= 2 AND bids.ok"),
        ("price NOT BETWEEN 1 AND 2 + 3", "NOT (bids.price >= 1 AND bids.price <= 2 + 3)"),
        ("price IN (1, 2, 3)", "bids.price IN (1, 2, 3)"),
        ("price NOT IN (1)", "NOT bids.price IN (1)"),
        ("bidder LIKE 'a%'", "bids.bidder LIKE 'a%'"),
        ("bidder NOT LIKE 'a%' = ok", "(NOT bids.bidder LIKE 'a%') = bids.ok"),
        ("'a' || bidder || 'b'", "'a' || bids.bidder || 'b'"),
        ("- 5", "-5"),
        ("+ price", "bids.price"),
        ("CASE WHEN ok THEN 1 END", "CASE WHEN bids.ok THEN 1 ELSE NULL END"),
        ("CASE WHEN ok THEN 1 ELSE 2.5 END", "CASE WHEN bids.ok THEN 1.0 ELSE 2.5 END"),
        (
            "CASE price WHEN 1 THEN 'a' WHEN 2 THEN 'b' END",
            "CASE WHEN bids.price = 1 THEN 'a' WHEN bids.price = 2 THEN 'b' ELSE NULL END",
        ),
        ("IF(ok, 1, 2)", "CASE WHEN bids.ok THEN 1 ELSE 2 END"),
        ("iif(ok, 1, 2)", "CASE WHEN bids.ok THEN 1 ELSE 2 END"),
        ("CASE WHEN NULL THEN 1 END", "CASE WHEN NULL THEN 1 ELSE NULL END"),
        ("MOD(price, 3)", "bids.price % 3"),
        ("POW(rate, 2)", "POWER(bids.rate, 2.0)"),
        ("CEILING(rate)", "CEIL(bids.rate)"),
        ("SUBSTR(bidder, 1, 2)", "SUBSTRING(bids.bidder, 1, 2)"),
        ("CHAR_LENGTH(bidder)", "LENGTH(bids.bidder)"),
        ("IFNULL(price, 0)", "COALESCE(bids.price, 0)"),
        ("EXTRACT(YEAR FROM ts)", "YEAR(bids.ts)"),
        ("extract(second from ts)", "SECOND(bids.ts)"),
        ("ts + INTERVAL '5' MINUTE", "bids.ts + INTERVAL '5 MINUTES'"),
        ("ts > '2020-01-01'", "bids.ts > TIMESTAMP '2020-01-01 00:00:00'"),
        ("day = '2020-01-01'", "bids.day = DATE '2020-01-01'"),
        ("CAST(price AS VARCHAR)", "CAST(bids.price AS string)"),
        ("COALESCE(NULL, price)", "COALESCE(NULL, bids.price)"),
    ],
)
def test_expression_means(text: str, meaning: str) -> None:
    assert item(text) == meaning


ARGUMENTS = {
    "mod": "price, 2", "power": "rate, 2", "greatest": "price, 1", "least": "price, 1", "nullif": "price, 0",
    "substring": "bidder, 1, 2", "concat": "bidder, 'x'", "replace": "bidder, 'a', 'b'", "starts_with": "bidder, 'a'",
    **dict.fromkeys(("lower", "upper", "trim", "ltrim", "rtrim", "length"), "bidder"),
    **dict.fromkeys(("year", "month", "day", "hour", "minute", "second"), "ts"),
}  # fmt: skip
NOT_WRITTEN_AS_CALLS = {"in", "and", "or", "not", "is_null", "like", "case", "negate"}


@pytest.mark.parametrize("name", sorted(n for n in FUNCTIONS if n[0].isalpha() and n not in NOT_WRITTEN_AS_CALLS))
def test_every_function_of_the_algebra_can_be_called(name: str) -> None:
    arguments = ARGUMENTS.get(name, "rate")
    assert item(f"{name}({arguments})") == item(f"{name.upper()} ({arguments})")


@pytest.mark.parametrize(
    ("text", "value", "data_type"),
    [
        ("3", 3, pa.int64()),
        ("9223372036854775807", 2**63 - 1, pa.int64()),
        ("-9223372036854775808", -(2**63), pa.int64()),
        ("9223372036854775808", Decimal(2**63), pa.decimal128(19, 0)),
        ("9" * 50, Decimal("9" * 50), pa.decimal256(50, 0)),
        ("007", 7, pa.int64()),
        ("1.5", 1.5, pa.float64()),
        (".5", 0.5, pa.float64()),
        ("5.", 5.0, pa.float64()),
        ("1e3", 1000.0, pa.float64()),
        ("-2.5E-1", -0.25, pa.float64()),
        ("'it''s'", "it's", pa.string()),
        ("''", "", pa.string()),
        (r"'a\n'", r"a\n", pa.string()),
        ("TRUE", True, pa.bool_()),
        ("false", False, pa.bool_()),
        ("NULL", None, pa.null()),
        ("DATE '2020-02-29'", datetime.date(2020, 2, 29), pa.date32()),
        ("TIMESTAMP '2020-01-01 01:02:03.5'", datetime.datetime(2020, 1, 1, 1, 2, 3, 500_000), pa.timestamp("us")),
        (
            "TIMESTAMP '2020-01-01 01:00:00+01:00'",
            datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
            pa.timestamp("us", "UTC"),
        ),
        ("INTERVAL '5' MINUTES", datetime.timedelta(minutes=5), pa.duration("us")),
        ("INTERVAL 5 minute", datetime.timedelta(minutes=5), pa.duration("us")),
        ("INTERVAL '1.5 hours'", datetime.timedelta(minutes=90), pa.duration("us")),
        ("-INTERVAL '-5' DAY", datetime.timedelta(days=5), pa.duration("us")),
    ],
)
def test_literal_is(text: str, value: object, data_type: pa.DataType) -> None:
    assert literal(text) == Literal(value, data_type)


@pytest.mark.parametrize(
    ("name", "data_type"),
    [
        ("TINYINT", pa.int8()),
        ("SMALLINT", pa.int16()),
        ("INT", pa.int32()),
        ("integer", pa.int32()),
        ("BIGINT", pa.int64()),
        ("REAL", pa.float32()),
        ("FLOAT", pa.float32()),
        ("DOUBLE", pa.float64()),
        ("DOUBLE PRECISION", pa.float64()),
        ("DECIMAL(10, 2)", pa.decimal128(10, 2)),
        ("NUMERIC(10)", pa.decimal128(10, 0)),
        ("VARCHAR", pa.string()),
        ("TEXT", pa.string()),
        ("STRING", pa.string()),
        ("BOOLEAN", pa.bool_()),
        ("DATE", pa.date32()),
        ("TIMESTAMP", pa.timestamp("us")),
        ("TIMESTAMPTZ", pa.timestamp("us", "UTC")),
        ("BLOB", pa.binary()),
        ("BINARY", pa.binary()),
    ],
)
def test_cast_gives_the_type(name: str, data_type: pa.DataType) -> None:
    assert type_of(f"CAST(NULL AS {name})") == data_type


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("⟦bidder = 1", "M1007", "cannot compare bids.bidder (string) with 1 (int64)"),
        ("1 + ABS(⟦bidder = 1)", "M1007", "cannot compare bids.bidder (string) with 1 (int64)"),
        ("ok = (⟦ts = TIMESTAMP '2020-01-01 00:00:00+00:00')", "M1007", None),
        ("⟦price + 'x'", "M1007", "+ takes numbers, not bids.price (int64), 'x' (string)"),
        ("⟦-bidder", "M1007", "NEGATE takes numbers, not bids.bidder (string)"),
        ("ok AND ⟦ABS(price, 1) > 0", "M1007", "function ABS takes 1 argument, not 2"),
        ("⟦IF(ok, 1)", "M1007", "function IF takes 3 arguments, not 2"),
        ("CASE WHEN ⟦price THEN 1 END", "M1007", "bids.price is not a condition but of type int64"),
        ("CASE price WHEN ⟦'a' THEN 1 END", "M1007", "cannot compare bids.price (int64) with 'a' (string)"),
        ("⟦tags = tags", "M1007", None),
        ("⟦CAST(tags AS INT)", "M1007", "cannot cast bids.tags (list<item: string>) to int32"),
        ("⟦CAST(price AS DECIMAL)", "M1007", "DECIMAL needs its digits"),
        ("⟦CAST(price AS DECIMAL(39, 2))", "M1007", "DECIMAL(39, 2) does not exist"),
        ("⟦CAST(price AS DECIMAL(3, 4))", "M1007", "DECIMAL(3, 4) does not exist"),
        ("CAST(price AS VARCHAR⟦(3))", "M1002", "VARCHAR takes no length"),
        ("CAST(price AS ⟦JSON)", "M1002", "the type JSON is not supported"),
        ("CAST(price ⟦, INT)", "M1001", 'expected AS, found ","'),
        ("⟦TRY_CAST(price AS INT)", "M1002", "TRY_CAST is not supported"),
        ("EXTRACT(⟦DOW FROM ts)", "M1002", "EXTRACT(DOW ...) is not supported"),
        ("EXTRACT(⟦ts)", "M1001", 'expected a part of the date and FROM, found "ts"'),
        ("⟦HOUR(day)", "M1007", "HOUR takes a timestamp, not bids.day (date32[day])"),
        ("⟦DATE '2020-13-01'", "M1007", "cannot read '2020-13-01' as a date"),
        ("⟦TIMESTAMP 'noon'", "M1007", "cannot read 'noon' as a timestamp"),
        ("⟦ts > 'noon'", "M1007", "cannot read 'noon' as a timestamp"),
        ("⟦ts > '0001-01-01 00:00:00+14:00'", "M1007", "the timestamp '0001-01-01 00:00:00+14:00' is out of range"),
        ("⟦ts > '9999-12-31 23:00:00-14:00'", "M1007", "the timestamp '9999-12-31 23:00:00-14:00' is out of range"),
        (
            "⟦TIMESTAMP '9999-12-31 23:00:00-14:00'",
            "M1007",
            "the timestamp '9999-12-31 23:00:00-14:00' is out of range",
        ),
        ("⟦1e999", "M1007", "the number 1e999 is too large for DOUBLE"),
        ("⟦" + "9" * 77, "M1007", "the number has more than 76 digits"),
        ("⟦1e", "M1001", "cannot read the number 1e"),
        ("1⟦abc", "M1001", 'expected a space before "abc"'),
        ("⟦INTERVAL '5'", "M1001", "an interval needs a unit"),
        ("INTERVAL '5' ⟦YEARS", "M1002", "the unit YEARS is not supported"),
        ("INTERVAL 5 ⟦MINUTS", "M1001", '"MINUTS" is not a unit of time'),
        ("⟦INTERVAL '0.5' MICROSECOND", "M1007", "an interval is a whole number of microseconds"),
        ("⟦INTERVAL '1e9' DAY", "M1001", "cannot read '1e9' as the length of an interval"),
        ("⟦INTERVAL '999999999999' DAY", "M1007", "the interval of 999999999999 DAY is too long"),
        ("price < 1 ⟦< 2", "M1001", "comparisons do not chain"),
        ("price = ⟦NOT ok", "M1001", "NOT needs parentheses here"),
        ("price BETWEEN 1 ⟦5", "M1001", 'expected AND, found "5"'),
        ("price IN ⟦1", "M1001", 'expected "(" and a list of values, found "1"'),
        ("price IN (⟦)", "M1001", 'expected an expression, found ")"'),
        ("price NOT ⟦5", "M1001", 'expected BETWEEN, IN or LIKE, found "5"'),
        ("CASE ⟦END", "M1001", 'expected an expression, found "END"'),
        ("CASE price ⟦END", "M1001", 'expected WHEN, found "END"'),
        ("CASE WHEN ok ⟦ELSE 1 END", "M1001", 'expected THEN, found "ELSE"'),
        ("SUM(⟦*)", "M1001", '"*" is only allowed in the select list and in COUNT(*)'),
        ("'a' ⟦'b'", "M1001", "expected \",\" or FROM, found 'b'"),
    ],
)
def test_bad_expressions_are_refused_where_they_are_bad(text: str, code: str, message: str | None) -> None:
    error = refusal(f"SELECT {text} FROM bids")
    assert error.code == code
    assert message is None or error.message == message
