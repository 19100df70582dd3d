"""On a file system, a table has a lock: a second query is refused before it does anything; the first one continues.

The lock is held by the process that runs the query, from the query's first micro-batch until it ends, in whatever way.
Object stores and some network file systems have no locks; there the epoch in the table decides (``commits``).
"""

from __future__ import annotations

import fcntl
import os
import socket
from typing import IO

from midstream.delta.location import TableLocation
from midstream.errors import TableConflict
from midstream.regular_files import open_regular, read_text

__all__ = ["WriterLock"]


class WriterLock:
    """Held from construction until ``release``; raises ``TableConflict`` if another process holds it."""

    def __init__(self, location: TableLocation) -> None:
        self._file: IO[str] | None = None
        if location.directory is None:
            return
        # Readers of the table ignore names that begin with an underscore.
        path = location.directory / "_midstream.lock"
        file = open_regular(path, "a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            holder = read_text(path).strip()
            raise TableConflict(
                f"another query writes to the table {location.address}" + (f" ({holder})" if holder else ""),
                detail="A table has one writer at a time.",
                hint="Stop it first, or write to another table.",
            ) from None
        except OSError:
            # The file system has no locks: here, too, the epoch decides.
            file.close()
            return
        file.truncate(0)
        file.write(f"pid {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
