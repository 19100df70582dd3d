"""Plots of decisions: the cost of two plans, and the time lost against the cost of a change, by push.

Needs matplotlib, which midstream itself does not.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, SymmetricalLogLocator

from midstream.adaptation.decision_text import decisions_with_text, seconds_text
from midstream.adaptation.decisions import Decision
from midstream.report_page import PLOT_SETTINGS, inline_svg

__all__ = ["save_picture", "svg_of"]

MOST_TEXTS = 8
"""A picture has the words of so many changes, the latest ones."""
_LINE = 150
_LABELLED = (1.0, 2.0, 5.0)
"""The digits with which the labels of a logarithmic axis begin."""
_IN_FORCE, _CHEAPEST, _LOST, _COST = "#c62828", "#1565c0", "#ef6c00", "#37474f"


def svg_of(decisions: Sequence[Decision]) -> str:
    """The plots as an svg element, for a page that has the decisions in words."""
    with rc_context(PLOT_SETTINGS):
        return inline_svg(_figure(decisions, []))


def save_picture(decisions: Sequence[Decision], path: Path) -> None:
    """Write a PNG: the plots, and below them the latest changes, or else the latest decision, in words."""
    texts = [(decision, text) for decision, text in decisions_with_text(decisions)]
    shown = [each for each in texts if each[0].outcome != "kept"][-MOST_TEXTS:] or texts[-1:]
    lines = [
        line
        for decision, text in shown
        for line in textwrap.wrap(f"Push {decision.push:,}: {text}", _LINE, subsequent_indent="    ")
    ]
    with rc_context(PLOT_SETTINGS):
        _figure(decisions, lines).savefig(path, dpi=120)


def _figure(decisions: Sequence[Decision], lines: Sequence[str]) -> Figure:
    below = 0.15 * len(lines) + 0.2 if lines else 0.0
    figure = Figure(figsize=(9, 6.5 + below), layout="constrained")
    FigureCanvasAgg(figure)
    rows = 3 if lines else 2
    axes = figure.subplots(rows, 1, height_ratios=[3.25, 3.25, below][:rows])
    costs, regret = axes[0], axes[1]
    regret.sharex(costs)
    _plot(costs, decisions, "seconds_now", "o-", _IN_FORCE, "plan in force")
    _plot(costs, decisions, "seconds_best", "s--", _CHEAPEST, "cheapest plan")
    if any(decision.seconds_now > 0 for decision in decisions):
        costs.set_yscale("log")
        costs.yaxis.set_major_locator(LogLocator(subs=_LABELLED))
    costs.set_title("Cost of 1,000 rows, by the cost model")
    _plot(regret, decisions, "regret_at_next", "o-", _LOST, "time lost by the next decision")
    possible = [decision for decision in decisions if decision.strategy is not None]
    regret.plot(
        [d.push for d in possible], [d.migration for d in possible], "s", ms=4, color=_COST, label="cost of a change"
    )
    # What was lost begins at zero, which a logarithmic axis lacks.
    costs_known = [decision.migration for decision in possible if decision.migration > 0]
    threshold = min(costs_known, default=1e-3)
    regret.set_yscale("symlog", linthresh=threshold)
    regret.yaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=threshold, subs=_LABELLED))
    regret.set_ylim(bottom=0)
    regret.set_title("The plan is changed when what will be lost by the next decision exceeds the cost of the change")
    regret.set_xlabel("push (on Spark: micro-batch)")
    regret.xaxis.set_major_locator(MaxNLocator(integer=True))
    for plot in (costs, regret):
        plot.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: seconds_text(seconds)))
        plot.yaxis.set_minor_formatter(NullFormatter())
        _mark_changes(plot, decisions)
        plot.legend(fontsize=8, loc="best", framealpha=0.85)
    if lines:
        axes[2].set_axis_off()
        # Names of inputs are text, also where they look like mathematics.
        axes[2].text(0, 1, "\n".join(lines), va="top", fontsize=7, parse_math=False, transform=axes[2].transAxes)
    return figure


def _plot(axes: Axes, decisions: Sequence[Decision], name: str, style: str, colour: str, label: str) -> None:
    """A figure of the decisions; the line is broken where the plan was changed, and where nothing could be measured."""
    pushes: list[float] = []
    values: list[float] = []
    for decision in decisions:
        pushes.append(decision.push)
        values.append(getattr(decision, name) if decision.failure is None else math.nan)
        if decision.outcome == "changed":
            pushes.append(decision.push)
            values.append(math.nan)
    axes.plot(pushes, values, style, ms=3, color=colour, label=label)


def _mark_changes(axes: Axes, decisions: Sequence[Decision]) -> None:
    """Vertical lines at changes, dotted where one was only advised; the first of a row of advice is named."""
    before: Decision | None = None
    first, last = decisions[0].push, decisions[-1].push
    for decision in decisions:
        if decision.outcome != "kept":
            is_change = decision.outcome == "changed"
            axes.axvline(decision.push, color="black", linestyle="--" if is_change else ":", linewidth=1)
            if is_change or before is None or (before.outcome, before.best) != (decision.outcome, decision.best):
                # Beside the line, inside the plot.
                side, x = ("left", 3) if decision.push <= (first + last) / 2 else ("right", -3)
                axes.annotate(
                    decision.best, (decision.push, 1), xycoords=("data", "axes fraction"), xytext=(x, -11),
                    textcoords="offset points", ha=side, fontsize=7, parse_math=False,
                    bbox={"fc": "white", "ec": "none", "alpha": 0.8, "pad": 1},
                )  # fmt: skip
        before = decision
