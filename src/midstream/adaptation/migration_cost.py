"""What a change of plan would cost, by strategy, in seconds of the same cost model that compares the plans.

Moving state computes the states that the new plan has and the old one lacks: their tuples, from the states below them
(Zhu et al. 2004, section 5.1). JISC computes those of them that later rows look for: few where the keys have changed,
since rows with new keys do not look for partners of the old ones. GenMig and parallel track run both plans for the
length of a window, so the new plan's work is done twice over for the rows of a window (section 5.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from midstream.algebra.plan import Plan
from midstream.errors import MigrationRefused
from midstream.migration.strategy_registry import strategy_named
from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.plan_cost import InputState, PlanCost
from midstream.planning.cost.sizes import PlanSizes

__all__ = ["MigrationCost", "cheapest_migration", "tuples_to_compute"]

_ON_DEMAND = 1.25
"""How much more a tuple costs that is computed when it is asked for."""


@dataclass(frozen=True)
class MigrationCost:
    """The expected cost of a change by one strategy."""

    strategy: str
    seconds: float
    pause: float
    """How long results wait."""


def cheapest_migration(
    old: Plan,
    new: Plan,
    costs: tuple[PlanCost, PlanCost],
    sizes: PlanSizes,
    coefficients: CostCoefficients,
    strategies: Sequence[str],
    longest_pause: float,
    correction: float = 1.0,
) -> MigrationCost | None:
    """The cheapest of the strategies that can make the change within the pause allowed; None if none can.

    ``correction`` is how many times as many tuples earlier migrations computed as was expected.
    """
    computed, on_demand = (
        _seconds_to_compute(*costs, coefficients, correction, is_on_demand) for is_on_demand in (False, True)
    )
    replacing = coefficients.replacement * len(costs[1].nodes)
    turns = _windows_per_span(sizes)
    twice = turns * float(costs[1].seconds.mean())
    found: list[MigrationCost] = []
    for name in strategies:
        strategy = strategy_named(name, {})
        try:
            strategy.check(old, new)
        except MigrationRefused:
            continue
        if strategy.runs_both_plans:
            found.append(MigrationCost(name, replacing + twice, 0.0))
        elif name == "jisc":
            found.append(MigrationCost(name, replacing + on_demand, replacing))
        else:
            found.append(MigrationCost(name, replacing + computed, replacing + computed))
    possible = [cost for cost in found if cost.pause <= longest_pause]
    return min(possible, key=lambda cost: cost.seconds, default=None)


def tuples_to_compute(old: PlanCost, new: PlanCost, strategy: str) -> float:
    """How many tuples of the new plan's states that the old plan does not have in any state are computed."""
    return sum(_computed(state, strategy == "jisc") for state in _new_tuples(old, new))


def _seconds_to_compute(
    old: PlanCost, new: PlanCost, coefficients: CostCoefficients, correction: float, is_on_demand: bool
) -> float:
    """Tuples that no state has are computed and inserted; those that are kept by another key are sorted anew."""
    total = 0.0
    for state in _new_tuples(old, new):
        each = coefficients.per_tuple_out(state.inputs) + coefficients.per_tuple_in(state.inputs)
        total += correction * _computed(state, is_on_demand) * each * (_ON_DEMAND if is_on_demand else 1.0)
    had, had_tuples = {(s.tuples, s.key) for s in _states(old)}, {s.tuples for s in _states(old)}
    for state in _states(new):
        if (state.tuples, state.key) not in had and (state.inputs == 1 or state.tuples in had_tuples):
            total += state.held * coefficients.per_tuple_in(state.inputs)
    return total


def _computed(state: InputState, is_on_demand: bool) -> float:
    return state.asked_for if is_on_demand else state.held


def _new_tuples(old: PlanCost, new: PlanCost) -> list[InputState]:
    had = {state.tuples for state in _states(old)}
    return [state for state in _states(new) if state.inputs > 1 and state.tuples not in had]


def _states(plan: PlanCost) -> list[InputState]:
    return [state for node in plan.nodes for state in node.states]


def _windows_per_span(sizes: PlanSizes) -> float:
    """How many spans make a window: the most over all inputs."""
    return max(
        (
            held / max(1.0, float(block.increments[1 << place].mean()))
            for block in sizes.blocks.values()
            for place, held in enumerate(block.held)
        ),
        default=1.0,
    )
