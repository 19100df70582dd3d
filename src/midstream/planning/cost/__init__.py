"""What plans cost: sizes of their intermediate results, seconds per step, and the search for the cheapest plan."""

from midstream.planning.cost.cheapest_plan import braces_plan, cheapest_plan
from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.explain_cost import explain_cost
from midstream.planning.cost.join_search import cheapest_join_order
from midstream.planning.cost.plan_cost import PlanCost, plan_cost
from midstream.planning.cost.sizes import BlockSizes, PlanSizes, Replicates
from midstream.planning.cost.statistics import HotKey, JoinKeys, Statistics, StreamStatistics

__all__ = [
    "BlockSizes",
    "CostCoefficients",
    "HotKey",
    "JoinKeys",
    "PlanCost",
    "PlanSizes",
    "Replicates",
    "Statistics",
    "StreamStatistics",
    "braces_plan",
    "cheapest_join_order",
    "cheapest_plan",
    "explain_cost",
    "plan_cost",
]
