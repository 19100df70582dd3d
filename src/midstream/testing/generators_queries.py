"""Random queries as CQL text: the query half of the generators.

A query is written top-down from a budget of streams, so that its widest join stays small enough to recompute
at every instant. Every block knows the kind of each column it gives; blocks joined by set operations agree on
their kinds first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from midstream.testing.choices import Choices
from midstream.testing.generators_data import Clock, DeclaredStream
from midstream.testing.generators_expressions import (
    COMPARABLE,
    LITERAL_KINDS,
    ExpressionWriter,
    ScopeColumn,
    compatible,
)

__all__ = ["CONDITIONS", "OPERATORS", "SET_OPERATORS", "WINDOWS", "QueryLimits", "QueryWriter"]

T = TypeVar("T")

OPERATORS = frozenset({"join", "subquery", "distinct", "aggregate", "union_all", "union", "except", "except_all"})
"""What a query may contain beside selection and projection."""
WINDOWS = frozenset({"range", "now", "unbounded", "slide", "none"})
"""Window kinds; "none" is a stream without a window, written only where the language allows it."""
CONDITIONS = frozenset({"equality", "theta", "cross"})
"""How joined streams may be connected."""

SET_OPERATORS = {"union_all": "UNION ALL", "union": "UNION", "except": "EXCEPT", "except_all": "EXCEPT ALL"}


@dataclass(frozen=True)
class QueryLimits:
    """What the writer may use."""

    operators: Collection[str] = OPERATORS
    windows: Collection[str] = WINDOWS
    conditions: Collection[str] = CONDITIONS
    max_streams: int = 6
    min_streams: int = 1
    emphasis: str = "language"


@dataclass
class _Relation:
    """A FROM item as text, and the columns it brings into scope."""

    text: str
    columns: list[ScopeColumn]


@dataclass
class QueryWriter:
    """Writes one query; `used` afterwards holds the streams it reads, `leaves` how many FROM items do so."""

    choices: Choices
    clock: Clock
    streams: Sequence[DeclaredStream]
    limits: QueryLimits
    used: set[str] = field(default_factory=set)
    leaves: int = 0
    _names: int = 0

    def query(self) -> str:
        """The text of a query."""
        budget = self._number(self.limits.min_streams, self.limits.max_streams)
        text, _ = self._query(budget, None, stateless=True, named=False)
        if self._chance(8):
            text = f"/* it's [NOW] */ {text} -- don't [NOW]"
        return text

    def _query(
        self, budget: int, kinds: list[str] | None, stateless: bool, named: bool
    ) -> tuple[str, list[ScopeColumn]]:
        """A query over at most `budget` streams; `stateless` if no operator around it keeps its rows."""
        operators = sorted(SET_OPERATORS.keys() & set(self.limits.operators))
        if not operators or budget < 2 or not self._chance(4):
            return self._select(budget, kinds, stateless, named)
        operator = self._pick(operators)
        kinds = kinds or [self._pick(LITERAL_KINDS) for _ in range(self._number(1, 3))]
        keeps_rows = operator != "union_all"
        share = self._number(1, budget - 1)
        left, columns = self._query(share, kinds, stateless and not keeps_rows, named)
        right, _ = self._query(budget - share, kinds, stateless and not keeps_rows, named)
        if any(word in right for word in SET_OPERATORS.values()) or self._chance(6):
            right = f"({right})"
        if self._chance(6):
            left = f"({left})"
        return f"{left} {SET_OPERATORS[operator]} {right}", columns

    def _select(
        self, budget: int, kinds: list[str] | None, stateless: bool, named: bool
    ) -> tuple[str, list[ScopeColumn]]:
        modes = ["plain", "plain", *sorted({"distinct", "aggregate"} & set(self.limits.operators))]
        mode = self._pick(modes)
        count = self._pick([1, self._number(1, budget), budget, budget]) if "join" in self.limits.operators else 1
        passes = stateless and mode == "plain" and count == 1
        relations = self._relations(count, budget, passes)
        writer = ExpressionWriter(self.choices, [column for relation in relations for column in relation.columns])
        from_text, conditions = self._from(relations, writer)
        if self._chance(3):
            conditions.append(self._bracketed(writer.condition(self._number(0, 2))))
        if mode == "aggregate":
            items, tail = self._aggregation(writer, kinds)
        else:
            items, tail = (
                self._items(writer, kinds, plain=mode == "plain" and kinds is None and not named),
                "",
            )
        parts, columns = self._named(items, named)
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        distinct = "DISTINCT " if mode == "distinct" else ""
        return f"SELECT {distinct}{', '.join(parts)} FROM {from_text}{where}{tail}", columns

    # FROM

    def _relations(self, count: int, budget: int, stateless: bool) -> list[_Relation]:
        relations: list[_Relation] = []
        for index in range(count):
            left = budget - count + 1 if index == count - 1 else 1
            if "subquery" in self.limits.operators and self._chance(6):
                alias = self._alias()
                text, columns = self._query(left, None, stateless, named=True)
                text = f"({text}){self._pick([' AS ', ' '])}{alias}"
            else:
                text, alias, columns = self._stream(relations, stateless)
            relations.append(_Relation(text, [_qualified(column, alias) for column in columns]))
        if count == 1 and self._chance(3):
            relations[0].columns = [ScopeColumn(c.name, c.kind, c.name) for c in relations[0].columns]
        return relations

    def _stream(self, before: list[_Relation], stateless: bool) -> tuple[str, str, list[ScopeColumn]]:
        unread = [declared for declared in self.streams if declared.stream.name not in self.used]
        declared = self._pick(unread if unread and not self._chance(3) else self.streams)
        name = declared.stream.name
        self.used.add(name)
        self.leaves += 1
        window = self._window(stateless)
        free = not any(column.text.startswith(f"{name}.") for relation in before for column in relation.columns)
        alias = name if free and self._chance(4) else self._alias()
        text = f"{name}{window}" + ("" if alias == name else f"{self._pick([' ', ' AS '])}{alias}")
        return text, alias, [ScopeColumn("", _kind(column.kind), column.name) for column in declared.columns]

    def _window(self, stateless: bool) -> str:
        kinds = sorted(set(self.limits.windows) - (set() if stateless else {"none"})) or ["range"]
        kind = self._pick(kinds + ["range"] * 4 * ("range" in kinds))
        if kind == "none":
            return ""
        if kind == "now":
            return " [NOW]"
        if kind == "unbounded":
            return " [RANGE UNBOUNDED]"
        slide = f" SLIDE {self._ticks([1, 2, 3, 5])}" if kind == "slide" else ""
        return f" [RANGE {self._ticks([3, 0, 1, 5, 8, 12, 20, 20, 40])}{slide}]"

    def _ticks(self, choices: list[int]) -> str:
        steps = self._pick(choices)
        if self.clock.unit is None:
            return str(steps)
        microseconds, unit = self.clock.unit
        if self._chance(5):
            return f"{steps * microseconds} {self._pick(['MICROSECOND', 'MICROSECONDS'])}"
        return f"{steps} {unit}{'' if steps == 1 else 'S'}"

    def _from(self, relations: list[_Relation], writer: ExpressionWriter) -> tuple[str, list[str]]:
        """The FROM clause and the conditions left for WHERE: JOINs with ON first, then a list with commas."""
        text, conditions = relations[0].text, []
        joined = self._number(0, len(relations) - 1)
        shared = self._chance(2)
        for index, relation in enumerate(relations[1:], start=1):
            earlier = [column for other in relations[:index] for column in other.columns]
            condition = self._connection(writer, earlier, relation.columns, shared)
            if index > joined:
                text += f", {relation.text}"
                conditions += [condition] if condition else []
            elif condition:
                text += f"{self._pick([' JOIN ', ' INNER JOIN '])}{relation.text} ON {condition}"
            else:
                text += f" CROSS JOIN {relation.text}"
        return text, conditions

    def _connection(
        self, writer: ExpressionWriter, earlier: list[ScopeColumn], new: list[ScopeColumn], shared: bool
    ) -> str:
        """A condition between a new relation and earlier ones; empty for a cross product."""
        pairs = [(a, b) for a in earlier for b in new if compatible(a.kind, b.kind)]
        if shared:
            pairs = [(a, b) for a, b in pairs if a.name == b.name == "k"] or pairs
        # Equality of event times is rare and joins on it dull; it stays possible.
        pairs = [(a, b) for a, b in pairs if a.name != "ts" or self._chance(4)] or pairs
        style = self._pick(sorted(self.limits.conditions) + ["equality"] * 3 * ("equality" in self.limits.conditions))
        if style == "cross" or not pairs:
            return ""
        a, b = self._pick(pairs)
        if style == "equality":
            form = writer.key_form(a.kind) if a.kind == b.kind and self._chance(3) else "{}"
            left, right = self._pick([(form.format(a.text), form.format(b.text)), (b.text, a.text)])
            condition = f"{left} = {right}"
            if self._chance(6):
                c, d = self._pick(pairs)
                condition += f" AND {c.text} = {d.text}"
            return condition
        forms = [f"{a.text} {self._pick(['<', '<=', '>', '>=', '<>'])} {b.text}"]
        if a.kind == b.kind == "int":
            forms += [
                f"{a.text} BETWEEN {b.text} - 1 AND {b.text} + 2",
                f"ABS({a.text} - {b.text}) <= 1",
                f"{a.text} >= {b.text} - 2 AND {a.text} < {b.text}",
                f"{a.text} + {b.text} > 2",
            ]
        forms.append(f"({a.text} = {b.text} OR {a.text} IS NULL)")
        return str(self._pick(forms))

    # SELECT

    def _items(self, writer: ExpressionWriter, kinds: list[str] | None, plain: bool) -> list[tuple[str, str]]:
        """Select items as (text, kind)."""
        if kinds is not None:
            return [(writer.value(kind, self._number(0, 2)), kind) for kind in kinds]
        items = []
        for _ in range(self._number(1, 4)):
            column = self._pick(writer.columns)
            if plain and self._chance(8):
                items.append((writer.approximate(), "approximate"))
            elif self._chance(3) or (not plain and column.kind not in COMPARABLE):
                kind = column.kind if column.kind in LITERAL_KINDS else "int"
                items.append((writer.value(kind, self._number(1, 2)), kind))
            else:
                items.append((column.text, column.kind))
        return items

    def _aggregation(self, writer: ExpressionWriter, kinds: list[str] | None) -> tuple[list[tuple[str, str]], str]:
        """Select items of an aggregation, and its GROUP BY and HAVING."""
        groupable = [column for column in writer.columns if column.kind in COMPARABLE]
        chosen = [self._pick(groupable) for _ in range(self._number(0, 2))] if groupable else []
        keys = {writer.key_form(column.kind).format(column.text): column.kind for column in chosen}
        plain = {text: kind for text, kind in keys.items() if text in {column.text for column in chosen}}
        if kinds is None:
            items = [(text, plain.get(text, "approximate")) for text in keys if self._chance(2)]
            items += [self._aggregate(writer, None) for _ in range(self._number(0 if items else 1, 3))]
        else:
            items = []
            for kind in kinds:
                matching = [text for text, key_kind in plain.items() if key_kind == kind]
                use_key = matching and self._chance(2)
                items.append((self._pick(matching), kind) if use_key else self._aggregate(writer, kind))
        tail = f" GROUP BY {', '.join(keys)}" if keys else ""
        if self._chance(3):
            text, kind = self._aggregate(writer, self._pick(["int", "float", "text"]))
            test = self._pick(
                [f"{text} >= {writer.pick(_HAVING_LITERALS[kind])}", f"{text} IS NOT NULL", "COUNT(*) > 1"]
            )
            tail += f" HAVING {test}"
        return items, tail

    def _aggregate(self, writer: ExpressionWriter, kind: str | None) -> tuple[str, str]:
        """An aggregate as (text, kind), of the given kind if there is one."""
        forms: list[tuple[str, str]] = [("COUNT(*)", "int")]
        column = self._pick(writer.columns)
        if column.kind in COMPARABLE:
            forms.append((f"COUNT({self._pick(['', 'DISTINCT '])}{column.text})", "int"))
            forms.append((f"{self._pick(['MIN', 'MAX'])}({column.text})", column.kind))
        numbers = writer.of_kind("int", "big", "float", "decimal")
        if numbers:
            forms.append((f"AVG({self._pick(numbers)})", "approximate"))
        integers = self._pick([writer.leaf("int"), writer.value("int", 1), writer.leaf("int")])
        forms += [(f"SUM({integers})", "int"), (f"SUM({integers}) + COUNT(*)", "int")]
        forms += [(f"SUM({integers}) / COUNT(*)", "float"), (f"SUM({writer.leaf('float')})", "float")]
        for summed in ("big", "decimal", "unsigned"):
            for text in writer.of_kind(summed)[:1]:
                forms.append((f"SUM({text})", "big" if summed == "big" else "wide"))
        if kind is not None:
            fitting = [form for form in forms if form[1] == kind]
            forms = fitting or [(f"{self._pick(['MIN', 'MAX'])}({writer.value(kind, 1)})", kind)]
        chosen: tuple[str, str] = self._pick(forms)
        return chosen

    def _named(self, items: list[tuple[str, str]], named: bool) -> tuple[list[str], list[ScopeColumn]]:
        """The items as written, and the columns they are to the query around."""
        parts, columns = [], []
        for text, kind in items:
            self._names += 1
            name = f"n{self._names}"
            parts.append(f"{text} AS {name}" if named or self._chance(2) else text)
            # A computed decimal has more digits than its columns; nothing is computed with it again.
            computed = kind == "decimal" and not text.replace(".", "").replace("_", "").isalnum()
            columns.append(ScopeColumn("", "wide" if computed else kind, name))
        return parts, columns

    # Small choices

    def _alias(self) -> str:
        self._names += 1
        return f"r{self._names}"

    def _pick(self, options: Sequence[T]) -> T:
        return self.choices.pick(options)

    def _number(self, low: int, high: int) -> int:
        return self.choices.number(low, high)

    def _chance(self, one_in: int) -> bool:
        return self.choices.chance(one_in)

    def _bracketed(self, condition: str) -> str:
        return f"({condition})" if " OR " in condition or self._chance(3) else condition


_HAVING_LITERALS = {"int": ["0", "1", "3"], "float": ["0.0", "1.5"], "text": ["''", "'a'"]}


def _kind(declared: str) -> str:
    return "int" if declared in ("integer", "signed") else declared


def _qualified(column: ScopeColumn, alias: str) -> ScopeColumn:
    return ScopeColumn(f"{alias}.{column.name}", column.kind, column.name)
