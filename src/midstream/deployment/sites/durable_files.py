"""Files that are there as a whole or not at all, also after a crash; and locks that a crash frees."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from midstream.errors import AlreadyRunning

__all__ = ["held_lock", "holder", "is_held", "unique_name", "write_whole"]

LOCK_ATTEMPTS = 3
_NAMING = threading.Lock()
_last_moment = 0


def write_whole(path: Path, content: bytes) -> None:
    """Write a file aside and give it its name when it is durable; one of the same name is replaced.

    The other name begins with an underscore: Spark does not look at such files. If the disk is full, nothing is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"_{path.name}_{os.getpid()}_{threading.get_ident()}")
    try:
        with open(aside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def unique_name() -> str:
    """A name for a file that comes after those of earlier calls, also of processes that are gone.

    Within a process this does not depend on the clock, which may stand still or be set back.
    """
    global _last_moment
    with _NAMING:
        _last_moment = max(_last_moment + 1, time.time_ns())
        return f"{_last_moment:020d}-{os.getpid()}"


@contextmanager
def held_lock(path: Path, what: str) -> Iterator[None]:
    """A lock that one process at a time can hold. It is free when the process is gone, however it ended."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        for attempt in range(LOCK_ATTEMPTS):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempt == LOCK_ATTEMPTS - 1:
                    raise AlreadyRunning(f"{what} is running already", detail=holder(path)) from None
                # Somebody may only be looking.
                time.sleep(0.05)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def is_held(path: Path) -> bool:
    """Whether a process holds a lock."""
    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def holder(path: Path) -> str:
    """Who holds a lock, as far as that is known."""
    try:
        return f"{path} is locked by {path.read_text(errors='replace').strip() or 'another process'}."
    except OSError:
        return f"{path} is locked."
