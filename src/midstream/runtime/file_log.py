"""The files of streams, numbered in the order in which they are read: by modification time, then by path.

After a restart, a query must read the same files in the same micro-batch again, even if files have been added or
removed since. So each file gets the next number of its stream when it is first seen, and a log records which file has
which number. An offset of a stream is then a number of files. Log lines are synced to disk before an offset that
depends on them is reported.

Files that are there when the query looks are numbered in their order; one that appears later comes after them, however
old it is. A file is read once: later changes to it go unnoticed, as with Spark's own source. If the directory is a
Delta table, files are numbered in the order in which they were added to the table (``delta/added_files``).

One process numbers files. If another one has added to the log, or if the log has fewer files than were read, the query
stops: different numbers for the same files would skip some and repeat others.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path

from midstream.delta.added_files import TableFiles, added_since, files_now
from midstream.delta.log_entries import EntryMark, entry_mark, has_versions, is_table
from midstream.errors import BadStreamDeclaration, BrokenRun, MalformedMessage
from midstream.runtime.data_files import data_files, dated

__all__ = ["FileLog"]


class FileLog:
    """The log of one query; each line has a stream and the path of its next file.

    For a Delta table, a line has all files that were found at one time, with the table's version and id. An incomplete
    line does not count.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: dict[str, list[str]] = {}
        self._known: set[tuple[str, str]] = set()
        self._tables: dict[str, TableFiles] = {}
        """For streams that are Delta tables: the version up to which files have numbers."""
        self._marks: dict[str, EntryMark | None] = {}
        """The mark of the last entry of their logs, once this process has checked them thoroughly."""
        written = path.read_bytes() if path.exists() else b""
        # A last line without an end was being written when a process died: no offset depends on it.
        self._end = written.rfind(b"\n") + 1
        for number, line in enumerate(written[: self._end].splitlines(), start=1):
            try:
                self._read(line)
            except (ValueError, TypeError):
                raise MalformedMessage(
                    f"line {number} of {path}, the log of the files that were read, is damaged",
                    hint="Restore the control directory, or start the query with a new checkpoint.",
                ) from None

    def _read(self, line: bytes) -> None:
        """Take over a line of the log; raises ValueError or TypeError if it is not one."""
        stream, found, *of_table = json.loads(line)
        files = found if of_table else [found]
        version, table_id = of_table or (0, "")
        if not isinstance(files, list) or not all(isinstance(text, str) for text in [stream, table_id, *files]):
            raise TypeError("a stream, a table and files are known by their names")
        if not isinstance(version, int):
            raise TypeError("a version is a number")
        if of_table:
            self._tables[stream] = TableFiles(version, table_id, [])
        for file in files:
            self._note(stream, file)

    def count(self, stream: str) -> int:
        """How many files of a stream have a number."""
        return len(self._files.get(stream, ()))

    def files(self, stream: str, start: int, end: int) -> list[str]:
        """The files of a stream after the first ``start``, up to ``end``."""
        self.require(stream, end)
        return self._files.get(stream, [])[start:end]

    def require(self, stream: str, count: int) -> None:
        """Refuse a log that has fewer files of a stream than were read."""
        if self.count(stream) < count:
            raise BrokenRun(
                f"the log of the files that were read, {self._path}, is gone or incomplete",
                detail=f'It has {self.count(stream)} files of stream "{stream}"; the checkpoint says that {count} were '
                "read.",
                hint="Restore the control directory, or start the query with a new checkpoint.",
            )

    def discover(self, paths: dict[str, str]) -> None:
        """Number the new files, given the path of each stream: a directory, a file or a pattern."""
        entries: list[list[object]] = []
        for stream, path in paths.items():
            if is_table(path) or stream in self._tables:
                self._refuse_change_to_table(stream, path)
                entries += self._discover_in_table(stream, path)
                continue
            new = [file for file in data_files(path) if self._is_new(stream, file)]
            self._refuse_tables(new)
            for _, file in sorted(dated(new)):
                self._note(stream, file)
                entries.append([stream, file])
        if entries:
            self._append("".join(json.dumps(entry) + "\n" for entry in entries).encode())

    def _discover_in_table(self, stream: str, path: str) -> list[list[object]]:
        """Number the new files of a stream's table; return what to write to the log."""
        known = self._tables.get(stream)
        if known is None:
            if not has_versions(path):
                # The table is just being created.
                return []
            found = files_now(path)
        else:
            mark = entry_mark(path, known.version)
            is_thorough = mark is None or mark != self._marks.get(stream)
            found = added_since(path, known, is_thorough)
        self._marks[stream] = entry_mark(path, found.version)
        if known is not None and found.version == known.version:
            return []
        self._tables[stream] = found._replace(files=[])
        new = [file for file in found.files if self._is_new(stream, file)]
        for file in new:
            self._note(stream, file)
        return [[stream, new, found.version, found.table_id]]

    def _refuse_change_to_table(self, stream: str, path: str) -> None:
        """Refuse a table if files of it were read before it had a log."""
        if stream not in self._tables and self.count(stream):
            raise BadStreamDeclaration(
                f"{path} has become a Delta table",
                detail="Files of it were read before. Only its log says which of them are part of it.",
                hint="Start the query with a new checkpoint: it reads the table.",
            )

    def _refuse_tables(self, files: list[str]) -> None:
        """Refuse files of a Delta table that were found by a pattern, or in a directory around it."""
        for folder in {os.path.dirname(file) for file in files}:
            for place in [Path(folder), *Path(folder).parents]:
                if is_table(place):
                    raise BadStreamDeclaration(
                        f"{place} is a Delta table among the files of a stream",
                        detail="Only its log says which of its files count.",
                        hint="Give the table itself as the path of a stream.",
                    )

    def _is_new(self, stream: str, file: str) -> bool:
        return (stream, file) not in self._known

    def _note(self, stream: str, file: str) -> None:
        self._known.add((stream, file))
        self._files.setdefault(stream, []).append(file)

    def _append(self, lines: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
            # Some file systems have no locks; there, lines of another process are noticed a moment later.
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(self._end)
            if b"\n" in file.read():
                raise BrokenRun(
                    f"another process reads the same files, and has added to {self._path}",
                    hint="Stop one of the two queries; the other one can be started again.",
                )
            file.seek(self._end)
            file.truncate()
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        self._end += len(lines)
