"""``midstream migrate``: another plan for a query that runs in another process, and what becomes of it.

A change is checked here and then written; the query takes it with its next micro-batch. Then it is *begun*, and *ended*
when nothing of the old plan is left; or a cell *refused* it, for a reason that only rows can give.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from midstream.cli.failures import DONE, FAILED, PENDING
from midstream.cli.output import Output, escape
from midstream.cli.plan_names import order_of, plan_named
from midstream.cli.run_file import is_running
from midstream.errors import FinishedRun, MidstreamError
from midstream.spark.remote import RemoteQuery

__all__ = ["WaitFor", "migrate"]


class WaitFor(enum.Enum):
    """What a user waits for: that the new plan gives results, or that nothing is left of the old one."""

    BEGUN = "begun"
    ENDED = "ended"


LOOK_SECONDS = 0.1
"""How often the query's status is looked at."""


def migrate(
    control: Path,
    plan: str,
    strategy: str,
    options: Mapping[str, Any],
    timeout: float,
    output: Output,
    wait_for: WaitFor = WaitFor.ENDED,
) -> int:
    """Ask for the plan and tell what became of it, for at most ``timeout`` seconds."""
    remote = RemoteQuery(control)
    try:
        number = remote.migrate(plan_named(remote.query, plan), strategy, **options)
    except FinishedRun:
        raise
    except MidstreamError:
        output.note("refused: the query goes on untouched")
        raise
    output.say(f"accepted: command {number}, {strategy} to {escape(_named(remote, number))}")
    began = time.monotonic()
    entry = _watched(remote, number, began + timeout, wait_for, lambda: output.say("begun"))
    runs = is_running(remote.control_dir)
    state = entry["state"]
    reasons = sorted({cell["why"] for cell in entry["cells"] if cell.get("why")})
    for line in _sentences(remote, state, reasons, runs, timeout, wait_for):
        output.say(escape(line))
    if state in ("ended", "begun", "unchanged"):
        output.say(escape(remote.plan.explain()))
    output.document(
        {
            "id": number,
            "state": state,
            "strategy": strategy,
            "options": dict(options),
            "plan": remote.plan.explain(),
            "why": reasons[0] if reasons else None,
            "is_running": runs,
            "seconds": time.monotonic() - began,
        }
    )
    if state == "refused":
        return FAILED
    has_happened = state in ("ended", "unchanged") or (state == "begun" and wait_for is WaitFor.BEGUN)
    return DONE if has_happened else PENDING


def _watched(
    remote: RemoteQuery, number: int, until: float, wait_for: WaitFor, tell_begun: Callable[[], None]
) -> dict[str, Any]:
    """What the query last said of the command: at its end, when time is up, or when the query does not run."""
    has_begun = False
    while True:
        runs = is_running(remote.control_dir)
        entry = remote.outcome(number)
        if entry["state"] == "begun" and not has_begun:
            has_begun = True
            tell_begun()
        is_enough = has_begun and wait_for is WaitFor.BEGUN
        is_over = is_enough or entry["state"] in ("ended", "refused", "unchanged")
        if is_over or runs is False or time.monotonic() >= until:
            return entry
        time.sleep(LOOK_SECONDS)


def _sentences(
    remote: RemoteQuery, state: str, reasons: list[str], runs: bool | None, timeout: float, wait_for: WaitFor
) -> list[str]:
    """What the state means."""
    if state == "ended":
        return ["ended: the plan in force is now"]
    if state == "unchanged":
        return ["unchanged: this plan is in force already"]
    if state == "begun" and wait_for is WaitFor.BEGUN:
        return ["this plan is now in force; what is left of the old one ends by itself"]
    if state == "begun" and runs is False:
        return ["begun; the query does not run now: the change goes on when it is resumed"]
    if state == "begun":
        return [f"begun, and not ended within {timeout:g} s: it ends when enough newer rows have come"]
    if state == "refused":
        return ["refused: the query goes on with its plan", *reasons]
    if runs is False:
        return ["the query does not run now: the plan changes when it is resumed"]
    told = (remote.status() or {}).get("told")
    silent = "it has told nothing yet" if told is None else f"it told nothing for {time.time() - told:,.0f} s"
    if runs:
        return [f"not begun within {timeout:g} s: the query runs, but {silent}; its micro-batch may take long"]
    return [f"not begun within {timeout:g} s: the query does not seem to run, {silent}"]


def _named(remote: RemoteQuery, number: int) -> str:
    asked = remote.plan_asked_for(number)
    return (None if asked is None else order_of(asked)) or "another plan"
