"""Keys as codes: equal keys always agree, exact types never confuse two keys, order codes keep the order."""

from __future__ import annotations

import datetime
import itertools
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.engine.codes import combine_codes, encode, has_order_codes, is_exact, order_codes, values_of_order_codes

examples = settings(derandomize=True, deadline=None, max_examples=60, database=None)

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
FLOATS = [
    -math.inf, -1.7976931348623157e308, -1e20, -2.0, -1.0, -2.2250738585072014e-308, -5e-324, -0.0, 0.0, 5e-324,
    2.2250738585072014e-308, 0.5, 1.0, 1.0 + 2**-52, 1e20, 1.7976931348623157e308, math.inf, math.nan,
]  # fmt: skip


def decimals(digits: int, scale: int) -> list[Decimal]:
    top, unit = (Decimal(f"{number}E-{scale}") for number in (10**digits - 1, 1))
    return [top.copy_negate(), Decimal(-1), unit.copy_negate(), Decimal(0), unit, Decimal(1), top]


VALUES: dict[pa.DataType, list[Any]] = {
    pa.int8(): [-128, -1, 0, 1, 127],
    pa.int16(): [-(2**15), -1, 0, 1, 2**15 - 1],
    pa.int32(): [-(2**31), -1, 0, 1, 2**31 - 1],
    pa.int64(): [INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX],
    pa.uint8(): [0, 1, 127, 128, 255],
    pa.uint16(): [0, 1, 2**15 - 1, 2**15, 2**16 - 1],
    pa.uint32(): [0, 1, 2**31 - 1, 2**31, 2**32 - 1],
    pa.uint64(): [0, 1, 2**63 - 1, 2**63, 2**64 - 1],
    pa.bool_(): [False, True],
    pa.float16(): [np.float16(v) for v in (-math.inf, -65504, -1, -0.0, 0.0, 0.5, 65504, math.inf, math.nan)],
    pa.float32(): [-math.inf, -1e38, -1.0, -1e-45, -0.0, 0.0, 1e-45, 0.5, 3e38, math.inf, math.nan],
    pa.float64(): FLOATS,
    pa.date32(): [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(1970, 1, 1), datetime.date.max],
    pa.date64(): [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(1970, 1, 1), datetime.date.max],
    pa.time32("ms"): [datetime.time(0), datetime.time(0, 0, 0, 1000), datetime.time(23, 59, 59)],
    pa.time64("us"): [datetime.time(0), datetime.time(0, 0, 0, 1), datetime.time(23, 59, 59)],
    pa.timestamp("s"): [-1, 0, 1, INT64_MAX],
    pa.timestamp("us"): [INT64_MIN, -1, 0, 1, INT64_MAX],
    pa.timestamp("ns", "UTC"): [INT64_MIN, -1, 0, 1, INT64_MAX],
    pa.duration("us"): [INT64_MIN, -1, 0, 1, INT64_MAX],
    pa.decimal128(5, 2): decimals(5, 2),
    pa.decimal128(18, 4): decimals(18, 4),
    pa.decimal128(19, 0): decimals(19, 0),
    pa.decimal128(38, 10): decimals(38, 10),
    pa.decimal256(60, 5): decimals(60, 5),
    pa.string(): ["", "a", "b", "ab", "a\0", "\0", "12345678", "123456789", "x" * 100, "ö"],
    pa.large_string(): ["", "a", "b", "ab", "a\0", "12345678", "123456789", "ö"],
    pa.binary(): [b"", b"\0", b"\0\0", b"a", b"\0" * 8, b"\0" * 9, b"\xff" * 16],
    pa.large_binary(): [b"", b"\0", b"\0\0", b"a", b"\xff" * 16],
    pa.binary(3): [b"\0\0\0", b"abc", b"abd", b"\xff\xff\xff"],
}  # fmt: skip
EXACT = [t for t in VALUES if not (pa.types.is_string(t) or pa.types.is_large_string(t) or "binary" in str(t))]
EXACT = [t for t in EXACT if not (pa.types.is_decimal(t) and t.precision > 18)]
ORDERED = [t for t in EXACT if t != pa.uint64()]


def values_equal(left: Any, right: Any) -> bool:
    """NaN equals NaN; NULL is no value."""
    return bool(left == right) or (left != left and right != right)


def array_of(values: list[Any], data_type: pa.DataType) -> pa.Array:
    return pa.array(values, data_type)


def hidden_inside(array: pa.Array) -> pa.Array:
    """The same array as a slice of a longer one."""
    return pa.concat_arrays([array[-1:], array, array[:1]]).slice(1, len(array))


@pytest.mark.parametrize("data_type", VALUES, ids=str)
def test_equal_keys_have_equal_codes_and_different_keys_here_different_ones(data_type):
    values = VALUES[data_type]
    codes, valid = encode(array_of(values, data_type))
    assert codes.dtype == np.int64
    assert valid is None
    for (i, left), (j, right) in itertools.product(enumerate(values), repeat=2):
        assert (codes[i] == codes[j]) == values_equal(left, right), (left, right)


@pytest.mark.parametrize("data_type", VALUES, ids=str)
def test_a_slice_has_the_codes_of_its_values(data_type):
    values = VALUES[data_type]
    array = array_of([*values, None, *values], data_type)
    expected, _ = encode(array)
    for start, length in [(0, 3), (1, len(values)), (len(values) - 1, 3), (len(array) - 1, 1), (2, 0)]:
        codes, valid = encode(array.slice(start, length))
        assert codes.tolist() == expected[start : start + length].tolist()
        is_there = array.is_valid().to_pylist()[start : start + length]
        assert (np.ones(length, bool) if valid is None else valid).tolist() == is_there
    # One by one, and each as a single element array of its own.
    for value, code in zip(values, expected, strict=False):
        assert encode(array_of([value], data_type))[0].tolist() == [code]


@pytest.mark.parametrize("data_type", VALUES, ids=str)
def test_the_codes_of_nulls_are_zero_and_flagged(data_type):
    value = VALUES[data_type][-1]
    for array in (array_of([None, value, None], data_type), hidden_inside(array_of([None, value, None], data_type))):
        codes, valid = encode(array)
        assert valid is not None
        assert valid.tolist() == [False, True, False]
        assert codes[0] == codes[2] == 0
        assert codes[1] == encode(array_of([value], data_type))[0][0]
    codes, valid = encode(pa.nulls(3, data_type))
    assert codes.tolist() == [0, 0, 0]
    assert valid is not None
    assert not valid.any()


@pytest.mark.parametrize("data_type", [*VALUES, pa.null()], ids=str)
def test_no_values_have_no_codes(data_type):
    for array in (pa.array([], data_type), pa.nulls(3, data_type).slice(1, 0)):
        codes, _ = encode(array)
        assert codes.shape == (0,)
        assert codes.dtype == np.int64


def test_a_column_of_type_null_is_all_null():
    codes, valid = encode(pa.nulls(3))
    assert codes.tolist() == [0, 0, 0]
    assert valid is not None
    assert not valid.any()


@pytest.mark.parametrize("data_type", VALUES, ids=str)
def test_exactness_is_claimed_for_the_types_whose_codes_are_one_to_one(data_type):
    assert is_exact(data_type) == (data_type in EXACT)


@pytest.mark.parametrize("signalling", [False, True], ids=["quiet", "signalling"])
def test_all_bit_patterns_of_nan_are_one_key(signalling):
    patterns = [0x7FF8000000000000, 0x7FF8000000000001, 0x7FFFFFFFFFFFFFFF, 0xFFF8000000000000, 0xFFFFFFFFFFFFFFFF]
    if signalling:
        patterns += [0x7FF0000000000001, 0x7FF7FFFFFFFFFFFF, 0xFFF0000000000001]
    floats = pa.Array.from_buffers(pa.float64(), len(patterns), [None, pa.py_buffer(np.array(patterns, np.uint64))])
    assert len(set(encode(floats)[0].tolist())) == 1
    assert len(set(order_codes(floats)[0].tolist())) == 1


@pytest.mark.parametrize("data_type", ORDERED, ids=str)
def test_order_codes_keep_the_order_of_the_values(data_type):
    values = VALUES[data_type]  # written down in order, NaN last
    for array in (array_of(values, data_type), hidden_inside(array_of(values, data_type))):
        codes, valid = order_codes(array)
        assert valid is None
        for (i, left), (j, right) in itertools.combinations(enumerate(values), 2):
            assert (codes[i] == codes[j]) == values_equal(left, right), (left, right)
            assert codes[i] <= codes[j], (left, right)


@pytest.mark.parametrize("data_type", [*VALUES, pa.null()], ids=str)
def test_order_codes_are_claimed_for_exact_types_that_fit_into_signed_codes(data_type):
    assert has_order_codes(data_type) == (data_type in ORDERED)


@pytest.mark.parametrize("data_type", ORDERED, ids=str)
def test_values_come_back_from_their_order_codes(data_type):
    array = array_of([*VALUES[data_type], None], data_type)
    codes, valid = order_codes(array)
    back = values_of_order_codes(codes, valid, data_type)
    back.validate(full=True)
    assert back.type == data_type
    if pa.types.is_floating(data_type):
        assert all(
            values_equal(a, b) for a, b in zip(back.to_pylist(), array.to_pylist(), strict=True) if b is not None
        )
        assert back.is_valid().equals(array.is_valid())
    else:
        assert back.equals(array)


@examples
@given(st.lists(st.floats(width=64), min_size=1, max_size=40))
def test_order_codes_of_floats_sort_as_the_floats_do(values):
    codes, _ = order_codes(pa.array(values, pa.float64()))
    rank = [(math.isnan(v), 0.0 if math.isnan(v) else v) for v in values]
    for i, j in itertools.combinations(range(len(values)), 2):
        assert (codes[i] < codes[j]) == (rank[i] < rank[j])
        assert (codes[i] == codes[j]) == (rank[i] == rank[j])


@examples
@given(
    st.lists(st.one_of(st.none(), st.binary(max_size=20)), max_size=30),
    st.integers(0, 5),
    st.sampled_from([pa.binary(), pa.large_binary(), pa.string(), pa.large_string()]),
)
def test_codes_of_text_and_binary_depend_on_nothing_but_the_bytes(values, start, data_type):
    if "string" in str(data_type):
        values = [None if v is None else v.hex() for v in values]
    array = pa.array(values, data_type).slice(min(start, len(values)))
    codes, valid = encode(array)
    by_value: dict[Any, int] = {}
    for value, code in zip(array.to_pylist(), codes.tolist(), strict=True):
        assert by_value.setdefault(value, code) == code
    assert (valid is None) == (None not in array.to_pylist())
    # 64 bits: no collision among so few.
    assert len({code for value, code in by_value.items() if value is not None}) == len(set(by_value) - {None})


@examples
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(-3, 3)), max_size=30))
def test_the_combined_code_depends_on_every_part_and_on_their_order(keys):
    parts = [np.array([key[i] for key in keys], np.int64) for i in range(3)]
    codes = combine_codes(parts)
    by_key: dict[Any, int] = {}
    for key, code in zip(keys, codes.tolist(), strict=True):
        assert by_key.setdefault(key, code) == code
    assert len(set(by_key.values())) == len(by_key)


def test_the_combined_code_of_one_part_is_the_part():
    part = np.array([5, -1, INT64_MIN])
    assert combine_codes([part]).tolist() == part.tolist()
