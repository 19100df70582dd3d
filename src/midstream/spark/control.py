"""The control directory: how plan changes reach a running query, from its own process or another.

    control_dir/
      query.json            the query, its streams, its first plan: enough to check a command in any process; and a
                            mark, which every command carries: numbers alone could be those of another directory
      status.json           what the query last told of itself
      commands/00000001.json, ...

A command is one file with one line of JSON. The query reads the folder as one more stream, so that a command is part of
a micro-batch like any row: it reaches every cell in the same batch, and a restart replays it exactly where it was. A
file is written aside and then given its final name, which must not exist yet: two writers cannot take the same number.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from midstream.errors import CheckpointMismatch

__all__ = ["ControlDirectory", "read_command"]

_FILES = "[0-9]" * 8 + ".json"
_ENTRIES: Mapping[str, Mapping[str, type]] = {
    "migrate": {"plan": dict, "strategy": str, "options": dict},
    "idle": {"stream": str},
    "finish": {},
}
"""By the kind of a command, what it must say beside its number and its directory."""


def read_command(text: str) -> dict[str, Any] | None:
    """The command in a line of a file; None if it is none: anybody may put something into the folder."""
    with contextlib.suppress(ValueError):
        command = json.loads(text)
        if isinstance(command, dict):
            entries = {"id": int, "directory": str, **_ENTRIES.get(str(command.get("kind")), {"kind": type(None)})}
            if all(isinstance(command.get(name), its_type) for name, its_type in entries.items()):
                return command
    return None


class ControlDirectory:
    """The commands to a running query, and what it tells."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="midstream-control-") if path is None else path).absolute()
        self.commands_path = self.path / "commands"
        self._known: dict[str, dict[str, Any]] = {}
        self._mark: str | None = None

    def create(self, query: Mapping[str, Any]) -> None:
        """Make the directory for a query, or check that it is this query's."""
        self.commands_path.mkdir(parents=True, exist_ok=True)
        known = self.query()
        if known is None:
            _write(self.path / "query.json", {**query, "mark": uuid.uuid4().hex})
            return
        different = [name for name in ("identity", "streams", "cells") if known.get(name) != query[name]]
        if different:
            shown = "text" if different[0] == "identity" else different[0]
            raise CheckpointMismatch(
                f"the control directory {self.path} belongs to a query with another {shown}",
                detail=f"There: {known.get(shown)}. Now: {query[shown]}.",
                hint="Use the query that it was made for, or another control directory and checkpoint.",
            )

    def query(self) -> dict[str, Any] | None:
        """What ``create`` stored."""
        return _read(self.path / "query.json")

    @property
    def mark(self) -> str:
        """What tells this directory's commands from another's."""
        if self._mark is None:
            self._mark = str((self.query() or {})["mark"])
        return self._mark

    def status(self) -> dict[str, Any] | None:
        """What the query last told of itself."""
        return _read(self.path / "status.json")

    def write_status(self, status: Mapping[str, Any]) -> None:
        _write(self.path / "status.json", status)

    def commands(self) -> list[dict[str, Any]]:
        """All commands so far, in order."""
        for path in self.commands_path.glob(_FILES):
            if path.name not in self._known:
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                    command = read_command(json.loads(path.read_text())["command"])
                    if command is not None:
                        self._known[path.name] = command
        return [self._known[name] for name in sorted(self._known)]

    @property
    def last_number(self) -> int:
        """The number of the latest command; 0 if there is none."""
        return max((int(path.stem) for path in self.commands_path.glob(_FILES)), default=0)

    @property
    def last_obeyed(self) -> int:
        """Commands up to this one may have been for an earlier run; none, if no run has come to a second micro-batch.

        A run may die in its first one, after some of its tasks have told: the next must carry out the same commands.
        """
        status = self.status()
        return 0 if status is None or status["metrics"]["batches"] < 2 else self.last_number

    def write(self, command: Mapping[str, Any]) -> int:
        """Give a command to the query; the command's number."""
        number = self.last_number
        while True:
            number += 1
            line = json.dumps({**command, "id": number, "directory": self.mark, "written": time.time()})
            temporary = self.commands_path / f"_{os.getpid()}_{time.monotonic_ns()}"
            temporary.write_text(json.dumps({"id": number, "command": line}) + "\n")
            try:
                os.link(temporary, self.commands_path / f"{number:08d}.json")
            except FileExistsError:
                continue
            finally:
                temporary.unlink()
            return number


def _write(path: Path, content: Mapping[str, Any]) -> None:
    temporary = path.with_name(f"_{path.name}_{os.getpid()}_{time.monotonic_ns()}")
    try:
        temporary.write_text(json.dumps(content))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any] | None:
    with contextlib.suppress(FileNotFoundError):
        return dict(json.loads(path.read_text()))
    return None
