"""The functions of text, which count characters from 1."""

from __future__ import annotations

import operator
import re
import unicodedata
from collections.abc import Callable
from typing import Any

from midstream.testing.brute_force.bound import (
    ANY_NUMBER,
    Bound,
    Function,
    any_null_type,
    meet,
    null,
    relations_of,
    strict,
)
from midstream.testing.brute_force.syntax import BruteForceError
from midstream.testing.brute_force.value_types import BOOLEAN, INTEGER, TEXT, Type

__all__ = ["TEXT_FUNCTIONS"]


def _text(kind: Type, function: Callable[..., Any], *numbers: int) -> Callable[..., Bound]:
    """A function of texts; the arguments at the positions `numbers` are integers."""

    def bind(*arguments: Bound) -> Bound:
        for index, argument in enumerate(arguments):
            wanted = "integer" if index in numbers else "text"
            if argument.type.kind not in (wanted, "null"):
                raise BruteForceError(f"a function of texts takes {wanted}, not {argument.type.kind}")
        return strict(kind, function, *arguments)

    return bind


def _concatenate(left: Bound, right: Bound) -> Bound:
    met = meet(left, right)
    if met[0].type.kind not in ("text", "null"):
        raise BruteForceError("|| takes texts")
    return strict(met[0].type, operator.add, *met)


def _concat(*arguments: Bound) -> Bound:
    _text(TEXT, str)(*arguments)
    evaluators = [argument.evaluate for argument in arguments]
    return Bound(TEXT, lambda rows: "".join(e(rows) or "" for e in evaluators), relations_of(arguments))


def _substring(text: str, start: int, length: int | None = None) -> str:
    begin = len(text) + start if start < 0 else start - 1
    end = len(text) if length is None else begin + length
    if end < begin and length is not None:
        begin, end = end, begin
    return text[max(begin, 0) : max(end, 0)]


def _like(subject: Bound, pattern: Bound) -> Bound:
    if not pattern.literal:
        raise BruteForceError("the pattern of LIKE is a constant")
    if any_null_type((subject, pattern)):
        return null(BOOLEAN)
    parts = {"%": ".*", "_": "."}
    expression = "".join(parts.get(character) or re.escape(character) for character in pattern.evaluate(()))
    matches = re.compile(expression, re.DOTALL).fullmatch
    return _text(BOOLEAN, lambda text: matches(text) is not None)(subject)


def _change_case(change: Callable[[str], str]) -> Callable[[str], str]:
    """Case by case mapping of single characters, so that a text keeps its length."""

    def of_character(character: str) -> str:
        if character == "ß":
            return "ẞ" if change("a") == "A" else "ß"
        changed = change(character)
        return changed if len(changed) == 1 else changed[0] if character == "İ" else character

    return lambda text: "".join(map(of_character, text))


def _trim(left: bool, right: bool) -> Callable[[str], str]:
    def cut(text: str) -> str:
        begin, end = 0, len(text)
        while left and begin < end and unicodedata.category(text[begin]) == "Zs":
            begin += 1
        while right and begin < end and unicodedata.category(text[end - 1]) == "Zs":
            end -= 1
        return text[begin:end]

    return cut


TEXT_FUNCTIONS: dict[str, Function] = {
    "||": Function(2, 2, _concatenate),
    "CONCAT": Function(1, ANY_NUMBER, _concat),
    "LOWER": Function(1, 1, _text(TEXT, _change_case(str.lower))),
    "UPPER": Function(1, 1, _text(TEXT, _change_case(str.upper))),
    "TRIM": Function(1, 1, _text(TEXT, _trim(True, True))),
    "LTRIM": Function(1, 1, _text(TEXT, _trim(True, False))),
    "RTRIM": Function(1, 1, _text(TEXT, _trim(False, True))),
    "LENGTH": Function(1, 1, _text(INTEGER, len)),
    "SUBSTRING": Function(2, 3, _text(TEXT, _substring, 1, 2)),
    "REPLACE": Function(3, 3, _text(TEXT, lambda text, old, new: text.replace(old, new) if old else text)),
    "STARTS_WITH": Function(2, 2, _text(BOOLEAN, str.startswith)),
    "LIKE": Function(2, 2, _like),
}
