"""Checks before visits are given up when they do not pay, those of ways included that an eddy no longer takes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from midstream import ContinuousQuery, Stream
from midstream.engine.operators import visit_filter
from midstream.engine.operators.multi_join import MultiJoinOperator
from midstream.engine.operators.visit_filter import _Check


class Demand:
    """Notes keys as long as it has users."""

    def __init__(self):
        self.noted = self.users = 0

    def start(self):
        self.users += 1

    def stop(self):
        self.users -= 1

    def contains(self, codes, starts):
        return np.ones(len(codes), bool)


class Tuples:
    valid_from = np.zeros(10)

    def __len__(self):
        return 10

    def filtered(self, kept):
        return self


def test_a_check_that_nobody_asks_any_more_is_given_up():
    demand = Demand()
    codes = SimpleNamespace(of=lambda tuples: (np.zeros(len(tuples)), None))
    check = _Check(demand, codes, least_share=0.1, trial_rows=1_000)
    check.passing(Tuples(), worth=1)
    assert demand.users == 1
    check.review()
    assert demand.users == 1
    # The input's keys are noted, push after push, but no tuple comes that way.
    demand.noted += 1_000_000
    check.review()
    assert demand.users == 0
    check.stop()
    assert demand.users == 0


def test_checks_are_forgotten_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(visit_filter, "_MOST_CHECKS", 2)
    schema = pa.schema({"t": pa.int64(), "k": pa.int64()})
    query = ContinuousQuery(
        "SELECT a.t FROM a [RANGE 50], b [RANGE 50], c [RANGE 50], d [RANGE 50]"
        " WHERE a.k = b.k AND b.k = c.k AND c.k = d.k",
        [Stream(name, schema, "t") for name in "abcd"],
    )
    random = np.random.default_rng(1)
    run = query.run_locally(query.plan("{a b c d}", routing="eddy"), just_in_time=True)
    tree = query.run_locally("a b c d")
    (operator,) = (o for o in run._cell.executor.operators if isinstance(o, MultiJoinOperator))
    known = []
    for push in range(6):
        times = np.arange(10 * push, 10 * push + 10)
        tables = {name: pa.table({"t": times, "k": random.integers(0, 6, 10)}) for name in "abcd"}
        assert run.push(tables).num_rows == tree.push(tables).num_rows
        known.append(len(operator._filter._checks))
    users = sum(demand._users for one in operator._filter._inputs for demand in one.demands.values())
    assert users <= sum(len(checks._all()) for checks in operator._filter._checks.values())
    assert max(known) < 40
