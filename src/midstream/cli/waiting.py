"""Waiting until a query in another process reports something: what ``migrate`` and ``just-in-time`` have in common."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from midstream.cli.saved_run import is_running
from midstream.runtime.remote import RemoteQuery

__all__ = ["MISSING_REPORT", "wait_for_report"]

LOOK_SECONDS = 0.1
"""How often the query's status is read."""
MISSING_REPORT = (
    "status.json is missing: it was removed, or the query begins anew; a query that runs writes it with its next "
    "micro-batch"
)

Found = TypeVar("Found")


def wait_for_report(
    remote: RemoteQuery, timeout: float, look: Callable[[], Found], is_enough: Callable[[Found], bool]
) -> tuple[Found, bool | None]:
    """What ``look`` last found, and whether the query runs.

    It is asked until that is enough, the time is up, or the query does not run.
    """
    until = time.monotonic() + timeout
    while True:
        # Before looking: what a query reported as its last words is not missed.
        runs = is_running(remote.control_dir)
        found = look()
        if is_enough(found) or runs is False or time.monotonic() >= until:
            return found, runs
        time.sleep(LOOK_SECONDS)
