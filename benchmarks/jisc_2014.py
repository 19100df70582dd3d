"""Figures 7 to 12 of Aly et al. 2014 (JISC): how long migrations take, and how soon results go on.

All streams are joined on one attribute by a left-deep plan. Keys are uniform: each stream runs through a permutation of
as many keys as its window holds rows, again and again, so that every state holds about as many tuples as a window, at
any depth (independent draws would make the deep states depend on a few lucky keys). Best case: the last two streams
change places, and only the state just below the root is incomplete. Worst case: the last stream becomes the second,
and all states of joins are.
"""

from __future__ import annotations

import gc
import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.figures import PaperFigure, describe, fitted_power, new_figure, save_figure
from benchmarks.measuring import Bar
from benchmarks.migrating import WAYS, Way, in_step, left_deep
from midstream import ContinuousQuery, Stream
from midstream.algebra.plan import Plan

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64()})
CASES = {"best": "only the state below the root is incomplete", "worst": "all states are incomplete"}


@dataclass(frozen=True)
class Chain:
    """A join of ``joins`` + 1 streams, ``window`` rows in each window, pushed ``batch`` rows per stream at a time."""

    joins: int
    window: int
    batch: int
    by_range: bool = False
    """Joined by |Δk| < 2 instead of equality."""

    @property
    def names(self) -> list[str]:
        return [f"s{number}" for number in range(self.joins + 1)]

    def query(self) -> ContinuousQuery:
        """All streams joined: a row in, a row out."""
        names = self.names
        windows = ", ".join(f"{name} [RANGE {self.window - 1}]" for name in names)
        if self.by_range:
            joined = " AND ".join(f"ABS(s0.k - {name}.k) < 2" for name in names[1:])
        else:
            joined = " AND ".join(f"s0.k = {name}.k" for name in names[1:])
        streams = [Stream(name, SCHEMA, event_time="ts") for name in names]
        return ContinuousQuery(f"SELECT s0.k, s0.ts, {names[-1]}.ts AS last FROM {windows} WHERE {joined}", streams)

    @property
    def plan(self) -> str:
        return left_deep(self.names)

    def new_plan(self, case: str) -> str:
        """The plan to change to, in the best or the worst case."""
        first, *middle, last = self.names
        return left_deep([first, *middle[:-1], last, *middle[-1:]] if case == "best" else [first, last, *middle])

    def batches(self, filling: int, count: int) -> list[dict[str, pa.Table]]:
        """One push that fills the windows (``filling`` rows per stream), then ``count`` ordinary ones."""
        random = np.random.default_rng(0)
        cuts = [0, *range(filling, filling + count * self.batch + 1, self.batch)]
        batches: list[dict[str, pa.Table]] = [{} for _ in cuts[1:]]
        times = np.arange(cuts[-1])
        for name in self.names:
            # Neighbouring keys are 3 apart, so that |Δk| < 2 finds one partner, as equality does.
            keys = 3 * random.permutation(self.window)[times % self.window]
            for batch, start, end in zip(batches, cuts[:-1], cuts[1:], strict=True):
                batch[name] = pa.table({"ts": times[start:end], "k": keys[start:end]})
        return batches


def medians(samples: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure over repetitions."""
    return {name: statistics.median(sample[name] for sample in samples) for name in samples[0]}


# Figures 7 and 8: the migration stage.

JOINS = [4, 8, 12, 16, 20]
STAGE_WAYS = ["jisc", "moving-state", "parallel-track", "as-published"]
STAGE_REPEATS = 3
NOISE = "noise: jisc twice differs by"


def stage_seconds(chain: Chain, case: str, repeats: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Seconds from the transition until parallel track's old plan is gone: W after it, or, as published, 2 W.

    All process the same rows, in step. JISC runs twice: how far both differ is what the machine's noise amounts to.
    """
    query, per_window = chain.query(), chain.window // chain.batch
    batches = chain.batches(chain.window, 2 + 2 * per_window)
    ways = {name: WAYS[name] for name in STAGE_WAYS} | {"jisc again": WAYS["jisc"]}
    measured = in_step(query, chain.plan, batches, {3: query.plan(chain.new_plan(case))}, ways, repeats)
    counters: dict[str, Any] = {}
    point: dict[str, float] = {}
    for name in ways:
        pushes = measured.pushes(name)[3:]
        point |= {f"{name} {count}W": float(pushes[: count * per_window].sum()) for count in (1, 2)}
        (record,) = measured.metrics[name]["migrations"]
        counters[name] = {
            "event time": record["ended_at"] - record["began_at"],
            "results": sum(measured.rows[name]),
            **{k: record[k] for k in ("states_shared", "states_incomplete", "rows_recomputed", "rows_buffered")},
        }
    assert len({counter["results"] for counter in counters.values()}) == 1, counters
    point["over as published"] = point["as-published 2W"] / point["jisc 2W"]
    point["over default"] = point["parallel-track 1W"] / point["jisc 1W"]
    point["over moving state"] = point["moving-state 2W"] / point["jisc 2W"]
    point["noise"] = max(abs(point[f"jisc again {count}W"] / point[f"jisc {count}W"] - 1) for count in (1, 2))
    return point, counters


def stage(number: int, case: str, joins: list[int], window: int, repeats: int) -> bool:
    """Figure 7 (best case) or 8 (worst case)."""
    points, counters = {}, {}
    stage_seconds(Chain(joins[0], window // 10, window // 100), case, 1)
    for count in joins:
        points[count], counters[count] = stage_seconds(Chain(count, window, window // 10), case, repeats)
    series = {name: [points[count][name] for count in joins] for name in points[joins[0]]}
    drawing, axes = new_figure(f"JISC 2014, figure {number}: the migration stage, {case} case ({CASES[case]})", 1, 2)
    for name, windows, dashes in (
        ("as-published", 2, "-"),
        ("jisc", 2, "-"),
        ("moving-state", 2, "-"),
        ("parallel-track", 1, "--"),
        ("jisc", 1, "--"),
    ):
        label = f"{WAYS[name].label}: {'2 W' if windows == 2 else 'W'} of stream"
        axes[0, 0].plot(joins, series[f"{name} {windows}W"], dashes, marker="o", color=WAYS[name].colour, label=label)
    describe(axes[0, 0], "(a) running time", "number of joins", "execution time (s)")
    for name, key in (
        ("as-published", "over as published"),
        ("parallel-track", "over default"),
        ("moving-state", "over moving state"),
    ):
        axes[0, 1].plot(joins, series[key], marker="o", color=WAYS[name].colour, label=f"over {WAYS[name].label}")
    axes[0, 1].axhline(1, color="black", linewidth=0.8)
    describe(axes[0, 1], "(b) speedup of JISC", "number of joins", "time / JISC's time")
    published, default = series["over as published"], series["over default"]
    last = f"{joins[-1]} joins"
    figures = {
        f"speedup over as published, {last}": published[-1],
        f"speedup over default, {last}": default[-1],
        "least speedup over as published": min(published),
        "least speedup over default": min(default),
        "speedup over as published, most joins / fewest": published[-1] / published[0],
        "speedup over moving state": ", ".join(f"{value:.2f}" for value in series["over moving state"]),
        NOISE: max(series["noise"]),
    }
    bars = [
        Bar("least speedup over as published", 1.0, True, NOISE),
        Bar("least speedup over default", 1.0, True, NOISE),
    ]
    if case == "best":
        bars += [
            Bar(f"speedup over as published, {last}", 2.0, True, NOISE),
            Bar("speedup over as published, most joins / fewest", 1.0, True, NOISE),
        ]
    seen = (
        f"JISC {published[0]:.2f} to {published[-1]:.2f} times as fast as parallel track as published ({joins[0]} to "
        f"{joins[-1]} joins), {default[0]:.2f} to {default[-1]:.2f} times as fast as our default, which ends after W; "
        f"{series['over moving state'][-1]:.2f} times as fast as moving state; JISC twice differs by up to "
        f"{100 * max(series['noise']):.0f} %."
    )
    holds = min(published) > 1 + max(series["noise"]) and published[-1] > published[0]
    paper = PaperFigure(
        f"jisc_2014_figure_{number}",
        f"JISC 2014, fig. {number}",
        f"time during the migration stage, {case} case: JISC under parallel track, more so with more joins (best case: "
        "up to an order of magnitude)",
        f"{joins[0]} to {joins[-1]} joins, window {window:,} rows per stream, pushes of {window // 10:,} rows per "
        f"stream; all in step, each push by the median of {repeats} repetitions; CACQ not yet",
    )
    return save_figure(paper, drawing, figures, holds, seen, {"joins": joins, **series, "counters": counters}, *bars)


# Figure 9: normal operation.


def normal_operation(joins: int = 20, window: int = 10_000, pairs: int = 120) -> bool:
    """Figure 9: a plan reached by JISC, all states complete, against the same plan from the start, push by push."""
    chain = Chain(joins, window, window // 40)
    query = chain.query()
    plan = chain.new_plan("worst")
    settling = chain.window // chain.batch + 5
    batches = chain.batches(chain.window, settling + pairs)
    runs = {name: query.run_locally(plan) for name in ("plain", "plain again")}
    runs["reached"] = query.run_locally(chain.plan)
    for run in runs.values():
        run.push(batches[0])
    runs["reached"].migrate(plan, "jisc")
    for batch in batches[1 : settling + 1]:
        for run in runs.values():
            run.push(batch)
    assert not runs["reached"].migrating
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    gc.collect()
    gc.disable()
    for number, batch in enumerate(batches[settling + 1 :]):
        order = list(runs)
        for name in order[number % 3 :] + order[: number % 3]:
            start = time.perf_counter()
            runs[name].push(batch)
            seconds[name].append(time.perf_counter() - start)
    gc.enable()
    ratios = {
        name: [value / plain for value, plain in zip(seconds[name], seconds["plain"], strict=True)]
        for name in ("reached", "plain again")
    }
    cost = {name: 100 * (statistics.median(values) - 1) for name, values in ratios.items()}
    totals = {name: statistics.median(values) for name, values in seconds.items()}
    drawing, axes = new_figure(f"JISC 2014, figure 9: normal operation, {joins} joins", 1, 2)
    labels = ["plain", "plain again\n(noise)", "reached by JISC,\nall complete"]
    millis = [1000 * totals[name] for name in ("plain", "plain again", "reached")]
    axes[0, 0].bar(labels, millis, color=["#888888", "#BBBBBB", WAYS["jisc"].colour])
    describe(axes[0, 0], "(a) median time of a push", "", "ms", legend=False)
    for name, colour, label in (
        ("plain again", "#888888", "plain again / plain"),
        ("reached", WAYS["jisc"].colour, "reached by JISC / plain"),
    ):
        axes[0, 1].plot(sorted(ratios[name]), np.linspace(0, 1, pairs), color=colour, label=label)
    axes[0, 1].axvline(1.02, color="black", linewidth=0.8, linestyle=":", label="2 % more")
    axes[0, 1].set_xlim(0.8, 1.2)
    describe(axes[0, 1], "(b) the same push in both: ratios", "ratio of times", "share of pushes")
    draws = np.random.default_rng(0).choice(ratios["reached"], (2000, pairs))
    low, high = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
    figures = {
        "time ratio": 1 + cost["reached"] / 100,
        "time ratio, 95 % interval (bootstrap)": f"{low:.3f} to {high:.3f}",
        "noise": max(abs(cost["plain again"]) / 100, float(high - low) / 2),
        "cost in percent": cost["reached"],
        "the same plan twice, percent": cost["plain again"],
        "ms per push, plain": 1000 * totals["plain"],
        "ms per push, reached by jisc": 1000 * totals["reached"],
    }
    seen = (
        f"{cost['reached']:+.1f} % (95 %: {100 * low - 100:+.1f} to {100 * high - 100:+.1f}; the same plan twice: "
        f"{cost['plain again']:+.1f} %). Compared: a plan reached by JISC once its states are complete, and the same "
        "plan from the start; one engine serves both, its hooks are one test for None per join side and push."
    )
    holds = cost["reached"] < 2
    paper = PaperFigure(
        "jisc_2014_figure_9",
        "JISC 2014, fig. 9",
        "normal operation: no overhead over plain symmetric hash joins",
        f"{joins} joins, window {window:,}, {pairs} pushes of {chain.batch} rows per stream, each given to all in "
        "turns; median of paired ratios; CACQ not yet",
    )
    return save_figure(
        paper, drawing, figures, holds, seen, {"seconds": seconds}, Bar("time ratio", 1.02, noise="noise")
    )


# Figure 10: time to the first result.

LATENCY_WAYS = ["jisc", "moving-state"]


def latency(chain: Chain, case: str, repeats: int) -> dict[str, float]:
    """Seconds from the transition to the first result and to the end of the push, and of a push just before."""
    query = chain.query()
    plan = query.plan(chain.new_plan(case))
    batches = chain.batches(chain.window, 8)
    samples = []
    for repeat in range(repeats + 1):
        sample = {}
        for name in LATENCY_WAYS:
            run = query.run_locally(chain.plan)
            run.push(batches[0])
            gc.collect()
            gc.disable()
            ordinary = [_first_and_whole(run, batch, None, None) for batch in batches[1:-1]]
            first, whole = _first_and_whole(run, batches[-1], plan, WAYS[name])
            gc.enable()
            usual = statistics.median(seconds for _, seconds in ordinary)
            sample |= {f"{name} first": first, f"{name} whole": whole, f"{name} ordinary": usual}
            sample |= {f"{name} first/ordinary": first / usual, f"{name} whole/ordinary": whole / usual}
        if repeat:
            samples.append(sample)
    return medians(samples)


def _first_and_whole(run: Any, batch: dict[str, pa.Table], plan: Plan | None, way: Way | None) -> tuple[float, float]:
    start = time.perf_counter()
    if plan is not None and way is not None:
        run.migrate(plan, way.strategy, **way.options)
    first = 0.0
    for results in run.push_in_chunks(batch):
        if not first and results.num_rows:
            first = time.perf_counter() - start
    assert first
    return first, time.perf_counter() - start


def first_output(sizes: dict[str, tuple[int, list[int]]], batch: int, repeats: int) -> bool:
    """Figure 10, for joins by equality and by range, in the worst and the best case."""
    drawing, axes = new_figure("JISC 2014, figure 10: from the transition to the first result", 2, 2)
    figures: dict[str, Any] = {}
    series: dict[str, Any] = {}
    bars, growths, worst_of = [], [], {}
    for row, (kind, (joins, windows)) in enumerate(sizes.items()):
        for column, case in enumerate(("worst", "best")):
            chains = [Chain(joins, window, batch, by_range=kind == "range") for window in windows]
            points = [latency(chain, case, repeats) for chain in chains]
            lines = {name: [point[name] for point in points] for name in points[0]}
            series[f"{kind} {case}"] = {"windows": windows, **lines}
            panel = axes[row, column]
            for name in LATENCY_WAYS:
                style = {"color": WAYS[name].colour, "marker": "o"}
                panel.loglog(windows, 1000 * np.array(lines[f"{name} first"]), label=WAYS[name].label, **style)
            ordinary = 1000 * np.array(lines["jisc ordinary"])
            panel.loglog(windows, ordinary, ":", color="black", label="an ordinary push just before")
            title = f"{'equality' if kind == 'hash' else '|Δk| < 2'}, {joins} joins, {case} case"
            describe(panel, title, "window (rows per stream)", "time to first result (ms)")
            ratio = max(lines["jisc first/ordinary"])
            growth = lines["moving-state first"][-1] / lines["moving-state first"][0]
            figures[f"{kind} {case}: jisc first result / ordinary, greatest"] = ratio
            figures[f"{kind} {case}: jisc whole push / ordinary, greatest"] = max(lines["jisc whole/ordinary"])
            figures[f"{kind} {case}: moving state, largest window / smallest"] = growth
            figures[f"{kind} {case}: jisc, largest window / smallest"] = (
                lines["jisc first"][-1] / lines["jisc first"][0]
            )
            figures[f"{kind} {case}: moving state / jisc at the largest"] = (
                lines["moving-state first"][-1] / lines["jisc first"][-1]
            )
            bars.append(Bar(f"{kind} {case}: jisc first result / ordinary, greatest", 1.5))
            bars.append(Bar(f"{kind} {case}: moving state, largest window / smallest", 2.0, at_least=True))
            growths.append(fitted_power(windows, lines["moving-state first"]))
            worst_of[f"{kind}, {case}"] = ratio
    holds = all(ratio <= 1.5 for ratio in worst_of.values())
    seen = (
        "JISC's first result takes at most "
        + ", ".join(f"{ratio:.1f} ({what})" for what, ratio in worst_of.items())
        + f" times an ordinary push; moving state grows with the window to the power {min(growths):.1f} to "
        f"{max(growths):.1f}, far from the paper's hours: our states are computed by merging, not by nested loops."
    )
    paper = PaperFigure(
        "jisc_2014_figure_10",
        "JISC 2014, fig. 10",
        "time from the transition to the first output: JISC flat, moving state growing with the window (nested loops: "
        "76 minutes at 100,000)",
        "; ".join(f"{kind}: {joins} joins, windows {w[0]:,} to {w[-1]:,}" for kind, (joins, w) in sizes.items())
        + f"; pushes of {batch:,} rows per stream; range joins instead of nested loops; medians of {repeats}",
    )
    return save_figure(paper, drawing, figures, holds, seen, series, *bars)


# Figures 11 and 12: frequent transitions.

FREQUENCY_WAYS = ["jisc", "moving-state", "parallel-track", "as-published"]


def frequencies(number: int, case: str, chain: Chain, windows: int, everys: list[int], repeats: int) -> bool:
    """Figure 11 (worst case) or 12 (best case): a transition there or back every so many windows."""
    per_window = chain.window // chain.batch
    batches = chain.batches(chain.window, windows * per_window)
    query = chain.query()
    plans = [query.plan(chain.new_plan(case)), query.plan(chain.plan)]
    ways: dict[str, Way | None] = {name: WAYS[name] for name in FREQUENCY_WAYS}
    ways |= {"jisc again": WAYS["jisc"], "never": None}
    points: dict[int, dict[str, float]] = {}
    for every in everys:
        changes = {place: plans[turn % 2] for turn, place in enumerate(range(1, len(batches), every * per_window))}
        measured = in_step(query, chain.plan, batches, changes, ways, repeats)
        # Parallel track may still hold results back when the stream ends.
        assert len({sum(measured.rows[name]) + measured.metrics[name]["buffered"] for name in ways}) == 1
        seconds = {name: float(measured.pushes(name)[1:].sum()) for name in ways}
        points[every] = seconds | {f"{name}/jisc": value / seconds["jisc"] for name, value in seconds.items()}
    series = {name: [points[every][name] for every in everys] for name in points[everys[0]]}
    title = f"JISC 2014, figure {number}: transitions at various frequencies, {case} case, {chain.joins} joins"
    drawing, axes = new_figure(title, 1, 1, width=7)
    for name in FREQUENCY_WAYS:
        way = WAYS[name]
        axes[0, 0].plot(everys, series[name], way.dashes, marker="o", color=way.colour, label=way.label)
    axes[0, 0].plot(everys, series["never"], ":", color="black", label="no transition")
    describe(axes[0, 0], CASES[case], "windows of stream between two transitions", "total time (s)")
    published, default = series["as-published/jisc"], series["parallel-track/jisc"]
    figures = {
        "parallel track as published / jisc, least": min(published),
        "parallel track as published / jisc, greatest": max(published),
        "parallel track / jisc, least": min(default),
        "moving state / jisc, least": min(series["moving-state/jisc"]),
        "jisc at the highest frequency / without transitions": series["jisc"][0] / series["never"][0],
        NOISE: max(abs(ratio - 1) for ratio in series["jisc again/jisc"]),
    }
    seen = (
        f"parallel track as published takes {min(published):.2f} to {max(published):.2f} times JISC's time, our "
        f"default {min(default):.2f} to {max(default):.2f} times; with a transition every {everys[0]} "
        f"window{'s' if everys[0] > 1 else ''} JISC takes "
        f"{figures['jisc at the highest frequency / without transitions']:.2f} times a run without; JISC twice "
        f"differs by up to {100 * figures[NOISE]:.0f} %."
    )
    holds = min(published) > 1 + figures[NOISE]
    paper = PaperFigure(
        f"jisc_2014_figure_{number}",
        f"JISC 2014, fig. {number}",
        f"total time at various transition frequencies, {case} case: JISC under parallel track at any frequency",
        f"{chain.joins} joins (20 in the paper), window {chain.window:,} (10,000), {windows} windows of stream, pushes "
        f"of {chain.batch} rows per stream; all in step, each push by the median of {repeats}; CACQ not yet",
    )
    bars = [
        Bar("parallel track as published / jisc, least", 1.0, True, NOISE),
        Bar("parallel track / jisc, least", 1.0, True, NOISE),
    ]
    return save_figure(paper, drawing, figures, holds, seen, {"every": everys, **series}, *bars)


def main() -> bool:
    """All figures."""
    return all(
        [
            stage(7, "best", JOINS, 10_000, STAGE_REPEATS),
            stage(8, "worst", JOINS, 10_000, STAGE_REPEATS),
            normal_operation(),
            first_output(
                {"hash": (10, [3_000, 10_000, 30_000, 100_000]), "range": (4, [3_000, 10_000, 30_000])},
                batch=1_000,
                repeats=5,
            ),
            frequencies(11, "worst", Chain(10, 2_000, 500), 12, [1, 2, 3, 6], 3),
            frequencies(12, "best", Chain(10, 2_000, 500), 12, [1, 2, 3, 6], 3),
        ]
    )


if __name__ == "__main__":
    main()
