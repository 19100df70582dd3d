"""Random queries whose point is their plans: operators nested in each other over windows of different kinds.

Where `generators_queries` writes everything the language has, this writer keeps to columns of small integers and puts
its choices into structure: any operator over any other, in subqueries two deep, over windows whose widths are no
multiples of their slides and whose slides do not divide each other. So neighbouring operators have results that are
final up to different instants, which is where replacing a plan is hard; and such queries have many plans, many results
from few rows, and run fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from midstream.algebra.window_spec import WindowSpec
from midstream.testing.choices import Choices
from midstream.testing.generators_data import Clock, DeclaredStream
from midstream.testing.generators_queries import SET_OPERATORS, QueryLimits

__all__ = ["PlanQueryWriter"]

T = TypeVar("T")

_DEEPEST = 2
"""How deep subqueries nest."""
_OPERATOR_WEIGHTS = {
    "plain": 3,
    "distinct": 2,
    "aggregate": 3,
    "union_all": 4,
    "except_all": 3,
    "union": 1,
    "except": 2,
}
"""How often a block of the query has an operator; "plain" is a join, or a projection."""
_FINAL = ["aggregate", "aggregate", "except_all", "distinct", "except"]
_WINDOW_WEIGHTS = {"slide": 4, "range": 3, "now": 1, "unbounded": 2, "none": 6}
"""How often a window kind is written. A stream without a window is allowed in few places only."""
_CONDITION_STYLES = ["cross"] * 5 + ["equality"] * 4 + ["theta"]
_WIDTHS = [8, 5, 7, 10, 13, 20, 3, 1]
_LONG, _SHORT = [20, 13], [1, 3]
_SLIDES = [4, 3, 5, 7, 8, 2, 1]
_AGGREGATES = ["COUNT(*)", "SUM({})", "MIN({})", "MAX({})", "COUNT({})", "COUNT(DISTINCT {})"]


@dataclass(frozen=True)
class _Written:
    """A part of the query that may be written again."""

    text: str
    columns: list[str]
    leaves: int

    @property
    def arity(self) -> int:
        return len(self.columns)


@dataclass
class PlanQueryWriter:
    """Writes one query over streams with plain columns.

    Afterwards `used` holds the streams it reads, `leaves` how many FROM items do so, `windows` their streams and
    windows as far as these end, `ahead` those streams whose rows had better arrive before the others'. Some
    results are final `lag` ticks after their rows, if that is known.
    """

    choices: Choices
    clock: Clock
    streams: Sequence[DeclaredStream]
    limits: QueryLimits
    used: set[str] = field(default_factory=set)
    leaves: int = 0
    windows: list[tuple[str, WindowSpec]] = field(default_factory=list)
    ahead: set[str] = field(default_factory=set)
    lag: int = 0
    _names: int = 0
    _slide: int | None = None
    _widths: Sequence[int] = tuple(_WIDTHS)
    _written: list[_Written] = field(default_factory=list)

    def query(self) -> str:
        """The text of a query."""
        low, high = self.limits.min_streams, self.limits.max_streams
        # Wide queries are slow and no better than narrow ones at most of what can go wrong.
        budget = min(self.choices.number(low, high) for _ in range(3))
        if self.limits.emphasis == "final beside incremental":
            return self._final_beside_incremental(max(2, min(budget, 3)))
        if self.limits.emphasis == "final beside final":
            return self._final_beside_final()
        if self.limits.emphasis == "final over distinct":
            return self._final_over_distinct(self.choices.pick([2, 2, 3]))
        if {"none", "union_all"} <= {*self.limits.windows, *self.limits.operators} and not self.choices.chance(4):
            return self._beside_a_stream(max(1, budget - 1))
        return self._query(budget, None, 0, stateless=True)[0]

    def _final_beside_incremental(self, budget: int) -> str:
        """A join of results that come when they are final with rows that come at once, and operators above it.

        Or just a join or a union of them, where each result shows.
        """
        if self.choices.chance(2):
            return self._final_with_plain_rows()
        merging = self.choices.pick(["distinct", "distinct", "aggregate", "plain"])
        text, columns = self._final_joined_with_rows(budget, merging)
        if self.choices.chance(4):
            other, _ = self._query(1, len(columns), 1, stateless=False)
            text += f" {self.choices.pick(['UNION', 'EXCEPT ALL', 'UNION ALL'])} ({other})"
        return text

    def _final_with_plain_rows(self) -> str:
        """An aggregate over a join, mostly of a stream with itself, in a union or a join with a stream.

        It mostly has results for all instants up to the end of its latest row, and no other operator hides them.
        """
        limits = self.limits
        if not self.choices.chance(4):
            self.limits = replace(limits, conditions={"cross"})
        with self._limited_to({"slide"}, self.choices.pick([*_SLIDES[:5], None])):
            relations = [self._relation(1, _DEEPEST, False, 2)]
            other = self._relation(1, _DEEPEST, False, 2) if self.choices.chance(4) else self._again(relations[0])
            text, columns = self._block("aggregate", [*relations, other], 1)
        with self._limited_to({"range"}):
            if self.choices.chance(3):
                rows, _ = self._query(1, 1, _DEEPEST, stateless=False, operator="plain")
                text += f" UNION ALL ({rows})"
            else:
                self.ahead = set(self.used)
                relations = [self._subquery(text, columns), self._relation(1, _DEEPEST, False, 2)]
                text, _ = self._block("plain", relations, None)
        self.limits = limits
        return text

    def _again(self, relation: tuple[str, list[str]]) -> tuple[str, list[str]]:
        """The same window once more as a FROM item."""
        alias = self._name("r")
        self.leaves += 1
        text, columns = relation
        return f"{text.rpartition(' ')[0]} {alias}", [f"{alias}.{column.rpartition('.')[2]}" for column in columns]

    def _final_joined_with_rows(self, budget: int, operator: str) -> tuple[str, list[str]]:
        """The operator over a join of an aggregate, a difference or a distinct with streams, as (text, columns)."""
        final = self.choices.pick(_FINAL if budget > 2 else _FINAL[:1])
        share = 1 if final in ("aggregate", "distinct") else 2
        if final == "aggregate" and budget > 2 and not self.choices.chance(4):
            # Aggregates over joins have partial aggregates to be exchanged for.
            share = 2
        with self._limited_to({"slide"}, self._some_slide()):
            text, columns = self._query(share, None, 1, stateless=False, operator=final)
        relations = [self._subquery(text, columns)]
        relations += [self._relation(1, 1, False, 2) for _ in range(max(1, budget - share))]
        return self._block(operator, relations, None)

    def _final_beside_final(self) -> str:
        """Results that come when they are final: in a join or a union, maybe with rows that come at once, or alone.

        At least one of them can be computed in different ways, which are final up to different instants: what replaces
        it begins where it ended, and the others go on where they are, ahead or behind. Equal ones, each of which may be
        computed in its own way, must not be taken for each other.
        """
        if self.choices.chance(3):
            together = self.choices.chance(2)
            with self._limited_to({"range", "slide"} if together else {"range"}):
                text, columns = self._differences(together, same=not together)
            text, _ = self._block("aggregate", [self._subquery(text, columns)], 1)
            return f"{text} UNION ALL ({text})" if together else text
        before = self.leaves
        text, columns = self._exchangeable()
        leaves = self.leaves - before
        if self.choices.chance(5):
            return text
        is_joined = not self.choices.chance(3)
        if self.choices.chance(2):
            # A union of equal parts has no more results than each of them: there may be as many rows.
            self.leaves += leaves * is_joined
            other, others = text, columns
        elif self.choices.chance(2):
            other, others = self._exchangeable()
        else:
            other, others = self._query(1, 1, _DEEPEST, stateless=False, operator="aggregate")
        if is_joined:
            relations = [self._subquery(text, columns), self._subquery(other, others), *self._beside(2)]
            return self._block(self.choices.pick(["plain", "plain", "distinct"]), relations, None)[0]
        text += f" UNION ALL ({other})"
        if self.choices.chance(3):
            text += f" UNION ALL ({self._query(1, 1, _DEEPEST, stateless=False, operator='plain')[0]})"
        return text

    def _exchangeable(self) -> tuple[str, list[str]]:
        """An aggregate that may have a partial one below its join, or an operator over differences in some order.

        Of what is subtracted, some is cut into pieces and some is not: then results begin and end at other instants
        when the order is another.
        """
        if self.choices.chance(3):
            return self._query(2, 1, _DEEPEST, stateless=False, operator="aggregate")
        text, columns = self._differences(together=self.choices.chance(3), same=self.choices.chance(3))
        if self.choices.chance(4):
            return text, columns
        if self.choices.chance(4):
            other, _ = self._query(1, 1, _DEEPEST, stateless=False, operator="plain")
            return f"{text} EXCEPT ({other})", columns
        return self._block("aggregate", [self._subquery(text, columns)], 1)

    def _differences(self, together: bool = False, same: bool = False) -> tuple[str, list[str]]:
        """Rows, and two inputs subtracted from them, as (text, columns).

        If all windows slide `together` except for those of what is subtracted first or last, each order of the two is
        final up to another instant. If one of them is the `same` stream, nothing changes where its rows begin, and it
        depends on the order whether results are cut there.
        """
        before, windows, slide = self.leaves, [set(self.limits.windows)] * 3, None
        joined = 1 if together or same else self.choices.pick([2, 2, 1])
        if together:
            slide = self.choices.pick(_SLIDES[:5])
            windows = self.choices.pick([[{"slide"}, {"range"}, {"slide"}], [{"slide"}, {"slide"}, {"range"}]])
        long, short = (_LONG, _SHORT) if same else (_WIDTHS, _WIDTHS)
        with self._limited_to(windows[0], slide, long):
            # Rows of a join are many, so that some are left.
            relations = [self._relation(1, _DEEPEST, False, joined)]
            if joined == 2:
                once_more = self.choices.chance(2)
                relations.append(self._again(relations[0]) if once_more else self._relation(1, _DEEPEST, False, 2))
            rows, columns = self._block("plain", relations, 1)
        if together or same:
            # What is final in two differences, one above the other, and in an aggregate above them.
            self.lag = 2 * self.windows[-1][1].longest
        text = rows
        others = [self.choices.pick(["distinct", "distinct", "plain", "aggregate"]), "plain"]
        for operator, own in zip(others if self.choices.chance(2) else others[::-1], windows[1:], strict=True):
            with self._limited_to(own, slide, short):
                if same and operator == "plain":
                    other = self._in_another_window(rows)
                else:
                    other, _ = self._query(1, 1, _DEEPEST, stateless=False, operator=operator)
            text += f" EXCEPT ALL ({other})"
        # There are no more results than rows, whatever is subtracted.
        self.leaves = before + joined
        return text, columns

    def _in_another_window(self, text: str) -> str:
        """A query of one stream, its first window changed."""
        before, _, rest = text.partition(" FROM ")
        name = rest.split()[0]
        declared = next(declared for declared in self.streams if declared.stream.name == name)
        return f"{before} FROM {name}{self._window(declared, False)}{rest[rest.index(']') + 1 :]}"

    def _final_over_distinct(self, budget: int) -> str:
        """An operator whose results come when they are final, over a DISTINCT.

        In how many pieces a distinct gives a row depends on when the rows it is made of arrive, so it differs between
        a plan that has run, one that took its state over and one that was rebuilt; what is final must not.
        """
        if self.choices.chance(4):
            text, columns = self._final_joined_with_rows(budget, "distinct")
        else:
            operator = self.choices.pick(["distinct", "distinct", "distinct", "union"])
            if operator == "distinct" and not self.choices.chance(3):
                # Rows of one stream meet in time more often than those of a join.
                budget = 1
            text, columns = self._query(budget, None, _DEEPEST, stateless=False, operator=operator)
        self.ahead = set(self.used)
        if self.choices.chance(4):
            return self._block("aggregate", [self._subquery(text, columns), *self._beside(2)], None)[0]
        limits = self.limits
        if not self.choices.chance(4):
            # What is subtracted for an instant leaves most of the rows.
            self.limits = replace(limits, windows={"now"})
        other, others = self._query(1, len(columns), _DEEPEST, stateless=False, operator="plain")
        further = []
        if budget == 1 or self.choices.chance(4):
            further = [self._query(1, len(columns), _DEEPEST, stateless=False, operator="plain")[0]]
        self.limits = limits
        if self.choices.chance(8):
            text, columns, other = other, others, text
        subtract = self.choices.pick(["EXCEPT ALL", "EXCEPT ALL", "EXCEPT"])
        text += "".join(f" {subtract} ({part})" for part in [other, *further])
        if beside := self._beside(3):
            return self._block("plain", [self._subquery(text, columns), *beside], None)[0]
        return text

    @contextmanager
    def _limited_to(
        self, kinds: set[str], slide: int | None = None, widths: Sequence[int] = tuple(_WIDTHS)
    ) -> Iterator[None]:
        """Write windows of these kinds and widths alone, if the kinds are allowed. If there is a slide, all that slide
        do so by it."""
        limits = self.limits
        self.limits, self._slide = replace(limits, windows=kinds & set(limits.windows) or limits.windows), slide
        self._widths = widths
        yield
        self.limits, self._slide, self._widths = limits, None, tuple(_WIDTHS)

    def _some_slide(self) -> int | None:
        """A slide for several windows, or none: then each has its own."""
        return self.choices.pick(_SLIDES[:5]) if self.choices.chance(2) else None

    def _subquery(self, text: str, columns: list[str]) -> tuple[str, list[str]]:
        """The query as a FROM item."""
        alias = self._name("r")
        return f"({text}) {alias}", [f"{alias}.{column}" for column in columns]

    def _beside(self, one_in: int) -> list[tuple[str, list[str]]]:
        """One more FROM item, now and then."""
        return [self._relation(1, _DEEPEST, False, 2)] if self.choices.chance(one_in) else []

    def _beside_a_stream(self, budget: int) -> str:
        """A union with a stream that may lack a window: at the root, or as one of several."""
        united = "union_all" if budget > 1 and self.choices.chance(3) else None
        text, columns = self._query(budget, None, 0, stateless=True, operator=united)
        stream, _ = self._select("plain", 1, len(columns), _DEEPEST, stateless=True)
        return f"{text} UNION ALL ({stream})" if self.choices.chance(2) else f"{stream} UNION ALL ({text})"

    def _query(
        self, budget: int, arity: int | None, depth: int, stateless: bool, operator: str | None = None
    ) -> tuple[str, list[str]]:
        """A query over so many streams as (text, columns); `stateless` if no operator around it keeps its rows.

        Now and then it is one that was written before: equal parts of a query have states and progress of their own.
        """
        again = [written for written in self._written if written.leaves <= budget and arity in (None, written.arity)]
        if again and operator is None and self.choices.chance(5):
            written = self.choices.pick(again)
            self.leaves += written.leaves
            return written.text, written.columns
        before = self.leaves
        text, columns = self._new_query(budget, arity, depth, stateless, operator or self._operator(budget, depth))
        if not stateless:
            self._written.append(_Written(text, columns, self.leaves - before))
        return text, columns

    def _new_query(
        self, budget: int, arity: int | None, depth: int, stateless: bool, operator: str
    ) -> tuple[str, list[str]]:
        if operator not in SET_OPERATORS:
            return self._select(operator, budget, arity, depth, stateless)
        arity = arity or self.choices.number(1, 2)
        stateless = stateless and operator == "union_all"
        share = self.choices.number(1, budget - 1)
        text, columns = self._query(share, arity, depth, stateless)
        shares = [budget - share]
        if operator.startswith("except") and not self.choices.chance(3):
            # What is subtracted one after the other can be reordered.
            shares.append(1)
        for share in shares:
            right, _ = self._query(share, arity, depth, stateless)
            text += f" {SET_OPERATORS[operator]} ({right})"
        return text, columns

    def _operator(self, budget: int, depth: int) -> str:
        """What a block of the query does."""
        allowed = {"plain", *self.limits.operators} - (set() if budget > 1 else SET_OPERATORS.keys())
        if depth and budget == 1 and allowed & {"distinct", "aggregate"}:
            # A subquery that only renames columns adds nothing to a plan.
            allowed -= {"plain"}
        weighted = [name for name, weight in _OPERATOR_WEIGHTS.items() for _ in range(weight) if name in allowed]
        return self.choices.pick(weighted)

    def _select(self, mode: str, budget: int, arity: int | None, depth: int, stateless: bool) -> tuple[str, list[str]]:
        shares = self._shares(budget, depth)
        relations = [self._relation(share, depth, stateless and mode == "plain", len(shares)) for share in shares]
        return self._block(mode, relations, arity)

    def _block(self, mode: str, relations: list[tuple[str, list[str]]], arity: int | None) -> tuple[str, list[str]]:
        """A SELECT over FROM items as (text, columns)."""
        columns = [column for _, own in relations for column in own]
        conditions = self._conditions([own for _, own in relations])
        if self.choices.chance(10):
            conditions.append(f"{self.choices.pick(columns)} IS NOT NULL")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        width = arity or self.choices.number(1, 2)
        tail = ""
        if mode == "aggregate":
            keys = self._some(columns, self.choices.number(0, 2))
            items = [
                self.choices.pick(keys) if keys and self.choices.chance(2) else self._aggregate(columns)
                for _ in range(width)
            ]
            tail = f" GROUP BY {', '.join(keys)}" if keys else ""
            tail += " HAVING COUNT(*) > 1" if self.choices.chance(16) else ""
        else:
            items = [self.choices.pick(columns) for _ in range(width)]
        names = [self._name("n") for _ in items]
        listed = ", ".join(f"{item} AS {name}" for item, name in zip(items, names, strict=True))
        distinct = "DISTINCT " if mode == "distinct" else ""
        return f"SELECT {distinct}{listed} FROM {', '.join(text for text, _ in relations)}{where}{tail}", names

    def _shares(self, budget: int, depth: int) -> list[int]:
        """How many streams each FROM item may read: 1 is a stream, or a subquery over one."""
        if "join" not in self.limits.operators:
            return [budget]
        if depth >= _DEEPEST or "subquery" not in self.limits.operators:
            return [1] * budget
        shares = []
        while budget:
            shares.append(self.choices.pick([1, self.choices.number(1, budget), self.choices.number(1, budget)]))
            budget -= shares[-1]
        return shares

    def _relation(self, share: int, depth: int, stateless: bool, beside: int) -> tuple[str, list[str]]:
        """A FROM item as (text, columns)."""
        nests = share > 1 or self.choices.chance(3)
        if nests and depth < _DEEPEST and "subquery" in self.limits.operators:
            return self._subquery(*self._query(share, None, depth + 1, stateless and beside == 1))
        unread = [declared for declared in self.streams if declared.stream.name not in self.used]
        declared = self.choices.pick(self.streams if not unread or self.choices.chance(4) else unread)
        self.used.add(declared.stream.name)
        self.leaves += 1
        alias = self._name("r")
        # Event times are values, too, but rows that differ in time alone make neither groups nor matches.
        first = 0 if self.clock.unit is None and self.choices.chance(8) else 1
        columns = [column.name for column in declared.columns[first:]]
        text = f"{declared.stream.name}{self._window(declared, stateless and beside == 1)} {alias}"
        return text, [f"{alias}.{column}" for column in columns]

    def _window(self, declared: DeclaredStream, stateless: bool) -> str:
        kinds = [kind for kind in _WINDOW_WEIGHTS if kind in self.limits.windows and (stateless or kind != "none")]
        kind = self.choices.pick([kind for kind in kinds or ["range"] for _ in range(_WINDOW_WEIGHTS[kind])])
        if kind == "none":
            return ""
        if kind in ("now", "unbounded"):
            return " [NOW]" if kind == "now" else " [RANGE UNBOUNDED]"
        width = self.choices.pick(self._widths)
        if kind == "range":
            self.windows.append((declared.stream.name, WindowSpec(self.clock.ticks(width))))
            return f" [RANGE {self._length(width)}]"
        slide = self._slide or self.choices.pick(_SLIDES)
        if width < slide and not self.choices.chance(4):
            # Rows are valid nowhere if a slide passes over them.
            width += slide
        self.windows.append((declared.stream.name, WindowSpec(self.clock.ticks(width), self.clock.ticks(slide))))
        return f" [RANGE {self._length(width)} SLIDE {self._length(slide)}]"

    def _length(self, steps: int) -> str:
        if self.clock.unit is None:
            return str(steps)
        return f"{steps} {self.clock.unit[1]}{'' if steps == 1 else 'S'}"

    def _conditions(self, relations: list[list[str]]) -> list[str]:
        """Conditions between each FROM item and one before it; none for a cross product."""
        allowed = self.limits.conditions
        styles = [s for s in _CONDITION_STYLES if s in allowed] or ["equality"]
        conditions = []
        for place, columns in enumerate(relations[1:], start=1):
            style = self.choices.pick(styles)
            if style != "cross":
                left, right = self.choices.pick(self.choices.pick(relations[:place])), self.choices.pick(columns)
                sign = "=" if style == "equality" else self.choices.pick(["<=", ">=", "<>"])
                conditions.append(f"{left} {sign} {right}")
        return conditions

    def _aggregate(self, columns: list[str]) -> str:
        return self.choices.pick(_AGGREGATES).format(self.choices.pick(columns))

    def _some(self, options: Sequence[T], count: int) -> list[T]:
        """So many different options."""
        if not count:
            return []
        first = self.choices.number(0, len(options) - 1)
        return [options[(first + place) % len(options)] for place in range(min(count, len(options)))]

    def _name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}{self._names}"
