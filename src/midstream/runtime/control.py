"""The control directory: how plan changes reach a running query, from its own process or another.

    control_dir/
      query.json            the query, its streams, its first plan: enough to check a command in any process; and a
                            mark, which every command carries: numbers alone could be those of another directory
      status.json           what the query last reported
      adaptation.jsonl      what the query decided about its own plan, and how it continues to decide: a line each
      commands/00000001-mark.json, ...
      claims/00000001-mark.json, ...      which commands are whose, see :class:`Claims`

A command is one file with one line of JSON. The query reads the folder as one more stream, so that a command is part of
a micro-batch like any row: it reaches every cell in the same batch, and a restart replays it exactly where it was. A
file is written aside and then given its final name, which must not exist yet: two writers cannot take the same number.
The name has the mark too: to Spark a file that it has read once stays read, also if the directory was made anew.
Claims are written in the same way, and ``query.json`` only if there is none: of two that begin at once, one is first.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from midstream.errors import MalformedMessage, MidstreamError, PathProblem
from midstream.regular_files import open_regular, read_text
from midstream.runtime.messages import (
    CONTROL_FORMAT,
    Action,
    AdaptationEntry,
    Command,
    PlanJson,
    QueryFile,
    Status,
    decode,
    encode,
)
from midstream.runtime.query_fingerprint import QueryFingerprint

__all__ = ["Claims", "ControlDirectory", "read_command"]

Kind = TypeVar("Kind")
_FILES = "[0-9]" * 8 + "*.json"
_ADAPTATION = "adaptation.jsonl"
_PATTERN_LETTERS = "[]{}*?\\"
"""What Spark takes for part of a pattern in the path of a source."""
_LOG = logging.getLogger(__name__)


def read_command(text: bytes | str, name: str) -> Command:
    """The command in a line of a file, which ``name`` names in errors. Raises if midstream did not write it."""
    return decode(text, Command, name, CONTROL_FORMAT)


@dataclass(frozen=True)
class Claims:
    """Whose the commands of a control directory are: the queries that have reported, in that order, each with the last
    command before that."""

    mark: str
    """The mark of the directory."""
    queries: tuple[tuple[str, int], ...] = ()

    @property
    def latest(self) -> str | None:
        """The query that was the last to report for the first time."""
        return self.queries[-1][0] if self.queries else None

    def is_for(self, command: Command, query: str | None) -> bool:
        """Whether a command is for a query, by the id that Spark gives it, which stays with its checkpoint.

        Several queries may use one control directory: the checkpoint was removed and the query started anew, or two run
        at once. A command carries the id of its query if one had already reported; commands without an id belong to the
        first query that reports after them. If ``query.json`` was removed, those that were there before it have
        another mark, and belong to nobody.
        """
        if command.query is not None:
            return command.query == query
        claimed = next((other for other, last in self.queries if command.number <= last), None)
        return command.directory == self.mark and claimed in (None, query)


class ControlDirectory:
    """The commands to a running query, and what it reports."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        """Without a path it is a temporary directory, removed when the process ends."""
        if path is None:
            path = tempfile.mkdtemp(prefix="midstream-control-")
            atexit.register(shutil.rmtree, path, ignore_errors=True)
        self.path = Path(path).absolute()
        self.commands_path = self.path / "commands"
        self.files_path = self.path / "files"
        """Where queries note which files of their streams they have read."""
        self._claims_path = self.path / "claims"
        self._known: dict[str, Command] = {}
        self._ignored: dict[str, MidstreamError] = {}
        self._unreadable: dict[str, MidstreamError] = {}
        """Files that could not be read the last time; that may change."""
        self._mark: str | None = None

    def create(self, query: QueryFingerprint, first_plan: PlanJson) -> None:
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
            file = QueryFile(query=query, first_plan=first_plan, mark=uuid.uuid4().hex)
            if _write_first(self.path / "query.json", encode(file)):
                return
            # Another process was faster.
            known = self.query()
            assert known is not None, "query.json was removed while a query began"
        place = f"the control directory {self.path}"
        query.check_same(known.query, place, "another control directory and checkpoint", with_partitioning=False)

    def query(self) -> QueryFile | None:
        """What ``create`` stored. Raises if it is damaged, or another version of midstream wrote it."""
        return self._read("query.json", QueryFile, "Use a new control directory.")

    @property
    def mark(self) -> str:
        """What distinguishes this directory's commands from another's."""
        if self._mark is None:
            stored = self.query()
            assert stored is not None, "the directory is made before commands are written"
            self._mark = stored.mark
        return self._mark

    def status(self) -> Status | None:
        """What the query last reported. Raises if it is damaged, or another version of midstream wrote it."""
        remedy = "A running query replaces it with its next micro-batch; of one that does not run, remove it."
        return self._read("status.json", Status, remedy)

    def write_status(self, status: Status) -> None:
        _write(self.path / "status.json", encode(status))

    def forget_status(self) -> None:
        """A query begins anew: what the one before it reported would be taken for this one's, until it reports."""
        (self.path / "status.json").unlink(missing_ok=True)
        (self.path / _ADAPTATION).unlink(missing_ok=True)

    def adaptation(self) -> list[AdaptationEntry]:
        """What the query decided about its own plan, the latest last. Lines that are damaged are left out."""
        path = self.path / _ADAPTATION
        try:
            # The last line may be in the making.
            *lines, _ = read_text(path).split("\n")
        except FileNotFoundError:
            return []
        except UnicodeDecodeError as problem:
            _LOG.warning("ignored: %s is damaged (%s)", path, problem)
            return []
        found = []
        for number, line in enumerate(lines, 1):
            try:
                found.append(decode(line, AdaptationEntry, f"line {number} of {path}", CONTROL_FORMAT))
            except MidstreamError as problem:
                _LOG.warning("ignored: %s", problem)
        return found

    def append_adaptation(self, entry: AdaptationEntry) -> None:
        """Add a line, after this process has called :meth:`replace_adaptation`."""
        with open_regular(self.path / _ADAPTATION, "a") as file:
            file.write(encode(entry).decode() + "\n")

    def replace_adaptation(self, entries: Iterable[AdaptationEntry]) -> None:
        """Write all lines anew: what is no longer wanted, or was left half-written, is gone."""
        _write(self.path / _ADAPTATION, b"".join(encode(entry) + b"\n" for entry in entries))

    def claims(self) -> Claims:
        """Which queries have reported here."""
        stored = self.query()
        mark = "" if stored is None else stored.mark
        found: dict[str, int] = {}
        for path in sorted(self._claims_path.glob(_files_of(mark))) if mark else ():
            # Anybody may put something there.
            with contextlib.suppress(OSError, ValueError, RecursionError, PathProblem):
                claim = msgspec.json.decode(read_text(path), type=_Claim)
                found.setdefault(claim.query, claim.last)
        return Claims(mark, tuple(found.items()))

    def claim(self, query: str) -> None:
        """The query has reported: commands that nobody has claimed are its own."""
        if query not in dict(self.claims().queries):
            self._claims_path.mkdir(exist_ok=True)
            content = encode(_Claim(query, self.last_number))
            number = 1
            while not _write_first(self._claims_path / f"{number:08d}-{self.mark[:12]}.json", content):
                number += 1

    def commands(self) -> list[Command]:
        """All commands so far, in order. Files that are none are ignored: see :meth:`ignored`."""
        self._unreadable = {}
        for path in self.commands_path.glob(_FILES):
            if path.name in self._known or path.name in self._ignored:
                continue
            with contextlib.suppress(FileNotFoundError):
                try:
                    line = msgspec.json.decode(read_text(path), type=_Line)
                    self._known[path.name] = read_command(line.command, f"the command in {path}")
                except MidstreamError as problem:
                    self._ignored[path.name] = problem
                except FileNotFoundError:
                    raise
                except OSError as problem:
                    # It may be readable the next time: a network file system has such moments.
                    self._unreadable[path.name] = PathProblem(f"cannot read {path}", detail=f"{problem}.")
                except (ValueError, RecursionError) as problem:
                    self._ignored[path.name] = MalformedMessage(f"{path} is no command", detail=f"{problem}.")
                if path.name in self._ignored:
                    _LOG.warning("ignored: %s", self._ignored[path.name])
        return [self._known[name] for name in sorted(self._known)]

    def ignored(self) -> dict[str, MidstreamError]:
        """The files among the commands that are none, by name, and why; anybody may put something there."""
        self.commands()
        return self._ignored | self._unreadable

    @property
    def last_number(self) -> int:
        """The number of the latest command; 0 if there is none."""
        return max((int(path.name[:8]) for path in self.commands_path.glob(_FILES)), default=0)

    def write(self, action: Action, query: str | None = None) -> int:
        """Give a command to the query, whose id may be known by now (see :class:`Claims`); the command's number."""
        number = self.last_number + 1
        while not self.write_as(number, action, query):
            number += 1
        return number

    def write_as(self, number: int, action: Action, query: str | None = None) -> bool:
        """Give a command with this number; false if there is one already: another process was faster."""
        command = Command(number=number, directory=self.mark, query=query, submitted=time.time(), action=action)
        content = json.dumps({"id": number, "command": encode(command).decode()}) + "\n"
        return _write_first(self.commands_path / f"{number:08d}-{self.mark[:12]}.json", content.encode())

    def _read(self, name: str, kind: type[Kind], remedy: str) -> Kind | None:
        path = self.path / name
        try:
            text = read_text(path)
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as problem:
            raise MalformedMessage(f"{path} is damaged", detail=f"{problem}.", hint=remedy) from None
        return decode(text, kind, str(path), CONTROL_FORMAT, remedy)


class _Line(msgspec.Struct):
    """What a file of the folder holds, as Spark reads it."""

    id: int
    command: str


class _Claim(msgspec.Struct):
    """Commands up to the last one are this query's, unless an earlier claim has them."""

    query: str
    last: int


def _files_of(mark: str) -> str:
    """The numbered files of a directory with this mark."""
    return f"{'[0-9]' * 8}-{mark[:12]}.json"


def _write_first(path: Path, content: bytes) -> bool:
    """Write a file as a whole unless there is one; whether there was none. Of several writers, one is the first."""
    temporary = _aside(path)
    try:
        temporary.write_bytes(content)
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _aside(path: Path) -> Path:
    return path.with_name(f"_{path.name}_{os.getpid()}_{threading.get_ident()}_{time.monotonic_ns()}")


def _write(path: Path, content: bytes) -> None:
    """Write a file as a whole, also in place of another."""
    temporary = _aside(path)
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
