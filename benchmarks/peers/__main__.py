"""J4 through midstream on Spark, Spark's own joins, Flink, Pathway, DuckDB and Polars: see the package.

A whole run takes an hour or so on two cores. It writes results/peers.json, with --durable results/peers_durable.json,
and a table of the README; a part of it (--only, --size) only prints. Bars (``contest``): steady state, whole processes,
memory where results are kept, and that midstream's results are exact.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.j4 import SIZES
from benchmarks.measuring import environment, save
from benchmarks.peers.changes import all_changes
from benchmarks.peers.competitors import NAMES, REFERENCE, compete
from benchmarks.peers.contest import DROPPED, KEPT, Contest
from benchmarks.peers.outcome import Outcome
from benchmarks.peers.table import comparison, plan_changes
from benchmarks.spark_j4 import sized
from benchmarks.spark_native_j4 import write_input

CHANGES = "changes"


def log(who: str, what: str) -> None:
    """A line about what goes on, on standard error."""
    print(f"{time.strftime('%H:%M:%S')} {who}: {what}", file=sys.stderr, flush=True)


def measure(contest: Contest, name: str, only: str | None) -> list[Outcome]:
    """Every competitor on one size, or the reference and one."""
    size = sized(name)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="peers_") as directory:
        write_input(size, directory)
        expected = None
        for competitor in contest.competitors:
            if only not in (None, competitor.name) and competitor is not REFERENCE:
                continue
            who = f"{name}, {competitor.name}"
            log(who, "starts")
            # One more run of the slowest ones takes longer than they have.
            check_rows = name != "large" or competitor.keeps_results or competitor.name in contest.ours
            outcome = compete(competitor, size, Path(directory), expected, check_rows, partial(log, who))
            if competitor is REFERENCE:
                if outcome.failure:
                    sys.exit(f"the reference failed: {outcome.failure}")
                expected = outcome.count
            outcomes.append(outcome)
    return outcomes


def report(measured: dict[str, list[Outcome]], changes: list[dict[str, Any]]) -> str:
    """All tables."""
    parts = []
    for name, outcomes in measured.items():
        size = sized(name)
        count = next((outcome.count for outcome in outcomes if outcome.count), 0)
        parts.append(
            f"J4 {name}: {4 * size.rows * size.batches:,} rows in {size.batches} batches, {count:,} results.\n"
        )
        parts.append(comparison(outcomes))
    if changes:
        parts.append("What happens when the order of the joins changes halfway (24,000 rows per stream):\n")
        parts.append(plan_changes(changes))
    return "\n".join(parts)


def main(only: str | None = None, size: str | None = None, contest: Contest = DROPPED) -> bool:
    """Run all of it, or a part; whether all bars are met (a part has none)."""
    sizes = [size] if size else list(SIZES)
    measured = {} if only == CHANGES else {name: measure(contest, name, only) for name in sizes}
    has_changes = only == CHANGES or (only is None and contest is DROPPED)
    changes = all_changes(log) if has_changes else []
    text = report(measured, changes)
    print(text)
    if only or size:
        return True
    details: dict[str, Any] = {
        name: {outcome.name: outcome.to_json() for outcome in outcomes} for name, outcomes in measured.items()
    }
    if has_changes:
        details["what others do when the plan changes"] = changes
    seen = contest.figures(measured)
    met = save(contest.name, seen, *contest.bars, details=details)
    verdicts = "".join(f"- {bar}: {seen[bar.figure]:g}, {bar.verdict(seen)}\n" for bar in contest.bars)
    here = environment()
    where = (
        f"{here['machine']}, {here['date']}, commit {here['commit']}; versions are in `results/{contest.name}.json`."
    )
    contest.place.write(f"{where}\n\n{text}\nBars:\n\n{verdicts}")
    return met


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", choices=[*NAMES, CHANGES], help="one competitor beside DuckDB, or the changes of plans"
    )
    parser.add_argument("--size", choices=[*SIZES, "trial"], help="one size; trial: to see whether everything works")
    parser.add_argument(
        "--durable", action="store_true", help="with sinks that keep every result exactly once, on all sides"
    )
    chosen = parser.parse_args()
    competing = KEPT if chosen.durable else DROPPED
    if chosen.only not in (None, CHANGES, *(competitor.name for competitor in competing.competitors)):
        parser.error(f"{chosen.only} takes part {'without' if chosen.durable else 'with'} --durable only")
    # Ended from outside, it must still end what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(0 if main(chosen.only, chosen.size, competing) else 1)
