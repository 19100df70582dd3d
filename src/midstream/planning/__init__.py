"""Equivalent plans, and which of them to run: rewrite rules, join orders, the default plan."""

from midstream.planning.default_plan import default_plan
from midstream.planning.derivability import is_derivable
from midstream.planning.equivalents import equivalent_plans
from midstream.planning.join_order.join_order import JoinOrder, parse_join_order
from midstream.planning.join_order.plan_with_join_order import plan_with_join_order

__all__ = ["JoinOrder", "default_plan", "equivalent_plans", "is_derivable", "parse_join_order", "plan_with_join_order"]
