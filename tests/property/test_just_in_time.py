"""Just-in-time processing changes no result: joins of three to six streams, trees and braces, in any order of arrival,
switched on and off, migrated and rebuilt meanwhile, give what DuckDB says; so do queries with other operators."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.errors import MigrationRefused
from midstream.testing import compare_bags, join_intervals
from midstream.testing.choices import Choices, HypothesisChoices, Rejected, SeededChoices
from midstream.testing.generators_migrations import random_changes, random_just_in_time, random_migrated_scenario
from midstream.testing.migration_cases import STRATEGIES, Switch
from tests.examples import EXAMPLES
from tests.property.random_joins import random_joins, random_mixed_plan, random_rows

MIGRATIONS = [known for known in STRATEGIES.values() if known[0] != "pause-drain-resume"]


def check(choices: Choices) -> int:
    """Run a random query with random changes; how many results it had."""
    query = random_joins(choices)
    run = query.run_locally(random_mixed_plan(choices, query), just_in_time=random_just_in_time(choices))
    keys, now = choices.pick([1, 0, 2, 3]), 0
    pushed: dict[str, list[pa.Table]] = {stream.name: [stream.schema.empty_table()] for stream in query.streams}
    results = []
    for _ in range(choices.number(3, 9)):
        change = choices.number(0, 9)
        if change == 9:
            run.switch_just_in_time(False if choices.chance(3) else random_just_in_time(choices))
        elif change >= 7:
            strategy, options = choices.pick(MIGRATIONS)
            with suppress(MigrationRefused):
                run.migrate(random_mixed_plan(choices, query), strategy, **options)
        elif change == 6:
            run.rebuild(choices.pick(["moving-state", "jisc"]))
        tables = {}
        for stream in query.streams:
            # Streams fall silent, and come back.
            if not choices.chance(3):
                tables[stream.name] = random_rows(choices, stream, now, run.watermark or 0, keys)
                pushed[stream.name].append(tables[stream.name])
        results.append(run.push(tables))
        now += choices.number(0, 5)
        if choices.chance(3):
            # A heartbeat: the watermark moves on though streams are silent.
            results.append(run.push({}, watermark=max(run.watermark or 0, now + choices.number(-2, 4))))
    results.append(run.finish())
    whole = {name: pa.concat_tables(tables) for name, tables in pushed.items()}
    difference = compare_bags(pa.concat_tables(results), join_intervals(query.text, query.streams, whole))
    assert (difference.missing, difference.repeated) == (0, 0), query.text
    return difference.rows


@settings(max_examples=2 * EXAMPLES)
@given(st.data())
def test_results_equal_the_oracle(data):
    check(HypothesisChoices(data.draw))


def test_results_of_fixed_seeds_equal_the_oracle():
    results = [check(SeededChoices(f"just in time {seed}")) for seed in range(8 * EXAMPLES)]
    assert sum(rows > 0 for rows in results) > len(results) / 3


def test_random_queries_with_migrations_equal_the_oracle():
    """Distinct, aggregates, differences and unions above and below, and every strategy."""
    played = []
    for seed in range(4 * EXAMPLES):
        choices = SeededChoices(f"just in time, any query {seed}")
        with suppress(Rejected):
            case = random_changes(choices, random_migrated_scenario(choices), just_in_time=True)
            assert any(isinstance(change, Switch) for change in case.changes)
            played.append(case.check())
    assert sum(len(one.migrations) > 0 for one in played) > len(played) / 2
    assert sum(one.results.num_rows > 0 for one in played) > len(played) / 3
