"""Operators that keep nothing between pushes: select, project, union."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from midstream.algebra.expressions import Column, Expression
from midstream.algebra.plan import Field, Item
from midstream.engine.batch import Batch, Layout
from midstream.engine.expressions.evaluate import evaluate, truth
from midstream.engine.operators.operator import Operator

if TYPE_CHECKING:
    from midstream.engine.operators.join import JoinOperator

__all__ = ["ColumnProjection", "ComputeOperator", "SelectOperator", "UnionOperator"]


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

    @property
    def join_below(self) -> tuple[JoinOperator, list[Operator]] | None:
        below = self.inputs[0].join_below
        return None if below is None else (below[0], [*below[1], self])

    def push(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        for batch in inputs[0]:
            self.counters.rows_in += len(batch)
            kept = batch.filtered(truth(self.predicate, batch.column, len(batch)))
            self.counters.rows_out += len(kept)
            if len(kept):
                yield kept


class ColumnProjection(_RowByRow):
    """A projection that only chooses and renames columns: of stored tuples not a byte is copied.

    References stay also to stores of which no column is left: a tuple must be known by all the rows it was made of.
    """

    def __init__(
        self, name: str, child: Operator, chosen: Sequence[int], fields: Sequence[Field], prefix: str = ""
    ) -> None:
        below = child.layout
        self._chosen = list(chosen)
        places = tuple(below.places[position] for position in chosen) if below.is_stored else ()
        keys = tuple(prefix + key for key in below.keys)
        super().__init__(name, Layout(tuple(fields), below.stores, places, keys, below.has_origin), (child,))

    def push(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        for batch in inputs[0]:
            self.counters.rows_in += len(batch)
            self.counters.rows_out += len(batch)
            materialized = {
                new: batch.materialized[old] for new, old in enumerate(self._chosen) if old in batch.materialized
            }
            yield Batch(self.layout, batch.valid_from, batch.valid_to, batch.references, materialized)


class ComputeOperator(_RowByRow):
    """A projection with expressions: the new columns are computed, and all are materialized."""

    def __init__(self, name: str, child: Operator, items: Sequence[Item]) -> None:
        below = child.layout
        layout = Layout(tuple(item.field for item in items), below.stores, (), below.keys, below.has_origin)
        super().__init__(name, layout, (child,))
        self._expressions = [item.expression for item in items]

    def push(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        for batch in inputs[0]:
            self.counters.rows_in += len(batch)
            self.counters.rows_out += len(batch)
            columns = [
                batch.column(e) if isinstance(e, Column) else evaluate(e, batch.column, len(batch))
                for e in self._expressions
            ]
            yield Batch(self.layout, batch.valid_from, batch.valid_to, batch.references, dict(enumerate(columns)))


class UnionOperator(Operator):
    """The tuples of both inputs. Each keeps its references, beside none (-1) for the other input's stores."""

    def __init__(self, name: str, left: Operator, right: Operator, fields: Sequence[Field]) -> None:
        sides = (left.layout, right.layout)
        layout = Layout(
            tuple(fields),
            sides[0].stores + sides[1].stores,
            (),
            # Both inputs may read the same window.
            tuple(f"{name}.{key}" for name, side in zip(("left", "right"), sides, strict=True) for key in side.keys),
            sides[0].has_origin and sides[1].has_origin,
        )
        super().__init__(name, layout, (left, right))

    def push(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        start = 0
        for side, child in zip(inputs, self.inputs, strict=True):
            end = start + len(child.layout.stores)
            for batch in side:
                self.counters.rows_in += len(batch)
                self.counters.rows_out += len(batch)
                references = np.full((len(self.layout.stores), len(batch)), -1)
                references[start:end] = batch.references
                columns = dict(enumerate(batch.columns()))
                yield Batch(self.layout, batch.valid_from, batch.valid_to, references, columns)
            start = end
