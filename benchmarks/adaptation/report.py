"""The tables of the evaluation in the README of the benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.measuring import Bar
from benchmarks.readme import Place, markdown

__all__ = ["write_readme"]

_PLACE = Place("adaptation", "python -m benchmarks adaptation")
_COMPETITORS = ("clairvoyant", "stairs", "eddy", "fixed M-join", "best static plan", "default plan")


def write_readme(
    found: Sequence[Mapping[str, Any]],
    quiet: Mapping[str, Any],
    ablated: Mapping[str, Mapping[str, Mapping[str, Any]]],
    figures: dict[str, Any],
    bars: Sequence[Bar],
    commits: Mapping[str, str],
) -> None:
    """Put all tables into the README."""
    by_commit = {commit: [part for part in commits if commits[part] == commit] for commit in set(commits.values())}
    most, *others = sorted(by_commit, key=lambda commit: -len(by_commit[commit]))
    measured = most + "".join(f"; at {commit}: {', '.join(by_commit[commit])}" for commit in others)
    overheads = quiet["overheads"]
    _PLACE.write(
        f"Measured at {measured}. Seconds of processor time; in parentheses the regret: the time beyond the best "
        "static plan of each phase.\n\n"
        + _workloads(found)
        + f"\nNothing changes, {len(quiet['migrations'])} seeds of 50 windows: {sum(quiet['migrations'])} migrations; "
        f"overhead {quiet['overhead']:.1%} (median; {min(overheads):.1%} to {max(overheads):.1%}).\n\n"
        "Other policies: the regret and the number of migrations.\n\n"
        + _ablations(ablated)
        + "\nBars:\n\n"
        + _bars(figures, bars)
    )


def _workloads(found: Sequence[Mapping[str, Any]]) -> str:
    headings = ["workload", "adaptive", *_COMPETITORS, "migrations", "delays in windows", "q-error"]
    rows = []
    for result in found:
        competitors = result["competitors"]
        times = [_time(competitors[name]) for name in ("adaptive", *_COMPETITORS)]
        delays = ", ".join(f"{delay:.1f}" for delay in result["delays_in_windows"][:5]) or "none"
        error = result["median_q_error"]
        rows.append(
            [result["workload"], *times, str(result["migrations"]), delays, "" if error is None else f"{error:.2f}"]
        )
    return markdown(headings, rows)


def _time(figures: Mapping[str, float]) -> str:
    return f"{figures['seconds']:.2f} ({figures['regret']:.0%})"


def _ablations(ablated: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    policies = list(next(iter(ablated.values())))
    rows = [
        [policy, *(f"{by[policy]['regret']:.0%}, {by[policy]['migrations']}" for by in ablated.values())]
        for policy in policies
    ]
    return markdown(["policy", *ablated], rows)


def _bars(figures: dict[str, Any], bars: Sequence[Bar]) -> str:
    verdicts = {bar: "met" if bar.is_met(figures) else "**missed**" for bar in bars}
    return "".join(f"- {bar}: {figures[bar.figure]:.3g}, {verdict}\n" for bar, verdict in verdicts.items())
