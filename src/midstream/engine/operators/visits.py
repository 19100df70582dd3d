"""Visits: how tuples of a multi-way join that have visited some inputs find partners in one more.

By which key, and with which conditions, follows from the set of inputs visited. There may be very many such sets (a
router that draws lots among the 21 inputs of a join on one attribute hardly takes the same way twice), but only a few
inputs of a set matter: those that the conditions read. So a visit is put together of a *lookup*, of which there are
few, and of the rows of references that are set.

Tuples on their way are as wide as results, in the layout of the whole join: the references of inputs that were not
visited yet are there, and mean nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass

import numpy as np

from midstream.algebra.expressions import Expression
from midstream.algebra.plan import Join, Plan
from midstream.engine.batch import Batch, Layout
from midstream.engine.expressions.evaluate import truth
from midstream.engine.fixed_width import new_array
from midstream.engine.kernels import Ints
from midstream.engine.operators.join import JoinOperator
from midstream.engine.operators.join_side import JoinSide
from midstream.engine.operators.operator import Counters, Operator
from midstream.engine.operators.relation import Relation
from midstream.engine.state.join_state import NewTuples, PairBuffer
from midstream.planning.join_order.equality_classes import connections
from midstream.planning.join_order.join_graph import JoinGraph, bits

__all__ = ["Visit", "Visits"]

_MOST_VISITS = 10_000
"""More are forgotten, and made again when they are needed: a visit is small, but the ways may be without number."""


@dataclass
class _Lookup:
    """How partners in one input are found: by the key of the probing side, in an index, under a condition."""

    probing: JoinSide
    """Only computes keys: of tuples as wide as results."""
    index: JoinSide
    check: Expression | None
    fan_out: float = 0.0
    """Results per tuple when it was last used."""


@dataclass(frozen=True)
class Visit:
    """Tuples that have visited some inputs look up partners in one more."""

    lookup: _Lookup
    layout: Layout
    visited_rows: Ints
    own_rows: Ints
    chunk_rows: int
    counters: Counters

    def results(self, tuples: Batch, entered: Batch | None) -> Iterator[Batch]:
        """What comes of the tuples; ``entered`` are the same as they came from their input, if they just did."""
        lookup = self.lookup
        new = self._keyed(tuples, entered)
        pairs = PairBuffer(len(self.layout.stores), int(1.2 * lookup.fan_out * len(tuples)), self.chunk_rows)
        produced = 0
        for matches in lookup.index.state.meet(new, self.own_rows, self.visited_rows, pairs):
            results = self._satisfying(*matches)
            produced += len(results)
            yield results
        for matches in pairs.flush():
            results = self._satisfying(*matches)
            produced += len(results)
            yield results
        self.counters.probes += len(tuples)
        self.counters.compared += pairs.compared
        lookup.fan_out = produced / max(1, len(tuples))

    def _keyed(self, tuples: Batch, entered: Batch | None) -> NewTuples:
        return self.lookup.probing.keyed_rows(tuples, self.visited_rows)

    def _satisfying(self, references: Ints, valid_from: Ints, valid_to: Ints) -> Batch:
        batch = Batch(self.layout, valid_from, valid_to, references)
        check = self.lookup.check
        return batch if check is None else batch.filtered(truth(check, batch.column, len(batch)))


@dataclass(frozen=True)
class _FirstVisit(Visit):
    """Of new tuples of an input: a key that they are remembered by as well is computed once."""

    remembered: dict[tuple[str, ...], JoinSide]

    def _keyed(self, tuples: Batch, entered: Batch | None) -> NewTuples:
        probing = self.lookup.probing
        # Indexes for ranges know by which range their own partner is looked up, which may be another one.
        index = self.remembered.get(probing.key) if probing.band is None else None
        return super()._keyed(tuples, entered) if index is None or entered is None else index.keyed(entered)


class Visits:
    """The visits of a multi-way join, made as they are needed, and the indexes of its inputs."""

    def __init__(
        self,
        graph: JoinGraph,
        inputs: Sequence[Operator],
        layout: Layout,
        chunk_rows: int,
        counters: Counters,
        partial_inputs: Collection[int] = (),
    ) -> None:
        self.indexes: list[dict[tuple[str, ...], JoinSide]] = [{} for _ in inputs]
        self._graph = graph
        self._inputs = inputs
        self._layout = layout
        self._chunk_rows = chunk_rows
        self._counters = counters
        self._partial_inputs = partial_inputs
        self._wide = Relation(layout)
        self._rows = [np.array(child.layout.rows_in(layout.keys), np.int64) for child in inputs]
        self._place_of = {field.relation: place for place, child in enumerate(inputs) for field in child.layout.fields}
        self._visits: dict[tuple[int, int], Visit] = {}
        self._lookups: dict[tuple[int, int, tuple[int, ...]], _Lookup] = {}
        self._candidates: dict[int, list[int]] = {}
        self._plans: dict[int, Plan] = {1 << place: part for place, part in enumerate(graph.bases)}

    def widened(self, place: int, batch: Batch) -> Batch:
        """Tuples of an input in the layout of the whole join."""
        references = new_array((len(self._layout.stores), len(batch)))
        references[self._rows[place]] = batch.references
        return Batch(self._layout, batch.valid_from, batch.valid_to, references)

    def candidates(self, visited: int) -> list[int]:
        """The inputs that may be visited next."""
        if visited not in self._candidates:
            left = {place: 1 << place for place in bits(self._graph.everything & ~visited)}
            _make_room(self._candidates)
            self._candidates[visited] = self._graph.visitable(visited, left)
        return self._candidates[visited]

    def of(self, visited: int, place: int) -> Visit:
        """The visit of tuples that have visited some inputs to one more."""
        key = (visited, place)
        if key not in self._visits:
            _make_room(self._visits)
            self._visits[key] = self._new_visit(visited, place)
        return self._visits[key]

    def index_keys(self) -> list[set[tuple[str, ...]]]:
        """The keys of the indexes that each input has now."""
        return [set(indexes) for indexes in self.indexes]

    def drop_indexes_except(self, keys: Sequence[Set[tuple[str, ...]]]) -> None:
        """Drop the indexes that were made since :meth:`index_keys` gave these keys; they are made again when needed."""
        dropped = [
            indexes.pop(key) for indexes, kept in zip(self.indexes, keys, strict=True) for key in indexes.keys() - kept
        ]
        if dropped:
            ids = {id(index) for index in dropped}
            self._lookups = {key: lookup for key, lookup in self._lookups.items() if id(lookup.index) not in ids}
            self._visits.clear()

    def first_index(self, place: int) -> JoinSide:
        """One of the indexes of an input. Any will do: tuples that it lacks have NULL in its key, and no results."""
        return next(iter(self.indexes[place].values()))

    def _new_visit(self, visited: int, place: int) -> Visit:
        lookup = self._lookup(visited, place)
        rows = np.concatenate([self._rows[other] for other in bits(visited)])
        parts = (lookup, self._layout, rows, self._rows[place], self._chunk_rows, self._counters)
        first = visited.bit_length() - 1
        return _FirstVisit(*parts, self.indexes[first]) if visited == 1 << first else Visit(*parts)

    def _lookup(self, visited: int, place: int) -> _Lookup:
        there = 1 << place
        predicates = self._graph.predicates(visited, there)
        read = {self._place_of[relation] for predicate in predicates for relation in predicate.relations}
        inputs = sum(1 << other for other in read) & ~there or visited & -visited
        classes = self._key_classes(visited, place)
        key = (inputs, place, classes)
        if key not in self._lookups:
            keys = [connections(self._graph.classes[number], visited, there)[0] for number in classes]
            self._lookups[key] = self._new_lookup(inputs, place, predicates, keys)
        return self._lookups[key]

    def _new_lookup(self, inputs: int, place: int, predicates: list[Expression], keys: list[Expression]) -> _Lookup:
        plan = Join(self._plan(inputs), self._plans[1 << place], tuple(predicates))
        left = Relation(self._plan_layout(inputs))
        join = JoinOperator(plan, left, self._inputs[place], self._chunk_rows, keys)
        probing, index = join.sides
        names = list(zip(probing.keys, probing.names, strict=True))
        probing = JoinSide(self._wide, names, probing.band, probing.identity)
        return _Lookup(probing, self._index(place, index), join.check)

    def _index(self, place: int, index: JoinSide) -> JoinSide:
        """The index of the input by the same key, which is this one if there is none yet."""
        indexes = self.indexes[place]
        if index.key not in indexes:
            index.may_be_incomplete = False
            index.is_partial = place in self._partial_inputs
            if indexes:
                for batch in self.first_index(place).tuples_held():
                    index.add(batch)
            indexes[index.key] = index
        return indexes[index.key]

    def _key_classes(self, visited: int, place: int) -> tuple[int, ...]:
        """The classes of equalities by which the input is looked up: all with one of the inputs visited, the one with
        the most.

        So that the keys of an input are as many as it has neighbours at most, whatever was visited. Where only several
        inputs together have a partner for a key of this one, by that.
        """
        graph, there = self._graph, 1 << place
        classes = graph.linking_classes(visited, there)
        if len(classes) < 2:
            return classes
        return max((graph.linking_classes(1 << other, there) for other in bits(visited)), key=len) or classes

    def _plan(self, inputs: int) -> Plan:
        if inputs not in self._plans:
            last = 1 << inputs.bit_length() - 1
            predicates = tuple(self._graph.predicates(inputs ^ last, last))
            self._plans[inputs] = Join(self._plan(inputs ^ last), self._plans[last], predicates)
        return self._plans[inputs]

    def _plan_layout(self, inputs: int) -> Layout:
        first, *others = (self._inputs[place].layout for place in bits(inputs))
        for other in others:
            first = first.beside(other)
        return first


def _make_room(cache: dict[int, list[int]] | dict[tuple[int, int], Visit]) -> None:
    if len(cache) >= _MOST_VISITS:
        cache.clear()
