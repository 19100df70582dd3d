"""`make soak`: random migration cases on all cores for some minutes, judged by DuckDB and the brute force.

    python -m tests.property.soak --minutes 60
    python -m tests.property.soak --minutes 5 --seed 20260101   (the same cases as the run that printed this seed)

The figures go to benchmarks/results/soak.json. The exit code is 1 if a case failed.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from pathlib import Path

from benchmarks.measuring import RESULTS, write_results
from midstream.testing.soak import Failure, Soak, soak


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Random migration cases, judged by DuckDB and the brute force.")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--cases", type=int, help="stop when there were so many cases")
    parser.add_argument("--seed", default="", help="the seed that an earlier run printed; a new one by default")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--results", type=Path, default=RESULTS / "soak.json")
    options = parser.parse_args(arguments)
    seed = options.seed or str(secrets.randbelow(10**8))
    print(f"soaking for {options.minutes:g} minutes in {options.processes} processes, seed {seed}", flush=True)
    state = soak(options.minutes * 60, seed, options.processes, _print_failure, _print_progress, cases=options.cases)
    print(state.coverage.table())
    print(state.line())
    write_results(options.results, state.summary())
    return 1 if state.failures else 0


def _print_failure(failure: Failure) -> None:
    print(f"\nFAILED ({failure.kind})\n\n{failure.code()}", flush=True)


def _print_progress(state: Soak) -> None:
    print(state.line(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
