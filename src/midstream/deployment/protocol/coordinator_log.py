"""The coordinator's durable log: the topology it began with, and everything that it was told since.

An entry is one line: a checksum, where the entry came from (the name of a request, so that no request is taken twice)
and the entry as JSON. Entries are appended and made durable before any instruction that follows from them is sent.
After a crash all entries are told again to a new coordinator, which then knows what the old one knew. What the old one
had not sent yet, the new one asks again.

A line that was being written when the process died is not complete. Nothing followed from it, so it is removed. Damage
anywhere else is refused.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from midstream.deployment.protocol.coordinator import Coordinator
from midstream.deployment.protocol.coordinator_requests import Beginning, Told, request_from_json, request_to_json, tell
from midstream.deployment.topology.topology import Topology
from midstream.errors import MalformedMessage

__all__ = ["CoordinatorLog"]


class CoordinatorLog:
    """A log in a file, or in memory."""

    def __init__(self, file: BinaryIO | None = None) -> None:
        self._file = io.BytesIO() if file is None else file
        self.origins: set[str] = set()
        """The names of the requests in the log."""
        self.entries = self._read()

    @classmethod
    def open(cls, path: Path) -> CoordinatorLog:
        """The log in a file, which is made if there is none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(exist_ok=True)
        file = open(path, "r+b", buffering=0)  # noqa: SIM115 — closed with the log
        try:
            return cls(file)
        except MalformedMessage:
            file.close()
            raise

    def append(self, entries: Iterable[tuple[str, Beginning | Told]]) -> None:
        """Make entries durable, each with the name of the request it came from (empty if it has none)."""
        lines = []
        self._file.seek(0, os.SEEK_END)
        for origin, entry in entries:
            self.origins.add(origin)
            lines.append(_line(origin, request_to_json(entry)))
        if lines:
            self._write(b"".join(lines))
            self.entries += len(lines)
            if not isinstance(self._file, io.BytesIO):
                os.fsync(self._file.fileno())

    def _write(self, data: bytes) -> None:
        """Write all of it, or nothing: a full disk must not leave half an entry before later ones."""
        end = self._file.tell()
        try:
            left = memoryview(data)
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            self._file.truncate(end)
            raise

    def __iter__(self) -> Iterator[Beginning | Told]:
        """All entries in order."""
        self._file.seek(0)
        for line in self._file.read().splitlines():
            yield request_from_json(_entry_of(line)[1])

    def replay(self, begin: Callable[[Topology], Coordinator] = Coordinator) -> Coordinator:
        """A coordinator that has been told all entries."""
        coordinator: Coordinator | None = None
        for entry in self:
            if isinstance(entry, Beginning):
                assert coordinator is None, "a log begins once"
                coordinator = begin(entry.topology())
            elif coordinator is None:
                raise MalformedMessage("the coordinator's log is damaged", detail="Its first entry is missing.")
            else:
                tell(coordinator, entry)
        assert coordinator is not None, "only a log that has begun is replayed"
        return coordinator

    def __enter__(self) -> CoordinatorLog:
        return self

    def __exit__(self, *problem: object) -> None:
        self._file.close()

    def _read(self) -> int:
        """Check all entries and remove the last line if it is not complete; the number of entries."""
        self._file.seek(0)
        *lines, torn = self._file.read().split(b"\n")
        complete = 0
        for number, line in enumerate(lines):
            try:
                origin, _ = _entry_of(line)
            except MalformedMessage as problem:
                if number < len(lines) - 1 or torn:
                    problem.detail = f"Line {number + 1}: {problem.detail}"
                    raise
                lines.pop()
                break
            self.origins.add(origin)
            complete += len(line) + 1
        self._file.seek(complete)
        self._file.truncate()
        return len(lines)


def _line(origin: str, entry: bytes) -> bytes:
    assert "\t" not in origin and "\n" not in origin
    content = origin.encode() + b"\t" + entry
    return _checksum(content) + b"\t" + content + b"\n"


def _entry_of(line: bytes) -> tuple[str, bytes]:
    checksum, _, content = line.partition(b"\t")
    if checksum != _checksum(content):
        raise MalformedMessage("the coordinator's log is damaged", detail="An entry is not what its checksum says.")
    origin, _, entry = content.partition(b"\t")
    return origin.decode(), entry


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=8).hexdigest().encode()
