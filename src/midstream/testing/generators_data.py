"""Random streams and rows: the data half of the generators.

Values come from domains of a handful, so that joins match, groups fill and duplicates are frequent; each
domain holds what tends to break engines: NaN and -0.0, integers no double can hold, the empty string. Event
times tie, go backwards within the lateness the stream declares, and may be negative or NULL.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
from hypothesis import strategies as st

from midstream.algebra.stream import Stream
from midstream.testing.scripted_source import Push, script

__all__ = ["BATCHINGS", "KINDS", "Clock", "DeclaredColumn", "DeclaredStream", "clocks", "declared_streams", "pushes"]

Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]

_BIG = 2**53 + 1
_SIGNED = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
_DAYS = [datetime.date(1969, 12, 31), datetime.date(2020, 2, 29), datetime.date(2021, 1, 1)]
_MOMENTS = [
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999000),
    datetime.datetime(2020, 2, 29, 12, 30, 15),
    datetime.datetime(2021, 1, 1),
]

KINDS: dict[str, tuple[list[pa.DataType], list[Any]]] = {
    "integer": ([*_SIGNED, pa.uint8(), pa.uint32()], [0, 1, 2, 3, 5]),
    "signed": (_SIGNED, [-3, -1, 0, 1, 2]),
    "big": ([pa.int64()], [_BIG, _BIG - 1, -_BIG, 1 - _BIG, 0, 1]),
    "unsigned": ([pa.uint64()], [0, 1, 2**63, 2**64 - 1]),
    "float": (
        [pa.float64(), pa.float32()],
        [0.0, -0.0, 1.0, 1.5, -2.5, 0.25, float("nan"), float("inf"), float("-inf")],
    ),
    "decimal": (
        [pa.decimal128(10, 2)],
        [Decimal(text) for text in ("0.00", "0.10", "0.50", "-1.25", "7.00")],
    ),
    "text": (
        [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())],
        ["", "a", "b", "ab", "A", " a ", "1", "12", "é", "it's", "[NOW] -- x"],
    ),
    "binary": ([pa.binary()], [b"", b"\x00", b"a", b"\xff\x00"]),
    "boolean": ([pa.bool_()], [True, False]),
    "date": ([pa.date32()], _DAYS),
    "moment": ([pa.timestamp("us"), pa.timestamp("ms")], _MOMENTS),
    "nested": (
        [pa.list_(pa.int32()), pa.struct({"x": pa.int64(), "y": pa.string()})],
        [],
    ),
}
"""Per kind of value: the column types it may have, and its domain."""

_NESTED_VALUES = {
    pa.list_(pa.int32()): [[], [1], [1, None]],
    pa.struct({"x": pa.int64(), "y": pa.string()}): [{"x": 1, "y": "a"}, {"x": None, "y": None}],
}
_Arrival: TypeAlias = tuple[int | None, tuple[Any, ...]]
_COLUMN_NAMES = ("k", "j", "a", "b", "c")


@dataclass(frozen=True)
class Clock:
    """A query's time domain: integers, or timestamps that step by `unit` (microseconds and its CQL name)."""

    unit: tuple[int, str] | None
    zone: str | None = None

    @property
    def kind(self) -> str:
        """The kind of an event time as a value."""
        if self.unit is None:
            return "signed"
        return "moment" if self.zone is None else "instant"

    @property
    def types(self) -> list[pa.DataType]:
        """Column types that can hold such event times."""
        if self.unit is None:
            return [pa.int64(), pa.int32()]
        resolutions = ["us"] if self.unit[0] < 1000 else ["us", "ms"]
        return [pa.timestamp(resolution, self.zone) for resolution in resolutions]

    def event_time(self, step: int) -> Any:
        """The event time this many steps after zero, as a Python value."""
        if self.unit is None:
            return step
        zone = None if self.zone is None else datetime.UTC
        return datetime.datetime(1970, 1, 1, tzinfo=zone) + datetime.timedelta(microseconds=step * self.unit[0])

    def ticks(self, step: int) -> int:
        """The event time this many steps after zero, in ticks."""
        return step if self.unit is None else step * self.unit[0]

    def lateness(self, steps: int) -> int | datetime.timedelta:
        """A lateness of this many steps, as `Stream` takes it."""
        if self.unit is None:
            return steps
        return datetime.timedelta(microseconds=steps * self.unit[0])


@dataclass(frozen=True)
class DeclaredColumn:
    """A column with the kind of its values."""

    name: str
    kind: str
    type: pa.DataType


@dataclass(frozen=True)
class DeclaredStream:
    """A stream declaration with what the generators need to know about it."""

    stream: Stream
    columns: tuple[DeclaredColumn, ...]
    lateness_steps: int


def clocks(event_time: str | None = None) -> st.SearchStrategy[Clock]:
    """Time domains; `event_time` is "integer", "timestamp" or None for either."""
    units = [(1, "MICROSECOND"), (1_000, "MILLISECOND"), (1_000_000, "SECOND"), (60_000_000, "MINUTE")]
    timestamps = st.builds(Clock, st.sampled_from(units), st.sampled_from([None, None, "UTC"]))
    if event_time == "timestamp":
        return timestamps
    return st.just(Clock(None)) if event_time == "integer" else st.one_of(st.just(Clock(None)), timestamps)


def declared_streams(clock: Clock, count: int) -> st.SearchStrategy[list[DeclaredStream]]:
    """Declarations named s0, s1, ...; all have a column `k` of one kind, the usual join key."""

    @st.composite
    def build(draw: Draw) -> list[DeclaredStream]:
        kinds = [kind for kind in KINDS if kind != "nested"]
        key_kind = draw(st.sampled_from(["integer", "integer", "signed", "text", *kinds]))
        return [_declare(draw, clock, f"s{index}", key_kind) for index in range(count)]

    return build()


def _declare(draw: Draw, clock: Clock, name: str, key_kind: str) -> DeclaredStream:
    others = draw(st.lists(st.sampled_from([*KINDS, "integer"]), min_size=1, max_size=len(_COLUMN_NAMES) - 1))
    columns = [DeclaredColumn("ts", clock.kind, draw(st.sampled_from(clock.types)))]
    for column, kind in zip(_COLUMN_NAMES, [key_kind, *others], strict=False):
        columns.append(DeclaredColumn(column, kind, draw(st.sampled_from(KINDS[kind][0]))))
    lateness = draw(st.sampled_from([0, 0, 3, 20]))
    schema = pa.schema([(column.name, column.type) for column in columns])
    stream = Stream(name, schema, event_time="ts", lateness=clock.lateness(lateness))
    return DeclaredStream(stream, tuple(columns), lateness)


def _row_values(draw: Draw, columns: Sequence[DeclaredColumn], palette: dict[Any, list[Any]]) -> Any:
    """Rows of the columns. `palette` keeps the few values of each kind that this input is painted with."""
    colours = []
    for column in columns:
        key = column.type if column.kind == "nested" else column.kind
        if key not in palette:
            domain = _NESTED_VALUES.get(column.type, KINDS[column.kind][1])
            size = palette["size"][0]
            palette[key] = draw(st.lists(st.sampled_from(domain), min_size=size, max_size=size))
        colours.append(st.sampled_from([*palette[key] * 2, None]))
    return st.tuples(*colours)


@st.composite
def _arrivals(
    draw: Draw,
    declared: DeclaredStream,
    values: st.SearchStrategy[tuple[Any, ...]],
    origin: int,
    max_rows: int,
) -> list[_Arrival]:
    """Rows in order of arrival, as (step of the event time, values); none is ever late.

    A watermark is at most the stream's newest event time less its lateness, so a row within the lateness of
    all rows before it is on time in every batching and interleaving.
    """
    delays = st.integers(0, declared.lateness_steps)
    advances = st.sampled_from([0, 1, 1, 2, 3, 9])
    # The list has a fixed length, and each row may be absent: so failures shrink to few rows, but most
    # inputs have many.
    rows = draw(st.lists(st.tuples(advances, delays, st.integers(0, 11), values), min_size=max_rows, max_size=max_rows))
    newest = origin + draw(st.integers(0, 4))
    arrivals: list[_Arrival] = []
    for advance, delay, role, row in rows:
        if role == 0:
            continue
        if role == 11:
            arrivals.append((None, row))
        elif role >= 9 and arrivals and arrivals[-1][0] == newest:
            arrivals.append(arrivals[-1])
        else:
            newest += advance
            arrivals.append((newest - delay, row))
    return arrivals


BATCHINGS = ("rows", "whole", "mixed")
"""Ways to cut rows into pushes."""


def pushes(
    clock: Clock, streams: Sequence[DeclaredStream], max_rows: int, batchings: Sequence[str]
) -> st.SearchStrategy[tuple[Push, ...]]:
    """Rows for the streams, cut into pushes: all at once, one row each, or anything between."""

    @st.composite
    def build(draw: Draw) -> tuple[Push, ...]:
        origin = draw(st.sampled_from([0, -10, -3, 100]))
        palette: dict[Any, list[Any]] = {"size": [draw(st.integers(1, 2 if max_rows < 7 else 4))]}
        waiting: dict[str, list[_Arrival]] = {}
        for declared in streams:
            values = _row_values(draw, declared.columns[1:], palette)
            waiting[declared.stream.name] = draw(_arrivals(declared, values, origin, max_rows))
        labels = [name for name, rows in waiting.items() for _ in rows]
        order = draw(st.permutations(labels))
        batching = draw(st.sampled_from(batchings))
        cuts = [batching == "rows" or (batching == "mixed" and draw(st.booleans())) for _ in order]
        positions = dict.fromkeys(waiting, 0)
        steps: list[Any] = []
        batch: dict[str, list[tuple[Any, ...]]] = {}
        for name, cut in zip(order, cuts, strict=True):
            step, values = waiting[name][positions[name]]
            positions[name] += 1
            event_time = None if step is None else clock.event_time(step)
            batch.setdefault(name, []).append((event_time, *values))
            if cut:
                steps += _close(draw, clock, batch, _oldest(waiting, positions))
                batch = {}
        steps += _close(draw, clock, batch, None) if batch else []
        made = script([declared.stream for declared in streams], steps)
        return tuple(step for step in made if isinstance(step, Push))

    return build()


def _oldest(waiting: dict[str, list[_Arrival]], positions: dict[str, int]) -> int | None:
    times = [step for name, rows in waiting.items() for step, _ in rows[positions[name] :] if step is not None]
    return min(times, default=None)


def _close(draw: Draw, clock: Clock, batch: dict[str, Any], oldest: int | None) -> list[Any]:
    """The batch as steps, sometimes with a heartbeat that makes none of the waiting rows late.

    It stands exactly at the oldest waiting row: anything earlier could fall behind the rows' own watermark,
    and a watermark that moves back is refused.
    """
    choice = draw(st.integers(0, 5))
    if oldest is None or choice > 1:
        return [batch]
    watermark = clock.ticks(oldest)
    return [(batch, watermark)] if choice == 0 else [batch, Push({}, watermark)]
