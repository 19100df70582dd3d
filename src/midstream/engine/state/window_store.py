"""The rows still inside their windows: the truth from which everything else is derived.

Every plan of a query reads the same windows. A row enters its windows once and gets a number there; all boxes of the
query refer to it by that number, whether they run one after the other or side by side. Indexes, intermediate results
and totals can be thrown away and computed again from here.

Conditions that every plan puts right above a window are applied before a row enters. Rows are given up when no box
needs them: see ``Executor.horizons``. A query without stateful operators keeps none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.algebra.expressions import Expression, conjunction
from midstream.algebra.identity import selections
from midstream.algebra.plan import Aggregate, Field, Join, Leaf, MultiJoin, Plan, Project, Select, Window
from midstream.algebra.window_spec import BEGINNING, NEVER, WindowSpec
from midstream.engine.batch import Batch, Layout
from midstream.engine.expressions.evaluate import truth
from midstream.engine.kernels import Flags, Ints
from midstream.engine.state.row_store import RowStore

__all__ = ["InputBatches", "KeptRows", "ReceivedRows", "Rows", "WindowProgress", "WindowStore", "validities"]

InputBatches = Mapping[str, Batch]
"""New rows, by the identity of their window."""


@dataclass(frozen=True)
class Rows:
    """New rows of one stream: event times in ticks (none late, none NULL), and the columns."""

    times: Ints
    columns: dict[str, pa.Array]

    def __len__(self) -> int:
        return len(self.times)

    def filtered(self, keep: Flags) -> Rows:
        """The rows for which the flag is set."""
        if keep.all():
            return self
        mask = pa.array(keep)
        return Rows(self.times[keep], {name: column.filter(mask) for name, column in self.columns.items()})


@dataclass(frozen=True)
class ReceivedRows:
    """New rows of a remote source: they have their validities, and their columns are in the order of its schema."""

    valid_from: Ints
    valid_to: Ints
    columns: list[pa.Array]

    def __len__(self) -> int:
        return len(self.valid_from)

    def to_record_batch(self) -> pa.RecordBatch:
        """The rows on their way: both ends of the validities, then the columns."""
        arrays = [pa.array(self.valid_from), pa.array(self.valid_to), *self.columns]
        return pa.RecordBatch.from_arrays(arrays, names=[str(place) for place in range(len(arrays))])

    @classmethod
    def of_record_batch(cls, batch: pa.RecordBatch) -> ReceivedRows:
        """The rows that :meth:`to_record_batch` gave this for."""
        valid_from, valid_to = (np.asarray(batch.column(place)) for place in range(2))
        return cls(valid_from, valid_to, batch.columns[2:])


@dataclass(frozen=True)
class KeptRows:
    """Rows of one window with their numbers there: what must be stored to restore them (see ``WindowStore``)."""

    numbers: Ints
    valid_from: Ints
    valid_to: Ints
    columns: list[pa.Array]

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True)
class WindowProgress:
    """How far the windows have come, by identity: what does not follow from their rows."""

    ends: Mapping[str, int]
    """The number that the next row will get."""
    released: Mapping[str, int]
    """Rows that ended by then may be gone."""
    latest_start: Mapping[str, int]
    latest_end: Mapping[str, int]


class WindowStore:
    """The windows that a query's plans read, and the rows inside them."""

    def __init__(self, plans: Iterable[Plan]) -> None:
        plans = list(plans)
        fields = fields_read(plans)
        self.keeps_rows = any(node.is_stateful for plan in plans for node in plan.walk())
        self._windows: dict[str, _WindowRows] = {}
        conditions: dict[str, frozenset[Expression]] = {}
        for plan in plans:
            for window, above in _windows_with_conditions(plan):
                conditions[window.identity] = above & conditions.get(window.identity, above)
        for plan in plans:
            for leaf in plan.leaves():
                if leaf.identity not in self._windows:
                    read = [field for field in leaf.schema if field in fields]
                    self._windows[leaf.identity] = _WindowRows(leaf, read, conditions[leaf.identity], self.keeps_rows)

    def conditions(self, window: Leaf) -> frozenset[Expression]:
        """What every row in the window satisfies."""
        return self._windows[window.identity].conditions

    def layout(self, window: Leaf) -> Layout:
        """Where the columns of a window's rows are."""
        return self._windows[window.identity].layout

    def columns(self) -> dict[str, list[str]]:
        """The names of the columns that are kept of each window's rows, in their order."""
        return {identity: [f.name for f in window.layout.fields] for identity, window in self._windows.items()}

    def reads(self, plan: Plan) -> bool:
        """Whether all that the plan reads is here."""
        fields = fields_read([plan])
        for window, above in _windows_with_conditions(plan):
            rows = self._windows.get(window.identity)
            if rows is None or not rows.conditions <= above:
                return False
            if any(field in fields and field not in rows.layout.fields for field in window.schema):
                return False
        return True

    def of_streams(self, rows: Mapping[str, Rows]) -> dict[str, Rows]:
        """New rows by window, where every window of a stream gets all of its rows."""
        leaves = {identity: window.plan for identity, window in self._windows.items()}
        streams = ((identity, leaf.stream.name) for identity, leaf in leaves.items() if isinstance(leaf, Window))
        return {identity: rows[stream] for identity, stream in streams if stream in rows}

    def arrive(self, rows: Mapping[str, Rows | ReceivedRows]) -> InputBatches:
        """New rows enter their windows, by whose identity they are given."""
        arrived = {}
        for identity, window in self._windows.items():
            new = rows.get(identity)
            if new is not None and len(new):
                arrived[identity] = window.append(new)
        return arrived

    def alive(self) -> InputBatches:
        """All rows whose validity may not have ended."""
        return {identity: self.alive_in(identity) for identity in self._windows}

    def alive_in(self, identity: str) -> Batch:
        """The rows of one window whose validity may not have ended."""
        return self._windows[identity].alive()

    def ends(self) -> dict[str, int]:
        """The number that each window's next row will get: rows that are there now have smaller ones."""
        return {identity: window.store.end for identity, window in self._windows.items()}

    def received(self) -> dict[str, int]:
        """By the fingerprint of each window: how many rows have entered it since the query began, if rows are kept."""
        if not self.keeps_rows:
            return {}
        return {window.plan.fingerprint: window.store.end for window in self._windows.values()}

    def number_in(self, store: RowStore, numbers: Mapping[str, int]) -> int:
        """The number given for the window whose rows are in the store."""
        return next(numbers[identity] for identity, window in self._windows.items() if window.store is store)

    def release(self, horizons: Mapping[str, int]) -> None:
        """Give up rows that have ended by the horizon of their window."""
        for identity, window in self._windows.items():
            window.store.release(horizons.get(identity, NEVER))

    def progress(self) -> WindowProgress:
        """How far the windows have come."""
        windows = self._windows.items()
        return WindowProgress(
            self.ends(),
            {identity: window.store.released for identity, window in windows},
            {identity: window.latest_start for identity, window in windows},
            {identity: window.latest_end for identity, window in windows},
        )

    def living(self, first: Mapping[str, int], last: Mapping[str, int]) -> int:
        """How many rows :meth:`kept` gives."""
        return sum(len(window.store.alive(first[i], last[i])[0]) for i, window in self._windows.items())

    def kept(self, first: Mapping[str, int], last: Mapping[str, int]) -> dict[str, KeptRows]:
        """The living rows with numbers from ``first`` to before ``last``, as they can be restored."""
        return {
            identity: window.kept(first[identity], last[identity])
            for identity, window in self._windows.items()
            if first[identity] < last[identity]
        }

    def restore(self, rows: Iterable[Mapping[str, KeptRows]], progress: WindowProgress) -> None:
        """Take back kept rows, into windows without rows. Of any two parts, one must hold the rows that came later."""
        parts = list(rows)
        for identity, window in self._windows.items():
            for kept in sorted(
                (part[identity] for part in parts if part.get(identity)), key=lambda k: int(k.numbers[0])
            ):
                window.store.restore(kept.numbers, kept.columns, kept.valid_from, kept.valid_to)
            window.store.skip_to(progress.ends[identity])
            window.store.release(progress.released[identity])
            window.latest_start = progress.latest_start[identity]
            window.latest_end = progress.latest_end[identity]

    @property
    def latest_start(self) -> int:
        """The latest instant at which a row began to be valid."""
        return max(window.latest_start for window in self._windows.values())

    @property
    def latest_end(self) -> int:
        """When the last of the rows seen so far ends to be valid."""
        return max(window.latest_end for window in self._windows.values())

    @property
    def longest(self) -> int:
        """The longest validity that a row can have."""
        return max(window.plan.longest for window in self._windows.values())

    @property
    def rows(self) -> int:
        return sum(len(window.store) for window in self._windows.values())

    @property
    def bytes(self) -> int:
        return sum(window.store.bytes for window in self._windows.values())


class _WindowRows:
    """The rows of one window, or of a remote source."""

    def __init__(self, plan: Leaf, fields: list[Field], conditions: frozenset[Expression], keeps_rows: bool) -> None:
        self.plan = plan
        self.conditions = conditions
        self._condition = conjunction(sorted(conditions, key=lambda c: c.text)) if conditions else None
        self.store = RowStore([field.type for field in fields])
        self.store.is_lasting = True
        self.latest_start = BEGINNING
        self.latest_end = BEGINNING
        self._keeps_rows = keeps_rows
        self._columns = [(plan.schema.index(field), field.name) for field in fields]
        self.layout = Layout(tuple(fields))
        if keeps_rows:
            places = tuple((0, column) for column in range(len(fields)))
            self.layout = Layout(tuple(fields), (self.store,), places, (plan.identity,), has_origin=True)

    def append(self, rows: Rows | ReceivedRows) -> Batch:
        if isinstance(rows, ReceivedRows):
            valid_from, valid_to = rows.valid_from, rows.valid_to
            columns = [rows.columns[place] for place, _ in self._columns]
        else:
            assert isinstance(self.plan, Window), "only windows give rows their validities"
            valid_from, valid_to = validities(self.plan.window, rows.times)
            columns = [rows.columns[name] for _, name in self._columns]
        batch = Batch.of_arrays(Layout(self.layout.fields), valid_from, valid_to, columns)
        # A slide longer than the window passes over some rows: they are valid at no instant.
        batch = batch.filtered(valid_from < valid_to)
        if self._condition is not None:
            batch = batch.filtered(truth(self._condition, batch.column, len(batch)))
        if len(batch):
            self.latest_start = max(self.latest_start, int(batch.valid_from.max()))
            self.latest_end = max(self.latest_end, int(batch.valid_to.max()))
        references = np.empty((0, len(batch)), np.int64)
        if self._keeps_rows:
            references = self.store.append(batch.columns(), batch.valid_from, batch.valid_to).reshape(1, -1)
        return Batch(self.layout, batch.valid_from, batch.valid_to, references, batch.materialized)

    def alive(self) -> Batch:
        numbers, valid_from, valid_to = self.store.alive()
        return Batch(self.layout, valid_from, valid_to, numbers.reshape(1, -1))

    def kept(self, first: int, last: int) -> KeptRows:
        numbers, valid_from, valid_to = self.store.alive(first, last)
        columns = self.store.gather_all(range(len(self.layout.fields)), numbers)
        return KeptRows(numbers, valid_from, valid_to, columns)


def _windows_with_conditions(plan: Plan) -> Iterator[tuple[Leaf, frozenset[Expression]]]:
    """Each leaf of the plan, with the conditions of the selections right above it."""
    pending = [plan]
    while pending:
        below, conditions = selections(pending.pop())
        if isinstance(below, Leaf):
            yield below, frozenset(conditions)
        pending.extend(below.inputs)


def fields_read(plans: Iterable[Plan]) -> set[Field]:
    """The fields that the plans' expressions and outputs name, and all that operators on whole rows compare."""
    read: set[Field] = set()
    for plan in plans:
        read.update(plan.schema)
        for node in plan.walk():
            read.update(Field(c.relation, c.name, c.type) for e in node.expressions for c in e.columns)
            if not isinstance(node, Project | Aggregate | Select | Join | MultiJoin):
                read.update(field for child in node.inputs for field in child.schema)
    return read


def validities(window: WindowSpec, times: Ints) -> tuple[Ints, Ints]:
    """The validities of many rows at once: see :meth:`WindowSpec.validity`.

    >>> validities(WindowSpec(width=10, slide=10), np.array([-3, 0, 5]))
    (array([ 0,  0, 10]), array([10, 10, 20]))
    """
    if window.width is None:
        return times, np.full(len(times), NEVER)
    if window.slide is None:
        return times, _add(times, window.width + 1)
    return _round_up(times, window.slide), _round_up(_add(times, window.width), window.slide)


def _add(times: Ints, ticks: int) -> Ints:
    """times + ticks, never beyond NEVER."""
    return np.where(times > NEVER - ticks, NEVER, times + np.int64(min(ticks, NEVER)))


def _round_up(times: Ints, step: int) -> Ints:
    floors = times // step * step
    return np.where(floors == times, times, _add(floors, step))
