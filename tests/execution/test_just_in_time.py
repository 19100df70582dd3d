"""Just-in-time processing: partial results are made when somebody can use them, and not one result is lost."""

from __future__ import annotations

from itertools import islice, permutations

import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.algebra.expressions import Column
from midstream.algebra.functions import call
from midstream.algebra.plan import Item, Join, Project, Window
from midstream.algebra.window_spec import WindowSpec
from midstream.errors import BadOption
from midstream.execution.just_in_time import JustInTime
from midstream.runtime.cell import Cell
from midstream.runtime.ingest import Ingest
from midstream.testing import compare_bags, join_intervals
from midstream.testing.migration_cases import STRATEGIES

ALWAYS = JustInTime(least_share=0.0)


def clique(names: str, window: str = "RANGE 100") -> ContinuousQuery:
    """Every two streams are joined by a column of their own."""
    columns: dict[str, list[str]] = {name: [] for name in names}
    conditions = []
    for place, left in enumerate(names):
        for right in names[place + 1 :]:
            column = f"{left}{right}"
            columns[left].append(column)
            columns[right].append(column)
            conditions.append(f"{left}.{column} = {right}.{column}")
    streams = [
        Stream(name, pa.schema([("ts", pa.int64()), *((c, pa.int64()) for c in columns[name])]), "ts", lateness=100)
        for name in names
    ]
    selected = ", ".join(f"{name}.ts AS {name}" for name in names)
    windows = ", ".join(f"{name} [{window}] {name}" for name in names)
    return ContinuousQuery(f"SELECT {selected} FROM {windows} WHERE {' AND '.join(conditions)}", streams)


def row(query: ContinuousQuery, name: str, ts: int, **values: int) -> pa.Table:
    """A row of a stream; columns that are not given have the value 0."""
    schema = next(stream.schema for stream in query.streams if stream.name == name)
    return pa.Table.from_pylist([{column: values.get(column, 0) for column in schema.names} | {"ts": ts}], schema)


def figures(run, kind: str) -> dict[str, dict]:
    return {o["operator"]: o for o in run.metrics()["operators"] if o["operator"].startswith(kind)}


PAPER = ContinuousQuery(
    "SELECT a.ts AS a, b.ts AS b, c.ts AS c FROM a [RANGE 5] a, b [RANGE 5] b, c [RANGE 5] c "
    "WHERE a.x = b.x AND a.y = c.y",
    [
        Stream("a", pa.schema({"ts": pa.int64(), "x": pa.int64(), "y": pa.int64()}), "ts"),
        Stream("b", pa.schema({"ts": pa.int64(), "x": pa.int64()}), "ts"),
        Stream("c", pa.schema({"ts": pa.int64(), "y": pa.int64()}), "ts"),
    ],
)


def test_the_example_of_the_paper():
    """Table I: while c has no partner for a1 and a2, none of their seven partial results is made."""
    run = PAPER.run_locally("(a b) c", just_in_time=ALWAYS)
    run.push({"c": pa.table({"ts": [0], "y": [7]})})
    run.push({"b": pa.table({"ts": [0, 0, 0], "x": [1, 1, 1]})})
    run.push({"a": pa.table({"ts": [1], "x": [1], "y": [100]})})
    run.push({"b": pa.table({"ts": [2], "x": [1]})})
    run.push({"a": pa.table({"ts": [3], "x": [1], "y": [100]})})
    assert figures(run, "Join a.x = b.x")["Join a.x = b.x"]["rows_out"] == 0
    assert figures(run, "Suspend Window a")["Suspend Window a [RANGE 5]"]["suspended"] == 2
    results = run.push({"c": pa.table({"ts": [4], "y": [100]})})
    assert results.num_rows == 8
    suspend = figures(run, "Suspend Window a")["Suspend Window a [RANGE 5]"]
    assert (suspend["resumed"], suspend["state_rows"]) == (2, 0)


def test_an_empty_input_demands_nothing():
    """∅ is non-demanded (DOE), also where no column is compared with the empty input."""
    query = ContinuousQuery(
        "SELECT a.ts AS a, b.ts AS b, c.ts AS c FROM a [RANGE 50] a, b [RANGE 50] b, c [RANGE 50] c WHERE a.k = b.k",
        [Stream(name, pa.schema({"ts": pa.int64(), "k": pa.int64()}), "ts", lateness=50) for name in "abc"],
    )
    run = query.run_locally("(a b) c", just_in_time=ALWAYS)
    pairs = {name: pa.table({"ts": range(9), "k": [1] * 9}) for name in "ab"}
    assert run.push(pairs).num_rows == 0
    assert figures(run, "Join a.k = b.k")["Join a.k = b.k"]["rows_out"] == 0
    assert run.push({"c": pa.table({"ts": [5], "k": [9]})}).num_rows == 81


def counterexample(query: ContinuousQuery) -> dict[str, tuple[str, pa.Table]]:
    """Rows of which a, b2, c and d2 match. The others make each side look useless to the other."""
    return {
        "d0": ("d", row(query, "d", 0, cd=0, ad=5)),
        "c": ("c", row(query, "c", 0)),
        "a": ("a", row(query, "a", 0)),
        "b1": ("b", row(query, "b", 0, bc=9, bd=9)),
        "d1": ("d", row(query, "d", 0, ad=8, bd=8)),
        "b2": ("b", row(query, "b", 0)),
        "d2": ("d", row(query, "d", 0)),
    }


@pytest.mark.parametrize("plan", ["(a b) (c d)", "(c d) (a b)", "((a b) c) d", "a (b (c d))", "(a c) (b d)"])
def test_no_two_producers_wait_for_each_other(plan):
    """As published, a waits for a partner in (c d) and c for one in (a b): nobody makes the partner, and the result is
    lost. Here it comes, in whichever order the rows arrive (every 61st of all, which moves every row everywhere)."""
    query = clique("abcd")
    rows = counterexample(query)
    for order in islice(permutations(rows), 0, None, 61):
        run = query.run_locally(plan, just_in_time=ALWAYS)
        found = [run.push({rows[name][0]: rows[name][1]}) for name in order]
        assert sum(table.num_rows for table in found) == 1, order


def test_what_an_open_segment_resumes_is_not_lost():
    """The migration lets the aggregate emit its open segment, which a and b wait for: no row comes in with it."""
    query = ContinuousQuery(
        "SELECT a.ts AS a, b.ts AS b, g.n FROM a [RANGE 50] a, b [RANGE 50] b, (SELECT c.k AS k, COUNT(*) AS n "
        "FROM c [RANGE 50] c, d [RANGE 50] d WHERE c.k = d.k GROUP BY c.k) g WHERE a.k = b.k AND a.k = g.k",
        [Stream(name, pa.schema({"ts": pa.int64(), "k": pa.int64()}), "ts") for name in "abcd"],
    )
    # The second one counts rows of c by key before they are joined with d.
    before, after = (plan for plan in query.plans() if "└─ Join a.k = b.k\n      ├─ Window a" in str(plan))
    run = query.run_locally(before, just_in_time=ALWAYS)
    results = [run.push({name: pa.table({"ts": [ts], "k": [1]}) for ts, name in enumerate("abcd", 1)})]
    results.append(run.push({}, watermark=20))
    assert figures(run, "Join a.k = b.k")["Join a.k = b.k"]["rows_out"] == 0
    run.migrate(after, "moving-state")
    results.append(run.push({}, watermark=21))
    assert [tuple(result.values()) for result in pa.concat_tables(results).to_pylist()] == [(1, 2, 1, 4, 20)]


def test_rows_below_a_consumer_input_wait_for_the_joins_above_it():
    """(c d) decides which rows of a and b are needed, and e which of all four."""
    query = clique("abcde")
    run = query.run_locally("((a b) (c d)) e", just_in_time=ALWAYS)
    run.push({name: row(query, name, 0) for name in "abcd"})
    assert {join["rows_out"] for join in figures(run, "Join").values()} == {0}
    assert run.push({"e": row(query, "e", 1)}).num_rows == 1


def test_feedback_ends_at_a_projection_that_gives_columns_other_names():
    """What is called a.k above the projection is a.ts below it. (No rule puts one between two joins.)"""
    window = {stream.name: Window(stream, stream.name, WindowSpec(50)) for stream in three_streams(pa.int64()).streams}
    time, key = (Column("e", name, pa.int64()) for name in ("ts", "k"))
    pairs = Join(window["e"], window["l"], (call("=", key, Column("l", "k", pa.int64())),))
    swapped = Project(pairs, (Item("e", "ts", key), Item("e", "k", time)))
    plan = Join(swapped, window["x"], (call("=", key, Column("x", "k", pa.int64())),))
    cell = Cell(plan, just_in_time=ALWAYS)
    ingest = Ingest({name: window[name].stream for name in window})
    found = 0
    for name, ts, k in (("x", 0, 3), ("e", 3, 7), ("l", 3, 7)):
        rows = ingest.accept(ingest.check({name: pa.table({"ts": [ts], "k": [k]})}))
        found += sum(len(batch) for batch in cell.push(cell.windows.of_streams(rows), 0))
    assert found == 1


def test_keys_of_rows_that_a_rebuilt_join_holds_are_known_once():
    run = PAPER.run_locally("(a b) c", just_in_time=ALWAYS)
    run.push({"c": pa.table({"ts": [0, 1, 2], "y": [7, 8, 9]})})
    known = [figures(run, "Demand")["Demand"]["state_rows"]]
    for completion in ("moving-state", "jisc"):
        run.rebuild(completion)
        known.append(figures(run, "Demand")["Demand"]["state_rows"])
    assert known == known[:1] * 3


@pytest.mark.parametrize("data_type", [pa.int64(), pa.string()])
def test_what_a_join_has_put_off_is_met_unless_it_has_ended(data_type):
    """As long as (e l) gives nothing, the rows of x are not sorted; the first of them end and leave the window."""
    run = three_streams(data_type).run_locally("(e l) x", just_in_time=ALWAYS)
    key = "7" if data_type == pa.string() else 7
    for time in range(0, 40, 4):
        assert pushed(run, "x", [time], time, [key]) == []
    assert pushed(run, "l", [36], 36, [key]) == []
    found = [(row[2], *row[3:]) for row in pushed(run, "e", [37], 36, [key])]
    assert sorted(found) == [(28, 37, 38), (32, 37, 42), (36, 37, 46)]


def test_keys_for_combined_rows_are_not_noted_where_that_costs_more_than_it_saves():
    """A thousand rows of d per push, and one pair of a and b that waits: for each of them there is another d."""
    query = clique("abcd", "RANGE 10")
    run = query.run_locally("((a b) c) d", just_in_time=JustInTime(trial_rows=100))
    for step in range(10):
        others = pa.concat_tables([row(query, "d", step, ad=1), row(query, "d", step, bd=1)] * 500)
        run.push({"d": others, **{name: row(query, name, step, ab=step) for name in "abc"}})
    assert figures(run, "Join a.ab = b.ab")["Join a.ab = b.ab"]["rows_out"] == 10
    assert figures(run, "Suspend Join")["Suspend Join a.ab = b.ab"]["consumers_asked"] == 0


@pytest.mark.parametrize("order", ["((a b) c) d", "(a b) (c d)"])
def test_no_state_of_a_just_in_time_plan_is_completed_on_demand(order):
    """Otherwise a join would not know what it demands."""
    query = clique("abcd")
    run = query.run_locally("a (c (b d))", just_in_time=ALWAYS)
    run.push({name: row(query, name, 0) for name in "abc"})
    migration = run.migrate(order, "jisc")
    assert migration.state == "completed"
    assert run.push({"d": row(query, "d", 0)}).num_rows == 1


def test_what_cannot_have_a_partner_is_not_kept():
    run = PAPER.run_locally("(a b) c", just_in_time=ALWAYS)
    run.push({"c": pa.table({"ts": [0], "y": [7]})})
    run.push({"a": pa.table({"ts": [1, 1], "x": [1, 1], "y": pa.array([None, 8], pa.int64())})})
    suspend = figures(run, "Suspend Window a")["Suspend Window a [RANGE 5]"]
    assert (suspend["suspended"], suspend["rows_out"], suspend["state_rows"]) == (2, 0, 1)


def test_a_consumer_that_has_partners_for_all_is_not_asked_any_more():
    query = clique("abc")
    run = query.run_locally("(a b) c", just_in_time=JustInTime(trial_rows=20))
    for step in range(10):
        run.push({name: pa.concat_tables([row(query, name, 10 * step)] * 10) for name in "abc"})
    suspending = figures(run, "Suspend").values()
    assert [(o["consumers"], o["consumers_asked"]) for o in suspending] == [(1, 0), (1, 0)]
    assert run.explain().count("off, because too few rows were suspended") == 2
    assert sum(o["state_bytes"] for o in figures(run, "Demand").values()) == 0


def test_what_is_suspended_is_bounded_by_the_windows():
    query = clique("abc", "RANGE 20")
    run = query.run_locally("(a b) c", just_in_time=ALWAYS)
    sizes = []
    for step in range(400):
        run.push({name: row(query, name, 5 * step, ac=step if name == "a" else -1) for name in "abc"})
        sizes.append(run.metrics()["state_bytes"])
    assert max(sizes[200:]) <= max(sizes[50:150])


def test_streams_of_other_slides_do_not_end_what_waits():
    """b ends at 15, before the next window of a, which begins at 20; the row of a that waits began at 10."""
    query = ContinuousQuery(
        "SELECT a.k FROM a [RANGE 20 SLIDE 10] a, b [RANGE 4] b, c [RANGE 50] c WHERE a.k = b.k AND a.k = c.k",
        [Stream(name, pa.schema({"ts": pa.int64(), "k": pa.int64()}), "ts") for name in "abc"],
    )
    tables = [
        {"a": pa.table({"ts": [9], "k": [1]})},
        {"b": pa.table({"ts": [10], "k": [1]})},
        {name: pa.table({"ts": [12], "k": [0]}) for name in "abc"},
        {"c": pa.table({"ts": [13], "k": [1]})},
    ]
    for just_in_time in (False, ALWAYS):
        run = query.run_locally("(a b) c", just_in_time=just_in_time)
        results = pa.concat_tables([run.push(table) for table in tables] + [run.finish()])
        assert {(r["valid_from"], r["valid_to"]) for r in results.to_pylist() if r["k"] == 1} == {(13, 15)}


def three_streams(data_type: pa.DataType) -> ContinuousQuery:
    schema = pa.schema({"ts": pa.int64(), "k": data_type})
    return ContinuousQuery(
        "SELECT e.ts AS e, l.ts AS l, x.ts AS x FROM e [RANGE 9] e, l [RANGE 9] l, x [RANGE 9] x "
        "WHERE e.k = l.k AND e.k = x.k",
        [Stream(name, schema, "ts") for name in "elx"],
    )


def pushed(run, name: str, times: list[int], watermark: int, keys: list) -> list[tuple]:
    """Push rows of a stream; the results."""
    data_type = pa.string() if isinstance(keys[0], str) else pa.int64()
    table = pa.table({"ts": times, "k": pa.array(keys, data_type)})
    return [tuple(result.values()) for result in run.push({name: table}, watermark=watermark).to_pylist()]


@pytest.mark.parametrize(("data_type", "keys"), [(pa.string(), ["7", "9"]), (pa.int64(), [7, 9])])
def test_what_is_resumed_does_not_meet_what_has_ended(data_type, keys):
    """l passed, because x had a partner for it, and has ended and left its window when e is resumed; they were valid
    together for an instant, before x had a partner again. Another tuple keeps the run of the state that l is in."""
    run = three_streams(data_type).run_locally("(e l) x", just_in_time=ALWAYS)
    pushes = (("x", [0, 0], 0), ("l", [1, 8], 1), ("e", [10], 12), ("x", [13], 13))
    assert [pushed(run, name, times, now, keys[: len(times)]) for name, times, now in pushes] == [[]] * 4
    assert figures(run, "Suspend Window e")["Suspend Window e [RANGE 9]"]["resumed"] == 1
    assert figures(run, "Join e.k = l.k")["Join e.k = l.k"]["rows_out"] == 0


@pytest.mark.parametrize(("data_type", "keys"), [(pa.string(), ["7", "9"]), (pa.int64(), [7, 9])])
@pytest.mark.parametrize("change", ["switch", "moving-state", "jisc", "rebuild"])
def test_what_was_suspended_in_a_rebuild_does_not_meet_what_has_ended(data_type, keys, change):
    """The first x has met e and l, and has ended, but is still in the state that the plan with just-in-time processing
    adopts. The second x resumes e and l: they must not meet the first one again."""
    before = False if change == "switch" else ALWAYS
    run = three_streams(data_type).run_locally("(l e) x" if change in STRATEGIES else "(e l) x", just_in_time=before)
    assert pushed(run, "x", [0, 8], 0, keys) == []
    assert pushed(run, "e", [5], 5, keys[:1]) == []
    assert pushed(run, "l", [5], 12, keys[:1]) == [(5, 5, 0, 5, 10)]
    if change == "switch":
        run.switch_just_in_time(ALWAYS)
    elif change == "rebuild":
        run.rebuild()
    else:
        run.migrate("(e l) x", change)
    assert pushed(run, "x", [13], 13, keys[:1]) == [(5, 5, 13, 13, 15)]


def test_it_can_be_switched_on_and_off_while_the_query_runs():
    query = clique("abc")
    run = query.run_locally("(a b) c")
    assert run.just_in_time is None
    run.push({"a": row(query, "a", 0, ac=1), "b": row(query, "b", 0)})
    assert figures(run, "Join a.ab = b.ab")["Join a.ab = b.ab"]["rows_out"] == 1
    run.switch_just_in_time(True)
    assert run.just_in_time == JustInTime()
    assert figures(run, "Suspend")
    run.push({"a": row(query, "a", 1, ac=2)})
    assert figures(run, "Join a.ab = b.ab")["Join a.ab = b.ab"]["rows_out"] == 1
    run.switch_just_in_time(False)
    assert not figures(run, "Suspend")
    found = run.push({"c": pa.concat_tables([row(query, "c", 2, ac=1), row(query, "c", 2, ac=2)])})
    assert found.num_rows == 2


@pytest.mark.parametrize("label", [label for label, known in STRATEGIES.items() if known[0] != "pause-drain-resume"])
@pytest.mark.parametrize(("before", "after"), [(False, True), (True, False), (True, True)])
def test_every_strategy_migrates_from_and_to_just_in_time_plans(label, before, after):
    query = clique("abcd", "RANGE 30")
    run = query.run_locally("((a b) c) d", just_in_time=ALWAYS if before else False)
    strategy, options = STRATEGIES[label]
    pushed, results = [], []
    for step in range(24):
        if step == 9:
            run.migrate("(a b) (c d)", strategy, **options)
        if step == 12:
            run.switch_just_in_time(ALWAYS if after else False)
        if step == 15:
            run.migrate("d (c (b a))", strategy, **options)
        if step in (11, 17):
            run.rebuild("jisc" if step == 11 else "moving-state")
        values = {"ab": step % 2, "ac": step // 3 % 2, "ad": step % 3 // 2, "bc": 0, "bd": step // 5 % 2, "cd": 0}
        pushed.append({name: row(query, name, 3 * step, **values) for name in "abcd"[: 1 + step % 4] + "d"})
        results.append(run.push(pushed[-1]))
    results.append(run.finish())
    whole = {name: pa.concat_tables([p[name] for p in pushed if name in p]) for name in "abcd"}
    difference = compare_bags(pa.concat_tables(results), join_intervals(query.text, query.streams, whole))
    assert (difference.missing, difference.repeated) == (0, 0)
    assert difference.rows > 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"detection": "guess"}, "detection cannot be 'guess'"),
        ({"type_two": 1}, "type_two must be True or False, not 1"),
        ({"propagate": "no"}, "propagate must be True or False, not 'no'"),
        ({"least_share": 2}, "least_share must be between 0 and 1, not 2"),
        ({"least_share": "x"}, "least_share must be a number, not 'x'"),
        ({"trial_rows": 0}, "trial_rows must be a positive number of rows, not 0"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(BadOption) as refused:
        JustInTime(**options)
    assert refused.value.message == message


def test_just_in_time_is_a_choice_or_options():
    with pytest.raises(BadOption, match="just_in_time cannot be 'yes'"):
        PAPER.run_locally(just_in_time="yes")  # type: ignore[arg-type]
