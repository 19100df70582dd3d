"""Figures of the papers, drawn and kept: ``results/<name>.png``, the data behind it as JSON, a line of the README."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import matplotlib
import numpy as np

from benchmarks.measuring import RESULTS, Bar, save
from benchmarks.readme import Place

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

__all__ = [
    "PaperFigure",
    "describe",
    "fitted_power",
    "new_figure",
    "run_parts",
    "save_figure",
    "write_readme_table",
]

PLACE = Place("figures", "the benchmarks")


@dataclass(frozen=True)
class PaperFigure:
    """A figure that is reproduced: the name of its files, where it comes from, what it shows, and what was scaled."""

    name: str
    source: str
    shows: str
    settings: str


def new_figure(title: str, rows: int = 1, columns: int = 1, width: float = 5.2, height: float = 3.9) -> Any:
    """A drawing and its axes, in rows and columns (an array, as from ``subplots(squeeze=False)``)."""
    plt.rcParams.update({"axes.grid": True, "grid.alpha": 0.3, "font.size": 9, "axes.titlesize": 10})
    drawing, axes = plt.subplots(rows, columns, figsize=(width * columns, height * rows + 0.5), squeeze=False)
    drawing.suptitle(title)
    return drawing, axes


def describe(axes: Axes, title: str, x: str, y: str, *, legend: bool = True, from_zero: bool = True) -> None:
    """Title, labels with units, legend."""
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if from_zero and axes.get_yscale() == "linear":
        axes.set_ylim(bottom=0)
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log":
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
            axis.set_minor_formatter(NullFormatter())
    if legend:
        axes.legend(fontsize=7.5, framealpha=0.85, handlelength=3)


def fitted_power(x: Sequence[float], y: Sequence[float]) -> float:
    """The exponent b of the best y = a x^b."""
    return float(np.polyfit(np.log(x), np.log(np.maximum(y, 1e-12)), 1)[0])


def save_figure(
    figure: PaperFigure,
    drawing: Figure,
    figures: dict[str, Any],
    holds: bool,
    seen: str,
    series: dict[str, Any],
    *bars: Bar,
) -> bool:
    """Keep the drawing and the data beside it; whether all bars are met. ``holds``: what is seen has the paper's shape.

    What is seen names the factors.
    """
    drawing.tight_layout()
    RESULTS.mkdir(exist_ok=True)
    drawing.savefig(RESULTS / f"{figure.name}.png", dpi=110)
    plt.close(drawing)
    shape = f"{'holds' if holds else 'does not hold in full'}: {seen}"
    described = {"figure": figure.source, "paper shows": figure.shows, "shape": shape}
    return save(
        figure.name, {**described, **figures}, *bars, details={"settings": figure.settings, "series": _rounded(series)}
    )


def _rounded(value: Any) -> Any:
    """The same with numbers of six digits: more would be noise."""
    if isinstance(value, dict):
        return {str(key): _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_rounded(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.6g}")
    return value.item() if isinstance(value, np.generic) else value


def _natural(name: str) -> list[str | int]:
    """A key that sorts figure 9 before figure 10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def write_readme_table() -> None:
    """Write what the results say into the table of the README."""
    lines = ["| figure | the paper shows | what we see | settings |", "|---|---|---|---|"]
    for path in sorted(RESULTS.glob("*.json"), key=lambda path: _natural(path.stem)):
        kept = json.loads(path.read_text())
        if "paper shows" in kept:
            open_bars = [f"{bar}: {verdict}" for bar, verdict in kept["bars"].items() if verdict != "met"]
            seen = kept["shape"] + (f" **Bars: {'; '.join(open_bars)}.**" if open_bars else "")
            link = f"[{kept['figure']}](results/{path.stem}.png)"
            cells = [link, kept["paper shows"], seen, f"{kept['settings']}; commit {kept['environment']['commit']}"]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    PLACE.write("\n".join(lines) + "\n")


def run_parts(main: Callable[..., bool]) -> NoReturn:
    """Run the parts of a benchmark that are named on the command line, or all of them, and update the README."""
    is_met = main(*sys.argv[1:])
    write_readme_table()
    sys.exit(0 if is_met else 1)
