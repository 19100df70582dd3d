"""A query as text, and its plans: read, checked and planned, but not run.

What runs a query (``runtime``, ``spark``) needs no more of it. :class:`midstream.ContinuousQuery` adds how to start it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from midstream.algebra.bounded_state import check_bounded_state
from midstream.algebra.plan import Plan, Routing
from midstream.algebra.stream import Stream
from midstream.cql import parse
from midstream.errors import BadOption, BadPlan, BadStreamDeclaration
from midstream.planning import default_plan, equivalent_plans, is_derivable, plan_with_join_order
from midstream.planning.cost import (
    CostCoefficients,
    PlanSizes,
    Statistics,
    braces_plan,
    cheapest_plan,
    explain_cost,
    plan_cost,
)
from midstream.planning.shapes import query_shapes

__all__ = ["PlannedQuery"]

MOST_SORTED = 1_000
"""Plans that are sorted by cost; a query may have millions."""


class PlannedQuery:
    """A query over declared streams. Bad text raises a ``midstream.errors.QueryError`` that says where and why."""

    def __init__(self, text: str, streams: Sequence[Stream]) -> None:
        if isinstance(streams, Iterable) and not isinstance(streams, str | Mapping):
            streams = tuple(streams)
        if not (isinstance(streams, tuple) and all(isinstance(stream, Stream) for stream in streams)):
            raise BadStreamDeclaration(
                "the streams of a query are a list of Stream declarations",
                hint='Write streams=[Stream("orders", schema, event_time="ts"), ...].',
            )
        self.text = text
        self.streams = streams
        self._bound = parse(text, self.streams)
        check_bounded_state(self._bound)
        self._default: Plan | None = None
        self._shapes: tuple[Plan, ...] | None = None

    def explain(
        self,
        plan: str | Plan | None = None,
        *,
        statistics: Statistics | PlanSizes | None = None,
        coefficients: CostCoefficients | None = None,
    ) -> str:
        """A plan as a tree: the default one, or that of a join order.

        With the ``statistics`` of a running query (``run.statistics()``), each join shows its estimated and counted
        rows and its share of the cost; ``coefficients`` are the seconds per step.
        """
        chosen = self.chosen(plan)
        sizes, seconds = _sizes_of(statistics), _checked(coefficients)
        return chosen.explain() if sizes is None else explain_cost(chosen, sizes, seconds)

    def plan(
        self,
        join_order: str | None = None,
        *,
        routing: Routing | None = None,
        probe_orders: Mapping[str, str] | None = None,
    ) -> Plan:
        """The default plan, or the one with the join order given by aliases and parentheses: ``"(o p) s"``.

        Braces make a multi-way join, without intermediate results: ``"{o p s}"``. ``routing`` says who decides in which
        order a row visits its inputs: "fixed" (the plan), "eddy", "stairs" or "eager-stairs". For fixed routing,
        ``probe_orders`` may give the order for rows of some inputs: ``{"o": "s p"}``.
        """
        if join_order is not None:
            return self._own(plan_with_join_order(self._bound, join_order, routing, probe_orders))
        if routing is not None or probe_orders is not None:
            raise BadOption(
                "routing and probe orders are for a join order with braces", hint='Give one: plan("{a b c}", ...).'
            )
        if self._default is None:
            self._default = self._own(default_plan(self._bound))
        return self._default

    def plans(
        self, *, statistics: Statistics | PlanSizes | None = None, coefficients: CostCoefficients | None = None
    ) -> Iterator[Plan]:
        """Equivalent plans that the rules can reach, lazily; the first is the default plan.

        With the ``statistics`` of a running query (``run.statistics()``) the cheapest come first, and a multi-way join
        with its cheapest probe orders is among them. Of queries with very many plans, the cheapest is followed by the
        default plan and the next 1,000 in the order of their cost.
        """
        plans = (self._own(plan) for plan in equivalent_plans(self._bound))
        sizes, seconds = _sizes_of(statistics), _checked(coefficients)
        return plans if sizes is None else self._by_cost(plans, sizes, seconds)

    def shapes(self) -> tuple[Plan, ...]:
        """One plan of each shape: with distinct and partial aggregates above joins, or below them."""
        if self._shapes is None:
            self._shapes = tuple(self._own(plan) for plan in query_shapes(self._bound))
        return self._shapes

    def _by_cost(self, plans: Iterator[Plan], sizes: PlanSizes, coefficients: CostCoefficients) -> Iterator[Plan]:
        cheapest = self._own(cheapest_plan(self.plan(), sizes, coefficients, self.shapes()))
        first = dict.fromkeys([cheapest, self._own(braces_plan(self.plan(), sizes, coefficients))])
        known = [*first, *(plan for plan in islice(plans, MOST_SORTED) if plan not in first)]
        costs = [plan_cost(plan, sizes, coefficients) for plan in known]
        seconds = [math.inf if cost is None else float(cost.seconds.mean()) for cost in costs]
        yield from (known[place] for place in sorted(range(len(known)), key=lambda place: seconds[place]))
        yield from (plan for plan in plans if plan not in first)

    def chosen(self, plan: str | Plan | None) -> Plan:
        """The plan that a user means."""
        if plan is None or isinstance(plan, str):
            plan = self.plan(plan)
        self._check_own(plan)
        return plan

    def has(self, plan: Plan) -> bool:
        """Whether the plan is one of this query's by what it computes, whatever it is marked as."""
        return is_derivable(plan, self._bound)

    def _own(self, plan: Plan) -> Plan:
        plan.mark_as_derived_from(self._bound.identity)
        return plan

    def _check_own(self, plan: Plan) -> None:
        if not isinstance(plan, Plan) or plan.derived_from != self._bound.identity:
            raise BadPlan(
                "the plan is not one of this query's",
                detail=f"It produces {', '.join(f.name for f in plan.schema)}." if isinstance(plan, Plan) else None,
                hint="Take it from plan() or plans() of this query, or name a join order.",
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"


def _sizes_of(statistics: Statistics | PlanSizes | None) -> PlanSizes | None:
    """The sizes among statistics; None if nothing was measured yet."""
    if isinstance(statistics, Statistics):
        return statistics.sizes
    if statistics is not None and not isinstance(statistics, PlanSizes):
        raise BadOption(
            f"statistics cannot be {statistics!r}", hint="Give the statistics() of a run of this query that adapts."
        )
    return statistics


def _checked(coefficients: CostCoefficients | None) -> CostCoefficients:
    """The coefficients given, or else the defaults."""
    if coefficients is not None and not isinstance(coefficients, CostCoefficients):
        raise BadOption(f"coefficients must be CostCoefficients(...), not {coefficients!r}")
    return coefficients or CostCoefficients()
