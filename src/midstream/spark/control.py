"""The control directory: how plan changes reach a running query, from its own process or another.

    control_dir/
      query.json            the query, its streams, its first plan: enough to check a command in any process; and a
                            mark, which every command carries: numbers alone could be those of another directory
      status.json           what the query last told of itself
      claims.json           which commands are whose, see :func:`is_for`
      commands/00000001-mark.json, ...

A command is one file with one line of JSON. The query reads the folder as one more stream, so that a command is part of
a micro-batch like any row: it reaches every cell in the same batch, and a restart replays it exactly where it was. A
file is written aside and then given its final name, which must not exist yet: two writers cannot take the same number.
The name has the mark too: to Spark a file that it has read once stays read, also if the directory was made anew.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from midstream.errors import CheckpointMismatch, PathProblem, quoted
from midstream.regular_files import loads, read_json

__all__ = ["ControlDirectory", "is_for", "read_command"]

_FILES = "[0-9]" * 8 + "*.json"
_PATTERN_LETTERS = "[]{}*?\\"
"""What Spark takes for part of a pattern in the path of a source."""
_ENTRIES: Mapping[str, Mapping[str, type]] = {
    "migrate": {"plan": dict, "strategy": str, "options": dict},
    "idle": {"stream": str},
    "finish": {},
}
"""By the kind of a command, what it must say beside its number and its directory."""
_QUERY_ENTRIES: Mapping[str, type] = {"text": str, "identity": str, "streams": list, "cells": int, "mark": str}


def read_command(text: str) -> dict[str, Any] | None:
    """The command in a line of a file; None if it is none: anybody may put something into the folder."""
    try:
        command = loads(text)
    except ValueError:
        return None
    if not isinstance(command, dict) or command.get("kind") not in list(_ENTRIES):
        return None
    entries = {"id": int, "directory": str, **_ENTRIES[command["kind"]]}
    return command if all(isinstance(command.get(name), its_type) for name, its_type in entries.items()) else None


def is_for(command: Mapping[str, Any], query: str | None, claims: Sequence[tuple[str, int]]) -> bool:
    """Whether a command is for a query, by the id that Spark gives it, which stays with its checkpoint.

    A control directory may see several: the checkpoint was removed and the query began anew, or two use it at once. A
    command says which one it is for, if any has told of itself before; the earlier ones are claimed by the first that
    does.
    """
    meant = command.get("for") or next((other for other, last in claims if command["id"] <= last), None)
    return meant in (None, query)


class ControlDirectory:
    """The commands to a running query, and what it tells."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        """Without a path it is a temporary directory, removed when the process ends."""
        if path is None:
            path = tempfile.mkdtemp(prefix="midstream-control-")
            atexit.register(shutil.rmtree, path, ignore_errors=True)
        self.path = Path(path).absolute()
        self.commands_path = self.path / "commands"
        self._known: dict[str, dict[str, Any]] = {}
        self._mark: str | None = None

    def create(self, query: Mapping[str, Any]) -> None:
        """Make the directory for a query, or check that it is this query's."""
        if any(letter in str(self.path) for letter in _PATTERN_LETTERS):
            raise PathProblem(
                f"the control directory {self.path} has one of {_PATTERN_LETTERS} in its path",
                detail="Spark takes these for a pattern, and would find no command there.",
                hint="Give another directory.",
            )
        self.commands_path.mkdir(parents=True, exist_ok=True)
        known = self.query()
        if known is None:
            (self.path / "claims.json").unlink(missing_ok=True)
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
        query = _read(self.path / "query.json")
        if query is None:
            return None
        wrong = [name for name, its_type in _QUERY_ENTRIES.items() if type(query.get(name)) is not its_type]
        if wrong:
            raise CheckpointMismatch(
                f"{self.path / 'query.json'} is damaged",
                detail=f"Missing, or not of the type it was written with: {quoted(wrong)}." if query else None,
                hint="Use a new control directory.",
            )
        return query

    @property
    def mark(self) -> str:
        """What tells this directory's commands from another's."""
        if self._mark is None:
            self._mark = str((self.query() or {})["mark"])
        return self._mark

    def status(self) -> dict[str, Any] | None:
        """What the query last told of itself; it tells again with its next micro-batch, if the file is damaged."""
        status = _read(self.path / "status.json")
        return status if status is not None and "metrics" in status else None

    def write_status(self, status: Mapping[str, Any]) -> None:
        _write(self.path / "status.json", status)

    def forget_status(self) -> None:
        """A query begins anew: what the one before it told would be taken for this one's, until it tells itself."""
        (self.path / "status.json").unlink(missing_ok=True)

    def claims(self) -> list[tuple[str, int]]:
        """The queries that have told of themselves, in that order, with the last command before that."""
        claims = _read(self.path / "claims.json") or {}
        return [(query, last) for query, last in claims.items() if type(last) is int]

    def claim(self, query: str) -> None:
        """The query has told of itself: commands that nobody has claimed are its own."""
        claims = dict(self.claims())
        if query not in claims:
            _write(self.path / "claims.json", {**claims, query: self.last_number})

    def commands(self) -> list[dict[str, Any]]:
        """All commands so far, in order."""
        for path in self.commands_path.glob(_FILES):
            if path.name not in self._known:
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError, PathProblem):
                    command = read_command(read_json(path)["command"])
                    if command is not None:
                        self._known[path.name] = command
        return [self._known[name] for name in sorted(self._known)]

    @property
    def last_number(self) -> int:
        """The number of the latest command; 0 if there is none."""
        return max((int(path.name[:8]) for path in self.commands_path.glob(_FILES)), default=0)

    def write(self, command: Mapping[str, Any], query: str | None = None) -> int:
        """Give a command to the query, which Spark may call so by now (see :func:`is_for`); the command's number."""
        number = self.last_number
        named = {"directory": self.mark, "for": query, "written": time.time()}
        while True:
            number += 1
            line = json.dumps({**command, **named, "id": number})
            temporary = self.commands_path / f"_{os.getpid()}_{time.monotonic_ns()}"
            temporary.write_text(json.dumps({"id": number, "command": line}) + "\n")
            try:
                os.link(temporary, self.commands_path / f"{number:08d}-{self.mark[:12]}.json")
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
    """What a file holds; nothing, if it is not there, and an empty mapping if it is damaged."""
    try:
        content = read_json(path)
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
