"""The multi-way join: what it keeps, how large its output gets at once, and what its routers learn."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.algebra.plan import MultiJoin, Select
from midstream.engine.operators.multi_join import MultiJoinOperator
from midstream.engine.operators.routing import EddyRouter, FixedRouter
from midstream.runtime.local_run import LocalRun
from midstream.testing import compare_bags, join_intervals

COLUMNS = {"a": "kx", "b": "kl", "c": "lm", "d": "mx"}
STREAMS = [
    Stream(name, pa.schema({column: pa.int64() for column in ("t", *columns)}), "t")
    for name, columns in COLUMNS.items()
]
SELECT = "SELECT a.t AS a, b.t AS b, c.t AS c, d.t AS d FROM a [RANGE 20], b [RANGE 20], c [RANGE 20], d [RANGE 8]"
CHAIN = "a.k = b.k AND b.l = c.l AND c.m = d.m"
ROUTINGS = ["fixed", "eddy", "stairs", "eager-stairs"]


def pushes(count=12, rows=10, values=5, nulls=0.1, seed=1):
    random = np.random.default_rng(seed)
    for push in range(count):
        yield {
            name: pa.table(
                {
                    "t": np.sort(random.integers(5 * push, 5 * push + 5, rows)),
                    **{c: pa.array(random.integers(0, values, rows), mask=random.random(rows) < nulls) for c in keys},
                }
            )
            for name, keys in COLUMNS.items()
        }


def operator_of(run):
    return next(o for box in run._cell.executor.boxes() for o in box.operators if isinstance(o, MultiJoinOperator))


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize(
    "where",
    [
        CHAIN,
        "a.k = b.k AND b.l = c.l AND c.m = d.m AND d.x = a.x",
        "a.k = b.k AND a.k = c.l AND a.k = d.m",
        "a.k = b.k AND b.l < c.l AND c.m = d.m",
        "a.k + b.k = c.l AND c.m = d.m AND a.x <= d.x",
        "a.k + b.k = c.l + d.m",
        "a.k = b.k AND a.x = b.l AND c.m = d.m AND b.l = c.l",
        "a.k = a.x AND a.k = b.k AND b.l = c.l AND c.m = d.m AND (a.x = d.x OR b.k > 2)",
    ],
)
def test_any_condition_that_a_tree_takes(where, routing):
    query = ContinuousQuery(f"{SELECT} WHERE {where}", STREAMS)
    tables = list(pushes(8, 6))
    run = query.run_locally(query.plan("{a b c d}", routing=routing))
    results = pa.concat_tables([*(run.push(push) for push in tables), run.finish()])
    whole = {name: pa.concat_tables([push[name] for push in tables]) for name in COLUMNS}
    difference = compare_bags(results, join_intervals(query.text, query.streams, whole))
    assert (difference.missing, difference.repeated, difference.unexpected) == (0, 0, 0)
    assert difference.rows


def test_it_keeps_no_intermediate_results():
    query = ContinuousQuery(f"{SELECT} WHERE {CHAIN}", STREAMS)
    braces, tree = (query.run_locally(plan) for plan in ("{a b c d}", "a b c d"))
    for push in pushes(values=2, nulls=0):
        for run in (braces, tree):
            run.push(push)
    operator = operator_of(braces)
    rows = [len(braces._cell.windows.alive_in(window.identity)) for window in braces.plan.windows()]
    # b and c are looked up by two keys each. Rows that have ended are dropped when runs are merged.
    kept = rows[0] + 2 * rows[1] + 2 * rows[2] + rows[3]
    assert kept <= operator.state_rows <= 1.5 * kept
    assert [len(operator.indexes_of(place)) for place in range(4)] == [1, 2, 2, 1]
    assert tree._cell.executor.state_rows > 20 * operator.state_rows


@pytest.mark.parametrize("routing", ROUTINGS)
def test_results_come_in_pieces_and_in_order(routing):
    query = ContinuousQuery(f"{SELECT} WHERE {CHAIN}", STREAMS)
    tree = query.run_locally("a b c d", chunk_rows=300)
    run = query.run_locally(query.plan("{a b c d}", routing=routing), chunk_rows=300)
    largest = []
    for push in pushes(8, 20, values=5, nulls=0):
        expected, found = (pa.Table.from_batches(one.push_in_chunks(push), tree._schema) for one in (tree, run))
        begins = found.column("valid_from").to_pylist()
        assert begins == sorted(begins)
        difference = compare_bags(found, expected)
        assert (difference.missing, difference.repeated) == (0, 0)
        pieces = [max(map(len, table.to_batches()), default=0) for table in (expected, found)]
        largest.append((expected.num_rows, *pieces))
    # A single row may have more results than a piece has room for, by any plan.
    results, of_tree, of_braces = largest[-1]
    assert of_braces <= 1.2 * of_tree < results / 4


@pytest.mark.parametrize("rows_of_first_push", [5, 40, 100])
def test_an_index_that_an_eddy_makes_in_a_slice_that_is_undone_has_no_row_twice(rows_of_first_push):
    """In a cycle, tuples of c may look up b by a key that no probe order needs: its index is made amid a push."""
    query = ContinuousQuery(
        "SELECT a.t AS a, b.t AS b, c.t AS c FROM a [RANGE 20], b [RANGE 20], c [RANGE 20]"
        " WHERE a.k = b.k AND b.l = c.l AND c.m = a.x",
        STREAMS[:3],
    )
    for seed in range(3):
        run = query.run_locally(query.plan("{a b c}", routing="eddy"), chunk_rows=300)
        tree = query.run_locally("a b c")
        for push in (*pushes(1, rows_of_first_push, 3, 0, seed), *list(pushes(4, 40, 3, 0, seed))[1:]):
            push.pop("d")
            difference = compare_bags(run.push(push), tree.push(push))
            assert (difference.missing, difference.repeated) == (0, 0)


@pytest.mark.parametrize("strategy", ["moving-state", "jisc"])
def test_states_that_braces_adopt_may_have_tuples_whose_rows_are_gone(strategy):
    """States keep tuples that have ended until runs are merged; the text of their rows is dropped before."""
    schema = pa.schema({"t": pa.int64(), "name": pa.string()})
    query = ContinuousQuery(
        "SELECT a.t AS a, b.t AS b, c.t AS c, d.t AS d FROM a [RANGE 10], b [RANGE 10], c [RANGE 10], d [RANGE 10]"
        " WHERE a.name = b.name AND b.name = c.name AND c.name = d.name",
        [Stream(name, schema, "t") for name in "abcd"],
    )

    def rows(times, name="x"):
        return pa.table({"t": times, "name": [name] * len(times)}, schema)

    pushed = [
        {"a": rows(np.sort(np.arange(1_000) % 11)), "b": rows([10], "y")},
        {"a": rows([15] * 400), "b": rows([15], "y"), "c": rows([15])},
        {"b": rows([22]), "d": rows([23])},
    ]
    run, tree = (query.run_locally("(a b) (c d)") for _ in range(2))
    for number, push in enumerate(pushed):
        if number == 2:
            for one in (run, tree):
                one.push({}, watermark=22)
            run.migrate("{a b c} d", strategy)
        difference = compare_bags(run.push(push), tree.push(push))
        assert (difference.missing, difference.repeated) == (0, 0)
    assert difference.rows == 400


def test_a_state_that_braces_adopt_is_completed_first():
    """The state of a and b is incomplete after the first change, and tuples of braces look up any of its keys."""
    query = ContinuousQuery(f"{SELECT} WHERE {CHAIN}", STREAMS)
    run, tree = query.run_locally("a (b (c d))"), query.run_locally("a (b (c d))")
    for number, push in enumerate(pushes(8, values=3, nulls=0)):
        if number == 3:
            run.migrate("(a b) c d", "jisc")
            run.migrate("{(a b) c d}", "jisc")
        difference = compare_bags(run.push(push), tree.push(push))
        assert (difference.missing, difference.repeated) == (0, 0)


@pytest.mark.parametrize("routing", ROUTINGS[:2])
def test_conditions_on_one_input_may_stand_in_the_join(routing):
    """Rules move them below it, but a plan that has them there is one, too."""
    conditions = "a.x > 2 AND c.l < 3"
    query = ContinuousQuery(f"{SELECT} WHERE {CHAIN} AND {conditions}", STREAMS)

    def moved(node):
        if not isinstance(node, MultiJoin):
            return node.with_inputs(*map(moved, node.inputs))
        selections = [below for below in node.walk() if isinstance(below, Select)]
        windows = [next(iter(part.windows())) for part in node.parts]
        predicates = (*node.predicates, *(selection.predicate for selection in selections))
        return MultiJoin(tuple(windows), predicates, node.routing, node.probe_orders)

    plan = moved(query.plan("{a b c d}", routing=routing))
    assert not any(isinstance(node, Select) for node in plan.walk())
    run, tree = LocalRun(plan, query.chosen), query.run_locally("a b c d")
    found = 0
    for push in pushes(8, values=5, nulls=0):
        difference = compare_bags(run.push(push), tree.push(push))
        assert (difference.missing, difference.repeated) == (0, 0)
        found += difference.rows
    assert found > 0


def test_a_migration_does_not_end_the_counting_of_probes():
    query = ContinuousQuery(f"{SELECT} WHERE {CHAIN}", STREAMS)
    run = query.run_locally("a b c d")
    before, after = list(pushes(2, values=2, nulls=0))
    run.push(before)
    run.migrate("{a b c d}", "moving-state")
    run.push(after)
    assert operator_of(run).counters.probes > 0 and operator_of(run).counters.compared > 0


def test_a_probe_order_that_names_what_is_not_linked_first_needs_no_other_index():
    query = ContinuousQuery(f"{SELECT} WHERE {CHAIN}", STREAMS)
    plan = query.plan("{a b c d}", probe_orders={"a": "d c b"})
    assert "a probes b c d" in str(plan)
    operator = operator_of(query.run_locally(plan))
    assert [len(operator.indexes_of(place)) for place in range(4)] == [1, 2, 2, 1]


def test_an_eddy_learns_which_input_is_selective_and_unlearns_it():
    eddy = EddyRouter(3)

    def share(rounds=200):
        return sum(eddy.next(0, [1, 2]) == 1 for _ in range(rounds)) / rounds

    eddy.note(1, 5_000, 50)
    eddy.note(2, 5_000, 25_000)
    assert share() > 0.95
    for _ in range(4):
        eddy.note(1, 5_000, 25_000)
        eddy.note(2, 5_000, 50)
    assert share() < 0.05


def test_an_eddy_tries_what_is_nearly_as_good_now_and_then():
    eddy = EddyRouter(3)
    eddy.note(1, 5_000, 5_000)
    eddy.note(2, 5_000, 10_000)
    chosen = [eddy.next(0, [1, 2]) for _ in range(200)]
    assert 10 < chosen.count(2) < 100


def test_an_eddy_is_repeatable():
    first, second = EddyRouter(4), EddyRouter(4)
    assert [first.next(0, [1, 2, 3]) for _ in range(50)] == [second.next(0, [1, 2, 3]) for _ in range(50)]


def test_fixed_routing_follows_the_probe_order():
    router = FixedRouter([(2, 1), (0, 2), (1, 0)])
    assert [router.next(0, [1, 2]), router.next(0, [1]), router.next(2, [0, 1])] == [2, 1, 1]


def test_an_eddy_visits_the_selective_input_first():
    query = ContinuousQuery(
        "SELECT a.t FROM a [RANGE 20], b [RANGE 20], c [RANGE 20] WHERE a.k = b.k AND a.x = c.l", STREAMS[:3]
    )
    run = query.run_locally(query.plan("{a b c}", routing="eddy"))
    random = np.random.default_rng(1)
    for push in range(6):
        times = np.repeat(np.arange(5 * push, 5 * push + 5), 800)
        rows = len(times)
        run.push(
            {
                "a": pa.table({"t": times, "k": random.integers(0, 2_000, rows), "x": random.integers(0, 10**6, rows)}),
                "b": pa.table({"t": times, "k": random.integers(0, 2_000, rows), "l": random.integers(0, 9, rows)}),
                "c": pa.table({"t": times, "l": random.integers(0, 10**6, rows), "m": random.integers(0, 9, rows)}),
            }
        )
    router = operator_of(run).router
    assert router.fan_outs.of(2) < 0.1 < 3 < router.fan_outs.of(1)
    assert [router.next(0, [1, 2]) for _ in range(50)].count(2) > 45


@pytest.mark.parametrize("routing", ROUTINGS)
def test_rows_stay_until_no_other_input_can_bring_a_partner(routing):
    """At the watermark 11 no row of a, whose window slides, begins before 20; but one of b may begin at 12."""
    query = ContinuousQuery(
        "SELECT a.t AS a, b.t AS b, c.t AS c FROM a [RANGE 10 SLIDE 10], b [RANGE 5], c [RANGE 5]"
        " WHERE a.k = b.k AND b.l = c.l",
        STREAMS[:3],
    )
    run = query.run_locally(query.plan("{a b c}", routing=routing))
    run.push({"a": pa.table({"t": [5], "k": [1], "x": [0]}), "c": pa.table({"t": [9], "l": [2], "m": [0]})})
    run.push({}, watermark=11)
    run.push({}, watermark=11)
    found = run.push({"b": pa.table({"t": [12], "k": [1], "l": [2]})})
    assert found.to_pylist() == [{"a": 5, "b": 12, "c": 9, "valid_from": 12, "valid_to": 15}]
