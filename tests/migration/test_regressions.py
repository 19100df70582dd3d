"""Defects that were found once, each with its smallest example."""

import gc
import weakref
from decimal import Decimal
from itertools import islice, product

import numpy as np
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.engine.operators.join_side import JoinSide
from midstream.errors import BrokenRun, MigrationRefused
from midstream.testing import (
    Migrate,
    MigrationCase,
    Scenario,
    assert_same_bag,
    assert_snapshot_equivalent,
    heartbeat,
    join_intervals,
    script,
    snapshots,
    whole_input,
)

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "v": pa.int64()})
STREAMS = [Stream(name, SCHEMA, "ts") for name in "abcd"]


def rows(*values):
    return pa.table(dict(zip(SCHEMA.names, zip(*values, strict=True), strict=True)), schema=SCHEMA)


@pytest.mark.parametrize("chosen", ["b.v AS v", "a.v + b.v AS v"])
def test_a_result_with_an_old_row_of_which_no_column_is_left_is_not_taken_for_a_new_one(chosen):
    """Parallel track left such results out in the old box, and the new box does not have them."""
    text = (
        f"SELECT x.v, c.v AS cv FROM (SELECT b.k AS k, {chosen} FROM a [RANGE 50] a, b [RANGE 50] b WHERE a.k = b.k) x,"
        " c [RANGE 50] c, d [RANGE 50] d WHERE x.k = c.k AND c.k = d.k"
    )
    run = ContinuousQuery(text, STREAMS).run_locally("(x c) d")
    run.push({"a": rows((0, 1, 5)), "b": rows((0, 9, 0)), "c": rows((0, 9, 0)), "d": rows((0, 9, 0))})
    run.migrate("x (c d)", "parallel-track")
    results = [run.push({name: rows((1, 1, 7)) for name in "bcd"}), run.finish()]
    assert pa.concat_tables(results).num_rows == 1


@pytest.mark.parametrize("strategy", ["moving-state", "jisc"])
def test_equal_subqueries_keep_their_own_rows(strategy):
    """The stores of two subqueries with the same text were exchanged."""
    streams = [Stream(name, SCHEMA, "ts") for name in "abcde"]
    x = "(SELECT a.k AS k, a.v + b.v AS s FROM a [RANGE 5], b [RANGE 5], e [RANGE 5] WHERE a.k = b.k AND b.k = e.k) x"
    text = (
        f"SELECT x.s AS s, c.v AS w FROM {x}, c [RANGE 5] WHERE x.k = c.k"
        f" UNION ALL SELECT x.s AS s, d.v AS w FROM {x}, d [RANGE 5] WHERE x.k = d.k"
    )
    query = ContinuousQuery(text, streams)
    plans = list(islice(query.plans(), 2))
    generator = np.random.default_rng(1)
    data = [
        {
            name: pa.table({"ts": [now] * 3, "k": generator.integers(0, 3, 3), "v": generator.integers(0, 1000, 3)})
            for name in "abcde"
        }
        for now in range(5)
    ]
    run = query.run_locally(plans[1])
    results = [run.push(tables) for tables in data[:3]]
    run.migrate(plans[0], strategy)
    results += [*(run.push(tables) for tables in data[3:]), run.finish()]
    whole = {name: pa.concat_tables([tables[name] for tables in data]) for name in "abcde"}
    assert_same_bag(pa.concat_tables(results), join_intervals(text, streams, whole))


def test_the_highest_key_of_all_is_completed_once():
    """The sweep through incomplete states never passed the code 2^63 - 1."""
    text = "SELECT a.v FROM a [RANGE 50], b [RANGE 50], c [RANGE 50] WHERE a.k = b.k AND b.k = c.k"
    for key in (5, 2**63 - 1, -(2**63)):
        counts = []
        for strategy in (None, "jisc"):
            run = ContinuousQuery(text, STREAMS).run_locally("(a b) c")
            count = 0
            for now in range(8):
                if now == 4 and strategy:
                    run.migrate("a (b c)", strategy)
                count += run.push(
                    {n: rows((now, key, 1)) for n in ("bc" if now < 4 else "c" if now < 7 else "a")}
                ).num_rows
            counts.append(count + run.finish().num_rows)
        assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("strategy", ["moving-state", "jisc"])
def test_states_that_know_less_than_has_been_told_are_not_shared(strategy):
    """A plan with a partial aggregate lags: what its other states have purged may not have been told."""
    text = (
        "SELECT a.k, COUNT(*) AS n FROM a [RANGE 10], b [RANGE 30], c [RANGE 20]"
        " WHERE a.k = b.k AND b.k = c.k GROUP BY a.k"
    )
    query = ContinuousQuery(text, STREAMS)
    plans = list(islice(query.plans(), 20))
    old = next(plan for plan in plans if "Aggregate COUNT(*) AS partial_1 BY b.k" in plan.explain())
    for new in plans:
        run = query.run_locally(old)
        results = [
            run.push({"a": rows((42, 0, 1)), "b": rows((42, 0, 1))}),
            run.push({"c": rows((46, 0, 1))}),
            run.push({"a": rows((56, 3, 1)), "b": rows((57, 2, 1)), "c": rows((56, 2, 1))}),
        ]
        run.migrate(new, strategy)
        results.append(run.finish())
        whole = {
            "a": rows((42, 0, 1), (56, 3, 1)),
            "b": rows((42, 0, 1), (57, 2, 1)),
            "c": rows((46, 0, 1), (56, 2, 1)),
        }
        assert_snapshot_equivalent(pa.concat_tables(results), snapshots(text, STREAMS[:3], whole))


@pytest.mark.parametrize("strategy", ["gen-mig", "parallel-track"])
def test_endless_overlapping_is_refused_before_the_stack_ends(strategy):
    text = "SELECT a.v FROM a [RANGE 9999], b [RANGE 9999], c [RANGE 9999] WHERE a.k = b.k AND b.k = c.k"
    run = ContinuousQuery(text, STREAMS).run_locally("(a b) c")
    results = 0
    with pytest.raises(MigrationRefused, match="side by side"):
        for now in range(100):
            results += run.push({name: rows((now, now, 1)) for name in "abc"}).num_rows
            run.migrate("a (b c)" if now % 2 == 0 else "(a b) c", strategy)
    results += run.push({name: rows((now + 1, now + 1, 1)) for name in "abc"}).num_rows
    run.migrate("(a c) b", "jisc")
    assert results + run.finish().num_rows == now + 2


@pytest.mark.parametrize("strategy", ["jisc", "moving-state", "gen-mig", "parallel-track"])
def test_boxes_that_have_been_replaced_are_let_go(strategy):
    text = "SELECT a.v FROM a [RANGE 5], b [RANGE 5], c [RANGE 5] WHERE a.k = b.k AND b.k = c.k"
    run = ContinuousQuery(text, STREAMS).run_locally("(a b) c")
    gone = []
    for number in range(8):
        run.push({name: rows((20 * number, 1, 1)) for name in "abc"})
        gone.append(weakref.ref(run._cell._executor))
        run.migrate("(c b) a" if number % 2 == 0 else "(a b) c", strategy)
        run.push({}, watermark=20 * number + 15)
    gc.collect()
    assert sum(box() is not None for box in gone[:-1]) == 0
    assert len(run.metrics()["migrations"]) == 8


def test_a_migration_that_breaks_half_way_breaks_the_run(monkeypatch):
    """Refusing changes nothing; anything else that goes wrong must not go on silently."""
    text = "SELECT a.v FROM a [RANGE 90], b [RANGE 90], c [RANGE 90] WHERE a.k = b.k AND b.k = c.k"
    run = ContinuousQuery(text, STREAMS).run_locally("(a b) c")
    run.push({name: rows((1, 1, 1)) for name in "abc"})

    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(JoinSide, "add", fail)
    with pytest.raises(MemoryError):
        run.migrate("(c b) a", "moving-state")
    with pytest.raises(BrokenRun):
        run.push({"a": rows((2, 1, 1))})


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        ("gen-mig", {"variant": []}),
        ("gen-mig", {"variant": 3}),
        ("gen-mig", {"shortened": "no"}),
        ("jisc", {"as_published": 1}),
        ("parallel-track", {"as_published": None}),
    ],
)
def test_options_of_a_wrong_type_are_refused_also_for_the_plan_in_force(strategy, options):
    text = "SELECT a.v FROM a [RANGE 90], b [RANGE 90] WHERE a.k = b.k"
    run = ContinuousQuery(text, STREAMS).run_locally("a b")
    for order in ("a b", "b a"):
        with pytest.raises(MigrationRefused):
            run.migrate(order, strategy, **options)


def test_a_rebuilt_run_completes_its_states():
    text = "SELECT a.v FROM a [RANGE UNBOUNDED], b [RANGE UNBOUNDED], c [RANGE 90] WHERE a.k = b.k AND b.k = c.k"
    run = ContinuousQuery(text, STREAMS).run_locally("(a b) c")
    run.push({name: rows(*((now, now % 4, 1) for now in range(20))) for name in "abc"})
    run.rebuild("jisc")
    # States are incomplete, but no migration is in progress.
    assert run._cell.is_migrating and not run.migrating
    for now in range(20, 40):
        run.push({"a": rows((now, 1, 1), (now, 99, 1))})
    assert not run._cell.is_migrating


# What a plan has emitted, and where its successor begins

NESTED = "SELECT DISTINCT x.n FROM (SELECT k, SUM(v) AS n FROM a [RANGE 8 SLIDE 2] GROUP BY k) x, b [RANGE 20] c"


@pytest.mark.parametrize("strategies", [["jisc"], ["moving-state"], ["jisc", "moving-state"], ["gen-mig", "jisc"]])
def test_a_distinct_over_an_aggregate_ahead_of_a_stream_is_not_repeated(strategies):
    """The aggregate was final up to 10, the stream up to 9; the new plan began at 9 and gave (10) at 9 once more."""
    query = ContinuousQuery(NESTED, STREAMS[:2])
    plans = list(query.plans())
    tables = {"a": rows((1, 1, 5), (3, 1, 5), (9, 1, 5)), "b": rows((1, 1, 0), (12, 1, 0))}
    run = query.run_locally(plans[0])
    results = [run.push(tables)]
    for number, strategy in enumerate(strategies):
        run.migrate(plans[1 - number % 2], strategy)
    results.append(run.finish())
    assert_snapshot_equivalent(pa.concat_tables(results), snapshots(NESTED, STREAMS[:2], tables))


def test_a_state_computed_after_a_migration_begins_segments_where_they_began():
    """The pieces of a DISTINCT differed between the plan that had run and the rebuilt one: a row was lost."""
    single, double = pa.float32(), pa.float64()
    schemas = {
        "s0": pa.schema({"ts": pa.int64(), "k0": pa.int8()}),
        "s1": pa.schema({"ts": pa.int64(), "k0": pa.int8(), "k2": single, "k4": single, "k5": double}),
        "s2": pa.schema({"ts": pa.int64(), "k0": pa.int64(), "k1": pa.decimal128(38, 10), "k3": pa.int64()}),
    }
    text = """SELECT t2.c1 AS c0, t1.k4 AS c1, t1.k5 AS c2
       FROM s1 [RANGE 13 SLIDE 4] t1,
            (SELECT t4.k1 AS c0, t3.k0 AS c1
             FROM s0 [RANGE 12 SLIDE 1] t3, s2 [RANGE 7 SLIDE 7] t4, s2 [RANGE 1] t5, s2 [RANGE 6] t6
             WHERE t5.k1 = t6.k3
             EXCEPT ALL
             SELECT DISTINCT t8.k1 AS c0, t8.k3 AS c1
             FROM s1 [RANGE 7 SLIDE 5] t7, s2 [RANGE 10] t8, s2 [RANGE UNBOUNDED] t9
             WHERE (t8.k0 * t7.k0) > t8.k3) t2
       UNION
       SELECT DISTINCT t12.k3 AS c0, t11.k2 AS c1, t10.k5 AS c2
       FROM s1 [RANGE 10 SLIDE 1] t10, s1 [RANGE 3 SLIDE 7] t11, s2 [RANGE 8 SLIDE 8] t12, s1 [RANGE 12 SLIDE 3] t13
       EXCEPT ALL
       SELECT t15.k0 AS c0, t15.k4 AS c1, t15.k5 AS c2
       FROM s1 [NOW] t14, s1 [RANGE UNBOUNDED] t15, s2 [RANGE 4 SLIDE 1] t16
       WHERE t14.k5 <> t15.k0 AND t14.k0 <> t16.k0 AND t15.k0 = (t16.k3 + t14.k0)"""
    streams = [Stream(name, schema, "ts", lateness=3 if name == "s0" else 0) for name, schema in schemas.items()]
    steps = script(
        streams,
        [
            {"s1": [(5, -128, 0.5, None, -1e308), (10, 0, None, 0.5, None)], "s2": [(3, 0, Decimal("0.1"), 2)]},
            {"s1": [(2, 1, 0.0, 0.1, None)]},
            {"s0": [(16, None)], "s1": [(13, 1, 0.1, 0.5, 1.0)], "s2": [(12, 2, Decimal("1.5"), 1)]},
        ],
    )
    query = ContinuousQuery(text, streams)
    plans = list(islice(query.plans(), 12))
    run = query.run_locally(plans[9])
    results = [run.push(step.rows) for step in steps[:2]]
    run.migrate(plans[10], "jisc")
    results.append(run.push(steps[2].rows))
    run.rebuild("moving-state")
    results.append(run.finish())
    assert_snapshot_equivalent(pa.concat_tables(results), snapshots(text, streams, whole_input(streams, steps)))


@pytest.mark.parametrize("strategy", ["jisc", "moving-state"])
@pytest.mark.parametrize("rebuild", [False, True])
def test_an_aggregate_united_with_rows_is_replaced_by_another_one(strategy, rebuild):
    """How far the results reach was not known where aggregates are united with rows: the change was refused."""
    text = (
        "SELECT SUM(a.v) AS n FROM a [RANGE 9], b [RANGE 9] WHERE a.k = b.k GROUP BY b.k"
        " UNION ALL SELECT c.v AS n FROM c [RANGE UNBOUNDED]"
    )
    query = ContinuousQuery(text, STREAMS[:3])
    plans = list(query.plans())
    steps = [{name: rows((now, now % 2, 1), (now + 1, 0, now)) for name in "abc"} for now in range(0, 24, 2)]
    run = query.run_locally(plans[0])
    results = []
    for number, step in enumerate(steps):
        results.append(run.push(step))
        run.migrate(plans[(number + 1) % len(plans)], strategy)
        if rebuild:
            run.rebuild(strategy)
    results.append(run.finish())
    assert len(plans) > 1
    tables = {name: pa.concat_tables([step[name] for step in steps]) for name in "abc"}
    assert_snapshot_equivalent(pa.concat_tables(results), snapshots(text, STREAMS[:3], tables))


def test_an_aggregate_that_is_ahead_of_a_stream_is_not_replaced_by_one_that_lags_behind():
    text = (
        "SELECT x.n, c.v FROM c [RANGE 20],"
        " (SELECT COUNT(*) AS n FROM a [RANGE 60 SLIDE 60], b [RANGE 60 SLIDE 60] WHERE a.k = b.k) x"
    )
    query = ContinuousQuery(text, STREAMS[:3])
    plain, partial = (
        next(plan for plan in query.plans() if plan.explain().count("Aggregate") == count) for count in (1, 2)
    )
    run = query.run_locally(plain)
    run.push({name: rows((1, 1, 0), (70, 1, 0)) for name in "abc"})
    with pytest.raises(MigrationRefused, match="final up to different instants"):
        run.migrate(partial, "jisc")
    assert run.plan == plain
    run.migrate(partial, "gen-mig")


@pytest.mark.parametrize("strategy", ["jisc", "moving-state"])
def test_equal_aggregates_in_both_branches_of_a_union_keep_their_own_progress(strategy):
    """The aggregate of one branch was taken for the predecessor of the other's: its plan had another partial one."""
    total = (
        "SELECT {} AS w, SUM(x.v + y.v) AS n FROM a [RANGE 10] x, b [RANGE 10] y, c [RANGE 10] z"
        " WHERE x.k = y.k AND y.k = z.k"
    )
    text = f"{total.format(1)} UNION ALL {total.format(2)}"
    query = ContinuousQuery(text, STREAMS[:3])
    plans = list(islice(query.plans(), 8))
    steps = [
        {"a": rows((0, 1, 1)), "b": rows((0, 1, 10)), "c": rows((0, 1, 0))},
        {"a": rows((14, 1, 4)), "b": rows((14, 1, 20)), "c": rows((14, 1, 0))},
    ]
    expected = snapshots(text, STREAMS[:3], {name: pa.concat_tables([step[name] for step in steps]) for name in "abc"})
    refused = set()
    for first, other in product(range(8), range(8)):
        run = query.run_locally(plans[first])
        results = [run.push(step) for step in steps]
        try:
            run.migrate(plans[other], strategy)
        except MigrationRefused:
            refused.add((first, other))
        results.append(run.finish())
        assert_snapshot_equivalent(pa.concat_tables(results), expected)
    assert (7, 0) not in refused
    assert len(refused) < 32


@pytest.mark.parametrize("strategy", ["jisc", "moving-state"])
def test_a_store_over_a_difference_that_is_further_in_the_new_plan_is_not_continued(strategy):
    """The store of the old plan lacked what the new plan's inner differences have emitted already: a row was lost."""
    MigrationCase(
        Scenario.from_rows(
            "SELECT DISTINCT d.n, y.k FROM (SELECT MAX(x.ts) AS n FROM s [RANGE 5 SLIDE 3] x "
            "EXCEPT ALL (SELECT COUNT(*) AS n FROM (SELECT MAX(x.ts) AS n FROM s [RANGE 5 SLIDE 3] x) m) "
            "EXCEPT ALL (SELECT x.j AS n FROM s [RANGE 5 SLIDE 5] x GROUP BY x.k, x.j)) d, s [RANGE 1] y "
            "EXCEPT ALL (SELECT z.k, z.j FROM s [RANGE 10 SLIDE 4] z)",
            [Stream("s", pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("j", pa.int64())]), "ts")],
            [{"s": [(102, 1, 1)]}, heartbeat(121)],
        ),
        [Migrate(2, 0, strategy)],
        first_plan=3,
    ).check()


@pytest.mark.parametrize("strategy", ["jisc", "moving-state"])
def test_an_aggregate_of_which_one_plan_needs_no_column_is_the_same_in_another(strategy):
    """It was not found again, because its place was known by its columns; then the migration was refused."""
    case = MigrationCase(
        Scenario.from_rows(
            "SELECT DISTINCT y.k, z.k AS j FROM (SELECT SUM(k) AS n FROM a [RANGE 7 SLIDE 3] GROUP BY k) x, "
            "b [RANGE 15 SLIDE 8] y, c [RANGE 20] z",
            STREAMS[:3],
            [{"a": [(7, 2, 0)], "b": [(4, 2, 0)], "c": [(5, 2, 0)]}, heartbeat(20)],
        ),
        [Migrate(2, 1, strategy)],
        first_plan=4,
    )
    played = case.check()
    assert (len(played.migrations), played.refused) == (1, 0)


@pytest.mark.parametrize("strategy", ["parallel-track", "gen-mig", "jisc", "moving-state"])
def test_the_rows_of_a_union_of_two_equal_parts_are_known_by_their_own_origins(strategy):
    """Both parts read the same window, and the references of one were written over those of the other.

    Parallel track then took new rows for old ones: a result was repeated.
    """
    MigrationCase(
        Scenario.from_rows(
            "SELECT x.k FROM a [NOW] x, (SELECT y.k FROM a [NOW] y UNION ALL SELECT y.k FROM a [NOW] y) u, "
            "(SELECT z.k FROM a [NOW] z) v",
            STREAMS[:1],
            [{"a": [(1, 1, 1)]}, {"a": [(3, 1, 1)]}],
        ),
        [Migrate(1, 1, strategy)],
    ).check()


def test_equal_differences_in_another_part_of_the_query_do_not_say_what_these_have_emitted():
    """The second chain of differences was taken for unchanged, because the first had the order that it got."""
    chain = (
        "SELECT r1.j AS n2 FROM s0 [RANGE 8] r1 EXCEPT ALL (SELECT DISTINCT r3.k AS n4 FROM s1 [RANGE 8 SLIDE 2] r3) "
        "EXCEPT ALL (SELECT r5.k AS n6 FROM s0 [RANGE 5 SLIDE 1] r5) EXCEPT (SELECT r7.k AS n8 FROM s1 [RANGE 8] r7)"
    )
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("j", pa.int64())])
    MigrationCase(
        Scenario.from_rows(
            f"{chain} UNION ALL ({chain}) UNION ALL (SELECT r9.k AS n10 FROM s0 [RANGE 13] r9)",
            [Stream("s0", schema, "ts", 3), Stream("s1", schema, "ts")],
            [{"s0": [(1, 1, 1)]}, {"s0": [(-1, None, 1)]}, heartbeat(23)],
        ),
        [Migrate(3, 0, "jisc")],
        first_plan=1,
    ).check()
