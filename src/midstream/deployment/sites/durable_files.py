"""Files that are there as a whole or not at all, also after a crash."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

__all__ = ["unique_name", "write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """Write a file aside and give it its name when it is durable; one of the same name is replaced.

    The other name begins with an underscore: Spark does not look at such files.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"_{path.name}_{os.getpid()}_{threading.get_ident()}")
    with open(aside, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def unique_name() -> str:
    """A name for a file that comes after those of earlier calls, also of processes that are gone."""
    return f"{time.time_ns():020d}-{os.getpid()}"
