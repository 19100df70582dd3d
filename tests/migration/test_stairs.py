"""STAIRs change their own join order when the streams change, eagerly or lazily, and only while they run alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.algebra.plan import Join
from midstream.migration.stairs import StairsBox
from midstream.testing import assert_snapshot_equivalent, compare_bags

COLUMNS = {"a": "k", "b": "kl", "c": "lm", "d": "m"}
STREAMS = [
    Stream(name, pa.schema({column: pa.int64() for column in ("t", *columns)}), "t")
    for name, columns in COLUMNS.items()
]
WINDOWS = ", ".join(f"{name} [RANGE 400]" for name in COLUMNS)
QUERY = ContinuousQuery(
    f"SELECT a.t AS a, b.t AS b, c.t AS c, d.t AS d FROM {WINDOWS} WHERE a.k = b.k AND b.l = c.l AND c.m = d.m", STREAMS
)


def pushes(count=20):
    """First the join of a and b makes many pairs, then that of c and d."""
    random = np.random.default_rng(1)
    for push in range(count):
        values = {"k": 20, "l": 3_000, "m": 3_000} if push < count // 2 else {"k": 3_000, "l": 3_000, "m": 20}
        times = np.arange(100 * push, 100 * push + 100).repeat(3)
        yield {
            name: pa.table({"t": times, **{c: random.integers(0, values[c], len(times)) for c in keys}})
            for name, keys in COLUMNS.items()
        }


def executor(run) -> StairsBox:
    found = run._cell.executor
    assert isinstance(found, StairsBox)
    return found


def order_of(run) -> tuple[int, ...]:
    (join,) = executor(run)._routed
    return join.order


def last_part(run) -> int:
    return order_of(run)[-1]


@pytest.mark.parametrize("routing", ["stairs", "eager-stairs"])
def test_the_order_follows_the_streams(routing):
    run = QUERY.run_locally(QUERY.plan("{a b c d}", routing=routing))
    reference = QUERY.run_locally("a b c d")
    last = []
    for push in pushes():
        difference = compare_bags(run.push(push), reference.push(push))
        assert (difference.missing, difference.repeated) == (0, 0)
        last.append(last_part(run))
    # The part with many partners comes last: a or b at first, c or d in the end.
    assert last[9] in (0, 1) and last[19] in (2, 3)
    assert executor(run).changes >= 2
    assert run.plan == QUERY.plan("{a b c d}", routing=routing)


@pytest.mark.parametrize("routing", ["stairs", "eager-stairs"])
def test_joins_that_are_alike_keep_their_order(routing):
    """However many tuples the left input of a join has: each has as many partners."""
    query = ContinuousQuery(
        f"SELECT a.t AS a, d.t AS d FROM {WINDOWS} WHERE a.k = b.k AND a.k = c.k AND a.k = d.k",
        [Stream(name, pa.schema({"t": pa.int64(), "k": pa.int64()}), "t") for name in COLUMNS],
    )
    run = query.run_locally(query.plan("{a b c d}", routing=routing))
    random = np.random.default_rng(1)
    change = None
    for push in range(24):
        if push == 8:
            # While windows fill, one order may look better.
            assert executor(run).changes <= 1
            strategy = "jisc" if routing == "stairs" else "moving-state"
            change = run.migrate(query.plan("{d c b a}", routing=routing), strategy)
        times = np.arange(100 * push, 100 * push + 100).repeat(10)
        run.push({name: pa.table({"t": times, "k": random.permutation(1_000)}) for name in COLUMNS})
    assert executor(run).changes <= 1
    assert change is not None and change.state == "completed"


def test_lazy_stairs_complete_later_what_eager_ones_compute_at_once():
    incomplete = {}
    for routing in ("stairs", "eager-stairs"):
        run = QUERY.run_locally(QUERY.plan("{a b c d}", routing=routing))
        was_incomplete, changes = [], 0
        for push in pushes():
            run.push(push)
            if executor(run).changes > changes:
                changes = executor(run).changes
                was_incomplete.append(executor(run).is_migrating)
        incomplete[routing] = was_incomplete
    assert any(incomplete["stairs"])
    assert incomplete["eager-stairs"] and not any(incomplete["eager-stairs"])


@pytest.mark.parametrize("strategy", ["gen-mig", "parallel-track"])
def test_the_order_stays_while_another_plan_runs_beside_them(strategy):
    run = QUERY.run_locally("a b c d")
    reference = QUERY.run_locally("a b c d")
    tables = list(pushes())
    for push in tables[:3]:
        run.push(push)
        reference.push(push)
    run.migrate("{a b c d}:stairs", strategy)
    boxes, found, expected = [], [], []
    for push in tables[3:]:
        found.append(run.push(push))
        expected.append(reference.push(push))
        stairs = [box for box in run._cell.executor.boxes() if isinstance(box, StairsBox)]
        boxes.append((run.migrating, stairs[-1].changes))
    difference = compare_bags(pa.concat_tables(found), pa.concat_tables(expected))
    assert (difference.missing, difference.repeated) == (0, 0)
    # Windows are four pushes long. Later the states of a changed order may be incomplete.
    assert boxes[:3] == [(True, 0)] * 3
    assert boxes[-1][1] > 0


def test_figures_of_operators_are_those_of_the_tree_in_force():
    run = QUERY.run_locally(QUERY.plan("{a b c d}", routing="stairs"))
    for push in pushes():
        run.push(push)
    counted = {figures["subplan"] for figures in run.metrics()["operators"] if figures["kind"] == "join"}
    assert counted == {join.subplan for join in executor(run).joins}


def test_a_rebuilt_executor_begins_with_the_order_of_the_text():
    run = QUERY.run_locally(QUERY.plan("{a b c d}", routing="stairs"))
    reference = QUERY.run_locally("a b c d")
    orders = []
    for number, push in enumerate(pushes()):
        difference = compare_bags(run.push(push), reference.push(push))
        assert (difference.missing, difference.repeated) == (0, 0)
        orders.append(order_of(run))
        if number % 5 == 4:
            run.rebuild("jisc" if number % 2 else "moving-state")
            assert order_of(run) == (0, 1, 2, 3)
    # There was something to forget.
    assert any(order != (0, 1, 2, 3) for order in orders[4::5])


def test_an_order_costs_the_tuples_of_a_push_and_not_those_per_row_of_its_first_part():
    """a and b have many rows and half as many pairs, c and d few rows and as many pairs."""
    run = QUERY.run_locally(QUERY.plan("{a b c d}", routing="stairs"))
    random = np.random.default_rng(1)
    for push in range(10):
        tables = {}
        for name, keys in COLUMNS.items():
            rows = 600 if name in "ab" else 6
            values = {"k": 4_000, "l": 10**6, "m": 20}
            times = np.sort(random.integers(100 * push, 100 * push + 100, rows))
            tables[name] = pa.table({"t": times, **{c: random.integers(0, values[c], rows) for c in keys}})
        run.push(tables)
    assert order_of(run)[:2] in ((2, 3), (3, 2))


def test_both_sides_of_a_union_have_an_order_of_their_own():
    """The same aliases, but other conditions: the order of one side would be a cross product in the other."""
    sides = ["a.k = b.k AND b.l = c.l", "a.k = c.l AND c.m = b.l"]
    columns = "a.t AS a, b.t AS b, c.t AS c"
    windows = "a [RANGE 400], b [RANGE 400], c [RANGE 400]"
    query = ContinuousQuery(
        " UNION ALL ".join(f"SELECT {columns} FROM {windows} WHERE {side}" for side in sides), STREAMS[:3]
    )
    run = query.run_locally(query.plan("{a b c}", routing="stairs"))
    reference = query.run_locally("a b c")
    for push in pushes(8):
        push.pop("d")
        difference = compare_bags(run.push(push), reference.push(push))
        assert (difference.missing, difference.repeated) == (0, 0)
    boxes = executor(run)
    assert len(boxes._routed) == 2
    assert all(node.predicates for node in boxes.tree.walk() if isinstance(node, Join))


def test_aggregates_below_stairs_stay_what_they_are_when_the_order_changes():
    """Final operators are matched by their place in the plan with braces, not by that in the tree of the moment."""
    query = ContinuousQuery(
        """SELECT x.n AS x, b.t AS b, z.n AS z
           FROM (SELECT k, COUNT(*) AS n FROM a [RANGE 100 SLIDE 100] GROUP BY k) x, b [RANGE 200],
                (SELECT l, COUNT(*) AS n FROM c [RANGE 50 SLIDE 50] GROUP BY l) z
           WHERE x.k = b.k AND b.l = z.l""",
        STREAMS[:3],
    )
    random = np.random.default_rng(2)
    run = query.run_locally(query.plan("{x b z}", routing="stairs"))
    tables, found, changes = [], [], []
    for push in range(40):
        few, many = ("k", "l") if push // 10 % 2 == 0 else ("l", "k")
        values = {few: 5, many: 400, "m": 5}
        times = np.arange(50 * push, 50 * push + 50).repeat(6)
        tables.append(
            {
                s.name: pa.table({"t": times, **{c: random.integers(0, values[c], 300) for c in s.schema.names[1:]}})
                for s in STREAMS[:3]
            }
        )
        found.append(run.push(tables[-1]))
        changes.append(executor(run).changes)
        if push == 25:
            run.rebuild("moving-state")
        if push == 33:
            run.migrate("x b z", "moving-state")
            run.migrate("{x b z}:stairs", "jisc")
    found.append(run.finish())
    assert max(changes[:20]) >= 2
    reference = query.run_locally("x b z")
    expected = pa.concat_tables([*(reference.push(push) for push in tables), reference.finish()])
    assert_snapshot_equivalent(pa.concat_tables(found), expected)
