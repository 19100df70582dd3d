"""The entries of a table's log as files of a directory: one for each version."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["has_version", "is_table", "last_version", "log_entry"]

_LOG = "_delta_log"


def is_table(path: str | os.PathLike[str]) -> bool:
    """Whether a directory on this machine is a Delta table."""
    return Path(path, _LOG).is_dir()


def log_entry(path: str | os.PathLike[str], version: int) -> Path:
    return Path(path, _LOG, f"{version:020d}.json")


def has_version(path: str | os.PathLike[str], version: int) -> bool:
    """Whether the log has a version, or had it before its early entries were removed."""
    return log_entry(path, version).exists() or (is_table(path) and last_version(path) > version)


def last_version(path: str | os.PathLike[str]) -> int:
    """The latest version that the log has."""
    names = (Path(name) for name in os.listdir(Path(path, _LOG)))
    return max((int(name.stem) for name in names if name.suffix == ".json" and name.stem.isdecimal()), default=-1)
