"""All competitors at all rates, one after the other; the table of the README."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.latency.competitors import COMPETITORS, compete
from benchmarks.latency.load import MEASURED_SECONDS, WARM_UP_SECONDS, Load
from benchmarks.latency.outcome import PERCENTILES, Outcome
from benchmarks.measuring import Bar, environment, save
from benchmarks.readme import Place, markdown

RATES = (1_000, 50_000)
PLACE = Place("latency", "python -m benchmarks latency")
BARS = (
    Bar("rates that midstream keeps up with", len(RATES), at_least=True),
    Bar("rates at which midstream's results are exact", len(RATES), at_least=True),
)
HEADINGS = (
    "rows/s",
    "engine",
    "sink",
    *(f"p{percent}, ms" for percent in PERCENTILES),
    "ms between commits",
    "peak memory",
    "results against DuckDB's",
    "",
)

Outcomes = Mapping[tuple[int, str], Outcome]
"""By rate and the name of the competitor."""


def compare(
    rates: tuple[int, ...] = RATES,
    only: str | None = None,
    warm_up: float = WARM_UP_SECONDS,
    measured: float = MEASURED_SECONDS,
) -> bool:
    """Measure all, or a part, which is only printed; whether all bars are met (a part has none)."""
    outcomes: dict[tuple[int, str], Outcome] = {}
    for rate in rates:
        for competitor in COMPETITORS:
            if only in (None, competitor.name):
                log(f"{rate:,} rows/s, {competitor.name} starts")
                outcome = compete(competitor, Load(rate, warm_up=warm_up, measured=measured))
                log(f"{rate:,} rows/s, {competitor.name}: {outcome.to_json()}")
                outcomes[rate, competitor.name] = outcome
    text = table(outcomes)
    print(text)
    if (rates, only, warm_up, measured) != (RATES, None, WARM_UP_SECONDS, MEASURED_SECONDS):
        return True
    details = {f"{name} at {rate:,} rows/s": outcome.to_json() for (rate, name), outcome in outcomes.items()}
    met = save("latency", figures(outcomes), *BARS, details=details)
    here = environment()
    where = f"{here['machine']}, {here['date']}, commit {here['commit']}; versions are in `results/latency.json`."
    PLACE.write(f"{where}\n\n{text}")
    return met


def figures(outcomes: Outcomes) -> dict[str, Any]:
    """Percentiles of those that keep up, what is said of the others, and the figures that bars are about."""
    seen: dict[str, Any] = {}
    for (rate, name), outcome in outcomes.items():
        who = f"{rate:,} rows/s, {name}"
        if outcome.keeps_up:
            seen |= {f"{who}: p{percent} ms": value for percent, value in outcome.percentiles().items()}
        else:
            seen[who] = outcome.verdict()
    ours = [outcome for (_, name), outcome in outcomes.items() if name == "midstream"]
    seen["rates that midstream keeps up with"] = sum(outcome.keeps_up for outcome in ours)
    seen["rates at which midstream's results are exact"] = sum(outcome.is_exact for outcome in ours)
    return seen


def table(outcomes: Outcomes) -> str:
    """One row per rate and competitor; who does not keep up has no percentiles."""
    sinks = {competitor.name: competitor.sink for competitor in COMPETITORS}
    rows = []
    for (rate, name), outcome in outcomes.items():
        latency = [f"{value:,}" for value in outcome.percentiles().values()] if outcome.keeps_up else [""] * 3
        between = outcome.milliseconds_between_commits
        rows.append(
            [
                f"{rate:,}",
                outcome.engine or name,
                sinks[name],
                *latency,
                "" if between is None else f"{between:,}",
                "" if outcome.failure else f"{outcome.peak_mebibytes:,.0f} MiB",
                outcome.exactness(),
                outcome.verdict(),
            ]
        )
    return markdown(HEADINGS, rows)


def log(what: str) -> None:
    """A line about what goes on, on standard error."""
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)
