"""Functions of text."""

from __future__ import annotations

import pyarrow as pa
import pytest

from midstream.algebra.expressions import Literal
from tests.engine.expressions.evaluated import run

# (start, length, what DuckDB gives for 'hello')
CUTS = [
    (0, 2, "h"), (-2, 2, "lo"), (-10, 7, "he"), (2, None, "ello"), (-2, None, "lo"), (0, None, "hello"), (2, -1, "h"),
    (-2, -2, "el"), (4, -2, "el"), (1, 0, ""), (10, 2, ""), (-10, 2, ""), (-10, None, "hello"), (0, -1, ""),
    (-5, 2, "he"), (6, -2, "lo"), (10, -6, "lo"), (0, 0, ""), (-1, 1, "o"), (-1, -1, "l"), (-10, -2, ""),
    (-6, 2, "h"), (-3, 2, "ll"), (0, 1, ""), (7, -3, "lo"), (1, -3, ""), (-5, -2, ""), (-6, 3, "he"),
    (2, 2**63 - 1, "ello"), (2**63 - 1, 2**63 - 1, ""), (-(2**63), 5, ""), (3, -(2**63), "he"),
]  # fmt: skip


@pytest.mark.parametrize(("start", "length", "expected"), CUTS)
def test_substring_cuts_as_duckdb_does(start: int, length: int | None, expected: str) -> None:
    arguments = [start] if length is None else [start, length]
    for text, shown in (("hello", expected), ("hé😀lo", expected.replace("e", "é").replace("ll", "😀l"))):
        if "l" in expected and "ll" not in expected and text != "hello":
            continue
        texts = pa.array([text, None, text])
        assert run("substring", texts, *arguments) == [shown, None, shown]
        columns = [pa.array([argument] * 3) for argument in arguments]
        assert run("substring", texts, *columns) == [shown, None, shown]
        assert run("substring", text, *columns) == [shown] * 3


def test_substring_by_row() -> None:
    texts = pa.array(["hello", "a😀b", None, "", "xyz"])
    starts, lengths = pa.array([2, -2, 1, 1, None]), pa.array([3, 1, 1, 5, 2])
    assert run("substring", texts, starts, lengths) == ["ell", "😀", None, "", None]
    assert run("substring", texts, starts) == ["ello", "😀b", None, "", None]
    assert run("substring", texts, 2, lengths) == ["ell", "😀", None, "", "yz"]
    assert run("substring", pa.array(["abc"], pa.large_string()), pa.array([2])) == ["bc"]
    assert run("substring", pa.array([], pa.string()), pa.array([], pa.int64())) == []


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("abc", ["abc"], ["abcd", "xabc", "", "ABC"]),
        ("", [""], ["a"]),
        ("%", ["", "a", "a\nb"], []),
        ("%%", ["", "a"], []),
        ("a%", ["a", "abc", "a\n"], ["ba", ""]),
        ("%a", ["a", "cba", "\na"], ["ab", "a\n"]),
        ("%a%", ["a", "bab", "\na\n"], ["b", ""]),
        ("a%c", ["ac", "abc", "a\n\nc"], ["acb", "a"]),
        ("_", ["a", "é", "😀", "\n"], ["", "ab"]),
        ("a_c", ["abc", "a\nc", "a😀c", "a_c"], ["ac", "abbc"]),
        ("_%_", ["ab", "abc"], ["a", ""]),
        ("%_b", ["ab", "\nb", "aab"], ["b", "ba"]),
        ("a.c", ["a.c"], ["abc"]),
        ("a.%c_", ["a.xcy"], ["abxcy"]),
        ("%[x]%_", ["[x]y", "a[x]b"], ["x", "[x]"]),
        ("^_$", ["^a$"], ["a"]),
        (r"\_%d", [r"\ad"], ["_d", "ad"]),
        (r"\%", [r"\x", "\\"], ["%", "x"]),
        ("é_%", ["éa"], ["ea", "é"]),
        ("a b_%", ["a bc"], ["ab c"]),
        ("x\0_y%", ["x\0zy"], ["x0zy"]),
        ("(a|b)_*?+{1}%", ["(a|b)c*?+{1}"], ["ac"]),
    ],
)
def test_like(pattern: str, matching: list[str], others: list[str]) -> None:
    for data_type in (pa.string(), pa.large_string(), pa.string_view()):
        texts = pa.array([*matching, *others, None], data_type)
        expected = [True] * len(matching) + [False] * len(others) + [None]
        assert run("like", texts, pattern) == expected


def test_like_a_null_pattern_is_null() -> None:
    assert run("like", pa.array(["a"]), Literal(None, pa.string())) == [None]


def test_like_takes_patterns_of_any_length() -> None:
    assert run("like", pa.array(["a" * 100_000 + "b", "b", None]), "_" * 100_000 + "b") == [True, False, None]


def test_case_and_length() -> None:
    texts = pa.array(["Straße", "ÉÀ", "", None, "ıİ"])
    assert run("upper", texts) == ["STRAẞE", "ÉÀ", "", None, "Iİ"]
    assert run("lower", texts) == ["straße", "éà", "", None, "ıi"]
    assert run("length", pa.array(["aé😀", "", None])) == [3, 0, None]
    assert run("length", pa.array(["aé😀"], pa.large_string())) == [3]


def test_trim_removes_spaces_only() -> None:
    texts = pa.array(["  a b ", "\t a\n", "\u00a0a\u3000", "   ", None])
    assert run("trim", texts) == ["a b", "\t a\n", "a", "", None]
    assert run("ltrim", texts) == ["a b ", "\t a\n", "a\u3000", "", None]
    assert run("rtrim", texts) == ["  a b", "\t a\n", "\u00a0a", "", None]


def test_concat_skips_nulls_and_the_operator_does_not() -> None:
    left, right = pa.array(["a", None, None]), pa.array(["b", "c", None])
    assert run("concat", left, right, "!") == ["ab!", "c!", "!"]
    assert run("concat", left, right) == ["ab", "c", ""]
    assert run("concat", left) == ["a", "", ""]
    assert run("concat", left, Literal(None, pa.null())) == ["a", "", ""]
    assert run("||", left, right) == ["ab", None, None]
    assert run("||", left, "x") == ["ax", None, None]
    assert run("||", "x", left) == ["xa", None, None]


def test_replace() -> None:
    texts = pa.array(["aaa", "banana", "", None])
    assert run("replace", texts, "aa", "b") == ["ba", "banana", "", None]
    assert run("replace", texts, "an", "") == ["aaa", "ba", "", None]
    assert run("replace", texts, "", "x") == ["aaa", "banana", "", None]
    assert run("replace", texts, "a.", "x") == ["aaa", "banana", "", None]
    assert run("replace", texts, pa.array(["a", "", "x", "y"]), "-") == ["---", "banana", "", None]
    assert run("replace", texts, "a", pa.array(["1", None, "x", "y"])) == ["111", None, "", None]


def test_starts_with() -> None:
    texts = pa.array(["abc", "", "é😀x", None])
    assert run("starts_with", texts, "ab") == [True, False, False, None]
    assert run("starts_with", texts, "") == [True, True, True, None]
    assert run("starts_with", texts, pa.array(["abcd", "", "é😀", "a"])) == [False, True, True, None]
    assert run("starts_with", "é😀x", pa.array(["é", "e", None])) == [True, False, None]
