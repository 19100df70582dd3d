"""Running totals per group, swept along time: the part that aggregation and difference have in common.

Each row of a group is two events: it comes at ``valid_from`` and goes at ``valid_to``. Between two events of a group
nothing changes; that stretch, with the totals that hold in it, is one output row. The sweep may pass a point in time
once no more row can begin before it, that is when the frontier has reached it.

    rows of a group    ├─────────┤
                            ├──────────┤
    output             ├─ 1 ┼─ 2 ┼── 1 ─┤

Rows wait in one queue until they come and in another until they go; a row that never goes is only counted. Work follows
the events that are due. Totals are kept by accumulators, each a few int64 words per group; what they mean is decided in
``engine/accumulators``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from midstream.algebra.windows import NEVER
from midstream.engine.exact_sum import WORDS, add_float, read_float
from midstream.engine.extremes import drop_heap, heap_add, heap_first, heap_trim
from midstream.engine.kernels import Ints, compiled
from midstream.engine.key_table import KeyTable
from midstream.engine.pool import SlotPool, extended
from midstream.engine.time_queue import TimeQueue, slot_then_time_order

__all__ = ["COUNT", "EXTREME", "FLOAT_SUM", "INTEGER_SUM", "WIDE_SUM", "Stretches", "Sweep", "Total"]

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
class Stretches:
    """Output: for each stretch of a group its slot, validity, number of rows, and the totals' words side by side."""

    slots: Ints
    valid_from: Ints
    valid_to: Ints
    rows: Ints
    words: Ints


class Sweep:
    """Groups by slot, their running totals, and the rows waiting to come or to go."""

    def __init__(self, groups: KeyTable, totals: Sequence[Total]) -> None:
        self.groups = groups
        self.totals = tuple(totals)
        self.multiplicities = np.zeros(64, np.int64)
        self._plan = np.array(_layout(self.totals), np.int64).reshape(-1, 5)
        self._input_words = sum(total.input_words for total in self.totals)
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

    @property
    def output_widths(self) -> list[int]:
        """How many words of a stretch belong to each total."""
        return [_OUTPUT_WORDS[total.kind] for total in self.totals]

    @property
    def waiting(self) -> int:
        """Rows that have not gone yet."""
        return len(self._coming) + len(self._going)

    @property
    def bytes(self) -> int:
        arrays = (self._rows, self._since, self._state, self._nodes, self.multiplicities)
        return sum(array.nbytes for array in arrays) + self._pool.bytes + self._coming.bytes + self._going.bytes

    def add(self, slots: Ints, valid_from: Ints, valid_to: Ints, words: Ints) -> None:
        """Rows of the groups in ``slots``, with their argument words."""
        self._coming.push(valid_from, np.concatenate([slots[:, None], valid_to[:, None], words], axis=1))

    def advance(self, frontier: int) -> tuple[Stretches, Ints]:
        """The stretches that end by the frontier, and the rows (as queued) that have gone."""
        come_times, come = self._coming.pop_until(frontier)
        self._going.push(*_finite(come))
        gone_times, gone = self._going.pop_until(frontier)
        times = np.concatenate([come_times, gone_times])
        events = np.concatenate([come, gone])
        signs = np.ones(len(times), np.int64)
        signs[len(come_times) :] = -1
        order = slot_then_time_order(events[:, 0], times)
        self._make_room(len(come))
        stretches = self._sweep(times[order], events[order], signs[order])
        if frontier == NEVER:
            stretches = self._with_open_ends(stretches)
        return stretches, gone

    def cut(self, at: int) -> Stretches:
        """The stretches that are open at a time that the sweep has reached, up to it; they go on from there anew."""
        slots = np.flatnonzero(self._rows)
        slots = slots[self._since[slots] < at]
        stretches = self._open(slots, at)
        self._since[slots] = at
        return stretches

    def _open(self, slots: Ints, valid_to: int) -> Stretches:
        words = np.empty((len(slots), self._output_words), np.int64)
        since = self._since[slots]
        _read_all(slots, since, self._plan, self._state, self._nodes, self._pool.free, self._pool.count, words)
        return Stretches(slots, since, np.full(len(slots), valid_to), self._rows[slots], words)

    def _sweep(self, times: Ints, events: Ints, signs: Ints) -> Stretches:
        count = len(times)
        out = [np.empty(count, np.int64) for _ in range(4)]
        words = np.empty((count, self._output_words), np.int64)
        found = _sweep(
            times, events, signs, self._plan, self._rows, self._since, self._state, self.multiplicities,
            self._nodes, self._pool.free, self._pool.count, *out, words,
        )  # fmt: skip
        return Stretches(out[0][:found], out[1][:found], out[2][:found], out[3][:found], words[:found])

    def _with_open_ends(self, stretches: Stretches) -> Stretches:
        """At the end of time: what is still there stays for ever."""
        still = self._open(np.flatnonzero(self._rows), NEVER)
        return Stretches(
            np.concatenate([stretches.slots, still.slots]),
            np.concatenate([stretches.valid_from, still.valid_from]),
            np.concatenate([stretches.valid_to, still.valid_to]),
            np.concatenate([stretches.rows, still.rows]),
            np.concatenate([stretches.words, still.words]),
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
    times, events, signs, plan, rows, since, state, multiplicities, nodes, free, free_count,
    out_slot, out_from, out_to, out_rows, out_words,
):  # fmt: skip
    found = 0
    i = 0
    while i < times.shape[0]:
        slot = events[i, 0]
        now = times[i]
        if rows[slot] > 0 and now > since[slot]:
            out_slot[found] = slot
            out_from[found] = since[slot]
            out_to[found] = now
            out_rows[found] = rows[slot]
            _read(plan, since[slot], state[slot], nodes, free, free_count, out_words[found])
            found += 1
        while i < times.shape[0] and events[i, 0] == slot and times[i] == now:
            rows[slot] += signs[i]
            _apply(plan, events[i], signs[i], state[slot], multiplicities, nodes, free, free_count)
            i += 1
        since[slot] = now
        if rows[slot] == 0:
            for j in range(plan.shape[0]):
                if plan[j, 0] == EXTREME:
                    drop_heap(nodes, free, free_count, state[slot, plan[j, 2] + 1 : plan[j, 2] + 5])
    return found
