"""The generators make legal scenarios, and between them everything the language has."""

import datetime  # noqa: F401 - a scenario's text uses it
from collections import Counter
from decimal import Decimal  # noqa: F401 - a scenario's text uses it
from itertools import pairwise
from math import inf, nan  # noqa: F401 - a scenario's text uses them

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from midstream.algebra.stream import Stream
from midstream.testing import (
    JOIN_OPERATORS,
    WINDOWS,
    Scenario,
    SeededChoices,
    assert_snapshot_equivalent,
    heartbeat,
    join_intervals,
    random_scenario,
    scenarios,
)
from midstream.testing.oracle_text import read_query


def random_scenarios(max_examples: int) -> settings:
    return settings(
        max_examples=max_examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


def ticks(table: pa.Table, stream: Stream) -> list[int | None]:
    column = table.column(stream.event_time)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    return column.cast(pa.int64()).to_pylist()


def test_every_text_is_accepted_and_together_they_cover_the_language() -> None:
    """Drawn from seeds, which is a hundred times faster than Hypothesis; ``test_choices`` shows that both make the same
    scenarios."""
    drawn = [random_scenario(SeededChoices(f"language-{seed}")) for seed in range(600)]
    seen: Counter[str] = Counter()
    for scenario in drawn:
        query = read_query(scenario.query_text)
        seen[f"{sum(not source.subquery for select in query.selects() for source in select.sources())} leaves"] += 1
        for word in WORDS:
            seen[word] += word in scenario.query_text
    assert not [word for word in WORDS if not seen[word]]
    assert not [f"{count} leaves" for count in range(1, 7) if not seen[f"{count} leaves"]]
    # About half of the examples have results; far fewer would mean that conditions never hold.
    results = sum(scenario.expected().table.num_rows > 0 for scenario in drawn[:EXPECTED])
    assert results > 0.4 * EXPECTED


EXPECTED = 200
"""So many are given to the oracle; the property tests give it many more."""
WORDS = [
    *("DISTINCT ", " GROUP BY ", " HAVING ", " UNION ALL ", " UNION ", " EXCEPT ", " EXCEPT ALL ", "(SELECT "),
    *(" JOIN ", " CROSS JOIN ", " ON ", ", s", "[NOW]", "UNBOUNDED", " SLIDE ", "MICROSECOND", "SECOND"),
    *("COUNT(*)", "COUNT(DISTINCT ", "SUM(", "AVG(", "MIN(", "MAX("),
    *(" BETWEEN ", " IN (", " IS NULL", " IS NOT NULL", " OR ", "NOT (", "CASE ", "CAST(", "COALESCE(", " % ", " / "),
]


@random_scenarios(60)
@given(scenarios(operators=JOIN_OPERATORS, max_streams=4))
def test_join_operators_give_queries_with_exact_intervals(scenario: Scenario) -> None:
    join_intervals(scenario.query_text, scenario.streams, scenario.tables)


@random_scenarios(100)
@given(scenarios(max_streams=3))
def test_no_row_is_late_in_any_batching(scenario: Scenario) -> None:
    for stream in scenario.streams:
        newest: int | None = None
        for time in ticks(scenario.tables[stream.name], stream):
            if time is not None:
                assert newest is None or time >= newest - stream.lateness_ticks
                newest = time if newest is None else max(newest, time)


@random_scenarios(100)
@given(scenarios(max_streams=3))
def test_no_heartbeat_makes_a_row_late(scenario: Scenario) -> None:
    watermark: int | None = None
    for push in scenario.pushes:
        for stream in scenario.streams:
            times = ticks(push.rows[stream.name], stream) if stream.name in push.rows else []
            assert watermark is None or all(time is None or time >= watermark for time in times)
        if push.watermark is not None:
            watermark = push.watermark if watermark is None else max(watermark, push.watermark)


def test_batches_go_from_single_rows_to_everything_at_once() -> None:
    seen: Counter[str] = Counter()

    @random_scenarios(100)
    @given(scenarios(max_streams=3))
    def check(scenario: Scenario) -> None:
        sizes = [push.row_count for push in scenario.pushes if push.row_count]
        seen["single rows"] += len(sizes) > 3 and set(sizes) == {1}
        seen["at once"] += len(sizes) == 1 and sizes[0] > 3
        seen["heartbeats"] += any(not push.rows for push in scenario.pushes)
        seen["watermark with rows"] += any(push.rows and push.watermark is not None for push in scenario.pushes)
        values = [ticks(scenario.tables[stream.name], stream) for stream in scenario.streams]
        seen["negative"] += any(time is not None and time < 0 for times in values for time in times)
        seen["null"] += any(time is None for times in values for time in times)
        seen["ties"] += any(len(set(times)) < len(times) for times in values)
        seen["disorder"] += any(
            any(b < a for a, b in pairwise(known))
            for known in ([time for time in times if time is not None] for times in values)
        )

    check()
    assert min(seen.values()) >= 3, seen


@random_scenarios(60)
@given(scenarios(max_streams=3))
def test_a_printed_scenario_makes_itself_again(scenario: Scenario) -> None:
    again = eval(repr(scenario))
    assert again.query_text == scenario.query_text and again.streams == scenario.streams
    assert repr(again) == repr(scenario)
    assert [push.watermark for push in again.pushes] == [push.watermark for push in scenario.pushes]


@pytest.mark.parametrize("event_time", ["integer", "timestamp"])
def test_event_time_can_be_chosen(event_time: str) -> None:
    @random_scenarios(20)
    @given(scenarios(event_time=event_time))
    def check(scenario: Scenario) -> None:
        kinds = {stream.schema.field("ts").type for stream in scenario.streams}
        assert all(pa.types.is_timestamp(kind) == (event_time == "timestamp") for kind in kinds)

    check()


@random_scenarios(60)
@given(st.data())
def test_choices_are_kept(data: st.DataObject) -> None:
    scenario = data.draw(
        scenarios(
            max_streams=3, operators={"join"}, windows=WINDOWS - {"slide", "none"}, conditions={"equality"}, max_rows=2
        )
    )
    query = read_query(scenario.query_text)
    assert len(query.selects()) == 1 and query.selects()[0].only_joins
    assert "SLIDE" not in scenario.query_text and "CROSS" not in scenario.query_text
    assert all(table.num_rows <= 2 for table in scenario.tables.values())


def test_unknown_choices_are_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown operators: \['sort'\]"):
        scenarios(operators={"sort"})


def test_a_scenario_from_rows_is_checked_like_any_other() -> None:
    schema = pa.schema([("ts", pa.int64()), ("k", pa.string())])
    scenario = Scenario.from_rows(
        "SELECT k FROM s [RANGE 1]",
        [Stream("s", schema, "ts")],
        [{"s": [(1, "a")]}, heartbeat(2), ({"s": [(2, "b")]}, 9)],
    )
    expected = pa.table({"k": ["a", "b"], "valid_from": [1, 2], "valid_to": [3, 4]})
    assert_snapshot_equivalent(expected, scenario.expected())
    assert_snapshot_equivalent(expected, scenario.expected_intervals())
