"""A query at an instant: the rows valid then, combined as the query's text says.

Everything is computed anew from the definition, with four shortcuts that change no result: a condition is tested as
soon as the relations it reads are there; one that reads a single stream is tested once for each of its rows; names
and types are settled once; and a (sub)query is not computed again for the same valid rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from midstream.testing.brute_force.aggregates import Aggregate
from midstream.testing.brute_force.arrow import rows_of, ticks_of
from midstream.testing.brute_force.bound import Bound, Rows, cast, identity_key
from midstream.testing.brute_force.expressions import Columns, Scope, bind
from midstream.testing.brute_force.functions import condition
from midstream.testing.brute_force.syntax import (
    Block,
    BruteForceError,
    Call,
    ColumnName,
    ColumnPlace,
    Constant,
    Expression,
    Query,
    Reading,
    SetOperation,
    Star,
)
from midstream.testing.brute_force.value_types import common_type, type_of_arrow
from midstream.testing.snapshot_series import Rows as ArrowRows
from midstream.testing.snapshot_series import StreamLike

__all__ = ["Inputs", "Relation", "relation_of"]

Row: TypeAlias = tuple[Any, ...]
_LAST_TICK = 2**63 - 1


class Relation(Protocol):
    """A relation that changes with time."""

    columns: Columns

    def cause(self, instant: int) -> tuple[Any, ...]:
        """What the rows at the instant depend on: they are equal if this is."""

    def rows(self, instant: int) -> list[Row]:
        """The bag of rows at the instant."""


class Inputs:
    """The declared streams and their rows, and the instants at which some row's validity begins or ends."""

    def __init__(self, streams: Sequence[StreamLike], tables: Mapping[str, ArrowRows]) -> None:
        self.critical_instants: set[int] = set()
        self._streams = streams
        self._tables = tables
        self._rows: dict[str, list[Row]] = {}

    def open(self, reading: Reading) -> WindowedStream:
        """The stream with its window."""
        found = reading.stream.find([stream.name for stream in self._streams])
        if len(found) != 1:
            raise BruteForceError(f"stream {reading.stream.text!r} does not exist")
        stream = self._streams[found[0]]
        if stream.name not in self._rows:
            self._rows[stream.name] = rows_of(self._tables.get(stream.name, ()), stream.schema)
        columns = Columns(stream.schema.names, [type_of_arrow(field.type) for field in stream.schema])
        position = stream.schema.names.index(stream.event_time)
        valid: list[tuple[int, int | None, Row]] = []
        for row in self._rows[stream.name]:
            event_time = ticks_of(row[position], columns.types[position])
            if event_time is None:
                continue
            begin, end = reading.window.validity(event_time)
            if end is not None and end > _LAST_TICK:
                end = None
            if begin <= _LAST_TICK and (end is None or begin < end):
                valid.append((begin, end, row))
                self.critical_instants.update([begin] if end is None else [begin, end])
        return WindowedStream(columns, valid)


class WindowedStream:
    """The rows of a stream, each valid while its window says so."""

    def __init__(self, columns: Columns, valid: list[tuple[int, int | None, Row]]) -> None:
        self.columns = columns
        self._valid = valid
        self._instant: int | None = None
        self._numbers: tuple[int, ...] = ()

    def keep(self, tests: Sequence[Callable[[Row], Any]]) -> None:
        """Drop the rows for which a test is not true, at every instant."""
        self._valid = [entry for entry in self._valid if all(test(entry[2]) for test in tests)]

    def cause(self, instant: int) -> tuple[int, ...]:
        """The numbers of the valid rows."""
        if self._instant != instant:
            self._instant = instant
            self._numbers = tuple(
                number
                for number, (begin, end, _) in enumerate(self._valid)
                if begin <= instant and (end is None or instant < end)
            )
        return self._numbers

    def rows(self, instant: int) -> list[Row]:
        """The valid rows."""
        return [self._valid[number][2] for number in self.cause(instant)]


def relation_of(query: Query, inputs: Inputs) -> Relation:
    """The query as a relation."""
    return _SetOperation(query, inputs) if isinstance(query, SetOperation) else _Block(query, inputs)


class _Computed:
    """A relation that is computed from others, once for each set of their rows."""

    def __init__(self, columns: Columns, sources: Sequence[Relation]) -> None:
        self.columns = columns
        self._sources = sources
        self._known: dict[tuple[Any, ...], list[Row]] = {}

    def cause(self, instant: int) -> tuple[Any, ...]:
        return tuple(source.cause(instant) for source in self._sources)

    def rows(self, instant: int) -> list[Row]:
        cause = self.cause(instant)
        if cause not in self._known:
            self._known[cause] = self._compute([source.rows(instant) for source in self._sources])
        return self._known[cause]

    def _compute(self, inputs: list[list[Row]]) -> list[Row]:
        raise NotImplementedError


class _SetOperation(_Computed):
    """UNION and EXCEPT: columns meet by position, at their common type."""

    def __init__(self, query: SetOperation, inputs: Inputs) -> None:
        sides = [relation_of(query.left, inputs), relation_of(query.right, inputs)]
        left, right = (side.columns for side in sides)
        if len(left.types) != len(right.types):
            raise BruteForceError(f"{query.operator} of {len(left.types)} and {len(right.types)} columns")
        types = []
        for one, other in zip(left.types, right.types, strict=True):
            kind = common_type(one, other)
            if kind is None:
                raise BruteForceError(f"{query.operator} of {one.kind} and {other.kind}")
            types.append(kind)
        super().__init__(Columns(left.names, types), sides)
        self._subtracts, self._keeps_all = query.operator == "EXCEPT", query.keeps_all
        self._conversions = [
            [
                cast(Bound(kind, lambda rows, index=index: rows[0][index]), target).evaluate  # type: ignore[misc]
                for index, (kind, target) in enumerate(zip(side.columns.types, types, strict=True))
            ]
            for side in sides
        ]
        bag_only = self._keeps_all and not self._subtracts
        self._key = (lambda row: row) if bag_only else identity_key(types)

    def _compute(self, inputs: list[list[Row]]) -> list[Row]:
        left, right = (
            [tuple(convert((row,)) for convert in conversions) for row in rows]
            for rows, conversions in zip(inputs, self._conversions, strict=True)
        )
        if not self._subtracts:
            both = left + right
            return both if self._keeps_all else _different(both, self._key)
        taken: dict[Any, int] = {}
        for row in right:
            taken[self._key(row)] = taken.get(self._key(row), 0) + 1
        if not self._keeps_all:
            return [row for row in _different(left, self._key) if self._key(row) not in taken]
        kept = []
        for row in left:
            key = self._key(row)
            if taken.get(key, 0) > 0:
                taken[key] -= 1
            else:
                kept.append(row)
        return kept


def _different(rows: list[Row], key: Callable[[Row], Any]) -> list[Row]:
    """Each different row once."""
    return list({key(row): row for row in rows}.values())


class _Block(_Computed):
    """SELECT: the product of FROM, the rows for which WHERE is true, perhaps grouped, and the select list of each."""

    def __init__(self, block: Block, inputs: Inputs) -> None:
        sources: list[Relation] = [
            inputs.open(source.relation)
            if isinstance(source.relation, Reading)
            else relation_of(source.relation, inputs)
            for source in block.sources
        ]
        aliases = [source.alias for source in block.sources]
        if len(set(aliases)) < len(aliases):
            raise BruteForceError("an alias is in FROM twice")
        scope = Scope(aliases, [source.columns for source in sources])
        self._tests = _settle(_conditions(block, scope), sources)
        items, names = _select_list(block, scope)
        outputs = {name: item for item, name in zip(items, names, strict=True) if name is not None}
        aggregates: list[Aggregate] = []
        above = replace(scope, aggregates=aggregates)
        keys = [bind(_key_of(written, items, replace(scope, outputs=outputs)), scope) for written in block.keys]
        selected = [bind(item, above) for item in items]
        having = bind(block.having, replace(above, outputs=outputs)) if block.having else None
        self._having = None if having is None else condition(having).evaluate
        self._grouped = bool(keys or aggregates or block.having)
        self._keys, self._key = [key.evaluate for key in keys], identity_key([key.type for key in keys])
        self._aggregates = [aggregate.over for aggregate in aggregates]
        self._items = [item.evaluate for item in selected]
        types = [item.type for item in selected]
        self._distinct = identity_key(types) if block.distinct else None
        super().__init__(Columns(_output_names(names), types), sources)

    def _compute(self, inputs: list[list[Row]]) -> list[Row]:
        combinations: list[tuple[Row, ...]] = [()]
        if not all(inputs) or not all(test(()) for test in self._tests[0]):
            return []
        for rows, tests in zip(inputs, self._tests[1:], strict=True):
            longer = [(*combination, row) for combination in combinations for row in rows]
            for test in tests:
                longer = [combination for combination in longer if test(combination)]
            combinations = longer
        found: list[Any] = self._groups(combinations) if self._grouped else combinations
        if self._having is not None:
            found = [rows for rows in found if self._having(rows)]
        result = [tuple([item(rows) for item in self._items]) for rows in found]
        return result if self._distinct is None else _different(result, self._distinct)

    def _groups(self, combinations: list[tuple[Row, ...]]) -> list[Rows]:
        """For each group one combination of rows to take its keys from, and behind it the values of its aggregates.

        Without rows there is no group, also without GROUP BY.
        """
        groups: dict[Any, list[Rows]] = {}
        for rows in combinations:
            key = self._key(tuple([evaluate(rows) for evaluate in self._keys]))
            groups.setdefault(key, []).append(rows)
        return [(*group[0], [over(group) for over in self._aggregates]) for group in groups.values()]


def _conditions(block: Block, scope: Scope) -> list[Bound]:
    """The conjuncts of WHERE and of every ON, which sees only the relations up to its own."""
    conjuncts = []
    for count, source in enumerate(block.sources, start=1):
        seen = Scope(scope.aliases[:count], scope.relations[:count])
        conjuncts += [bind(part, seen) for part in _conjuncts(source.condition)]
    conjuncts += [bind(part, scope) for part in _conjuncts(block.where)]
    return [condition(conjunct) for conjunct in conjuncts]


def _conjuncts(expression: Expression | None) -> list[Expression]:
    if isinstance(expression, Call) and expression.function == "AND":
        return [part for argument in expression.arguments for part in _conjuncts(argument)]
    return [] if expression is None else [expression]


def _settle(conditions: Sequence[Bound], sources: Sequence[Relation]) -> list[list[Callable[[Rows], Any]]]:
    """The conditions by how many relations must be there; those on one stream alone are tested on its rows at once."""
    tests: list[list[Callable[[Rows], Any]]] = [[] for _ in range(len(sources) + 1)]
    for test in conditions:
        last = max(test.relations, default=-1)
        source = sources[last] if len(test.relations) == 1 else None
        if isinstance(source, WindowedStream):
            padding = ((),) * last
            source.keep([lambda row, test=test, padding=padding: test.evaluate((*padding, row))])  # type: ignore[misc]
        else:
            tests[last + 1].append(test.evaluate)
    return tests


def _select_list(block: Block, scope: Scope) -> tuple[list[Expression], list[str | None]]:
    """The expressions of the select list with their names; None where an expression has none."""
    items: list[Expression] = []
    names: list[str | None] = []
    for item in block.items:
        if not isinstance(item, Star):
            items.append(item.expression)
            place = scope.column(item.expression) if isinstance(item.expression, ColumnName) else None
            names.append(item.name if item.name or place is None else scope.relations[place[0]].names[place[1]])
            continue
        places = range(len(scope.aliases)) if item.relation is None else [scope.relation(item.relation)]
        for place_of_star in places:
            for index, name in enumerate(scope.relations[place_of_star].names):
                items.append(ColumnPlace(place_of_star, index))
                names.append(name)
    return items, names


def _key_of(written: Expression, items: Sequence[Expression], scope: Scope) -> Expression:
    """What a GROUP BY item means: a position in the select list, an output name, or the expression itself."""
    if isinstance(written, Constant) and written.kind == "number" and written.value >= 0:
        if written.value not in range(1, len(items) + 1):
            raise BruteForceError(f"GROUP BY {written.value} is not a position in the select list")
        return items[int(written.value) - 1]
    if isinstance(written, ColumnName) and scope.column(written) is None:
        return scope.output(written) or written
    return written


def _output_names(names: Sequence[str | None]) -> list[str]:
    """Names for all columns: repeated ones are numbered, expressions without a name get one nobody can write.

    >>> _output_names(["x", "x", "x_1", None])
    ['x', 'x_2', 'x_1', '']
    """
    taken = {name for name in names if name}
    seen: set[str] = set()
    numbered = []
    for name in names:
        unique, number = name or "", 0
        while unique and (unique in seen or (number and unique in taken)):
            number += 1
            unique = f"{name}_{number}"
        seen.add(unique)
        numbered.append(unique)
    return numbered
