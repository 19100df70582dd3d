"""Materialize: computed rows get numbers in a row store, so that a join above can refer to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from midstream.engine.batch import Batch, Layout
from midstream.engine.operators.operator import Operator, StatefulOperator
from midstream.engine.operators.state_handle import StateHandle, StateKey
from midstream.engine.state.row_store import RowStore

__all__ = ["MaterializeOperator", "materialized_key"]


def materialized_key(rows: str) -> StateKey:
    """The state key of materialized rows."""
    return ("materialized rows", rows)


class MaterializeOperator(StatefulOperator):
    """Gives rows numbers, so that a join above can refer to them; drops them when no validity reaches them.

    Beside its values, a row keeps the numbers of the rows it was computed from.
    """

    kind = "materialize"

    def __init__(self, name: str, child: Operator, key: str, store: RowStore | None = None) -> None:
        fields, below = child.layout.fields, child.layout
        self._key = key
        self._is_inherited = store is not None
        made_of = below.origin_stores if below.has_origin else ()
        if store is None:
            store = RowStore([*(field.type for field in fields), *([pa.int64()] * len(made_of))])
            store.made_of = made_of
        self.store = store
        places = tuple((0, column) for column in range(len(fields)))
        super().__init__(name, Layout(fields, (store,), places, (key,), below.has_origin), (child,))

    @property
    def state_key(self) -> StateKey:
        return materialized_key(self._key)

    @property
    def is_inherited(self) -> bool:
        """Whether the store, with its rows, is an earlier plan's. States above refer to it: it cannot change later."""
        return self._is_inherited

    @property
    def row_store(self) -> RowStore:
        return self.store

    @property
    def gives_history(self) -> bool:
        return True

    def serves(self, needed: StateHandle, retention: int) -> bool:
        return False

    def adopt(self, donor: StateHandle) -> None:
        raise AssertionError("a store of materialized rows is inherited when the operator is built, or rebuilt")

    def rebuild(self, *histories: Iterable[Batch]) -> Iterator[Batch]:
        for _ in self.push(*histories):
            pass
        return iter(())

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

    def history(self) -> list[Batch]:
        numbers, valid_from, valid_to = self.store.alive()
        return [Batch(self.layout, valid_from, valid_to, numbers.reshape(1, -1))]

    def expire(self, retention: int) -> None:
        self.store.release(retention)
