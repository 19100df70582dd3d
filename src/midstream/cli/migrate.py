"""``midstream migrate``: another plan for a query that runs in another process, and what becomes of it.

A change is checked here and then *submitted*; the query takes it with its next micro-batch. Then it is *running*, and
*completed* when nothing of the old plan is left; or a cell *refused* it, for a reason that only rows can give.
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
from midstream.cli.saved_run import is_running
from midstream.errors import FinishedRun, MidstreamError
from midstream.runtime.messages import MigrationOutcome
from midstream.runtime.remote import RemoteQuery

__all__ = ["WaitFor", "migrate"]


class WaitFor(enum.Enum):
    """What a user waits for: that the new plan gives results, or that nothing is left of the old one."""

    RUNNING = "running"
    COMPLETED = "completed"


LOOK_SECONDS = 0.1
"""How often the query's status is read."""


def migrate(
    control: Path,
    plan: str,
    strategy: str,
    options: Mapping[str, Any],
    timeout: float,
    output: Output,
    wait_for: WaitFor = WaitFor.COMPLETED,
) -> int:
    """Submit the plan and say what became of it, for at most ``timeout`` seconds."""
    remote = RemoteQuery(control)
    try:
        number = remote.migrate(plan_named(remote.query, plan), strategy, **options)
    except FinishedRun:
        raise
    except MidstreamError:
        output.note("refused: the query continues unchanged")
        raise
    output.say(f"submitted: migration {number}, {strategy} to {escape(_named(remote, number))}")
    began = time.monotonic()
    outcome = _watched(remote, number, began + timeout, wait_for, lambda: output.say("running"))
    runs = is_running(remote.control_dir)
    state, reason = outcome.state, outcome.reason
    for line in _sentences(remote, outcome, runs, timeout, wait_for):
        output.say(escape(line))
    if state in ("completed", "running", "unchanged"):
        output.say(escape(remote.plan.explain()))
    output.document(
        {
            "number": number,
            "state": state,
            "strategy": strategy,
            "options": dict(options),
            "plan": remote.plan.explain(),
            "reason": reason,
            "is_running": runs,
            "seconds": time.monotonic() - began,
        }
    )
    if state == "refused":
        return FAILED
    has_happened = state in ("completed", "unchanged") or (state == "running" and wait_for is WaitFor.RUNNING)
    return DONE if has_happened else PENDING


def _watched(
    remote: RemoteQuery, number: int, until: float, wait_for: WaitFor, say_running: Callable[[], None]
) -> MigrationOutcome:
    """What the query last reported of the migration: at its end, when time is up, or when the query does not run."""
    has_started = False
    while True:
        runs = is_running(remote.control_dir)
        outcome = remote.outcome(number)
        if outcome.state == "running" and not has_started:
            has_started = True
            say_running()
        is_enough = has_started and wait_for is WaitFor.RUNNING
        is_over = is_enough or outcome.state in ("completed", "refused", "unchanged")
        if is_over or runs is False or time.monotonic() >= until:
            return outcome
        time.sleep(LOOK_SECONDS)


def _sentences(
    remote: RemoteQuery, outcome: MigrationOutcome, runs: bool | None, timeout: float, wait_for: WaitFor
) -> list[str]:
    """What the state means."""
    match outcome.state:
        case "completed":
            return ["completed: the plan in force is now"]
        case "unchanged":
            return ["unchanged: this plan is in force already"]
        case "refused":
            return ["refused: the query keeps its plan", *([] if outcome.reason is None else [outcome.reason])]
        case "running" if wait_for is WaitFor.RUNNING:
            return ["this plan is now in force; the migration completes by itself"]
        case "running" if runs is False:
            return ["the query does not run now: the migration continues when it is resumed"]
        case "running":
            return [f"not completed within {timeout:g} s: that takes enough newer rows"]
    if runs is False:
        return ["the query does not run now: the plan changes when it is resumed"]
    status = remote.status()
    silent = "no report yet" if status is None else f"last report {time.time() - status.reported:,.0f} s ago"
    if runs:
        return [f"not started within {timeout:g} s: the query runs ({silent}); its micro-batch may take long"]
    return [f"not started within {timeout:g} s: the query does not seem to run ({silent})"]


def _named(remote: RemoteQuery, number: int) -> str:
    plan = remote.plan_submitted(number)
    return (None if plan is None else order_of(plan)) or "another plan"
