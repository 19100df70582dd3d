"""Running totals per group, swept along time: the part that aggregation and difference have in common.

Each row of a group is two events: it comes at ``valid_from`` and goes at ``valid_to``. Between two events of a group
nothing changes; that segment, with the totals that hold in it, is one output row. The sweep may pass a point in time
once no more row can begin before it, that is when the frontier has reached it.

    rows of a group    ├─────────┤
                            ├──────────┤
    output             ├─ 1 ┼─ 2 ┼── 1 ─┤

Boundaries must be reproducible: which segments have been emitted is derived from them when a state is computed again
from the rows. The rows of windows and the results of joins are the same in every plan and every order of arrival, but a
distinct cuts a row into pieces depending on what came before it. Over a distinct, the sweep is therefore given a
``grid``, and

- rows that go and equal ones that come at the same instant cancel out: a segment ends where the *bag* of rows changes,
  however it is cut into pieces;
- a segment also ends at each multiple of the grid. Otherwise it could last for ever, never be emitted, and begin
  further back than any row that is kept;
- an instant is passed when the frontier is beyond it: only then is it known which rows come at it.

One case is left: of 0.0 and −0.0, which count as equal, a distinct keeps the one that came first. An argument or key
that tells them apart sees another bag when the state is computed again.

Rows wait in one queue until they come and in another until they go; a row that never goes is only counted. Work follows
the events that are due. Totals are kept by accumulators, each a few int64 words per group; what they mean is decided in
``engine/state/accumulators``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from midstream.algebra.window_spec import BEGINNING, NEVER
from midstream.engine.kernels import Flags, Ints, compiled
from midstream.engine.state.exact_sum import WORDS, add_float, read_float
from midstream.engine.state.extremes import drop_heap, heap_add, heap_first, heap_trim
from midstream.engine.state.key_table import KeyTable
from midstream.engine.state.pool import SlotPool, extended
from midstream.engine.state.time_queue import TimeQueue, slot_then_time_order

__all__ = ["COUNT", "EXTREME", "FLOAT_SUM", "INTEGER_SUM", "WIDE_SUM", "Segments", "Sweep", "Total"]

COUNT, INTEGER_SUM, WIDE_SUM, FLOAT_SUM, EXTREME = range(5)

# Words of a row's argument, of the running total, and of the total that is handed out. Each begins with a count of
# arguments that are not NULL (in a row: 0 or 1).
_INPUT_WORDS = {COUNT: 1, INTEGER_SUM: 2, WIDE_SUM: 3, FLOAT_SUM: 2, EXTREME: 2}
_STATE_WORDS = {COUNT: 1, INTEGER_SUM: 3, WIDE_SUM: 5, FLOAT_SUM: 1 + WORDS, EXTREME: 5}
_OUTPUT_WORDS = {COUNT: 1, INTEGER_SUM: 3, WIDE_SUM: 5, FLOAT_SUM: 2, EXTREME: 2}


@dataclass(frozen=True)
class Total:
    """A total to keep. ``distinct`` adds each different argument once: rows carry the slot of (group, argument)."""

    kind: int
    distinct: bool = False

    @property
    def input_words(self) -> int:
        return _INPUT_WORDS[self.kind] + self.distinct


@dataclass(frozen=True)
class Segments:
    """Output: for each segment of a group its slot, validity, number of rows, and the totals' words side by side."""

    slots: Ints
    valid_from: Ints
    valid_to: Ints
    rows: Ints
    words: Ints


class Sweep:
    """Groups by slot, their running totals, and the rows waiting to come or to go.

    ``grid`` makes boundaries independent of how rows are cut into pieces; rows must not be longer. ``extra_words`` of a
    row are only compared: they tell apart arguments that the totals' words do not.
    """

    def __init__(
        self, groups: KeyTable, totals: Sequence[Total], grid: int | None = None, extra_words: int = 0
    ) -> None:
        self.groups = groups
        self.totals = tuple(totals)
        # Windows whose rows are never valid have length 0.
        self._grid = None if grid is None else max(1, grid)
        self.multiplicities = np.zeros(64, np.int64)
        self._plan = np.array(_layout(self.totals), np.int64).reshape(-1, 5)
        self._input_words = sum(total.input_words for total in self.totals) + extra_words
        self._output_words = sum(_OUTPUT_WORDS[total.kind] for total in self.totals)
        state_words = sum(_STATE_WORDS[total.kind] for total in self.totals)
        self._rows = np.zeros(64, np.int64)
        self._since = np.zeros(64, np.int64)
        self._state = np.zeros((64, state_words), np.int64)
        self._pool = SlotPool()
        self._nodes = np.zeros((self._pool.capacity, 4), np.int64)
        # Waiting rows: slot, valid_to, argument words.
        self._coming = TimeQueue(2 + self._input_words)
        self._going = TimeQueue(2 + self._input_words)
        self._grid_points = TimeQueue(2 + self._input_words)

    @property
    def output_widths(self) -> list[int]:
        """How many words of a segment belong to each total."""
        return [_OUTPUT_WORDS[total.kind] for total in self.totals]

    @property
    def waiting(self) -> int:
        """Rows that have not gone yet."""
        return len(self._coming) + len(self._going)

    @property
    def bytes(self) -> int:
        arrays = (self._rows, self._since, self._state, self._nodes, self.multiplicities)
        queues = (self._coming, self._going, self._grid_points)
        return sum(array.nbytes for array in arrays) + self._pool.bytes + sum(queue.bytes for queue in queues)

    def add(self, slots: Ints, valid_from: Ints, valid_to: Ints, words: Ints, on_grid: bool = True) -> None:
        """Rows of the groups in ``slots``, with their argument words. ``on_grid``: they have segments cut there."""
        rows = np.concatenate([slots[:, None], valid_to[:, None], words], axis=1)
        self._coming.push(valid_from, rows)
        if self._grid is not None and on_grid:
            points = (valid_from // self._grid + 1) * self._grid
            inside = (points > valid_from) & (points < valid_to)
            self._grid_points.push(points[inside], np.where(np.arange(rows.shape[1]) == 0, rows[inside], 0))

    def advance(self, frontier: int) -> tuple[Segments, Ints]:
        """The segments that end by the frontier (before it, if there is a grid), and the rows (as queued) that have
        gone."""
        last = frontier if self._grid is None or frontier in (BEGINNING, NEVER) else frontier - 1
        come_times, come = self._coming.pop_until(last)
        self._going.push(*_finite(come))
        gone_times, gone = self._going.pop_until(last)
        point_times, points = self._grid_points.pop_until(last)
        times = np.concatenate([come_times, gone_times, point_times])
        events = np.concatenate([come, gone, points])
        signs = np.repeat(np.array([1, -1, 0]), [len(come), len(gone), len(points)])
        order = slot_then_time_order(events[:, 0], times)
        times, events, signs = times[order], events[order], signs[order]
        self._make_room(len(come))
        segments = self._sweep(times, events, signs, self._boundaries(times, events, signs))
        if frontier == NEVER:
            segments = self._with_open_ends(segments)
        return segments, gone

    def _boundaries(self, times: Ints, events: Ints, signs: Ints) -> Flags:
        """For each event, whether a segment ends at its instant; events are in the order of slot and time."""
        if self._grid is None or len(times) == 0:
            return np.ones(len(times), np.bool_)
        compared = self._comparable_words(events)
        order = np.lexsort([*compared.T, times, events[:, 0]])
        changes = np.ones(len(times), np.bool_)
        changes[1:] = _differs(events[order, 0]) | _differs(times[order]) | _differs(compared[order]).any(axis=1)
        starts = np.flatnonzero(changes)
        is_changed = np.zeros(len(times), np.int64)
        is_changed[starts] = np.add.reduceat(signs[order], starts) != 0
        # The order by words leaves the instants of the groups where they are.
        instants = np.ones(len(times), np.bool_)
        instants[1:] = _differs(events[:, 0]) | _differs(times)
        starts = np.flatnonzero(instants)
        found = np.add.reduceat(is_changed, starts) > 0
        boundaries: Flags = np.repeat(found, np.diff(np.append(starts, len(times)))) | (times % self._grid == 0)
        return boundaries

    def _comparable_words(self, events: Ints) -> Ints:
        """The argument words; floats that count as equal have equal words."""
        words = events[:, 2:].copy()
        for total, (_, place, *_) in zip(self.totals, self._plan, strict=True):
            if total.kind == FLOAT_SUM:
                values = events[:, place + 1].copy().view(np.float64)
                values[values == 0] = 0.0
                values[np.isnan(values)] = np.nan
                words[:, place - 1] = values.view(np.int64)
        return words

    def open_segments(self, until: int) -> Segments:
        """The part before the given instant of segments that are open there; the sweep has reached it."""
        slots = np.flatnonzero(self._rows)
        return self._open(slots[self._since[slots] < until], until)

    def _open(self, slots: Ints, valid_to: int) -> Segments:
        words = np.empty((len(slots), self._output_words), np.int64)
        since = self._since[slots]
        _read_all(slots, since, self._plan, self._state, self._nodes, self._pool.free, self._pool.count, words)
        return Segments(slots, since, np.full(len(slots), valid_to), self._rows[slots], words)

    def _sweep(self, times: Ints, events: Ints, signs: Ints, boundaries: Flags) -> Segments:
        count = len(times)
        out = [np.empty(count, np.int64) for _ in range(4)]
        words = np.empty((count, self._output_words), np.int64)
        found = _sweep(
            times, events, signs, boundaries, self._plan, self._rows, self._since, self._state, self.multiplicities,
            self._nodes, self._pool.free, self._pool.count, *out, words,
        )  # fmt: skip
        return Segments(out[0][:found], out[1][:found], out[2][:found], out[3][:found], words[:found])

    def _with_open_ends(self, segments: Segments) -> Segments:
        """At the end of time: what is still there stays for ever."""
        still = self._open(np.flatnonzero(self._rows), NEVER)
        return Segments(
            np.concatenate([segments.slots, still.slots]),
            np.concatenate([segments.valid_from, still.valid_from]),
            np.concatenate([segments.valid_to, still.valid_to]),
            np.concatenate([segments.rows, still.rows]),
            np.concatenate([segments.words, still.words]),
        )

    def _make_room(self, coming: int) -> None:
        capacity = self.groups.capacity
        if capacity > len(self._rows):
            self._rows = extended(self._rows, capacity)
            self._since = extended(self._since, capacity)
            self._state = extended(self._state, capacity)
        heaps = sum(total.kind == EXTREME for total in self.totals)
        if self._pool.reserve(coming * heaps):
            self._nodes = extended(self._nodes, self._pool.capacity)


def _layout(totals: Sequence[Total]) -> list[list[int]]:
    """Per total: kind, place of its words in a row, in the state and in the output, place of its pair slot or -1."""
    rows = []
    read, kept, written = 2, 0, 0
    for total in totals:
        pair = read + _INPUT_WORDS[total.kind] if total.distinct else -1
        rows.append([total.kind, read, kept, written, pair])
        read += total.input_words
        kept += _STATE_WORDS[total.kind]
        written += _OUTPUT_WORDS[total.kind]
    return rows


def _differs(values: Ints) -> Flags:
    """Whether each row but the first differs from the one before."""
    flags: Flags = values[1:] != values[:-1]
    return flags


def _finite(come: Ints) -> tuple[Ints, Ints]:
    finite = come[come[:, 1] < NEVER]
    return finite[:, 1].copy(), finite


@compiled
def _apply(plan, event, sign, state, multiplicities, nodes, free, free_count):  # type: ignore[no-untyped-def]
    """Let one row come (sign 1) or go (-1)."""
    for i in range(plan.shape[0]):
        kind = plan[i, 0]
        read = plan[i, 1]
        kept = plan[i, 2]
        if event[read] == 0:
            continue
        if plan[i, 4] >= 0:
            pair = event[plan[i, 4]]
            multiplicities[pair] += sign
            # Only the first to come and the last to go change the total.
            if multiplicities[pair] != (1 if sign > 0 else 0):
                continue
        state[kept] += sign
        if kind == INTEGER_SUM:
            value = event[read + 1]
            state[kept + 1] += sign * (value & np.int64(0xFFFFFFFF))
            state[kept + 2] += sign * (value >> np.int64(32))
        elif kind == WIDE_SUM:
            low = event[read + 1]
            high = event[read + 2]
            state[kept + 1] += sign * (low & np.int64(0xFFFFFFFF))
            state[kept + 2] += sign * ((low >> np.int64(32)) & np.int64(0xFFFFFFFF))
            state[kept + 3] += sign * (high & np.int64(0xFFFFFFFF))
            state[kept + 4] += sign * (high >> np.int64(32))
        elif kind == FLOAT_SUM:
            add_float(state[kept + 1 : kept + 1 + WORDS], event[read + 1], sign)
        elif kind == EXTREME and sign > 0:
            heap_add(nodes, free, free_count, state[kept + 1 : kept + 5], event[read + 1], event[1])


@compiled
def _read(plan, since, state, nodes, free, free_count, out):  # type: ignore[no-untyped-def]
    """The totals that hold from ``since`` on."""
    for i in range(plan.shape[0]):
        kind = plan[i, 0]
        kept = plan[i, 2]
        written = plan[i, 3]
        out[written] = state[kept]
        if kind == INTEGER_SUM:
            out[written + 1] = state[kept + 1]
            out[written + 2] = state[kept + 2]
        elif kind == WIDE_SUM:
            for j in range(1, 5):
                out[written + j] = state[kept + j]
        elif kind == FLOAT_SUM:
            out[written + 1] = read_float(state[kept + 1 : kept + 1 + WORDS])
        elif kind == EXTREME:
            heap = state[kept + 1 : kept + 5]
            heap_trim(nodes, free, free_count, heap, state[kept], since)
            out[written + 1] = heap_first(nodes, free, free_count, heap, since)


@compiled
def _read_all(slots, since, plan, state, nodes, free, free_count, out):  # type: ignore[no-untyped-def]
    for i in range(slots.shape[0]):
        _read(plan, since[i], state[slots[i]], nodes, free, free_count, out[i])


@compiled
def _sweep(  # type: ignore[no-untyped-def]
    times, events, signs, boundaries, plan, rows, since, state, multiplicities, nodes, free, free_count,
    out_slot, out_from, out_to, out_rows, out_words,
):  # fmt: skip
    found = 0
    i = 0
    while i < times.shape[0]:
        slot = events[i, 0]
        now = times[i]
        if rows[slot] == 0:
            since[slot] = now
        elif boundaries[i] and now > since[slot]:
            out_slot[found] = slot
            out_from[found] = since[slot]
            out_to[found] = now
            out_rows[found] = rows[slot]
            _read(plan, since[slot], state[slot], nodes, free, free_count, out_words[found])
            found += 1
            since[slot] = now
        while i < times.shape[0] and events[i, 0] == slot and times[i] == now:
            rows[slot] += signs[i]
            _apply(plan, events[i], signs[i], state[slot], multiplicities, nodes, free, free_count)
            i += 1
        if rows[slot] == 0:
            for j in range(plan.shape[0]):
                if plan[j, 0] == EXTREME:
                    drop_heap(nodes, free, free_count, state[slot, plan[j, 2] + 1 : plan[j, 2] + 5])
    return found
