"""The entry point of ``midstream``. Reports missing packages that only the command line needs."""

from __future__ import annotations

import io
import sys

from midstream.installation import install_command

__all__ = ["main"]


def main() -> None:
    """Run the command that the arguments name, and end the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # Replace characters that the terminal cannot encode instead of failing.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        from midstream.cli.commands import app
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] == "midstream":
            raise
        sys.exit(
            f"midstream: the command line needs the package {missing.name}. Install everything that all commands need "
            f"with {install_command('cli', 'spark', 'testing')}."
        )
    except KeyboardInterrupt:
        sys.exit(130)
    app(prog_name="midstream")
