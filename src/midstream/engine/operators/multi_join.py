"""Multi-way join: combinations of a tuple of each input that satisfy the predicates and are valid at the same time.

Output from input: as a tree of joins over the same inputs. Intuitively, each input's tuples are kept in one place, as
the SteMs of CACQ (Madden et al. 2002, section 3.1) or the windows of an M-join (Viglas, Naughton and Burger 2003), and
a new tuple visits the other inputs one after the other, together with the partners it has found so far:

      new a ──▶ ⟨a⟩ ──visit b──▶ ⟨a b⟩ ──visit c──▶ ⟨a b c⟩ ──▶ results
      new b ──▶ ⟨b⟩ ──visit c──▶ ⟨b c⟩ ──visit a──▶ ⟨a b c⟩ ──▶ results

In which order, a router decides (see ``routing``). The inputs of a push take turns: all new tuples of the first visit
the others, then they are remembered, then come those of the second. So each result is made once, by the part of it
that comes last.

State: the tuples of each input, in an *index* for each key by which they are looked up; no combined tuples. A tuple is
dropped when no other input can bring a partner any more. An index is a join side, with the state key of one, so that
plans with and without braces share them. By which key an input is looked up depends on what was visited before: by the
equalities that link it with one of the inputs visited, the most there are; the others are checked on the candidates.

A new order costs nothing, since there is nothing that depends on it. The price is that every tuple pays for all joins
anew: see ``docs/executors.md``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from midstream.algebra.expressions import Expression, conjunction
from midstream.algebra.plan import Join, MultiJoin, Plan
from midstream.algebra.window_spec import NEVER
from midstream.engine.batch import Batch, Layout, concatenate
from midstream.engine.expressions.evaluate import truth
from midstream.engine.operators.join import JoinOperator
from midstream.engine.operators.join_side import JoinSide
from midstream.engine.operators.operator import Operator
from midstream.engine.operators.relation import Relation
from midstream.engine.operators.routing import EddyRouter, FixedRouter, Router
from midstream.engine.operators.slices import in_slices
from midstream.engine.operators.state_handle import StateHandle
from midstream.engine.operators.visit_filter import VisitChecks, VisitFilter, VisitFilterOptions
from midstream.engine.state.join_state import NewTuples
from midstream.planning.join_order.equality_classes import connections
from midstream.planning.join_order.join_graph import JoinGraph, bits
from midstream.planning.join_order.probe_orders import default_probe_order

__all__ = ["MultiJoinOperator"]


@dataclass
class _Visit:
    """Tuples that have visited some inputs look up partners in one more: by which key, and with which conditions."""

    join: JoinOperator
    index: JoinSide
    layout: Layout
    """Of the tuples that come of it: the same for every way to the same set of inputs."""
    results_per_tuple: float = 0.0

    def results(self, tuples: Batch) -> Iterator[Batch]:
        expected = int(1.2 * self.results_per_tuple * len(tuples))
        produced = 0
        for pairs in self.join.pairs_with(0, tuples, self.index, expected):
            if len(pairs):
                produced += len(pairs)
                yield Batch(self.layout, pairs.valid_from, pairs.valid_to, pairs.references)
        self.results_per_tuple = produced / max(1, len(tuples))


class MultiJoinOperator(Operator):
    """An n-ary join over inputs whose tuples are references."""

    def __init__(
        self,
        plan: MultiJoin,
        inputs: Sequence[Operator],
        chunk_rows: int,
        filter_options: VisitFilterOptions | None = None,
        partial_inputs: Collection[int] = (),
    ) -> None:
        """Of just-in-time processing: how tuples are kept from visits of which nothing can come, and which inputs lack
        tuples that are suspended."""
        layouts = [child.layout for child in inputs]
        assert all(layout.is_stored for layout in layouts)
        super().__init__(plan.label, reduce(Layout.beside, layouts), tuple(inputs))
        self.plan = plan
        self.chunk_rows = chunk_rows
        self.is_topmost = False
        self.deciding_order: Sequence[int] = range(len(inputs))
        """The inputs in the order in which they are evaluated: those of some may have to wait for those before them."""
        self.has_consumers = False
        """Whether tuples that enter the join may have to wait for joins above."""
        self._partial_inputs = partial_inputs
        self.router: Router
        if plan.routing == "fixed":
            self.router = FixedRouter(plan.probe_orders)
        else:
            self.router = EddyRouter(len(inputs))
        self._graph = JoinGraph.of_parts(plan.parts, plan.predicates)
        self._entry_checks = [conjunction(own) if own else None for own in self._graph.selections]
        self._indexes: list[dict[tuple[str, ...], JoinSide]] = [{} for _ in inputs]
        self._visits: dict[tuple[int, int], _Visit] = {}
        self._plans: dict[int, Plan] = {1 << place: part for place, part in enumerate(plan.parts)}
        self._layouts: dict[int, Layout] = {1 << place: layout for place, layout in enumerate(layouts)}
        self._layouts[self._graph.everything] = self.layout
        self._results_per_row = 0.0
        self._filter: VisitFilter | None = None
        if filter_options is not None:
            self._filter = VisitFilter(self._graph, self._layout, self._held, filter_options)
        for place in range(len(inputs)):
            visited = 1 << place
            for other in plan.probe_orders[place] if plan.probe_orders else default_probe_order(self._graph, place):
                self._visit(visited, other)
                visited |= 1 << other

    @property
    def emits_in_order(self) -> bool:
        return self.is_topmost

    @property
    def state_rows(self) -> int:
        return sum(index.state_rows for indexes in self._indexes for index in indexes.values())

    @property
    def state_bytes(self) -> int:
        noted = 0 if self._filter is None else self._filter.bytes
        return noted + sum(index.state_bytes for indexes in self._indexes for index in indexes.values())

    def states(self) -> Sequence[StateHandle]:
        return [index for place in self.deciding_order for index in self._indexes[place].values()]

    @property
    def evaluation_order(self) -> Sequence[Operator]:
        return [self.inputs[place] for place in self.deciding_order]

    def indexes_of(self, place: int) -> Sequence[JoinSide]:
        """What is kept of an input's tuples, by each key."""
        return list(self._indexes[place].values())

    def push(self, *inputs: Iterable[Batch]) -> Iterator[Batch]:
        entered = [
            self._entering(place, concatenate(child.layout, list(batches)))
            for place, (child, batches) in enumerate(zip(self.inputs, inputs, strict=True))
        ]
        rows = sum(len(batch) for batch in entered)
        self.counters.rows_in += rows
        if self._filter is not None:
            self._filter.note(entered)
        if rows == 0 or self._is_put_off(entered):
            return
        produced = 0
        for batch in self._slices(entered, rows) if self.is_topmost else self._whole(entered):
            if len(batch):
                produced += len(batch)
                yield batch
        self.counters.rows_out += produced
        self._results_per_row = produced / rows

    def expire(self, retention: int) -> None:
        for place, indexes in enumerate(self._indexes):
            others = min(child.frontier for other, child in enumerate(self.inputs) if other != place)
            for index in indexes.values():
                index.expire(others)
            if self._filter is not None:
                self._filter.expire(place, others)

    def needed_below(self, retention: int) -> int:
        return min(retention, self.frontier)

    def history(self) -> list[Batch]:
        """All results of what the inputs remember."""
        counts = [self._first_index(place).state_rows for place in range(len(self.inputs))]
        root = counts.index(min(counts))
        tuples = concatenate(self._layouts[1 << root], self._first_index(root).tuples_held())
        return [concatenate(self.layout, list(self._combined(root, tuples)))]

    def _entering(self, place: int, batch: Batch) -> Batch:
        check = self._entry_checks[place]
        return batch if check is None else batch.filtered(truth(check, batch.column, len(batch)))

    def _is_put_off(self, entered: Sequence[Batch]) -> bool:
        """Whether an input has nothing to be met, so that nothing can come of the others' tuples but work."""
        if all(len(batch) or self._first_index(place).state_rows for place, batch in enumerate(entered)):
            return False
        for indexes, batch in zip(self._indexes, entered, strict=True):
            for index in indexes.values():
                index.put_off(batch)
        return True

    def _whole(self, entered: Sequence[Batch]) -> Iterator[Batch]:
        for place, batch in enumerate(entered):
            yield from self._combined(place, batch)
            self._remember(place, batch)
        self._settle()

    def _slices(self, entered: Sequence[Batch], rows: int) -> Iterator[Batch]:
        return in_slices(self.layout, entered, int(1.2 * self._results_per_row * rows), self.chunk_rows, self._attempt)

    def _attempt(self, slice_: Sequence[Batch]) -> list[Batch] | None:
        """The results of a slice; None, with the states as before, if they are too many and it can be halved."""
        limit = self.chunk_rows if sum(len(batch) for batch in slice_) > 1 else NEVER
        results: list[Batch] = []
        found = 0
        remembered: list[tuple[JoinSide, NewTuples]] = []
        for place, batch in enumerate(slice_):
            for result in self._combined(place, batch):
                found += len(result)
                results.append(result)
                if found > limit:
                    for index, tuples in reversed(remembered):
                        index.state.take_back(tuples)
                    return None
            remembered += self._remember(place, batch)
        self._settle()
        return results

    def _remember(self, place: int, batch: Batch) -> list[tuple[JoinSide, NewTuples]]:
        new = [(index, index.keyed(batch)) for index in self._indexes[place].values()] if len(batch) else []
        for index, tuples in new:
            index.state.insert(tuples)
        return new

    def _settle(self) -> None:
        for indexes in self._indexes:
            for index in indexes.values():
                index.state.settle()

    def _combined(self, root: int, tuples: Batch) -> Iterator[Batch]:
        """The results of tuples of one input with what the others remember."""
        size = self.router.group_rows or max(1, len(tuples))
        for start in range(0, len(tuples), size):
            group = tuples.sliced(start, min(len(tuples), start + size)) if len(tuples) > size else tuples
            yield from self._routed(root, 1 << root, root, group)

    def _routed(self, root: int, visited: int, latest: int, tuples: Batch) -> Iterator[Batch]:
        """The results of tuples that have visited some inputs, and one of them last."""
        if visited == self._graph.everything:
            yield tuples
            return
        place = self.router.next(root, self._candidates(visited))
        visit = self._visit(visited, place)
        checks = None if self._filter is None else self._filter.before(visited, latest, place)
        rows = len(tuples)
        if checks is not None:
            tuples, rows = self._passing(checks, tuples)
        self.counters.probes += len(tuples)
        compared, returned = visit.join.counters.compared, 0
        for results in visit.results(tuples) if len(tuples) else ():
            returned += len(results)
            yield from self._routed(root, visited | 1 << place, place, results)
        self.counters.compared += visit.join.counters.compared - compared
        self.router.note(place, rows, returned)
        if checks is not None:
            checks.learn(rows, returned)

    def _passing(self, checks: VisitChecks, tuples: Batch) -> tuple[Batch, int]:
        """The tuples of which something can come, and how many there would be, did the input visited not say so."""
        passing, rows = checks.passing(tuples)
        self.counters.suspended += len(tuples) - len(passing)
        self.counters.avoided += round((len(tuples) - rows) * checks.fan_out)
        return passing, rows

    def _candidates(self, visited: int) -> list[int]:
        """The inputs that may be visited next: those that a condition links, or all if there are none."""
        left = list(bits(self._graph.everything & ~visited))
        linked = [place for place in left if self._graph.are_linked(visited, 1 << place)]
        return linked or left

    def _visit(self, visited: int, place: int) -> _Visit:
        key = (visited, place)
        if key not in self._visits:
            self._visits[key] = self._new_visit(visited, place)
        return self._visits[key]

    def _new_visit(self, visited: int, place: int) -> _Visit:
        there = 1 << place
        plan = Join(self._plan(visited), self._plans[there], tuple(self._graph.predicates(visited, there)))
        keys = self._key_predicates(visited, place)
        join = JoinOperator(plan, Relation(self._layout(visited)), self.inputs[place], self.chunk_rows, keys)
        index = join.sides[1]
        index.may_be_incomplete = False
        index.is_partial = place in self._partial_inputs
        indexes = self._indexes[place]
        if index.key not in indexes:
            if indexes:
                for batch in self._first_index(place).tuples_held():
                    index.add(batch)
            indexes[index.key] = index
        return _Visit(join, indexes[index.key], self._layout(visited | there))

    def _key_predicates(self, visited: int, place: int) -> list[Expression]:
        """The equalities by which the input is looked up: all with one of the inputs visited, the one with the most.

        So that the keys of an input are as many as it has neighbours at most, whatever was visited. Where only several
        inputs together have a partner for a key of this one, by that.
        """
        graph, there = self._graph, 1 << place
        by_neighbour = [graph.linking_classes(1 << other, there) for other in bits(visited)]
        classes = max(by_neighbour, key=len) or graph.linking_classes(visited, there)
        return [connections(graph.classes[number], visited, there)[0] for number in classes]

    def _first_index(self, place: int) -> JoinSide:
        return next(iter(self._indexes[place].values()))

    def _held(self, place: int) -> list[Batch]:
        return self._first_index(place).tuples_held()

    def _plan(self, inputs: int) -> Plan:
        """A plan of the combined tuples: of every set one, by which its keys are named."""
        if inputs not in self._plans:
            last = 1 << inputs.bit_length() - 1
            predicates = tuple(self._graph.predicates(inputs ^ last, last))
            self._plans[inputs] = Join(self._plan(inputs ^ last), self._plans[last], predicates)
        return self._plans[inputs]

    def _layout(self, inputs: int) -> Layout:
        """The layout of combined tuples; their references are in the same order whichever way they came."""
        if inputs not in self._layouts:
            last = 1 << inputs.bit_length() - 1
            self._layouts[inputs] = self._layout(inputs ^ last).beside(self._layouts[last])
        return self._layouts[inputs]
