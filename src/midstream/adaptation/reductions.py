"""What a distinct or a partial aggregate makes of a window's rows, measured by sampling: in force or not.

Some of the rows that arrived in the span are drawn, and their keys (the columns of a distinct, what an aggregate groups
by) are looked up among all rows of the window. The mean of 1 / (rows with the same key) is the number of different keys
for each row: the reduction's density. Which of the drawn rows pass follows from the validities: see
``planning/cost/derived_sizes``. The window's rows are there in every plan, so the same is measured before a change of
plan and after it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from midstream.adaptation.sampling import GROUPS
from midstream.algebra.expressions import conjuncts
from midstream.algebra.identity import selections
from midstream.algebra.plan import Aggregate, Plan, Window
from midstream.engine.batch import Batch
from midstream.engine.codes import combine_codes, encode
from midstream.engine.expressions.evaluate import evaluate, truth
from midstream.engine.kernels import Ints, among
from midstream.engine.state.row_store import RowStore
from midstream.execution.plan_executor import PlanExecutor
from midstream.planning.cost.derived_sizes import Reducer, reducer_of
from midstream.planning.cost.sizes import Reduction, Replicates
from midstream.planning.join_order.reorder_joins import join_graphs
from midstream.planning.shapes import plan_shapes

__all__ = ["ReductionSampler", "reducers"]

_NULL = np.int64(0x5DEECE66D5DEECE6)


def reducers(plan: Plan) -> list[Reducer]:
    """The distinct and partial aggregates at inputs of joins: those of the plan, and those that rules push there."""
    found: dict[str, Reducer] = {}
    for shape in plan_shapes(plan):
        for graph in join_graphs(shape):
            for leaf in graph.leaves:
                reducer = reducer_of(leaf)
                if reducer is not None:
                    found.setdefault(reducer.fingerprint, reducer)
    return list(found.values())


class ReductionSampler:
    """Measures one distinct or partial aggregate over a window."""

    def __init__(self, reducer: Reducer, box: PlanExecutor) -> None:
        self.fingerprint = reducer.fingerprint
        self._reducer = reducer
        self._box = box
        windows = box.windows
        self._layout = windows.layout(reducer.leaf)
        (self._store,) = self._layout.stores
        _, conditions = selections(reducer.source)
        applied = windows.conditions(reducer.leaf)
        self._conditions = [part for c in conditions for part in conjuncts(c) if part not in applied]

    def stores(self) -> list[RowStore]:
        """The store of the window."""
        return [self._store]

    def rows_to_read(self) -> int:
        """How many rows a measurement reads."""
        return len(self._store)

    def measure(self, since: Mapping[int, int], rows: int, generator: np.random.Generator) -> Reduction:
        """The reduction of the rows that have arrived since then, from about so many drawn ones."""
        first = since.get(id(self._store), 0)
        numbers, valid_from, valid_to, _ = self._store.drawn_alive(first, rows, generator)
        drawn = self._selected(Batch(self._layout, valid_from, valid_to, numbers.reshape(1, -1)))
        held = self._selected(self._box.windows.alive_in(self._reducer.leaf.identity))
        if len(drawn) == 0:
            return Reduction(np.ones(1), np.ones(1), float(len(held)))
        groups = generator.permutation(len(drawn)) % GROUPS
        counts, _ = _found(self._codes(drawn), self._codes(held), held)
        density = 1 / counts
        ends = self._is_first(drawn, held, at_end=True)
        begins = self._is_first(drawn, held, at_end=False)
        occupancy = min(1.0, float(begins.mean()) / float(density.mean()) / self._instants())
        # An aggregate produces one row where some rows of a group come and others end at the same instant.
        passing = begins + (1 - occupancy) * ends if isinstance(self._reducer.node, Aggregate) else ends
        return Reduction(_by_group(passing, groups), _by_group(density, groups), float(len(held)), occupancy)

    def _instants(self) -> int:
        """At how many instants rows can begin that are valid at the same time."""
        leaf = self._reducer.leaf
        slide = leaf.window.slide if isinstance(leaf, Window) else None
        return max(1, leaf.longest // (slide or 1))

    def _is_first(self, drawn: Batch, held: Batch, at_end: bool) -> Replicates:
        """Whether a drawn row is the first of those with its key that begin, or end, when it does: one, or else zero.

        A distinct produces something for a row only if its values are not valid until then already; an aggregate
        produces one row for all rows that come at an instant, and one for all that end.
        """
        codes = [
            combine_codes([self._codes(batch), batch.valid_to if at_end else batch.valid_from])
            for batch in (drawn, held)
        ]
        _, firsts = _found(codes[0], codes[1], held)
        return np.asarray(drawn.references[0] == firsts, np.float64)

    def _selected(self, batch: Batch) -> Batch:
        """The rows that satisfy the input's conditions and have not ended: windows may keep others a while longer."""
        batch = batch.filtered(batch.valid_to > self._box.watermark)
        for condition in self._conditions:
            batch = batch.filtered(truth(condition, batch.column, len(batch)))
        return batch

    def _codes(self, batch: Batch) -> Ints:
        """Equal for rows with equal keys; NULL equals NULL."""
        parts = []
        for key in self._reducer.keys:
            codes, valid = encode(evaluate(key, batch.column, len(batch)))
            parts.append(codes if valid is None else np.where(valid, codes, _NULL))
        return combine_codes(parts) if parts else np.zeros(len(batch), np.int64)


def _found(codes: Ints, held_codes: Ints, held: Batch) -> tuple[Ints, Ints]:
    """For each code: how many of the rows held have it, and the first of them by arrival."""
    wanted, inverse = np.unique(codes, return_inverse=True)
    kept = among(held_codes, wanted)
    places = np.searchsorted(wanted, held_codes[kept])
    counts = np.bincount(places, minlength=len(wanted))
    firsts = np.full(len(wanted), np.iinfo(np.int64).max)
    np.minimum.at(firsts, places, held.references[0][kept])
    return np.maximum(1, counts)[inverse], firsts[inverse]


def _by_group(values: Replicates, groups: Ints) -> Replicates:
    """The means of the groups; where too few rows were drawn for all of them, the mean of all."""
    counts = np.bincount(groups, minlength=GROUPS)
    means = np.bincount(groups, values, minlength=GROUPS) / np.maximum(1, counts)
    return np.where(counts > 0, means, values.mean())
