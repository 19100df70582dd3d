"""Counts of operators are kept by subplan, whatever plan and process the operator is in."""

import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.engine.operators.operator import Counters
from midstream.runtime import operator_counters
from midstream.runtime.operator_counters import MOST_SUBPLANS, OperatorCounters

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64()})
QUERY = ContinuousQuery(
    "SELECT a.ts AS a, b.ts AS b, c.ts AS c FROM a [RANGE 50] a, b [RANGE 50] b, c [RANGE 50] c "
    "WHERE a.k = b.k AND b.k = c.k",
    [Stream(name, SCHEMA, "ts") for name in "abc"],
)


def rows(time):
    return {name: pa.table({"ts": [time, time], "k": [1, 2]}, schema=SCHEMA) for name in "abc"}


def counts(run):
    """Rows out by subplan, of joins and windows."""
    return {
        entry["subplan"]: (entry["rows_in"], entry["rows_out"])
        for entry in run.metrics()["operators"]
        if entry["kind"] in ("join", "window")
    }


def subplan(order):
    """What identifies the lower join of a join order."""
    joins = [node for node in QUERY.plan(order).walk() if node.label.startswith("Join")]
    return joins[-1].fingerprint


@pytest.mark.parametrize("strategy", ["moving-state", "jisc", "gen-mig", "parallel-track"])
def test_a_subplan_keeps_its_counts_through_migrations(strategy):
    run = QUERY.run_locally("(a b) c")
    run.push(rows(1))
    before = counts(run)
    run.migrate("a (b c)", strategy)
    for time in (2, 200, 400, 600):
        run.push(rows(time))
    assert not run.migrating
    run.migrate("(a b) c", "jisc")
    after = counts(run)
    # The windows passed on the rows of five pushes, whichever plans read them.
    windows = [node.fingerprint for node in QUERY.plan().walk() if node.label.startswith("Window")]
    assert all(after[window][1] >= 10 for window in windows)
    # The lower join of the first plan is there again, and has not lost what it did.
    assert after[subplan("(a b) c")][1] >= before[subplan("(a b) c")][1] > 0


def test_a_subplan_that_both_plans_have_goes_on_counting():
    run = QUERY.run_locally("(a b) c")
    run.push(rows(1))
    top = QUERY.plan("(a b) c").input.fingerprint
    assert top == QUERY.plan("a (b c)").input.fingerprint
    (_, found) = counts(run)[top]
    run.migrate("a (b c)")
    assert counts(run)[top][1] == found
    run.push(rows(2))
    assert counts(run)[top][1] > found


def test_rebuilt_operators_do_not_forget():
    run = QUERY.run_locally("(a b) c")
    run.push(rows(1))
    before = counts(run)
    run.rebuild("moving-state")
    assert all(after >= before[key] for key, after in counts(run).items())


def test_what_just_in_time_processing_avoided_is_not_computed_while_it_is_off(monkeypatch):
    computed = []
    real = operator_counters.partial_results_avoided
    monkeypatch.setattr(operator_counters, "partial_results_avoided", lambda given: computed.append(1) or real(given))
    run = QUERY.run_locally("(a b) c")
    run.push(rows(1))
    run.metrics()
    assert not computed
    run.switch_just_in_time(True)
    run.push(rows(2))
    run.metrics()
    assert computed
    run.switch_just_in_time(False)
    computed.clear()
    run.push(rows(3))
    run.metrics()
    assert not computed


def test_earlier_counts_are_bounded():
    counters = OperatorCounters()
    for number in range(MOST_SUBPLANS + 20):
        counters._keep(("Join", str(number)), Counters(1, 1, 1, 1))
    assert len(counters._earlier) == MOST_SUBPLANS
    assert ("Join", str(MOST_SUBPLANS + 19)) in counters._earlier
