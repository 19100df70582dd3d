"""Sizes of join subsets, measured by sampling: new rows are drawn at random and joined with the whole windows.

All rows inside their windows are in memory, so the size of *any* join subset can be measured, also of those that the
plan in force never computes. For each input of a block of joins, some of the tuples that arrived in the span are drawn;
they are joined with the other inputs' tuples, one input after the other, until every set of inputs that conditions
connect has a sample of its increment:

    sample of {a}  ──join b──▶  sample of {a b}  ──join c──▶  sample of {a b c}
    sample of {b}  ──join a──▶     (both together)

Only the new rows are sampled; partners come from the full windows, because sampling rates of several inputs would
multiply. A state of the plan in force that has an input's tuples by the right key is read as it is; of others, all keys
are compared with those of the sample. Where a sample would become too large, candidates are drawn at random, and each
stands for several.

A combined tuple with several new parts can be reached from each of them, and counts for that share from each. So every
tuple of the increment is expected to count exactly once. The drawn tuples are dealt into groups, whose estimates are
the replicates of ``planning/cost/sizes``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from midstream.algebra.plan import Join, Plan
from midstream.engine.batch import Batch, Layout, concatenate
from midstream.engine.expressions.evaluate import truth
from midstream.engine.kernels import Ints
from midstream.engine.operators.demand import DemandOperator
from midstream.engine.operators.join import JoinOperator
from midstream.engine.operators.join_side import JoinSide, Lookup
from midstream.engine.operators.materialize import MaterializeOperator
from midstream.engine.operators.multi_join import MultiJoinOperator
from midstream.engine.operators.relation import Relation
from midstream.engine.operators.state_handle import StateInventory, StateKey
from midstream.engine.operators.stateless import ColumnProjection, SelectOperator
from midstream.engine.operators.suspend import SuspendOperator
from midstream.engine.operators.window_source import WindowOperator
from midstream.engine.state.join_state import JoinState
from midstream.engine.state.row_store import RowStore
from midstream.execution.plan_executor import PlanExecutor
from midstream.planning.cost.derived_sizes import unreduced_fingerprint
from midstream.planning.cost.join_search import connected_sets
from midstream.planning.cost.sizes import BlockSizes, Replicates
from midstream.planning.join_order.join_graph import JoinGraph, bits, block_joins

__all__ = ["GROUPS", "BlockSampler", "JoinCounts"]

GROUPS = 16
"""Into how many groups drawn tuples are dealt."""
_LEAST_TUPLES = 16
"""A pair with a smaller sample is taken to stay as it is."""
_MOST_GROWTH = 64.0
MOST_SETS = 200
"""Sets of inputs that are measured, the small ones first; larger ones are derived from them."""

Ends = Mapping[int, int]
"""By ``id`` of a row store: the number that its next row would get; without any, all rows count as new."""


class JoinCounts(NamedTuple):
    """What a join has done: counted from its start, or in one push."""

    entered: int
    """Tuples of its inputs."""
    inserted: int
    """How often these were inserted: a multi-way join may have several indexes of an input."""
    probes: int
    """Lookups of a multi-way join, whose combined tuples visit one input after the other."""
    found: int
    """Tuples that were made, those on the way through a multi-way join included."""
    produced: int
    """Tuples that left the join."""

    @staticmethod
    def of(join: JoinOperator | MultiJoinOperator) -> JoinCounts:
        """What an operator has counted."""
        counters = join.counters
        entered, produced = counters.rows_in, counters.rows_out
        if isinstance(join, JoinOperator):
            return JoinCounts(entered, entered, 0, produced, produced)
        indexes = sum(len(join.indexes_of(place)) for place in range(len(join.inputs)))
        # A tuple on its way is looked up once for every input that it has yet to visit.
        found = max(produced, counters.probes - entered + produced)
        return JoinCounts(entered, entered * indexes // len(join.inputs), counters.probes, found, produced)

    def since(self, before: JoinCounts) -> JoinCounts:
        """What has come since then."""
        return JoinCounts(
            self.entered - before.entered,
            self.inserted - before.inserted,
            self.probes - before.probes,
            self.found - before.found,
            self.produced - before.produced,
        )


@dataclass
class _Sample:
    """Tuples of the increment of a set of inputs: how many each stands for, its group, the input it was drawn from."""

    tuples: Batch
    weights: npt.NDArray[np.float64]
    groups: Ints
    roots: Ints
    new_parts: Ints
    """Of how many inputs the tuple's part arrived in the span."""

    def of_root(self, place: int, is_wanted: bool) -> _Sample:
        """The tuples that were drawn from this input, or all others."""
        return self.filtered((self.roots == place) == is_wanted)

    def filtered(self, kept: npt.NDArray[np.bool_]) -> _Sample:
        return _Sample(
            self.tuples.filtered(kept), self.weights[kept], self.groups[kept], self.roots[kept], self.new_parts[kept]
        )

    def growth(self, turns: Sequence[float], increment: float) -> float:
        """How many times its increment a pair of inputs would have if all rows in the windows were like the new ones.

        Rows of a span meet each other on average for half of it, and later ones for a window. ``turns`` says how many
        spans each input's window has.
        """
        if len(self.weights) < _LEAST_TUPLES or increment <= 0:
            return 1.0
        is_new = self.new_parts == 2
        among_new = float(self.weights[is_new].sum()) / 2
        places = np.unique(self.roots)
        later: float = 2 * among_new * math.prod(turns[place] for place in places) ** (1 / len(places))
        return min(_MOST_GROWTH, max(1 / _MOST_GROWTH, later / increment))

    def increment(self) -> Replicates:
        """The estimates of the increment by the groups."""
        shares = self.weights / self.new_parts
        return np.bincount(self.groups, shares, minlength=GROUPS).astype(np.float64) * GROUPS


class BlockSampler:
    """Measures one block of joins of a running plan, as long as its executor is in force."""

    def __init__(self, block: Plan, box: PlanExecutor) -> None:
        self.identity = block.identity
        self.graph = JoinGraph.of(block)
        self.leaves = tuple(leaf.fingerprint for leaf in self.graph.leaves)
        """The fingerprints of the inputs."""
        self._unreduced = unreduced_fingerprint(block)
        self._states: StateInventory = box.states()
        self._windows = box.windows
        operators = {o.subplan: o for o in box.operators if isinstance(o, JoinOperator | MultiJoinOperator)}
        # Sides of joins, or indexes of multi-way joins: any of those with an input's tuples will do.
        sides = {side.identity: side for o in operators.values() for side in o.states() if isinstance(side, JoinSide)}
        self._sides = [sides[leaf.identity] for leaf in self.graph.leaves]
        self._joins = {self.graph.mask_of(order): operators[join.fingerprint] for join, order in block_joins(block)}
        self._sources = [_Source(side) for side in self._sides]
        self.count_rows()
        self._steps: dict[int, tuple[_Step, _Step]] = {}
        self._plans: dict[int, Plan] = {1 << place: leaf for place, leaf in enumerate(self.graph.leaves)}
        self._layouts: dict[int, Layout] = {1 << place: side.layout for place, side in enumerate(self._sides)}

    @property
    def is_measurable(self) -> bool:
        """Whether all tuples of the inputs can be read: just-in-time processing may keep back some of a subquery's."""
        pairs = zip(self._sides, self._sources, strict=True)
        return all(not side.is_partial or source.window is not None for side, source in pairs)

    def stores(self) -> list[RowStore]:
        """The stores of the block's inputs."""
        return [store for side in self._sides for store in side.layout.stores]

    def count_rows(self) -> None:
        """Note how many tuples the inputs have now, for :meth:`held_rows` and :meth:`rows_to_read`."""
        self._state_rows = [side.state_rows for side in self._sides]

    def counts(self) -> dict[int, JoinCounts]:
        """What the joins of the plan in force have done, by the set of inputs that they join."""
        return {inputs: JoinCounts.of(join) for inputs, join in self._joins.items()}

    def new_rows(self, since: Ends) -> list[int]:
        """How many rows of each input arrived since then."""
        return [
            sum(store.end - since.get(id(store), store.end) for store in set(side.layout.stores))
            for side in self._sides
        ]

    def held_rows(self) -> int:
        """How many tuples of the inputs are inside their windows, dead ones that are not yet dropped included."""
        return sum(self._state_rows)

    @property
    def steps(self) -> int:
        """How many joins of samples a measurement makes."""
        return 3 * len(self._measured_sets)

    def rows_to_read(self) -> int:
        """How many keys a measurement reads, because the plan in force does not have the tuples by the key needed."""
        return sum(self._state_rows[place] for place in self._read_inputs)

    @cached_property
    def _read_inputs(self) -> list[int]:
        """The inputs to read, for each step that finds no state by its key."""
        steps = [step for inputs in self._measured_sets for step in self._steps_of(inputs)]
        return [step.added for step in steps if not _served(self._states, step.operator.sides[1])]

    def measure(
        self,
        since: Ends,
        rows: int,
        generator: np.random.Generator,
        counted: Mapping[int, int],
        is_steady: bool = False,
    ) -> BlockSizes:
        """The sizes over the span since then, from about so many drawn tuples of each input.

        ``counted`` says how many tuples the joins of the plan in force produced in the span, if it has been in force
        for so long. That of all inputs is there in every plan, so it need not be estimated.
        """
        most = 4 * rows
        samples: dict[int, _Sample] = {}
        held = []
        indexes = _Indexes(self._states, self._held)
        for place in range(len(self._sides)):
            samples[1 << place] = self._drawn(place, since, rows, generator)
            held.append(float(self._held_count(place)))
        increments = {inputs: sample.increment() for inputs, sample in samples.items()}
        alive = [_share_alive(float(increments[1 << place].mean()), count) for place, count in enumerate(held)]
        for inputs in self._measured_sets:
            parts = []
            for step in self._steps_of(inputs):
                source = samples[step.source]
                source = source.of_root(step.root, step.is_root_wanted)
                parts.append(step.joined(source, indexes, since, most, generator))
            samples[inputs] = _together(parts, self._layouts[inputs])
            # All parts but the one that arrived last had to be there before, and some have ended since.
            gone = np.prod([alive[place] for place in bits(inputs)]) ** (1 - 1 / inputs.bit_count())
            increments[inputs] = samples[inputs].increment() / gone
        if self.graph.everything in counted:
            increments[self.graph.everything] = np.full(GROUPS, float(counted[self.graph.everything]))
        sizes = BlockSizes(
            self.graph.names, tuple(held), increments, counted, unreduced=self._unreduced, leaves=self.leaves
        )
        if is_steady:
            return sizes
        held_sets = self._held_sets(indexes, rows // 2, generator)
        turns = [count / max(1.0, float(increments[1 << place].mean())) for place, count in enumerate(held)]
        pairs = {inputs: sample for inputs, sample in samples.items() if inputs.bit_count() == 2}
        growth = {inputs: sample.growth(turns, float(increments[inputs].mean())) for inputs, sample in pairs.items()}
        return replace(sizes, held_sets=held_sets, growth=growth)

    def _held_sets(self, indexes: _Indexes, rows: int, generator: np.random.Generator) -> dict[int, float]:
        """How many tuples of each set are valid now: what a plan would hold that had run all the time.

        After a sudden change this has little to do with the increments, but it is what a migration must compute.
        """
        samples = {1 << place: self._drawn(place, {}, rows, generator) for place in range(len(self._sides))}
        held: dict[int, float] = {}
        for inputs in self._measured_sets:
            step, _ = self._steps_of(inputs)
            samples[inputs] = step.joined(samples[step.source], indexes, {}, 4 * rows, generator)
            held[inputs] = float(samples[inputs].weights.sum())
        return held

    @cached_property
    def _measured_sets(self) -> list[int]:
        """The sets of at least two inputs that are measured, the small ones first. The whole block is counted."""
        found = connected_sets(self.graph, self.graph.everything, 1 << 14)
        if found is None:
            found = [
                1 << one | 1 << other
                for one in range(len(self._sides))
                for other in range(one + 1, len(self._sides))
                if self.graph.are_linked(1 << one, 1 << other)
            ]
        made = {1 << place for place in range(len(self._sides))}
        kept = []
        for inputs in found:
            # A condition of three inputs (a.x + b.y = c.z) may connect a set that only one input can be added to.
            if inputs != self.graph.everything and len(_ends(inputs, made)) > 1:
                made.add(inputs)
                kept.append(inputs)
        return kept[:MOST_SETS]

    @cached_property
    def _made_sets(self) -> set[int]:
        """The sets that have a sample in a measurement."""
        return {1 << place for place in range(len(self._sides))} | set(self._measured_sets)

    def _steps_of(self, inputs: int) -> tuple[_Step, _Step]:
        """How the set's sample is made of smaller ones: two steps, each for the tuples of some roots."""
        if inputs not in self._steps:
            last, other = _ends(inputs, self._made_sets)[:2]
            first_step = self._step(inputs, last, root=last, is_root_wanted=False)
            second_step = self._step(inputs, other, root=last, is_root_wanted=True)
            self._plans[inputs] = first_step.operator_plan
            self._layouts[inputs] = first_step.operator.layout
            self._steps[inputs] = (first_step, second_step)
        return self._steps[inputs]

    def _step(self, inputs: int, added: int, root: int, is_root_wanted: bool) -> _Step:
        source = inputs ^ 1 << added
        left, right = self._plans[source], self._plans[1 << added]
        plan = Join(left, right, tuple(self.graph.predicates(source, 1 << added)))
        operator = JoinOperator(plan, Relation(self._layouts[source]), Relation(self._layouts[1 << added]), 1 << 20)
        return _Step(source, added, root, is_root_wanted, plan, operator, self._sources[added])

    def _drawn(self, place: int, since: Ends, rows: int, generator: np.random.Generator) -> _Sample:
        """Some of the input's tuples that arrived in the span."""
        found = self._sources[place].drawn(since, rows, generator)
        if found is None:
            held = self._held(place)
            held = held.filtered(self._sources[place].is_new(held.references, since))
            if len(held) > rows:
                chosen = np.sort(generator.choice(len(held), rows, replace=False))
                found = held.taken(chosen), len(held) / rows
            else:
                found = held, 1.0
        tuples, stands_for = found
        drawn = len(tuples)
        groups = generator.permutation(drawn) % GROUPS
        return _Sample(tuples, np.full(drawn, stands_for), groups, np.full(drawn, place), np.ones(drawn, np.int64))

    def _held(self, place: int) -> Batch:
        """All tuples of an input that are inside their windows."""
        side, source = self._sides[place], self._sources[place]
        if source.window is not None:
            found = self._windows.alive_in(source.window)
            return source.selected(Batch(side.layout, found.valid_from, found.valid_to, found.references))
        return concatenate(side.layout, side.tuples_held())

    def _held_count(self, place: int) -> int:
        side = self._sides[place]
        return len(self._held(place)) if side.is_partial else side.state_rows


@dataclass
class _Step:
    """Joining the sample of a set with one more input."""

    source: int
    added: int
    root: int
    is_root_wanted: bool
    operator_plan: Plan
    operator: JoinOperator
    added_source: _Source

    def joined(
        self, sample: _Sample, indexes: _Indexes, since: Ends, most: int, generator: np.random.Generator
    ) -> _Sample:
        state = indexes.met_by(sample.tuples, self)
        pairs, places, stands_for = self.operator.sampled_pairs(sample.tuples, state, most, generator)
        added = pairs.references[self.operator.rows_of(1)]
        return _Sample(
            pairs,
            sample.weights[places] * stands_for,
            sample.groups[places],
            sample.roots[places],
            sample.new_parts[places] + self.added_source.is_new(added, since),
        )


class _Indexes:
    """The inputs' tuples by key, during one measurement: states of the plan in force, or else all tuples."""

    def __init__(self, states: StateInventory, held: Callable[[int], Batch]) -> None:
        self._states = states
        self._held = cache(held)
        self._lookups: dict[StateKey, Lookup] = {}

    def met_by(self, tuples: Batch, step: _Step) -> JoinState:
        """A state with all tuples of the step's input that these can meet."""
        probing, side = step.operator.sides
        served = _served(self._states, side)
        if served is not None:
            return served.state
        if side.state_key not in self._lookups:
            self._lookups[side.state_key] = side.lookup(self._held(step.added))
        return self._lookups[side.state_key](probing.keyed(tuples))


def _served(states: StateInventory, needed: JoinSide) -> JoinSide | None:
    """The state in force that has an input's tuples by the key needed."""
    for state in states.get(needed.state_key, ()):
        assert isinstance(state, JoinSide)
        if state.is_complete and state.layout.stores == needed.layout.stores:
            return state
    return None


class _Source:
    """Where the tuples of an input come from: a window or a store of computed rows, or anything else."""

    def __init__(self, side: JoinSide) -> None:
        self._layout = side.layout
        self._selections: list[SelectOperator] = []
        self.window: str | None = None
        """The identity of the window that the input consists of, apart from operators that only pass rows on."""
        operator = side.inputs[0]
        while isinstance(operator, SelectOperator | ColumnProjection | SuspendOperator | DemandOperator):
            if isinstance(operator, SelectOperator):
                self._selections.append(operator)
            operator = operator.inputs[0]
        if isinstance(operator, WindowOperator):
            self.window = operator.source
        self._is_numbered = isinstance(operator, WindowOperator | MaterializeOperator)

    def is_new(self, references: Ints, since: Ends) -> npt.NDArray[np.bool_]:
        """Which tuples have a part that arrived since then."""
        firsts = [since.get(id(store), 0) for store in self._layout.stores]
        return np.asarray((references >= np.array(firsts, np.int64).reshape(-1, 1)).any(axis=0))

    def drawn(self, since: Ends, rows: int, generator: np.random.Generator) -> tuple[Batch, float] | None:
        """Some tuples that arrived since then, and how many each stands for; None if rows are not numbered by arrival.

        Without looking at the others: rows of a store have numbers in the order of their arrival.
        """
        if not self._is_numbered:
            return None
        (store,) = self._layout.stores
        numbers, valid_from, valid_to, count = store.drawn_alive(since.get(id(store), 0), rows, generator)
        drawn = Batch(self._layout, valid_from, valid_to, numbers.reshape(1, -1))
        return self.selected(drawn), count / max(1, len(drawn))

    def selected(self, batch: Batch) -> Batch:
        """The tuples of the window that satisfy the selections between it and the join."""
        for selection in reversed(self._selections):
            whole = Batch(selection.layout, batch.valid_from, batch.valid_to, batch.references)
            batch = batch.filtered(truth(selection.predicate, whole.column, len(whole)))
        return batch


def _ends(inputs: int, made: Collection[int]) -> list[int]:
    """The inputs of a set that can be added last, because there are samples of all others together."""
    return [place for place in bits(inputs) if inputs ^ 1 << place in made]


def _share_alive(arrived: float, held: float) -> float:
    """The share of partners that are still there, of those that rows met which arrived at any time in the span."""
    return 1 - min(1.0, arrived / held) / 2 if held > 0 else 1.0


def _together(parts: list[_Sample], layout: Layout) -> _Sample:
    # Combined tuples of one set have their references in the same order, whichever join combined them.
    batches = [Batch(layout, p.tuples.valid_from, p.tuples.valid_to, p.tuples.references) for p in parts]
    return _Sample(
        concatenate(layout, batches),
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.groups for part in parts]),
        np.concatenate([part.roots for part in parts]),
        np.concatenate([part.new_parts for part in parts]),
    )
