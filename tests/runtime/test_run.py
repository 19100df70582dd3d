"""One protocol for running queries: a local run and one on Spark have the same names with the same meaning."""

from __future__ import annotations

import inspect

import pyarrow as pa
import pytest

from midstream import ContinuousQuery, LocalRun, Stream
from midstream.runtime.messages import CellFigures, ClusterMetrics, Counts, RunFigures, RunMetrics
from midstream.runtime.run import MigrationEvent, ProgressEvent, Run
from midstream.spark import LiveQuery

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64()})
QUERY = ContinuousQuery(
    "SELECT a.k FROM a [RANGE 5], b [RANGE 5], c [RANGE 5] WHERE a.k = b.k AND b.k = c.k",
    [Stream(name, SCHEMA, "ts") for name in "abc"],
)
PROTOCOL = [name for name in vars(Run) if not name.startswith("_")]


def rows(now: int) -> dict[str, pa.Table]:
    return {name: pa.table({"ts": [now], "k": [1]}, schema=SCHEMA) for name in "abc"}


@pytest.mark.parametrize("name", PROTOCOL)
def test_both_runs_have_what_the_protocol_has(name):
    promised = vars(Run)[name]
    for kind in (LocalRun, LiveQuery):
        own = vars(kind)[name]
        assert type(own) is type(promised)
        if inspect.isfunction(own):
            assert inspect.signature(own) == inspect.signature(promised)


def test_metrics_of_both_have_the_same_names():
    common = {*RunMetrics.__struct_fields__, "migrations"}
    assert QUERY.run_locally().metrics().keys() == common
    assert common - {"migrations"} <= set(ClusterMetrics.__struct_fields__)


@pytest.mark.parametrize("kind", [CellFigures, RunMetrics, ClusterMetrics])
def test_counts_are_declared_once_for_cells_and_queries(kind):
    shared = {*Counts.__struct_fields__, *RunFigures.__struct_fields__}
    assert shared <= set(kind.__struct_fields__)
    assert not shared & set(inspect.get_annotations(kind))


def test_a_handle_follows_its_migration_to_the_end():
    run = QUERY.run_locally("(a b) c")
    run.push(rows(0))
    migration = run.migrate("a (b c)", "gen-mig")
    assert (int(migration), migration.state, migration.seconds) == (1, "running", None)
    assert (migration.old_plan, migration.new_plan) == (QUERY.plan("(a b) c"), QUERY.plan("a (b c)"))
    run.rebuild()
    for now in range(1, 20):
        run.push(rows(now))
    assert (migration.state, migration.is_over) == ("completed", True)
    assert migration.seconds >= 0 and migration.ended >= migration.started >= migration.submitted - 1
    assert run.history() == [migration]
    assert run.migrate("a (b c)").state == "unchanged"
    assert [entry["number"] for entry in run.metrics()["migrations"]] == [1]


def test_listeners_see_every_push_and_every_state():
    run = QUERY.run_locally("(a b) c")
    events = []
    run.subscribe(lambda event: 1 / 0)
    unsubscribe = run.subscribe(events.append)
    run.push(rows(0))
    run.migrate("a (b c)", "moving-state")
    run.migrate("a (b c)")
    list(run.push_in_chunks(rows(1)))
    unsubscribe()
    run.push(rows(2))
    states = [event.state for event in events if isinstance(event, MigrationEvent)]
    assert states == ["submitted", "running", "completed", "submitted", "unchanged"]
    assert [event.metrics.batches for event in events if isinstance(event, ProgressEvent)] == [1, 2]


def test_a_handle_follows_its_migration_however_many_come_after_it(monkeypatch):
    """It stayed "running" once the cell had forgotten it."""
    monkeypatch.setattr("midstream.runtime.cell.MOST_RECORDS", 3)
    run = QUERY.run_locally("(a b) c")
    run.push(rows(0))
    running = run.migrate("a (b c)", "gen-mig")
    # Each is a migration inside the one before.
    later = [run.migrate(order, "gen-mig") for order in ["(a b) c", "a (b c)"] * 4]
    assert {migration.state for migration in (running, *later)} == {"running"}
    for now in range(1, 20):
        run.push(rows(now))
    assert {migration.state for migration in (running, *later)} == {"completed"}
    assert running.seconds > 0


def test_events_come_for_migrations_that_the_history_has_dropped(monkeypatch):
    monkeypatch.setattr("midstream.runtime.local_run.MOST_RECORDS", 2)
    run = QUERY.run_locally("(a b) c")
    run.push(rows(0))
    events = []
    run.subscribe(lambda event: events.append((int(event.migration), event.state)) if by_migration(event) else None)
    for order in ["a (b c)", "(a b) c", "a (b c)"]:
        run.migrate(order, "gen-mig")
    assert [int(migration) for migration in run.history()] == [2, 3]
    run.push(rows(100))
    assert [number for number, state in events if state == "completed"] == [1, 2, 3]


def by_migration(event) -> bool:
    return isinstance(event, MigrationEvent)


def test_an_event_keeps_the_counts_of_its_moment():
    """The counters of its streams went on counting."""
    run = QUERY.run_locally("(a b) c")
    events = []
    run.subscribe(events.append)
    run.push(rows(0))
    run.push(rows(1))
    assert [event.metrics.streams["a"].rows for event in events] == [1, 2]


def test_results_of_a_push_that_was_given_up_do_not_report_the_next_one():
    run = QUERY.run_locally("(a b) c", chunk_rows=1)
    events = []
    run.subscribe(events.append)
    given_up = run.push_in_chunks(rows(0))
    next(given_up)
    under_way = run.push_in_chunks(rows(1))
    next(under_way)
    assert list(given_up) == []
    assert [event.metrics.batches for event in events] == [1]
    list(under_way)
    assert [(event.metrics.batches, event.metrics.watermark) for event in events] == [(1, 0), (2, 1)]


def test_a_subscription_is_ended_once():
    """The second time it ended another one of the same listener."""
    run = QUERY.run_locally("(a b) c")
    events = []
    first, _ = run.subscribe(events.append), run.subscribe(events.append)
    first()
    first()
    run.push(rows(0))
    assert len(events) == 1


def test_a_listener_may_change_the_run_and_sees_the_states_in_order():
    run = QUERY.run_locally("(a b) c")
    states = []

    def listener(event):
        if isinstance(event, MigrationEvent):
            states.append((int(event.migration), event.state))
        elif not states:
            run.migrate("a (b c)", "moving-state")

    run.subscribe(listener)
    run.push(rows(0))
    assert states == [(1, "submitted"), (1, "running"), (1, "completed")]
