"""How benchmarks measure: in turns, by medians, each competitor in a process of its own where memory counts."""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
REPEATS = 5
VERSIONS = ("duckdb", "matplotlib", "numba", "numpy", "pandas", "pyarrow", "pyspark")


def timed(work: Callable[[], Any]) -> float:
    """Seconds the work takes."""
    gc.collect()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turns(competitors: dict[str, Callable[[], Any]], repeats: int = REPEATS) -> dict[str, float]:
    """Median seconds of each, run in turns so that a busy machine disturbs all alike; one round to warm up."""
    times: dict[str, list[float]] = {name: [] for name in competitors}
    for repeat in range(repeats + 1):
        for name, work in competitors.items():
            seconds = timed(work)
            if repeat:
                times[name].append(seconds)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def peak_mebibytes(module: str, *arguments: str) -> float:
    """The peak memory of ``python -m module arguments``, which must print it last (see report_peak)."""
    command = [sys.executable, "-m", module, *arguments]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parent.parent)
    return float(printed.stdout.strip().splitlines()[-1])


def report_peak() -> None:
    """Print this process's peak memory in MiB (Linux; getrusage would count the parent's, which was forked)."""
    status = Path("/proc/self/status").read_text()
    print(int(status.split("VmHWM:")[1].split()[0]) / 1024)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False).stdout.strip()


def environment() -> dict[str, Any]:
    """Machine, versions and commit."""
    commit = _git("describe", "--always") or "not known"
    # Results written by benchmarks that ran before do not count as changes.
    if _git("status", "--porcelain", "--", ":/", ":!/benchmarks/results"):
        commit += "-dirty"
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [line.split(":")[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        processor = models[0] if models else processor
    return {
        "commit": commit,
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{processor}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in VERSIONS},
    }


@dataclass(frozen=True)
class Bar:
    """What a figure must keep to. ``noise`` names the figure that says how far equal work differed, as a share."""

    figure: str
    limit: float
    at_least: bool = False
    noise: str | None = None

    def is_met(self, figures: dict[str, Any]) -> bool:
        value = figures[self.figure]
        return bool(value >= self.limit if self.at_least else value <= self.limit)

    def verdict(self, figures: dict[str, Any]) -> str:
        """Met or missed, and whether noise alone could have decided it."""
        verdict = "met" if self.is_met(figures) else "MISSED"
        close = self.noise is not None and abs(figures[self.figure] - self.limit) <= figures[self.noise] * self.limit
        return f"{verdict}, but within noise" if close else verdict

    def __str__(self) -> str:
        return f"{self.figure} {'≥' if self.at_least else '≤'} {self.limit}"


def save(name: str, figures: dict[str, Any], *bars: Bar, details: dict[str, Any] | None = None) -> bool:
    """Print the figures, keep them beside those of the other benchmarks, and say whether all bars are met.

    ``details`` are kept but not printed: series of many values.
    """
    verdicts = {str(bar): bar.verdict(figures) for bar in bars}
    write_results(RESULTS / f"{name}.json", {**figures, "bars": verdicts, **(details or {})})
    print(f"{name}:")
    for key, value in {**figures, **verdicts}.items():
        print(f"  {key}: {value:.3f}" if isinstance(value, float) else f"  {key}: {value}")
    return all(bar.is_met(figures) for bar in bars)


def write_results(path: Path, figures: dict[str, Any]) -> None:
    """Keep the figures with the machine, versions and commit they were measured on."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**figures, "environment": environment()}, indent=2, ensure_ascii=False) + "\n")
