"""Defects that were found once, each with its smallest example."""

import gc
import weakref

import numpy as np
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.engine.join_side import JoinSide
from midstream.errors import BadMigration, BrokenRun
from midstream.testing import assert_same_bag, join_intervals

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
    side = "(SELECT a.k AS k, a.v + 1 AS w FROM a [RANGE 40] a) x, b [RANGE 40] b, c [RANGE 40] c"
    text = (
        f"SELECT x.w, b.v, c.v AS cv FROM {side} WHERE x.k = b.k AND b.k = c.k UNION ALL"
        f" SELECT x.w, b.v, c.v AS cv FROM {side} WHERE x.k = b.k AND b.v = c.v"
    )
    query = ContinuousQuery(text, STREAMS)
    plans = [plan for plan, _ in zip(query.plans(), range(6), strict=False)]
    generator = np.random.default_rng(3)
    for old in plans[:3]:
        for new in plans[:6]:
            run = query.run_locally(old)
            tables: dict[str, list[pa.Table]] = {name: [] for name in "abc"}
            results = []
            for now in range(0, 60, 10):
                pushed = {
                    name: pa.table(
                        {"ts": now + np.arange(6), "k": generator.integers(0, 3, 6), "v": generator.integers(0, 4, 6)}
                    )
                    for name in "abc"
                }
                for name, table in pushed.items():
                    tables[name].append(table)
                if now == 30:
                    run.migrate(new, strategy)
                results.append(run.push(pushed))
            results.append(run.finish())
            whole = {name: pa.concat_tables(parts) for name, parts in tables.items()}
            assert_same_bag(pa.concat_tables(results), join_intervals(text, STREAMS[:3], whole))


def test_the_highest_key_of_all_is_completed_once():
    """The sweep through incomplete states never passed the code 2^63 - 1."""
    text = "SELECT a.v FROM a [RANGE 90], b [RANGE 90], c [RANGE 90] WHERE a.k = b.k AND b.k = c.k"
    expected = None
    for strategy in (None, "jisc"):
        run = ContinuousQuery(text, STREAMS).run_locally("(a b) c")
        results = [run.push({name: rows((1, 2**63 - 1, 1), (2, 5, 1)) for name in "abc"})]
        if strategy:
            run.migrate("(c b) a", strategy)
        results += [run.push({"a": rows((now, 2**63 - 1, now))}) for now in range(3, 9)]
        results.append(run.finish())
        count = pa.concat_tables(results).num_rows
        expected = count if expected is None else expected
        assert count == expected


@pytest.mark.parametrize("strategy", ["jisc", "moving-state", "gen-mig", "parallel-track"])
def test_boxes_that_have_been_replaced_are_let_go(strategy):
    text = "SELECT a.v FROM a [RANGE 5], b [RANGE 5], c [RANGE 5] WHERE a.k = b.k AND b.k = c.k"
    run = ContinuousQuery(text, STREAMS).run_locally("(a b) c")
    gone = []
    for number in range(8):
        run.push({name: rows((20 * number, 1, 1)) for name in "abc"})
        gone.append(weakref.ref(run._cell._box))
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
        with pytest.raises(BadMigration):
            run.migrate(order, strategy, **options)


def test_a_rebuilt_run_completes_its_states():
    text = "SELECT a.v FROM a [RANGE UNBOUNDED], b [RANGE UNBOUNDED], c [RANGE 90] WHERE a.k = b.k AND b.k = c.k"
    run = ContinuousQuery(text, STREAMS).run_locally("(a b) c")
    run.push({name: rows(*((now, now % 4, 1) for now in range(20))) for name in "abc"})
    run.rebuild("jisc")
    assert run.migrating
    for now in range(20, 40):
        run.push({"a": rows((now, 1, 1), (now, 99, 1))})
    assert not run.migrating
