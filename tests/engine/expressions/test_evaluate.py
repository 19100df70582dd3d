"""Evaluation as such: types and lengths, sharing, literals, truth; and logic."""

from __future__ import annotations

import itertools
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from midstream.algebra.expressions import Column, Literal
from midstream.algebra.functions import FUNCTIONS, call, cast
from midstream.engine.expressions.evaluate import _KERNELS, evaluate, truth
from tests.engine.expressions.evaluated import columns_of, run

TYPES = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
    pa.float16(), pa.float32(), pa.float64(), pa.decimal128(5, 2), pa.decimal128(38, 10), pa.decimal256(60, 4),
    pa.decimal128(5, -2), pa.decimal32(5, 2), pa.decimal64(12, 3),
    pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3),
    pa.bool_(), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.duration("ms"), pa.duration("ns"),
    pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("us", "UTC"),
    pa.timestamp("ms", "Europe/Berlin"), pa.null(),
]  # fmt: skip
A = Column("", "a", pa.int64())
B = Column("", "b", pa.bool_())
C = Column("", "c", pa.bool_())


def some_values(data_type: pa.DataType, length: int) -> pa.Array:
    """Values of any type, every third one NULL."""
    if pa.types.is_null(data_type):
        return pa.nulls(length)
    if pa.types.is_boolean(data_type):
        values = [i % 2 == 0 for i in range(length)]
    elif pa.types.is_decimal(data_type):
        values = [Decimal(i * 100) for i in range(length)]
    elif pa.types.is_floating(data_type):
        values = [np.dtype(data_type.to_pandas_dtype()).type(i - 1) for i in range(length)]
    elif pa.types.is_date64(data_type):
        values = [i * 86_400_000 for i in range(length)]
    elif getattr(data_type, "unit", None) == "ns":
        values = [i * 1000 for i in range(length)]  # whole microseconds, which Python can show
    elif pa.types.is_integer(data_type) or pa.types.is_temporal(data_type):
        values = list(range(length))
    elif pa.types.is_fixed_size_binary(data_type):
        values = [b"%03d" % i for i in range(length)]
    else:
        values = [str(i) for i in range(length)]
    return pa.array([None if i % 3 == 2 else value for i, value in enumerate(values)], data_type)


def test_every_function_has_a_kernel() -> None:
    assert set(_KERNELS) == set(FUNCTIONS)


@pytest.mark.parametrize("data_type", TYPES, ids=str)
@pytest.mark.parametrize("length", [0, 1, 7])
def test_a_column_evaluates_to_itself(data_type: pa.DataType, length: int) -> None:
    array = some_values(data_type, length)
    assert evaluate(Column("r", "x", data_type), lambda column: array, length).equals(array)


@pytest.mark.parametrize("data_type", TYPES, ids=str)
@pytest.mark.parametrize("length", [0, 1, 7])
def test_every_type_is_compared_and_chosen_from(data_type: pa.DataType, length: int) -> None:
    array = some_values(data_type, length)
    for function in ("=", "<>", "<", "<=", ">", ">=", "in"):
        expected = None if pa.types.is_null(data_type) else function not in ("<>", "<", ">")
        result = run(function, array, array)
        assert result == [None if value is None else expected for value in array.to_pylist()]
    for function in ("coalesce", "greatest", "least"):
        assert run(function, array, array) == array.to_pylist()
    nothing = Literal(None, data_type)
    for function in ("coalesce", "greatest", "least"):
        assert run(function, nothing, array) == array.to_pylist()
    assert run("nullif", array, array) == [None] * length
    assert run("nullif", array, nothing) == array.to_pylist()
    assert run("is_null", array) == [value is None for value in array.to_pylist()]
    condition = pa.array([i % 2 == 0 for i in range(length)], pa.bool_())
    expected = [value if i % 2 == 0 else None for i, value in enumerate(array.to_pylist())]
    assert run("case", condition, array, nothing) == expected


@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_every_type_is_searched_in_a_list(data_type: pa.DataType) -> None:
    array = some_values(data_type, 5) if data_type != pa.bool_() else pa.array([False, True, None, False, False])
    if pa.types.is_null(data_type):
        assert run("in", array, Literal(None, data_type)) == [None] * 5
        return
    first, nothing = Literal(array[1].as_py(), data_type), Literal(None, data_type)
    assert run("in", array, first) == [False, True, None, False, False]
    assert run("in", array, first, nothing) == [None, True, None, None, None]
    assert run("in", array, nothing) == [None] * 5


def test_literals_fill_the_batch() -> None:
    for literal in (Literal(5, pa.int64()), Literal(None, pa.string()), Literal(Decimal("1.5"), pa.decimal128(5, 2))):
        assert evaluate(literal, columns_of({}), 3).to_pylist() == [literal.value] * 3
        assert evaluate(literal, columns_of({}), 0).type == literal.type
    assert evaluate(Literal(None, pa.null()), columns_of({}), 2).equals(pa.nulls(2))


def test_each_column_is_fetched_once() -> None:
    fetched: list[str] = []

    def column(wanted: Column) -> pa.Array:
        fetched.append(wanted.name)
        return pa.array([1, 2, 3])

    again = Column("", "a", pa.int64())
    predicate = call("and", call("<", A, call("+", again, again)), call("<", A, Literal(9, pa.int64())))
    assert evaluate(predicate, column, 3).to_pylist() == [True, True, True]
    assert truth(predicate, column, 3).tolist() == [True, True, True]
    assert fetched == ["a", "a"]


def test_columns_of_two_relations_are_told_apart() -> None:
    left, right = Column("l", "x", pa.int64()), Column("r", "x", pa.int64())
    arrays = {"l": pa.array([1, 5]), "r": pa.array([2, 3])}
    assert truth(call("<", left, right), lambda column: arrays[column.relation], 2).tolist() == [True, False]


LOGIC = [True, False, None]
PAIRS = list(itertools.product(LOGIC, LOGIC))


def test_logic_is_three_valued() -> None:
    left, right = pa.array([a for a, _ in PAIRS]), pa.array([b for _, b in PAIRS])
    assert run("and", left, right) == [
        False if a is False or b is False else None if None in (a, b) else True for a, b in PAIRS
    ]
    assert run("or", left, right) == [
        True if a is True or b is True else None if None in (a, b) else False for a, b in PAIRS
    ]
    assert run("not", pa.array(LOGIC)) == [False, True, None]


@pytest.mark.parametrize("outer", ["and", "or"])
@pytest.mark.parametrize("inner", ["and", "or", "=", "<"])
@pytest.mark.parametrize("negated", [False, True])
def test_truth_is_where_evaluate_gives_true(outer: str, inner: str, negated: bool) -> None:
    arrays = {"b": pa.array([a for a, _ in PAIRS]), "c": pa.array([b for _, b in PAIRS])}
    for right in (B, Literal(True, pa.bool_()), Literal(None, pa.bool_())):
        predicate = call(outer, call("not", call(inner, B, C)), call("or", C, right))
        if negated:
            predicate = call("not", predicate)
        expected = [value is True for value in evaluate(predicate, columns_of(arrays), 9).to_pylist()]
        assert truth(predicate, columns_of(arrays), 9).tolist() == expected


def test_truth_of_literals_columns_and_comparisons_of_all_kinds() -> None:
    arrays = {"a": pa.array([1, None, 3]), "b": pa.array([True, None, False]), "s": pa.array(["x", None, "z"])}
    text = Column("", "s", pa.string())
    for predicate, expected in [
        (Literal(True, pa.bool_()), [True, True, True]),
        (Literal(None, pa.bool_()), [False, False, False]),
        (call("not", Literal(None, pa.bool_())), [False, False, False]),
        (B, [True, False, False]),
        (call("not", B), [False, False, True]),
        (call("=", A, Literal(None, pa.int64())), [False, False, False]),
        (call("not", call("=", A, Literal(None, pa.int64()))), [False, False, False]),
        (call("=", Literal(1, pa.int64()), Literal(1, pa.int64())), [True, True, True]),
        (call("<", Literal("a", pa.string()), Literal("A", pa.string())), [False, False, False]),
        (call("=", Literal(None, pa.null()), Literal(None, pa.null())), [False, False, False]),
        (call("<", text, Literal("z", pa.string())), [True, False, False]),
        (call("not", call("<", text, Literal("z", pa.string()))), [False, False, True]),
        (call("not", call("<", A, Literal(3, pa.int64()))), [False, False, True]),
        (call("is_null", A), [False, True, False]),
        (call("not", call("is_null", A)), [True, False, True]),
        (call("in", A, Literal(3, pa.int64()), Literal(None, pa.int64())), [False, False, True]),
    ]:
        found = truth(predicate, columns_of(arrays), 3)
        assert found.dtype == np.bool_
        assert found.tolist() == expected, predicate.text
        assert truth(predicate, columns_of({n: a.slice(0, 0) for n, a in arrays.items()}), 0).tolist() == []


def test_case_takes_the_first_true_branch_and_treats_null_as_not_true() -> None:
    first, second = pa.array([True, False, None, None]), pa.array([True, True, True, None])
    assert run("case", first, 1, second, 2, 3) == [1, 2, 2, 3]
    assert run("case", first, "one", Literal(None, pa.string())) == ["one", None, None, None]
    assert run("case", False, 1, second, 2, 3) == [2, 2, 2, 3]
    assert run("case", second, 1, True, 2, 3) == [1, 1, 1, 2]
    assert run("case", Literal(None, pa.null()), 1, Literal(None, pa.null())) == [None]


def test_a_branch_that_would_fail_harms_no_other() -> None:
    divisor = pa.array([0, 2])
    predicate = call("=", A, Literal(0, pa.int64()))
    safe = call("case", predicate, Literal(0.0, pa.float64()), call("/", Literal(1, pa.int64()), A))
    assert evaluate(safe, columns_of({"a": divisor}), 2).to_pylist() == [0.0, 0.5]


def test_coalesce_takes_the_first_value() -> None:
    assert run("coalesce", pa.array([1, None, None]), pa.array([7, 8, None]), 9) == [1, 8, 9]
    assert run("coalesce", pa.array([None, "a"])) == [None, "a"]


def test_nulls_without_a_type_take_part() -> None:
    nothing = pa.nulls(2)
    assert run("+", nothing, pa.array([1, 2])) == [None, None]
    assert run("and", nothing, pa.array([False, True])) == [False, None]
    assert run("||", nothing, pa.array(["a", "b"])) == [None, None]
    assert run("concat", nothing, pa.array(["a", "b"])) == ["a", "b"]
    assert run("abs", nothing) == [None, None]
    assert run("coalesce", nothing) == [None, None]


@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_truth_of_a_comparison_of_every_type(data_type: pa.DataType) -> None:
    array, column = some_values(data_type, 5), Column("", "x", data_type)
    valid = [value is not None for value in array.to_pylist()]
    for predicate, expected in [
        (call("<=", column, column), valid),
        (call("not", call("=", column, column)), [False] * 5),
    ]:
        assert truth(predicate, lambda _: array, 5).tolist() == expected


def test_cast_of_a_shared_expression_keeps_its_type() -> None:
    wide = cast(A, pa.decimal128(38, 2))
    assert evaluate(call("+", wide, wide), columns_of({"a": pa.array([1])}), 1).to_pylist() == [Decimal("2.00")]
