"""Just-in-time processing of multi-way joins: no visits of which nothing can come, and not one result is lost."""

from __future__ import annotations

from itertools import islice, permutations

import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.execution.just_in_time import JustInTime
from midstream.testing import compare_bags, join_intervals
from midstream.testing.migration_cases import STRATEGIES
from tests.execution.test_just_in_time import ALWAYS, PAPER, clique, counterexample, figures, row

EXACT = JustInTime(least_share=0.0, detection="exact")


def braces(run) -> dict:
    """The figures of the multi-way join."""
    (found,) = (operator for operator in run.metrics()["operators"] if operator["kind"] == "multijoin")
    return found


def star(
    window: str = "RANGE 5", data_type: pa.DataType | None = None, condition: str = "a.z = d.z"
) -> ContinuousQuery:
    """b, c and d are joined with a, by x, y and z."""
    data_type = data_type or pa.int64()
    columns = {"a": "xyz", "b": "x", "c": "y", "d": "z"}
    return ContinuousQuery(
        "SELECT a.ts AS a, b.ts AS b, c.ts AS c, d.ts AS d FROM "
        + ", ".join(f"{name} [{window}] {name}" for name in columns)
        + f" WHERE a.x = b.x AND a.y = c.y AND {condition}",
        [
            Stream(name, pa.schema({"ts": pa.int64(), **dict.fromkeys(own, data_type)}), "ts")
            for name, own in columns.items()
        ],
    )


@pytest.mark.parametrize("routing", ["fixed", "eddy"])
def test_the_example_of_the_paper(routing):
    """Table I: while c has no partner for a1 and a2, they visit nobody; when it comes, c1 finds them on its own way."""
    run = PAPER.run_locally(PAPER.plan("{a b c}", routing=routing), just_in_time=ALWAYS)
    run.push({"c": pa.table({"ts": [0], "y": [7]})})
    run.push({"b": pa.table({"ts": [0, 0, 0], "x": [1, 1, 1]})})
    run.push({"a": pa.table({"ts": [1], "x": [1], "y": [100]})})
    run.push({"b": pa.table({"ts": [2], "x": [1]})})
    run.push({"a": pa.table({"ts": [3], "x": [1], "y": [100]})})
    before = braces(run)
    assert run.push({"c": pa.table({"ts": [4], "y": [100]})}).num_rows == 8
    assert braces(run)["resumed"] == 0
    if routing == "fixed":
        # The b that came in between has visited a, and with a1 it has visited c.
        assert (before["suspended"], before["probes"]) == (2, 2)


def test_a_partner_in_the_same_push_is_known_before_its_turn():
    """a comes first, and c last: each finds the other by the other's turn, or by its own."""
    for order in ("{a b c d}", "{d c b a}", "{b c a d}"):
        for just_in_time in (ALWAYS, EXACT):
            run = star().run_locally(order, just_in_time=just_in_time)
            rows = {"a": {"x": [1], "y": [2], "z": [3]}, "b": {"x": [1]}, "c": {"y": [2]}, "d": {"z": [3]}}
            assert run.push({name: pa.table({"ts": [1], **row}) for name, row in rows.items()}).num_rows == 1
            assert run.push({name: pa.table({"ts": [2], **row}) for name, row in rows.items()}).num_rows == 15


@pytest.mark.parametrize("just_in_time", [ALWAYS, EXACT])
def test_a_partner_must_be_alive(just_in_time):
    """d has the key, and ends before the second a begins: that a visits nobody."""
    run = star().run_locally("{a b c d}", just_in_time=just_in_time)
    run.push({"b": pa.table({"ts": [0, 6], "x": [1, 1]})})
    run.push({"c": pa.table({"ts": [0, 6], "y": [1, 1]}), "d": pa.table({"ts": [0], "z": [1]})})
    assert run.push({"a": pa.table({"ts": [5], "x": [1], "y": [1], "z": [1]})}).num_rows == 1
    visits = braces(run)["probes"]
    assert run.push({"a": pa.table({"ts": [6], "x": [1], "y": [1], "z": [1]})}).num_rows == 0
    # An exact answer has the time of each key, a Bloom filter the latest of all its keys: both know here.
    assert (braces(run)["probes"], braces(run)["suspended"]) == (visits, 1)


@pytest.mark.parametrize("data_type", [pa.int64(), pa.string()])
def test_a_null_key_has_no_partner(data_type):
    run = star(data_type=data_type).run_locally("{a b c d}", just_in_time=ALWAYS)
    one = pa.array([1]).cast(data_type)
    run.push({name: pa.table({"ts": [0], column: one}) for name, column in zip("bcd", "xyz", strict=True)})
    null = pa.array([None], data_type)
    assert run.push({"a": pa.table({"ts": [1], "x": one, "y": one, "z": null})}).num_rows == 0
    assert (braces(run)["suspended"], braces(run)["probes"]) == (1, 0)
    assert run.push({"d": pa.table({"ts": [1], "z": null})}).num_rows == 0
    assert run.push({"a": pa.table({"ts": [1], "x": one, "y": one, "z": one})}).num_rows == 1


@pytest.mark.parametrize("condition", ["a.z < d.z", "a.z <> d.z", "a.z + b.x = d.z"])
def test_only_equalities_are_asked_about(condition):
    """d is linked with a by another comparison, or by an equality that a and b have together: a visits b and c.

    In the last case the pairs are asked about, and left out of the visit of c.
    """
    run = star(condition=condition).run_locally("{a b c d}", just_in_time=ALWAYS)
    tables = {"b": {"x": [1]}, "c": {"y": [1]}, "d": {"z": [1]}}
    run.push({name: pa.table({"ts": [0], **row}) for name, row in tables.items()})
    assert run.push({"a": pa.table({"ts": [1], "x": [1], "y": [1], "z": [1]})}).num_rows == 0
    is_asked = "=" in condition
    assert (braces(run)["suspended"], braces(run)["probes"]) == ((1, 1) if is_asked else (0, 3))
    z = 2 if condition != "a.z <> d.z" else 3
    assert run.push({"d": pa.table({"ts": [1], "z": [z]})}).num_rows == 1


@pytest.mark.parametrize("routing", ["fixed", "eddy"])
def test_what_is_put_off_is_known_to_whoever_starts_to_ask(routing):
    """As long as b is silent nobody visits, and the indexes sort nothing; then everybody starts to ask at once."""
    query = star("RANGE 50")
    run = query.run_locally(query.plan("{a b c d}", routing=routing), just_in_time=ALWAYS)
    for ts in range(4):
        run.push({"c": pa.table({"ts": [ts], "y": [1]}), "d": pa.table({"ts": [ts], "z": [ts]})})
        run.push({"a": pa.table({"ts": [ts], "x": [1], "y": [1], "z": [ts]})})
    assert braces(run)["probes"] == 0
    assert run.push({"b": pa.table({"ts": [4], "x": [1]})}).num_rows == 16


def test_pairs_are_asked_about_by_all_their_columns():
    """For a there is one d, and for b there is another: the pair has none. Without type two, it visits c and d."""
    query = clique("abcd")
    visits = []
    for just_in_time in (False, JustInTime(least_share=0.0, type_two=False), ALWAYS):
        run = query.run_locally("{a b c d}", just_in_time=just_in_time)
        run.push({"d": pa.concat_tables([row(query, "d", 0, bd=5), row(query, "d", 0, ad=5)])})
        run.push({"b": row(query, "b", 0)})
        run.push({"c": row(query, "c", 0)})
        assert run.push({"a": row(query, "a", 0)}).num_rows == 0
        visits.append(braces(run)["probes"])
    assert visits == [3, 3, 1]


def test_checks_that_keep_back_too_little_are_given_up_and_tried_again():
    query = star("RANGE 5")
    run = query.run_locally("{a b c d}", just_in_time=JustInTime(trial_rows=20))
    sizes = []
    for step in range(70):
        # From the 30th step on, d has no partner for a.
        z = 1 if step < 30 else 2
        ones = {"a": {"x": [1] * 10, "y": [1] * 10, "z": [1] * 10}, "b": {"x": [1]}, "c": {"y": [1]}, "d": {"z": [z]}}
        run.push({name: pa.table({"ts": [step] * len(next(iter(r.values()))), **r}) for name, r in ones.items()})
        sizes.append(braces(run)["suspended"])
    assert sizes[29] == 0
    assert sizes[69] >= 100
    assert "rows left out of visits, at least about" in run.explain()


def test_what_visits_avoid_is_counted():
    """Ten b for each a, and no d: without the check there would be ten pairs of each a."""
    query = star("RANGE 50")
    run = query.run_locally("{a b c d}", just_in_time=ALWAYS)
    tables = {"b": {"x": [1] * 10}, "c": {"y": [1]}, "d": {"z": [1]}}
    run.push({name: pa.table({"ts": [0] * len(next(iter(r.values()))), **r}) for name, r in tables.items()})
    a = {"ts": [1] * 5, "x": [1] * 5, "y": [1] * 5}
    assert run.push({"a": pa.table({**a, "z": [1] * 5})}).num_rows == 50
    run.push({"a": pa.table({**a, "z": [2] * 5})})
    assert (braces(run)["suspended"], braces(run)["avoided"]) == (5, 50)


def test_keys_are_forgotten_with_the_rows():
    query = clique("abc", "RANGE 20")
    run = query.run_locally("{a b c}", just_in_time=ALWAYS)
    sizes = []
    for step in range(400):
        run.push({name: row(query, name, 5 * step, ac=step, bc=-step) for name in "abc"})
        sizes.append(run.metrics()["state_bytes"])
    assert max(sizes[200:]) <= max(sizes[50:150])


ORDERS = ["{a b c d}", "{a b c} d", "d {a b c}", "{(a b) c d}", "{(a b) (c d)}", "{a b} {c d}", "({a b} c) d"]


@pytest.mark.parametrize("plan", ORDERS)
def test_nobody_waits_for_each_other(plan):
    """The rows by which the published rule loses a result, in many orders of arrival."""
    query = clique("abcd")
    rows = counterexample(query)
    for order in islice(permutations(rows), 0, None, 97):
        run = query.run_locally(plan, just_in_time=ALWAYS)
        found = [run.push({rows[name][0]: rows[name][1]}) for name in order]
        assert sum(table.num_rows for table in found) == 1, order


def test_inputs_of_braces_wait_for_joins_above():
    query = clique("abcd")
    run = query.run_locally("{a b c} d", just_in_time=ALWAYS)
    run.push({"d": row(query, "d", 0, ad=1)})
    run.push({name: row(query, name, 0) for name in "abc"})
    assert (braces(run)["rows_in"], braces(run)["rows_out"]) == (2, 0)
    assert figures(run, "Suspend Window a")["Suspend Window a [RANGE 100]"]["suspended"] == 1
    assert run.push({"d": row(query, "d", 0)}).num_rows == 1
    assert figures(run, "Suspend Window a")["Suspend Window a [RANGE 100]"]["resumed"] == 1


def test_joins_below_braces_wait_for_its_other_inputs():
    """a waits for a partner in c, and its pair with b for one in d, which both decide."""
    query = clique("abcd")
    run = query.run_locally("{(a b) c d}", just_in_time=ALWAYS)
    run.push({"c": row(query, "c", 0, ac=1), "d": row(query, "d", 0)})
    run.push({name: row(query, name, 0) for name in "ab"})
    assert figures(run, "Join a.ab = b.ab")["Join a.ab = b.ab"]["rows_out"] == 0
    assert run.push({"c": row(query, "c", 0)}).num_rows == 1
    assert figures(run, "Join a.ab = b.ab")["Join a.ab = b.ab"]["rows_out"] == 1


def test_of_two_joins_below_braces_one_waits_for_the_other():
    """e decides about both, and (c d) about a and b, not the other way round."""
    query = clique("abcde")
    run = query.run_locally("{(a b) (c d) e}", just_in_time=ALWAYS)
    run.push({name: row(query, name, 0, ac=int(name == "c")) for name in "abcd"})
    assert {join["rows_out"] for join in figures(run, "Join").values()} == {0}
    run.push({"e": row(query, "e", 0)})
    assert figures(run, "Join a.ab = b.ab")["Join a.ab = b.ab"]["rows_out"] == 0
    assert figures(run, "Join c.cd = d.cd")["Join c.cd = d.cd"]["rows_out"] == 1
    assert run.push({"c": row(query, "c", 0)}).num_rows == 1


@pytest.mark.parametrize("label", [label for label, known in STRATEGIES.items() if known[0] != "pause-drain-resume"])
@pytest.mark.parametrize(("before", "after"), [(False, True), (True, False), (True, True)])
def test_every_strategy_migrates_from_and_to_just_in_time_braces(label, before, after):
    query = clique("abcd", "RANGE 30")
    run = query.run_locally("{(a b) c d}", just_in_time=ALWAYS if before else False)
    strategy, options = STRATEGIES[label]
    pushed, results = [], []
    for step in range(24):
        if step == 9:
            run.migrate(query.plan("{a b c} d", routing="eddy"), strategy, **options)
        if step == 12:
            run.switch_just_in_time(ALWAYS if after else False)
        if step == 15:
            run.migrate("{a b c d}", strategy, **options)
        if step == 20:
            run.migrate("(a c) {b d}", strategy, **options)
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
