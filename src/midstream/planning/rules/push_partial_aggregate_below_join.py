"""Rows are aggregated before a join multiplies them (eager aggregation, Yan and Larson 1995).

    γ b.g: COUNT(*), SUM(a.x)           γ b.g: SUM(a.partial_1), SUM(a.partial_2)
      │                                   │
      ⋈ a.k = b.k                 ⟶       ⋈ a.k = b.k
     ╱ ╲                                 ╱ ╲
    a   b          γ a.k: COUNT(*), SUM(a.x)  b
                                        │
                                        a

Intuitively: all rows of ``a`` that agree in what the joins and keys above read have the same partners, so they can
travel as one row that remembers their number and their sum. The smallest part of the join tree that has all arguments
is aggregated; for COUNT(*) alone, the largest input.

- COUNT becomes the SUM of partial counts; MIN and MAX are taken of partial ones, or of the rows of the other inputs,
  where repetition does not matter.
- SUM of integers is kept as decimal(38, 0) below and cast back on top: a partial sum may leave int64 although the
  whole does not. Decimals are summed as they are, if 10 digits are left for the number of rows.
- It does not apply to SUM and AVG of floats, nor to AVG at all: they are rounded once, and a detour over partial sums
  could round differently. Nor to DISTINCT aggregates, which partial results say nothing about.
- It does not apply where the arguments need the whole join, where the part is aggregated already, where a column to
  group by cannot be compared, or where an expression above tells apart values that count as equal
  (``planning/equal_values``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.types as pat

from midstream.algebra.aggregates import AggregateCall, aggregate_call
from midstream.algebra.expressions import Column, Expression
from midstream.algebra.functions import coerce
from midstream.algebra.plan import Aggregate, Item, NamedAggregate, Plan, Project
from midstream.algebra.types import is_comparable, is_integer
from midstream.planning.columns import plain_item
from midstream.planning.equal_values import separates_equal_values
from midstream.planning.join_order.join_graph import JoinGraph, is_join_block
from midstream.planning.join_order.join_order import JoinOrder
from midstream.planning.rewrite import rewrite
from midstream.planning.size_estimate import estimated_rows

__all__ = ["push_partial_aggregate_below_join"]

_ROWS_DIGITS = 10
"""Digits a partial sum may grow by: a window does not hold more than 10¹⁰ rows."""


def push_partial_aggregate_below_join(plan: Plan) -> Plan:
    """Aggregate an input of the joins below an aggregation first."""
    return rewrite(plan, _push)


def _push(node: Plan) -> Plan:
    if not isinstance(node, Aggregate) or not node.aggregates or not is_join_block(node.input):
        return node
    calls = [aggregate.call for aggregate in node.aggregates]
    if not all(_has_partial(call) for call in calls):
        return node
    graph = JoinGraph.of(node.input)
    part = _smallest_part(graph, calls) or _smallest_part(graph, [c for c in calls if c.function not in ("min", "max")])
    return node if part is None else _push_into(node, graph, part)


def _has_partial(call: AggregateCall) -> bool:
    if call.distinct or call.function == "avg":
        return False
    if call.function != "sum":
        return True
    assert call.argument is not None
    data_type = call.argument.type
    if pat.is_decimal(data_type):
        return bool(data_type.precision + _ROWS_DIGITS <= 38)
    return is_integer(data_type)


def _smallest_part(graph: JoinGraph, calls: list[AggregateCall]) -> JoinOrder | None:
    """The smallest part of the join tree with all arguments of the calls; None if that is the whole tree."""
    if not calls:
        return None
    read = {column.relation for call in calls if call.argument is not None for column in call.argument.columns}
    leaves = [place for place, base in enumerate(graph.bases) if any(field.relation in read for field in base.schema)]
    if not leaves:
        leaves = [max(range(len(graph.bases)), key=lambda place: estimated_rows(graph.leaves[place]))]
    mask = sum(1 << place for place in leaves)
    part = graph.order
    while part.sides is not None:
        inside = [side for side in part.sides if not mask & ~graph.mask_of(side)]
        if not inside:
            break
        part = inside[0]
    return None if part is graph.order else part


@dataclass
class _Partial:
    """The aggregation of a part of the joins, while it is put together."""

    relation: str
    taken: set[str]
    keys: dict[Expression, Item] = field(default_factory=dict)
    aggregates: dict[AggregateCall, NamedAggregate] = field(default_factory=dict)

    def fresh_name(self) -> str:
        number = 1
        while (name := f"partial_{number}") in self.taken:
            number += 1
        self.taken.add(name)
        return name

    def key(self, expression: Expression) -> Column:
        """The column that holds the value of an expression over the part."""
        if expression not in self.keys:
            if isinstance(expression, Column):
                self.keys[expression] = Item(expression.relation, expression.name, expression)
            else:
                self.keys[expression] = Item(self.relation, self.fresh_name(), expression)
        return self.keys[expression].field.column

    def aggregate(self, call: AggregateCall) -> Column:
        """The column that holds the partial result."""
        if call not in self.aggregates:
            self.aggregates[call] = NamedAggregate(self.fresh_name(), call)
        return Column(self.relation, self.aggregates[call].name, call.type)

    def over(self, plan: Plan) -> Plan:
        """The aggregation, its results under the part's alias so that they can be joined."""
        # The part may be a join itself, of which a part has the arguments of a part of the aggregates.
        aggregate = _push(Aggregate(plan, tuple(self.keys.values()), tuple(self.aggregates.values())))
        keys = [plain_item(key.field) for key in self.keys.values()]
        results = [Item(self.relation, a.name, a.field.column) for a in self.aggregates.values()]
        return Project(aggregate, (*keys, *results))


def _push_into(node: Aggregate, graph: JoinGraph, part: JoinOrder) -> Plan:
    mask = graph.mask_of(part)
    subplan = _build_part(graph, part)
    if _is_aggregated(subplan):
        return node
    inside = subplan.columns
    partial = _Partial(min(column.relation for column in inside), {column.name for column in inside})
    kept = [predicate for left, right in _joins_above(graph, mask) for predicate in graph.predicates(left, right)]
    keys = [key.expression for key in node.keys]
    kept += [key for key in keys if not key.columns <= inside]
    kept += [c.argument for a in node.aggregates if (c := a.call).argument and not c.argument.columns <= inside]
    if any(separates_equal_values(expression) for expression in kept):
        return node
    for column in sorted(frozenset().union(*(e.columns for e in kept)) & inside, key=lambda column: column.text):
        partial.key(column)
    final_keys = tuple(
        Item(key.relation, key.name, partial.key(e) if (e := key.expression).columns and e.columns <= inside else e)
        for key in node.keys
    )
    finals = tuple(NamedAggregate(a.name, _final(a.call, partial, inside)) for a in node.aggregates)
    if not all(is_comparable(key.field.type) for key in partial.keys.values()):
        return node
    joined = graph.build(graph.order, {mask: partial.over(subplan)})
    result = Aggregate(joined, final_keys, finals)
    return result if result.schema == node.schema else _cast_back(result, node)


def _final(call: AggregateCall, partial: _Partial, inside: frozenset[Column]) -> AggregateCall:
    """The aggregate over joined rows that stand for many: of partial results, unless repetition does not matter."""
    argument = call.argument
    if call.function in ("min", "max"):
        assert argument is not None
        return aggregate_call(call.function, partial.aggregate(call)) if argument.columns <= inside else call
    if call.function == "sum":
        assert argument is not None
        exact = coerce(argument, pa.decimal128(20, 0)) if is_integer(argument.type) else argument
        return aggregate_call("sum", partial.aggregate(aggregate_call("sum", exact)))
    return aggregate_call("sum", partial.aggregate(call))


def _cast_back(result: Aggregate, node: Aggregate) -> Plan:
    """The columns with the types they had: NULL where an exact sum does not fit, as for SUM itself."""
    pairs = zip(node.schema, result.schema, strict=True)
    return Project(result, tuple(Item(old.relation, old.name, coerce(new.column, old.type)) for old, new in pairs))


def _is_aggregated(plan: Plan) -> bool:
    while isinstance(plan, Project):
        plan = plan.input
    return isinstance(plan, Aggregate)


def _build_part(graph: JoinGraph, part: JoinOrder) -> Plan:
    """The plan of a part of the order, found in the plan of the whole."""
    plan, order, wanted = graph.build(graph.order), graph.order, graph.mask_of(part)
    while graph.mask_of(order) != wanted:
        assert order.sides is not None
        side = next(i for i, o in enumerate(order.sides) if not wanted & ~graph.mask_of(o))
        plan, order = plan.inputs[side], order.sides[side]
    return plan


def _joins_above(graph: JoinGraph, mask: int) -> Iterator[tuple[int, int]]:
    """The sides of each join above a part, the topmost first."""
    order = graph.order
    while graph.mask_of(order) != mask:
        assert order.sides is not None
        left, right = (graph.mask_of(side) for side in order.sides)
        yield left, right
        order = order.sides[0] if not mask & ~left else order.sides[1]
