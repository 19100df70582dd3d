"""The coordinator's durable log: the topology it began with, and everything that it was told since.

An entry is one line: a checksum, where the entry came from (the name of a request, so that no request is taken twice)
and the entry as JSON. Entries are appended and made durable before any instruction that follows from them is sent.
After a crash all entries are told again to a new coordinator, which then knows what the old one knew. What the old one
had not sent yet, the new one asks again.

While nothing is under way, the log can be compacted to one entry, a snapshot of what the coordinator knows: so it grows
with what happens between two such moments, not for ever.

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

import msgspec

from midstream.deployment.protocol.coordinator import Coordinator
from midstream.deployment.protocol.coordinator_requests import (
    CoordinatorInput,
    InitialTopology,
    handle,
    request_from_json,
    request_to_json,
)
from midstream.deployment.protocol.coordinator_snapshot import CoordinatorSnapshot
from midstream.deployment.topology.topology import Topology
from midstream.errors import MalformedMessage

__all__ = ["CoordinatorLog"]


class CoordinatorLog:
    """A log in a file, or in memory."""

    def __init__(self, file: BinaryIO | None = None, path: Path | None = None) -> None:
        self._file: BinaryIO = io.BytesIO() if file is None else file
        self._path = path
        self.compacted = 0
        """How many entries led to the snapshot that the log begins with."""
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
            return cls(file, path)
        except MalformedMessage:
            file.close()
            raise

    def append(self, entries: Iterable[tuple[str, InitialTopology | CoordinatorInput]]) -> None:
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

    @property
    def lines(self) -> int:
        """How many entries the log has since it was last compacted."""
        return self.entries - self.compacted

    def compact(self, coordinator: Coordinator) -> None:
        """Replace all entries by what the coordinator, which has been told them, knows now."""
        snapshot = CoordinatorSnapshot.of(coordinator, self.entries)
        line = _line("", msgspec.json.encode(snapshot))
        if self._path is None:
            self._file = io.BytesIO(line)
        else:
            aside = self._path.with_name(f"{self._path.name}.new")
            with open(aside, "wb") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, self._path)
            self._file.close()
            self._file = open(self._path, "r+b", buffering=0)  # noqa: SIM115 — closed with the log
        self.origins = set()
        self.compacted = self.entries

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

    def __iter__(self) -> Iterator[CoordinatorSnapshot | InitialTopology | CoordinatorInput]:
        """All entries in order."""
        self._file.seek(0)
        for line in self._file.read().splitlines():
            _, entry = _entry_of(line)
            snapshot = _snapshot_in(entry)
            yield request_from_json(entry) if snapshot is None else snapshot

    def replay(self, begin: Callable[[Topology], Coordinator] = Coordinator) -> Coordinator:
        """A coordinator that has been told all entries."""
        coordinator: Coordinator | None = None
        for entry in self:
            if isinstance(entry, InitialTopology | CoordinatorSnapshot):
                assert coordinator is None, "a log begins once"
                coordinator = begin(entry.topology()) if isinstance(entry, InitialTopology) else entry.coordinator()
            elif coordinator is None:
                raise MalformedMessage("the coordinator's log is damaged", detail="Its first entry is missing.")
            else:
                handle(coordinator, entry)
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
                origin, entry = _entry_of(line)
                if number == 0 and (snapshot := _snapshot_in(entry)) is not None:
                    # It stands for its entries; the line itself is none.
                    self.compacted = snapshot.entries
            except MalformedMessage as problem:
                if number == 0 or number < len(lines) - 1 or torn:
                    problem.detail = f"Line {number + 1}: {problem.detail}"
                    raise
                lines.pop()
                break
            self.origins.add(origin)
            complete += len(line) + 1
        self._file.seek(complete)
        self._file.truncate()
        return len(lines) if not self.compacted else self.compacted + len(lines) - 1


def _snapshot_in(entry: bytes) -> CoordinatorSnapshot | None:
    """The snapshot that an entry is, if it is one."""
    if not entry.startswith(b'{"type":"snapshot"'):
        return None
    try:
        return msgspec.json.decode(entry, type=CoordinatorSnapshot)
    except msgspec.MsgspecError as problem:
        raise MalformedMessage("the coordinator's log is damaged", detail=f"{problem}.") from problem


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
