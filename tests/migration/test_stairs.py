"""STAIRs change their own join order when the streams change, eagerly or lazily, and only while they run alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.migration.stairs import StairsBox
from midstream.testing import compare_bags

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


def last_part(run) -> int:
    (braces,) = executor(run)._braces
    return braces.order[-1]


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


def test_a_rebuilt_executor_keeps_its_order():
    run = QUERY.run_locally(QUERY.plan("{a b c d}", routing="stairs"))
    reference = QUERY.run_locally("a b c d")
    for number, push in enumerate(pushes()):
        difference = compare_bags(run.push(push), reference.push(push))
        assert (difference.missing, difference.repeated) == (0, 0)
        if number % 5 == 4:
            run.rebuild("jisc" if number % 2 else "moving-state")
    assert last_part(run) in (2, 3)
