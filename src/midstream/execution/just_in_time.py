"""Just-in-time processing: which inputs of a plan's joins demand, and which suspend (Yang and Papadias 2008).

A join of which one input is itself a join's output lets the tuples below that input wait until its other input, the
*consumer input*, has partners for them. The operators that do this are ``engine/operators/demand`` on the consumer
input and ``engine/operators/suspend`` on the inputs of all joins below the other one; why no result is lost is said
there. If both inputs are joins' outputs, the larger one waits. Feedback passes selections and projections of columns,
and ends at all other operators: a distinct or aggregate is a consumer or a producer like a stream.

           ⋈                   d is the consumer input of the upper join: a, b, (a b) and c wait for partners in d
         ┌─┴─┐                 c is the consumer input of the middle one: a and b wait for partners in c
         ⋈   d
       ┌─┴─┐
       ⋈   c                   No consumer input waits for a join below itself, so nobody waits for each other.
     ┌─┴─┐
     a   b

A multi-way join is a join for those above and below it. Its own inputs are in an order: those that are no joins'
outputs, then the others, smaller ones first. What is below a join's output waits for all inputs before it, never for
one after it. Among its inputs nothing waits: its visits leave tuples out instead (``engine/operators/visit_filter``).

      {(a b) (c d e) f}        a and b wait for partners in f; c, d and e, and what is combined of them, for partners
                               in f and in (a b)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from midstream.algebra.expressions import Expression
from midstream.algebra.identity import equality_sides
from midstream.algebra.plan import Join, MultiJoin, Plan, Project, Select
from midstream.engine.operators.demand import DemandOperator, KeyDemand
from midstream.engine.operators.join import JoinOperator
from midstream.engine.operators.join_side import equal_columns
from midstream.engine.operators.multi_join import MultiJoinOperator
from midstream.engine.operators.operator import Operator
from midstream.engine.operators.suspend import SuspendOperator
from midstream.engine.operators.visit_filter import VisitFilterOptions
from midstream.engine.state.demanded_keys import BloomDemandedKeys, DemandedKeys
from midstream.errors import BadOption
from midstream.planning.join_order.join_graph import JoinGraph

__all__ = [
    "Consumer",
    "JustInTime",
    "between",
    "deciding_order",
    "is_join",
    "keeps_columns",
    "partial_results_avoided",
    "waiting_input",
]


class JustInTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How partial results are made only when somebody can use them.

    Each choice changes the work, never a result:

    - ``detection``: "exact" remembers the keys of a consumer input, "bloom" remembers them in Bloom filters, which take
      a tenth of the memory and let some tuples pass that nobody needs.
    - ``type_two``: also suspend tuples that are combined already, where they enter the next join.
    - ``propagate``: let tuples wait for all consumers above them, not only for the next one.
    - ``least_share``: a consumer because of which a smaller share of an operator's tuples is kept back is not asked.
    - ``trial_rows``: after how many tuples an operator reviews whom it asks.
    """

    detection: Literal["exact", "bloom"] = "bloom"
    type_two: bool = True
    propagate: bool = True
    least_share: float = 0.1
    trial_rows: int = 1_000

    def __post_init__(self) -> None:
        if self.detection not in ("exact", "bloom"):
            raise BadOption(f"detection cannot be {self.detection!r}", detail='There are "exact" and "bloom".')
        for name in ("type_two", "propagate"):
            if not isinstance(getattr(self, name), bool):
                raise BadOption(f"{name} must be True or False, not {getattr(self, name)!r}")
        if isinstance(self.least_share, bool) or not isinstance(self.least_share, int | float):
            raise BadOption(f"least_share must be a number, not {self.least_share!r}")
        if not 0 <= self.least_share <= 1:
            raise BadOption(f"least_share must be between 0 and 1, not {self.least_share!r}")
        if isinstance(self.trial_rows, bool) or not isinstance(self.trial_rows, int) or self.trial_rows < 1:
            raise BadOption(f"trial_rows must be a positive number of rows, not {self.trial_rows!r}")

    @classmethod
    def chosen(cls, value: bool | JustInTime | None) -> JustInTime | None:
        """What a user gives: True for the defaults, False or None for no just-in-time processing."""
        if value is None or value is False:
            return None
        if value is True:
            return cls()
        if isinstance(value, cls):
            return value
        raise BadOption(f"just_in_time cannot be {value!r}", hint="Give True, False or JustInTime(...).")

    def as_json(self) -> dict[str, Any]:
        return msgspec.structs.asdict(self)

    @property
    def visit_filter_options(self) -> VisitFilterOptions:
        """How a multi-way join keeps tuples from visits of which nothing can come."""
        return VisitFilterOptions(self._make_demanded_keys, self.type_two, self.least_share, self.trial_rows)

    @property
    def _make_demanded_keys(self) -> Callable[[], DemandedKeys | BloomDemandedKeys]:
        return BloomDemandedKeys if self.detection == "bloom" else DemandedKeys

    def demand(self, child: Operator) -> DemandOperator:
        """The operator that notes what a consumer input demands."""
        operator = DemandOperator(child, self._make_demanded_keys)
        operator.subplan = child.subplan
        return operator

    def suspending(self, plan: Plan, child: Operator, consumers: Sequence[Consumer]) -> Operator:
        """A join input whose tuples wait for the consumers above."""
        if not consumers or (is_join(plan) and not self.type_two):
            return child
        demands = [consumer.demanded_of(child) for consumer in reversed(consumers)]
        operator = SuspendOperator(child, demands, self.least_share, self.trial_rows)
        operator.subplan = child.subplan
        return operator


@dataclass(frozen=True)
class Consumer:
    """A join above, as a producer below its waiting input sees it."""

    operator: DemandOperator
    keys: tuple[tuple[frozenset[Expression], Expression], ...]
    """For each equality of the join: the names of its key in the waiting input, and its key in the consumer input."""

    @classmethod
    def of(cls, plan: Join, waiting: int, operator: DemandOperator) -> Consumer:
        """The consumer that a join is for its waiting input."""
        return cls(operator, tuple(_equalities(plan, waiting)))

    def demanded_of(self, child: Operator) -> tuple[KeyDemand[DemandOperator], list[Expression]]:
        """What the join demands by the keys that the operator's tuples have; and these keys."""
        there = {field.column for field in child.layout.fields}
        own: list[Expression] = []
        partners: list[Expression] = []
        for names, partner in self.keys:
            known = [name for name in names if name.columns <= there]
            if known:
                own.append(min(known, key=lambda name: name.text))
                partners.append(partner)
        return self.operator.by_key(partners), own


def is_join(plan: Plan) -> bool:
    """Whether the plan's tuples are a join's output."""
    return isinstance(_below(plan), Join | MultiJoin)


def deciding_order(plan: Join | MultiJoin) -> list[int]:
    """The inputs of a join by their places, in the order in which they decide: of joins' outputs, the largest is last.

    What is below a join's output waits for partners in the inputs before it.
    """
    sizes = [len(list(side.leaves())) if is_join(side) else 0 for side in plan.inputs]
    return sorted(range(len(sizes)), key=lambda place: (sizes[place], -place))


def waiting_input(plan: Join) -> int | None:
    """Which input's tuples wait for partners in the other one: a join's output, of two the larger; None if none is."""
    last = deciding_order(plan)[-1]
    return last if is_join(plan.inputs[last]) else None


def between(plan: MultiJoin, waiting: int, other: int) -> Join:
    """Two inputs of a multi-way join as a join of their own: what one of them demands of the other."""
    graph = JoinGraph.of_parts(plan.parts, plan.predicates)
    predicates = graph.predicates(1 << waiting, 1 << other)
    return Join(plan.parts[waiting], plan.parts[other], tuple(predicates))


def keeps_columns(plan: Project) -> bool:
    """Whether what is demanded of the projection's output can be demanded of its input: the columns are the same."""
    return all(item.expression == item.field.column for item in plan.items)


def partial_results_avoided(operators: Iterable[Operator]) -> dict[int, int]:
    """At least how many partial results joins did not make because tuples were suspended, by the join's id; estimated.

    A suspended tuple is taken to have as many partners as those that came out. So a join that lets a share of an
    input's tuples through makes about that share of its results. If tuples of both inputs are suspended, the smaller
    share counts: partners are often suspended for the same reason, because their keys are equal. If an input is
    another join's output, that would have been larger, too. Where nothing came out, nothing is known or counted.
    The operators are given with inputs first.
    """
    avoided: dict[int, int] = {}
    expected: dict[int, float] = {}
    for operator in operators:
        if isinstance(operator, SuspendOperator):
            expected[id(operator)] = expected[id(operator.inputs[0])]
            continue
        # What is above all consumers comes out as it would anyway.
        join = operator if isinstance(operator, JoinOperator | MultiJoinOperator) else None
        inputs = operator.inputs if join is None or join.has_consumers else ()
        more = [expected[id(child)] / child.counters.rows_out for child in inputs if child.counters.rows_out]
        rows = operator.counters.rows_out
        expected[id(operator)] = rows * max([1.0, *more])
        if join is not None and join.has_consumers:
            # A multi-way join counts what its visits avoided.
            avoided[id(operator)] = operator.counters.avoided + round(expected[id(operator)] - rows)
    return avoided


def _below(plan: Plan) -> Plan:
    """The first operator that is more than a selection or a choice of columns."""
    while isinstance(plan, Select) or (isinstance(plan, Project) and keeps_columns(plan)):
        plan = plan.input
    return plan


def _equalities(plan: Join, waiting: int) -> Iterator[tuple[frozenset[Expression], Expression]]:
    waits, consumer = plan.inputs[waiting], plan.inputs[1 - waiting]
    own, others = (frozenset(field.relation for field in side.schema) for side in (waits, consumer))
    for predicate in plan.predicates:
        sides = equality_sides(predicate)
        if sides is None:
            continue
        for key, partner in (sides, sides[::-1]):
            if key.relations <= own and partner.relations <= others:
                yield equal_columns(key, waits)[1], partner
                break
