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
of the part it adds, with a memory that decays. A left-deep order costs, for each tuple of its first part, the number
of intermediate tuples: f1 + f1 f2 + f1 f2 f3 and so on. From each part on, the next part is the one with the least
fan-out of those that a condition links; the best of these orders is taken if it costs less than 0.8 times what the
current one does. What the change itself costs is ignored, as in the paper; adaptation (``docs/adaptation.md``) is for
those who want that weighed. While another plan runs beside this one, the order stays: its states do not reflect all
rows then.

Nothing of this need be stored: a resumed executor begins with the order of the text, and with no memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from midstream.algebra.plan import Join, MultiJoin, Plan
from midstream.engine.batch import Batch
from midstream.engine.operators.join import JoinOperator
from midstream.engine.operators.routing import EddyRouter
from midstream.engine.state.window_store import InputBatches, WindowStore
from midstream.execution.just_in_time import JustInTime
from midstream.execution.plan_box import PlanBox
from midstream.execution.plan_executor import CHUNK_ROWS, PlanExecutor, RowStores
from midstream.migration.record import MigrationRecord
from midstream.migration.state_matching import Completion, reordered
from midstream.planning.join_order.join_graph import JoinGraph
from midstream.planning.join_order.probe_orders import default_probe_order
from midstream.planning.join_order.stairs_order import STAIRS, StairsOrders, has_stairs, without_stairs

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


class _Braces:
    """One multi-way join by STAIRs: its parts, their current order, and what is known of their fan-outs."""

    def __init__(self, plan: MultiJoin) -> None:
        self.graph = JoinGraph.of_parts(plan.parts, plan.predicates)
        self.aliases = frozenset(field.relation for part in plan.parts for field in part.schema)
        self.order = (0, *default_probe_order(self.graph, 0))
        self._parts = [frozenset(field.relation for field in part.schema) for part in plan.parts]
        self._eddy = EddyRouter(len(plan.parts))

    def observe(self, joins: Mapping[frozenset[str], tuple[int, int]]) -> None:
        """Learn from what each join got and produced in a push, by the aliases below it."""
        first, *others = self.order
        below, entered = self._parts[first], 0
        for position, place in enumerate(others):
            below = below | self._parts[place]
            rows_in, rows_out = joins.get(below, (0, 0))
            # The lowest join is symmetric: half of what enters it comes up from either part.
            entered = rows_in // 2 if position == 0 else entered
            if entered:
                self._eddy.note(place, entered, rows_out)
                if position == 0:
                    self._eddy.note(first, entered, rows_out)
            entered = rows_out

    def better_order(self, share: float) -> tuple[int, ...] | None:
        """An order that costs less than this share of what the current one does, if there is one."""
        best = min((self._greedy(first) for first in range(len(self._parts))), key=self._cost)
        return best if self._cost(best) < share * self._cost(self.order) else None

    def _greedy(self, first: int) -> tuple[int, ...]:
        order = [first]
        visited = 1 << first
        while len(order) < len(self._parts):
            left = [place for place in range(len(self._parts)) if place not in order]
            linked = [place for place in left if self.graph.are_linked(visited, 1 << place)]
            order.append(min(linked or left, key=self._eddy.fan_out))
            visited |= 1 << order[-1]
        return tuple(order)

    def _cost(self, order: Sequence[int]) -> float:
        fan_outs = [self._eddy.fan_out(place) for place in order[1:]]
        # The last join gives the results, which are the same in every order.
        return math.fsum(math.prod(fan_outs[: count + 1]) for count in range(len(fan_outs) - 1))


class StairsBox(PlanBox):
    """A plan with braces by STAIRs, run as a tree that changes between pushes."""

    least_rows: ClassVar[int] = 1_000
    """Rows that must have arrived since the last change: fewer say nothing about the next ones."""
    largest_share: ClassVar[float] = 0.8
    """Another order must cost less than this share of what the current one does."""

    def __init__(
        self,
        plan: Plan,
        windows: WindowStore,
        chunk_rows: int = CHUNK_ROWS,
        stores: RowStores | None = None,
        just_in_time: JustInTime | None = None,
        orders: StairsOrders | None = None,
    ) -> None:
        found = [node for node in plan.walk() if isinstance(node, MultiJoin) and node.routing in STAIRS]
        self._braces = [_Braces(node) for node in found]
        for braces in self._braces:
            braces.order = (orders or {}).get(braces.aliases, braces.order)
        self._completion = (
            Completion.EAGER if any(node.routing == "eager-stairs" for node in found) else Completion.LAZY
        )
        self._rows = 0
        self.changes = 0
        """How often the order was changed."""
        super().__init__(without_stairs(plan, self._orders()), windows, chunk_rows, stores, just_in_time)
        self.tree = self.plan
        """The plan that is run at the moment."""
        self.plan = plan
        self._follow_joins()

    def empty(self) -> StairsBox:
        return StairsBox(
            self.plan, self.windows, self.chunk_rows, just_in_time=self.just_in_time, orders=self._orders()
        )

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
        return {braces.aliases: braces.order for braces in self._braces}

    def _follow_joins(self) -> None:
        nodes = {node.fingerprint: node for node in self.tree.walk() if isinstance(node, Join)}
        self._joins_by_aliases = {
            frozenset(field.relation for field in nodes[operator.subplan].schema): operator
            for operator in self.operators
            if isinstance(operator, JoinOperator) and operator.subplan in nodes
        }
        self._counted = self._counts()

    def _counts(self) -> dict[frozenset[str], tuple[int, int]]:
        return {names: (j.counters.rows_in, j.counters.rows_out) for names, j in self._joins_by_aliases.items()}

    def _observe(self) -> None:
        before, self._counted = self._counted, self._counts()
        pushed = {names: (now[0] - before[names][0], now[1] - before[names][1]) for names, now in self._counted.items()}
        for braces in self._braces:
            braces.observe(pushed)

    def _reconsider(self) -> None:
        """Change the order of braces for which another one is clearly better."""
        preferred = {braces.aliases: braces.better_order(self.largest_share) for braces in self._braces}
        if not any(preferred.values()):
            return
        orders = {braces.aliases: preferred[braces.aliases] or braces.order for braces in self._braces}
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
        own = {name: vars(self)[name] for name in ("plan", "runs_alone", "_braces", "_completion", "changes")}
        vars(self).update(vars(box))
        self.tree = self.plan
        vars(self).update(own)
        for braces in self._braces:
            braces.order = orders[braces.aliases]
        self._rows = 0
        self.changes += 1
        self._follow_joins()
