"""A query that changes its plan by itself gives what DuckDB says: with thresholds that make it change at the slightest
reason, by every strategy, with migrations and rebuilds by a person in between."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.adaptation import Adaptation
from midstream.errors import MigrationRefused
from midstream.planning.cost import CostCoefficients
from midstream.testing import compare_bags, join_intervals
from midstream.testing.choices import Choices, HypothesisChoices, SeededChoices
from tests.examples import EXAMPLES
from tests.property.random_joins import random_joins, random_order, random_rows

STRATEGIES = ["jisc", "moving-state", "gen-mig", "parallel-track", "pause-drain-resume"]


def nervous(choices: Choices) -> Adaptation:
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
        coefficients=CostCoefficients(),
        seed=choices.number(0, 1000),
    )


def check(choices: Choices) -> tuple[int, int]:
    """Run a random query that adapts; how many results it had, and how many changes it made."""
    query = random_joins(choices)
    names = [stream.name for stream in query.streams]
    policy = nervous(choices)
    run = query.run_locally(adapt=policy, just_in_time=choices.chance(4))
    keys, now = choices.pick([1, 0, 2, 3]), 0
    pushed: dict[str, list[pa.Table]] = {stream.name: [stream.schema.empty_table()] for stream in query.streams}
    results = []
    changed = 0
    for _ in range(choices.number(4, 12)):
        change = choices.number(0, 9)
        if change == 9:
            with suppress(MigrationRefused):
                shuffled = sorted(names, key=lambda _: choices.number(0, 9))
                run.migrate(random_order(choices, shuffled).removeprefix("(")[:-1], choices.pick(STRATEGIES[:4]))
            before = run.plan
            if choices.chance(2):
                changed += _changes(run)
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
    changed += _changes(run)
    results.append(run.finish())
    whole = {name: pa.concat_tables(tables) for name, tables in pushed.items()}
    difference = compare_bags(pa.concat_tables(results), join_intervals(query.text, query.streams, whole))
    assert (difference.missing, difference.repeated) == (0, 0), query.text
    return difference.rows, changed


def _changes(run) -> int:
    return sum(decision.outcome == "changed" for decision in run.decisions())


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_results_equal_the_oracle(data):
    check(HypothesisChoices(data.draw))


def test_results_of_fixed_seeds_equal_the_oracle():
    played = [check(SeededChoices(f"adaptation {seed}")) for seed in range(6 * EXAMPLES)]
    assert sum(rows > 0 for rows, _ in played) > len(played) / 3
    assert sum(changes > 0 for _, changes in played) > len(played) / 4
