"""Random streams and rows: the data half of the generators.

Values come from domains of a handful, so that joins match, groups fill and duplicates are frequent; each
domain holds what tends to break engines: NaN and -0.0, integers no double can hold, the empty string. Event
times tie, go backwards within the lateness the stream declares, and may be negative or NULL; where the query's windows
are known, rows of some inputs begin exactly where the windows let earlier ones end. Heartbeats stand at the oldest row
still to come, at and next to the boundaries of the query's sliding windows, where results become final, or at and next
to where windows let the newest rows end, which is where migrations that wait for old rows come to their end. Over some
inputs the watermark moves from one begin or end of a row to the next.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

from midstream.algebra.stream import Stream
from midstream.algebra.window_spec import WindowSpec
from midstream.testing.choices import Choices
from midstream.testing.scripted_source import Push, script

__all__ = ["BATCHINGS", "KINDS", "Clock", "DeclaredColumn", "DeclaredStream", "clock", "declared_streams", "pushes"]

_BIG = 2**53 + 1
_SIGNED = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
_DAYS = [datetime.date(1969, 12, 31), datetime.date(2020, 2, 29), datetime.date(2021, 1, 1)]
_MOMENTS = [
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999000),
    datetime.datetime(2020, 2, 29, 12, 30, 15),
    datetime.datetime(2021, 1, 1),
]

KINDS: dict[str, tuple[list[pa.DataType], list[Any]]] = {
    "small": ([pa.int64()], [1, 2, 0]),
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
_KINDS = [kind for kind in KINDS if kind != "small"]

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

    def steps(self, lengths: Sequence[int]) -> list[int]:
        """Those of the lengths in ticks that are whole steps, in steps."""
        return [length // self.ticks(1) for length in lengths if length % self.ticks(1) == 0]

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


def clock(choices: Choices, event_time: str | None = None) -> Clock:
    """A time domain; `event_time` is "integer", "timestamp" or None for either."""
    if event_time == "integer" or (event_time is None and not choices.chance(2)):
        return Clock(None)
    units = [(1, "MICROSECOND"), (1_000, "MILLISECOND"), (1_000_000, "SECOND"), (60_000_000, "MINUTE")]
    return Clock(choices.pick(units), choices.pick([None, None, "UTC"]))


def declared_streams(choices: Choices, clock: Clock, count: int, plain: bool = False) -> list[DeclaredStream]:
    """Declarations named s0, s1, ...; all have a column `k` of one kind, the usual join key.

    If `plain`, they have two columns of small integers beside the event time.
    """
    kinds = [kind for kind in _KINDS if kind != "nested"]
    key_kind = "small" if plain else choices.pick(["integer", "integer", "signed", "text", *kinds])
    return [_declare(choices, clock, f"s{index}", key_kind, plain) for index in range(count)]


def _declare(choices: Choices, clock: Clock, name: str, key_kind: str, plain: bool) -> DeclaredStream:
    columns = [DeclaredColumn("ts", clock.kind, choices.pick(clock.types))]
    if plain:
        columns += [DeclaredColumn(column, "small", pa.int64()) for column in _COLUMN_NAMES[:2]]
    else:
        others = [choices.pick(["integer", *_KINDS]) for _ in range(choices.number(1, len(_COLUMN_NAMES) - 1))]
        for column, kind in zip(_COLUMN_NAMES, [key_kind, *others], strict=False):
            columns.append(DeclaredColumn(column, kind, choices.pick(KINDS[kind][0])))
    lateness = choices.pick([0, 0, 0, 3] if plain else [0, 0, 3, 20])
    schema = pa.schema([(column.name, column.type) for column in columns])
    stream = Stream(name, schema, event_time="ts", lateness=clock.lateness(lateness))
    return DeclaredStream(stream, tuple(columns), lateness)


BATCHINGS = ("rows", "whole", "mixed")
"""Ways to cut rows into pushes."""


def pushes(
    choices: Choices,
    clock: Clock,
    streams: Sequence[DeclaredStream],
    max_rows: int,
    batchings: Sequence[str],
    windows: Sequence[tuple[str, WindowSpec]] = (),
    ahead: Collection[str] = (),
    lag: int = 0,
) -> tuple[Push, ...]:
    """Rows for the streams, cut into pushes: all at once, one row each, or anything between.

    `windows` are the query's over these streams that end: where some slide, heartbeats come more often, and stand at
    their boundaries and one tick before and after them. The streams in `ahead` have some rows more, and these
    arrive in any order, as long as one of the other streams is slow, or all rows in order of time; rows of other inputs
    do the first now and then. Results are final `lag` ticks after their rows.
    """
    origin = choices.pick([0, -10, -3, 100])
    palette = _Palette(choices, choices.pick([1, 1, 2] if max_rows < 7 else [1, 2, 3, 4]))
    slides = sorted({window.slide for _, window in windows if window.slide is not None})
    lengths = sorted({window.longest for _, window in windows})
    # What is cut into pieces in another order is cut elsewhere; or pieces meet, and it depends on rows still to come.
    shuffles = not choices.chance(2) if ahead else bool(slides) and choices.chance(3)
    apart = clock.steps(lengths) if lengths and choices.chance(2) and not (ahead and shuffles) else []
    waiting = {}
    for declared in streams:
        own = clock.steps(sorted({window.longest for name, window in windows if name == declared.stream.name}))
        distances, rows = [] if not apart or choices.chance(3) else own + apart, max_rows
        if declared.stream.name in ahead:
            distances, rows = [] if shuffles else own, max_rows + 2
        waiting[declared.stream.name] = _arrivals(choices, declared, palette, origin, rows, distances)
    # If all rows arrive in order of time, the watermark can reach each before it arrives.
    in_turn = bool(ahead) and not shuffles and not choices.chance(4)
    rows_meet = bool(apart) or in_turn
    stepwise = bool(lengths) and not in_turn
    stepwise = stepwise and (not choices.chance(4) if lag or (ahead and shuffles) else choices.chance(4))
    last_heartbeats = choices.number(3, 9) if lag else choices.number(0, 7)
    if lengths and (not lag or choices.chance(4)):
        # The results of nested operators are final one or more lengths after their rows have ended.
        lag = choices.pick([0, 0, 1, 2, 2]) * choices.pick([lengths[-1], choices.pick(lengths)])
    heartbeats = _Heartbeats(clock, streams, windows, slides, rows_meet, stepwise, lag)
    batching = choices.pick(batchings)
    positions = dict.fromkeys(waiting, 0)
    steps: list[Any] = []
    batch: dict[str, list[tuple[Any, ...]]] = {}
    # There is no watermark before every stream has had a row.
    first: list[str] = []
    early: dict[str, int] = {}
    if shuffles:
        first, early = _in_any_order(choices, waiting, ahead)
    elif slides and not choices.chance(3):
        first = [name for name, rows in waiting.items() if rows]
    while left := [name for name, rows in waiting.items() for _ in rows[positions[name] :]]:
        next_ones = [name for name in left if positions[name] < early.get(name, 0)] or left
        if in_turn:
            next_ones = [min(left, key=lambda name: waiting[name][positions[name]][0] or origin)]
        name = first.pop() if first else choices.pick(next_ones)
        step, values = waiting[name][positions[name]]
        positions[name] += 1
        batch.setdefault(name, []).append((None if step is None else clock.event_time(step), *values))
        heartbeats.saw(name, step)
        is_cut = name in ahead and (name in early or in_turn) and batching != "whole" and not choices.chance(4)
        is_full = batching == "rows" or is_cut or (batching == "mixed" and choices.chance(2))
        if (not first and is_full) or len(left) == 1:
            times = [step for name, rows in waiting.items() for step, _ in rows[positions[name] :] if step is not None]
            steps += heartbeats.close(choices, batch, min(times, default=None))
            batch = {}
    if slides or stepwise or lag:
        # Results that wait for certainty come one after the other, if there is time for that before the end.
        steps += [Push({}, heartbeats.later(choices)) for _ in range(last_heartbeats)]
    made = script([declared.stream for declared in streams], steps)
    return tuple(step for step in made if isinstance(step, Push))


def _in_any_order(
    choices: Choices, waiting: dict[str, list[_Arrival]], ahead: Collection[str]
) -> tuple[list[str], dict[str, int]]:
    """Let one stream be slow, and rows of the others arrive in any order: none is late before the slow one moves on.

    Changes `waiting`. The slow stream, if possible none of the `ahead`, is the one to begin, with the oldest row of
    all, or it begins after the others; then come so many rows of each other stream. It may have no more than that row:
    then time passes by heartbeats alone.
    """
    names = [name for name, rows in waiting.items() if rows]
    times = [time for rows in waiting.values() for time, _ in rows if time is not None]
    if len(names) < 2 or not times:
        return [], {}
    slow = choices.pick([name for name in names if name not in ahead] or names)
    if ahead and choices.chance(2):
        del waiting[slow][1:]
    begins = not choices.chance(3)
    if begins:
        waiting[slow][0] = (min(times), waiting[slow][0][1])
    early = {}
    for name in names:
        if name != slow:
            rows = waiting[name]
            early[name] = count = choices.pick([len(rows), len(rows), choices.number(1, len(rows))])
            for place in range(count - 1):
                other = choices.number(place, count - 1)
                rows[place], rows[other] = rows[other], rows[place]
    return [slow] if begins else [], early


class _Palette:
    """The few values of each kind that one input is painted with."""

    def __init__(self, choices: Choices, size: int) -> None:
        self._choices = choices
        self._size = size
        self._values: dict[Any, list[Any]] = {}

    def row(self, columns: Sequence[DeclaredColumn]) -> tuple[Any, ...]:
        """Values for the columns; each may be NULL."""
        return tuple(self._choices.pick(self._of(column)) for column in columns)

    def _of(self, column: DeclaredColumn) -> list[Any]:
        key = column.type if column.kind == "nested" else column.kind
        if key not in self._values:
            repeats = 5 if column.kind == "small" else 2
            domain = _NESTED_VALUES.get(column.type, KINDS[column.kind][1])
            self._values[key] = [*[self._choices.pick(domain) for _ in range(self._size)] * repeats, None]
        return self._values[key]


def _arrivals(
    choices: Choices,
    declared: DeclaredStream,
    palette: _Palette,
    origin: int,
    max_rows: int,
    apart: Sequence[int] = (),
) -> list[_Arrival]:
    """Rows in order of arrival, as (step of the event time, values); none is ever late.

    A watermark is at most the stream's newest event time less its lateness, so a row within the lateness of
    all rows before it is on time in every batching and interleaving. Each row may be absent, so that failures shrink
    to few rows though most inputs have many. Where `apart` gives distances, most rows have one of them between them.
    """
    advances = (
        [0, 1, 1, 2, 3, 9] if any(column.kind != "small" for column in declared.columns[1:]) else [1, 0, 2, 3, 4, 5]
    )
    if apart:
        distance = choices.pick(apart)
        advances = [distance, distance, distance, 0, 1, *apart]
    newest = origin + choices.number(0, 4)
    arrivals: list[_Arrival] = []
    for _ in range(max_rows):
        role = choices.number(0, 11)
        if role == 0:
            continue
        if role == 11:
            arrivals.append((None, palette.row(declared.columns[1:])))
        elif role >= 9 and arrivals and arrivals[-1][0] == newest:
            arrivals.append(arrivals[-1])
        else:
            newest += choices.pick(advances)
            delay = choices.number(0, declared.lateness_steps) if declared.lateness_steps else 0
            arrivals.append((newest - delay, palette.row(declared.columns[1:])))
    return arrivals


class _Heartbeats:
    """Where the watermark stands while rows arrive, and where a heartbeat may set it."""

    def __init__(
        self,
        clock: Clock,
        streams: Sequence[DeclaredStream],
        windows: Sequence[tuple[str, WindowSpec]],
        slides: Sequence[int],
        rows_meet: bool,
        stepwise: bool,
        lag: int,
    ) -> None:
        self._clock = clock
        self._lateness = {declared.stream.name: declared.lateness_steps for declared in streams}
        self._windows = windows
        self._slides = slides
        self._rows_meet = rows_meet
        self._stepwise = stepwise
        self._lag = lag
        self._seen: set[tuple[str, int]] = set()
        self._newest: dict[str, int] = {}
        self._explicit: int | None = None

    def saw(self, name: str, step: int | None) -> None:
        """Note the event time of a row."""
        if step is not None:
            self._newest[name] = max(step, self._newest.get(name, step))
            self._seen.add((name, step))

    def close(self, choices: Choices, batch: dict[str, Any], oldest: int | None) -> list[Any]:
        """The batch as steps, sometimes with a heartbeat that makes none of the waiting rows late."""
        choice = choices.number(0, 5)
        often = self._slides or self._stepwise
        if choice < (2 if self._rows_meet else 3 if often else 4) or (
            oldest is None and not (self._slides or self._stepwise)
        ):
            return [batch]
        self._explicit = self._watermark(choices, oldest)
        return (
            [(batch, self._explicit)]
            if choice == 5 or (self._slides and choice == 4)
            else [batch, Push({}, self._explicit)]
        )

    def later(self, choices: Choices) -> int:
        """A watermark after the last row."""
        self._explicit = self._watermark(choices, None)
        return self._explicit

    def _watermark(self, choices: Choices, oldest: int | None) -> int:
        """An allowed watermark: at the oldest waiting row; or before it: near a boundary of a slide, near where rows
        begin or end, or anywhere."""
        longest = max(self._slides, default=0)
        lag = self._lag if oldest is None else 0
        current = self._current()
        if oldest is not None:
            latest = self._clock.ticks(oldest)
            if self._rows_meet and choices.chance(4 if self._stepwise else 2):
                # A row ends here, and the next one has not arrived: what is passed now must not depend on it.
                return latest if current is None else max(latest, current)
        else:
            latest = self._clock.ticks(max(self._newest.values(), default=0))
            latest = max(latest, latest if current is None else current) + longest
            if self._windows and not choices.chance(3):
                latest = max([latest, *(end + lag for end in self._ends())])
        latest = latest if current is None else max(latest, current)
        earliest = latest - 2 * longest if current is None else current
        if self._stepwise and (events := self._events(earliest, latest, lag)) and not choices.chance(4):
            return choices.pick(events)
        if lag and not choices.chance(4):
            first = min((self._clock.ticks(step) for _, step in self._seen), default=0) + lag
            earliest = min(max(earliest, first), latest)
            return earliest + (latest - earliest) // choices.pick([8, 4, 3, 2])
        if self._slides and choices.chance(3):
            step = self._clock.ticks(1)
            return latest - step * choices.number(0, (latest - earliest) // step)
        marks = [end + lag for end in self._ends() if earliest < end + lag <= latest]
        if not (marks and choices.chance(2)):
            marks = [m for slide in self._slides for m in (-(-earliest // slide) * slide, latest // slide * slide)]
        found = dict.fromkeys(ticks for mark in marks for ticks in (mark, mark - 1, mark + 1))
        return choices.pick([latest, *(ticks for ticks in found if earliest <= ticks <= latest)])

    def _events(self, earliest: int, latest: int, lag: int) -> list[int]:
        """The next instants at which rows seen so far begin or end, so much later, and those next to them."""
        found = {
            instant
            for stream, step in self._seen
            for instants in self._validities(stream, step)
            for instant in instants
        }
        coming = sorted(ticks + lag for ticks in found if ticks + lag > earliest)[:3]
        return [ticks for event in coming for ticks in (event, event + 1, event - 1) if earliest <= ticks <= latest]

    def _ends(self) -> list[int]:
        """Where windows let the newest row of each stream end."""
        return [end for stream, newest in self._newest.items() for _, end in self._validities(stream, newest)]

    def _validities(self, stream: str, step: int) -> list[tuple[int, int]]:
        """What the windows make of a row."""
        time = self._clock.ticks(step)
        return [window.validity(time) for name, window in self._windows if name == stream]

    def _current(self) -> int | None:
        """The watermark in force, in ticks."""
        if self._newest.keys() != self._lateness.keys():
            return self._explicit
        of_rows = min(self._newest[name] - lateness for name, lateness in self._lateness.items())
        ticks = self._clock.ticks(of_rows)
        return ticks if self._explicit is None else max(ticks, self._explicit)
