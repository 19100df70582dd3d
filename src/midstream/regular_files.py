"""Files that anybody may have put where midstream looks: opened only if they are regular ones.

To open a named pipe waits until somebody writes into it, perhaps for ever; a device may give text without an end.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import IO, Any

from midstream.errors import PathProblem

__all__ = ["loads", "open_regular", "read_json", "read_text"]


def open_regular(path: Path, mode: str = "r") -> IO[str]:
    """The file, opened for reading (``"r"``) or, made if it is not there, for appending (``"a"``)."""
    file = open(path, mode, opener=_without_waiting)  # noqa: SIM115 (the caller closes it)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise PathProblem(f"{path} is not a regular file", hint="Remove it, or give another directory.")
    return file


def read_text(path: Path) -> str:
    """All text in a regular file."""
    with open_regular(path) as file:
        return file.read()


def read_json(path: Path) -> Any:
    """The JSON in a regular file; a ValueError if it is none that Python reads."""
    return loads(read_text(path))


def loads(text: str) -> Any:
    """The JSON in the text; a ValueError also where it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
