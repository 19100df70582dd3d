"""``midstream status``: what a running query last told of itself, as tables."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from midstream.cli.failures import DONE
from midstream.cli.live_view import instant
from midstream.cli.output import Output
from midstream.cli.plan_names import order_of
from midstream.cli.run_file import is_running, noted_failure, running_process
from midstream.errors import BadArgument
from midstream.spark.remote import RemoteQuery

__all__ = ["status"]

LOOK_SECONDS = 1.0


def status(control: Path, watch: bool, output: Output) -> int:
    """Show the status once, or again and again until the query ends or the user does."""
    if watch and output.as_json:
        raise BadArgument("--watch and --json do not go together", hint="Ask again and again with --json alone.")
    remote = RemoteQuery(control)
    if not watch:
        told = _told(remote)
        output.say(_shown(remote, told))
        output.document(told)
        return DONE
    with Live(console=output.words, auto_refresh=False) as live:
        try:
            while True:
                told = _told(remote)
                live.update(_shown(remote, told), refresh=True)
                if told["is_running"] is False:
                    return DONE
                time.sleep(LOOK_SECONDS)
        except KeyboardInterrupt:
            # To look away is no failure.
            return DONE


def _told(remote: RemoteQuery) -> dict[str, Any]:
    """Everything that is known, as data."""
    told = remote.status() or {}
    runs = is_running(remote.control_dir)
    return {
        "control": str(remote.control_dir),
        "is_running": runs,
        "pid": running_process(remote.control_dir) if runs else None,
        "failure": None if runs else noted_failure(remote.control_dir),
        "told": told.get("told"),
        "plan": told.get("plan") or remote.plan.explain(),
        "cells": remote.cells,
        "metrics": told.get("metrics"),
        "has_ended": told.get("has_ended", False),
        "rates": told.get("rates"),
        "history": told.get("history", []),
    }


def _shown(remote: RemoteQuery, told: dict[str, Any]) -> RenderableType:
    parts: list[RenderableType] = [Text(_headline(told), style="bold"), Text(told["plan"])]
    metrics = told["metrics"]
    if metrics is not None:
        parts += [_figures(remote, told, metrics), _streams(metrics), _operators(metrics)]
    if told["history"]:
        parts.append(_migrations(remote, told["history"]))
    return Group(*parts)


def _headline(told: dict[str, Any]) -> str:
    is_finished = told["metrics"] is not None and told["metrics"]["finished"]
    stopped = "stopped" if told["failure"] is None else f"failed: {told['failure']}"
    state = {
        True: f"running as process {told['pid']}",
        False: "finished" if told["has_ended"] else stopped,
        None: "finished" if is_finished else "started by a program",
    }[told["is_running"]]
    if told["told"] is None:
        return f"{state}; nothing told yet"
    return f"{state}; told {_ago(told['told'])} ago"


def _ago(moment: float) -> str:
    seconds = max(0.0, time.time() - moment)
    return f"{seconds:.1f} s" if seconds < 60 else str(datetime.timedelta(seconds=round(seconds)))


def _figures(remote: RemoteQuery, told: dict[str, Any], metrics: dict[str, Any]) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in _lines(remote, told, metrics):
        table.add_row(name, value)
    return table


def _lines(remote: RemoteQuery, told: dict[str, Any], metrics: dict[str, Any]) -> Iterator[tuple[str, str]]:
    rates = (told["is_running"] is not False and told["rates"]) or {"rows": None, "results": None}
    if metrics["finished"]:
        yield "watermark", "the end of all streams"
    else:
        yield "watermark", instant(metrics["watermark"], remote.query.plan().time_domain)
    yield "rows in", f"{sum(c['rows'] for c in metrics['streams'].values()):,}{_rate(rates['rows'])}"
    yield "results", f"{metrics['results']:,}{_rate(rates['results'])}"
    yield "state", f"{metrics['state_rows']:,} rows, {metrics['state_bytes'] / 1e6:,.1f} MB"
    yield "in windows", f"{metrics['window_rows']:,} rows"
    if metrics["buffered"]:
        yield "buffered", f"{metrics['buffered']:,} results"
    yield "micro-batches", f"{metrics['batches']:,}, the last {metrics['seconds'] * 1000:,.0f} ms of midstream's work"
    yield "cells", f"{told['cells']}" + (f", made again {metrics['rebuilds']} times" if metrics["rebuilds"] else "")


def _rate(rate: float | None) -> str:
    return "" if rate is None else f", {rate:,.0f} per second"


def _streams(metrics: dict[str, Any]) -> Table:
    table = Table("stream", title="streams", title_justify="left")
    for name in ("rows", "late, dropped", "without event time", "out of range"):
        table.add_column(name, justify="right")
    idle = {stream for cell in metrics["cells"] for stream in cell["idle"]}
    for name, counts in metrics["streams"].items():
        shown = Text(name + (" (idle)" if name in idle else ""))
        figures = ("rows", "late", "without_event_time", "event_time_out_of_range")
        # A query that an earlier version runs does not count all of them.
        table.add_row(shown, *(f"{counts.get(figure, 0):,}" for figure in figures))
    return table


def _operators(metrics: dict[str, Any]) -> RenderableType:
    """State rows by operator, over all cells."""
    rows: dict[str, int] = {}
    for cell in metrics["cells"]:
        for operator in cell["operators"]:
            label = str(operator["operator"])
            rows[label] = rows.get(label, 0) + operator["state_rows"]
    table = Table("operator", title="state", title_justify="left")
    table.add_column("rows", justify="right")
    for label, count in rows.items():
        if count:
            table.add_row(Text(label), f"{count:,}")
    return table if table.row_count else Text("no operator holds rows")


def _migrations(remote: RemoteQuery, history: list[dict[str, Any]]) -> Table:
    table = Table("#", "to", "strategy", "state", "asked", title="migrations", title_justify="left")
    table.add_column("seconds", justify="right")
    for entry in history[-10:]:
        asked = remote.plan_asked_for(entry["id"])
        records = [cell["record"] for cell in entry["cells"] if cell.get("record")]
        seconds = [record["seconds"] for record in records if record["seconds"] is not None]
        table.add_row(
            str(entry["id"]),
            Text((order_of(asked) if asked is not None else None) or "another plan"),
            Text(" ".join([entry["strategy"], *(f"{key}={value}" for key, value in entry["options"].items())])),
            entry["state"],
            f"{_ago(entry['written'])} ago",
            f"{max(seconds):.2f}" if seconds else "",
        )
    return table
