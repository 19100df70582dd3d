"""Random scenarios: a query, the streams it reads, and their rows in random batches.

`scenarios()` is a Hypothesis strategy; `random_scenario` makes one from any source of choices. What they make is
always legal: the text is correct in type, no row is late in any batching, and DuckDB can evaluate all of it, so a test
only has to run the query and compare:

    @given(scenarios())
    def test_any_query_agrees_with_the_oracle(scenario):
        run = ContinuousQuery(scenario.query_text, streams=scenario.streams).run_locally()
        assert_snapshot_equivalent(play(run, scenario.pushes), scenario.expected())

A scenario prints as the Python code that makes it, ready to be pasted as a regression test.

>>> schema = pa.schema([("ts", pa.int64()), ("k", pa.string())])
>>> Scenario.from_rows("SELECT k FROM s [NOW]", [Stream("s", schema, "ts")], [{"s": [(1, "a")]}, heartbeat(4)])
Scenario.from_rows(
    "SELECT k FROM s [NOW]",
    [
        Stream("s", pa.schema([("ts", pa.int64()), ("k", pa.string())]), "ts", 0),
    ],
    [
        {"s": [(1, 'a')]},
        heartbeat(4),
    ],
)
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from midstream.algebra.stream import Stream
from midstream.testing.choices import Choices, Draw, HypothesisChoices
from midstream.testing.generators_data import BATCHINGS, clock, declared_streams, pushes
from midstream.testing.generators_plans import PlanQueryWriter
from midstream.testing.generators_queries import CONDITIONS, OPERATORS, WINDOWS, QueryLimits, QueryWriter
from midstream.testing.oracle import join_intervals, snapshots
from midstream.testing.scripted_source import Push, WrittenStep, heartbeat, script, whole_input
from midstream.testing.snapshot_series import SnapshotSeries

__all__ = [
    "BATCHINGS",
    "CONDITIONS",
    "JOIN_OPERATORS",
    "OPERATORS",
    "WINDOWS",
    "Scenario",
    "heartbeat",
    "random_scenario",
    "scenarios",
]

JOIN_OPERATORS = frozenset({"join", "subquery", "union_all"})
"""The operators whose results are an exact bag, see `join_intervals`."""

EMPHASES = frozenset({"language", "plans", "final beside incremental", "final beside final", "final over distinct"})
"""What a scenario's query is to exercise."""

# Rows per stream by the number of streams joined: the oracle may have to look at every combination.
_MAX_ROWS = {1: 14, 2: 10, 3: 7, 4: 5, 5: 4}
_FEW_ROWS = {1: 7, 2: 5, 3: 4, 4: 3, 5: 2, 6: 2}


@dataclass(frozen=True, eq=False, repr=False)
class Scenario:
    """A query over streams, and the pushes that feed it."""

    query_text: str
    streams: tuple[Stream, ...]
    pushes: tuple[Push, ...]

    @classmethod
    def from_rows(cls, query_text: str, streams: Sequence[Stream], steps: Sequence[WrittenStep]) -> Scenario:
        """A scenario from rows written as tuples, as `script` takes them (without `ABORT`)."""
        made = script(streams, steps)
        return cls(query_text, tuple(streams), tuple(step for step in made if isinstance(step, Push)))

    @property
    def tables(self) -> dict[str, pa.Table]:
        """All rows by stream."""
        return whole_input(self.streams, self.pushes)

    def expected(self) -> SnapshotSeries:
        """The result according to the oracle."""
        return snapshots(self.query_text, self.streams, self.tables)

    def expected_intervals(self) -> pa.Table:
        """The exact bag of results according to the oracle, for queries within `JOIN_OPERATORS`."""
        return join_intervals(self.query_text, self.streams, self.tables)

    def __repr__(self) -> str:
        text = self.query_text if '"' not in self.query_text else self.query_text.replace('"', '\\"')
        lines = ["Scenario.from_rows(", f'    "{text}",', "    ["]
        lines += [f"        {_stream_code(stream)}," for stream in self.streams]
        lines += ["    ],", "    ["]
        lines += [f"        {_push_code(push)}," for push in self.pushes]
        return "\n".join([*lines, "    ],", ")"])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show falsifying examples as code too; Hypothesis would spell out the dataclass."""
        printer.text(repr(self))


def random_scenario(
    choices: Choices,
    *,
    min_streams: int = 1,
    max_streams: int = 6,
    operators: Collection[str] = OPERATORS,
    windows: Collection[str] = WINDOWS,
    conditions: Collection[str] = CONDITIONS,
    event_time: str | None = None,
    max_rows: int | None = None,
    batchings: Sequence[str] = BATCHINGS,
    emphasis: str = "language",
) -> Scenario:
    """A scenario with `min_streams` to `max_streams` FROM items, within the given operators, windows and conditions.

    `event_time` is "integer", "timestamp" or None for either. `max_rows` bounds the rows of each stream; by
    default it depends on how many streams the query joins. `operators=JOIN_OPERATORS` gives queries that
    `join_intervals` can check exactly; `operators=()` leaves selection and projection. `batchings` says how rows
    are cut into pushes: in single rows, all at once, anything between. `emphasis` is "language" (all types, functions
    and clauses), "plans" (nested operators over windows of different kinds, plain expressions), "final beside
    incremental" (such plans where results that come when they are final are joined with rows that come at once), "final
    beside final" (such plans with several aggregates and differences side by side, some of which other plans compute
    differently) or "final over distinct" (such plans with an aggregate or difference over a distinct).
    """
    _check_known(operators=operators, windows=windows, conditions=conditions, emphasis=emphasis)
    plain = emphasis != "language"
    time = clock(choices, event_time)
    few = emphasis in ("final over distinct", "final beside final")
    count = choices.number(2, 3) if few else choices.number(1, max_streams)
    declared = declared_streams(choices, time, count, plain)
    limits = QueryLimits(operators, windows, conditions, max_streams, min_streams, emphasis)
    writer = (PlanQueryWriter if plain else QueryWriter)(choices, time, declared, limits)
    text = writer.query()
    read = [stream for stream in declared if stream.stream.name in writer.used]
    limit = max_rows
    if limit is None:
        limit = (_FEW_ROWS if plain else _MAX_ROWS).get(writer.leaves, 3)
    known = (writer.windows, writer.ahead, writer.lag) if isinstance(writer, PlanQueryWriter) else ()
    steps = pushes(choices, time, read, limit, batchings, *known)
    return Scenario(text, tuple(stream.stream for stream in read), steps)


def scenarios(**limits: Any) -> st.SearchStrategy[Scenario]:
    """Scenarios drawn by Hypothesis; the options are those of `random_scenario`."""
    _check_known(**limits)

    @st.composite
    def build(draw: Draw) -> Scenario:
        return random_scenario(HypothesisChoices(draw), **limits)

    return build()


def _check_known(**limits: Any) -> None:
    known = {"operators": OPERATORS, "windows": WINDOWS, "conditions": CONDITIONS, "emphasis": EMPHASES}
    for name in limits.keys() & known.keys():
        given = {limits[name]} if isinstance(limits[name], str) else set(limits[name])
        if unknown := given - known[name]:
            raise ValueError(f"unknown {name}: {sorted(unknown)}; known are {sorted(known[name])}")


def _stream_code(stream: Stream) -> str:
    fields = ", ".join(f'("{column.name}", {_type_code(column.type)})' for column in stream.schema)
    return f'Stream("{stream.name}", pa.schema([{fields}]), "{stream.event_time}", {stream.lateness!r})'


def _type_code(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return f"pa.timestamp({kind.unit!r}" + (f", {kind.tz!r})" if kind.tz else ")")
    if pa.types.is_decimal(kind):
        return f"pa.decimal128({kind.precision}, {kind.scale})"
    if pa.types.is_list(kind):
        return f"pa.list_({_type_code(kind.value_type)})"
    if pa.types.is_struct(kind):
        fields = (kind.field(index) for index in range(kind.num_fields))
        return "pa.struct({" + ", ".join(f'"{part.name}": {_type_code(part.type)}' for part in fields) + "})"
    if pa.types.is_dictionary(kind):
        return f"pa.dictionary({_type_code(kind.index_type)}, {_type_code(kind.value_type)})"
    names = {"double": "float64", "float": "float32", "bool": "bool_", "date32[day]": "date32"}
    return f"pa.{names.get(str(kind), str(kind))}()"


def _push_code(push: Push) -> str:
    if not push.rows and push.watermark is not None:
        return f"heartbeat({push.watermark})"
    rows = ", ".join(
        f'"{name}": {list(zip(*(_values(column) for column in table.columns), strict=True))!r}'
        for name, table in push.rows.items()
    )
    return f"{{{rows}}}" if push.watermark is None else f"({{{rows}}}, {push.watermark})"


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Python values; instants in UTC, because a zone has no short code."""
    if not pa.types.is_timestamp(column.type) or column.type.tz is None:
        return list(column.to_pylist())
    return [None if value is None else value.astimezone(datetime.UTC) for value in column.to_pylist()]
