"""How the generator and a competitor wait for each other: by files in the directory that both know.

The generator begins when the competitor's query runs; the competitor ends when everything was written and its sink has
had nothing new for a while. Needs nothing but Python.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.latency.visibility import visible_files
from benchmarks.peers.task import Task

QUIET_SECONDS = 20.0
"""A sink without anything new for so long has all it will get: a micro-batch that takes longer is a backlog."""
LONGEST_DRAIN_SECONDS = 120.0


def tell_started(task: Task) -> None:
    """The competitor's query runs."""
    _mark(task, "started").touch()


def has_started(task: Task) -> bool:
    return _mark(task, "started").exists()


def tell_written(task: Task) -> None:
    """All of the input is there."""
    _mark(task, "written").touch()


def wait_for_results(task: Task, check: Callable[[], None]) -> None:
    """Return when the sink has the results of the whole input; ``check`` raises if the query has failed.

    If results still come long after the end of the input, this ends, too: there is a backlog.
    """
    while not _mark(task, "written").exists():
        check()
        time.sleep(1)
    ended = changed = time.monotonic()
    seen = -1
    while time.monotonic() < min(changed + QUIET_SECONDS, ended + LONGEST_DRAIN_SECONDS):
        check()
        count = len(visible_files(Path(str(task.output))))
        if count != seen:
            seen, changed = count, time.monotonic()
        time.sleep(1)


def _mark(task: Task, name: str) -> Path:
    """Beside the input, which the generator and the competitor have in common."""
    return Path(task.inputs) / f"_{name}"
