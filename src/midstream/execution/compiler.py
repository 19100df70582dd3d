"""From a plan to running operators over the query's windows.

Only the columns that something reads are carried: each node is compiled for the fields that are needed of it. Where a
join sits on rows that are materialized, a store is put between them, so that the join can refer to them by number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial

from midstream.algebra.expressions import Expression, conjuncts
from midstream.algebra.plan import (
    Aggregate,
    Alias,
    Difference,
    Distinct,
    Field,
    Join,
    Leaf,
    MultiJoin,
    Plan,
    Project,
    Select,
    Union,
)
from midstream.engine.operators.aggregate import AggregateOperator
from midstream.engine.operators.demand import DemandOperator
from midstream.engine.operators.difference import DifferenceOperator
from midstream.engine.operators.distinct import DistinctOperator
from midstream.engine.operators.join import JoinOperator
from midstream.engine.operators.materialize import MaterializeOperator, materialized_key
from midstream.engine.operators.multi_join import MultiJoinOperator
from midstream.engine.operators.operator import Operator
from midstream.engine.operators.state_handle import StateKey
from midstream.engine.operators.stateless import ColumnProjection, ComputeOperator, SelectOperator, UnionOperator
from midstream.engine.operators.window_source import WindowOperator
from midstream.engine.state.row_store import RowStore
from midstream.engine.state.window_store import WindowStore
from midstream.execution.just_in_time import (
    Consumer,
    JustInTime,
    between,
    deciding_order,
    is_join,
    keeps_columns,
    waiting_input,
)

__all__ = ["Compiler"]

Needed = Set[Field]


@dataclass(frozen=True)
class Compiler:
    """Turns plans into operators. ``stores`` are materialized rows inherited from the previous plan, each used once."""

    windows: WindowStore
    chunk_rows: int
    stores: Mapping[StateKey, list[RowStore]] = field(default_factory=dict)
    just_in_time: JustInTime | None = None

    def compile(self, plan: Plan) -> Operator:
        """The operators that run the plan; the last one produces exactly the plan's schema."""
        return self._projected(plan, self._compile(plan, frozenset(plan.schema)))

    def _compile(self, plan: Plan, needed: Needed, consumers: Sequence[Consumer] = ()) -> Operator:
        """The operators that run the plan. ``consumers`` are the joins above that tuples may have to wait for."""
        operator = self._operator(plan, needed, consumers)
        # A selection that was applied before is no operator: its input's stands for both.
        if not operator.subplan:
            operator.kind, operator.subplan = plan.kind, plan.fingerprint
        return operator

    def _operator(self, plan: Plan, needed: Needed, consumers: Sequence[Consumer]) -> Operator:
        if isinstance(plan, Leaf):
            return WindowOperator(plan, self.windows.layout(plan))
        if isinstance(plan, Select):
            return self._select(plan, self._compile(plan.input, needed | _fields(plan.predicate), consumers))
        if isinstance(plan, Project):
            return self._project(plan, needed, consumers)
        if isinstance(plan, Alias):
            inner = dict(zip(plan.schema, plan.input.schema, strict=True))
            chosen = [field for field in plan.schema if field in needed]
            child = self._compile(plan.input, {inner[field] for field in chosen})
            positions = [child.layout.position(inner[field].column) for field in chosen]
            return ColumnProjection(plan.label, child, positions, chosen, prefix=f"{plan.name}.")
        if isinstance(plan, Join):
            return self._join(plan, needed | _fields(*plan.predicates), consumers)
        if isinstance(plan, MultiJoin):
            return self._multi_join(plan, needed | _fields(*plan.predicates), consumers)
        if isinstance(plan, Aggregate):
            arguments = [a.call.argument for a in plan.aggregates if a.call.argument is not None]
            read = _fields(*(key.expression for key in plan.keys), *arguments)
            return AggregateOperator(plan, self._compile(plan.input, read))
        # The others compare or align whole rows.
        sides = [self._projected(side, self._compile(side, frozenset(side.schema))) for side in plan.inputs]
        if isinstance(plan, Distinct):
            return DistinctOperator(plan.label, sides[0], plan.input.identity)
        if isinstance(plan, Difference):
            return DifferenceOperator(plan, sides[0], sides[1])
        assert isinstance(plan, Union), plan
        return UnionOperator(plan.label, sides[0], sides[1], plan.schema)

    def _select(self, plan: Select, child: Operator) -> Operator:
        """A selection, unless it has been applied before the rows entered their window."""
        below = plan.input
        while isinstance(below, Select):
            below = below.input
        if isinstance(below, Leaf) and set(conjuncts(plan.predicate)) <= self.windows.conditions(below):
            return child
        return SelectOperator(plan.label, child, plan.predicate)

    def _join_input(
        self, plan: Plan, needed: Needed, consumers: Sequence[Consumer], consumers_below: Sequence[Consumer]
    ) -> Operator:
        """An input of a join with consumers; for the joins below it there may be others, or more."""
        child = self._stored(plan, self._compile(plan, needed & frozenset(plan.schema), consumers_below))
        return child if self.just_in_time is None else self.just_in_time.suspending(plan, child, consumers)

    def _join(self, plan: Join, needed: Needed, consumers: Sequence[Consumer]) -> Operator:
        compiled = partial(self._join_input, needed=needed, consumers=consumers)
        waiting = None if self.just_in_time is None else waiting_input(plan)
        if self.just_in_time is None or waiting is None:
            left, right = (compiled(side, consumers_below=consumers) for side in plan.inputs)
            join = JoinOperator(plan, left, right, self.chunk_rows)
        else:
            demand = self.just_in_time.demand(compiled(plan.inputs[1 - waiting], consumers_below=consumers))
            above = consumers if self.just_in_time.propagate else ()
            below = [*above, Consumer.of(plan, waiting, demand)]
            waits = compiled(plan.inputs[waiting], consumers_below=below)
            left, right = (waits, demand) if waiting == 0 else (demand, waits)
            join = JoinOperator(plan, left, right, self.chunk_rows)
            join.consumer_input = 1 - waiting
            demand.side = join.sides[1 - waiting]
        join.has_consumers = bool(consumers)
        for place, side in enumerate(join.sides):
            side.is_partial = bool(consumers) or place == waiting
        return join

    def _multi_join(self, plan: MultiJoin, needed: Needed, consumers: Sequence[Consumer]) -> Operator:
        just_in_time = self.just_in_time
        compiled = partial(self._join_input, needed=needed, consumers=consumers)
        if just_in_time is None:
            parts = [compiled(part, consumers_below=()) for part in plan.parts]
            return MultiJoinOperator(plan, parts, self.chunk_rows)
        order = deciding_order(plan)
        waiting = [place for place in order[1:] if is_join(plan.parts[place])]
        above = consumers if just_in_time.propagate else ()
        children: dict[int, Operator] = {}
        demands: dict[int, DemandOperator] = {}
        for place in order:
            below = list(consumers)
            if place in waiting:
                own = [Consumer.of(between(plan, place, other), 0, demand) for other, demand in demands.items()]
                below = [*above, *own]
            children[place] = compiled(plan.parts[place], consumers_below=below)
            if waiting and place != order[-1]:
                children[place] = demands[place] = just_in_time.demand(children[place])
        parts = [children[place] for place in range(len(order))]
        partial_inputs = order if consumers else waiting
        options = just_in_time.visit_filter_options
        join = MultiJoinOperator(plan, parts, self.chunk_rows, options, partial_inputs)
        join.deciding_order = order
        join.has_consumers = bool(consumers)
        for place, demand in demands.items():
            demand.side = join.indexes_of(place)[0]
        return join

    def _project(self, plan: Project, needed: Needed, consumers: Sequence[Consumer]) -> Operator:
        items = [item for item in plan.items if item.field in needed]
        below = consumers if keeps_columns(plan) else ()
        child = self._compile(plan.input, _fields(*(item.expression for item in items)), below)
        if all(item.is_plain for item in items):
            positions = [child.layout.position(next(iter(item.expression.columns))) for item in items]
            return ColumnProjection(plan.label, child, positions, [item.field for item in items])
        return ComputeOperator(plan.label, child, items)

    def _stored(self, plan: Plan, operator: Operator) -> Operator:
        """The operator, with a store above it if its rows are not references already."""
        layout = operator.layout
        if layout.is_stored and layout.stores:
            return operator
        key = f"{plan.identity}: {', '.join(field.name for field in layout.fields)}"
        inherited = self.stores.get(materialized_key(key))
        store = inherited.pop(0) if inherited else None
        stored = MaterializeOperator(f"Materialize {operator.name}", operator, key, store)
        stored.subplan = plan.fingerprint
        return stored

    def _projected(self, plan: Plan, operator: Operator) -> Operator:
        """The operator with its fields in the order of the plan's schema."""
        if operator.layout.fields == plan.schema:
            return operator
        positions = [operator.layout.position(field.column) for field in plan.schema]
        projected = ColumnProjection("Project", operator, positions, plan.schema)
        projected.kind, projected.subplan = "project", plan.fingerprint
        return projected


def _fields(*expressions: Expression) -> frozenset[Field]:
    return frozenset(
        Field(column.relation, column.name, column.type) for expression in expressions for column in expression.columns
    )
