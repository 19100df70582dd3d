"""Files that are there as a whole or not at all, also after a crash; and locks that a crash frees."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from midstream.errors import AlreadyRunning

__all__ = ["held_lock", "unique_name", "write_whole"]


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
    """A name for a file that comes after those of earlier calls, also of processes that are gone."""
    return f"{time.time_ns():020d}-{os.getpid()}"


@contextmanager
def held_lock(path: Path, what: str) -> Iterator[None]:
    """A lock that one process at a time can hold. It is free when the process is gone, however it ended."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(f"{what} is running already", detail=f"{path} is locked.") from None
        yield
