"""Parts of an evaluation that takes long, kept as they are done: an interrupted run can be resumed.

A part is used again if neither the sources nor the evaluation have changed since it was measured. Each says at which
commit that was.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.measuring import RESULTS, write_results

__all__ = ["Parts"]

_FOLDERS = ("adaptation", "algebra", "cql", "engine", "execution", "migration", "planning")
_RUNTIME = (
    "cell",
    "ingest",
    "local_run",
    "operator_counters",
    "run",
    "stream_counters",
    "stream_statistics",
    "watermark",
)
_EVALUATION = ("adaptation/competitors", "adaptation/evaluation", "adaptation/workloads", "flights")
MEASURED = (
    *(f"src/midstream/{folder}" for folder in _FOLDERS),
    *(f"src/midstream/runtime/{file}.py" for file in _RUNTIME),
    *(f"benchmarks/{file}.py" for file in _EVALUATION),
)
"""What runs in an evaluation: nothing of it needs Spark, the command line or a deployment."""


class Parts:
    """The parts in a folder of ``benchmarks/results``."""

    def __init__(self, name: str, resume: bool) -> None:
        self._folder = RESULTS / name
        self._resume = resume
        self._sources = _sources()
        """What is measured, even if files change meanwhile."""

    def known(self, part: str) -> Any:
        """What was measured of a part; None if it is to be measured."""
        path = self._path(part)
        if not self._resume or not path.exists():
            return None
        kept = json.loads(path.read_text())
        return kept["measured"] if kept["sources"] == self._sources else None

    def kept(self, part: str) -> Any:
        """What was measured of a part, with whatever sources; None if it never was."""
        path = self._path(part)
        return json.loads(path.read_text())["measured"] if path.exists() else None

    def keep(self, part: str, measured: Any) -> Any:
        """Keep what was measured, and give it as it will be read again."""
        self._folder.mkdir(parents=True, exist_ok=True)
        write_results(self._path(part), {"part": part, "sources": self._sources, "measured": measured})
        return json.loads(self._path(part).read_text())["measured"]

    def commits(self) -> dict[str, str]:
        """At which commit each part was measured."""
        kept = (json.loads(path.read_text()) for path in sorted(self._folder.glob("*.json")))
        return {one["part"]: one["environment"]["commit"] for one in kept}

    def _path(self, part: str) -> Path:
        return self._folder / (re.sub(r"[^a-z0-9.]+", "_", part.lower()).strip("_") + ".json")


def _sources() -> str:
    """A digest of all that is measured, changes that are not committed included."""
    told = [["ls-files", "--stage"], ["diff", "HEAD"]]
    outputs = [
        subprocess.run(["git", *words, "--", *MEASURED], check=True, capture_output=True).stdout for words in told
    ]
    return hashlib.blake2b(b"".join(outputs), digest_size=8).hexdigest()
