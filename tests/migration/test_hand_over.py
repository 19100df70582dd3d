"""Where one plan ends and the next begins: the smallest cases in which a single fault of the hand-over shows.

Each test is the smallest case found for one or more of the faults in ``tests/property/breakages``, which random cases
must find too.
"""

import pyarrow as pa
import pytest

from midstream import Stream
from midstream.testing import Migrate, MigrationCase, Rebuild, Scenario, heartbeat

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "v": pa.int64()})
STREAMS = [Stream(name, SCHEMA, "ts") for name in "abc"]

# The migration shortened to the latest end of a row splits at 10. At the watermark 9, the sliding windows have results
# that are final up to 12: beyond the split, though the migration is not over.
BEYOND_THE_SPLIT = Scenario.from_rows(
    "SELECT COUNT(*) AS n FROM a [RANGE 4 SLIDE 4] x, a [RANGE 4 SLIDE 4] y UNION ALL SELECT k AS n FROM b [RANGE 6]",
    STREAMS[:2],
    [{"a": [(1, 1, 1)], "b": [(3, 1, 1)]}, {"a": [(7, 1, 1)], "b": [(7, 1, 1)]}, heartbeat(9)],
)
SPLIT = {"shortened": True}


@pytest.mark.parametrize("first", [0, 1])
def test_plans_rebuilt_shortly_before_the_split_have_emitted_nothing_beyond_it(first):
    """Rebuilt plans that go as far as their windows take what they still have to emit for emitted."""
    changes = [Migrate(1, 1 - first, "gen-mig", SPLIT), Rebuild(3, "moving-state")]
    MigrationCase(BEYOND_THE_SPLIT, changes, first_plan=first).check()


def test_the_old_plan_does_not_emit_what_ends_because_it_was_cut_at_the_split():
    """A plan that takes over does not know the cut: it would emit the whole segment, from 8 to 12."""
    played = MigrationCase(BEYOND_THE_SPLIT, [Migrate(1, 1, "gen-mig", SPLIT), Migrate(3, 0, "jisc")]).check()
    assert (len(played.migrations), played.refused) == (2, 0)


def test_the_new_plan_emits_nothing_final_before_the_watermark_reaches_the_split():
    """The plan that takes over begins where the old plan stands, and would emit it again."""
    changes = [Migrate(1, 0, "gen-mig", SPLIT), Migrate(3, 1, "jisc")]
    played = MigrationCase(BEYOND_THE_SPLIT, changes, first_plan=1).check()
    assert (len(played.migrations), played.refused) == (2, 0)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("rebuild", ["moving-state", "jisc"])
def test_what_was_emitted_of_an_open_segment_meets_later_rows_after_a_rebuild(first, rebuild):
    """The aggregate over ``a`` has emitted its open segment up to 16, because the other one, at 9, is replaced."""
    scenario = Scenario.from_rows(
        "SELECT x.n, y.m FROM (SELECT COUNT(*) AS n FROM a [RANGE 16 SLIDE 8]) x, "
        "(SELECT COUNT(*) AS m FROM b [RANGE 2] p, b [RANGE 2] q) y",
        STREAMS[:2],
        [{"a": [(1, 1, 1)], "b": [(1, 1, 1)]}, heartbeat(9), {"b": [(10, 1, 1)]}],
    )
    changes = [Migrate(2, 1 - first, "moving-state"), Rebuild(2, rebuild)]
    played = MigrationCase(scenario, changes, first_plan=first).check()
    assert (len(played.migrations), played.refused) == (1, 0)


@pytest.mark.parametrize("strategy", ["moving-state", "jisc"])
def test_rows_that_come_after_a_refused_migration_meet_what_is_final_beyond_the_watermark(strategy):
    """The aggregate that lags behind cannot take part in a join with a row at 71, for which the other is final."""
    scenario = Scenario.from_rows(
        "SELECT x.n, c.v FROM c [RANGE 20], "
        "(SELECT COUNT(*) AS n FROM a [RANGE 60 SLIDE 60], b [RANGE 60 SLIDE 60] WHERE a.k = b.k) x",
        STREAMS,
        [{name: [(1, 1, 0), (70, 1, 0)] for name in "abc"}, {"c": [(71, 1, 5)]}],
    )
    played = MigrationCase(scenario, [Migrate(1, 1, strategy)]).check()
    assert (len(played.migrations), played.refused) == (0, 1)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("strategy", ["moving-state", "jisc"])
def test_an_aggregate_over_reordered_differences_is_another_one(first, strategy):
    """One row of ``b`` ends at 8 where another begins: only if ``b`` is subtracted last, a result ends there."""
    scenario = Scenario.from_rows(
        "SELECT COUNT(*) AS n FROM (SELECT k FROM a [RANGE 20] EXCEPT ALL (SELECT k FROM b [RANGE 2]) "
        "EXCEPT ALL (SELECT DISTINCT k FROM c [RANGE 2])) d",
        STREAMS,
        [{"a": [(1, 1, 0)] * 3, "b": [(5, 1, 0), (8, 1, 0)], "c": [(2, 2, 0)]}, heartbeat(51)],
    )
    played = MigrationCase(scenario, [Migrate(2, 1 - first, strategy)], first_plan=first).check()
    assert (len(played.migrations), played.refused) == (1, 0)


@pytest.mark.parametrize("completion", ["moving-state", "jisc"])
def test_a_segment_over_a_distinct_does_not_end_where_an_equal_row_may_still_begin(completion):
    """At the watermark 6, where a row ends, an equal one may still begin; from the rows alone, that is no boundary."""
    scenario = Scenario.from_rows(
        "SELECT DISTINCT k FROM a [RANGE 4] EXCEPT ALL (SELECT k FROM b [RANGE 1]) "
        "EXCEPT ALL (SELECT v AS k FROM b [RANGE 1])",
        STREAMS[:2],
        [{"a": [(1, 1, 0)], "b": [(1, 2, 2)]}, heartbeat(6), ({"a": [(6, 1, 0)]}, 7)],
    )
    MigrationCase(scenario, [Rebuild(3, completion)]).check()


@pytest.mark.parametrize(("first", "other"), [(1, 0), (1, 2), (2, 1), (2, 3)])
def test_equal_aggregates_over_differences_in_different_orders_are_not_exchanged(first, other):
    """Both compute the same, but up to different instants: each order of the differences waits for other streams."""
    total = (
        "SELECT COUNT(*) AS n FROM (SELECT k FROM a [RANGE 8 SLIDE 8] EXCEPT ALL (SELECT k FROM b [RANGE 2]) "
        "EXCEPT ALL (SELECT k FROM c [RANGE 8 SLIDE 8])) d"
    )
    scenario = Scenario.from_rows(
        f"{total} UNION ALL {total}",
        STREAMS,
        [
            {name: [(1, 1, 0)] for name in "abc"},
            {"a": [(9, 1, 0), (10, 1, 0), (17, 1, 0)], "b": [(10, 1, 0), (12, 1, 0)], "c": [(10, 1, 0)]},
            heartbeat(26),
            heartbeat(35),
        ],
    )
    MigrationCase(scenario, [Migrate(4, other, "moving-state")], first_plan=first).check()
