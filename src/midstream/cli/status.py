"""``midstream status``: what a running query last reported, as tables."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from midstream.cli.adaptation import AdaptationView, inputs_table
from midstream.cli.failures import DONE
from midstream.cli.live_view import instant
from midstream.cli.output import Output
from midstream.cli.plan_names import order_of
from midstream.cli.saved_run import is_running, noted_failure, running_process
from midstream.cli.waiting import MISSING_REPORT
from midstream.errors import BadArgument
from midstream.runtime.explain import just_in_time_figures
from midstream.runtime.messages import ClusterMetrics, MigrationEntry, Rates, Status
from midstream.runtime.remote import RemoteQuery

__all__ = ["status"]

LOOK_SECONDS = 1.0


def status(control: Path, watch: bool, output: Output) -> int:
    """Show the status once, or again and again until the query ends or the user does."""
    if watch and output.as_json:
        raise BadArgument("--watch and --json do not go together", hint="Call it repeatedly with --json alone.")
    remote = RemoteQuery(control)
    if not watch:
        view = _View(remote)
        output.say(view.shown())
        output.document(view.document())
        return DONE
    with Live(console=output.words, auto_refresh=False) as live:
        try:
            while True:
                view = _View(remote)
                live.update(view.shown(), refresh=True)
                if view.is_running is False:
                    return DONE
                time.sleep(LOOK_SECONDS)
        except KeyboardInterrupt:
            # To look away is no failure.
            return DONE


class _View:
    """What is known of a query at one moment, as data and as tables."""

    def __init__(self, remote: RemoteQuery) -> None:
        self._remote = remote
        self._status = remote.status()
        self.is_running = is_running(remote.control_dir)
        self._pid = running_process(remote.control_dir) if self.is_running else None
        self._failure = None if self.is_running else noted_failure(remote.control_dir)
        self._lacks_report = remote.lacks_report
        self._plan = remote.plan.explain() if self._status is None else self._status.plan
        self._adaptation = AdaptationView.of(remote)
        self._ignored = [str(problem) for problem in remote.ignored().values()]

    def document(self) -> dict[str, Any]:
        """Everything, as data."""
        reported = {} if self._status is None else msgspec.to_builtins(self._status)
        return {
            "control": str(self._remote.control_dir),
            "is_running": self.is_running,
            "pid": self._pid,
            "failure": self._failure,
            "reported": reported.get("reported"),
            "plan": None if self._lacks_report else self._plan,
            "cells": self._remote.cells,
            "metrics": reported.get("metrics"),
            "has_ended": reported.get("has_ended", False),
            "rates": reported.get("rates"),
            "history": reported.get("history", []),
            "adaptation": self._adaptation.document(),
            "ignored": self._ignored,
        }

    def shown(self) -> RenderableType:
        """The same for people."""
        parts: list[RenderableType] = [Text(self._headline(), style="bold")]
        if self._lacks_report:
            parts.append(Text(f"{MISSING_REPORT}; the first plan was"))
        parts.append(Text(self._plan))
        status = self._status
        if status is not None:
            parts += [self._figures(status), _streams(status.metrics)]
            if status.streams:
                parts.append(inputs_table(status.streams, self._remote.query.plan().time_domain))
            parts.append(_operators(status.metrics))
            if status.history:
                parts.append(_migrations(self._remote, status.history))
        parts += [Text(f"ignored: {problem}") for problem in self._ignored]
        return Group(*parts)

    def _headline(self) -> str:
        status = self._status
        stopped = "stopped" if self._failure is None else f"failed: {self._failure}"
        state = {
            True: f"running (pid {self._pid})",
            False: "finished" if status is not None and status.has_ended else stopped,
            None: "finished" if status is not None and status.metrics.finished else "started by a program",
        }[self.is_running]
        return f"{state}, " + ("no report yet" if status is None else f"last report {_ago(status.reported)} ago")

    def _figures(self, status: Status) -> Table:
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        for name, value in self._lines(status):
            table.add_row(name, value)
        return table

    def _lines(self, status: Status) -> Iterator[tuple[str, str]]:
        metrics = status.metrics
        rates = Rates() if self.is_running is False else status.rates
        if metrics.finished:
            yield "watermark", "the end of all streams"
        else:
            yield "watermark", instant(metrics.watermark, self._remote.query.plan().time_domain)
        yield "rows in", f"{metrics.rows:,}{_rate(rates.rows)}"
        yield "results", f"{metrics.results:,}{_rate(rates.results)}"
        yield "state", f"{metrics.state_rows:,} rows, {metrics.state_bytes / 1e6:,.1f} MB"
        yield "in windows", f"{metrics.window_rows:,} rows"
        if metrics.just_in_time is not None:
            yield "just-in-time", _just_in_time(metrics)
        adaptation = self._adaptation.line()
        if adaptation is not None:
            yield "adaptation", adaptation
        if metrics.buffered:
            yield "buffered", f"{metrics.buffered:,} results"
        yield "micro-batches", f"{metrics.batches:,}, the last {metrics.seconds * 1000:,.0f} ms of midstream's work"
        restored = f", restored {metrics.rebuilds} times" if metrics.rebuilds else ""
        yield "cells", f"{self._remote.cells}{restored}"


def _ago(moment: float) -> str:
    seconds = max(0.0, time.time() - moment)
    return f"{seconds:.1f} s" if seconds < 60 else str(datetime.timedelta(seconds=round(seconds)))


def _rate(rate: float | None) -> str:
    return "" if rate is None else f", {rate:,.0f} per second"


def _just_in_time(metrics: ClusterMetrics) -> str:
    suspending = [operator for operator in metrics.operators if operator.consumers]
    waiting, keys = (sum(getattr(one, name) for one in suspending) for name in ("state_rows", "suspended_keys"))
    avoided = sum(operator.avoided for operator in metrics.operators)
    idle = sum(not operator.consumers_asked for operator in suspending)
    off = f"; off at {idle} of {len(suspending)} operators, where too few rows were suspended" if idle else ""
    return f"on, {waiting:,} rows ({keys:,} keys) wait, at least about {avoided:,} partial results avoided{off}"


def _streams(metrics: ClusterMetrics) -> Table:
    table = Table("stream", title="streams", title_justify="left")
    has_bad = any(counts.bad_messages for counts in metrics.streams.values())
    for name in ("rows", "late, dropped", "without event time", "out of range", *(["bad messages"] if has_bad else [])):
        table.add_column(name, justify="right")
    idle = {stream for cell in metrics.cells for stream in cell.idle}
    for name, counts in metrics.streams.items():
        figures = [counts.rows, counts.late, counts.without_event_time, counts.event_time_out_of_range]
        figures += [counts.bad_messages] if has_bad else []
        table.add_row(Text(name + (" (idle)" if name in idle else "")), *(f"{figure:,}" for figure in figures))
    return table


def _operators(metrics: ClusterMetrics) -> RenderableType:
    """State rows by operator, over all cells; of just-in-time processing, also what it suspended."""
    table = Table("operator", title="state", title_justify="left")
    table.add_column("rows", justify="right")
    if metrics.just_in_time is not None:
        table.add_column("just-in-time")
    for operator in metrics.operators:
        if operator.state_rows or operator.consumers:
            just_in_time = [] if metrics.just_in_time is None else [Text(just_in_time_figures(operator))]
            table.add_row(Text(operator.operator), f"{operator.state_rows:,}", *just_in_time)
    return table if table.row_count else Text("no operator holds rows")


def _migrations(remote: RemoteQuery, history: list[MigrationEntry]) -> Table:
    table = Table("#", "to", "strategy", "by", "state", "submitted", title="migrations", title_justify="left")
    table.add_column("seconds", justify="right")
    for entry in history[-10:]:
        plan = remote.plan_submitted(entry.number)
        figures = entry.outcome.figures
        seconds = None if figures is None else figures.seconds
        table.add_row(
            str(entry.number),
            Text((order_of(plan) if plan is not None else None) or "another plan"),
            Text(" ".join([entry.strategy, *(f"{key}={value}" for key, value in entry.options.items())])),
            "" if entry.decision is None else f"decision {entry.decision}",
            entry.outcome.state,
            f"{_ago(entry.submitted)} ago",
            "" if seconds is None else f"{seconds:.2f}",
        )
    return table
