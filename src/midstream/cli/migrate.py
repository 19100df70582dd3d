"""``midstream migrate``: another plan for a query that runs in another process, and what becomes of it.

A change is checked here and then *submitted*; the query takes it with its next micro-batch. Then it is *running*, and
*completed* when nothing of the old plan is left; or a cell *refused* it, for a reason that only rows can give.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from midstream.cli.failures import DONE, FAILED, PENDING
from midstream.cli.output import Output, escape
from midstream.cli.plan_names import order_of, plan_named
from midstream.cli.waiting import MISSING_REPORT, wait_for_report
from midstream.errors import FinishedRun, MidstreamError
from midstream.runtime.messages import MigrationOutcome
from midstream.runtime.remote import RemoteQuery

__all__ = ["WaitFor", "migrate"]


class WaitFor(enum.Enum):
    """What a user waits for: that the new plan gives results, or that nothing is left of the old one."""

    RUNNING = "running"
    COMPLETED = "completed"


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
    if remote.lacks_report:
        output.note(MISSING_REPORT)
    try:
        number = remote.migrate(plan_named(remote.query, plan), strategy, **options)
    except FinishedRun:
        raise
    except MidstreamError:
        output.note("refused: the query continues unchanged")
        raise
    output.say(f"submitted: migration {number}, {strategy} to {escape(_named(remote, number))}")
    began = time.monotonic()
    has_started = False

    def look() -> MigrationOutcome:
        nonlocal has_started
        outcome = remote.outcome(number)
        if outcome.state == "running" and not has_started:
            has_started = True
            output.say("running")
        return outcome

    outcome, runs = wait_for_report(
        remote,
        timeout,
        look,
        lambda found: found.is_over or (found.state == "running" and wait_for is WaitFor.RUNNING),
    )
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
            "plan": None if remote.lacks_report else remote.plan.explain(),
            "reason": reason,
            "is_running": runs,
            "seconds": time.monotonic() - began,
        }
    )
    if state == "refused":
        return FAILED
    has_happened = state in ("completed", "unchanged") or (state == "running" and wait_for is WaitFor.RUNNING)
    return DONE if has_happened else PENDING


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
            after = f"not completed within {timeout:g} s"
            return [f"{after}: this plan is in force, and the migration completes as newer rows arrive"]
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
