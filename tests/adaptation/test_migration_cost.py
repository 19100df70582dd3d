"""Which strategy a change of plan takes, and what it is expected to cost."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from midstream import ContinuousQuery, Stream
from midstream.adaptation.migration_cost import MigrationCost, cheapest_migration, tuples_to_compute
from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.plan_cost import PlanCost, plan_cost
from midstream.planning.cost.sizes import BlockSizes, PlanSizes
from midstream.planning.join_order.reorder_joins import join_blocks

QUERY = ContinuousQuery(
    "SELECT a.t AS t FROM a [RANGE 1000], b [RANGE 1000], c [RANGE 1000] WHERE a.x = b.x AND b.y = c.y",
    [
        Stream(name, pa.schema([(column, pa.int64()) for column in ("t", *columns)]), "t")
        for name, columns in {"a": "x", "b": "xy", "c": "y"}.items()
    ],
)
OLD, NEW = QUERY.plan("a (b c)"), QUERY.plan("(a b) c")
A, B, C = 1, 2, 4
STRATEGIES = ("jisc", "moving-state", "gen-mig")
COEFFICIENTS = CostCoefficients()


def compared(held_ab: float, results: float) -> tuple[PlanSizes, tuple[PlanCost, PlanCost]]:
    """A tenth of 10,000 rows of each window is new; the new plan's state (a b) would have so many tuples."""
    increments = {A: 1e3, B: 1e3, C: 1e3, A | B: held_ab / 5, B | C: 1e6, A | B | C: results}
    (block,) = join_blocks(OLD)
    sizes = BlockSizes(
        ("a", "b", "c"),
        (1e4,) * 3,
        {k: np.full(2, v) for k, v in increments.items()},
        held_sets={A | B: held_ab, B | C: 1e6},
    )
    plan_sizes = PlanSizes(3_000, {block.identity: sizes})
    costs = [plan_cost(plan, plan_sizes, COEFFICIENTS) for plan in (OLD, NEW)]
    assert costs[0] is not None and costs[1] is not None
    return plan_sizes, (costs[0], costs[1])


def chosen(held_ab: float, results: float, longest_pause: float = 10.0) -> MigrationCost:
    sizes, costs = compared(held_ab, results)
    found = cheapest_migration(OLD, NEW, costs, sizes, COEFFICIENTS, STRATEGIES, longest_pause)
    assert found is not None
    return found


def test_what_nobody_looks_for_is_not_computed():
    """After keys have changed: the windows are full of old ones, and the new rows find few partners."""
    found = chosen(held_ab=4e6, results=100)
    assert (found.strategy, found.options) == ("jisc", {"as_published": True})
    _, costs = compared(4e6, 100)
    expected = tuples_to_compute(*costs, found)
    # a and b are sorted by x; of a and b together, the partners of half a life's results.
    assert expected is not None and 1e4 <= expected < 3e4
    at_once = MigrationCost("moving-state", 0.0, 0.0)
    assert (tuples_to_compute(*costs, at_once) or 0) > 4e6


def test_what_everybody_looks_for_is_computed_at_once():
    found = chosen(held_ab=1e4, results=1e6)
    assert found.strategy == "moving-state"


def test_what_takes_too_long_at_once_is_computed_little_by_little():
    found = chosen(held_ab=4e6, results=1e8, longest_pause=0.01)
    assert found.strategy in ("jisc", "gen-mig")
    assert found.pause <= 0.01


def test_soon_after_another_change_the_migration_is_over_at_once():
    """While a migration is in progress, the plan cannot be changed again."""
    sizes, costs = compared(held_ab=1e4, results=1e3)

    def found(prefer_short: bool, longest_pause: float = 10.0) -> MigrationCost:
        cost = cheapest_migration(
            OLD, NEW, costs, sizes, COEFFICIENTS, STRATEGIES, longest_pause, prefer_short=prefer_short
        )
        assert cost is not None
        return cost

    assert not found(prefer_short=False).is_at_once
    assert found(prefer_short=True).strategy == "moving-state"
    assert found(prefer_short=True, longest_pause=found(prefer_short=True).pause / 2).strategy != "moving-state"


def test_a_migration_that_runs_both_plans_computes_no_state():
    _, costs = compared(1e4, 1e3)
    assert tuples_to_compute(*costs, MigrationCost("gen-mig", 0.0, 0.0)) is None
