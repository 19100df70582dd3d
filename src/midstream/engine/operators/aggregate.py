"""Aggregate: one row per group and segment of time in which the group's rows stay the same.

Output from input: the groups are the different values of the keys; for each group and each segment between two
changes of its rows, the aggregates over the rows valid in it. No rows, no group, no output. Final, and therefore
emitted, when the frontier has reached the end of the segment (see ``final_operator``).

State: a sweep (rows waiting to come and to go, running totals per group). For DISTINCT aggregates also the
different (group, argument) pairs with their multiplicities. MIN and MAX over text, binary, uint64 and long
decimals, which have no order codes, are kept in ordinary Python heaps: right, but much slower than the others.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from midstream.algebra.aggregates import AggregateCall, aggregate_call
from midstream.algebra.expressions import Expression
from midstream.algebra.plan import Aggregate
from midstream.algebra.window_spec import NEVER
from midstream.engine.batch import Batch, Layout
from midstream.engine.codes import has_order_codes
from midstream.engine.expressions.evaluate import evaluate
from midstream.engine.kernels import Ints
from midstream.engine.operators.final_operator import FinalOperator
from midstream.engine.operators.operator import Operator
from midstream.engine.operators.state_handle import StateHandle, StateKey
from midstream.engine.operators.sweep import Segments, Sweep
from midstream.engine.state.accumulators import Accumulator, concatenated
from midstream.engine.state.key_table import KeyTable
from midstream.engine.state.pool import extended

__all__ = ["AggregateOperator"]


class AggregateOperator(FinalOperator):
    """Grouped aggregation over interval streams."""

    def __init__(self, plan: Aggregate, child: Operator) -> None:
        super().__init__(plan.label, Layout(plan.schema), (child,), plan.input.longest)
        self._keys = [key.expression for key in plan.keys]
        self._calls = [aggregate.call for aggregate in plan.aggregates]
        self._state_key = (plan.label, plan.input.identity)
        self._groups = KeyTable([key.type for key in self._keys])
        self._slow = {
            position: _OrderedValues(call)
            for position, call in enumerate(self._calls)
            if call.function in ("min", "max") and call.argument is not None and not has_order_codes(call.argument.type)
        }
        # The sweep counts the arguments of those kept elsewhere, so that its words stay in step with the calls.
        self._accumulators = [
            Accumulator(aggregate_call("count", call.argument) if position in self._slow else call)
            for position, call in enumerate(self._calls)
        ]
        self._pairs = {
            position: KeyTable([pa.int64(), call.argument.type])
            for position, call in enumerate(self._calls)
            if call.distinct and call.argument is not None
        }
        # Each DISTINCT aggregate has multiplicities of its own: the sweep keeps them in one array, interleaved.
        self._lanes = {position: lane for lane, position in enumerate(self._pairs)}
        # The sweep compares what it only counts: which values come and go.
        self._compared = {
            position: KeyTable([pa.int64(), slow.argument_type]) for position, slow in self._slow.items()
        } if plan.input.gives_pieces else {}  # fmt: skip
        self._sweep = Sweep(
            self._groups,
            [accumulator.total for accumulator in self._accumulators],
            plan.input.longest if plan.input.gives_pieces else None,
            len(self._compared),
        )

    @property
    def state_bytes(self) -> int:
        pairs = sum(table.bytes for tables in (self._pairs, self._compared) for table in tables.values())
        # About what a Python value in a heap takes.
        ordered = 150 * sum(len(slow) for slow in self._slow.values())
        return self._groups.bytes + self._sweep.bytes + pairs + ordered

    @property
    def state_key(self) -> StateKey:
        return self._state_key

    def adopt(self, donor: StateHandle) -> None:
        assert isinstance(donor, AggregateOperator)
        self._groups, self._pairs, self._slow, self._sweep = donor._groups, donor._pairs, donor._slow, donor._sweep
        self._compared = donor._compared

    def _output(self, segments: Segments) -> Iterator[Batch]:
        if len(segments.slots):
            columns = [self._groups.gather(position, segments.slots) for position in range(len(self._keys))]
            columns += self._totals(segments)
            yield Batch.of_arrays(self.layout, segments.valid_from, segments.valid_to, columns)

    def _add(self, side: int, batch: Batch) -> None:
        def value(expression: Expression) -> pa.Array:
            return evaluate(expression, batch.column, len(batch))

        slots = self._groups.hold([value(key) for key in self._keys], len(batch))
        parts, compared = [], []
        for position, (call, accumulator) in enumerate(zip(self._calls, self._accumulators, strict=True)):
            argument = None if call.argument is None else value(call.argument)
            parts.append(accumulator.words(argument, len(batch)))
            if position in self._pairs:
                assert argument is not None
                parts.append(self._pair_slots(position, slots, argument)[:, None])
            if position in self._slow:
                assert argument is not None
                self._slow[position].add(slots, batch.valid_from, batch.valid_to, argument)
            if position in self._compared:
                table = self._compared[position]
                compared.append(table.hold([pa.array(slots), argument], len(batch))[:, None])
        self._sweep.add(slots, batch.valid_from, batch.valid_to, concatenated(parts + compared, len(batch)))

    def _pair_slots(self, position: int, slots: Ints, argument: pa.Array) -> Ints:
        table = self._pairs[position]
        pairs = table.hold([pa.array(slots), argument], len(slots)) * len(self._pairs) + self._lanes[position]
        needed = max(other.capacity for other in self._pairs.values()) * len(self._pairs)
        if needed > len(self._sweep.multiplicities):
            self._sweep.multiplicities = extended(self._sweep.multiplicities, needed)
        return pairs

    def _totals(self, segments: Segments) -> list[pa.Array]:
        columns = []
        place = 0
        widths = self._sweep.output_widths
        for position, (accumulator, width) in enumerate(zip(self._accumulators, widths, strict=True)):
            words = segments.words[:, place : place + width]
            if position in self._slow:
                columns.append(self._slow[position].read(segments, words[:, 0]))
            else:
                columns.append(accumulator.values(words))
            place += width
        return columns

    def _let_go(self, gone: Ints) -> None:
        released = self._groups.let_go(gone[:, 0])
        place = 2
        for position, accumulator in enumerate(self._accumulators):
            place += accumulator.total.input_words
            if position in self._pairs:
                self._pairs[position].let_go(gone[:, place - 1] // len(self._pairs))
        for table in self._compared.values():
            table.let_go(gone[:, place])
            place += 1
        for slow in self._slow.values():
            slow.forget(released)


class _Reversed:
    """A value that sorts the other way round: heapq only finds the smallest."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)


class _OrderedValues:
    """MIN or MAX over values that only Python can compare, one heap of (value, end) per group."""

    def __init__(self, call: AggregateCall) -> None:
        assert call.argument is not None
        self.argument_type = call.argument.type
        self._type = call.type
        self._largest = call.function == "max"
        self._heaps: dict[int, list[tuple[Any, int, int]]] = {}
        self._coming: dict[int, list[tuple[int, int, int, Any]]] = {}
        self._forever: dict[int, Any] = {}
        self._serial = 0

    def __len__(self) -> int:
        """Values held."""
        waiting = sum(len(rows) for rows in self._coming.values())
        return waiting + sum(len(heap) for heap in self._heaps.values()) + len(self._forever)

    def add(self, slots: Ints, valid_from: Ints, valid_to: Ints, argument: pa.Array) -> None:
        rows = zip(slots.tolist(), valid_from.tolist(), valid_to.tolist(), argument.to_pylist(), strict=True)
        for slot, begin, end, value in rows:
            if value is not None:
                self._serial += 1
                waiting = self._coming.setdefault(slot, [])
                heapq.heappush(waiting, (begin, self._serial, end, _Reversed(value) if self._largest else value))

    def read(self, segments: Segments, counts: Ints) -> pa.Array:
        """The extreme of each segment; the segments of a group are in order of time."""
        values = []
        rows = zip(segments.slots.tolist(), segments.valid_from.tolist(), counts.tolist(), strict=True)
        for slot, begin, count in rows:
            heap = self._heaps.setdefault(slot, [])
            waiting = self._coming.get(slot, [])
            while waiting and waiting[0][0] <= begin:
                _, serial, end, value = heapq.heappop(waiting)
                if end < NEVER:
                    heapq.heappush(heap, (value, serial, end))
                elif slot not in self._forever or value < self._forever[slot]:
                    self._forever[slot] = value
            while heap and heap[0][2] <= begin:
                heapq.heappop(heap)
            if len(heap) > 2 * count + 16:
                heap[:] = [entry for entry in heap if entry[2] > begin]
                heapq.heapify(heap)
            first = heap[0][0] if heap else None
            forever = self._forever.get(slot)
            if forever is not None and (first is None or forever < first):
                first = forever
            values.append(first.value if isinstance(first, _Reversed) else first)
        return pa.array(values, self._type)

    def forget(self, slots: Ints) -> None:
        for slot in slots.tolist():
            self._heaps.pop(slot, None)
            self._forever.pop(slot, None)
            self._coming.pop(slot, None)
