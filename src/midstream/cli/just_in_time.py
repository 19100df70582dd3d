"""``midstream just-in-time``: switches just-in-time processing of a query that runs in another process."""

from __future__ import annotations

from pathlib import Path

from midstream.cli.failures import DONE, FAILED, PENDING
from midstream.cli.output import Output, escape
from midstream.cli.waiting import MISSING_REPORT, wait_for_report
from midstream.execution.just_in_time import JustInTime
from midstream.runtime.messages import CommandOutcome
from midstream.runtime.remote import RemoteQuery

__all__ = ["switch_just_in_time"]


def switch_just_in_time(control: Path, is_on: bool, timeout: float, output: Output) -> int:
    """Submit the command and say what became of it, for at most ``timeout`` seconds."""
    remote = RemoteQuery(control)
    if remote.lacks_report:
        output.note(MISSING_REPORT)
    number = remote.switch_just_in_time(JustInTime() if is_on else None)
    chosen = "on" if is_on else "off"
    output.say(f"submitted: just-in-time processing {chosen}")
    outcomes, runs = wait_for_report(
        remote,
        timeout,
        lambda: remote.outcomes_in_cells(number),
        lambda found: len(found) == remote.cells or _refusal(found) is not None,
    )
    reason, is_done = _refusal(outcomes), len(outcomes) == remote.cells
    state = "refused" if reason is not None else "completed" if is_done else "submitted"
    if reason is not None:
        output.say("refused: the query continues unchanged")
        output.say(escape(reason))
    elif is_done:
        output.say(f"just-in-time processing is {chosen}")
    elif runs is False:
        output.say("the query does not run now: the command takes effect when it is resumed")
    else:
        output.say(f"not in effect within {timeout:g} s: the command takes effect with the next micro-batch")
    output.document({"number": number, "just_in_time": is_on, "state": state, "reason": reason, "is_running": runs})
    return FAILED if reason is not None else DONE if is_done else PENDING


def _refusal(outcomes: list[CommandOutcome]) -> str | None:
    """Why a cell refused, if one did."""
    return next((outcome.reason for outcome in outcomes if outcome.state == "refused"), None)
