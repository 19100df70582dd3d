"""Operators that keep nothing between pushes: select, project, union, and storing rows for a join above."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from midstream.algebra.expressions import Column, Expression
from midstream.algebra.plan import Field, Item
from midstream.engine.batch import Batch, Layout
from midstream.engine.evaluate import evaluate, truth
from midstream.engine.operator import Operator
from midstream.engine.row_store import RowStore

__all__ = ["ComputeOperator", "PickOperator", "SelectOperator", "StoreOperator", "UnionOperator"]


class _RowByRow(Operator):
    """An operator that turns each batch of its input into one of its own, row by row: the order stays."""

    @property
    def emits_in_order(self) -> bool:
        return self.inputs[0].emits_in_order


class SelectOperator(_RowByRow):
    """The tuples for which the predicate is true."""

    def __init__(self, name: str, child: Operator, predicate: Expression) -> None:
        super().__init__(name, child.layout, (child,))
        self.predicate = predicate

    def push(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        for batch in inputs[0]:
            self.counters.rows_in += len(batch)
            kept = batch.filtered(truth(self.predicate, batch.column, len(batch)))
            self.counters.rows_out += len(kept)
            if len(kept):
                yield kept


class PickOperator(_RowByRow):
    """A projection that only chooses and renames columns: of stored tuples not a byte is copied.

    References to stores of which no column is left are dropped.
    """

    def __init__(self, name: str, child: Operator, chosen: Sequence[int], fields: Sequence[Field]) -> None:
        layout = child.layout
        self._chosen = list(chosen)
        self._used: list[int] | None = None
        places: tuple[tuple[int, int], ...] = ()
        stores = layout.stores
        if layout.is_stored:
            places = tuple(layout.places[position] for position in chosen)
            used = sorted({store for store, _ in places})
            if len(used) < len(stores):
                self._used = used
                stores = tuple(layout.stores[store] for store in used)
                places = tuple((used.index(store), column) for store, column in places)
        super().__init__(name, Layout(tuple(fields), stores, places), (child,))

    def push(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        for batch in inputs[0]:
            self.counters.rows_in += len(batch)
            self.counters.rows_out += len(batch)
            at_hand = {new: batch.at_hand[old] for new, old in enumerate(self._chosen) if old in batch.at_hand}
            references = batch.references if self._used is None else batch.references[self._used]
            yield Batch(self.layout, batch.valid_from, batch.valid_to, references, at_hand)


class ComputeOperator(_RowByRow):
    """A projection with expressions: the new columns are computed, and all are at hand."""

    def __init__(self, name: str, child: Operator, items: Sequence[Item]) -> None:
        super().__init__(name, Layout(tuple(item.field for item in items)), (child,))
        self._expressions = [item.expression for item in items]

    def push(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        for batch in inputs[0]:
            self.counters.rows_in += len(batch)
            self.counters.rows_out += len(batch)
            columns = [
                batch.column(e) if isinstance(e, Column) else evaluate(e, batch.column, len(batch))
                for e in self._expressions
            ]
            yield Batch.of_arrays(self.layout, batch.valid_from, batch.valid_to, columns)


class UnionOperator(Operator):
    """The tuples of both inputs."""

    def __init__(self, name: str, left: Operator, right: Operator, fields: Sequence[Field]) -> None:
        super().__init__(name, Layout(tuple(fields)), (left, right))

    def push(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        for side in inputs:
            for batch in side:
                self.counters.rows_in += len(batch)
                self.counters.rows_out += len(batch)
                yield Batch.of_arrays(self.layout, batch.valid_from, batch.valid_to, batch.columns())


class StoreOperator(Operator):
    """Gives rows numbers, so that a join above can refer to them; drops them when no validity reaches them."""

    def __init__(self, name: str, child: Operator) -> None:
        self.store = RowStore([field.type for field in child.layout.fields])
        places = tuple((0, column) for column in range(len(child.layout.fields)))
        super().__init__(name, Layout(child.layout.fields, (self.store,), places), (child,))

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
            numbers = self.store.append(batch.columns(), batch.valid_to)
            yield Batch(self.layout, batch.valid_from, batch.valid_to, numbers.reshape(1, -1))

    def expire(self, retention: int) -> None:
        self.store.release(retention)
