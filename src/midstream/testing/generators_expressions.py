"""Random expressions as CQL text, correct in type by construction.

The writer knows the kind of every column in scope and builds bottom-up, so every text it writes is a legal
query. It leaves out what the language does not fix: rounding of transcendental functions decides no
predicate, and arithmetic stays small unless overflow to NULL is the point (`big * big`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from midstream.testing.choices import Choices

__all__ = ["COMPARABLE", "LITERAL_KINDS", "ExpressionWriter", "ScopeColumn", "compatible"]

T = TypeVar("T")
_Choice: TypeAlias = Callable[[int], str]

# Kinds as expressions see them; "wide" is a decimal too wide to compute with, "approximate" may be off by
# rounding, and "nested" has no comparison.
LITERALS: dict[str, list[str]] = {
    "int": ["0", "1", "2", "3", "(-1)", "10"],
    "big": ["9007199254740993", "9007199254740992", "(-9007199254740993)"],
    "unsigned": ["0", "1", "9223372036854775807"],
    "float": ["0.0", "1.5", "(-2.5)", "0.25"],
    "decimal": ["CAST('0.10' AS DECIMAL(10,2))", "CAST('0.50' AS DECIMAL(10,2))", "CAST(7 AS DECIMAL(10,2))"],
    "text": ["''", "'a'", "'ab'", "'1'", "'it''s'", "'[NOW] -- x'", "'é'"],
    "boolean": ["TRUE", "FALSE"],
    "date": ["DATE '2020-02-29'", "DATE '1969-12-31'"],
    "moment": ["TIMESTAMP '2020-02-29 12:30:15'", "TIMESTAMP '2021-01-01 00:00:00'"],
}
LITERAL_KINDS = tuple(LITERALS)
COMPARABLE = (*LITERALS, "wide", "binary", "instant")

_EXACT_NUMBERS = frozenset({"int", "big", "unsigned", "decimal", "wide"})
_COMPATIBLE = [_EXACT_NUMBERS, frozenset({"int", "float", "decimal"}), frozenset({"date", "moment"})]


@dataclass(frozen=True)
class ScopeColumn:
    """A column an expression may use: how to write it, the kind of its values, its bare name."""

    text: str
    kind: str
    name: str = ""


def compatible(left: str, right: str) -> bool:
    """Whether values of the two kinds may be compared, with the same answer in every exact arithmetic."""
    if left == right:
        return left in COMPARABLE
    return any({left, right} <= family for family in _COMPATIBLE)


class ExpressionWriter:
    """Writes expressions over the columns of one SELECT block."""

    def __init__(self, choices: Choices, columns: Sequence[ScopeColumn]) -> None:
        self.columns = list(columns)
        self._choices = choices
        self._writers: dict[str, Callable[[int], list[_Choice]]] = {
            "int": self._integers,
            "big": self._big,
            "float": self._floats,
            "decimal": self._decimals,
            "text": self._texts,
            "boolean": lambda depth: [lambda below: f"({self.condition(below)})"],
            "date": lambda depth: self._casts(depth, "moment", "DATE"),
            "moment": lambda depth: self._casts(depth, "date", "TIMESTAMP"),
        }

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        return self._choices.pick(options)

    def chance(self, one_in: int) -> bool:
        """True about once in so many times."""
        return self._choices.chance(one_in)

    def of_kind(self, *kinds: str) -> list[str]:
        """The columns of these kinds."""
        return [column.text for column in self.columns if column.kind in kinds]

    def kinds(self) -> list[str]:
        """The kinds of which there is a column, each as often as it has one."""
        return [column.kind for column in self.columns]

    def leaf(self, kind: str) -> str:
        """A column of the kind, or a literal."""
        columns, literals = self.of_kind(kind), LITERALS.get(kind, [])
        if columns and (not literals or not self.chance(3)):
            return str(self.pick(columns))
        return str(self.pick(literals))

    def value(self, kind: str, depth: int) -> str:
        """An expression of the kind; there must be a column or a literal of it."""
        if depth <= 0 or self.chance(3):
            return self.leaf(kind)
        choices: list[_Choice] = [
            lambda below: self._case(kind, below),
            lambda below: self._nulls(kind, below),
        ]
        if kind in self._writers:
            # Written twice, so that the operators proper to the kind prevail.
            choices += self._writers[kind](depth) * 2
        return str(self.pick(choices)(depth - 1))

    def approximate(self) -> str:
        """A DOUBLE whose last digits depend on the mathematical library: to be shown, not compared."""
        number = self.leaf(self.pick(["int", "float"]))
        return str(self.pick([f"SQRT({number})", f"LN({number})", f"EXP({self.leaf('int')})", f"POWER({number}, 2)"]))

    def condition(self, depth: int) -> str:
        """A predicate."""
        if depth > 0 and self.chance(2):
            left, right = self.condition(depth - 1), self.condition(depth - 1)
            return str(self.pick([f"{left} AND {right}", f"({left} OR {right})", f"NOT ({left})"]))
        kinds = [kind for kind in self.kinds() if kind in COMPARABLE] or ["int"]
        kind = self.pick(kinds)
        left = self.value(kind, depth)
        forms_of: list[Callable[[], str]] = [
            lambda: self.comparison(left, kind, depth),
            lambda: self.comparison(left, kind, depth),
            lambda: f"{left} IS {self.pick(['', 'NOT '])}NULL",
            lambda: f"{left} {self.pick(['', 'NOT '])}IN ({', '.join(self._list(kind))})",
            lambda: f"{left} BETWEEN {self.leaf(kind)} AND {self.leaf(kind)}",
        ]
        if kind == "text":
            pattern = self.pick(["'a%'", "'%b'", "'_'", "'%'", "''", "'%[NOW]%'"])
            forms_of += [lambda: f"{left} {self.pick(['', 'NOT '])}LIKE {pattern}"]
            forms_of += [lambda: f"STARTS_WITH({left}, {self.leaf('text')})"]
        if self.of_kind("boolean"):
            forms_of.append(lambda: str(self.pick(self.of_kind("boolean"))))
        return str(self.pick(forms_of)())

    def comparison(self, left: str, kind: str, depth: int) -> str:
        """A comparison with an expression of this or a compatible kind."""
        others = [other for other in self.kinds() if compatible(kind, other)]
        right = self.value(self.pick([kind, *others]), depth - 1)
        return f"{left} {self.pick(['=', '<>', '!=', '<', '<=', '>', '>='])} {right}"

    def key_form(self, kind: str) -> str:
        """A template around a column of the kind that makes a key to group or join by; mostly the column itself."""
        forms = {
            "int": ["{} % 2", "{} + 1", "ABS({})"],
            "text": ["LOWER({})", "SUBSTRING({}, 1, 1)"],
            "date": ["YEAR({})"],
            "moment": ["EXTRACT(YEAR FROM {})"],
        }
        return str(self.pick(["{}"] * 5 + forms.get(kind, []) + ["COALESCE({0}, {0})"]))

    def _list(self, kind: str) -> list[str]:
        items = [self.leaf(kind) for _ in range(self.pick([1, 2, 3]))]
        return [*items, "NULL"] if self.chance(5) else items

    def _case(self, kind: str, depth: int) -> str:
        condition, first, second = self.condition(depth), self.value(kind, depth), self.value(kind, depth)
        forms = [
            f"CASE WHEN {condition} THEN {first} ELSE {second} END",
            f"CASE WHEN {condition} THEN {first} END",
            f"IF({condition}, {first}, {second})",
        ]
        if self.of_kind("int"):
            subject = self.pick(self.of_kind("int"))
            forms.append(f"CASE {subject} WHEN 0 THEN {first} WHEN 1 THEN {second} ELSE {first} END")
        return str(self.pick(forms))

    def _nulls(self, kind: str, depth: int) -> str:
        first, second = self.value(kind, depth), self.leaf(kind)
        forms = [f"COALESCE({first}, {second})", f"NULLIF({first}, {second})"]
        if kind in ("int", "text", "big"):
            forms += [f"GREATEST({first}, {second})", f"LEAST({first}, {second})"]
        return str(self.pick(forms if kind in COMPARABLE else forms[:1]))

    def _operators(self, kind: str, symbols: Sequence[str]) -> list[_Choice]:
        def infix(depth: int) -> str:
            text = f"{self.value(kind, depth)} {self.pick(symbols)} {self.value(kind, depth)}"
            return f"({text})" if self.chance(2) else text

        return [infix] * 4

    def _integers(self, depth: int) -> list[_Choice]:
        choices = self._operators("int", ["+", "-", "*", "%"])
        for function in ("ABS", "SIGN", "FLOOR", "CEIL", "ROUND", "-"):
            choices.append(lambda below, name=function: f"{name}({self.value('int', below)})")  # type: ignore[misc]
        choices.append(lambda below: f"MOD({self.value('int', below)}, {self.leaf('int')})")
        if self.of_kind("text"):
            choices.append(lambda below: f"LENGTH({self.value('text', below)})")
            choices.append(lambda below: f"CAST({self.leaf('text')} AS BIGINT)")
        if self.of_kind("boolean"):
            choices.append(lambda below: f"CAST({self.leaf('boolean')} AS INTEGER)")
        if self.of_kind("date", "moment", "instant"):
            column = self.pick(self.of_kind("date", "moment", "instant"))
            part = self.pick(["YEAR", "MONTH", "DAY"])
            choices.append(lambda below: self.pick([f"{part}({column})", f"EXTRACT({part} FROM {column})"]))
        if self.of_kind("moment", "instant"):
            column_of_time = self.pick(self.of_kind("moment", "instant"))
            choices.append(lambda below: f"{self.pick(['HOUR', 'MINUTE', 'SECOND'])}({column_of_time})")
        return choices

    def _big(self, depth: int) -> list[_Choice]:
        return [
            lambda below: f"({self.leaf('big')} + {self.leaf('int')})",
            lambda below: f"({self.leaf('big')} * {self.leaf('big')})",
            lambda below: f"-({self.leaf('big')})",
        ]

    def _floats(self, depth: int) -> list[_Choice]:
        choices = self._operators("float", ["+", "-", "*", "/"])
        for function in ("ABS", "FLOOR", "CEIL", "ROUND", "-"):
            choices.append(lambda below, name=function: f"{name}({self.value('float', below)})")  # type: ignore[misc]
        choices.append(lambda below: f"({self.value('int', 0)} / {self.value('int', 0)})")
        choices.append(lambda below: f"({self.leaf('int')} + {self.value('float', below)})")
        choices.append(lambda below: f"CAST({self.value('int', below)} AS DOUBLE)")
        return choices

    def _decimals(self, depth: int) -> list[_Choice]:
        # The right side is a leaf and products are few: a decimal has 38 digits at most.
        return [
            lambda below: f"({self.value('decimal', min(below, 1))} {self.pick('+-*')} {self.leaf('decimal')})",
            lambda below: f"({self.leaf('decimal')} {self.pick('+-')} {self.leaf('int')})",
            lambda below: f"{self.pick(['ABS', '-', 'FLOOR', 'CEIL'])}({self.leaf('decimal')})",
            lambda below: f"ROUND({self.leaf('decimal')}, 1)",
            lambda below: f"CAST({self.leaf('int')} AS DECIMAL(10,2))",
        ]

    def _texts(self, depth: int) -> list[_Choice]:
        choices: list[_Choice] = [
            lambda below: f"{self.pick(['LOWER', 'UPPER', 'TRIM', 'LTRIM', 'RTRIM'])}({self.value('text', below)})",
            lambda below: f"({self.value('text', below)} || {self.leaf('text')})",
            lambda below: f"SUBSTRING({self.value('text', below)}, {self.pick('12')}, {self.pick('012')})",
            lambda below: f"REPLACE({self.value('text', below)}, 'a', 'bb')",
            lambda below: f"CONCAT(COALESCE({self.leaf('text')}, ''), 'x')",
        ]
        if self.of_kind("int"):
            choices.append(lambda below: f"CAST({self.leaf('int')} AS VARCHAR)")
        return choices

    def _casts(self, depth: int, source: str, target: str) -> list[_Choice]:
        return [lambda below: f"CAST({self.leaf(source)} AS {target})"]
