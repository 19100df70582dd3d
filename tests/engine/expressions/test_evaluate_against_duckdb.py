"""Random expressions over random columns: evaluate() gives what DuckDB gives for the same expression.

DuckDB is asked with TRY around each call and TRY_CAST for each cast, so that its errors are NULLs as ours. Left out
is where midstream differs on purpose (see the docstrings of ``engine/expressions``) and where the last bit of a float
would decide a whole number: transcendental functions stand only at the root, decimals become doubles only directly.
"""

from __future__ import annotations

import datetime
import math
import random
from decimal import Decimal
from typing import Any

import duckdb
import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings

from midstream.algebra.expressions import Call, Cast, Column, Expression, Literal
from midstream.algebra.functions import call, cast
from midstream.engine.expressions.evaluate import evaluate, truth
from midstream.errors import TypeMismatch

NAN, INF = float("nan"), float("inf")
LOW, HIGH = -(2**63), 2**63 - 1
UTC = datetime.UTC
POOLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int64(), [0, 1, -1, 2, 3, 7, -15, 25, 1000, 2**31, 2**53 + 1, HIGH, HIGH - 1, LOW, LOW + 1]),
    "k": (pa.int32(), [0, 1, -1, 2, 3, -4, 5, 8, -9, 100, 2**31 - 1, -(2**31)]),
    "u": (pa.uint64(), [0, 1, 5, 255, 2**63 - 1, 2**63, 2**64 - 1]),
    "f": (pa.float64(), [0.0, -0.0, 1.0, -1.5, 2.5, 0.1, 3.7, -2.675, 1e10, 1e19, 1e300, -1e300, INF, -INF, NAN]),
    "d": (pa.decimal128(10, 2), ["0", "1", "-1.5", "2.55", "-2.45", "99.99", "99999999.99", "-99999999.99", "0.01"]),
    "m": (pa.decimal128(18, 4), ["0", "1", "2.5", "-0.0001", "12345.6789", "99999999999.9999", "-5.5550"]),
    "s": (
        pa.string(),
        ["", "a", "ab", "abc", "Hello", "  x ", "é😀", "a\nb", "a_c", "100%", "12", "-7", "1.5", "2.5e1", "1e400",
         "nan", "true", "no", "2024-02-29", "2023-02-29", "2024-02-29 12:34:56.789", "99999999999999999999", "x1"],
    ),
    "e": (pa.date32(), [datetime.date(1970, 1, 1), datetime.date(1969, 12, 31), datetime.date(2024, 2, 29),
                        datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    "t": (pa.timestamp("us"), [datetime.datetime(1970, 1, 1), datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
                               datetime.datetime(2024, 2, 29, 12, 34, 56, 500000), datetime.datetime(1900, 3, 1, 1)]),
    "z": (pa.timestamp("us", "UTC"), [datetime.datetime(1970, 1, 1, tzinfo=UTC),
                                      datetime.datetime(2024, 12, 31, 23, 30, tzinfo=UTC)]),
    "b": (pa.bool_(), [True, False]),
}  # fmt: skip
SQL_TYPES = {
    pa.int64(): "BIGINT", pa.int32(): "INTEGER", pa.int8(): "TINYINT", pa.uint64(): "UBIGINT", pa.uint8(): "UTINYINT",
    pa.float64(): "DOUBLE", pa.float32(): "FLOAT", pa.string(): "VARCHAR", pa.bool_(): "BOOLEAN", pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP", pa.timestamp("us", "UTC"): "TIMESTAMPTZ",
    pa.timestamp("s"): "TIMESTAMP_S", pa.timestamp("ms"): "TIMESTAMP_MS",
}  # fmt: skip
PATTERNS = ["%", "a%", "%b", "%a%", "_", "a_c", "%\n%", "1__\\%", "%.%", "", "_%l_"]


def values_of(name: str) -> list[Any]:
    data_type, pool = POOLS[name]
    return [Decimal(v) for v in pool] if pa.types.is_decimal(data_type) else pool


def table_of(seed: int) -> pa.Table:
    """One to twelve rows of values from the pools, some of them NULL; hypothesis would take longer to draw them."""
    source = random.Random(seed)
    rows = source.randint(1, 12)
    return pa.table(
        {
            name: pa.array([source.choice([None, *values_of(name)]) for _ in range(rows)], data_type)
            for name, (data_type, _) in POOLS.items()
        }
    )


def tables() -> st.SearchStrategy[pa.Table]:
    return st.integers(0, 10_000).map(table_of)


def column(name: str) -> Column:
    return Column("", name, POOLS[name][0])


def leaf(*names: str) -> st.SearchStrategy[Expression]:
    columns = st.sampled_from([column(name) for name in names])
    literals = st.sampled_from(names).flatmap(
        lambda name: (st.none() | st.sampled_from(values_of(name))).map(lambda value: Literal(value, POOLS[name][0]))
    )
    return st.one_of(columns, columns, literals)


LEAVES = {
    "int": leaf("i", "k", "u"), "small": st.integers(-9, 9).map(lambda value: Literal(value, pa.int64())),
    "float": leaf("f"), "decimal": leaf("d", "m"), "text": leaf("s"), "bool": leaf("b"), "date": leaf("e"),
    "time": leaf("t"), "instant": leaf("z"),
}  # fmt: skip
CHOICES = ["coalesce", "greatest", "least", "nullif", "case"]
COMPARED = ["int", "float", "decimal", "text", "bool", "date", "time", "instant"]


@st.composite
def expressions(draw: st.DrawFn, kind: str, depth: int) -> Expression:
    if depth == 0 or kind == "small" or draw(st.integers(0, 4)) == 0:
        return draw(LEAVES[kind])

    def part(kind: str) -> Expression:
        return draw(expressions(kind, depth - 1))

    function = draw(st.sampled_from([*FUNCTIONS[kind], *(CHOICES if kind != "decimal" else [])]))
    try:
        return build(draw, kind, function, part)
    except TypeMismatch:
        assume(False)
        raise


FUNCTIONS = {
    "int": ["+", "-", "*", "%", "negate", "abs", "sign", "floor", "ceil", "round", "length", "part", "cast"],
    "float": ["+", "-", "*", "/", "%", "negate", "abs", "floor", "ceil", "round", "cast"],
    "decimal": ["+", "-", "*", "%", "negate", "abs", "floor", "ceil", "round", "cast", "mixed"],
    "text": ["lower", "upper", "trim", "ltrim", "rtrim", "substring", "concat", "||", "replace", "cast"],
    "bool": ["=", "<>", "<", "<=", ">", ">=", "in", "and", "or", "not", "is_null", "like", "starts_with", "cast"],
    "date": ["cast"],
    "time": ["cast", "+", "-"],
    "instant": ["cast", "+", "-"],
}


def build(draw: st.DrawFn, kind: str, function: str, part: Any) -> Expression:
    if function in ("coalesce", "greatest", "least"):
        return call(function, *(part(kind) for _ in range(draw(st.integers(1, 3)))))
    if function == "nullif":
        return call(function, part(kind), part(kind))
    if function == "case":
        return call(function, part("bool"), part(kind), part("bool"), part(kind), part(kind))
    if function == "cast":
        return cast(*draw_cast(draw, kind, part))
    if function == "mixed":
        return call(draw(st.sampled_from("+-*")), part("decimal"), draw(LEAVES["int"]))
    if function == "part":
        name = draw(st.sampled_from(["year", "month", "day", "hour", "minute", "second"]))
        kinds = ["time", "instant"] if name in ("hour", "minute", "second") else ["date", "time", "instant"]
        return call(name, part(draw(st.sampled_from(kinds))))
    if function == "round":
        digits = draw(st.none() | st.integers(-20, 20)) if kind != "decimal" else draw(st.integers(-4, 5))
        return call(function, part(kind), *([] if digits is None else [Literal(digits, pa.int64())]))
    if function in ("=", "<>", "<", "<=", ">", ">=", "in", "is_null"):
        operand = draw(st.sampled_from(COMPARED))
        count = {"is_null": 1, "in": draw(st.integers(2, 4))}.get(function, 2)
        return call(function, *(part(operand) for _ in range(count)))
    if function == "like":
        return call(function, part("text"), Literal(draw(st.sampled_from(PATTERNS)), pa.string()))
    if function == "substring":
        bounds = [draw(LEAVES["small"]) for _ in range(draw(st.integers(1, 2)))]
        return call(function, part("text"), *bounds)
    if kind in ("time", "instant"):
        span = datetime.timedelta(microseconds=draw(st.sampled_from([1, -1, 86_400_000_000, 123_456_789_012])))
        return call(function, part(kind), Literal(span, pa.duration("us")))
    operand = {"length": "text", "starts_with": "text", "sign": draw(st.sampled_from(["int", "float", "decimal"]))}
    count = {"replace": 3, "concat": draw(st.integers(1, 3))}.get(function, 2 if function in TWO_OPERANDS else 1)
    return call(function, *(part(operand.get(function, kind)) for _ in range(count)))


TWO_OPERANDS = ("+", "-", "*", "/", "%", "and", "or", "||", "starts_with")


def draw_cast(draw: st.DrawFn, kind: str, part: Any) -> tuple[Expression, pa.DataType]:
    sources = {
        "int": ["int", "float", "decimal", "text", "bool"],
        "float": ["int", "float", "text", "bool"],
        "decimal": ["int", "float", "decimal", "text", "bool"],
        "text": ["int", "float", "decimal", "bool", "date", "time", "instant"],
        "bool": ["text"],
        "date": ["text", "time"],
        "time": ["text", "date", "time", "instant"],
        "instant": ["text", "time", "instant"],
    }
    targets = {
        "int": [pa.int64(), pa.int32(), pa.int8(), pa.uint64(), pa.uint8()],
        "float": [pa.float64(), pa.float32()],
        "decimal": [pa.decimal128(9, 3), pa.decimal128(20, 2), pa.decimal128(38, 5), pa.decimal128(5, 0)],
        "text": [pa.string()],
        "bool": [pa.bool_()],
        "date": [pa.date32()],
        "time": [pa.timestamp("us"), pa.timestamp("s"), pa.timestamp("ms")],
        "instant": [pa.timestamp("us", "UTC")],
    }
    source, target = draw(st.sampled_from(sources[kind])), draw(st.sampled_from(targets[kind]))
    argument = part(source)
    if kind == "float" and draw(st.booleans()):
        argument = draw(LEAVES["decimal"])
    if kind in ("date", "time", "instant") and source == "text":
        target = {"time": pa.timestamp("us")}.get(kind, target)
    return argument, target


def sql_type(data_type: pa.DataType) -> str:
    if pa.types.is_decimal(data_type):
        return f"DECIMAL({data_type.precision},{data_type.scale})"
    return "INTERVAL" if pa.types.is_duration(data_type) else SQL_TYPES[data_type]


def fits_duckdb(expression: Expression) -> bool:
    """Whether all decimals meet within DuckDB's 38 digits; beyond, it turns to doubles."""
    types = [argument.type for argument in expression.arguments if pa.types.is_decimal(argument.type)]
    if types and max(t.precision - t.scale for t in types) + max(t.scale for t in types) > 38:
        return False
    return all(fits_duckdb(argument) for argument in expression.arguments)


def sql(expression: Expression) -> str:
    """The expression as DuckDB's SQL, errors as NULL."""
    if isinstance(expression, Column):
        return expression.name
    if isinstance(expression, Literal):
        value = expression.value
        if isinstance(value, datetime.timedelta):
            return f"to_microseconds({value // datetime.timedelta(microseconds=1)})"
        text = "NULL" if value is None else "'" + str(value).replace("'", "''") + "'"
        return f"CAST({text} AS {sql_type(expression.type)})"
    if isinstance(expression, Cast):
        if pa.types.is_floating(expression.argument.type) and pa.types.is_string(expression.type):
            # DuckDB shows the sign of NaN.
            return f"replace(CAST({sql(expression.argument)} AS VARCHAR), '-nan', 'nan')"
        return f"TRY_CAST({sql(expression.argument)} AS {sql_type(expression.type)})"
    assert isinstance(expression, Call)
    name, operands = expression.function, [sql(operand) for operand in expression.operands]
    integer = pa.types.is_integer(expression.type)
    if name == "negate":
        return f"TRY_CAST(-({operands[0]}::HUGEINT) AS BIGINT)" if integer else f"TRY(-({operands[0]}))"
    if name == "%" and integer:
        # DuckDB refuses the least BIGINT by -1.
        return f"TRY_CAST(({operands[0]}::HUGEINT % {operands[1]}::HUGEINT) AS BIGINT)"
    if name in ("floor", "ceil") and integer:
        return operands[0]
    if name == "round":
        return f"TRY(round({operands[0]}, {expression.operands[1].value if len(operands) == 2 else 0}))"
    if name == "power":
        a, b = operands
        undefined = f"({a} = 0 AND {b} < 0) OR ({a} < 0 AND {b} <> floor({b}))"
        return f"CASE WHEN {undefined} THEN NULL ELSE power({a}, {b}) END"
    if name in ("+", "-", "*") and pa.types.is_decimal(expression.type):
        # DuckDB does not go beyond 18 digits for operands that have not more.
        wide = f"CAST({operands[0]} AS DECIMAL(38,{expression.operands[0].type.scale}))"
        return f"TRY_CAST(TRY({wide} {name} {operands[1]}) AS {sql_type(expression.type)})"
    if name in ("and", "or", "like", "=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "||"):
        return f"TRY({operands[0]} {name} {operands[1]})"
    if name == "not":
        return f"(NOT {operands[0]})"
    if name == "is_null":
        return f"({operands[0]} IS NULL)"
    if name == "in":
        return f"({operands[0]} IN ({', '.join(operands[1:])}))"
    if name == "case":
        branches = zip(operands[:-1:2], operands[1::2], strict=True)
        return f"CASE {' '.join(f'WHEN {c} THEN {v}' for c, v in branches)} ELSE {operands[-1]} END"
    return f"TRY({name}({', '.join(operands)}))"


@pytest.fixture(scope="module")
def database() -> Any:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'; SET threads = 1; SET ieee_floating_point_ops = false")
        connection.execute("SET error_on_division_by_zero = false")
        yield connection


def check(database: Any, expression: Expression, table: pa.Table) -> None:
    assume(fits_duckdb(expression))
    arrays = {name: table.column(name).combine_chunks() for name in table.column_names}
    result = evaluate(expression, lambda c: arrays[c.name], table.num_rows)
    result.validate(full=True)
    assert result.type == expression.type
    database.register("input", table)
    reference = database.sql(f"SELECT {sql(expression)} FROM input").to_arrow_table().column(0).combine_chunks()
    for row, (ours, theirs) in enumerate(zip(plain(result), plain(reference), strict=True)):
        assert alike(ours, theirs), f"row {row}: {ours!r} != {theirs!r}\n{expression}\n{sql(expression)}"
    if pa.types.is_boolean(expression.type):
        found = truth(expression, lambda c: arrays[c.name], table.num_rows)
        assert found.tolist() == [value is True for value in result.to_pylist()]


def plain(array: pa.Array) -> list[Any]:
    """The values; timestamps, which may lie beyond Python's calendar, as integers and their type."""
    if pa.types.is_timestamp(array.type):
        return [None if tick is None else (tick, str(array.type)) for tick in array.view(pa.int64()).to_pylist()]
    return array.to_pylist()


def alike(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return (math.isnan(ours) and math.isnan(theirs)) or ours == theirs or math.isclose(ours, theirs, rel_tol=1e-14)
    return type(ours) is type(theirs) and bool(ours == theirs)


LIMITS = settings(
    derandomize=True, deadline=None, max_examples=100, suppress_health_check=list(HealthCheck), database=None
)


@pytest.mark.parametrize("kind", COMPARED)
def test_expressions_give_what_duckdb_gives(database: Any, kind: str) -> None:
    @LIMITS
    @given(expressions(kind, 3), tables())
    def compare(expression: Expression, table: pa.Table) -> None:
        check(database, expression, table)

    compare()


@LIMITS
@given(
    st.sampled_from(["sqrt", "ln", "exp", "power"]), expressions("float", 1), expressions("float", 1), tables()
)  # fmt: skip
def test_functions_of_doubles_give_what_duckdb_gives(
    database: Any, function: str, left: Expression, right: Expression, table: pa.Table
) -> None:
    check(database, call(function, *([left, right] if function == "power" else [left])), table)
