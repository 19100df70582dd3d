"""The entry point of ``midstream``. Commands need packages that the library does not: say so, if they are missing."""

from __future__ import annotations

import io
import sys

from midstream.installation import install_command

__all__ = ["main"]


def main() -> None:
    """Run the command that the arguments name, and end the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that has no letter for something gets another one instead of a failure.
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
