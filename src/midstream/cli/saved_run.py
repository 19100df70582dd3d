"""``run.json`` in the control directory: everything a run was started with, to resume it and to verify its result.

Beside it, ``run.lock`` is held by the process that runs the query, for as long as it lives, however it ends: so anybody
can see whether the query runs. Its first line is the process; the others, if any, say what the run failed of.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType

import msgspec

from midstream.cli.places import is_remote
from midstream.cli.sinks import Sink
from midstream.cli.sources import StreamSource
from midstream.errors import AlreadyRunning, CheckpointMismatch, MalformedMessage, NotRunning, quoted
from midstream.regular_files import open_regular, read_json, read_text

__all__ = ["MASTER", "RunFile", "is_running", "note_failure", "noted_failure", "running", "running_process"]

VERSION = 1
MASTER = "local[2,4]"
"""Two cores of this machine, and four attempts at a task, as ``midstream.spark.session`` has it by default."""


_ENTRIES: Mapping[str, tuple[type, ...]] = {
    "query": (str,),
    "checkpoint": (str,),
    "plan": (str, NoneType),
    "cells": (int, NoneType),
    "master": (str,),
    "settings": (dict,),
    "just_in_time": (bool,),
    "dead_letters": (str, NoneType),
}


@dataclass(frozen=True)
class RunFile:
    """A run as the user asked for it, with the schemas and event times that were found."""

    query: str
    streams: tuple[StreamSource, ...]
    sink: Sink
    control: Path
    checkpoint: str
    """A directory, or a place that Spark knows (hdfs://...)."""
    plan: str | None = None
    cells: int | None = None
    master: str = MASTER
    settings: Mapping[str, str] = field(default_factory=dict)
    just_in_time: bool = False
    dead_letters: str | None = None
    """Where bad messages go: a directory, or ``kafka:HOST:PORT/TOPIC``."""

    @property
    def path(self) -> Path:
        return self.control / "run.json"

    @property
    def log(self) -> Path:
        """What Spark's processes say."""
        return self.control / "spark.log"

    @property
    def has_begun(self) -> bool:
        """Whether a micro-batch was planned, by what is in the checkpoint; if that is far away, it may have been."""
        return is_remote(self.checkpoint) or any(Path(self.checkpoint, "offsets").glob("[0-9]*"))

    def write(self) -> None:
        """Write it as a whole, as of this process."""
        content = {
            "version": VERSION,
            "query": self.query,
            "streams": [stream.to_json() for stream in self.streams],
            "sink": self.sink.to_json(),
            "checkpoint": self.checkpoint,
            "plan": self.plan,
            "cells": self.cells,
            "master": self.master,
            "settings": dict(self.settings),
            "just_in_time": self.just_in_time,
            "dead_letters": self.dead_letters,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "started": time.time(),
        }
        temporary = self.path.with_name(f"_run.json_{os.getpid()}")
        temporary.write_text(json.dumps(content, indent=1) + "\n")
        temporary.replace(self.path)

    @classmethod
    def read(cls, control: Path) -> RunFile:
        """The run of a control directory.

        Raises ``NotRunning`` if there was none, and ``MalformedMessage`` if what is there is not what was written.
        """
        control = control.absolute()
        try:
            content = {"dead_letters": None, **read_json(control / "run.json")}
            if content["version"] != VERSION:
                raise ValueError(f"it is of version {content['version']}, this midstream reads {VERSION}")
            wrong = [name for name, types in _ENTRIES.items() if type(content[name]) not in types]
            if wrong:
                raise ValueError(f"not of the type it was written with: {quoted(wrong)}")
            return cls(
                content["query"],
                msgspec.convert(content["streams"], tuple[StreamSource, ...]),
                msgspec.convert(content["sink"], Sink),
                control,
                content["checkpoint"],
                content["plan"],
                content["cells"],
                content["master"],
                content["settings"],
                content["just_in_time"],
                content["dead_letters"],
            )
        except FileNotFoundError:
            is_there = control.is_dir()
            raise NotRunning(
                f"{control} has no run.json",
                detail="No midstream run was started there." if is_there else "The directory does not exist.",
                hint="Give the directory that midstream run called its control directory.",
            ) from None
        except (ValueError, KeyError, TypeError) as problem:
            missing = f"{problem} is missing" if isinstance(problem, KeyError) else problem
            raise MalformedMessage(
                f"{control / 'run.json'} is damaged",
                detail=f"{missing}.",
                hint="Restore it: without it nobody knows which sources and sink the checkpoint belongs to. Or give "
                "another --control and --checkpoint, and another sink.",
            ) from None

    def check_same_as(self, other: RunFile) -> None:
        """Refuse to continue elsewhere: rows would be read, or results written, in two places."""
        for what, there, now in [
            ("checkpoint", other.checkpoint, self.checkpoint),
            ("sink", other.sink.shown, self.sink.shown),
            *(
                (f'source of stream "{mine.name}"', their.shown, mine.shown)
                for mine in self.streams
                for their in other.streams
                if mine.name == their.name
            ),
        ]:
            if there != now:
                raise CheckpointMismatch(
                    f"the control directory {self.control} belongs to a run with another {what}",
                    detail=f"There: {there}. Now: {now}.",
                    hint=f"Continue with midstream run --resume {self.control}, or give another --control.",
                )

    def read_as_before(self) -> RunFile:
        """With the readers that the run in this control directory began with: its checkpoint knows no others."""
        if not self.has_begun:
            return self
        try:
            began = {source.name: source.read_by for source in RunFile.read(self.control).streams}
        except NotRunning:
            return self
        return self.with_streams([replace(one, read_by=began.get(one.name, one.read_by)) for one in self.streams])

    def with_streams(self, streams: list[StreamSource]) -> RunFile:
        return replace(self, streams=tuple(streams))


@contextlib.contextmanager
def running(control: Path) -> Iterator[None]:
    """While this process runs the query of a control directory; raises ``AlreadyRunning`` if another does."""
    control.mkdir(parents=True, exist_ok=True)
    with open_regular(control / "run.lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise AlreadyRunning(
                f"the query in {control} is running already (pid {running_process(control) or 'unknown'})",
                hint="End it first, or give another --control and --checkpoint.",
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def running_process(control: Path) -> int | None:
    """The process that runs the query of a control directory, if one does."""
    with contextlib.suppress(OSError, ValueError):
        return int(read_text(control / "run.lock").partition("\n")[0])
    return None


def note_failure(control: Path, failure: str) -> None:
    """Note what the run of this process failed of, until the next one."""
    with contextlib.suppress(OSError), open_regular(control / "run.lock", "a") as lock:
        lock.write(f"{failure}\n")


def noted_failure(control: Path) -> str | None:
    """What the last run in a control directory failed of, if it did."""
    with contextlib.suppress(OSError):
        return read_text(control / "run.lock").partition("\n")[2].strip() or None
    return None


def is_running(control: Path) -> bool | None:
    """Whether some process runs the query of a control directory; None if it was not started by ``midstream run``."""
    try:
        with open_regular(control / "run.lock") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
            return False
    except FileNotFoundError:
        return None
