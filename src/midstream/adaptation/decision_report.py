"""A report of what a query considered about its plan, as an HTML page or a PNG.

    write_decision_report(run.decisions(), "decisions.html")

Plots show the cost of the plan in force and of the cheapest plan, and the time lost against what a change would have
cost, push by push; a table has the decisions in words. The plots need matplotlib (``decision_drawing``).
"""

from __future__ import annotations

import html
import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from midstream.adaptation.decision_text import decisions_with_text, seconds_text
from midstream.adaptation.decisions import Decision
from midstream.errors import BadOption, NoDecisions, PackageMissing
from midstream.installation import install_command
from midstream.report_page import html_page, html_table

__all__ = ["check_report_path", "decision_table", "write_decision_report"]

_SUFFIXES = (".html", ".png")
_HEADINGS = ("#", "push", "outcome", "lost by the next one", "cost of a change", "decision")
_WORDS = ("outcome", "decision")


def check_report_path(path: Path) -> None:
    """Raise if the name of the file does not say in which of the two formats it is to be written."""
    if path.suffix.lower() not in _SUFFIXES:
        raise BadOption(
            f'a report of decisions cannot be written to "{path}"', hint="Give a file name that ends in .html or .png."
        )


def write_decision_report(decisions: Sequence[Decision], path: str | Path) -> Path:
    """Write a report of the decisions of a query: ``decisions()`` of a run in this process or on Spark.

    The name of the file, which ends in ``.html`` or ``.png``, says in which format. Returns its path.
    """
    path = Path(path)
    check_report_path(path)
    if not decisions:
        raise NoDecisions(
            "there are no decisions to report",
            detail="The query does not adapt, or has not measured its joins yet: that takes pushes with enough rows.",
            hint='Adapt with adapt="auto" or "advise" (midstream run --adapt), or wait until more rows have arrived.',
        )
    drawing = _drawing_module()
    if path.suffix.lower() == ".png":
        drawing.save_picture(decisions, path)
    else:
        path.write_text(_page(decisions, drawing.svg_of(decisions)), encoding="utf-8")
    return path


def decision_table(decisions: Iterable[Decision]) -> str:
    """The decisions in words, as an HTML table."""
    rows = [
        (
            str(decision.number),
            f"{decision.push:,}",
            decision.outcome,
            seconds_text(decision.regret_at_next),
            "" if decision.strategy is None else seconds_text(decision.migration),
            text,
        )
        for decision, text in decisions_with_text(decisions)
    ]
    return html_table(_HEADINGS, rows, _WORDS)


def _drawing_module() -> Any:
    try:
        return importlib.import_module("midstream.adaptation.decision_drawing")
    except ModuleNotFoundError as missing:
        raise PackageMissing(
            f"a report of decisions needs a package that is not installed: {missing.name}",
            hint=f"Install it with {install_command('demo')}.",
        ) from None


def _page(decisions: Sequence[Decision], svg: str) -> str:
    changes = sum(decision.outcome == "changed" for decision in decisions)
    advised = sum(decision.outcome == "advised" for decision in decisions)
    counts = f"{len(decisions):,} considerations, {changes:,} changes" + (f", {advised:,} advised" if advised else "")
    latest = decisions[-1]
    plan = latest.best if latest.outcome == "changed" else latest.plan
    return html_page(
        "decisions about a query's plan",
        f"""<p>{counts}. The plan is now "{html.escape(plan)}". Times are those of the cost model, with the cost
coefficients of the machine. On Spark a push is a micro-batch.</p>
{svg}
<h2>Decisions</h2>
{decision_table(decisions)}""",
    )
