"""What the chaos test adds for a Delta sink: drivers that die just before and just after a commit, and rivals.

A conductor that wants to kill a driver there asks for it by a file; the driver stops at that point of its next
micro-batch, says so by another file, and waits for its death.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from midstream.delta.commits import TableWriter
from midstream.delta.location import TableLocation
from midstream.delta.orphans import remove_orphans
from midstream.delta.result_files import ResultFile

__all__ = ["MOMENTS", "ask_to_stop", "check_files", "is_refused", "results", "stop_where_asked"]

MOMENTS = ("before commit", "after commit")


def stop_where_asked(directory: Path) -> None:
    """In the driver: wait for death at the moments that the conductor asks for."""
    commit = TableWriter.commit

    def stopping(self: TableWriter, batch: int, files: Sequence[ResultFile]) -> bool:
        # Without files there is nothing between writing and commit.
        if files:
            _stop(directory, "before commit")
        made = commit(self, batch, files)
        if made:
            _stop(directory, "after commit")
        return made

    TableWriter.commit = stopping  # type: ignore[method-assign]


def _stop(directory: Path, moment: str) -> None:
    if _file(directory, "stop", moment).exists():
        _file(directory, "stopped", moment).touch()
        time.sleep(3600)


def ask_to_stop(directory: Path, moment: str, driver: subprocess.Popen[bytes]) -> bool:
    """In the conductor: have the driver stop at a moment; false if it dies of something else."""
    asked, stopped = _file(directory, "stop", moment), _file(directory, "stopped", moment)
    stopped.unlink(missing_ok=True)
    asked.touch()
    until = time.monotonic() + 120
    while not stopped.exists() and driver.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    asked.unlink()
    return stopped.exists()


def _file(directory: Path, what: str, moment: str) -> Path:
    return directory / f"{what} {moment}"


def is_refused(rival: subprocess.Popen[bytes], log: Path) -> bool:
    """Whether a second driver on the table has stopped with a message."""
    return rival.wait(timeout=300) != 0 and "[M3015] another query writes to the table" in log.read_text()


def results(table: Path) -> pa.Table:
    return DeltaTable(table).to_pyarrow_table()


def check_files(path: Path) -> dict[str, int]:
    """Vacuum the table; what there was to remove, and what is left that should not be there."""
    table = DeltaTable(path)
    on_disk = {file.name for file in path.glob("*.parquet")}
    named = {uri.rpartition("/")[2] for uri in table.file_uris()}
    removed = set(remove_orphans(table, TableLocation.of(path)))
    return {
        "transactions": table.version(),
        "files": len(named),
        "orphans removed at the end": len(removed),
        "orphans left": len(on_disk - named - removed),
        "files lost": len(named - {file.name for file in path.glob("*.parquet")}),
    }
