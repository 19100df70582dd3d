"""The entries of a table's log as files of a directory: one for each version."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["EntryMark", "entry_mark", "has_version", "has_versions", "is_table", "last_version", "log_entry"]

_LOG = "_delta_log"
_VERSION = re.compile(r"(\d{20})\.(?:json$|checkpoint\.)")

EntryMark = tuple[int, int, int]
"""Identifies an entry: the same entry of another table has a different mark."""


def is_table(path: str | os.PathLike[str]) -> bool:
    """Whether a directory on this machine is a Delta table."""
    return Path(path, _LOG).is_dir()


def has_versions(path: str | os.PathLike[str]) -> bool:
    """Whether a directory is a table that has been created: its log has entries."""
    return has_version(path, 0)


def log_entry(path: str | os.PathLike[str], version: int) -> Path:
    return Path(path, _LOG, f"{version:020d}.json")


def entry_mark(path: str | os.PathLike[str], version: int) -> EntryMark | None:
    """Identifies an entry of the log; None if it does not exist. Entries are written once, so a mark never changes."""
    try:
        found = log_entry(path, version).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def has_version(path: str | os.PathLike[str], version: int) -> bool:
    """Whether the log has a version, or had it before early entries were removed."""
    return is_table(path) and last_version(path) >= version


def last_version(path: str | os.PathLike[str]) -> int:
    """The latest version that the log has, as an entry or as a checkpoint; -1 if it has none."""
    found = map(_VERSION.match, os.listdir(Path(path, _LOG)))
    return max((int(name[1]) for name in found if name is not None), default=-1)
