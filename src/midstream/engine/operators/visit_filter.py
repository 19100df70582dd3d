"""Visit filter: keeps tuples of a multi-way join from visits of which nothing can come.

This is just-in-time processing for M-joins and eddies (Yang and Papadias 2008, section V). Before a group of tuples
visits an input of a multi-way join, those are left out for which another input, not visited yet, has no partner:

      ⟨a⟩ ──▶ has c one? has d one? ──visit b──▶ ⟨a b⟩ ──▶ has d one? ──visit c──▶ ⟨a b c⟩ ──visit d──▶ results

In the paper's words, such a tuple is a *minimal non-demanded sub-tuple*: of one input, or combined (*type II*), and
the inputs ahead are the *consumers*. Seen from relational theory, a semi-join comes before each join. An input answers
from the keys of its tuples (``state/demanded_keys``), which is much cheaper than to look the tuples up, and keys of
several columns are asked for as one, where the index has each input's columns apart. So the input that is visited next
is asked, too, if it shares equalities with several of the inputs visited. Only equalities are asked about; an input
without any answers nothing, and a tuple with NULL in a key has no partner.

**Why no result is lost, and none is repeated.** A tuple that is left out is left out of this visit only: it has its
place in the indexes of its own input before, during and after it. Take a result. Of its tuples, one comes last: by the
order of pushes, of slices in a push, and of inputs in a slice. When it starts to visit, the other tuples of the result
are in the indexes. On its way it is combined with some of them, in any order; ahead are inputs that hold the others. Of
each of these, the keys are noted: all tuples of a push are noted before any of them visits another input, and whoever
starts to note is told of the tuples held, those that an index has put off included. They are forgotten when the index
forgets the tuple. The equalities hold in the result, so the keys are equal and not NULL; its tuples are valid at the
same time, so the one ahead ends after the combined one begins. Hence the answer is yes, wherever it is asked. (It may
be yes by mistake: for a tuple of the same push whose turn has not come, for one that begins too late, by a Bloom filter
or by codes that are hashes.) The other way round, to leave tuples out never adds a result.

So nobody waits here: there is no blacklist, and *resumption* has nothing to do. A partner that arrives later goes its
own way through the inputs, and finds the tuple in its index. That is the paper's remark about resumption in M-joins,
with the blacklist judged anew for each group. In contrast to binary joins, no two inputs can wait for each other.

Asking costs time, and so does noting keys. A check is given up when what it saves, visits and the partial results that
would come of them, is less than a share of the tuples that it looks at, or of what noting keys costs; it is tried again
later, each time after twice as long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from midstream.algebra.expressions import Expression
from midstream.engine.batch import Batch, Layout
from midstream.engine.operators.demand import KeyDemand
from midstream.engine.operators.key_codes import KeyCodes
from midstream.engine.operators.suspend import FIRST_PAUSE, KEY_COST
from midstream.engine.state.demanded_keys import BloomDemandedKeys, DemandedKeys
from midstream.planning.join_order.join_graph import JoinGraph, bits

__all__ = ["VisitChecks", "VisitFilter", "VisitFilterOptions"]


_MOST_CHECKS = 1_000
"""More are forgotten, and made again when they are needed: an eddy may try very many ways."""


@dataclass(frozen=True)
class VisitFilterOptions:
    """How keys are noted, whether combined tuples are checked, and when a check is given up."""

    make_demanded_keys: Callable[[], DemandedKeys | BloomDemandedKeys]
    checks_combined: bool
    least_share: float
    trial_rows: int


class VisitFilter:
    """What the inputs of a multi-way join can still use, for tuples that have visited some of them.

    ``layouts`` are those of the inputs, ``layout`` that of tuples on their way; ``held_by`` gives an input's tuples.
    """

    def __init__(
        self,
        graph: JoinGraph,
        layouts: Sequence[Layout],
        layout: Layout,
        held_by: Callable[[int], list[Batch]],
        options: VisitFilterOptions,
    ) -> None:
        self._graph = graph
        self._layout = layout
        self._options = options
        self._inputs = [
            _NotedInput(own, partial(held_by, place), options.make_demanded_keys) for place, own in enumerate(layouts)
        ]
        self._checks: dict[tuple[int, int, int], VisitChecks] = {}

    @property
    def bytes(self) -> int:
        return sum(demand.bytes for one in self._inputs for demand in one.demands.values())

    def note(self, entered: Sequence[Batch]) -> None:
        """Note the keys of all new tuples of a push, before any of them is worked on."""
        for one, batch in zip(self._inputs, entered, strict=True):
            one.note(batch)
        # An eddy may have given up a way: its checks would have keys noted for nothing.
        for checks in self._checks.values():
            checks.review()
        if len(self._checks) >= _MOST_CHECKS:
            for checks in self._checks.values():
                checks.stop()
            self._checks.clear()

    def expire(self, place: int, frontier: int) -> None:
        """After a push: forget the keys of an input's tuples that have ended by then."""
        self._inputs[place].expire(frontier)

    def before(self, visited: int, latest: int, place: int) -> VisitChecks:
        """The checks of tuples that are about to visit an input.

        ``latest`` is the input that they have visited last, or where they come from: what follows from the others has
        been asked before.
        """
        key = (visited, latest, place)
        if key not in self._checks:
            self._checks[key] = self._new_checks(*key)
        return self._checks[key]

    def _new_checks(self, visited: int, latest: int, place: int) -> VisitChecks:
        options, graph = self._options, self._graph
        checks = VisitChecks([], None, options.trial_rows)
        if visited & visited - 1 and not options.checks_combined:
            return checks
        for other in bits(graph.everything & ~visited):
            classes = graph.linking_classes(visited, 1 << other)
            if len(classes) == len(graph.linking_classes(visited & ~(1 << latest), 1 << other)):
                continue
            if other != place:
                checks.of_others.append(self._check(visited, other, classes))
            elif self._is_found_by_less(visited, place, len(classes)):
                checks.of_next = self._check(visited, place, classes)
        return checks

    def _is_found_by_less(self, visited: int, place: int, count: int) -> bool:
        """Whether tuples look up the input by fewer than all of so many equalities: by those with one input visited."""
        most = max(len(self._graph.linking_classes(1 << one, 1 << place)) for one in bits(visited))
        return 0 < most < count

    def _check(self, visited: int, other: int, classes: tuple[int, ...]) -> _Check:
        def keys(inputs: int) -> list[Expression]:
            return [next(m.expression for m in self._graph.classes[c] if not m.mask & ~inputs) for c in classes]

        demand = self._inputs[other].by_key(classes, keys(1 << other))
        codes = KeyCodes(self._layout, keys(visited))
        return _Check(demand, codes, self._options.least_share, self._options.trial_rows)


@dataclass
class VisitChecks:
    """What is asked before tuples that have visited certain inputs visit one more."""

    of_others: list[_Check]
    of_next: _Check | None
    """Of the input that is visited: there, where looking up takes more than the answer."""
    memory: float
    """After so many tuples, what was before them counts half as much."""
    _visiting: float = 0.0
    _returned: float = 0.0

    @property
    def fan_out(self) -> float:
        """How many tuples have lately come of one that visited, or was kept from it by the input itself."""
        return self._returned / max(1.0, self._visiting)

    def passing(self, tuples: Batch) -> tuple[Batch, int]:
        """The tuples that may find partners everywhere; and for how many that is known but for the input visited."""
        for check in self.of_others:
            if len(tuples):
                tuples = check.passing(tuples, 1 + self.fan_out)
        count = len(tuples)
        if count and self.of_next is not None:
            tuples = self.of_next.passing(tuples, 1)
        return tuples, count

    def review(self) -> None:
        """Give up checks that do not pay, those included that nobody asks any more."""
        for check in self._all():
            check.review()

    def stop(self) -> None:
        """Give up all checks: they are forgotten."""
        for check in self._all():
            check.stop()

    def _all(self) -> list[_Check]:
        return [*self.of_others, *([] if self.of_next is None else [self.of_next])]

    def learn(self, visiting: int, returned: int) -> None:
        """Take note of what came of a visit."""
        if self._visiting > self.memory:
            self._visiting, self._returned = self._visiting / 2, self._returned / 2
        self._visiting += visiting
        self._returned += returned


class _Check:
    """Tuples are asked for whether an input has partners by a key, as long as that pays."""

    def __init__(self, demand: KeyDemand[_NotedInput], codes: KeyCodes, least_share: float, trial_rows: int) -> None:
        self._demand = demand
        self._codes = codes
        self._least_share = least_share
        self._trial_rows = trial_rows
        self._is_on = False
        self._rest = 0
        """Tuples that pass unchecked until the check is tried again."""
        self._next_rest = FIRST_PAUSE * trial_rows
        self._begin_trial()

    def passing(self, tuples: Batch, worth: float) -> Batch:
        """The tuples that the input may have a partner for. To keep one back saves ``worth`` tuples' work."""
        if not self._is_on:
            self._rest -= len(tuples)
            if self._rest >= 0:
                return tuples
            self._is_on = True
            self._demand.start()
            self._begin_trial()
        codes, valid = self._codes.of(tuples)
        kept = self._demand.contains(codes, tuples.valid_from)
        if valid is not None:
            kept &= valid
        passing = tuples.filtered(kept)
        self._seen += len(tuples)
        self._saved += worth * (len(tuples) - len(passing))
        self.review()
        return passing

    def review(self) -> None:
        """Give the check up, for a while, if it has not saved enough lately."""
        cost = max(self._seen, KEY_COST * (self._demand.noted - self._noted_before))
        if not self._is_on or cost < self._trial_rows:
            return
        if self._saved < self._least_share * cost:
            self.stop()
            self._rest, self._next_rest = self._next_rest, 2 * self._next_rest
        self._begin_trial()

    def stop(self) -> None:
        """Ask no more; the keys need not be noted for this check."""
        if self._is_on:
            self._is_on = False
            self._demand.stop()

    def _begin_trial(self) -> None:
        self._seen, self._saved, self._noted_before = 0, 0.0, self._demand.noted


class _NotedInput:
    """An input of the multi-way join, with the keys of its tuples that somebody asks for."""

    def __init__(
        self,
        layout: Layout,
        held: Callable[[], list[Batch]],
        make_demanded_keys: Callable[[], DemandedKeys | BloomDemandedKeys],
    ) -> None:
        self.layout = layout
        self.make_demanded_keys = make_demanded_keys
        self.demands: dict[tuple[int, ...], KeyDemand[_NotedInput]] = {}
        self._held = held
        self._latest: list[Batch] = []

    def by_key(self, classes: tuple[int, ...], keys: Sequence[Expression]) -> KeyDemand[_NotedInput]:
        if classes not in self.demands:
            self.demands[classes] = KeyDemand(self, keys)
        return self.demands[classes]

    def tuples_held(self) -> list[Batch]:
        """The tuples in the indexes, and those of this push, which may not be there yet."""
        return [*self._held(), *self._latest]

    def note(self, batch: Batch) -> None:
        self._latest = [batch] if len(batch) else []
        for demand in self.demands.values():
            if demand.is_used:
                demand.announce(self._latest)

    def expire(self, frontier: int) -> None:
        self._latest = []
        for demand in self.demands.values():
            demand.expire(frontier)
