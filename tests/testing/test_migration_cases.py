"""Migration cases are played as written, print as code, and report what their migrations met."""

import contextlib
import datetime  # noqa: F401 - a case's text uses it
from collections import Counter
from dataclasses import replace
from decimal import Decimal  # noqa: F401 - a case's text uses it
from math import inf, nan  # noqa: F401 - a case's text uses them

import pyarrow as pa
import pytest

from midstream import Stream
from midstream.algebra.plan import Aggregate, Difference, Distinct, Join
from midstream.migration.strategy_registry import STRATEGIES as NAMES
from midstream.testing import (
    STRATEGIES,
    Migrate,
    MigrationCase,
    Rebuild,
    Rejected,
    Scenario,
    SeededChoices,
    heartbeat,
    random_case,
)
from midstream.testing.migration_cases import plans_of, simpler_cases, strategy_label

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
SCENARIO = Scenario.from_rows(
    "SELECT a.k FROM s [RANGE 5] a, s [RANGE 9 SLIDE 3] b, t [RANGE 4] c WHERE a.k = b.k AND b.k = c.k",
    [Stream("s", SCHEMA, "ts"), Stream("t", SCHEMA, "ts")],
    [{"s": [(1, 7)]}, {"t": [(2, 7), (3, 7)]}, {"s": [(4, 7)]}, heartbeat(6), {"t": [(8, 7)]}],
)


def cases(count: int) -> list[MigrationCase]:
    """Cases of some seeds."""
    found: list[MigrationCase] = []
    seed = 0
    while len(found) < count:
        with contextlib.suppress(Rejected):
            found.append(random_case(SeededChoices(f"cases-{seed}")))
        seed += 1
    return found


def test_every_strategy_is_in_the_table() -> None:
    assert {name for name, _ in STRATEGIES.values()} == NAMES.keys()
    assert [strategy_label(*way) for way in STRATEGIES.values()] == list(STRATEGIES)


def test_a_printed_case_makes_itself_again() -> None:
    for case in cases(40):
        again = eval(repr(case))
        assert repr(again) == repr(case)
        assert again.changes == case.changes
        assert (again.first_plan, again.chunk_rows) == (case.first_plan, case.chunk_rows)


def test_what_a_migration_met_is_recorded() -> None:
    case = MigrationCase(
        SCENARIO,
        [
            Rebuild(0, "jisc"),
            Migrate(1, 1, "gen-mig"),
            Migrate(2, 2, "gen-mig"),
            Rebuild(2, "moving-state"),
            Migrate(3, 0, "moving-state"),
            Rebuild(5, "jisc"),
        ],
    )
    first, second, third = case.check().migrations
    assert (first.strategy, first.watermark, first.overlaps) == ("coalesce", None, False)
    assert (second.watermark, second.overlaps) == (1, True)
    assert (third.strategy, third.watermark, third.overlaps) == ("moving-state", 3, True)
    assert first.rebuilds == second.rebuilds == {"before", "during", "after"}
    assert third.rebuilds == {"before", "after"}
    assert third.plan == plans_of(SCENARIO)[1][0]


def test_a_migration_to_the_plan_in_force_counts_for_nothing() -> None:
    played = MigrationCase(SCENARIO, [Migrate(1, 2, "jisc")], first_plan=2).check()
    assert (played.migrations, played.refused) == ([], 0)


def test_a_refused_migration_is_counted() -> None:
    played = MigrationCase(SCENARIO, [Migrate(1, 1, "pause-drain-resume"), Migrate(1, 1, "jisc")]).check()
    assert (len(played.migrations), played.refused) == (1, 1)


def test_a_wrong_result_is_found() -> None:
    case = MigrationCase(SCENARIO, [Migrate(1, 1, "jisc")])
    wrong = replace(SCENARIO, pushes=SCENARIO.pushes[:-2])
    with pytest.raises(AssertionError, match="too many"):
        case.check(wrong.expected())


def test_simpler_cases_lack_one_thing_each() -> None:
    case = MigrationCase(SCENARIO, [Migrate(1, 1, "gen-mig", {"shortened": True}), Rebuild(4, "jisc")], chunk_rows=1)
    simpler = list(simpler_cases(case))
    assert sum(len(other.changes) < len(case.changes) for other in simpler) == 2
    assert sum(len(other.scenario.pushes) < len(SCENARIO.pushes) for other in simpler) == 5
    # Five rows, one watermark, the size of chunks, the options of a migration.
    assert len(simpler) == 2 + 5 + 5 + 1 + 1 + 1
    for other in simpler:
        other.check()


def test_cases_change_more_than_the_order_of_joins() -> None:
    """Distinct and aggregates move below joins, differences are reordered, and changes come together."""
    seen: Counter[str] = Counter()
    for case in cases(80):
        played = case.play()
        _, plans = plans_of(case.scenario)
        before = plans[case.first_plan % len(plans)]
        moments = [change.before for change in case.changes]
        seen["changes at one moment"] += len(set(moments)) < len(moments)
        seen["single rows"] += sum(push.row_count == 1 for push in case.scenario.pushes) > 3
        for migration in played.migrations:
            plan = migration.plan
            counts = [Counter(type(node) for node in p.walk()) for p in (before, plan)]
            seen["another place for distinct"] += counts[0][Distinct] != counts[1][Distinct]
            seen["partial aggregate"] += counts[0][Aggregate] != counts[1][Aggregate]
            subtracted = [[n.right for n in p.walk() if isinstance(n, Difference)] for p in (before, plan)]
            seen["differences reordered"] += subtracted[0] != subtracted[1]
            joins = [[n for n in p.walk() if isinstance(n, Join)] for p in (before, plan)]
            seen["joins reordered"] += joins[0] != joins[1]
            seen["overlapping"] += migration.overlaps
            before = plan
    assert min(seen.values()) >= 3, seen
    assert len(seen) == 7
