"""What a query tells of itself: put together from its cells, and written where other processes look."""

from __future__ import annotations

import threading

import pytest
from msgspec.structs import replace

from midstream import ContinuousQuery, Stream
from midstream.algebra.plan_json import plan_to_json
from midstream.algebra.window_spec import NEVER
from midstream.errors import FinishedRun
from midstream.migration.record import MigrationFigures
from midstream.planning.partitioning import partition
from midstream.runtime.control import ControlDirectory
from midstream.runtime.messages import CellFigures, CommandOutcome, Rates
from midstream.runtime.plan_changes import PlanChanges
from midstream.runtime.progress import RATE_SECONDS, Progress, RateMeter
from midstream.runtime.remote import RemoteQuery
from midstream.runtime.reporting import Report
from midstream.runtime.run import MigrationEvent, ProgressEvent
from midstream.runtime.stream_counters import StreamCounters
from tests.cli.commanding import SCHEMA, TEXT, control_of

SUMS = ("results", "window_rows", "state_rows", "state_bytes", "buffered", "segments", "segment_rows", "bytes_written")
QUERY = ContinuousQuery(TEXT, [Stream(name, SCHEMA, "ts") for name in ("orders", "payments", "shipments")])


def figures(cell, plan="(o p) s", commands=(), **others):
    """What a cell sends with a micro-batch."""
    own = {
        "cell": cell,
        "plan": QUERY.plan(plan).explain(),
        "plan_json": plan_to_json(QUERY.plan(plan)),
        "commands": list(commands),
        "rebuild_seconds": None,
        "query": "q1",
        "idle": [],
        "watermark": 7,
        "migrating": False,
        "batches": 3,
        "seconds": 0.1,
        "operators": [],
        "streams": {stream.name: StreamCounters(rows=10) for stream in QUERY.streams},
        **dict.fromkeys(SUMS, 5),
    }
    return CellFigures(**{**own, **others})


class Reported:
    """A query of two cells, and its control directory."""

    def __init__(self, folder, idle_after=None):
        self.control = control_of(folder, "(o p) s")
        first = QUERY.plan("(o p) s")
        self.changes = PlanChanges(QUERY, first, self.control)
        self.progress = Progress(QUERY.plan(), partition(QUERY.plan(), 2), self.control.mark)
        self.report = Report(first, self.progress, self.control, self.changes, idle_after)

    def outcome(self, number, state="completed"):
        done = MigrationFigures(started=1.0, ended=3.5, rows_recomputed=7, states_shared=2)
        return CommandOutcome(directory=self.control.mark, number=number, state=state, migration=1, figures=done)


def test_a_migration_has_ended_only_when_every_cell_says_so(tmp_path):
    query = Reported(tmp_path)
    number = query.changes.submit(QUERY.plan("(o p) s"), "o (p s)", "jisc", {}, query.report.metrics())
    states = []
    for cell in (None, 0, 1):
        if cell is not None:
            query.progress.take([figures(cell, "o (p s)", [query.outcome(number)])])
        states.append(query.report.history()[0].state)
    assert states == ["submitted", "running", "completed"]


def test_streams_have_ended_only_when_they_have_in_every_cell(tmp_path):
    query = Reported(tmp_path)
    query.progress.take([figures(0, watermark=NEVER)])
    assert not query.report.metrics().finished
    query.progress.take([figures(1)])
    assert (query.report.metrics().finished, query.report.metrics().watermark) == (False, 7)
    query.progress.take([figures(1, watermark=NEVER)])
    assert query.report.metrics().finished


def test_that_all_is_committed_is_told_apart_from_the_last_figures(tmp_path):
    """Tasks tell before their micro-batch is committed: it may still fail."""
    query = Reported(tmp_path)
    query.progress.take([figures(cell, watermark=NEVER) for cell in (0, 1)])
    query.report.write()
    assert query.control.status().metrics.finished
    assert not query.control.status().has_ended
    query.report.end()
    assert query.control.status().has_ended
    with pytest.raises(FinishedRun):
        RemoteQuery(query.control.path).migrate("o (p s)")


def test_the_plan_in_force_is_known_without_the_command_that_led_to_it(tmp_path):
    """As after a restart with another control directory."""
    query = Reported(tmp_path)
    query.progress.take([figures(0, "o (p s)")])
    assert query.report.plan == QUERY.plan("o (p s)")
    # While cells disagree, what was told last holds.
    query.report.write()
    query.progress.take([figures(1, "(o s) p")])
    assert query.report.plan == QUERY.plan("o (p s)")
    assert RemoteQuery(query.control.path).plan == QUERY.plan("o (p s)")


def test_what_an_earlier_run_told_holds_until_a_cell_tells(tmp_path):
    query = Reported(tmp_path)
    query.progress.take([figures(0), figures(1)])
    query.report.write()
    before = query.control.status()
    again = Reported(tmp_path)
    again.report.write()
    assert again.control.status() == before
    assert again.report.plan == QUERY.plan("(o p) s")


def test_which_cells_have_state_is_known_after_a_restart(tmp_path):
    query = Reported(tmp_path)
    assert query.report.cells_begun.cells == set()
    query.progress.take([figures(0, batches=2), figures(1, batches=1)])
    query.report.write()
    begun = Reported(tmp_path).report.cells_begun
    assert (begun.query, begun.cells) == ("q1", {0})


def test_a_status_that_was_removed_is_written_again_with_the_next_report(tmp_path):
    query = Reported(tmp_path)
    query.progress.take([figures(cell) for cell in (0, 1)])
    query.report.write()
    remote = RemoteQuery(query.control.path)
    assert not remote.lacks_report
    (query.control.path / "status.json").unlink()
    assert remote.lacks_report
    query.progress.take([figures(0, "o (p s)")])
    query.report.write()
    assert not remote.lacks_report
    assert remote.status().metrics.query == "q1"


def test_a_silent_stream_is_declared_idle_again_if_that_could_not_be_written(tmp_path, monkeypatch):
    query = Reported(tmp_path, idle_after=1e-9)
    rows = dict(figures(0).streams)
    query.progress.take([figures(0), figures(1)])
    rows["orders"] = StreamCounters(rows=11)
    # Two have been silent since; the third just had a row.
    monkeypatch.setattr("midstream.runtime.progress.time.monotonic", lambda: 1e9)
    query.progress.take([figures(0, streams=rows), figures(1, streams=rows)])
    query.progress._last_seen["orders"] = 2e9
    with monkeypatch.context() as broken:
        broken.setattr(ControlDirectory, "write", lambda *_: (_ for _ in ()).throw(OSError("no space")))
        with pytest.raises(OSError, match="no space"):
            query.report.write()
    for _ in range(2):
        query.report.write()
    assert sorted(command.action.stream for command in query.control.commands()) == ["payments", "shipments"]


def test_streams_are_declared_idle_that_are_not_yet_and_only_while_another_has_rows(tmp_path, monkeypatch):
    query = Reported(tmp_path, idle_after=5.0)
    query.progress.take([figures(0), figures(1)])
    monkeypatch.setattr("midstream.runtime.progress.time.monotonic", lambda: 1e9)
    query.report.write()
    assert query.control.commands() == []
    rows = figures(0).streams | {"orders": StreamCounters(rows=11)}
    query.progress.take([figures(cell, streams=rows, idle=["payments"]) for cell in (0, 1)])
    query.report.write()
    (command,) = query.control.commands()
    assert (command.action.stream, command.action.rows, command.query) == ("shipments", 10, "q1")


def metrics_of(rows, results):
    counted = {"streams": {"orders": StreamCounters(rows=rows)}, "results": results}
    return replace(Progress(QUERY.plan(), partition(QUERY.plan(), 1)).metrics(), **counted)


def test_rates_fall_to_nothing_when_nothing_comes():
    rates = RateMeter()
    assert rates.after(metrics_of(10, 4), now=0.0) == Rates()
    metrics = metrics_of(110, 44)
    assert rates.after(metrics, now=2.0) == Rates(rows=50.0, results=20.0)
    assert rates.after(metrics, now=2.0 + RATE_SECONDS) == Rates(rows=50.0, results=20.0)
    assert rates.after(metrics, now=2.1 + RATE_SECONDS) == Rates(rows=0.0, results=0.0)
    # A micro-batch that takes longer than that is no silence.
    metrics = metrics_of(210, 84)
    assert rates.after(metrics, now=52.0).rows == pytest.approx(2.0)
    assert rates.after(metrics, now=92.0).rows == pytest.approx(2.0)


def test_rates_do_not_count_the_time_before_the_first_rows():
    rates = RateMeter()
    assert rates.after(metrics_of(0, 0), now=0.0) == Rates()
    assert rates.after(metrics_of(100, 40), now=30.0) == Rates()
    assert rates.after(metrics_of(200, 80), now=31.0) == Rates(rows=100.0, results=40.0)


def test_what_migrations_did_is_known_after_a_restart_before_any_cell_reports(tmp_path):
    query = Reported(tmp_path)
    number = query.changes.submit(QUERY.plan("(o p) s"), "o (p s)", "jisc", {}, None)
    query.progress.take([figures(cell, "o (p s)", [query.outcome(number)]) for cell in (0, 1)])
    query.report.write()
    (migration,) = Reported(tmp_path).report.history()
    assert (migration.state, migration.seconds) == ("completed", 2.5)
    assert (migration.rows_recomputed, migration.states_shared) == (14, 2)
    assert (migration.old_plan, migration.new_plan) == (QUERY.plan("(o p) s"), QUERY.plan("o (p s)"))


def test_listeners_are_called_in_order_and_cannot_break_the_run(tmp_path):
    query = Reported(tmp_path)
    events = []
    query.report.listeners.subscribe(lambda event: 1 / 0)
    query.report.listeners.subscribe(events.append)
    number = query.changes.submit(QUERY.plan("(o p) s"), "o (p s)", "jisc", {}, None)
    query.report.notify()
    query.progress.take([figures(cell, "o (p s)", [query.outcome(number)]) for cell in (0, 1)])
    query.report.notify()
    states = [event.state for event in events if isinstance(event, MigrationEvent)]
    assert states == ["submitted", "running", "completed"]
    assert isinstance(events[-1], ProgressEvent) and events[-1].metrics.batches == 3


def submitted(query, count):
    """So many migrations, to one plan and another in turn."""
    orders = ["o (p s)", "(o p) s"]
    return [
        query.changes.submit(QUERY.plan(orders[1 - turn % 2]), orders[turn % 2], "jisc", {}, None)
        for turn in range(count)
    ]


def test_a_completed_migration_stays_completed_while_cells_report_again_after_a_restart(tmp_path):
    """It was running again until the last cell had reported."""
    query = Reported(tmp_path)
    (number,) = submitted(query, 1)
    done = query.outcome(number)
    query.progress.take([figures(cell, "o (p s)", [done]) for cell in (0, 1)])
    query.report.write()
    again = Reported(tmp_path)
    events = []
    again.report.listeners.subscribe(events.append)
    again.progress.take([figures(0, "o (p s)", [done])])
    again.report.notify()
    (migration,) = again.report.history()
    assert (migration.state, migration.rows_recomputed, events) == ("completed", 14, [])


def test_what_a_cell_has_not_reported_again_is_what_it_reported_before_the_restart(tmp_path):
    query = Reported(tmp_path)
    (number,) = submitted(query, 1)
    running = replace(query.outcome(number, "running"), figures=MigrationFigures(started=1.0))
    query.progress.take([figures(0, commands=[running]), figures(1, commands=[query.outcome(number)])])
    query.report.write()
    again = Reported(tmp_path)
    again.progress.take([figures(0, commands=[query.outcome(number)])])
    assert again.report.history()[0].state == "completed"


def test_what_was_known_of_another_query_is_not_taken_for_this_ones(tmp_path):
    query = Reported(tmp_path)
    (number,) = submitted(query, 1)
    query.progress.take([figures(cell, commands=[query.outcome(number)], query=None) for cell in (0, 1)])
    query.report.write()
    again = Reported(tmp_path)
    again.progress.take([figures(0, query="another")])
    assert again.report.history()[0].state == "submitted"


def test_what_became_of_another_directorys_commands_is_not_taken_for_this_ones(tmp_path):
    """A query that is started again with a new directory still reports what it did with the commands of the old one."""
    query = Reported(tmp_path)
    (number,) = submitted(query, 1)
    others = [replace(query.outcome(later), directory="another") for later in (number, number + 1)]
    query.progress.take([figures(cell, commands=others) for cell in (0, 1)])
    assert query.report.history()[0].state == "submitted"


@pytest.mark.parametrize("restarts", [1, 2])
def test_refused_migrations_stay_refused_however_many_follow(tmp_path, restarts):
    """After a restart, all that were not among the latest 50 were completed."""
    query = Reported(tmp_path)
    numbers = submitted(query, 120)
    states = {number: ["refused", "completed", "unchanged"][number % 3] for number in numbers}
    told = [query.outcome(number, state) for number, state in states.items()]
    query.progress.take([figures(cell, commands=told) for cell in (0, 1)])
    query.report.write()
    for _ in range(restarts):
        assert len(query.control.status().history) == 50
        remote = RemoteQuery(query.control.path)
        assert {number: remote.outcome(number).state for number in numbers} == states
        query = Reported(tmp_path)
        # Cells remember only the latest commands.
        query.progress.take([figures(cell, commands=told[-32:]) for cell in (0, 1)])
        assert {migration.number: migration.state for migration in query.report.history()} == states
        query.report.write()


def test_a_migration_that_is_not_over_stays_in_the_status_however_many_follow(tmp_path):
    query = Reported(tmp_path)
    numbers = submitted(query, 80)
    told = [query.outcome(number, "running" if number == 3 else "completed") for number in numbers]
    query.progress.take([figures(cell, commands=told) for cell in (0, 1)])
    query.report.write()
    assert [entry.number for entry in query.control.status().history] == [3, *numbers[-50:]]
    assert RemoteQuery(query.control.path).outcome(3).state == "running"


def test_the_history_reads_the_commands_once_however_many_migrations_there_are(tmp_path, monkeypatch):
    """It read them all for each migration, and went over all outcomes for each."""
    query = Reported(tmp_path)
    numbers = submitted(query, 30)
    told = [query.outcome(number) for number in numbers]
    query.progress.take([figures(cell, commands=told) for cell in (0, 1)])
    calls = []
    commands = ControlDirectory.commands
    monkeypatch.setattr(ControlDirectory, "commands", lambda self: calls.append(self) or commands(self))
    again = Reported(tmp_path)
    again.report.notify()
    assert len(calls) == 2


def test_events_of_two_threads_do_not_overtake_each_other(tmp_path):
    """A thread that was between noting a state and telling it was overtaken by one with the next state."""
    query = Reported(tmp_path)
    (number,) = submitted(query, 1)
    states = []
    has_begun, may_end = threading.Event(), threading.Event()

    def listener(event):
        if isinstance(event, MigrationEvent):
            if event.state == "submitted":
                has_begun.set()
                may_end.wait(10)
            states.append(event.state)

    query.report.listeners.subscribe(listener)
    first = threading.Thread(target=query.report.notify)
    first.start()
    assert has_begun.wait(10)
    query.progress.take([figures(cell, "o (p s)", [query.outcome(number)]) for cell in (0, 1)])
    second = threading.Thread(target=query.report.notify)
    second.start()
    second.join(10)
    may_end.set()
    first.join(10)
    assert states == ["submitted", "running", "completed"]
