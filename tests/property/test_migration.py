"""Any query, any input, any batching, migrated at any moment from any plan to any other by any strategy, overlapped,
and with all derived state thrown away in between: the result is what DuckDB says."""

from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from midstream import ContinuousQuery
from midstream.algebra.plan import Aggregate, Difference, Distinct, Union
from midstream.algebra.windows import NEVER
from midstream.errors import BadMigration
from midstream.testing import JOIN_OPERATORS, WINDOWS, assert_same_bag, assert_snapshot_equivalent, scenarios

EXAMPLES = settings().max_examples

STRATEGIES = [
    ("moving-state", {}),
    ("jisc", {}),
    ("jisc", {"as_published": True}),
    ("parallel-track", {}),
    ("parallel-track", {"as_published": True}),
    ("gen-mig", {}),
    ("gen-mig", {"shortened": True}),
    ("gen-mig", {"variant": "reference-point"}),
    ("gen-mig", {"variant": "reference-point", "shortened": True}),
    ("gen-mig", {"variant": "positive-negative"}),
    ("pause-drain-resume", {}),
]


@dataclass(frozen=True)
class Change:
    """Before the push with this number: change to another plan by a strategy, or rebuild all derived state.

    ``plan`` counts the query's plans from the one in force; 0 stays with it, -1 rebuilds.
    """

    moment: int
    plan: int
    strategy: str
    options: tuple[tuple[str, object], ...] = ()


def changes(moments: int, crashes: bool):
    ways = [(name, tuple(options.items())) for name, options in STRATEGIES]
    migrations = st.builds(
        lambda moment, plan, way: Change(moment, plan, *way),
        st.integers(0, moments),
        st.sampled_from([1, 2, 3, 5, 7, 0]),
        st.sampled_from(ways),
    )
    rebuilds = st.builds(
        lambda moment, way: Change(moment, -1, way), st.integers(0, moments), st.sampled_from(["moving-state", "jisc"])
    )
    every = st.one_of(migrations, migrations, rebuilds) if crashes else migrations
    return st.lists(every, min_size=1, max_size=6 if crashes else 4).map(lambda c: sorted(c, key=lambda x: x.moment))


BOUNDED = WINDOWS - {"unbounded"}
"""Parallel track and GenMig refuse unbounded windows."""


@st.composite
def migrated_scenarios(draw, crashes=False, **choices):
    """A scenario whose query has more than one plan, and changes of the plan."""
    windows = draw(st.sampled_from([BOUNDED, BOUNDED, BOUNDED, WINDOWS]))
    scenario = draw(scenarios(min_streams=2, batchings=["rows", "mixed"], windows=windows, **choices))
    assume(len(list(islice(ContinuousQuery(scenario.query_text, scenario.streams).plans(), 2))) > 1)
    return scenario, draw(changes(len(scenario.pushes), crashes))


def may_refuse(change: Change, plan) -> bool:
    """Whether a strategy has a reason to refuse the plan."""
    others = any(isinstance(node, Distinct | Aggregate | Difference) for node in plan.walk())
    endless = any(window.longest >= NEVER for window in plan.windows())
    if change.strategy == "pause-drain-resume":
        return any(node.is_stateful for node in plan.walk())
    if change.strategy == "parallel-track":
        return others or endless
    if change.strategy == "gen-mig":
        return endless or (others and ("variant", "reference-point") in change.options)
    # Aggregates or differences united with other rows, computed anew.
    return any(isinstance(node, Union) for node in plan.walk()) and others


def run_migrated(scenario, changes, chunk_rows=1 << 20) -> pa.Table:
    query = ContinuousQuery(scenario.query_text, scenario.streams)
    plans = list(islice(query.plans(), 12))
    run = query.run_locally(chunk_rows=chunk_rows)
    results = []
    pending = list(changes)
    for number in range(len(scenario.pushes) + 1):
        while pending and pending[0].moment <= number:
            change = pending.pop(0)
            if change.plan < 0:
                run.rebuild(change.strategy)
                continue
            before = run.plan
            plan = plans[(plans.index(before) + change.plan) % len(plans)]
            try:
                run.migrate(plan, change.strategy, **dict(change.options))
            except BadMigration:
                assert run.plan == before
                assert may_refuse(change, plan)
            else:
                assert run.plan == plan
        if number < len(scenario.pushes):
            push = scenario.pushes[number]
            results.append(run.push(push.rows, watermark=push.watermark))
    results.append(run.finish())
    assert not run.migrating
    assert all(record["is_over"] for record in run.metrics()["migrations"])
    for result in results:
        begins = result.column("valid_from").cast(pa.int64()).to_pylist()
        assert begins == sorted(begins)
    return pa.concat_tables(results)


@settings(max_examples=EXAMPLES * 4 // 3)
@given(migrated_scenarios())
def test_any_migration_equals_the_oracle(case):
    scenario, changes = case
    assert_snapshot_equivalent(run_migrated(scenario, changes), scenario.expected())


@settings(max_examples=EXAMPLES * 4 // 3)
@given(migrated_scenarios(operators=JOIN_OPERATORS))
def test_joins_give_each_row_once_through_any_migration(case):
    scenario, changes = case
    assert_same_bag(run_migrated(scenario, changes), scenario.expected_intervals())


@given(migrated_scenarios(crashes=True), st.sampled_from([1, 3, 1 << 20]))
def test_derived_state_can_be_thrown_away_at_any_moment(case, chunk_rows):
    scenario, changes = case
    assert_snapshot_equivalent(run_migrated(scenario, changes, chunk_rows), scenario.expected())


@settings(max_examples=EXAMPLES * 2 // 3)
@given(migrated_scenarios(crashes=True, operators=JOIN_OPERATORS), st.sampled_from([1, 3, 1 << 20]))
def test_joins_give_each_row_once_though_derived_state_is_thrown_away(case, chunk_rows):
    scenario, changes = case
    assert_same_bag(run_migrated(scenario, changes, chunk_rows), scenario.expected_intervals())
