"""Environments of the competitors that must not share midstream's: made once, with pinned versions, kept in a cache.

The cache is ``.peers/`` in the repository, which git ignores. An environment is made anew if its requirements or the
Python it was made with have changed; one whose making was broken off is not taken for ready.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".peers"
MAKING_SECONDS = 1800


class EnvironmentFailed(Exception):
    """An environment could not be made; the message says why."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment with these requirements."""

    name: str
    requirements: tuple[str, ...]
    cache: Path = CACHE

    @property
    def directory(self) -> Path:
        return self.cache / self.name

    @property
    def python(self) -> Path:
        return self.directory / "bin" / "python"

    @property
    def is_ready(self) -> bool:
        """Whether it is there, with just these requirements."""
        stamp = self._stamp
        return self.python.exists() and stamp.exists() and stamp.read_text() == self._contents()

    def make(self) -> None:
        """Make it, unless it is ready."""
        if self.is_ready:
            return
        shutil.rmtree(self.directory, ignore_errors=True)
        self.cache.mkdir(parents=True, exist_ok=True)
        pip = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        self._call([sys.executable, "-m", "venv", str(self.directory)])
        self._call([*pip, *self.requirements])
        self._stamp.write_text(self._contents())

    @property
    def _stamp(self) -> Path:
        return self.directory / ".ready"

    def _contents(self) -> str:
        return "\n".join((sys.version, *self.requirements)) + "\n"

    def _call(self, command: list[str]) -> None:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MAKING_SECONDS)
        except subprocess.TimeoutExpired:
            raise EnvironmentFailed(f"not installed within {MAKING_SECONDS} s: {' '.join(self.requirements)}") from None
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
            raise EnvironmentFailed(f"could not be installed: {' '.join(said)[:400]}")


FLINK = Environment("flink", ("apache-flink==2.3.0",))
PATHWAY = Environment("pathway", ("pathway==0.33.0", "pandas<3"))
POLARS = Environment("polars", ("polars==2.1.0",))
