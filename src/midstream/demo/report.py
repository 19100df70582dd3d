"""The demo's report: a PNG, and a self-contained HTML page with the same plots."""

from __future__ import annotations

import html
import os
import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from midstream.adaptation.decision_report import decision_table
from midstream.demo.checking import Verdict
from midstream.demo.recording import JOINS, Phase, Recording
from midstream.demo.scenario import TEXT
from midstream.report_page import PLOT_SETTINGS, html_page, html_table, inline_svg

__all__ = ["phase_rows", "write_report"]

COLOURS = {
    Phase.WARM_UP: "#9e9e9e",
    Phase.GOOD: "#2e7d32",
    Phase.BAD: "#c62828",
    Phase.MIGRATING: "#f9a825",
    Phase.GOOD_AGAIN: "#1565c0",
}
HEADINGS = ("phase", "batches", "median s", "rows in/s", "results out/s")
_HIDDEN = ("old_plan", "new_plan", "options", "number")
_LEVELS = ("lowest join", "middle join", "topmost join")


def write_report(recording: Recording, verdict: Verdict, folder: Path) -> tuple[Path, Path]:
    """Write ``demo.png`` and ``demo.html`` into the folder and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    picture, page = folder / "demo.png", folder / "demo.html"
    with rc_context(PLOT_SETTINGS):
        drawing = _drawing(recording)
        drawing.savefig(picture, dpi=120)
        svg = inline_svg(drawing)
    page.write_text(_page(recording, verdict, svg), encoding="utf-8")
    return picture, page


def phase_rows(recording: Recording) -> Iterator[tuple[str, ...]]:
    """A row of text per phase, under ``HEADINGS``."""
    for figures in recording.figures():
        yield (
            figures.phase.value,
            str(figures.batches),
            f"{figures.median_seconds:.2f}",
            f"{figures.rows_per_second:,.0f}",
            f"{figures.results_per_second:,.0f}",
        )


def _drawing(recording: Recording) -> Figure:
    drawing = Figure(figsize=(9, 9.5), layout="constrained")
    FigureCanvasAgg(drawing)
    times, rates, states = drawing.subplots(3, 1, sharex=True)
    by = f"{recording.strategy}, " if recording.strategy else ""
    drawing.suptitle(f"{_title(recording)} ({by}{recording.engine})")
    numbers = [batch.number + 1 for batch in recording.batches]
    _draw_times(times, recording)
    seconds = [batch.seconds for batch in recording.batches]
    for name, colour in (("rows", "#37474f"), ("results", "#8e24aa")):
        values = [getattr(batch, name) / took for batch, took in zip(recording.batches, seconds, strict=True)]
        rates.plot(numbers, values, label=f"{name} {'in' if name == 'rows' else 'out'}", color=colour)
    rates.set(title="Throughput", ylabel="per second")
    for level in range(JOINS):
        states.plot(numbers, [batch.states[level] for batch in recording.batches], label=_LEVELS[level])
    states.plot(
        numbers, [batch.window_rows for batch in recording.batches], label="rows in windows", color="black", ls=":"
    )
    states.set(title="State: rows per join, and rows in windows", ylabel="rows", xlabel="micro-batch")
    states.set_yscale("symlog", linthresh=1000)
    for axes in (times, rates, states):
        _mark(axes, recording)
        axes.legend(fontsize=8, loc="upper left", framealpha=0.85)
        if axes is not states:
            axes.set_ylim(bottom=0)
        if axes is not times:
            axes.yaxis.set_major_formatter("{x:,.0f}")
    return drawing


def _draw_times(axes: Axes, recording: Recording) -> None:
    """A bar per batch, in the colour of its phase. Slow first batches (JVM warm-up) are clipped."""
    for phase in Phase:
        own = [batch for batch in recording.batches if recording.phase(batch) is phase]
        if own:
            label = phase.value
            axes.bar(
                [b.number + 1 for b in own], [b.seconds for b in own], color=COLOURS[phase], label=label, width=0.9
            )
    ordinary = [batch.seconds for batch in recording.batches if recording.phase(batch) is not Phase.WARM_UP]
    if ordinary:
        axes.set_ylim(0, 1.25 * max(ordinary))
    axes.set(title="Batch duration", ylabel="seconds")


def _mark(axes: Axes, recording: Recording) -> None:
    """Vertical lines before the first batch of the release and before the first with each new plan."""
    moments: list[tuple[int, str, Any]] = [
        (recording.size.release, "release", ":"),
        *((number, "new plan", "--") for number in recording.changes),
    ]
    for place, (number, what, style) in enumerate(moments):
        axes.axvline(number + 0.5, color="black", linestyle=style, linewidth=1)
        # The query may change its plan one batch after the release: the words stand below each other.
        axes.annotate(
            what, (number + 0.5, 1), xycoords=("data", "axes fraction"), xytext=(3, -11 - 12 * place),
            textcoords="offset points", fontsize=8, bbox={"fc": "white", "ec": "none", "alpha": 0.8, "pad": 1},
        )  # fmt: skip


def _title(recording: Recording) -> str:
    return "A query that replaces its own plan" if recording.adapts else "A plan replaced while the query runs"


def _page(recording: Recording, verdict: Verdict, svg: str) -> str:
    rows = sum(batch.rows for batch in recording.batches)
    plans = "".join(
        f"<div><h2>{title}</h2><pre>{html.escape(plan)}</pre></div>"
        for title, plan in (("Old plan", recording.plan_before_release), ("New plan", recording.plan))
    )
    records = "".join(f"<h2>The migration</h2>{_record_table(record)}" for record in recording.migrations)
    decided = "" if not recording.adapts else f"<h2>What the query decided</h2>{decision_table(recording.decisions)}"
    figures = recording.old_plan_figures
    kept = "" if figures is None else f"<p>{html.escape(str(figures))}</p>"
    return html_page(
        _title(recording),
        f"""<p>A join of four streams processed {rows:,} rows on {html.escape(recording.engine)}. In batch
{recording.size.release + 1} a release of the web shop turned the good join order into a bad one.
{html.escape(_what_happened(recording))}</p>
<p class="verdict {"exact" if verdict.is_exact else "wrong"}">{verdict}, compared with DuckDB over the whole input.</p>
{html_table(HEADINGS, phase_rows(recording))}
{kept}
{svg}
{decided}
<div class="plans">{plans}</div>
{records}
<h2>The query</h2><pre>{html.escape(TEXT)}</pre>
<p>{html.escape(_environment())}</p>""",
    )


def _what_happened(recording: Recording) -> str:
    switched = recording.switched_at
    if switched is None:
        return "The query kept its plan."
    how = (
        "Nobody called migrate: the query measured its joins, and changed its plan by itself"
        if recording.adapts
        else "A few batches later the demo called migrate"
    )
    return f"{how} ({recording.strategy}), without stopping. The new plan was in effect from batch {switched + 1} on."


def _record_table(record: Mapping[str, Any]) -> str:
    shown = {name: value for name, value in record.items() if name not in _HIDDEN}
    return html_table((), [(name.replace("_", " "), _shown(value)) for name, value in shown.items()])


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _environment() -> str:
    versions = []
    for package in ("midstream", "pyspark", "duckdb", "pyarrow"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return f"{', '.join(versions)}; Python {platform.python_version()}; {os.cpu_count()} cores, {platform.machine()}."
