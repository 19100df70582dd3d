"""``midstream bench``: run benchmarks of a clone; they are not part of the installed package."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import midstream
from midstream.cli.output import Output
from midstream.errors import PathProblem

__all__ = ["bench", "clone_among"]


def bench(names: list[str], output: Output) -> int:
    """Run the named benchmarks, or all, and return their exit code."""
    here = Path.cwd()
    clone = clone_among([here, *here.parents, *Path(midstream.__file__).parents])
    command = [sys.executable, "-m", "benchmarks", *names]
    # Their output is not JSON: with --json it goes to standard error (file descriptor 2).
    done = subprocess.run(command, cwd=clone, stdout=2 if output.as_json else None, check=False)
    output.document({"benchmarks": names, "exit_code": done.returncode, "results": str(clone / "benchmarks/results")})
    return done.returncode


def clone_among(folders: Sequence[Path]) -> Path:
    """The first of the folders that is a clone of the repository."""
    for folder in folders:
        if (folder / "benchmarks" / "__main__.py").is_file() and (folder / "src" / "midstream").is_dir():
            return folder
    raise PathProblem(
        "benchmarks are in the repository, not in the installed package",
        hint="Clone the repository, run make check there, and run this command inside it.",
    )
