"""``python -m midstream.demo``: the demo from the command line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from midstream.demo import OUTPUT, run_demo
from midstream.errors import MidstreamError

STOPPED = 130
"""The exit code of a program that Ctrl-C ended, as shells have it."""


def main(arguments: list[str] | None = None) -> int:
    """0: the results are exact. 1: they are not. 2: the demo could not run."""
    parser = argparse.ArgumentParser(
        prog="python -m midstream.demo",
        description="A four-stream join whose plan is replaced while it runs, checked with DuckDB.",
        epilog="Exit code: 0 if no row is missing and none repeated, 1 if one is, 2 if the demo could not run.",
    )
    parser.add_argument(
        "--strategy", default="jisc", help="how the plan is replaced (default: jisc); see docs/migration.md"
    )
    parser.add_argument("--no-spark", action="store_true", help="run the query in this process instead of on Spark")
    parser.add_argument(
        "--output", type=Path, default=OUTPUT, metavar="DIR", help=f"for the report (default: {OUTPUT})"
    )
    chosen = parser.parse_args(arguments)
    try:
        return run_demo(chosen.strategy, not chosen.no_spark, chosen.output)
    except MidstreamError as problem:
        print(problem, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; all files of the run are removed", file=sys.stderr)
        return STOPPED


if __name__ == "__main__":
    sys.exit(main())
