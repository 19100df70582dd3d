"""STAIRs: an eddy with intermediate state, as an executor that changes its own join order.

Deshpande and Hellerstein 2004 replace each join of an eddy by two STAIRs, which hold its inputs' tuples, intermediate
results among them. When the eddy prefers another order, *demote* reduces intermediate results to what they were made
of, and *promote* makes those that the new order keeps. Aly et al. 2014 (section 4.6) observe that this is moving state
within an eddy, and make it lazy: demoted states are dropped, and a state of the new order is completed when a tuple
asks for it, as JISC does.

So this executor runs a tree of joins, and after each push asks itself whether another order would be better. Then
states are matched as in a migration: eagerly ("eager-stairs", as published) or lazily ("stairs"). All rows take the
same way until it changes; a push is the group of rows for which the eddy decides.

The decision. Each join of the tree tells how many tuples it returns per tuple that comes up from below: the *fan-out*
of the part it adds, with a memory that decays. A left-deep order costs the number of intermediate tuples of a push: for
each tuple of its first part, f1 + f1 f2 + f1 f2 f3 and so on. From each part on, the next part is the one with the
least fan-out of those that a condition links; the best of these orders is taken if it costs less than 0.8 times what
the current one does. What the change itself costs is ignored, as in the paper; adaptation (``docs/adaptation.md``) is
for those who want that weighed. While another plan runs beside this one, the order stays: its states do not reflect all
rows then.

Nothing of this need be stored: a resumed executor begins with the first part and what is linked with it, in the order
of the text, and with no memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple

from midstream.algebra.plan import MultiJoin, Plan
from midstream.engine.batch import Batch
from midstream.engine.operators.final_operator import FinalOperator
from midstream.engine.operators.join import JoinOperator
from midstream.engine.operators.routing import FanOuts
from midstream.engine.state.window_store import InputBatches, WindowStore
from midstream.execution.just_in_time import JustInTime
from midstream.execution.plan_box import PlanBox
from midstream.execution.plan_executor import CHUNK_ROWS, PlanExecutor, RowStores
from midstream.migration.record import MigrationRecord
from midstream.migration.state_matching import Completion, final_places, reordered
from midstream.planning.join_order.join_graph import JoinGraph
from midstream.planning.join_order.probe_orders import default_probe_order
from midstream.planning.join_order.stairs_order import (
    STAIRS,
    JoinKey,
    StairsOrders,
    has_stairs,
    joins_by_key,
    without_stairs,
)

__all__ = ["StairsBox", "executor_of"]


def executor_of(
    plan: Plan,
    windows: WindowStore,
    chunk_rows: int = CHUNK_ROWS,
    stores: RowStores | None = None,
    just_in_time: JustInTime | None = None,
) -> PlanExecutor:
    """The executor that runs a plan: a tree of operators, which STAIRs change while it runs."""
    kind = StairsBox if has_stairs(plan) else PlanBox
    return kind(plan, windows, chunk_rows, stores, just_in_time)


class _Traffic(NamedTuple):
    """What a join got from its left and its right input, and what it produced."""

    left: int
    right: int
    produced: int

    @staticmethod
    def of(join: JoinOperator) -> _Traffic:
        """All that an operator has counted."""
        left, right = (child.counters.rows_out for child in join.inputs)
        return _Traffic(left, right, join.counters.rows_out)

    def since(self, before: _Traffic) -> _Traffic:
        """What has come since then."""
        return _Traffic(*(now - then for now, then in zip(self, before, strict=True)))


class _Push(NamedTuple):
    """What a push brought to a join, and what the join made of new tuples of its left and of its right input."""

    left: int
    right: int
    made: tuple[float, float] | None
    """None while a state of the join is incomplete: how many tuples belong there is not known."""

    @staticmethod
    def of(join: JoinOperator, traffic: _Traffic) -> _Push:
        """Divide what was produced: a join counts all of it.

        New tuples of either side meet what the other side holds, so their shares follow from both. Otherwise a join
        would seem to have fewer partners for each tuple of its left input, the more of them there are.
        """
        left, right = join.sides
        if left.incomplete is not None or right.incomplete is not None:
            return _Push(traffic.left, traffic.right, None)
        by_left, by_right = traffic.left * right.state_rows, traffic.right * left.state_rows
        share = by_left / (by_left + by_right) if by_left + by_right else 0.0
        return _Push(traffic.left, traffic.right, (traffic.produced * share, traffic.produced * (1 - share)))


class _StairsJoin:
    """A multi-way join that STAIRs route: its parts, their current order, and what is known of their fan-outs."""

    def __init__(self, key: JoinKey, plan: MultiJoin) -> None:
        self.key = key
        self.graph = JoinGraph.of_parts(plan.parts, plan.predicates)
        self.order = (0, *default_probe_order(self.graph, 0))
        self._parts = [frozenset(field.relation for field in part.schema) for part in plan.parts]
        self._fan_outs = FanOuts(len(plan.parts))
        self._arrivals = [0.0] * len(plan.parts)
        """By part: how many tuples of it arrive in a push, with a memory that decays."""

    def observe(self, pushes: Mapping[JoinKey, _Push]) -> None:
        """Learn from what each join got and produced in a push."""
        first, *others = self.order
        block, below = self.key[0], self._parts[first]
        for position, place in enumerate(others):
            below = below | self._parts[place]
            push = pushes.get((block, below))
            if push is None:
                continue
            self._note_arrivals(place, push.right)
            if position == 0:
                self._note_arrivals(first, push.left)
            if push.made is None:
                continue
            from_left, from_right = push.made
            if position == 0 and push.right:
                self._fan_outs.note(first, push.right, from_right)
            if push.left:
                self._fan_outs.note(place, push.left, from_left)

    def better_order(self, share: float) -> tuple[int, ...] | None:
        """An order that costs less than this share of what the current one does, if there is one."""
        best = min((self._greedy(first) for first in range(len(self._parts))), key=self._cost)
        return best if self._cost(best) < share * self._cost(self.order) else None

    def _note_arrivals(self, place: int, rows: int) -> None:
        self._arrivals[place] = (self._arrivals[place] + rows) / 2

    def _greedy(self, first: int) -> tuple[int, ...]:
        order = [first]
        visited = 1 << first
        while len(order) < len(self._parts):
            left = {place: 1 << place for place in range(len(self._parts)) if place not in order}
            order.append(min(self.graph.visitable(visited, left), key=self._fan_outs.of))
            visited |= 1 << order[-1]
        return tuple(order)

    def _cost(self, order: Sequence[int]) -> float:
        """How many intermediate tuples a push makes."""
        fan_outs = [self._fan_outs.of(place) for place in order[1:]]
        # The last join gives the results, which are the same in every order.
        per_tuple = math.fsum(math.prod(fan_outs[: count + 1]) for count in range(len(fan_outs) - 1))
        return self._arrivals[order[0]] * per_tuple


class StairsBox(PlanBox):
    """A plan with braces by STAIRs, run as a tree that changes between pushes."""

    least_rows: ClassVar[int] = 1_000
    """Rows that must have arrived since the last change was tried: fewer say nothing about the next ones."""
    largest_share: ClassVar[float] = 0.8
    """Another order must cost less than this share of what the current one does."""

    def __init__(
        self,
        plan: Plan,
        windows: WindowStore,
        chunk_rows: int = CHUNK_ROWS,
        stores: RowStores | None = None,
        just_in_time: JustInTime | None = None,
    ) -> None:
        found = {
            key: join for key, join in joins_by_key(plan) if isinstance(join, MultiJoin) and join.routing in STAIRS
        }
        self._routed = [_StairsJoin(key, join) for key, join in found.items()]
        is_eager = any(join.routing == "eager-stairs" for join in found.values())
        self._completion = Completion.EAGER if is_eager else Completion.LAZY
        self._rows = 0
        self.changes = 0
        """How often the order was changed."""
        super().__init__(without_stairs(plan, self._orders()), windows, chunk_rows, stores, just_in_time)
        self.tree = self.plan
        """The plan that is run at the moment."""
        self.plan = plan
        self._arrange_final_operators()
        self._follow_joins()

    def empty(self) -> StairsBox:
        return StairsBox(self.plan, self.windows, self.chunk_rows, just_in_time=self.just_in_time)

    def push(self, arrived: InputBatches, watermark: int) -> Iterator[Batch]:
        yield from super().push(arrived, watermark)
        self._observe()
        self._rows += sum(len(batch) for batch in arrived.values())
        if self.runs_alone and self._rows >= self.least_rows:
            self._reconsider()

    def reset_counters(self) -> None:
        super().reset_counters()
        self._follow_joins()

    def _orders(self) -> StairsOrders:
        return {join.key: join.order for join in self._routed}

    def _arrange_final_operators(self) -> None:
        """In the order of the plan, which is all that others know: the tree may have them in another one."""
        by_place: dict[tuple[object, ...], list[FinalOperator]] = {}
        for place, operator in zip(final_places(self.tree), self.final_operators, strict=True):
            by_place.setdefault(place, []).append(operator)
        self.final_operators = [by_place[place].pop(0) for place in final_places(self.plan)]

    def _follow_joins(self) -> None:
        operators = {join.subplan: join for join in self.joins}
        keys = {key: operators.get(join.fingerprint) for key, join in joins_by_key(self.tree)}
        self._operators_by_key = {key: operator for key, operator in keys.items() if operator is not None}
        self._counted = self._traffic()

    def _traffic(self) -> dict[JoinKey, _Traffic]:
        return {key: _Traffic.of(operator) for key, operator in self._operators_by_key.items()}

    def _observe(self) -> None:
        before, self._counted = self._counted, self._traffic()
        pushes = {
            key: _Push.of(operator, self._counted[key].since(before[key]))
            for key, operator in self._operators_by_key.items()
        }
        for join in self._routed:
            join.observe(pushes)

    def _reconsider(self) -> None:
        """Change the order of joins for which another one is clearly better."""
        preferred = {join.key: join.better_order(self.largest_share) for join in self._routed}
        if not any(preferred.values()):
            return
        orders = {join.key: preferred[join.key] or join.order for join in self._routed}
        # If the change is not possible now, it is tried again after as many rows as after a change.
        self._rows = 0
        record = MigrationRecord(self._completion.value, {}, self.plan, self.plan, self.watermark)
        new = reordered(
            self,
            lambda stores: PlanBox(
                without_stairs(self.plan, orders), self.windows, self.chunk_rows, stores, self.just_in_time
            ),
            self._completion,
            record,
        )
        if new is not None:
            self._become(new, orders)

    def _become(self, box: PlanExecutor, orders: StairsOrders) -> None:
        """Continue with the operators of another box."""
        own = {name: vars(self)[name] for name in ("plan", "runs_alone", "_routed", "_completion", "changes", "_rows")}
        vars(self).update(vars(box))
        self.tree = self.plan
        vars(self).update(own)
        for join in self._routed:
            join.order = orders[join.key]
        self.changes += 1
        self._arrange_final_operators()
        self._follow_joins()
