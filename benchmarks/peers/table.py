"""The comparison as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.peers.competitors import COMPETITORS, DURABLE
from benchmarks.peers.outcome import Outcome
from benchmarks.readme import markdown

LONGEST_TEXT = 200
HEADINGS = (
    "engine",
    "how",
    "sink",
    "steady rows/s",
    "rows/s",
    "results/s",
    "seconds: query, process",
    "peak memory",
    "results against DuckDB's",
    "can the running plan change?",
)


def comparison(outcomes: Sequence[Outcome]) -> str:
    """One row per competitor; what failed says why."""
    rows = []
    described = {competitor.name: competitor for competitor in COMPETITORS + DURABLE}
    for outcome in outcomes:
        competitor = described[outcome.name]
        cells = [outcome.engine or outcome.name, competitor.how, competitor.sink]
        if outcome.seconds is None:
            reason = f"failed: {outcome.failure}"
            rows.append([*cells, "", "", "", "", "", reason, competitor.can_change])
            continue
        exactness = outcome.exactness()
        if not outcome.is_whole:
            exactness += f"; stopped after {outcome.done_rows:,} of {outcome.rows:,} rows"
        if outcome.failure:
            exactness += f"; {outcome.failure}"
        steady = "none: one batch" if outcome.kind == "batch" else _number(outcome.steady)
        seconds = f"{outcome.seconds:.1f}, {outcome.process_seconds:.1f}"
        memory = f"{outcome.peak_mebibytes:,.0f} MiB"
        rates = [steady, _number(outcome.rate), _number(outcome.result_rate)]
        rows.append([*cells, *rates, seconds, memory, exactness, competitor.can_change])
    return markdown(HEADINGS, rows)


def plan_changes(changes: Sequence[Mapping[str, Any]]) -> str:
    """What happened when the order of the joins changed."""
    rows = []
    for change in changes:
        if change.get("failure"):
            seen, counts = f"could not be tried: {change['failure']}", ""
        elif change.get("refusal"):
            seen, counts = f"refuses: {_shortened(change['refusal'])}", ""
        else:
            seen = change["seen"]
            counts = ", ".join(f"{change[what]:,} {what}" for what in ("missing", "repeated", "wrong"))
            counts += f" (of {change['expected']:,})"
        rows.append([change["engine"], change["change"], seen, counts])
    return markdown(("engine", "join order", "what it does", "results"), rows)


def _shortened(text: str) -> str:
    """As much as a cell takes; the results have all of it."""
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT].rsplit(" ", 1)[0] + " …"


def _number(value: float | None) -> str:
    return "not known" if value is None else f"{value:,.0f}"
