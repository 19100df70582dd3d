"""What is seen of a query while it runs: one line that changes on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from midstream.algebra.stream import TimeDomain
from midstream.cli.output import Output, counted

__all__ = ["LiveView", "instant", "summary"]

LINE_SECONDS = 10.0
"""Time between two lines where nobody watches a terminal."""


def instant(ticks: int | None, domain: TimeDomain) -> str:
    """An event time for people."""
    if ticks is None or domain.timestamp is None:
        return "none yet" if ticks is None else f"{ticks:,}"
    # Event times may lie beyond the years that Python's datetime knows.
    shown = str(np.datetime64(ticks, "us").astype("datetime64[ms]")).replace("T", " ")
    return shown + (" UTC" if domain.timestamp.tz else "")


def summary(metrics: Mapping[str, Any], rates: Mapping[str, float | None], domain: TimeDomain) -> str:
    """The figures that matter at a glance."""
    rows = sum(counts["rows"] for counts in metrics["streams"].values())
    late = sum(counts["late"] for counts in metrics["streams"].values())
    parts = [
        counted(metrics["batches"], "batch", "batches"),
        f"{rows:,} rows" + _rate(rates["rows"]),
        f"{metrics['results']:,} results" + _rate(rates["results"]),
        f"{metrics['state_rows']:,} rows of state",
    ]
    if metrics["watermark"] is not None:
        parts.append(f"watermark {instant(metrics['watermark'], domain)}")
    if late:
        parts.append(f"{late:,} late")
    if metrics["migrating"]:
        parts.append("migrating")
    return " · ".join(parts)


class LiveView:
    """The line, or the bar if the number of rows is known beforehand."""

    def __init__(self, output: Output, domain: TimeDomain, total_rows: int | None, has_end: bool) -> None:
        self._output = output
        self._domain = domain
        self._watched = output.errors.is_terminal
        self._last_line = time.monotonic()
        bar = [BarColumn(bar_width=24)] if has_end else []
        self._progress = Progress(
            SpinnerColumn(),
            *bar,
            TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
            TimeElapsedColumn(),
            console=output.errors,
            transient=True,
            expand=True,
            disable=not self._watched,
        )
        self._task = self._progress.add_task("waiting for rows", total=total_rows if has_end else None)

    def __enter__(self) -> LiveView:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, metrics: Mapping[str, Any], rates: Mapping[str, float | None]) -> None:
        """The latest figures."""
        if not metrics["batches"]:
            return
        line = summary(metrics, rates, self._domain)
        if self._watched:
            rows = sum(counts["rows"] for counts in metrics["streams"].values())
            self._progress.update(self._task, description=line, completed=rows)
        elif time.monotonic() - self._last_line >= LINE_SECONDS:
            self._last_line = time.monotonic()
            self._output.note(line)


def _rate(rate: float | None) -> str:
    return "" if rate is None else f" ({rate:,.0f}/s)"
