"""What a change of plan would cost, by strategy, in seconds of the same cost model that compares the plans.

Moving state computes the states that the new plan has and the old one lacks: their tuples, from the states below them
(Zhu et al. 2004, section 5.1). JISC computes the same little by little. As published it computes only what later rows
look up, and checks for each of them whether that is there, for the length of a window: this is better where little is
looked up, as after keys have changed, since rows with new keys do not look up partners of the old ones. GenMig and
parallel track run both plans for the length of a window, so the new plan's work is done twice over for the rows of a
window (section 5.2).

The indexes of a multi-way join are complete from the start, by any of these strategies: those that no state of the old
plan serves are sorted at once. Other probe orders need the same indexes, nearly always, so that nothing is computed:
such a change is made by moving state.

Where a distinct or an aggregate gets another input, because it is pushed below a join or pulled up again, its state is
computed at once by moving state and by JISC: from the rows of a window, or from all results of the joins below it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from midstream.algebra.plan import Plan
from midstream.errors import MigrationRefused
from midstream.migration.strategy_registry import strategy_named
from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.plan_cost import InputState, PlanCost
from midstream.planning.cost.sizes import PlanSizes

__all__ = ["MigrationCost", "cheapest_migration", "tuples_to_compute"]

_ON_DEMAND = 1.25
"""How much more a tuple costs that is not computed together with all others."""


@dataclass(frozen=True)
class MigrationCost:
    """The expected cost of a change by one strategy."""

    strategy: str
    seconds: float
    pause: float
    """How long results wait."""
    options: Mapping[str, bool] = field(default_factory=dict)
    """Of the strategy."""

    @property
    def is_at_once(self) -> bool:
        """Whether the migration is over when results continue."""
        return self.pause == self.seconds

    @property
    def is_on_demand(self) -> bool:
        """Whether only what is looked for is computed."""
        return bool(self.options)


def cheapest_migration(
    old: Plan,
    new: Plan,
    costs: tuple[PlanCost, PlanCost],
    sizes: PlanSizes,
    coefficients: CostCoefficients,
    strategies: Sequence[str],
    longest_pause: float,
    correction: float = 1.0,
    prefer_short: bool = False,
) -> MigrationCost | None:
    """The cheapest of the strategies that can make the change within the pause allowed; None if none can.

    ``correction`` is how many times as many tuples earlier migrations computed as was expected. With ``prefer_short``,
    strategies whose migrations are over at once are taken if there are any: others last for a window, in which the
    plan cannot be changed again.
    """
    computed, looked_for = (
        _seconds_to_compute(*costs, coefficients, correction, is_on_demand) for is_on_demand in (False, True)
    )
    replacing = coefficients.replacement * sum(node.operators for node in costs[1].nodes)
    indexing = _seconds_to_index(*costs, coefficients, correction)
    needs_no_demand = "moving-state" in strategies and _can_put_off_nothing(*costs)
    rebuilding, inserting = _seconds_to_rebuild(*costs), _seconds_to_insert(*costs, coefficients)
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
        elif name == "jisc" and needs_no_demand:
            continue
        elif name == "jisc":
            looking = _seconds_to_look(*costs, coefficients)
            at_once = replacing + rebuilding
            pause = at_once + inserting + indexing
            found.append(MigrationCost(name, at_once + indexing + _ON_DEMAND * (computed - indexing), pause))
            found.append(MigrationCost(name, at_once + looked_for + looking, pause, {"as_published": True}))
        else:
            seconds = replacing + rebuilding + computed
            found.append(MigrationCost(name, seconds, seconds))
    possible = [cost for cost in found if cost.pause <= longest_pause]
    if prefer_short:
        possible = [cost for cost in possible if cost.is_at_once] or possible
    return min(possible, key=lambda cost: cost.seconds, default=None)


def tuples_to_compute(old: PlanCost, new: PlanCost, cost: MigrationCost) -> float | None:
    """How many tuples a migration brings into states of the new plan; None if it runs both plans instead."""
    if strategy_named(cost.strategy, {}).runs_both_plans:
        return None
    return sum(brought.count for brought in _brought(old, new, cost.is_on_demand))


@dataclass(frozen=True)
class _Brought:
    """A state of the new plan that the old one does not have as it is, and how many of its tuples are brought there."""

    state: InputState
    count: float
    is_computed: bool
    """Whether no state of the old plan has its tuples, by any key."""


def _brought(old: PlanCost, new: PlanCost, is_on_demand: bool) -> Iterator[_Brought]:
    had, had_tuples = {(s.tuples, s.key) for s in _states(old)}, {s.tuples for s in _states(old)}
    for state in _states(new):
        if (state.tuples, state.key) not in had:
            is_computed = state.inputs > 1 and state.tuples not in had_tuples
            is_partial = is_computed and is_on_demand and not state.is_index
            yield _Brought(state, state.looked_for if is_partial else state.held, is_computed)


def _seconds_to_compute(
    old: PlanCost, new: PlanCost, coefficients: CostCoefficients, correction: float, is_on_demand: bool
) -> float:
    """Tuples that no state has are computed and inserted; those that are kept by another key are sorted anew."""
    return correction * sum(_seconds_to_bring(brought, coefficients) for brought in _brought(old, new, is_on_demand))


def _seconds_to_bring(brought: _Brought, coefficients: CostCoefficients) -> float:
    inputs = brought.state.inputs
    computing = coefficients.per_tuple_out(inputs) if brought.is_computed else 0.0
    return brought.count * (computing + coefficients.per_tuple_in(inputs))


def _seconds_to_index(old: PlanCost, new: PlanCost, coefficients: CostCoefficients, correction: float) -> float:
    """Indexes of multi-way joins are complete from the start."""
    brought = [one for one in _brought(old, new, is_on_demand=False) if one.state.is_index]
    return correction * sum(_seconds_to_bring(one, coefficients) for one in brought)


def _can_put_off_nothing(old: PlanCost, new: PlanCost) -> bool:
    """Whether the new plan has multi-way joins, and all states that it lacks are indexes of these."""
    has_indexes = any(state.is_index for state in _states(new))
    return has_indexes and all(one.state.is_index for one in _brought(old, new, is_on_demand=False))


def _seconds_to_rebuild(old: PlanCost, new: PlanCost) -> float:
    """The states of distinct and aggregates whose input is not what it was are computed at once, by any strategy."""
    had = {node.key for node in old.nodes}
    return sum(node.rebuilding for node in new.nodes if node.key not in had)


def _seconds_to_insert(old: PlanCost, new: PlanCost, coefficients: CostCoefficients) -> float:
    """States of inputs that the old plan does not have are always complete."""
    had = {state.tuples for state in _states(old)}
    new_inputs = [state for state in _states(new) if state.inputs == 1 and state.tuples not in had]
    brought = [state for state in new_inputs if not state.is_index]
    return sum(state.held * coefficients.per_tuple_in(1) for state in brought)


def _seconds_to_look(old: PlanCost, new: PlanCost, coefficients: CostCoefficients) -> float:
    """Until the old tuples have ended, every partner looks whether its key has been computed."""
    brought = _brought(old, new, is_on_demand=True)
    incomplete = [one.state for one in brought if one.is_computed and not one.state.is_index]
    return sum(state.partners * coefficients.per_tuple_in(1) for state in incomplete)


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
