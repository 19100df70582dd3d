"""A query that changes its plan by itself gives what DuckDB says: with thresholds that make it change at the slightest
reason, by every strategy, with migrations and rebuilds by a person in between. With DISTINCT and GROUP BY it changes
between shapes, too. Among the plans that it changes to and from are multi-way joins: a person chooses some, and where
lookups cost little, or memory is short, so does the query."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream import ContinuousQuery
from midstream.adaptation import Adaptation
from midstream.algebra.plan import Plan
from midstream.errors import MigrationRefused
from midstream.planning.cost import CostCoefficients
from midstream.testing import assert_snapshot_equivalent, compare_bags, join_intervals, snapshots
from midstream.testing.choices import Choices, HypothesisChoices, SeededChoices
from tests.examples import EXAMPLES
from tests.property.random_joins import random_joins, random_order, random_reduced_joins, random_rows

STRATEGIES = ["jisc", "moving-state", "gen-mig", "parallel-track", "pause-drain-resume"]


SHAPING = [
    CostCoefficients(operator=0.0, row=0.0),
    CostCoefficients(operator=0.0, row=20e-9),
    CostCoefficients(operator=0.0),
]
"""By which few rows are reason enough for a distinct below joins: an operator costs nothing by itself."""


CHEAP_LOOKUPS = CostCoefficients(operator=0.0, probe=0.0, word_in=0.0)
"""By which multi-way joins are often the cheapest."""


def nervous(choices: Choices, coefficients: CostCoefficients) -> Adaptation:
    """Measures after every push, and changes the plan for any gain, however uncertain."""
    chosen = [strategy for strategy in STRATEGIES if choices.chance(2)] or ["jisc"]
    return Adaptation(
        sample_rows=choices.pick([16, 64]),
        measure_every=0,
        measure_share=1e6,
        least_rows=1,
        deviations=0,
        least_gain=1,
        least_saving=0,
        regret=0,
        strategies=tuple(chosen),
        longest_pause=1e6,
        most_state_bytes=choices.pick([None, None, 400.0, 2_000.0]),
        coefficients=coefficients,
        seed=choices.number(0, 1000),
    )


def check(choices: Choices) -> tuple[int, int, int]:
    """Run a random query that adapts; how many results it had, how many changes it made, how many from or to braces."""
    query = random_joins(choices)
    coefficients = choices.pick([CostCoefficients(), CHEAP_LOOKUPS])
    run, results, whole = play(query, nervous(choices, coefficients), choices)
    difference = compare_bags(results, join_intervals(query.text, query.streams, whole))
    assert (difference.missing, difference.repeated) == (0, 0), query.text
    assert run.failures == []
    return difference.rows, run.changes, run.changes_of_braces


def check_shapes(choices: Choices) -> tuple[int, int]:
    """The same for a query with DISTINCT or GROUP BY; how many results it had, how many changes were between shapes."""
    query = random_reduced_joins(choices)
    run, results, whole = play(query, nervous(choices, choices.pick(SHAPING)), choices)
    assert_snapshot_equivalent(results, snapshots(query.text, query.streams, whole))
    return results.num_rows, run.changes_of_shape


@dataclass
class Played:
    """How often a query changed its plan."""

    changes: int = 0
    changes_of_shape: int = 0
    changes_of_braces: int = 0
    failures: list[str] = field(default_factory=list)

    def count(self, run) -> None:
        changed = [decision for decision in run.decisions() if decision.outcome == "changed"]
        self.changes += len(changed)
        self.changes_of_shape += sum(("below" in one.plan) != ("below" in one.best) for one in changed)
        self.changes_of_braces += sum("{" in one.plan + one.best for one in changed)
        self.failures += [one.failure for one in run.decisions() if one.failure is not None]


def play(query: ContinuousQuery, policy: Adaptation, choices: Choices) -> tuple[Played, pa.Table, dict[str, pa.Table]]:
    """Run a query that adapts: what it changed, its results, and all rows that it was given."""
    names = [stream.name for stream in query.streams]
    run = query.run_locally(adapt=policy, just_in_time=choices.chance(4))
    keys, now = choices.pick([1, 0, 2, 3]), 0
    pushed: dict[str, list[pa.Table]] = {stream.name: [stream.schema.empty_table()] for stream in query.streams}
    results = []
    played = Played()
    for _ in range(choices.number(4, 12)):
        change = choices.number(0, 9)
        if change == 9:
            with suppress(MigrationRefused):
                shuffled = sorted(names, key=lambda _: choices.number(0, 9))
                run.migrate(random_plan(choices, query, shuffled), choices.pick(STRATEGIES[:4]))
            before = run.plan
            if choices.chance(2):
                run.adapt(policy)
            else:
                assert run.plan == before
        elif change == 8:
            run.rebuild(choices.pick(["moving-state", "jisc"]))
        tables = {}
        for stream in query.streams:
            if not choices.chance(6):
                tables[stream.name] = random_rows(choices, stream, now, run.watermark or 0, keys)
                pushed[stream.name].append(tables[stream.name])
        results.append(run.push(tables))
        now += choices.number(0, 5)
    played.count(run)
    results.append(run.finish())
    return played, pa.concat_tables(results), {name: pa.concat_tables(tables) for name, tables in pushed.items()}


def random_plan(choices: Choices, query: ContinuousQuery, names: list[str]) -> Plan:
    """A tree, or a multi-way join of all inputs or of the first ones, routed in any way."""
    if choices.chance(2):
        return query.plan(random_order(choices, names).removeprefix("(")[:-1])
    count = choices.number(2, len(names))
    braces = "{" + " ".join(names[:count]) + "}"
    return query.plan(" ".join([braces, *names[count:]]), routing=choices.pick(["fixed", "fixed", "eddy"]))


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_results_equal_the_oracle(data):
    check(HypothesisChoices(data.draw))


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_results_of_changes_between_shapes_equal_the_oracle(data):
    check_shapes(HypothesisChoices(data.draw))


def test_results_of_changes_between_shapes_of_fixed_seeds_equal_the_oracle():
    played = [check_shapes(SeededChoices(f"shapes {seed}")) for seed in range(2 * EXAMPLES)]
    assert sum(rows > 0 for rows, _ in played) > len(played) / 3
    assert sum(changes > 0 for _, changes in played) > len(played) / 4


def test_results_of_fixed_seeds_equal_the_oracle():
    played = [check(SeededChoices(f"adaptation {seed}")) for seed in range(6 * EXAMPLES)]
    assert sum(rows > 0 for rows, *_ in played) > len(played) / 3
    assert sum(changes > 0 for _, changes, _ in played) > len(played) / 4
    assert sum(braces > 0 for *_, braces in played) > len(played) / 8
