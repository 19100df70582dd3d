"""Names for plans, as ``--plan`` and ``midstream migrate`` take them.

A join order by its aliases, ``(o p) s``, where that says it all. Plans that differ in something else (a DISTINCT below
a join) have the number under which ``midstream explain --plans`` shows them: ``#3``.
"""

from __future__ import annotations

import re
from itertools import islice

from midstream.algebra.plan import Plan
from midstream.errors import BadPlan, PlanError
from midstream.planned_query import PlannedQuery
from midstream.planning.join_order.reorder_joins import join_graphs

__all__ = ["name_of", "order_of", "plan_named"]


def plan_named(query: PlannedQuery, name: str | None) -> Plan:
    """The plan that a name means; the default plan without a name."""
    matched = re.fullmatch(r"\s*#(\d{1,9})\s*", name or "")
    if matched is None:
        return query.plan(name)
    number = int(matched[1])
    found = next(islice(query.plans(), number - 1, None), None) if number else None
    if found is None:
        raise BadPlan(
            f"the query has no plan #{number}", hint="midstream explain --plans shows the plans and their numbers."
        )
    return found


def name_of(query: PlannedQuery, plan: Plan, number: int) -> str:
    """A name of this plan; ``number`` is its position among the query's plans, counted from 1."""
    order = order_of(plan)
    if order is not None:
        try:
            if query.plan(order) == plan:
                return order
        except PlanError:
            # A rule may create joins that the query's join orders do not have.
            pass
    return f"#{number}"


def order_of(plan: Plan) -> str | None:
    """The order of the plan's outermost joins; None if it has none."""
    graph = next(join_graphs(plan), None)
    return None if graph is None else str(graph.order)
