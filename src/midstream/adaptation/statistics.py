"""Statistics of a running query: what arrived lately, and the sizes of its joins, of the plan in force and of others.

``QueryStatistics`` is told of every push. It marks how far the inputs are, so that a measurement has a *span*: the
latest pushes that brought at least an eighth of the rows inside their windows, or fewer where something has just
changed. Nothing is stored for it: after a restart or a migration the windows are there, and the next pushes make a new
span.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from midstream.adaptation.reductions import ReductionSampler, reducers
from midstream.adaptation.sampling import BlockSampler
from midstream.algebra.plan import Join, MultiJoin, Plan
from midstream.engine.operators.join import JoinOperator
from midstream.engine.operators.multi_join import MultiJoinOperator
from midstream.execution.executor import Executor
from midstream.execution.plan_executor import PlanExecutor
from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.sizes import PlanSizes, Reduction
from midstream.planning.join_order.join_graph import JoinGraph, is_join_block

__all__ = ["JoinWork", "QueryStatistics", "join_blocks"]

MOST_MARKS = 64
SPAN_SHARE = 1 / 8
"""Which share of the rows inside their windows a span has, if it is made of several pushes."""


class JoinWork(NamedTuple):
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

    def since(self, before: JoinWork) -> JoinWork:
        return JoinWork(*(now - then for now, then in zip(self, before, strict=True)))


@dataclass(frozen=True)
class _Mark:
    """How far a query was after a push: the stores of its joins' inputs, and what the joins had produced."""

    ends: dict[int, int]
    joins: dict[frozenset[str], JoinWork]
    """By the aliases below a join."""
    blocks: list[int]
    """How many tuples each block has produced: several may have the same aliases."""


class QueryStatistics:
    """Measures the joins of the plan in force."""

    def __init__(self) -> None:
        self._box: PlanExecutor | None = None
        self._samplers: list[BlockSampler] = []
        self._reductions: list[ReductionSampler] = []
        self._joins: dict[frozenset[str], JoinOperator | MultiJoinOperator] = {}
        self._marks: deque[_Mark] = deque(maxlen=MOST_MARKS)

    def follow(self, executor: Executor) -> bool:
        """Note that a push is done; whether the plan in force can be measured. It cannot while a migration runs."""
        boxes = list(executor.boxes())
        if len(boxes) > 1 or executor.is_migrating:
            self._box = None
            return False
        if boxes[0] is not self._box:
            self._box = boxes[0]
            self._samplers = [BlockSampler(block, self._box) for block in join_blocks(self._box.plan)]
            self._reductions = [ReductionSampler(one, self._box) for one in reducers(self._box.plan)]
            self._joins = _joins_by_aliases(self._box)
            self._marks.clear()
        samplers: list[BlockSampler | ReductionSampler] = [*self._samplers, *self._reductions]
        ends = {store: end for sampler in samplers for store, end in sampler.ends().items()}
        self._marks.append(_Mark(ends, self._counted(), [sampler.rows_produced for sampler in self._samplers]))
        return bool(self._samplers) and len(self._marks) > 1 and all(s.is_measurable for s in self._samplers)

    def measure(
        self,
        sample_rows: int,
        generator: np.random.Generator,
        least_span: int | None = None,
        is_steady: bool = False,
    ) -> PlanSizes:
        """The sizes over the span that ends now, or over as few of the latest pushes as brought ``least_span`` rows.

        While streams are steady, what joins hold follows from their increments, and need not be measured.
        """
        since = self._span(SPAN_SHARE * self.held_rows() if least_span is None else least_span)
        counted = {names: work.produced - since.joins[names].produced for names, work in self._counted().items()}
        reductions = {one.fingerprint: one.measure(since.ends, sample_rows, generator) for one in self._reductions}
        blocks, silent, arrived = {}, [], 0.0
        for sampler, produced_before in zip(self._samplers, since.blocks, strict=True):
            new = sampler.new_rows(since.ends)
            arrived += sum(
                _rows_entered(rows, reductions.get(leaf)) for rows, leaf in zip(new, sampler.leaves, strict=True)
            )
            silent += [name for name, rows in zip(sampler.graph.names, new, strict=True) if rows == 0]
            produced = sampler.rows_produced - produced_before
            blocks[sampler.identity] = sampler.measure(since.ends, sample_rows, generator, produced, is_steady)
        return PlanSizes(round(arrived), blocks, counted, silent, reductions)

    def held_rows(self) -> int:
        """How many rows of the joins' inputs are inside their windows."""
        return sum(sampler.held_rows() for sampler in self._samplers)

    def latest_push(self) -> tuple[int, dict[frozenset[str], JoinWork]]:
        """How many rows the latest push brought, and by join, what it did."""
        before, now = self._marks[-2], self._marks[-1]
        rows = sum(rows for sampler in self._samplers for rows in sampler.new_rows(before.ends))
        return rows, {names: work.since(before.joins[names]) for names, work in now.joins.items()}

    def measuring_seconds(self, coefficients: CostCoefficients) -> float:
        """What a measurement takes by the cost model."""
        steps = sum(sampler.steps for sampler in self._samplers)
        steps += 2 * len(self._reductions)
        rows = sum(sampler.rows_to_read() for sampler in self._samplers)
        rows += sum(sampler.rows_to_read() for sampler in self._reductions)
        return 2 * coefficients.operator * steps + coefficients.tuple_in / 2 * rows

    def _counted(self) -> dict[frozenset[str], JoinWork]:
        return {names: _work(join) for names, join in self._joins.items()}

    def _span(self, wanted: float) -> _Mark:
        """The latest mark since which so many rows have come, and some of every input."""
        for mark in list(self._marks)[-2::-1]:
            new = [rows for sampler in self._samplers for rows in sampler.new_rows(mark.ends)]
            if sum(new) >= wanted and all(new):
                return mark
        return self._marks[0]


def _rows_entered(rows: int, reduction: Reduction | None) -> float:
    """How many rows arrived of an input that produced so many for the joins."""
    return float(rows) if reduction is None else rows / max(1e-9, float(reduction.passing.mean()))


def join_blocks(plan: Plan) -> list[Plan]:
    """The topmost nodes of a plan's blocks of joins."""
    found: list[Plan] = []
    pending = [plan]
    while pending:
        node = pending.pop()
        if is_join_block(node):
            found.append(node)
            pending += JoinGraph.of(node).leaves
        else:
            pending += node.inputs
    return found


def _work(join: JoinOperator | MultiJoinOperator) -> JoinWork:
    counters = join.counters
    entered, produced = counters.rows_in, counters.rows_out
    if isinstance(join, JoinOperator):
        return JoinWork(entered, entered, 0, produced, produced)
    indexes = sum(len(join.indexes_of(place)) for place in range(len(join.inputs)))
    inserted = entered * indexes // len(join.inputs)
    # A tuple on its way is looked up once for every input that it has yet to visit.
    return JoinWork(entered, inserted, counters.probes, max(produced, counters.probes - entered + produced), produced)


def _joins_by_aliases(box: PlanExecutor) -> dict[frozenset[str], JoinOperator | MultiJoinOperator]:
    """The joins of a plan by the inputs of their block that they combine."""
    operators = {o.subplan: o for o in box.operators if isinstance(o, JoinOperator | MultiJoinOperator)}
    joins = [node for node in box.plan.walk() if isinstance(node, Join | MultiJoin) and node.fingerprint in operators]
    return {frozenset(JoinGraph.of(node).names): operators[node.fingerprint] for node in joins}
