"""The examples of the papers on plan migration: Zhu et al. 2004, Krämer et al. 2006 (GenMig), Aly et al. 2014 (JISC).

Figures are named by their number; where a figure says less than a test, the docstring says what we read.
"""

from collections import Counter
from itertools import chain, combinations, pairwise

import numpy as np
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.errors import MigrationRefused
from midstream.migration import gen_mig
from midstream.migration.parallel_track import ParallelTrack, ParallelTrackBox
from midstream.migration.state_completion import IncompleteState
from midstream.testing import STRATEGIES, assert_same_bag, assert_snapshot_equivalent, join_intervals, snapshots

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64()})

ON_JOINS = {name: way for name, way in STRATEGIES.items() if name != "pause-drain-resume"}
"""Every strategy with every option, for plans of joins."""

REFUSE_OTHERS = [name for name in ON_JOINS if name.startswith(("parallel-track", "reference-point"))]
ON_ANY_PLAN = [name for name in ON_JOINS if name not in REFUSE_OTHERS]
"""Those for plans with distinct and differences, too."""


def rows(*values):
    """A table of (ts, k)."""
    columns = list(zip(*values, strict=True)) or [[], []]
    return pa.table([pa.array(column, pa.int64()) for column in columns], schema=SCHEMA)


def four_way(names, ranges=(100, 100, 100, 100)):
    """A join of four streams on one attribute, which gives the event times of its rows."""
    windows = ", ".join(f"{name} [RANGE {width}]" for name, width in zip(names, ranges, strict=True))
    conditions = " AND ".join(f"{left}.k = {right}.k" for left, right in pairwise(names))
    select = ", ".join(f"{name}.ts AS {name}_ts" for name in names)
    streams = [Stream(name, SCHEMA, "ts") for name in names]
    return ContinuousQuery(f"SELECT {select} FROM {windows} WHERE {conditions}", streams)


def migrate(run, plan, way):
    strategy, options = ON_JOINS[way]
    run.migrate(plan, strategy, **options)


def as_tuples(*tables):
    return sorted(tuple(row.values()) for table in tables for row in table.to_pylist())


def record_of(run):
    return run.metrics()["migrations"][-1]


# Krämer et al. 2006, section 3.2: example 1 and figure 2

TEXT = pa.schema({"ts": pa.int64(), "x": pa.string()})
FIGURE_2 = ContinuousQuery(
    "SELECT DISTINCT a.x FROM A [RANGE 100] a, B [RANGE 100] b WHERE a.x = b.x",
    [Stream("A", TEXT, "ts"), Stream("B", TEXT, "ts")],
)
DISTINCT_ABOVE, DISTINCT_BELOW = FIGURE_2.plans()
EXAMPLE_1 = Counter({instant: 1 for instant in range(20, 151)})
"""From the first pair, at 20, to the end of the last, at 151, there is always one."""


def letters(*times):
    return pa.table({"ts": pa.array(times, pa.int64()), "x": ["a"] * len(times)}, schema=TEXT)


def play_example_1(strategy, options=(), more=()):
    """A has a at 10, 50 (and ``more``), B at 20, 70; rows are valid for 101 instants. The migration starts at 40.

    How often a is there at each instant.
    """
    run = FIGURE_2.run_locally(DISTINCT_ABOVE)
    results = [run.push({"A": letters(10), "B": letters(20)}, watermark=40)]
    if isinstance(strategy, str):
        run.migrate(DISTINCT_BELOW, strategy, **options)
    else:
        run._cell.migrate_by(strategy, DISTINCT_BELOW)
    for stream, time in sorted([("A", 50), ("B", 70), *more], key=lambda row: row[1]):
        results.append(run.push({stream: letters(time)}, watermark=time))
    for watermark in range(100, 301, 10):
        results.append(run.push({}, watermark=watermark))
    assert not run.migrating
    results.append(run.finish())
    at = Counter()
    for x, valid_from, valid_to in as_tuples(*results):
        assert x == "a"
        at.update(range(valid_from, valid_to))
    return at


def test_figure_2_has_the_two_plans():
    above, below = DISTINCT_ABOVE.explain().splitlines(), DISTINCT_BELOW.explain().splitlines()
    assert above[0] == "Distinct"
    assert [line.strip(" │├└─") for line in above].count("Distinct") == 1
    assert [line.strip(" │├└─") for line in below].count("Distinct") == 2
    assert not below[0].startswith("Distinct")


class UncheckedParallelTrack(ParallelTrack):
    """Parallel track for plans that it gets wrong, to show that it does."""

    def check(self, old, new):
        """Refuse nothing."""


@pytest.mark.parametrize("as_published", [False, True])
def test_example_1_parallel_track_repeats_a_tuple_if_it_is_forced_to(as_published):
    """The snapshots from 70 to 120 have a twice, those the paper names (111 to 120) among them.

    The old box gives [20, 111) before the migration and [111, 121), which is old because [50, 121) is; the new one
    gives [70, 151). The overlap of the latter with [20, 111), from 70 to 110, is a repetition as well; the paper's text
    speaks of the one result only that the old box gives during the migration.
    """
    at = play_example_1(UncheckedParallelTrack(as_published))
    assert {instant for instant, count in at.items() if count == 2} == set(range(70, 121))
    assert all(at[instant] == 2 for instant in range(111, 121))
    assert at == EXAMPLE_1 + Counter(range(70, 121))


@pytest.mark.parametrize("way", REFUSE_OTHERS)
def test_example_1_is_refused_where_results_would_be_wrong(way):
    run = FIGURE_2.run_locally(DISTINCT_ABOVE)
    run.push({"A": letters(10), "B": letters(20)}, watermark=40)
    with pytest.raises(MigrationRefused, match="distinct") as refusal:
        migrate(run, DISTINCT_BELOW, way)
    assert ("gen-mig" in refusal.value.hint) == way.startswith("parallel-track")
    assert run.plan == DISTINCT_ABOVE
    assert not run.migrating
    assert as_tuples(run.push({"A": letters(50)})) == [("a", 111, 121)]


@pytest.mark.parametrize("way", ON_ANY_PLAN)
def test_example_1_every_other_strategy_gives_the_tuple_once(way):
    assert play_example_1(*ON_JOINS[way]) == EXAMPLE_1


@pytest.mark.parametrize("shortened", [False, True])
def test_reference_points_would_repeat_pieces_of_a_distinct(monkeypatch, shortened):
    """Why reference points are refused: pieces of a distinct do not begin at the latest start of their rows.

    With another a in A at 60, valid until 161. The split is at 121. The old box gets all rows uncut and ends with the
    pieces [121, 151) and [151, 161). The new box gets them from 120 on: its distinct makes [120, 151), which is left
    out because it was cut, and [151, 161), which was made of rows from before the split as well, but does not look so.
    """
    monkeypatch.setattr(gen_mig, "other_stateful_operators", lambda plan: [])
    options = {"variant": "reference-point", "shortened": shortened}
    at = play_example_1("gen-mig", options, more=[("A", 60)])
    expected = EXAMPLE_1 + Counter(range(151, 161))
    assert play_example_1("gen-mig", {"shortened": shortened}, more=[("A", 60)]) == expected
    assert at == expected + Counter(range(151, 161))


# Aly et al. 2014, section 2.2: the three scenarios of the transition ((R S) T) U → ((S T) R) U

RSTU = four_way("rstu")
SHORT_S = four_way("rstu", ranges=(100, 10, 100, 100))


@pytest.mark.parametrize("way", ON_JOINS)
def test_jisc_scenario_1_old_pairs_are_found_by_a_new_row(way):
    """s, t, u before the transition, r after it: the quadruple is not missed."""
    run = RSTU.run_locally("((r s) t) u")
    before = run.push({"s": rows((10, 7)), "t": rows((11, 7)), "u": rows((12, 7))}, watermark=12)
    migrate(run, "((s t) r) u", way)
    after = [run.push({"r": rows((20, 7))}, watermark=20), run.finish()]
    assert before.num_rows == 0
    assert as_tuples(*after) == [(20, 10, 11, 12, 20, 111)]


@pytest.mark.parametrize("way", ON_JOINS)
def test_jisc_scenario_2_an_answered_quadruple_ends_and_does_not_come_again(way):
    """The quadruple is answered before the transition; then s leaves its window."""
    run = SHORT_S.run_locally("((r s) t) u")
    before = run.push({name: rows((10 + i, 7)) for i, name in enumerate("rstu")}, watermark=13)
    assert as_tuples(before) == [(10, 11, 12, 13, 13, 22)]
    migrate(run, "((s t) r) u", way)
    after = [run.push({"s": rows((22, 8))}, watermark=22)]
    after += [run.push({name: rows((30 + i, 7))}) for i, name in enumerate("rtu")]
    after.append(run.finish())
    assert as_tuples(*after) == []


@pytest.mark.parametrize("way", ON_JOINS)
@pytest.mark.parametrize(("u", "expected"), [(21, [(10, 11, 12, 21, 21, 22)]), (22, []), (30, [])])
def test_jisc_scenario_3_a_state_entry_ends_with_the_window(way, u, expected):
    """r, s, t before the transition, s leaves its window at 22: a u from then on finds nothing."""
    run = SHORT_S.run_locally("((r s) t) u")
    before = run.push({name: rows((10 + i, 7)) for i, name in enumerate("rst")}, watermark=12)
    migrate(run, "((s t) r) u", way)
    after = [run.push({}, watermark=u), run.push({"u": rows((u, 7))}), run.finish()]
    assert before.num_rows == 0
    assert as_tuples(*after) == expected


# Aly et al. 2014, section 4: complete and incomplete states


def sides_of(run):
    """The sides of the joins by the streams below them."""
    (box,) = run._cell._executor.boxes()
    sides = [side for join in box.joins for side in join.sides]
    return {"".join(sorted({field.relation for field in side.layout.fields})): side for side in sides}


def started(keys=(1, 2, 3), time=10):
    """A run of the old plan of figure 3, with a row per key in each stream."""
    run = RSTU.run_locally("((r s) t) u")
    run.push({name: rows(*((time, key) for key in keys)) for name in "rstu"})
    return run


@pytest.mark.parametrize(
    ("figure", "order", "complete", "incomplete"),
    [
        ("3b", "((u t) s) r", {"r", "s", "t", "u"}, {"tu", "stu"}),
        ("3c", "((s r) u) t", {"r", "s", "t", "u", "rs"}, {"rsu"}),
        ("3d", "((s t) r) u", {"r", "s", "t", "u", "rst"}, {"st"}),
    ],
)
def test_jisc_figure_3_states_of_the_old_plan_are_complete_and_no_others(figure, order, complete, incomplete):
    run = started()
    before = sides_of(run)
    assert set(before) == {"r", "s", "t", "u", "rs", "rst"}
    run.migrate(order, "jisc")
    after = sides_of(run)
    assert {name for name, side in after.items() if side.incomplete is None} == complete
    assert {name for name, side in after.items() if side.incomplete is not None} == incomplete
    for name in complete:
        # Shared by reference: the very same runs.
        assert [id(run) for run in after[name].state._runs] == [id(run) for run in before[name].state._runs]
    assert all(len(after[name].state) == 0 for name in incomplete)
    assert record_of(run)["states_shared"] == len(complete)
    assert record_of(run)["states_incomplete"] == len(incomplete)
    assert record_of(run)["rows_recomputed"] == 0
    assert run.migrating


@pytest.mark.parametrize("order", ["((u t) s) r", "((s r) u) t", "((s t) r) u"])
def test_moving_state_completes_the_states_of_figure_3_at_once(order):
    run = started()
    run.migrate(order, "moving-state")
    after = sides_of(run)
    assert all(side.incomplete is None and len(side.state) == 3 for side in after.values())
    assert record_of(run)["rows_recomputed"] == 3 * sum(name in ("tu", "stu", "rsu", "st") for name in after)


def test_jisc_figure_4_an_incomplete_state_stays_incomplete_in_an_overlapped_transition():
    """ST is incomplete in plan (b), ((S T) R) U, and exists in plan (c), here ((S T) U) R: it is not complete there."""
    run = started()
    run.migrate("((s t) r) u", "jisc", as_published=True)
    asked = run.push({"r": rows((20, 1))})
    assert as_tuples(asked) == [(20, 10, 10, 10, 20, 111)]
    in_b = sides_of(run)["st"]
    run.migrate("((s t) u) r", "jisc", as_published=True)
    in_c = sides_of(run)
    incomplete = in_b.incomplete
    assert [id(run) for run in in_c["st"].state._runs] == [id(run) for run in in_b.state._runs]
    assert in_c["st"].incomplete is incomplete
    assert incomplete is not None
    assert incomplete.computed == 1
    assert {name for name, side in in_c.items() if side.incomplete is not None} == {"st", "stu"}
    results = run.push({"u": rows((21, 1), (21, 2)), "r": rows((22, 3))})
    # The r of 20 is old for the second transition and new for the first.
    assert as_tuples(results) == [
        (10, 10, 10, 21, 21, 111),
        (10, 10, 10, 21, 21, 111),
        (20, 10, 10, 21, 21, 111),
        (22, 10, 10, 10, 22, 111),
    ]
    assert incomplete.computed == 3
    # All keys of ST have been asked for, and one of STU.
    assert in_c["st"].incomplete is None
    assert in_c["stu"].incomplete.computed == 1


@pytest.mark.parametrize("as_published", [False, True])
def test_jisc_both_sides_of_a_bushy_join_are_incomplete_in_an_overlapped_transition(as_published):
    """Sections 4.3 (case 3) and 4.5: STUV is made of ST and UV, both of which are incomplete still.

    Rows come before the first transition, between both and after the second: each of their combinations counts.
    """
    names = "rstuv"
    conditions = " AND ".join(f"{left}.k = {right}.k" for left, right in pairwise(names))
    select = ", ".join(f"{name}.ts AS {name}_ts" for name in names)
    text = f"SELECT {select} FROM {', '.join(f'{name} [RANGE 100]' for name in names)} WHERE {conditions}"
    streams = [Stream(name, SCHEMA, "ts") for name in names]
    query = ContinuousQuery(text, streams)
    pushed = [{name: rows((time, 1), (time, 2)) for name in "stuv"} for time in (10, 20, 30)]
    pushed.append({"r": rows((40, 1))})
    pushed.append({name: rows((50, 2)) for name in names})
    run = query.run_locally("(((s u) t) v) r")
    results = []
    for number, step in enumerate(pushed):
        if number == 1:
            run.migrate("((s t) r) (u v)", "jisc", as_published=as_published)
        if number == 2:
            before = sides_of(run)
            run.migrate("((s t) (u v)) r", "jisc", as_published=as_published)
            after = sides_of(run)
            assert [after[name].incomplete is before[name].incomplete for name in ("st", "uv")] == [True, True]
            if as_published:
                assert {name for name, side in after.items() if side.incomplete is not None} == {"st", "uv", "stuv"}
        results.append(run.push(step))
    tables = {name: pa.concat_tables(step.get(name, rows()) for step in pushed) for name in names}
    assert_same_bag(pa.concat_tables([*results, run.finish()]), join_intervals(text, streams, tables))


def test_jisc_a_key_is_completed_at_most_once(monkeypatch):
    """Section 4.4: UT and UTS of figure 3b are computed for the value v when r1 comes, and not again for r2."""
    driven = Counter()
    drive = IncompleteState._drive

    def counted(incomplete, codes, tuples):
        driven.update((id(incomplete), tuple(row)) for row in tuples.tolist())
        drive(incomplete, codes, tuples)

    monkeypatch.setattr(IncompleteState, "_drive", counted)
    run = started()
    run.migrate("((u t) s) r", "jisc", as_published=True)
    states = {name: side.incomplete for name, side in sides_of(run).items() if side.incomplete is not None}
    expected = [([1, 1], 1), ([1], 1), ([2, 1, 99], 2), ([99, 2], 2)]
    for time, (keys, computed) in enumerate(expected, start=20):
        results = run.push({"r": rows(*((time, key) for key in keys))})
        assert results.num_rows == sum(key != 99 for key in keys)
        assert {name: incomplete.computed for name, incomplete in states.items()} == {"tu": computed, "stu": computed}
        assert record_of(run)["rows_recomputed"] == 2 * computed
    assert set(driven.values()) == {1}


def test_jisc_a_value_without_results_is_attempted_once_too(monkeypatch):
    """Section 4.4: the flag prevents computing again for tuples that are not part of the join result."""
    run = RSTU.run_locally("((r s) t) u")
    run.push({"s": rows((10, 1)), "u": rows((10, 1)), "t": rows((10, 2)), "r": rows((10, 2))})
    run.migrate("((u t) s) r", "jisc", as_published=True)
    run.push({"r": rows((20, 1))})
    driven = []
    monkeypatch.setattr(IncompleteState, "_drive", lambda state, codes, tuples: driven.append(len(codes)))
    assert run.push({"r": rows((21, 1), (22, 1))}).num_rows == 0
    assert sum(driven) == 0


def test_jisc_detects_that_all_keys_have_been_asked_for():
    """Section 4.3: the counter of a state falls with every key; at zero the state is complete, long before W is over.

    UTS is driven by U and S, which have the keys from before the transition.
    """
    run = started()
    run.migrate("((u t) s) r", "jisc", as_published=True)
    for time in range(11, 30):
        run.push({name: rows((time, 9)) for name in "rstu"})
    assert run.migrating
    run.push({"r": rows((30, 1), (30, 2))})
    assert run.migrating
    run.push({"r": rows((31, 3))}, watermark=29)
    assert not run.migrating
    assert all(side.incomplete is None for side in sides_of(run).values())
    assert (record_of(run)["is_over"], record_of(run)["began_at"], record_of(run)["ended_at"]) == (True, 10, 29)


def test_jisc_detects_that_the_rows_of_keys_nobody_asked_for_have_ended():
    """Section 4.3, and what it leaves out: the counter falls as well when the last old row of a key ends.

    Key 3 is not asked for, its rows end at 101; those of 1 and 2 would last until 151.
    """
    run = RSTU.run_locally("((r s) t) u")
    run.push({name: rows((0, 3), (50, 1), (50, 2)) for name in "rstu"})
    run.migrate("((s t) r) u", "jisc", as_published=True)
    for time in range(51, 60):
        run.push({"r": rows((time, 1 + time % 2))})
    assert run.migrating
    run.push({name: rows((100, 9)) for name in "rstu"})
    assert run.migrating
    run.push({name: rows((101, 9)) for name in "rstu"})
    assert not run.migrating
    assert record_of(run)["ended_at"] == 101


def test_jisc_completes_a_bounded_number_of_keys_that_nobody_asks_for():
    """Our addition: each push completes some more for each of its rows, so that the migration ends before the window.

    There are 60 keys in ST, nobody asks for any of them; a push of one row completes two, and some may join them.
    """
    run = started(keys=range(60))
    run.migrate("((s t) r) u", "jisc")
    incomplete = sides_of(run)["st"].incomplete
    computed = []
    while run.migrating and len(computed) < 60:
        run.push({"u": rows((11, 1000))})
        computed.append(incomplete.computed)
    assert not run.migrating
    assert 0 < computed[0] <= 4
    assert all(later - earlier <= 4 for earlier, later in pairwise(computed))
    assert computed[-1] == record_of(run)["rows_recomputed"] == 60
    assert len(computed) >= 15
    assert (record_of(run)["is_over"], record_of(run)["ended_at"]) == (True, 10)
    run.push({}, watermark=11)
    assert run.push({"r": rows((12, 30), (12, 59))}).num_rows == 2


def test_jisc_is_over_when_all_old_rows_have_ended():
    run = started()
    run.migrate("((u t) s) r", "jisc", as_published=True)
    run.push({}, watermark=110)
    assert run.migrating
    run.push({}, watermark=111)
    assert not run.migrating
    assert record_of(run)["ended_at"] == 111


# Aly et al. 2014, section 4.7: set difference

DIFFERENCES = [
    "SELECT k FROM a [RANGE 12] EXCEPT {} SELECT k FROM b [RANGE 5] EXCEPT {} SELECT k FROM c [RANGE 3]"
    " EXCEPT {} SELECT k FROM d [RANGE 6 SLIDE 2]".replace("{}", kind).replace("  ", " ")
    for kind in ("ALL", "")
]


def subtracted(plan):
    """The streams of a chain of differences, from the first to the last that is taken away."""
    return "".join(window.stream.name for window in plan.windows())


@pytest.mark.parametrize("way", ON_ANY_PLAN)
@pytest.mark.parametrize("text", DIFFERENCES)
def test_jisc_differences_are_reordered_exactly(text, way):
    """(((A − B) − C) − D) becomes (((A − D) − B) − C), and is what DuckDB says at every instant."""
    streams = [Stream(name, SCHEMA, "ts", lateness=2) for name in "abcd"]
    query = ContinuousQuery(text, streams)
    plans = {subtracted(plan): plan for plan in query.plans()}
    run = query.run_locally(plans["abcd"])
    random = np.random.default_rng(4)
    everything = {name: [SCHEMA.empty_table()] for name in "abcd"}
    results = []
    for time in range(40):
        if time == 20:
            migrate(run, plans["adbc"], way)
            assert run.plan == plans["adbc"]
        pushed = {
            name: rows(*((time - int(late), int(k)) for late, k in random.integers(0, [3, 8], (count, 2))))
            for name, count in zip("abcd", random.integers(0, [5, 2, 2, 2]), strict=True)
        }
        for name, table in pushed.items():
            everything[name].append(table)
        results.append(run.push(pushed))
    results.append(run.finish())
    assert all(begin < end for _, begin, end in as_tuples(*results))
    tables = {name: pa.concat_tables(parts) for name, parts in everything.items()}
    expected = snapshots(text, streams, tables, range(-2, 60))
    assert expected.table.num_rows > 100
    assert_snapshot_equivalent(pa.concat_tables(results), expected)


@pytest.mark.parametrize("way", REFUSE_OTHERS)
@pytest.mark.parametrize("text", DIFFERENCES)
def test_differences_are_refused_where_results_would_be_wrong(text, way):
    query = ContinuousQuery(text, [Stream(name, SCHEMA, "ts") for name in "abcd"])
    plans = {subtracted(plan): plan for plan in query.plans()}
    run = query.run_locally(plans["abcd"])
    with pytest.raises(MigrationRefused, match="difference"):
        migrate(run, plans["adbc"], way)
    assert run.plan == plans["abcd"]


# Zhu et al. 2004, figure 6: the sixteen cases of old and new rows in a result

ABCD = four_way("abcd")
OLD_ORDER = "((a b) c) d"
CASES = list(chain.from_iterable(combinations("abcd", count) for count in range(5)))
"""The streams whose row is new, in the order of the figure: case 1 has none, case 16 has all of them."""


def play_case(new, order, way):
    """The row of each stream in ``new`` comes after the migration began, the others before.

    Rows with keys of their own are there in any case, so that there is something to migrate. The run, the number of
    results before and during the migration, and all results.
    """
    run = ABCD.run_locally(OLD_ORDER)
    pushed = {name: [(9, -number)] for number, name in enumerate("abcd")}
    for number, name in enumerate("abcd"):
        if name not in new:
            pushed[name].append((10 + number, 7))
    before = run.push({name: rows(*values) for name, values in pushed.items()}, watermark=13)
    migrate(run, order, way)
    during = [run.push({name: rows((20 + "abcd".index(name), 7))}) for name in reversed(new)]
    during.append(run.push({}, watermark=100))
    after = [run.push({}, watermark=400), run.finish()]
    assert not run.migrating
    counts = [before.num_rows, sum(table.num_rows for table in during), sum(table.num_rows for table in after)]
    return run, counts, pa.concat_tables([before, *during, *after])


def expected_case(new):
    times = [20 + number if name in new else 10 + number for number, name in enumerate("abcd")]
    return [(*times, max(times), min(times) + 101)]


@pytest.mark.parametrize("way", ON_JOINS)
@pytest.mark.parametrize("order", ["a ((b c) d)", "(a b) (c d)"])
def test_zhu_figure_6_each_case_gives_its_result_once(order, way):
    for new in CASES:
        run, _, results = play_case(new, order, way)
        assert as_tuples(results) == expected_case(new), new
        assert record_of(run)["is_over"]


@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize("order", ["a ((b c) d)", "(a b) (c d)"])
def test_zhu_figure_6_the_old_box_gives_what_has_an_old_part(order, as_published):
    """Case 1 was given before the migration, cases 2 to 15 by the old box, case 16 by the new one, buffered."""
    for number, new in enumerate(CASES, start=1):
        way = "parallel-track as published" if as_published else "parallel-track"
        run, counts, _ = play_case(new, order, way)
        record = record_of(run)
        by_box = record["old_results"], record["new_results"], record["rows_buffered"]
        if number == 1:
            assert (by_box, counts) == ((0, 0, 0), [1, 0, 0])
        elif number < 16:
            assert (by_box, counts) == ((1, 0, 0), [0, 1, 0]), new
        else:
            assert (by_box, counts) == ((0, 1, 1), [0, 0, 1])


def test_zhu_4_2_2_leaving_out_new_tuples_below_the_root_loses_results(monkeypatch):
    """Of the sixteen cases those are lost whose A and B are new and whose C or D is old: #8, #14 and #15."""

    begin = ParallelTrackBox.__init__

    def leave_out_everywhere(box, old, *others):
        begin(box, old, *others)
        for join in old.joins:
            join._satisfying = lambda batch, keep=join._satisfying: box._with_old_parts(keep(batch))

    monkeypatch.setattr(ParallelTrackBox, "__init__", leave_out_everywhere)
    lost = []
    for new in CASES:
        _, _, results = play_case(new, "a ((b c) d)", "parallel-track")
        if as_tuples(results) != expected_case(new):
            assert results.num_rows == 0
            lost.append("".join(new))
    assert lost == ["ab", "abc", "abd"]


# How long a migration takes, in event time

WIDTH = 10
W = WIDTH + 1
"""A row of a window of RANGE 10 is valid for eleven ticks."""


def play_densely(text, order, new_order, way, until=80, begin=30, silent=()):
    """A row per tick in each stream; the migration begins after the tick ``begin``. Streams in ``silent`` stop at 10.

    The run, and the results of all pushes; everything is checked against the oracle.
    """
    names = [name for name in "abcd" if f"{name} [" in text]
    streams = [Stream(name, SCHEMA, "ts") for name in names]
    query = ContinuousQuery(text, streams)
    run = query.run_locally(order)
    tables = {name: SCHEMA.empty_table() for name in names}
    results = []
    for time in range(until):
        pushed = {name: rows((time, time % 2)) for name in names if time < 10 or name not in silent}
        tables = {name: pa.concat_tables([table, pushed.get(name, rows())]) for name, table in tables.items()}
        results.append(run.push(pushed, watermark=time))
        if time == begin:
            migrate(run, new_order, way)
    assert_same_bag(pa.concat_tables([*results, run.finish()]), join_intervals(text, streams, tables))
    return run


TWO = f"SELECT a.ts, b.ts AS b_ts FROM a [RANGE {WIDTH}], b [RANGE {WIDTH}] WHERE a.k = b.k"
THREE = (
    f"SELECT a.ts, b.ts AS b_ts, c.ts AS c_ts FROM a [RANGE {WIDTH}], b [RANGE {WIDTH}], c [RANGE {WIDTH}]"
    " WHERE a.k = b.k AND b.k = c.k"
)


@pytest.mark.parametrize(
    ("text", "order", "new_order", "way", "duration"),
    [
        (TWO, "a b", "b a", "parallel-track", W),
        (TWO, "a b", "b a", "parallel-track as published", W),
        (THREE, "(a b) c", "a (b c)", "parallel-track", W),
        (THREE, "(a b) c", "a (b c)", "parallel-track as published", 2 * W),
        (TWO, "a b", "b a", "coalesce", W),
        (THREE, "(a b) c", "a (b c)", "coalesce", W),
        (THREE, "(a b) c", "a (b c)", "reference-point", W),
        (THREE, "(a b) c", "a (b c)", "positive-negative", W),
        (THREE, "(a b) c", "a (b c)", "coalesce, shortened", W),
        (THREE, "(a b) c", "a (b c)", "moving-state", 0),
    ],
)
def test_durations_with_dense_input(text, order, new_order, way, duration):
    """Parallel track takes W at height 1 and 2 W above as published; purged by watermarks it takes W (see there)."""
    run = play_densely(text, order, new_order, way)
    record = record_of(run)
    assert (record["began_at"], record["ended_at"]) == (30, 30 + duration)


UNEQUAL = "SELECT a.ts, b.ts AS b_ts, c.ts AS c_ts FROM a [RANGE 10], b [RANGE 40], c [RANGE 2]" + (
    " WHERE a.k = b.k AND b.k = c.k"
)


@pytest.mark.parametrize("variant", ["coalesce", "reference-point", "positive-negative"])
def test_gen_mig_is_shorter_where_the_long_window_has_been_silent(variant):
    """Optimisation 2: the rows of b, the latest at 9, end by 50; the latest start plus the longest window is 71."""
    durations = {}
    for way in (variant, f"{variant}, shortened"):
        run = play_densely(UNEQUAL, "(a b) c", "a (b c)", way, silent="b")
        durations[way] = record_of(run)["ended_at"] - record_of(run)["began_at"]
    assert durations == {variant: 41, f"{variant}, shortened": 20}


@pytest.mark.parametrize("way", ["jisc", "jisc as published", "moving-state"])
def test_the_next_push_is_the_new_plans(way):
    """Neither waits: from the migration on there is one plan, the new one, and it gives the next results."""
    run = RSTU.run_locally("((r s) t) u")
    run.push({name: rows((10, 1), (11, 2)) for name in "rstu"})
    migrate(run, "((u t) s) r", way)
    assert run.plan == RSTU.plan("((u t) s) r")
    (box,) = run._cell._executor.boxes()
    assert box.plan == run.plan
    assert run.push({"r": rows((12, 1))}).num_rows == 1
    # Counts are those of the subplan: the old plan gave two results.
    assert run.metrics()["operators"][-1]["rows_out"] == 2 + 1
    assert record_of(run)["began_at"] == 11
    if way == "moving-state":
        assert (record_of(run)["ended_at"], record_of(run)["is_over"]) == (11, True)


@pytest.mark.parametrize("way", [name for name in ON_JOINS if ON_JOINS[name][0] in ("parallel-track", "gen-mig")])
def test_gradual_strategies_run_both_plans(way):
    run = RSTU.run_locally("((r s) t) u")
    run.push({name: rows((10, 1), (11, 2)) for name in "rstu"})
    migrate(run, "((u t) s) r", way)
    assert [box.plan for box in run._cell._executor.boxes()] == [RSTU.plan("((r s) t) u"), RSTU.plan("((u t) s) r")]
    assert run.migrating
    run.push({}, watermark=400)
    assert [box.plan for box in run._cell._executor.boxes()] == [RSTU.plan("((u t) s) r")]
