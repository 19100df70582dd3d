"""The demo's report: a PNG, and a self-contained HTML page with the same plots."""

from __future__ import annotations

import html
import io
import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from midstream.demo.checking import Verdict
from midstream.demo.recording import JOINS, Phase, Recording
from midstream.demo.scenario import TEXT

__all__ = ["phase_rows", "write_report"]

COLOURS = {
    Phase.WARM_UP: "#9e9e9e",
    Phase.GOOD: "#2e7d32",
    Phase.BAD: "#c62828",
    Phase.MIGRATING: "#f9a825",
    Phase.GOOD_AGAIN: "#1565c0",
}
HEADINGS = ("phase", "batches", "median s", "rows in/s", "results out/s")
_LEVELS = ("lowest join", "middle join", "topmost join")
_DRAWING: Any = {"axes.grid": True, "grid.alpha": 0.3, "font.size": 9, "axes.titlesize": 10, "svg.fonttype": "none"}
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.verdict { font-size: 1.2rem; padding: .6rem 1rem; border-left: .4rem solid; background: #f6f6f6; }
.exact { border-color: #2e7d32; } .wrong { border-color: #c62828; }
table { border-collapse: collapse; } th, td { padding: .25rem .9rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
pre { background: #f6f6f6; padding: .8rem; overflow-x: auto; } svg { width: 100%; height: auto; }
.plans { display: flex; flex-wrap: wrap; gap: 1rem; }
"""


def write_report(recording: Recording, verdict: Verdict, folder: Path) -> tuple[Path, Path]:
    """Write ``demo.png`` and ``demo.html`` into the folder and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    picture, page = folder / "demo.png", folder / "demo.html"
    with rc_context(_DRAWING):
        drawing = _drawing(recording)
        drawing.savefig(picture, dpi=120)
        inline = io.StringIO()
        drawing.savefig(inline, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    # The page embeds the svg element only, without the XML prolog.
    svg = inline.getvalue()
    page.write_text(_page(recording, verdict, svg[svg.index("<svg") :]), encoding="utf-8")
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
    drawing.suptitle(f"A plan replaced while the query runs ({recording.strategy}, {recording.engine})")
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
    """Vertical lines before the first batch of the release and before the first with the new plan."""
    moments: list[tuple[int | None, str, Any]] = [
        (recording.size.release, "release", ":"),
        (recording.switched_at, "new plan", "--"),
    ]
    for number, what, style in moments:
        if number is not None:
            axes.axvline(number + 0.5, color="black", linestyle=style, linewidth=1)
            axes.annotate(
                what, (number + 0.5, 1), xycoords=("data", "axes fraction"), xytext=(3, -11),
                textcoords="offset points", fontsize=8, bbox={"fc": "white", "ec": "none", "alpha": 0.8, "pad": 1},
            )  # fmt: skip


def _page(recording: Recording, verdict: Verdict, svg: str) -> str:
    rows = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in phase_rows(recording)
    )
    headings = "".join(f"<th>{heading}</th>" for heading in HEADINGS)
    batches = sum(batch.rows for batch in recording.batches)
    switched = recording.switched_at
    when = "" if switched is None else f" The new plan was in effect from batch {switched + 1} on."
    plans = "".join(
        f"<div><h2>{title}</h2><pre>{html.escape(plan.explain())}</pre></div>"
        for title, plan in (("Old plan", recording.old_plan), ("New plan", recording.new_plan))
    )
    record = "".join(
        f"<tr><td>{html.escape(name.replace('_', ' '))}</td><td>{html.escape(_shown(value))}</td></tr>"
        for name, value in recording.migration.items()
        if name not in ("old_plan", "new_plan", "options", "number")
    )
    figures = recording.old_plan_figures
    kept = "" if figures is None else f"<p>{html.escape(str(figures))}</p>"
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>midstream: a plan replaced while the query runs</title><style>{_STYLE}</style></head>
<body>
<h1>A plan replaced while the query runs</h1>
<p>A join of four streams processed {batches:,} rows on {html.escape(recording.engine)}. In batch
{recording.size.release + 1} a release of the web shop turned the good join order into a bad one. A few batches later
the query migrated to another plan ({html.escape(recording.strategy)}) without stopping.{when}</p>
<p class="verdict {"exact" if verdict.is_exact else "wrong"}">{verdict}, compared with DuckDB over the whole input.</p>
<table><tr>{headings}</tr>{rows}</table>
{kept}
{svg}
<div class="plans">{plans}</div>
<h2>The migration</h2><table>{record}</table>
<h2>The query</h2><pre>{html.escape(TEXT)}</pre>
<p>{html.escape(_environment())}</p>
</body>
</html>
"""


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
