"""J4 through midstream on Spark, Spark's own joins, Flink, Pathway, DuckDB and Polars: see the package.

A whole run takes an hour or so on two cores. It writes results/peers.json and the table of the README; a part of it
(--only, --size) only prints. Bars, in steady state on the small size: at least 15 times Spark's own joins, chain and
tree, and twice Flink; on the large size a whole process shorter than Flink's; midstream's results exact.
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

from benchmarks.j4 import SIZES, Size
from benchmarks.measuring import Bar, environment, save
from benchmarks.peers.changes import SIZE as TRIAL
from benchmarks.peers.changes import all_changes
from benchmarks.peers.competitors import COMPETITORS, NAMES, REFERENCE, compete
from benchmarks.peers.outcome import Outcome
from benchmarks.peers.table import comparison, plan_changes, write_readme
from benchmarks.spark_j4 import sized
from benchmarks.spark_native_j4 import write_input

CHANGES = "changes"
OURS = {"midstream": "", "midstream-cells": "with two cells, "}
"""Competitors of our own, and how their figures begin. Bars are about the first: a query runs so by default."""
BARS = (
    Bar("small: steady rows/s, times native Spark (chain)", 15, at_least=True),
    Bar("small: steady rows/s, times native Spark (tree)", 15, at_least=True),
    Bar("small: steady rows/s, times Flink", 2, at_least=True),
    Bar("large: Flink's process seconds to midstream's", 1, at_least=True),
    Bar("sizes on which midstream's results are exact", 2, at_least=True),
)


def log(who: str, what: str) -> None:
    """A line about what goes on, on standard error."""
    print(f"{time.strftime('%H:%M:%S')} {who}: {what}", file=sys.stderr, flush=True)


def size_of(name: str) -> Size:
    """The twelve batches of a size; "trial" is too small to measure anything, but shows whether everything works."""
    return TRIAL if name == "trial" else sized(name)


def measure(name: str, only: str | None) -> list[Outcome]:
    """Every competitor on one size, or the reference and one."""
    size = size_of(name)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="peers_") as directory:
        write_input(size, directory)
        expected = None
        for competitor in COMPETITORS:
            if only not in (None, competitor.name) and competitor is not REFERENCE:
                continue
            who = f"{name}, {competitor.name}"
            log(who, "starts")
            # A second run of the slowest ones takes longer than they have.
            check_rows = name != "large" or competitor.name in OURS
            outcome = compete(competitor, size, Path(directory), expected, check_rows, partial(log, who))
            if competitor is REFERENCE:
                if outcome.failure:
                    sys.exit(f"the reference failed: {outcome.failure}")
                expected = outcome.count
            outcomes.append(outcome)
    return outcomes


def figures(measured: dict[str, list[Outcome]]) -> dict[str, float]:
    """The ratios that bars are about; 0 where there is nothing to compare with."""
    by_name = {size: {outcome.name: outcome for outcome in outcomes} for size, outcomes in measured.items()}

    def ratio(size: str, one: str, other: str, figure: str) -> float:
        numbers = [getattr(by_name[size][name], figure) or 0.0 for name in (one, other)]
        return round(numbers[0] / numbers[1], 3) if numbers[1] else 0.0

    seen: dict[str, float] = {}
    for size in measured:
        for our, begins in OURS.items():
            for title, other in (
                ("native Spark (chain)", "native-chain"),
                ("native Spark (tree)", "native-tree"),
                ("Flink", "flink"),
                ("Pathway", "pathway"),
            ):
                seen[f"{begins}{size}: steady rows/s, times {title}"] = ratio(size, our, other, "steady")
                seen[f"{begins}{size}: rows/s of the whole run, times {title}"] = ratio(size, our, other, "rate")
            to_ours = ratio(size, "flink", our, "process_seconds")
            seen[f"{begins}{size}: Flink's process seconds to midstream's"] = to_ours
    seen["sizes on which midstream's results are exact"] = sum(
        all(by_name[size][our].is_exact() for our in OURS) for size in measured
    )
    return seen


def report(measured: dict[str, list[Outcome]], changes: list[dict[str, Any]]) -> str:
    """All tables."""
    parts = []
    for name, outcomes in measured.items():
        size = size_of(name)
        count = next((outcome.count for outcome in outcomes if outcome.count), 0)
        parts.append(
            f"J4 {name}: {4 * size.rows * size.batches:,} rows in {size.batches} batches, {count:,} results.\n"
        )
        parts.append(comparison(outcomes))
    if changes:
        parts.append("What happens when the order of the joins changes halfway (24,000 rows per stream):\n")
        parts.append(plan_changes(changes))
    return "\n".join(parts)


def main(only: str | None = None, size: str | None = None) -> bool:
    """Run all of it, or a part; whether all bars are met (a part has none)."""
    sizes = [size] if size else list(SIZES)
    measured = {} if only == CHANGES else {name: measure(name, only) for name in sizes}
    changes = all_changes(log) if only in (None, CHANGES) else []
    text = report(measured, changes)
    print(text)
    if only or size:
        return True
    details = {name: {outcome.name: outcome.to_json() for outcome in outcomes} for name, outcomes in measured.items()}
    seen = figures(measured)
    met = save("peers", seen, *BARS, details={**details, "what others do when the plan changes": changes})
    verdicts = "".join(f"- {bar}: {seen[bar.figure]:g}, {bar.verdict(seen)}\n" for bar in BARS)
    here = environment()
    where = f"{here['machine']}, {here['date']}, commit {here['commit']}; versions are in `results/peers.json`."
    write_readme(f"{where}\n\n{text}\nBars:\n\n{verdicts}")
    return met


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", choices=[*NAMES, CHANGES], help="one competitor beside DuckDB, or the changes of plans"
    )
    parser.add_argument("--size", choices=[*SIZES, "trial"], help="one size; trial: to see whether everything works")
    chosen = parser.parse_args()
    # Ended from outside, it must still end what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(0 if main(chosen.only, chosen.size) else 1)
