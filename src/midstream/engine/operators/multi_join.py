"""Multi-way join: combinations of a tuple of each input that satisfy the predicates and are valid at the same time.

Output from input: as a tree of joins over the same inputs. Intuitively, each input's tuples are kept in one place, as
the SteMs of CACQ (Madden et al. 2002, section 3.1) or the windows of an M-join (Viglas, Naughton and Burger 2003), and
a new tuple visits the other inputs one after the other, together with the partners it has found so far:

      new a ──▶ ⟨a⟩ ──visit b──▶ ⟨a b⟩ ──visit c──▶ ⟨a b c⟩ ──▶ results
      new b ──▶ ⟨b⟩ ──visit c──▶ ⟨b c⟩ ──visit a──▶ ⟨a b c⟩ ──▶ results

In which order, a router decides (see ``routing``); how partners are found, ``visits`` knows. The inputs of a push take
turns: all new tuples of the first visit the others, then they are remembered, then come those of the second. So each
result is made once, by the part of it that comes last. Small groups wait for others that have visited the same inputs.

State: the tuples of each input, in an *index* for each key by which they are looked up; no combined tuples. A tuple is
dropped when no other input can bring a partner any more. An index is a join side, with the state key of one, so that
plans with and without braces share them. By which key an input is looked up depends on what was visited before: by the
equalities that link it with one of the inputs visited, the most there are; the others are checked on the candidates.

A new order costs nothing, since there is nothing that depends on it. The price is that every tuple pays for all joins
anew: see ``docs/executors.md``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import reduce

from midstream.algebra.expressions import conjunction
from midstream.algebra.plan import MultiJoin
from midstream.algebra.window_spec import NEVER
from midstream.engine.batch import Batch, Layout, concatenate
from midstream.engine.expressions.evaluate import truth
from midstream.engine.operators.join_side import JoinSide
from midstream.engine.operators.operator import Operator
from midstream.engine.operators.routing import EddyRouter, FixedRouter, Router
from midstream.engine.operators.slices import in_slices
from midstream.engine.operators.state_handle import StateHandle
from midstream.engine.operators.visit_filter import VisitChecks, VisitFilter, VisitFilterOptions
from midstream.engine.operators.visits import Visits
from midstream.engine.state.join_state import NewTuples
from midstream.planning.join_order.join_graph import JoinGraph
from midstream.planning.join_order.probe_orders import default_probe_order

__all__ = ["MultiJoinOperator"]


_SMALL_GROUP_ROWS = 2_048
"""Fewer tuples wait for others that have visited the same inputs: a visit costs as much as its first two thousand."""


_Way = tuple[int, int]
"""The inputs that tuples have visited, as a set, and the latest of them."""
_Waiting = dict[_Way, list[Batch]]


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
        """For just-in-time processing: how visits are skipped that cannot produce results, and which inputs lack
        suspended tuples."""
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
        self.router: Router
        if plan.routing == "fixed":
            self.router = FixedRouter(plan.probe_orders)
        else:
            self.router = EddyRouter(len(inputs))
        self._graph = JoinGraph.of_parts(plan.parts, plan.predicates)
        self._entry_checks = [conjunction(own) if own else None for own in self._graph.selections]
        self._visits = Visits(self._graph, inputs, self.layout, chunk_rows, self.counters, partial_inputs)
        self._results_per_row = 0.0
        self._filter: VisitFilter | None = None
        if filter_options is not None:
            self._filter = VisitFilter(self._graph, layouts, self.layout, self._held, filter_options)
        # Tuples of the input with the most neighbours come last: they meet all the others, and may choose whom first.
        self._turns = sorted(range(len(inputs)), key=lambda place: self._graph.neighbours[place].bit_count())
        self._prepare_visits()

    @property
    def emits_in_order(self) -> bool:
        return self.is_topmost

    @property
    def state_rows(self) -> int:
        return sum(index.state_rows for indexes in self._visits.indexes for index in indexes.values())

    @property
    def state_bytes(self) -> int:
        noted = 0 if self._filter is None else self._filter.bytes
        return noted + sum(index.state_bytes for indexes in self._visits.indexes for index in indexes.values())

    def states(self) -> Sequence[StateHandle]:
        return [index for place in self.deciding_order for index in self._visits.indexes[place].values()]

    @property
    def evaluation_order(self) -> Sequence[Operator]:
        return [self.inputs[place] for place in self.deciding_order]

    def indexes_of(self, place: int) -> Sequence[JoinSide]:
        """What is kept of an input's tuples, by each key."""
        return list(self._visits.indexes[place].values())

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
        for place, indexes in enumerate(self._visits.indexes):
            others = min(child.frontier for other, child in enumerate(self.inputs) if other != place)
            for index in indexes.values():
                index.expire(others)
            if self._filter is not None:
                self._filter.expire(place, others)

    def needed_below(self, retention: int) -> int:
        return min(retention, self.frontier)

    def _prepare_visits(self) -> None:
        """Make the indexes that the probe orders need; where an eddy decides, those of the default ones."""
        places = range(len(self.inputs))
        orders = self.plan.probe_orders or [default_probe_order(self._graph, place) for place in places]
        router = FixedRouter(orders)
        for place in places:
            visited = 1 << place
            while visited != self._graph.everything:
                other = router.next(place, self._visits.candidates(visited))
                self._visits.of(visited, other)
                visited |= 1 << other

    def history(self) -> list[Batch]:
        """All results of what the inputs remember, apart from those that have ended: their rows may be gone."""
        for index in (index for indexes in self._visits.indexes for index in indexes.values()):
            index.state.drop_ended(self.layout.released)
        counts = [self._visits.first_index(place).state_rows for place in range(len(self.inputs))]
        root = counts.index(min(counts))
        tuples = concatenate(self.inputs[root].layout, self._visits.first_index(root).tuples_held())
        return [concatenate(self.layout, list(self._combined(root, tuples)))]

    def _entering(self, place: int, batch: Batch) -> Batch:
        check = self._entry_checks[place]
        return batch if check is None else batch.filtered(truth(check, batch.column, len(batch)))

    def _is_put_off(self, entered: Sequence[Batch]) -> bool:
        """Whether an input has nothing to be met, so that nothing can come of the others' tuples but work."""
        if all(len(batch) or self._visits.first_index(place).state_rows for place, batch in enumerate(entered)):
            return False
        for indexes, batch in zip(self._visits.indexes, entered, strict=True):
            for index in indexes.values():
                index.put_off(batch)
        return True

    def _whole(self, entered: Sequence[Batch]) -> Iterator[Batch]:
        for place in self._turns:
            yield from self._combined(place, entered[place])
            self._remember(place, entered[place])
        self._settle()

    def _slices(self, entered: Sequence[Batch], rows: int) -> Iterator[Batch]:
        return in_slices(self.layout, entered, int(1.2 * self._results_per_row * rows), self.chunk_rows, self._attempt)

    def _attempt(self, slice_: Sequence[Batch]) -> list[Batch] | None:
        """The results of a slice; None, with the states as before, if they are too many and it can be halved."""
        limit = self.chunk_rows if sum(len(batch) for batch in slice_) > 1 else NEVER
        results: list[Batch] = []
        found = 0
        index_keys = self._visits.index_keys()
        remembered: list[tuple[JoinSide, NewTuples]] = []
        for place in self._turns:
            for result in self._combined(place, slice_[place]):
                found += len(result)
                results.append(result)
                if found > limit:
                    for index, tuples in reversed(remembered):
                        index.state.take_back(tuples)
                    # An index that was made meanwhile has tuples of the slice that were not inserted one by one.
                    self._visits.drop_indexes_except(index_keys)
                    return None
            remembered += self._remember(place, slice_[place])
        self._settle()
        return results

    def _remember(self, place: int, batch: Batch) -> list[tuple[JoinSide, NewTuples]]:
        new = [(index, index.keyed(batch)) for index in self._visits.indexes[place].values()] if len(batch) else []
        for index, tuples in new:
            index.state.insert(tuples)
        return new

    def _settle(self) -> None:
        for indexes in self._visits.indexes:
            for index in indexes.values():
                index.state.settle()

    def _held(self, place: int) -> list[Batch]:
        return self._visits.first_index(place).tuples_held()

    def _combined(self, root: int, tuples: Batch) -> Iterator[Batch]:
        """The results of tuples of one input with what the others remember."""
        if not len(tuples):
            return
        waiting: _Waiting = {}
        wide = self._visits.widened(root, tuples)
        size = self.router.group_rows or len(tuples)
        first = (1 << root, root)
        if len(tuples) <= size:
            yield from self._routed(root, first, wide, waiting, tuples)
        else:
            for start in range(0, len(tuples), size):
                yield from self._routed(root, first, wide.sliced(start, min(len(tuples), start + size)), waiting)
        while waiting:
            # The shortest way first: what comes of it may join those that have gone further.
            way = min(waiting, key=lambda way: way[0].bit_count())
            yield from self._routed(root, way, concatenate(self.layout, waiting.pop(way)), waiting)

    def _routed(
        self, root: int, way: _Way, tuples: Batch, waiting: _Waiting, entered: Batch | None = None
    ) -> Iterator[Batch]:
        """The results of tuples that have gone some way, except of those that are left waiting."""
        visited, latest = way
        place = self.router.next(root, self._visits.candidates(visited))
        # What was visited last matters to the filter alone: without one, more tuples go on together.
        then = (visited | 1 << place, root if self._filter is None else place)
        checks = None if self._filter is None else self._filter.before(visited, latest, place)
        rows, returned = len(tuples), 0
        if checks is not None:
            tuples, rows = self._passing(checks, tuples)
            entered = None
        for results in self._visits.of(visited, place).results(tuples, entered) if len(tuples) else ():
            returned += len(results)
            if then[0] == self._graph.everything:
                yield results
                continue
            if len(results):
                waiting.setdefault(then, []).append(results)
            if sum(len(part) for part in waiting.get(then, ())) >= _SMALL_GROUP_ROWS:
                yield from self._routed(root, then, concatenate(self.layout, waiting.pop(then)), waiting)
        self.router.note(place, rows, returned)
        if checks is not None:
            checks.learn(rows, returned)

    def _passing(self, checks: VisitChecks, tuples: Batch) -> tuple[Batch, int]:
        """The tuples of which something can come, and how many there would be, did the input visited not say so."""
        passing, rows = checks.passing(tuples)
        self.counters.suspended += len(tuples) - len(passing)
        self.counters.avoided += round((len(tuples) - rows) * checks.fan_out)
        return passing, rows
