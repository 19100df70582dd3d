"""``migrate`` and ``rebuild`` as a user sees them: what they take, refuse, record and change; and that results are
exact, whatever happens on the way."""

from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.algebra.plan import Union
from midstream.engine.state.window_store import Rows
from midstream.errors import BadJoinOrder, BadPlan, FinishedRun, MigrationRefused
from midstream.planning.rules.split_conjunctions import split_conjunctions
from midstream.runtime.cell import Cell
from midstream.testing import STRATEGIES, assert_same_bag, assert_snapshot_equivalent, join_intervals, snapshots

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64()})
STREAMS = [Stream(name, SCHEMA, "ts", lateness=2) for name in "abcd"]

WAYS = {name: way for name, way in STRATEGIES.items() if name != "pause-drain-resume"}

FOUR = (
    "SELECT a.ts AS i, b.ts AS j, c.ts AS l, d.ts AS m"
    " FROM a [RANGE 10], b [RANGE 8], c [RANGE 10], d [RANGE 6 SLIDE 3]"
    " WHERE a.k = b.k AND b.k = c.k AND c.k = d.k"
)
QUERY = ContinuousQuery(FOUR, STREAMS)
LEFT_DEEP, RIGHT_DEEP, BUSHY, OTHER = "((a b) c) d", "a (b (c d))", "(a c) (b d)", "((d b) c) a"
ORDERS = [RIGHT_DEEP, BUSHY, OTHER, LEFT_DEEP]
TICKS = 40


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
    assert result.num_rows > 200
    return result


def play(run, changes=None, until=TICKS):
    """The results of all pushes, with the changes (functions of the run) before the pushes of their numbers."""
    results = []
    for number, step in enumerate(pushes()[:until]):
        for change in (changes or {}).get(number, []):
            change(run)
        results.append(run.push(step))
    return results


def as_tuples(table):
    return sorted(zip(*table.to_pydict().values(), strict=True))


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
    (RIGHT_DEEP, "jsic", {}, MigrationRefused, "M3004", "no migration strategy 'jsic'", 'Did you mean "jisc"?'),
    (RIGHT_DEEP, None, {}, MigrationRefused, "M3004", "no migration strategy None", None),
    (RIGHT_DEEP, "gen-mig", {"shortend": True}, MigrationRefused, "M3004", 'no option "shortend"', '"shortened"'),
    (RIGHT_DEEP, "jisc", {"variant": "x"}, MigrationRefused, "M3004", 'no option "variant"', None),
    (RIGHT_DEEP, "moving-state", {"shortened": 1}, MigrationRefused, "M3004", 'no option "shortened"', None),
    (RIGHT_DEEP, "gen-mig", {"shortened": "yes"}, MigrationRefused, "M3004", "of gen-mig is 'yes'", "True or False"),
    (RIGHT_DEEP, "gen-mig", {"variant": ["x"]}, MigrationRefused, "M3004", "no variant", None),
    (RIGHT_DEEP, "parallel-track", {"_other": 1}, MigrationRefused, "M3004", 'no option "_other"', None),
    (RIGHT_DEEP, "gen-mig", {"variant": "coalesc"}, MigrationRefused, "M3004", "no variant 'coalesc'", '"coalesce"'),
    (RIGHT_DEEP, "gen-mig", {"variant": None}, MigrationRefused, "M3004", "no variant None", None),
    (RIGHT_DEEP, "pause-drain-resume", {}, MigrationRefused, "M3004", "plan with state", "jisc or moving-state"),
    ("a (b c)", "jisc", {}, BadJoinOrder, "M2002", 'does not name "d"', "Name each alias"),
    ("a (b (c e))", "jisc", {}, BadJoinOrder, "M2002", 'names "e"', "aliases, parentheses and braces"),
    ("a (b (c d)", "jisc", {}, BadJoinOrder, "M2002", "does not close", None),
    (FOREIGN.plan(), "jisc", {}, BadPlan, "M2001", "not one of this query's", "plan() or plans()"),
    (17, "jisc", {}, BadPlan, "M2001", "not one of this query's", "plan() or plans()"),
]


@pytest.mark.parametrize(("plan", "strategy", "options", "kind", "code", "text", "hint"), REFUSALS)
def test_what_is_refused_changes_nothing(plan, strategy, options, kind, code, text, hint):
    def refused(run):
        before = run.plan, run.migrating, run.metrics()
        with pytest.raises(kind, match=text) as refusal:
            run.migrate(plan, strategy, **options)
        assert refusal.value.code == code
        assert str(refusal.value).startswith(f"[{code}]")
        assert (refusal.value.hint is None) == (hint is None)
        assert hint is None or hint in refusal.value.hint
        assert (run.plan, run.migrating, run.metrics()) == before

    run = QUERY.run_locally(LEFT_DEEP)
    # Before the first row, in mid-stream, and during a migration.
    results = play(run, {0: [refused], 20: [refused, to(BUSHY, "parallel-track")], 24: [refused]})
    assert [record["strategy"] for record in run.metrics()["migrations"]] == ["parallel-track"]
    assert_exact(run, results)


def test_a_way_to_rebuild_that_does_not_exist_is_refused():
    run = QUERY.run_locally(LEFT_DEEP)
    results = play(run, until=20)
    with pytest.raises(MigrationRefused, match="cannot be rebuilt by 'parallel-track'") as refusal:
        run.rebuild("parallel-track")
    assert refusal.value.code == "M3004"
    assert "moving-state" in refusal.value.detail
    results += [run.push(step) for step in pushes()[20:]]
    assert_exact(run, results)


@pytest.mark.parametrize("change", [lambda run: run.migrate(BUSHY), lambda run: run.rebuild()])
def test_a_finished_run_is_not_changed(change):
    run = QUERY.run_locally(LEFT_DEEP)
    run.finish()
    with pytest.raises(FinishedRun) as refusal:
        change(run)
    assert refusal.value.code == "M3002"
    assert run.plan == QUERY.plan(LEFT_DEEP)


ENDLESS = FOUR.replace("b [RANGE 8]", "b [RANGE UNBOUNDED]")


@pytest.mark.parametrize("way", WAYS)
def test_unbounded_windows_are_refused_by_strategies_that_wait_for_their_end(way):
    query = ContinuousQuery(ENDLESS, STREAMS)
    run = query.run_locally(LEFT_DEEP)
    results = [run.push(step) for step in pushes()[:20]]
    strategy, options = WAYS[way]
    if strategy in ("parallel-track", "gen-mig"):
        with pytest.raises(MigrationRefused, match=f"{strategy} never ends") as refusal:
            run.migrate(RIGHT_DEEP, strategy, **options)
        assert "moving-state or jisc" in refusal.value.hint
        assert (run.plan, run.metrics()["migrations"]) == (query.plan(LEFT_DEEP), [])
    else:
        run.migrate(RIGHT_DEEP, strategy, **options)
    results += [run.push(step) for step in pushes()[20:]]
    tables = pa.concat_tables([*results, run.finish()])
    assert_same_bag(tables, join_intervals(ENDLESS, STREAMS, whole_input()))


OTHER_OPERATORS = {
    "distinct": "SELECT DISTINCT a.k, b.k AS j FROM a [RANGE 10], b [RANGE 8] WHERE a.k = b.k",
    "aggregate": "SELECT a.k, COUNT(*) AS n FROM a [RANGE 10], b [RANGE 8] WHERE a.k = b.k GROUP BY a.k",
    "difference": "SELECT k FROM a [RANGE 10] EXCEPT ALL SELECT k FROM b [RANGE 8] EXCEPT ALL SELECT k FROM c [NOW]",
}


def play_others(text, changes):
    """As ``play``, for another query; from its first plan, against the oracle's snapshots. The run when it is over."""
    used = [stream for stream in STREAMS if f"FROM {stream.name} [" in text or f", {stream.name} [" in text]
    query = ContinuousQuery(text, used)
    plans = list(query.plans())
    run = query.run_locally(plans[0])
    results = []
    for number, step in enumerate(pushes()):
        if number in changes:
            changes[number](run, plans)
        results.append(run.push({stream.name: step[stream.name] for stream in used}))
    results.append(run.finish())
    assert all(begin < end for result in results for *_, begin, end in as_tuples(result))
    tables = {stream.name: whole_input()[stream.name] for stream in used}
    assert_snapshot_equivalent(pa.concat_tables(results), snapshots(text, used, tables, range(-2, TICKS + 12)))
    return run


def refused(strategy, options, text, hint):
    """A change to another plan than the one in force that must be refused."""

    def change(run, plans):
        before = run.plan, run.migrating, run.metrics()
        other = next(plan for plan in reversed(plans) if plan != run.plan)
        with pytest.raises(MigrationRefused, match=text) as refusal:
            run.migrate(other, strategy, **options)
        assert refusal.value.code == "M3004"
        assert hint in refusal.value.hint
        assert (run.plan, run.migrating, run.metrics()) == before

    return change


@pytest.mark.parametrize("name", OTHER_OPERATORS)
@pytest.mark.parametrize("as_published", [False, True])
def test_parallel_track_is_refused_with_operators_it_gets_wrong(name, as_published):
    options = {"as_published": as_published}
    change = refused("parallel-track", options, f"parallel-track cannot change a plan with {name}", "Use gen-mig")
    assert play_others(OTHER_OPERATORS[name], {20: change}).metrics()["migrations"] == []


@pytest.mark.parametrize("name", OTHER_OPERATORS)
def test_reference_points_are_refused_with_operators_they_get_wrong(name):
    change = refused("gen-mig", {"variant": "reference-point"}, f"cannot change a plan with {name}", "coalesce")
    assert play_others(OTHER_OPERATORS[name], {20: change}).metrics()["migrations"] == []


@pytest.mark.parametrize("name", OTHER_OPERATORS)
@pytest.mark.parametrize("way", [way for way in WAYS if not way.startswith(("parallel-track", "reference-point"))])
def test_other_strategies_change_any_plan(name, way):
    strategy, options = WAYS[way]

    def change(run, plans):
        run.migrate(plans[-1], strategy, **options)
        assert run.plan == plans[-1]

    def back(run, plans):
        run.migrate(plans[0], strategy, **options)

    run = play_others(OTHER_OPERATORS[name], {20: change, 24: back, 36: change})
    assert len(run.metrics()["migrations"]) == 3


@pytest.mark.parametrize("rebuild", ["moving-state", "jisc"])
@pytest.mark.parametrize("name", OTHER_OPERATORS)
@pytest.mark.parametrize("way", ["moving-state", "jisc", "coalesce", "positive-negative"])
def test_a_rebuilt_plan_knows_what_its_predecessor_has_told(name, way, rebuild):
    strategy, options = WAYS[way]

    def change(run, plans):
        run.migrate(plans[-1], strategy, **options)
        run.rebuild(rebuild)

    def rebuilt(run, plans):
        run.rebuild(rebuild)

    play_others(OTHER_OPERATORS[name], {20: change, 21: rebuilt, 25: rebuilt, 30: rebuilt, 32: rebuilt})


UNITED = (
    "SELECT a.k AS k, COUNT(*) AS n FROM a [RANGE 10], b [RANGE 8] WHERE a.k = b.k GROUP BY a.k"
    " UNION ALL SELECT k, ts AS n FROM c [RANGE 10]"
)
AHEAD = (
    "SELECT x.n, c.k FROM c [RANGE 10], d [NOW],"
    " (SELECT a.k AS k, COUNT(*) AS n FROM a [RANGE 14 SLIDE 7], b [RANGE 7 SLIDE 7] WHERE a.k = b.k GROUP BY a.k) x"
    " WHERE c.k = d.k"
)
"""The aggregate is final up to the next multiple of 7, the other rows up to the watermark."""


@pytest.mark.parametrize("way", ["moving-state", "jisc", "coalesce", "positive-negative"])
def test_aggregates_united_with_other_rows_are_replaced(way):
    """The aggregates are emitted when they are final, the other rows at once."""
    strategy, options = WAYS[way]

    def change(run, plans):
        run.migrate(next(plan for plan in reversed(plans) if plan != run.plan), strategy, **options)

    run = play_others(UNITED, {20: change, 21: change, 36: change})
    assert len(run.metrics()["migrations"]) == 3


def lagging(plans):
    """A plan with a partial aggregate below the join of the other aggregate."""
    return next(plan for plan in plans if plan.explain().count("Aggregate") == 2)


@pytest.mark.parametrize("strategy", ["moving-state", "jisc"])
def test_an_aggregate_ahead_of_other_rows_is_replaced_only_when_they_have_caught_up(strategy):
    """The successor cannot know what has been emitted beyond the other rows: its partial aggregate lags behind."""
    outcomes = {}

    def change(run, plans):
        before = run.plan, run.migrating, run.metrics()
        try:
            run.migrate(lagging(plans), strategy)
        except MigrationRefused as refusal:
            assert "cannot replace a plan whose results are final up to different instants" in str(refusal)
            assert (refusal.code, "Use gen-mig" in refusal.hint) == ("M3004", True)
            assert (run.plan, run.migrating, run.metrics()) == before
            outcomes[run.watermark % 7] = False
        else:
            outcomes[run.watermark % 7] = True
            run.migrate(plans[0], strategy)

    play_others(AHEAD, dict.fromkeys(range(4, 40), change))
    assert outcomes == {phase: phase == 0 for phase in range(7)}


@pytest.mark.parametrize("strategy", ["moving-state", "jisc"])
@pytest.mark.parametrize("way", ["coalesce", "coalesce, shortened", "positive-negative"])
def test_a_refusal_does_not_disturb_a_migration_under_way(way, strategy):
    def begin(run, plans):
        other = next(plan for plan in plans if plan not in (run.plan, lagging(plans)))
        run.migrate(other, WAYS[way][0], **WAYS[way][1])

    def change(run, plans):
        assert run.watermark % 7
        before = run.plan, run.migrating, run.metrics()
        with pytest.raises(MigrationRefused, match="final up to different instants"):
            run.migrate(lagging(plans), strategy)
        assert (run.plan, run.migrating, run.metrics()) == before

    run = play_others(AHEAD, {20: begin, 23: change})
    assert [record["strategy"] for record in run.metrics()["migrations"]] == ["gen-mig"]


# What it records

FIELDS = {
    "number", "decision", "strategy", "options", "old_plan", "new_plan", "began_at", "ended_at", "state", "is_over",
    "seconds", "states_shared", "states_incomplete", "rows_recomputed", "rows_buffered", "old_results", "new_results",
}  # fmt: skip


def dense(query_text, order, ticks, start=0):
    """A run of one key, with a row per stream and tick."""
    names = [name for name in "abcd" if f"{name} [" in query_text]
    run = ContinuousQuery(query_text, [Stream(name, SCHEMA, "ts") for name in names]).run_locally(order)
    for time in range(start, start + ticks):
        run.push({name: rows((time, 1)) for name in names})
    return run


THREE = (
    "SELECT a.ts AS i, b.ts AS j, c.ts AS l FROM a [RANGE 4], b [RANGE 4], c [RANGE 4] WHERE a.k = b.k AND b.k = c.k"
)


@pytest.mark.parametrize("way", WAYS)
def test_every_migration_has_a_record(way):
    run = dense(THREE, "(a b) c", 10)
    strategy, options = WAYS[way]
    old = run.plan.explain()
    run.migrate("a (b c)", strategy, **options)
    (record,) = run.metrics()["migrations"]
    assert set(record) == FIELDS
    assert (record["strategy"], record["options"]) == (strategy, options)
    assert (record["old_plan"], record["new_plan"]) == (old, run.plan.explain())
    assert (record["began_at"], record["decision"]) == (9, None), "a person has asked for it"
    assert record["is_over"] == (way == "moving-state") == (not run.migrating)
    run.push({name: rows((30, 1)) for name in "abc"})
    (record,) = run.metrics()["migrations"]
    assert (record["is_over"], run.migrating) == (True, False)
    assert record["ended_at"] == (9 if way == "moving-state" else 30)
    assert record["seconds"] >= 0


@pytest.mark.parametrize("strategy", ["moving-state", "jisc"])
def test_the_record_tells_what_was_shared_and_what_was_computed(strategy):
    """Five rows are alive in each window, so that the state of (b c) has 25 tuples; a, b and c are shared."""
    run = dense(THREE, "(a b) c", 10)
    run.migrate("a (b c)", strategy)
    (record,) = run.metrics()["migrations"]
    computed = (record["states_shared"], record["states_incomplete"], record["rows_recomputed"])
    assert computed == ((3, 0, 25) if strategy == "moving-state" else (3, 1, 0))
    assert (record["old_results"], record["new_results"], record["rows_buffered"]) == (0, 0, 0)


def test_parallel_track_records_what_each_box_gave_and_what_was_buffered():
    """Three streams of one key, a row per tick each, rows valid for five ticks; the last old ones end at 14.

    n new rows in each window give n³ results in the new box that wait, and the old box gives the others.
    """
    run = dense(THREE, "(a b) c", 10)
    run.migrate("a (b c)", "parallel-track")
    held, given = [], []
    for time in range(10, 16):
        given.append(run.push({name: rows((time, 1)) for name in "abc"}).num_rows)
        held.append(run.metrics()["buffered"])
    # All combinations of five alive rows that contain one of the newest rows; the new box knows 1, 2, 3, 4, 5 of five.
    assert held == [1, 8, 27, 64, 0, 0]
    assert given == [61 - 1, 61 - 7, 61 - 19, 61 - 37, 61 + 64, 61]
    (record,) = run.metrics()["migrations"]
    assert (record["old_results"], record["new_results"], record["rows_buffered"]) == (60 + 54 + 42 + 24 + 0, 125, 125)
    assert (record["began_at"], record["ended_at"]) == (9, 14)


def test_gen_mig_records_what_each_box_gave_and_holds_back_nothing():
    run = dense(THREE, "(a b) c", 10)
    run.migrate("a (b c)", "gen-mig")
    for time in range(10, 16):
        assert run.push({name: rows((time, 1)) for name in "abc"}).num_rows == 61
        assert run.metrics()["buffered"] == 0
    (record,) = run.metrics()["migrations"]
    # Before the split, at 14, all results are the old box's; the row of 14 makes 61 that are the new one's alone.
    assert record["old_results"] == 4 * 61
    assert record["new_results"] == 4**3 - 3**3 + 3**3 - 2**3 + 2**3 - 1 + 1 + 61
    assert (record["rows_buffered"], record["began_at"], record["ended_at"]) == (0, 9, 14)


@pytest.mark.parametrize(
    ("way", "migrating"),
    [
        ("moving-state", [False] * 14),
        ("jisc", [True] + [False] * 13),
        ("jisc as published", [True] * 5 + [False] * 9),
        ("parallel-track", [True] * 5 + [False] * 9),
        ("parallel-track as published", [True] * 10 + [False] * 4),
        ("coalesce", [True] * 5 + [False] * 9),
        ("coalesce, shortened", [True] * 5 + [False] * 9),
        ("reference-point", [True] * 5 + [False] * 9),
        ("positive-negative", [True] * 5 + [False] * 9),
    ],
)
def test_a_run_is_migrating_for_as_long_as_the_strategy_takes(way, migrating):
    """Right after ``migrate``, and after each of the following pushes; the last old rows end at 14.

    For jisc nobody asks for the old key: as published it waits for the old rows to end, otherwise it is swept.
    """
    run = dense(THREE, "(a b) c", 10)
    strategy, options = WAYS[way]
    run.migrate("a (b c)", strategy, **options)
    seen = [run.migrating]
    for time in range(10, 23):
        run.push({name: rows((time, 2 if way.startswith("jisc") else 1)) for name in "abc"})
        seen.append(run.migrating)
    assert seen == migrating


@pytest.mark.parametrize("way", [way for way in WAYS if not way.startswith(("moving-state", "jisc"))])
def test_the_rows_that_end_last_need_not_have_come_last(way):
    """The rows of 30 end at 35; those of 28 came after them, late but not too late."""
    streams = [Stream(name, SCHEMA, "ts", lateness=5) for name in "abc"]
    run = ContinuousQuery(THREE, streams).run_locally("(a b) c")
    results = [run.push({name: rows((time, 1)) for name in "abc"}) for time in (30, 28)]
    to("a (b c)", way)(run)
    over = []
    for watermark in range(32, 41):
        results.append(run.push({"b": rows((watermark, 1))}, watermark=watermark))
        over.append(not run.migrating)
    assert over == ([watermark >= (40 if "published" in way else 35) for watermark in range(32, 41)])
    tables = {"a": rows((30, 1), (28, 1)), "b": rows((30, 1), (28, 1), *((t, 1) for t in range(32, 41)))}
    expected = join_intervals(THREE, streams, {**tables, "c": tables["a"]})
    assert_same_bag(pa.concat_tables([*results, run.finish()]), expected)


def test_gen_mig_splits_a_longest_window_after_the_latest_start():
    """The latest start is 30, of a row in a short window that was not the last to come; the longest validity is 41."""
    text = "SELECT a.ts AS i, b.ts AS j FROM a [RANGE 40], b [RANGE 2] WHERE a.k = b.k"
    streams = [Stream(name, SCHEMA, "ts", lateness=5) for name in "ab"]
    run = ContinuousQuery(text, streams).run_locally("a b")
    for step in ({"a": rows((0, 1))}, {"b": rows((30, 1))}, {"b": rows((28, 1))}):
        run.push(step)
    run.migrate("b a", "gen-mig")
    run.push({}, watermark=70)
    assert run.migrating
    run.push({}, watermark=71)
    assert not run.migrating


@pytest.mark.parametrize("way", WAYS)
def test_a_migration_before_the_first_row_has_nothing_to_wait_for(way):
    run = QUERY.run_locally(LEFT_DEEP)
    to(RIGHT_DEEP, way)(run)
    first = run.push(pushes()[0])
    assert not run.migrating
    (record,) = run.metrics()["migrations"]
    assert (record["is_over"], record["began_at"]) == (True, None)
    results = [first, *(run.push(step) for step in pushes()[1:])]
    assert_exact(run, results)


# What happens on the way


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("until", [20, 21, 25, 30])
def test_finish_in_mid_migration_gives_all_the_rest(way, until):
    run = QUERY.run_locally(LEFT_DEEP)
    results = play(run, {16: [to(RIGHT_DEEP, way)]}, until=until)
    if until == 20:
        to(BUSHY, way)(run)
    results.append(run.finish())
    tables = {name: pa.concat_tables(step[name] for step in pushes()[:until]) for name in "abcd"}
    assert_same_bag(pa.concat_tables(results), join_intervals(FOUR, STREAMS, tables))
    assert not run.migrating
    assert all(record["is_over"] for record in run.metrics()["migrations"])


@pytest.mark.parametrize("second", WAYS)
@pytest.mark.parametrize("first", WAYS)
def test_migrations_overlap_in_any_combination(first, second):
    """Two at once, before the first is over, three deep, and one after the other."""
    run = QUERY.run_locally(LEFT_DEEP)
    changes = {
        14: [to(RIGHT_DEEP, first)],
        17: [to(BUSHY, second)],
        19: [to(OTHER, first)],
        31: [to(LEFT_DEEP, second), to(BUSHY, first)],
        38: [to(RIGHT_DEEP, second)],
    }
    results = play(run, changes)
    assert len(run.metrics()["migrations"]) == 6
    for result in results:
        begins = result.column("valid_from").to_pylist()
        assert begins == sorted(begins)
    assert_exact(run, results)


@pytest.mark.parametrize("rebuild", ["moving-state", "jisc"])
@pytest.mark.parametrize("way", WAYS)
def test_a_rebuild_changes_no_result_and_no_migration(way, rebuild):
    def rebuilt(run):
        before = run.plan, run.metrics()["migrations"], run.metrics()["buffered"]
        run.rebuild(rebuild)
        after = run.plan, run.metrics()["migrations"], run.metrics()["buffered"]
        assert after == before

    run = QUERY.run_locally(LEFT_DEEP)
    changes = {moment: [rebuilt] for moment in (0, 10, 18, 21, 36)}
    results = play(run, {**changes, 15: [to(RIGHT_DEEP, way)], 20: [rebuilt, to(BUSHY, way), rebuilt]})
    assert len(run.metrics()["migrations"]) == 2
    assert_exact(run, results)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fetched", [0, 1])
def test_a_push_whose_results_are_not_fetched_is_part_of_the_state(way, fetched):
    """The pieces that nobody fetched are lost, as it is said there; nothing else is, even during a migration."""
    whole, abandoned = QUERY.run_locally(LEFT_DEEP, chunk_rows=12), QUERY.run_locally(LEFT_DEEP, chunk_rows=12)
    for number, step in enumerate(pushes()[:34]):
        if number in (15, 24):
            for run in (whole, abandoned):
                to(RIGHT_DEEP if number == 15 else BUSHY, way)(run)
        reference = whole.push(step)
        if number in (16, 18, 25):
            pieces = abandoned.push_in_chunks(step)
            for _ in range(fetched):
                next(pieces, None)
            if number == 18:
                pieces.close()
            continue
        assert as_tuples(abandoned.push(step)) == as_tuples(reference)
        assert abandoned.migrating == whole.migrating
    assert as_tuples(abandoned.finish()) == as_tuples(whole.finish())
    assert abandoned.metrics()["results"] == whole.metrics()["results"]


LAGGING = (
    "SELECT b.ts AS i, c.ts AS j, t.n FROM (SELECT a.k AS k, COUNT(*) AS n FROM a [RANGE 20] GROUP BY a.k) t,"
    " b [RANGE 5], c [RANGE 5] WHERE t.k = b.k AND b.k = c.k"
)


@pytest.mark.parametrize("way", [way for way in WAYS if not way.startswith(("parallel-track", "reference-point"))])
@pytest.mark.parametrize("order", ["(t b) c", "(t c) b", "t (c b)"])
def test_a_state_that_was_purged_too_far_is_not_shared(order, way):
    """The count of 0 is told at 21, and meets b and c, which ended at 8 and 9.

    Below (b c) their states are purged by each other, at 15; under the total they must reach back to 0.
    """
    streams = [Stream(name, SCHEMA, "ts") for name in "abc"]
    run = ContinuousQuery(LAGGING, streams).run_locally("(b c) t")
    results = [run.push({"a": rows((0, 1)), "b": rows((2, 1)), "c": rows((3, 1))}, watermark=15)]
    to(order, way)(run)
    results += [run.push({}, watermark=watermark) for watermark in (18, 21, 30)]
    assert as_tuples(pa.concat_tables([*results, run.finish()])) == [(2, 3, 1, 3, 8)]


LAGGING_FURTHER = LAGGING.replace("c.ts AS j,", "c.ts AS j, d.ts AS l,").replace(
    "c [RANGE 5] WHERE", "c [RANGE 5], d [RANGE 5] WHERE c.k = d.k AND"
)


@pytest.mark.parametrize("way", [way for way in WAYS if not way.startswith(("parallel-track", "reference-point"))])
@pytest.mark.parametrize("order", ["t ((b c) d)", "t (d (c b))", "((b c) d) t"])
def test_what_has_been_completed_stays_as_long_as_a_join_above_may_need_it(order, way):
    """The d of 6 asks for (b c), which ends at 8; the count that is told at 21 asks for (b c d), which is made of it.

    Key 2 is asked for by nobody, so that (b c) stays incomplete.
    """
    streams = [Stream(name, SCHEMA, "ts") for name in "abcd"]
    run = ContinuousQuery(LAGGING_FURTHER, streams).run_locally("((t d) b) c")
    pushed = {"a": rows((0, 1)), "b": rows((2, 1), (4, 2)), "c": rows((3, 1), (4, 2)), "d": rows((3, 1))}
    results = [run.push(pushed, watermark=5)]
    to(order, way)(run)
    results.append(run.push({"d": rows((6, 1))}, watermark=6))
    results += [run.push({}, watermark=watermark) for watermark in (9, 12, 15, 18, 21, 30)]
    expected = [(2, 3, 3, 1, 3, 8), (2, 3, 6, 1, 6, 8)]
    assert as_tuples(pa.concat_tables([*results, run.finish()])) == expected


# Pause, drain, resume

STATELESS = "SELECT k, ts AS t FROM a [RANGE 10] WHERE k > 0 AND k < 3 UNION ALL SELECT k, ts AS t FROM b [NOW]"


def test_pause_drain_resume_changes_a_plan_without_state():
    """No query has two plans without state, so that this is tested below ``run``: sides swapped, conditions split."""
    query = ContinuousQuery(STATELESS, STREAMS)
    plan = query.plan()
    other = split_conjunctions(Union(plan.inputs[1], plan.inputs[0]))
    assert other != plan
    cell, unchanged = Cell(plan, other), Cell(plan, other)
    for number, step in enumerate(pushes()):
        arrived = {name: Rows(np.array(step[name]["ts"]), _columns(step[name])) for name in "ab"}
        if number == 20:
            cell.migrate(other, "pause-drain-resume")
        results = [_values(each.push(each.windows.of_streams(arrived), number - 2)) for each in (cell, unchanged)]
        assert results[0] == results[1]
    assert cell.plan == other
    record = cell.record(1)
    assert (record.strategy, record.began_at, record.ended_at) == ("pause-drain-resume", 17, 17)
    assert record.is_over
    assert not cell.is_migrating


@pytest.mark.parametrize("text", [FOUR, *OTHER_OPERATORS.values()])
def test_pause_drain_resume_is_refused_with_state(text):
    used = [stream for stream in STREAMS if f"FROM {stream.name} [" in text or f", {stream.name} [" in text]
    query = ContinuousQuery(text, used)
    first, *_, last = query.plans()
    run = query.run_locally(first)
    with pytest.raises(MigrationRefused, match="cannot change a plan with state") as refusal:
        run.migrate(last, "pause-drain-resume")
    assert refusal.value.hint == "Use jisc or moving-state."
    assert "would be lost" in refusal.value.detail
    assert (run.plan, run.metrics()["migrations"]) == (first, [])


def _columns(table):
    return {name: table[name].combine_chunks() for name in table.column_names}


def _values(batches):
    rows = []
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns()]
        rows += zip(batch.valid_from.tolist(), batch.valid_to.tolist(), *columns, strict=True)
    return sorted(rows)
