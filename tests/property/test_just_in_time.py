"""Just-in-time processing changes no result: joins of three to six streams, in any order of arrival, switched on and
off, migrated and rebuilt meanwhile, give what DuckDB says; so do queries with other operators."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream import ContinuousQuery, Stream
from midstream.errors import MigrationRefused
from midstream.testing import compare_bags, join_intervals
from midstream.testing.choices import Choices, HypothesisChoices, Rejected, SeededChoices
from midstream.testing.generators_migrations import random_changes, random_just_in_time, random_migrated_scenario
from midstream.testing.migration_cases import STRATEGIES, Switch
from tests.examples import EXAMPLES

WINDOWS = ["RANGE 12", "RANGE 20", "RANGE 12", "RANGE 20", "RANGE 5", "RANGE 8 SLIDE 3", "RANGE 6 SLIDE 6", "NOW"]
TYPES = [pa.int64(), pa.string(), pa.float64()]
MIGRATIONS = [known for known in STRATEGIES.values() if known[0] != "pause-drain-resume"]


def random_joins(choices: Choices) -> ContinuousQuery:
    """A clique, star or chain, or something between, of equalities and a few other comparisons."""
    names = "abcdef"[: choices.number(3, 6)]
    pairs = [(left, right) for place, left in enumerate(names) for right in names[place + 1 :]]
    shape = choices.pick(["chain", "star", "clique", "mixed"])
    if shape == "chain":
        pairs = list(pairwise(names))
    elif shape == "star":
        pairs = [(names[0], other) for other in names[1:]]
    elif shape == "mixed":
        pairs = [pair for pair in pairs if not choices.chance(3)] or pairs
    columns: dict[str, dict[str, pa.DataType]] = {name: {} for name in names}
    data_type, has_one_key, conditions = choices.pick(TYPES), choices.chance(3), []
    for left, right in pairs:
        column = "k" if has_one_key else f"{left}{right}"
        columns[left][column] = columns[right][column] = data_type
        comparison = choices.pick(["<", "<=", "<>"]) if choices.chance(8) else "="
        conditions.append(f"{left}.{column} {comparison} {right}.{column}")
    selected = ", ".join(f"{name}.ts AS {name}" for name in names)
    windows = ", ".join(f"{name} [{choices.pick(WINDOWS)}] {name}" for name in names)
    streams = [
        Stream(name, pa.schema({"ts": pa.int64(), **columns[name]}), "ts", lateness=choices.pick([0, 3]))
        for name in names
    ]
    return ContinuousQuery(f"SELECT {selected} FROM {windows} WHERE {' AND '.join(conditions)}", streams)


def random_order(choices: Choices, names: list[str]) -> str:
    """A join order of any shape."""
    if len(names) == 1:
        return names[0]
    place = choices.number(1, len(names) - 1)
    sides = (random_order(choices, names[:place]), random_order(choices, names[place:]))
    left, right = sides if choices.chance(2) else sides[::-1]
    return f"({left} {right})"


def random_rows(choices: Choices, stream: Stream, now: int, watermark: int, keys: int) -> pa.Table:
    """A few rows from about now on, none late, with few different keys and now and then NULL."""
    rows = []
    # Rows far apart stay together in a state: one keeps the other there after it has ended.
    spread = choices.pick([4, 4, 16])
    for _ in range(choices.number(0, 4)):
        values = {}
        for column in stream.schema.names[1:]:
            key = None if choices.chance(12) else choices.number(0, keys)
            is_text = stream.schema.field(column).type == pa.string()
            values[column] = str(key) if is_text and key is not None else key
        early = choices.number(0, stream.lateness)
        rows.append({"ts": max(watermark, now + choices.number(0, spread) - early), **values})
    return pa.Table.from_pylist(rows, stream.schema)


def check(choices: Choices) -> int:
    """Run a random query with random changes; how many results it had."""
    query = random_joins(choices)
    names = [stream.name for stream in query.streams]

    def order() -> str:
        return random_order(choices, sorted(names, key=lambda _: choices.number(0, 9))).removeprefix("(")[:-1]

    run = query.run_locally(order(), just_in_time=random_just_in_time(choices))
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
                run.migrate(order(), strategy, **options)
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
