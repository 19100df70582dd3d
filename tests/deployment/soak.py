"""`make soak-deployment`: random deployments with faults, judged by DuckDB and the brute force.

    python -m tests.deployment.soak --cases 10000
    python -m tests.deployment.soak --minutes 5 --seed 20260101   (the same cases as the run that printed this seed)

The figures go to benchmarks/results/soak_deployment.json. The exit code is 1 if a case failed.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

from benchmarks.measuring import RESULTS, write_results
from midstream.testing.soak_deployment import DeploymentFailure, DeploymentSoak, soak_deployments


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Random deployments with faults, judged by two oracles.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--cases", type=int, default=10_000, help="stop when there were so many cases")
    parser.add_argument("--seed", default="", help="the seed that an earlier run printed; a new one by default")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS / "soak_deployment.json")
    options = parser.parse_args(arguments)
    seed = options.seed or str(secrets.randbelow(10**8))
    print(f"{options.cases} cases, or {options.minutes:g} minutes, in {options.processes} processes, seed {seed}")
    state = soak_deployments(
        options.minutes * 60, seed, options.processes, _print_failure, _print_progress, options.cases
    )
    print(state.line())
    summary = state.summary()
    print("\n".join(f"{number:8}  {kind}" for kind, number in summary["met"].items()))
    write_results(options.results, summary)
    return 1 if state.failures else 0


def _print_failure(failure: DeploymentFailure) -> None:
    print(f"\nFAILED ({failure.kind})\n\n{failure.code()}", flush=True)


def _print_progress(state: DeploymentSoak) -> None:
    print(state.line(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
