"""Distinct: each different row once per instant, emitted at once.

Output from input: for each row, the part of its validity that no equal row has covered yet. The *coverage* of a row is
the time for which it has been emitted; another equal row fills the gaps only, and so extends the coverage.

    coverage  ├────┤      ├──────┤
    new row      ├───────────────────┤
    emitted          ├───┤       ├───┤

Where a row is cut depends on what came before it. At every instant the output is the same; aggregates and differences,
whose results begin where rows do, see to it that they do not depend on more (see ``sweep``).

State: the different rows and, for each, its coverage as a list of disjoint intervals in order of time. Rows whose
coverage has ended at the frontier are forgotten; the input's rows themselves are not kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from midstream.algebra.window_spec import BEGINNING, NEVER
from midstream.engine.batch import Batch, Layout
from midstream.engine.kernels import Ints, compiled
from midstream.engine.operators.operator import Operator, StatefulOperator
from midstream.engine.operators.state_handle import StateHandle, StateKey
from midstream.engine.state.key_table import KeyTable
from midstream.engine.state.pool import SlotPool, extended
from midstream.engine.state.time_queue import TimeQueue, slot_then_time_order

__all__ = ["DistinctOperator"]


class _Coverage:
    """Lists of disjoint intervals, one list per slot, in a pool of nodes."""

    def __init__(self) -> None:
        self.heads = np.full(64, -1)
        self.reach = np.full(64, BEGINNING)
        self._pool = SlotPool()
        self._nodes = np.zeros((self._pool.capacity, 3), np.int64)

    def __len__(self) -> int:
        return len(self._pool)

    @property
    def bytes(self) -> int:
        return self.heads.nbytes + self.reach.nbytes + self._nodes.nbytes + self._pool.bytes

    def cover(
        self, slots: Ints, valid_from: Ints, valid_to: Ints, capacity: int, ended: int
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """Add intervals, sorted by slot and begin: (input row, from, to) of each gap that was filled, and the rows that
        reach further than all before. Intervals that ended by ``ended`` may be dropped on the way."""
        if capacity > len(self.heads):
            self.heads = extended(self.heads, capacity, -1)
            self.reach = extended(self.reach, capacity, BEGINNING)
        if self._pool.reserve(len(slots)):
            self._nodes = extended(self._nodes, self._pool.capacity)
        room = 2 * len(slots) + len(self)
        out = (np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64))
        furthest = np.zeros(len(slots), np.bool_)
        found = _cover(
            slots, valid_from, valid_to, ended, self.heads, self.reach, self._nodes, self._pool.free, self._pool.count,
            *out, furthest,
        )  # fmt: skip
        return out[0][:found], out[1][:found], out[2][:found], np.flatnonzero(furthest)

    def forget(self, slots: Ints) -> None:
        """Drop the lists of these slots."""
        _forget(slots, self.heads, self._nodes, self._pool.free, self._pool.count)
        self.reach[slots] = BEGINNING


class DistinctOperator(StatefulOperator):
    """Duplicate elimination over interval streams."""

    def __init__(self, name: str, child: Operator, input_identity: str = "") -> None:
        # A piece refers to the rows of the tuple it was cut from; which of several equal ones that is, is chance.
        below = child.layout
        super().__init__(name, Layout(below.fields, below.stores, (), below.keys), (child,))
        self._state_key = (name, input_identity, *(field.name for field in child.layout.fields))
        self._keys = KeyTable([field.type for field in child.layout.fields])
        self._coverage = _Coverage()
        self._ends = TimeQueue(1)
        self._ended = BEGINNING

    @property
    def state_rows(self) -> int:
        return len(self._coverage)

    @property
    def state_bytes(self) -> int:
        return self._keys.bytes + self._coverage.bytes + self._ends.bytes

    @property
    def state_key(self) -> StateKey:
        return self._state_key

    def adopt(self, donor: StateHandle) -> None:
        assert isinstance(donor, DistinctOperator)
        self._keys, self._coverage, self._ends, self._ended = donor._keys, donor._coverage, donor._ends, donor._ended

    def needed_below(self, retention: int) -> int:
        return min(retention, self.frontier)

    def push(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        for batch in inputs[0]:
            self.counters.rows_in += len(batch)
            self.counters.probes += len(batch)
            slots = self._keys.hold(batch.columns(), len(batch))
            # In this order the walk along a coverage continues where it stood.
            order = slot_then_time_order(slots, batch.valid_from)
            batch, slots = batch.taken(order), slots[order]
            rows, begins, ends, furthest = self._coverage.cover(
                slots, batch.valid_from, batch.valid_to, self._keys.capacity, self._ended
            )
            self._keep_until_end(slots, batch.valid_to, furthest)
            self.counters.rows_out += len(rows)
            if len(rows):
                taken = batch.taken(rows)
                yield Batch(self.layout, begins, ends, taken.references, dict(enumerate(taken.columns())))

    def _keep_until_end(self, slots: Ints, valid_to: Ints, furthest: Ints) -> None:
        """A key is held by the rows that reached furthest when they came; all others let it go at once."""
        passing = np.ones(len(slots), np.bool_)
        passing[furthest] = False
        self._keys.let_go(slots[passing])
        finite = furthest[valid_to[furthest] < NEVER]
        self._ends.push(valid_to[finite], slots[finite].reshape(-1, 1))

    def expire(self, retention: int) -> None:
        self._ended = self.inputs[0].frontier
        _, slots = self._ends.pop_until(self._ended)
        self._coverage.forget(self._keys.let_go(slots[:, 0]))


@compiled
def _cover(  # type: ignore[no-untyped-def]
    slots, valid_from, valid_to, ended, heads, reach, nodes, free, free_count, out_row, out_from, out_to, furthest
):
    """Nodes are (from, to, next). Each input row takes at most one node from the free list."""
    found = 0
    last = -1
    last_before = -1
    for i in range(slots.shape[0]):
        slot = slots[i]
        begin = valid_from[i]
        end = valid_to[i]
        if end > reach[slot]:
            reach[slot] = end
            furthest[i] = True
        if i > 0 and slots[i - 1] == slot:
            before = last_before
            node = last
        else:
            before = -1
            node = heads[slot]
        while node >= 0 and nodes[node, 1] < begin:
            following = nodes[node, 2]
            if nodes[node, 1] <= ended:
                if before < 0:
                    heads[slot] = following
                else:
                    nodes[before, 2] = following
                free[free_count[0]] = node
                free_count[0] += 1
            else:
                before = node
            node = following
        covered = begin
        joined_from = begin
        joined_to = end
        while node >= 0 and nodes[node, 0] <= end:
            if nodes[node, 0] > covered:
                out_row[found] = i
                out_from[found] = covered
                out_to[found] = nodes[node, 0]
                found += 1
            covered = max(covered, nodes[node, 1])
            joined_from = min(joined_from, nodes[node, 0])
            joined_to = max(joined_to, nodes[node, 1])
            free[free_count[0]] = node
            free_count[0] += 1
            node = nodes[node, 2]
        if covered < end:
            out_row[found] = i
            out_from[found] = covered
            out_to[found] = end
            found += 1
        free_count[0] -= 1
        new = free[free_count[0]]
        nodes[new, 0] = joined_from
        nodes[new, 1] = joined_to
        nodes[new, 2] = node
        if before < 0:
            heads[slot] = new
        else:
            nodes[before, 2] = new
        last_before = before
        last = new
    return found


@compiled
def _forget(slots, heads, nodes, free, free_count):  # type: ignore[no-untyped-def]
    for slot in slots:
        node = heads[slot]
        while node >= 0:
            free[free_count[0]] = node
            free_count[0] += 1
            node = nodes[node, 2]
        heads[slot] = -1
