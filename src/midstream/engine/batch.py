"""What travels between operators: validities, and columns that are looked up only when someone reads them.

A batch has one row per tuple. Its columns are either materialized (Arrow arrays) or references: for each store that the
tuples come from, a row number. The layout says which column is where; it belongs to the operator that made the batch
and never changes while a query runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from midstream.algebra.expressions import Column
from midstream.algebra.plan import Field
from midstream.algebra.window_spec import BEGINNING
from midstream.engine.fixed_width import new_array
from midstream.engine.kernels import Flags, Ints, sort_order, take_columns, take_values
from midstream.engine.state.row_store import RowStore

__all__ = ["Batch", "Layout", "concatenate"]


@dataclass(frozen=True)
class Layout:
    """Where each field's values are: ``places`` gives a position in ``stores`` and a column there.

    Stores are in the order of their ``keys``, so that combined tuples refer to the same rows in the same order,
    whatever the order of the joins that combined them: states can pass from one plan to another as they are. A layout
    without stores is that of batches with all columns materialized.
    """

    fields: tuple[Field, ...]
    stores: tuple[RowStore, ...] = ()
    places: tuple[tuple[int, int], ...] = ()
    keys: tuple[str, ...] = ()
    has_origin: bool = False
    """Whether a tuple is known by the rows it was made of: see ``Batch.origins``."""
    positions: Mapping[tuple[str, str], int] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        assert len(set(self.keys)) == len(self.keys), "each row of references belongs to one store"
        positions = {(f.relation, f.name): position for position, f in enumerate(self.fields)}
        object.__setattr__(self, "positions", positions)

    @property
    def is_stored(self) -> bool:
        """Whether tuples are references only, so that a state can keep them."""
        return len(self.places) == len(self.fields)

    @property
    def origin_stores(self) -> tuple[RowStore, ...]:
        """The windows whose rows tuples were made of, in the order of ``Batch.origins``."""
        return tuple(origin for store in self.stores for origin in (store.made_of or (store,)))

    @property
    def released(self) -> int:
        """Rows of tuples that ended by then may no longer be stored."""
        return max(store.released for store in self.stores)

    def position(self, column: Column) -> int:
        return self.positions[column.relation, column.name]

    def beside(self, other: Layout) -> Layout:
        """The layout of tuples combined from both."""
        keys = tuple(sorted(self.keys + other.keys))
        stores: list[RowStore] = list(self.stores + other.stores)
        places: list[tuple[int, int]] = []
        for side in (self, other):
            rows = side.rows_in(keys)
            for row, store in zip(rows, side.stores, strict=True):
                stores[row] = store
            places += [(rows[store], column) for store, column in side.places]
        return Layout(
            self.fields + other.fields, tuple(stores), tuple(places), keys, self.has_origin and other.has_origin
        )

    def rows_in(self, keys: Sequence[str]) -> list[int]:
        """Which rows of a matrix of references with these keys are this layout's."""
        return [keys.index(key) for key in self.keys]


@dataclass
class Batch:
    """Tuples with their validities. ``references`` is a matrix of row numbers with one row per store of the layout."""

    layout: Layout
    valid_from: Ints
    valid_to: Ints
    references: Ints
    materialized: dict[int, pa.Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.valid_from)

    @classmethod
    def of_arrays(cls, layout: Layout, valid_from: Ints, valid_to: Ints, columns: Sequence[pa.Array]) -> Batch:
        """A batch with all columns materialized."""
        return cls(layout, valid_from, valid_to, np.empty((0, len(valid_from)), np.int64), dict(enumerate(columns)))

    @classmethod
    def empty(cls, layout: Layout) -> Batch:
        none = np.empty(0, np.int64)
        batch = cls(layout, none, none, np.empty((len(layout.stores), 0), np.int64))
        if not layout.is_stored:
            batch.materialized = {i: pa.array([], f.type) for i, f in enumerate(layout.fields)}
        return batch

    def column_at(self, position: int) -> pa.Array:
        """The values of one field."""
        if position not in self.materialized:
            store, column = self.layout.places[position]
            self.materialized[position] = self.layout.stores[store].gather(column, self.references[store])
        return self.materialized[position]

    def column(self, column: Column) -> pa.Array:
        return self.column_at(self.layout.position(column))

    def columns(self) -> list[pa.Array]:
        """The values of all fields; what comes from one store is gathered together."""
        wanted: dict[int, list[int]] = {}
        for position, (store, _) in enumerate(self.layout.places):
            if position not in self.materialized:
                wanted.setdefault(store, []).append(position)
        for store, positions in wanted.items():
            columns = [self.layout.places[position][1] for position in positions]
            arrays = self.layout.stores[store].gather_all(columns, self.references[store])
            self.materialized.update(zip(positions, arrays, strict=True))
        return [self.materialized[position] for position in range(len(self.layout.fields))]

    def origins(self) -> Ints:
        """The rows of the windows that each tuple was made of: one row of numbers per store in ``origin_stores``.

        Two boxes of a query have the same origins for the same tuple, whatever their plans. -1 stands for none.
        """
        rows: list[Ints] = []
        for store, references in zip(self.layout.stores, self.references, strict=True):
            if not store.made_of:
                rows.append(references)
                continue
            known = references >= 0
            for column in store.origin_columns:
                row = np.full(len(references), -1)
                row[known] = np.asarray(store.gather(column, references[known]))
                rows.append(row)
        return np.array(rows, np.int64).reshape(len(rows), len(self))

    def filtered(self, keep: Flags) -> Batch:
        """The tuples for which the flag is set."""
        if keep.all():
            return self
        return self.taken(np.flatnonzero(keep))

    def taken(self, order: Ints) -> Batch:
        """The tuples at the given positions."""
        references = new_array((len(self.references), len(order)))
        take_columns(self.references, order, references)
        validity = new_array((2, len(order)))
        take_values(self.valid_from, order, validity[0])
        take_values(self.valid_to, order, validity[1])
        materialized = {}
        if not self.layout.is_stored:
            places = pa.array(order)
            materialized = {position: array.take(places) for position, array in self.materialized.items()}
        return Batch(self.layout, validity[0], validity[1], references, materialized)

    def from_instant(self, first: int) -> Batch:
        """The tuples as far as they are valid at the instant or later."""
        if first == BEGINNING or len(self) == 0 or self.valid_from.min() >= first:
            return self
        later = self.filtered(self.valid_to > first)
        return Batch(
            later.layout, np.maximum(later.valid_from, first), later.valid_to, later.references, later.materialized
        )

    def in_order(self) -> Batch:
        """The tuples in the order of ``valid_from``."""
        order = sort_order(self.valid_from)
        return self if order is None else self.taken(order)

    def sliced(self, start: int, end: int) -> Batch:
        """The tuples at positions [start, end), without a copy."""
        materialized = {position: array.slice(start, end - start) for position, array in self.materialized.items()}
        return Batch(
            self.layout,
            self.valid_from[start:end],
            self.valid_to[start:end],
            self.references[:, start:end],
            materialized,
        )


def concatenate(layout: Layout, batches: Sequence[Batch]) -> Batch:
    """All tuples of the batches, one batch after the other."""
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return Batch.empty(layout)
    materialized = {}
    if not layout.is_stored:
        materialized = {
            position: pa.concat_arrays([batch.column_at(position) for batch in batches])
            for position in range(len(layout.fields))
        }
    return Batch(
        layout,
        np.concatenate([batch.valid_from for batch in batches]),
        np.concatenate([batch.valid_to for batch in batches]),
        np.concatenate([batch.references for batch in batches], axis=1),
        materialized,
    )
