"""The data files of a stream on this machine: those of a directory, a file or a glob pattern.

Files whose names begin with ``_`` or ``.`` are ignored, so a file can be written under such a name and renamed when it
is complete.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["data_files", "dated", "without_patterns"]


def data_files(path: str) -> Iterator[str]:
    """The data files of a directory, file or pattern on this machine, sorted by name within each directory.

    Nested directories are included, symbolic links to directories are not, since they could form cycles. If a pattern
    matches a directory and the files in it, each file is returned once.
    """
    if glob.has_magic(path) and not os.path.exists(path):
        found = [match for match in sorted(glob.glob(path, recursive=True)) if not _is_hidden(match, path)]
        yield from dict.fromkeys(os.path.normpath(file) for match in found for file in _below(match))
    else:
        yield from _below(path)


def _is_hidden(match: str, pattern: str) -> bool:
    """Whether a match of the pattern has an ignored name, other than those that the pattern spells out."""
    spelled_out = 0
    for part in Path(pattern).parts:
        if glob.has_magic(part):
            break
        spelled_out += 1
    return any(_is_no_data(part) for part in Path(match).parts[spelled_out:])


def _is_no_data(name: str) -> bool:
    return name.startswith(("_", "."))


def _below(path: str) -> Iterator[str]:
    if os.path.isdir(path):
        yield from _inside(path)
    elif os.path.isfile(path):
        yield path


def _inside(folder: str) -> Iterator[str]:
    nested = []
    try:
        with os.scandir(folder) as scanned:
            entries = sorted(scanned, key=lambda entry: entry.name)
    except FileNotFoundError:
        # It has just been removed or renamed.
        return
    for entry in entries:
        if _is_no_data(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False):
            nested.append(entry.path)
        elif entry.is_file():
            # A named pipe is neither: opening it would block until a process writes to it.
            yield entry.path
    for inner in nested:
        yield from _inside(inner)


def dated(files: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Each file with its modification time (ns); files that are gone by now are left out."""
    for file in files:
        try:
            yield os.stat(file).st_mtime_ns, file
        except FileNotFoundError:
            continue


def without_patterns(path: str) -> str:
    """The path, escaped so that Spark finds no pattern in it."""
    return re.sub(r"([][{}*?\\])", r"\\\1", path)
