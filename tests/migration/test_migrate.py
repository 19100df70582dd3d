"""``migrate`` and ``rebuild`` as a user sees them: what they take, refuse, record and change, and that results are exact
whatever happens on the way."""

from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.algebra.plan import Union
from midstream.engine.windows import Rows
from midstream.errors import BadJoinOrder, BadMigration, BadPlan, FinishedRun
from midstream.migration.cell import Cell
from midstream.planning.rules.split_conjunctions import split_conjunctions
from midstream.testing import assert_same_bag, assert_snapshot_equivalent, join_intervals, snapshots

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64()})
STREAMS = [Stream(name, SCHEMA, "ts", lateness=2) for name in "abcd"]

WAYS = {
    "moving-state": ("moving-state", {}),
    "jisc": ("jisc", {}),
    "parallel-track": ("parallel-track", {}),
    "parallel-track as published": ("parallel-track", {"as_published": True}),
    "coalesce": ("gen-mig", {}),
    "coalesce, shortened": ("gen-mig", {"shortened": True}),
    "reference-point": ("gen-mig", {"variant": "reference-point"}),
    "positive-negative": ("gen-mig", {"variant": "positive-negative"}),
}

FOUR = (
    "SELECT a.ts AS i, b.ts AS j, c.ts AS l, d.ts AS m FROM a [RANGE 10], b [RANGE 8], c [RANGE 10], d [RANGE 6 SLIDE 3]"
    " WHERE a.k = b.k AND b.k = c.k AND c.k = d.k"
)
QUERY = ContinuousQuery(FOUR, STREAMS)
LEFT_DEEP, RIGHT_DEEP, BUSHY, OTHER = "((a b) c) d", "a (b (c d))", "(a c) (b d)", "((d b) c) a"
ORDERS = [RIGHT_DEEP, BUSHY, OTHER, LEFT_DEEP]
TICKS = 56


def rows(*values):
    """A table of (ts, k)."""
    columns = list(zip(*values, strict=True)) or [[], []]
    return pa.table([pa.array(column, pa.int64()) for column in columns], schema=SCHEMA)


@cache
def pushes():
    """About a row per stream and tick, up to two ticks late, the same for all tests."""
    random = np.random.default_rng(11)
    steps = []
    for time in range(TICKS):
        counts = random.integers(0, 3, 4)
        steps.append(
            {
                name: rows(*((time - int(late), int(k)) for late, k in random.integers(0, [3, 4], (count, 2))))
                for name, count in zip("abcd", counts, strict=True)
            }
        )
    return steps


def whole_input():
    return {name: pa.concat_tables(step[name] for step in pushes()) for name in "abcd"}


@cache
def expected():
    result = join_intervals(FOUR, STREAMS, whole_input())
    assert result.num_rows > 400
    return result


def play(run, changes=None, until=TICKS):
    """The results of all pushes, with the changes (functions of the run) before the pushes of their numbers."""
    results = []
    for number, step in enumerate(pushes()[:until]):
        for change in (changes or {}).get(number, []):
            change(run)
        results.append(run.push(step))
    return results


def to(order, way):
    """A change to another plan."""
    strategy, options = WAYS[way]
    return lambda run: run.migrate(order, strategy, **options)


def assert_exact(run, results):
    assert_same_bag(pa.concat_tables([*results, run.finish()]), expected())
    assert not run.migrating
    assert all(record["is_over"] for record in run.metrics()["migrations"])


# What it takes


@pytest.mark.parametrize("plan", [BUSHY, QUERY.plan(BUSHY), list(QUERY.plans())[-1]])
def test_the_new_plan_is_a_join_order_or_a_plan(plan):
    run = QUERY.run_locally(LEFT_DEEP)
    results = play(run, {20: [lambda run: run.migrate(plan)]})
    assert run.plan == (QUERY.plan(plan) if isinstance(plan, str) else plan)
    assert run.metrics()["migrations"][0]["strategy"] == "jisc"
    assert_exact(run, results)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("moment", [0, 1, 20, TICKS - 1])
def test_a_migration_at_any_moment_changes_no_result(way, moment):
    run = QUERY.run_locally(LEFT_DEEP)
    results = play(run, {moment: [to(RIGHT_DEEP, way)]})
    assert run.plan == QUERY.plan(RIGHT_DEEP)
    assert_exact(run, results)


def test_a_change_to_the_plan_in_force_is_none():
    run = QUERY.run_locally(LEFT_DEEP)
    results = play(run, {20: [to(LEFT_DEEP, way) for way in WAYS]})
    assert run.metrics()["migrations"] == []
    assert not run.migrating
    assert_exact(run, results)


def test_a_change_to_where_a_migration_leads_already_is_none():
    run = QUERY.run_locally(LEFT_DEEP)
    results = play(run, {20: [to(BUSHY, "coalesce")], 22: [to(BUSHY, "parallel-track"), to(BUSHY, "moving-state")]})
    assert [record["strategy"] for record in run.metrics()["migrations"]] == ["gen-mig"]
    assert_exact(run, results)


# What it refuses

FOREIGN = ContinuousQuery("SELECT a.ts AS i FROM a [RANGE 10], b [RANGE 8] WHERE a.k = b.k", STREAMS)
REFUSALS = [
    (RIGHT_DEEP, "jsic", {}, BadMigration, "M3004", "no migration strategy 'jsic'", 'Did you mean "jisc"?'),
    (RIGHT_DEEP, None, {}, BadMigration, "M3004", "no migration strategy None", None),
    (RIGHT_DEEP, "gen-mig", {"shortend": True}, BadMigration, "M3004", 'no option "shortend"', '"shortened"'),
    (RIGHT_DEEP, "jisc", {"variant": "x"}, BadMigration, "M3004", 'no option "variant"', None),
    (RIGHT_DEEP, "gen-mig", {"variant": "coalesc"}, BadMigration, "M3004", "no variant 'coalesc'", '"coalesce"'),
    (RIGHT_DEEP, "gen-mig", {"variant": None}, BadMigration, "M3004", "no variant None", None),
    (RIGHT_DEEP, "pause-drain-resume", {}, BadMigration, "M3004", "plan with state", "jisc or moving-state"),
    ("a (b c)", "jisc", {}, BadJoinOrder, "M2002", 'does not name "d"', "Name each alias"),
    ("a (b (c e))", "jisc", {}, BadJoinOrder, "M2002", 'names "e"', "aliases and parentheses"),
    ("a (b (c d)", "jisc", {}, BadJoinOrder, "M2002", "does not close", None),
    (FOREIGN.plan(), "jisc", {}, BadPlan, "M2001", "not one of this query's", r"plan\(\) or plans\(\)"),
    (17, "jisc", {}, BadPlan, "M2001", "not one of this query's", r"plan\(\) or plans\(\)"),
]


@pytest.mark.parametrize(("plan", "strategy", "options", "kind", "code", "text", "hint"), REFUSALS)
def test_what_is_refused_changes_nothing(plan, strategy, options, kind, code, text, hint):
    def refused(run):
        before = run.plan, run.migrating, run.metrics()
        with pytest.raises(kind, match=text) as refusal:
            run.migrate(plan, strategy, **options)
        assert refusal.value.code == code
        assert str(refusal.value).startswith(f"[{code}]")
        if hint is not None:
            assert pytest.raises(AssertionError, match=hint, check=None) if False else True
            assert __import__("re").search(hint, refusal.value.hint)
        assert (run.plan, run.migrating, run.metrics()) == before

    run = QUERY.run_locally(LEFT_DEEP)
    # Before the first row, in mid-stream, and during a migration.
    results = play(run, {0: [refused], 20: [refused, to(BUSHY, "parallel-track")], 24: [refused]})
    assert [record["strategy"] for record in run.metrics()["migrations"]] == ["parallel-track"]
    assert_exact(run, results)
