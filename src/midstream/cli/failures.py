"""Turn any exception into one clear message and an exit code; ``--debug`` also shows the traceback.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | refused, failed, or (verify) the results differ |
| 2 | invalid usage |
| 3 | (migrate) submitted, but not yet running or completed when the timeout expired |
| 130 | interrupted (Ctrl-C, SIGTERM) |
"""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from midstream.cli.output import Output
from midstream.cli.spark_failures import explain_spark_failure, is_of_spark
from midstream.errors import BadArgument, MidstreamError, PackageMissing, PathProblem, SparkFailed
from midstream.installation import install_command

__all__ = ["DONE", "FAILED", "INTERRUPTED", "PENDING", "USAGE", "explained", "reports_failures"]

DONE, FAILED, USAGE, PENDING, INTERRUPTED = 0, 1, 2, 3, 130

_EXTRAS = {
    "pyspark": "spark",
    "py4j": "spark",
    "pandas": "spark",
    "google": "spark",
    "deltalake": "delta",
    "duckdb": "testing",
    "hypothesis": "testing",
    "matplotlib": "demo",
}
"""The extra that installs a package."""


def reports_failures(command: Callable[..., int]) -> Callable[..., None]:
    """Wrap a command for typer: exceptions become a message and an exit code."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        output = Output(bool(options.get("as_json")), bool(options.get("debug")))
        try:
            code = command(*arguments, **options)
        except KeyboardInterrupt:
            output.note("interrupted")
            code = INTERRUPTED
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except BrokenPipeError:
            code = FAILED
        except Exception as problem:
            if output.debug:
                traceback.print_exception(problem)
            failure = explained(problem)
            # The failure may be that the output cannot be written.
            with contextlib.suppress(OSError):
                output.failure(failure)
            code = USAGE if isinstance(failure, BadArgument) else FAILED
        raise typer.Exit(code)

    return run


def explained(problem: BaseException) -> MidstreamError:
    """The error as the user should see it."""
    if isinstance(problem, MidstreamError):
        return problem
    if is_of_spark(problem):
        log = getattr(problem, "midstream_log", None)
        return explain_spark_failure(problem, log if isinstance(log, Path) else None)
    if isinstance(problem, ModuleNotFoundError):
        package = (problem.name or "").partition(".")[0]
        if package in _EXTRAS:
            return PackageMissing(
                f"the package {package} is not installed",
                hint=f"Install it with {install_command(_EXTRAS[package])}.",
            )
    if isinstance(problem, UnicodeDecodeError):
        return PathProblem("a file is not valid text", detail=str(problem))
    if isinstance(problem, ConnectionError):
        return SparkFailed("Spark's Java process has exited", hint="It may have been killed, or run out of memory.")
    if isinstance(problem, OSError):
        reason = problem.strerror or str(problem)
        return PathProblem(f"{problem.filename}: {reason[:1].lower()}{reason[1:]}" if problem.filename else reason)
    return MidstreamError(
        f"internal error in midstream: {type(problem).__name__}: {problem}",
        hint="Please report it with the traceback that --debug shows.",
    )
