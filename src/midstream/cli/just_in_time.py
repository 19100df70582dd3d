"""``midstream just-in-time``: switches just-in-time processing of a query that runs in another process."""

from __future__ import annotations

from pathlib import Path

from midstream.cli.failures import DONE
from midstream.cli.output import Output
from midstream.cli.saved_run import is_running
from midstream.execution.just_in_time import JustInTime
from midstream.runtime.remote import RemoteQuery

__all__ = ["switch_just_in_time"]


def switch_just_in_time(control: Path, is_on: bool, output: Output) -> int:
    """Submit the command and say when it takes effect."""
    remote = RemoteQuery(control)
    number = remote.switch_just_in_time(JustInTime() if is_on else None)
    runs = is_running(remote.control_dir)
    when = "when it is resumed" if runs is False else "with its next micro-batch"
    output.say(f"submitted: just-in-time processing is switched {'on' if is_on else 'off'} {when}")
    output.document({"number": number, "just_in_time": is_on, "state": "submitted", "is_running": runs})
    return DONE
