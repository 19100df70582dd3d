"""What a query tells of itself: put together from its cells, and written where other processes look."""

from __future__ import annotations

import pytest

from midstream import ContinuousQuery, Stream
from midstream.algebra.plan_json import plan_to_json
from midstream.algebra.windows import NEVER
from midstream.errors import FinishedRun
from midstream.planning.partitioning import partition
from midstream.spark.control import ControlDirectory
from midstream.spark.plan_changes import PlanChanges
from midstream.spark.progress import RATE_SECONDS, Progress, Rates
from midstream.spark.remote import RemoteQuery
from midstream.spark.reporting import Report
from tests.cli.commanding import SCHEMA, TEXT, control_of

QUERY = ContinuousQuery(TEXT, [Stream(name, SCHEMA, "ts") for name in ("orders", "payments", "shipments")])
SUMS = ("results", "window_rows", "state_rows", "state_bytes", "buffered", "segments", "segment_rows", "bytes_written")


def told(cell, plan="(o p) s", commands=(), **figures):
    """What a cell sends with a micro-batch."""
    return {
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
        "streams": {
            stream.name: {"rows": 10, "without_event_time": 0, "event_time_out_of_range": 0, "late": 0}
            for stream in QUERY.streams
        },
        **dict.fromkeys(SUMS, 5),
        **figures,
    }


class Reported:
    """A query of two cells, and its control directory."""

    def __init__(self, folder, idle_after=None):
        self.control = control_of(folder, "(o p) s")
        first = QUERY.plan("(o p) s")
        self.changes = PlanChanges(QUERY, first, self.control)
        self.progress = Progress(QUERY.plan(), partition(QUERY.plan(), 2), self.control.mark)
        self.report = Report(first, self.progress, self.control, self.changes, idle_after)

    def outcome(self, number):
        return {"id": number, "directory": self.control.mark, "outcome": "begun", "why": None, "record": None}


def test_a_migration_has_ended_only_when_every_cell_says_so(tmp_path):
    query = Reported(tmp_path)
    number = query.changes.ask(QUERY.plan("(o p) s"), "o (p s)", "jisc", {}, query.report.metrics())
    states = []
    for cell in (None, 0, 1):
        if cell is not None:
            query.progress.take([told(cell, "o (p s)", [query.outcome(number)])])
        states.append(query.report.history()[0]["state"])
    assert states == ["written", "begun", "ended"]


def test_streams_have_ended_only_when_they_have_in_every_cell(tmp_path):
    query = Reported(tmp_path)
    query.progress.take([told(0, watermark=NEVER)])
    assert not query.report.metrics()["finished"]
    query.progress.take([told(1, watermark=NEVER)])
    assert query.report.metrics()["finished"]


def test_that_all_is_committed_is_told_apart_from_the_last_figures(tmp_path):
    """Tasks tell before their micro-batch is committed: it may still fail."""
    query = Reported(tmp_path)
    query.progress.take([told(cell, watermark=NEVER) for cell in (0, 1)])
    query.report.write()
    assert query.control.status()["metrics"]["finished"]
    assert not query.control.status()["has_ended"]
    query.report.end()
    assert query.control.status()["has_ended"]
    with pytest.raises(FinishedRun):
        RemoteQuery(query.control.path).migrate("o (p s)")


def test_the_plan_in_force_is_known_without_the_command_that_led_to_it(tmp_path):
    """As after a restart with another control directory."""
    query = Reported(tmp_path)
    query.progress.take([told(0, "o (p s)")])
    assert query.report.plan == QUERY.plan("o (p s)")
    # While cells disagree, what was told last holds.
    query.report.write()
    query.progress.take([told(1, "(o s) p")])
    assert query.report.plan == QUERY.plan("o (p s)")
    assert RemoteQuery(query.control.path).plan == QUERY.plan("o (p s)")


def test_what_an_earlier_run_told_holds_until_a_cell_tells(tmp_path):
    query = Reported(tmp_path)
    query.progress.take([told(0), told(1)])
    query.report.write()
    before = query.control.status()
    again = Reported(tmp_path)
    again.report.write()
    assert again.control.status() == before
    assert again.report.plan == QUERY.plan("(o p) s")


def test_a_silent_stream_is_declared_idle_again_if_that_could_not_be_written(tmp_path, monkeypatch):
    query = Reported(tmp_path, idle_after=1e-9)
    rows = dict(told(0)["streams"])
    query.progress.take([told(0), told(1)])
    rows["orders"] = {**rows["orders"], "rows": 11}
    # Two have been silent since; the third just had a row.
    monkeypatch.setattr("midstream.spark.progress.time.monotonic", lambda: 1e9)
    query.progress.take([told(0, streams=rows), told(1, streams=rows)])
    query.progress._last_seen["orders"] = 2e9
    with monkeypatch.context() as broken:
        broken.setattr(ControlDirectory, "write", lambda *_: (_ for _ in ()).throw(OSError("no space")))
        with pytest.raises(OSError, match="no space"):
            query.report.write()
    for _ in range(2):
        query.report.write()
    assert sorted(command["stream"] for command in query.control.commands()) == ["payments", "shipments"]


def test_rates_fall_to_nothing_when_nothing_comes():
    rates = Rates()
    metrics = {"streams": {"a": {"rows": 0}}, "results": 0}
    assert rates.after(metrics, now=0.0) == {"rows": None, "results": None}
    metrics = {"streams": {"a": {"rows": 100}}, "results": 40}
    assert rates.after(metrics, now=2.0) == {"rows": 50.0, "results": 20.0}
    assert rates.after(metrics, now=2.0 + RATE_SECONDS) == {"rows": 50.0, "results": 20.0}
    assert rates.after(metrics, now=2.1 + RATE_SECONDS) == {"rows": 0.0, "results": 0.0}
    # A micro-batch that takes longer than that is no silence.
    metrics = {"streams": {"a": {"rows": 200}}, "results": 80}
    assert rates.after(metrics, now=52.0)["rows"] == pytest.approx(2.0)
    assert rates.after(metrics, now=92.0)["rows"] == pytest.approx(2.0)
