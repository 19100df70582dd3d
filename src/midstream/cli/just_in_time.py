"""``midstream just-in-time``: switches just-in-time processing of a query that runs in another process."""

from __future__ import annotations

import time
from pathlib import Path

from midstream.cli.failures import DONE, FAILED, PENDING
from midstream.cli.output import Output, escape
from midstream.cli.saved_run import is_running
from midstream.execution.just_in_time import JustInTime
from midstream.runtime.remote import RemoteQuery

__all__ = ["switch_just_in_time"]

LOOK_SECONDS = 0.2


def switch_just_in_time(control: Path, is_on: bool, timeout: float, output: Output) -> int:
    """Submit the command and say what became of it, for at most ``timeout`` seconds."""
    remote = RemoteQuery(control)
    number = remote.switch_just_in_time(JustInTime() if is_on else None)
    chosen = "on" if is_on else "off"
    output.say(f"submitted: just-in-time processing {chosen}")
    until = time.monotonic() + timeout
    while True:
        runs = is_running(remote.control_dir)
        outcomes = remote.outcomes_in_cells(number)
        reason = next((outcome.reason for outcome in outcomes if outcome.state == "refused"), None)
        is_done = len(outcomes) == remote.cells
        if reason is not None or is_done or runs is False or time.monotonic() >= until:
            break
        time.sleep(LOOK_SECONDS)
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
