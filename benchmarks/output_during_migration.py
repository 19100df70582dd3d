"""What comes out while the plan changes, push by push, with every strategy: silence, burst, steadiness.

One query of seven streams whose output is the same in every push; the worst case of JISC, where all join states are
new. Results per push are exact; times are medians of repetitions in step.
"""

from __future__ import annotations

import numpy as np

from benchmarks.figures import PaperFigure, describe, new_figure, save_figure
from benchmarks.jisc_2014_chain import Chain
from benchmarks.measuring import Bar
from benchmarks.migrating import WAYS, in_step

CHAIN = Chain(joins=6, window=5_000, batch=250)
BEFORE, AFTER, REPEATS = 10, 50, 3
PER_ROW = 4


def main() -> bool:
    """Measure and draw all strategies."""
    query = CHAIN.query()
    batches = CHAIN.batches(CHAIN.window, BEFORE + AFTER)
    to = query.plan(CHAIN.new_plan("worst"))
    in_step(query, CHAIN.plan, batches[:12], {6: to}, WAYS, 1)
    measured = in_step(query, CHAIN.plan, batches, {1 + BEFORE: to}, WAYS, REPEATS)
    assert len({sum(rows) for rows in measured.rows.values()}) == 1
    x = np.arange(-BEFORE, AFTER)
    usual = float(np.median(measured.rows["jisc"][1 : 1 + BEFORE]))
    seen: dict[str, dict[str, float]] = {}
    blocks = -(-len(WAYS) // PER_ROW)
    drawing, axes = new_figure("Output during migration, by strategy", 2 * blocks, PER_ROW, width=3.7, height=2.4)
    slowest = 1000 * max(float(measured.pushes(name)[1:].max()) for name in WAYS)
    for place, (name, way) in enumerate(WAYS.items()):
        rows, millis = np.array(measured.rows[name][1:]), 1000 * measured.pushes(name)[1:]
        (record,) = measured.metrics[name]["migrations"]
        length = (record["ended_at"] - record["began_at"]) / CHAIN.batch
        ordinary = float(np.median(millis[:BEFORE]))
        seen[name] = {
            "silent pushes": int((rows[BEFORE:] < 0.05 * usual).sum()),
            "least / usual": float(rows[BEFORE:].min() / usual),
            "greatest / usual": float(rows[BEFORE:].max() / usual),
            "slowest push / ordinary": float(millis[BEFORE:].max() / ordinary),
            "pushes until it is over": length,
        }
        upper, lower = (axes[2 * (place // PER_ROW) + row, place % PER_ROW] for row in (0, 1))
        for panel, values, what in ((upper, rows, "results per push"), (lower, millis, "ms per push")):
            panel.bar(x, values, width=1, color=way.colour)
            panel.axvspan(-0.5, max(length, 1) - 0.5, color="black", alpha=0.1)
            describe(panel, way.label if panel is upper else "", "pushes since the change", what, legend=False)
        upper.set_yscale("symlog", linthresh=2 * usual)
        upper.set_ylim(0, 100 * usual)
        lower.set_ylim(0, 1.05 * slowest)
    steady = ["jisc", "moving-state", "coalesce", "reference-point", "positive-negative", "shortened"]
    figures = {name: ", ".join(f"{k} {v:.2f}" for k, v in each.items()) for name, each in seen.items()}
    figures |= {
        "silent pushes of all but parallel track": sum(seen[name]["silent pushes"] for name in steady),
        "greatest push of all but parallel track / usual": max(seen[name]["greatest / usual"] for name in steady),
        "as published: silent pushes": seen["as-published"]["silent pushes"],
        "as published: greatest push / usual": seen["as-published"]["greatest / usual"],
    }
    published, default = seen["as-published"], seen["parallel-track"]
    text = (
        f"parallel track as published is silent for {published['silent pushes']} pushes (W is "
        f"{CHAIN.window // CHAIN.batch}), then gives {published['greatest / usual']:.0f} times the usual; our default "
        f"{default['silent pushes']} and {default['greatest / usual']:.0f}; all others give every push its own "
        "results. Slowest push against an ordinary one (a rough figure: single pushes): moving state "
        f"{seen['moving-state']['slowest push / ordinary']:.1f}, JISC {seen['jisc']['slowest push / ordinary']:.1f}, "
        f"GenMig {seen['coalesce']['slowest push / ordinary']:.1f}."
    )
    holds = figures["silent pushes of all but parallel track"] == 0 and published["silent pushes"] > 0
    paper = PaperFigure(
        "output_during_migration",
        "output during migration",
        "moving state pauses, parallel track falls silent and bursts, GenMig and JISC are steady (all three papers)",
        f"{CHAIN.joins} joins, window {CHAIN.window:,} rows, pushes of {CHAIN.batch} rows per stream, worst case of "
        f"JISC; medians of {REPEATS} in step; grey: the migration",
    )
    series = {
        name: {"rows": measured.rows[name][1:], "seconds": measured.pushes(name)[1:], **seen[name]} for name in WAYS
    }
    bars = [
        Bar("silent pushes of all but parallel track", 0),
        Bar("greatest push of all but parallel track / usual", 1.2),
    ]
    return save_figure(paper, drawing, figures, holds, text, series, *bars)


if __name__ == "__main__":
    main()
