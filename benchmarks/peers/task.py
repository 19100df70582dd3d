"""What a competitor is asked to do, handed to its process as JSON. Needs nothing but Python: any environment has it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

STREAMS = "abcd"
COLUMNS = tuple(f"{stream}_{column}" for stream in STREAMS for column in ("ts", "k", "v"))
"""The columns of a result, in order."""
CORES = 2
"""Threads, or tasks at a time, that every engine is given."""


@dataclass(frozen=True)
class Task:
    """One run of one competitor.

    ``inputs`` has a directory per stream with a parquet file per batch, of which the first ``batches`` are to be read.
    Results are written below ``output``, or discarded if it is None. ``scratch`` is an empty directory for anything
    else, ``seconds`` the time there is.
    """

    inputs: str
    batches: int
    window: int
    scratch: str
    seconds: float
    output: str | None = None
    what: str = "run"
    options: dict[str, Any] = field(default_factory=dict)

    def directories(self) -> dict[str, Path]:
        """The directory of each stream."""
        return {stream: Path(self.inputs) / stream for stream in STREAMS}

    def files(self, stream: str) -> list[str]:
        """The files to be read of a stream, in the order of time."""
        return sorted(str(path) for path in self.directories()[stream].glob("*.parquet"))[: self.batches]


def serve(works: Mapping[str, Callable[[Task], dict[str, Any]]]) -> None:
    """Do the task that the command line names (a file) and write what came of it beside it."""
    path = Path(sys.argv[1])
    task = Task(**json.loads(path.read_text()))
    outcome = works[task.what](task)
    path.with_suffix(".outcome").write_text(json.dumps(outcome))


def hand_over(task: Task, path: Path) -> None:
    """Write the task where its process will find it."""
    path.write_text(json.dumps(asdict(task)))


def outcome_of(path: Path) -> dict[str, Any]:
    """What the process wrote."""
    outcome: dict[str, Any] = json.loads(path.with_suffix(".outcome").read_text())
    return outcome
