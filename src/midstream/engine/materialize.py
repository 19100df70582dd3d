"""Materialize: computed rows get numbers in a row store, so that a join above can refer to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from midstream.engine.batch import Batch, Layout
from midstream.engine.operator import Operator
from midstream.engine.row_store import RowStore

__all__ = ["MaterializeOperator"]


class MaterializeOperator(Operator):
    """Gives rows numbers, so that a join above can refer to them; drops them when no validity reaches them.

    Beside its values, a row keeps the numbers of the rows it was computed from.
    """

    def __init__(self, name: str, child: Operator, key: str, store: RowStore | None = None) -> None:
        fields, below = child.layout.fields, child.layout
        self.key = key
        self.was_there = store is not None
        """Whether the store, with its rows, comes from an earlier plan."""
        made_of = below.origin_stores if below.has_origin else ()
        if store is None:
            store = RowStore([*(field.type for field in fields), *([pa.int64()] * len(made_of))])
            store.made_of = made_of
        self.store = store
        places = tuple((0, column) for column in range(len(fields)))
        super().__init__(name, Layout(fields, (store,), places, (key,), below.has_origin), (child,))

    @property
    def state_rows(self) -> int:
        return len(self.store)

    @property
    def state_bytes(self) -> int:
        return self.store.bytes

    def push(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        for batch in inputs[0]:
            self.counters.rows_in += len(batch)
            self.counters.rows_out += len(batch)
            origins = [pa.array(numbers) for numbers in batch.origins()] if self.store.made_of else []
            numbers = self.store.append([*batch.columns(), *origins], batch.valid_from, batch.valid_to)
            yield Batch(self.layout, batch.valid_from, batch.valid_to, numbers.reshape(1, -1))

    def everything(self) -> Batch:
        """All rows whose validity may not have ended."""
        numbers, valid_from, valid_to = self.store.alive()
        return Batch(self.layout, valid_from, valid_to, numbers.reshape(1, -1))

    def expire(self, retention: int) -> None:
        self.store.release(retention)
