"""Tables II and III and figures 10 to 17 of Yang and Papadias 2008: what just-in-time processing saves.

Every two of N streams are joined by a column of their own, whose values are uniform in [1, d_max]; the plans are those
of table II, the parameters those of table III. The paper joins by nested loops one tuple per second. Here rates and
d_max are scaled up alike (by 100 unless said otherwise), which keeps the number of partners of a tuple. Three windows'
length of rows are pushed, 20 pushes per window. REF is the same engine without just-in-time processing.

Three things are compared: partial results (the output of all joins but the topmost), processor time and peak state
bytes (windows included). The paper reports the last two; the first is what carries over to other engines.

The same workloads are joined by multi-way joins (the paper's section V, which has no figures), by fixed routing and by
an eddy: there a partial result is a combined tuple that is no result, and what a visit looks at in an index is counted,
too.

The rule as published loses results of bushy plans. How many, and what it saves, is measured tuple by tuple
(``published_just_in_time``) on small workloads, beside what midstream saves on the same rows.

``python -m benchmarks.yang_2008 braces figure_14`` runs some parts.
"""

from __future__ import annotations

import ast
import gc
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import j4
from benchmarks.figures import PaperFigure, describe, new_figure, run_parts, save_figure
from benchmarks.measuring import Bar, save
from benchmarks.published_just_in_time import PublishedRun, Row
from midstream import ContinuousQuery, JustInTime, Stream
from midstream.algebra.plan import Plan, Routing

SCALE = 100
PUSHES_PER_WINDOW = 20
WINDOWS = 3
REPEATS = 2
PLANS = {
    "bushy": {
        4: "(a b) (c d)",
        5: "((a b) (c d)) e",
        6: "((a b) (c d)) (e f)",
        7: "((a b) (c d)) ((e f) g)",
        8: "((a b) (c d)) ((e f) (g h))",
    },
    "left-deep": {3: "(a b) c", 4: "((a b) c) d", 5: "(((a b) c) d) e", 6: "((((a b) c) d) e) f"},
}
"""Table II."""


@dataclass(frozen=True)
class Workload:
    """A point of table III."""

    shape: str
    streams: int
    minutes: float
    rate: float
    """Rows per second and stream, before scaling; so is ``d_max``."""
    d_max: int
    scale: int = SCALE
    sparse: int = 100
    """In left-deep plans, one stream has so many times as many values."""

    @property
    def names(self) -> str:
        return "abcdefgh"[: self.streams]

    @property
    def plan(self) -> str:
        return PLANS[self.shape][self.streams]

    def columns(self, name: str) -> list[str]:
        return ["".join(sorted((name, other))) for other in self.names if other != name]

    def query(self) -> ContinuousQuery:
        """The clique over milliseconds."""
        pairs = [(a, b) for place, a in enumerate(self.names) for b in self.names[place + 1 :]]
        selected = ", ".join(f"{name}.ts AS {name}" for name in self.names)
        windows = ", ".join(f"{name} [RANGE {round(self.minutes * 60_000)}] {name}" for name in self.names)
        conditions = " AND ".join(f"{a}.{a}{b} = {b}.{a}{b}" for a, b in pairs)
        streams = [
            Stream(name, pa.schema({"ts": pa.int64(), **dict.fromkeys(self.columns(name), pa.int32())}), "ts")
            for name in self.names
        ]
        return ContinuousQuery(f"SELECT {selected} FROM {windows} WHERE {conditions}", streams)

    def batches(self) -> list[dict[str, pa.Table]]:
        """Rows of all streams; in left-deep plans d, or c of three, is the one with more values."""
        random = np.random.default_rng(2008)
        step = round(self.minutes * 60_000) // PUSHES_PER_WINDOW
        rows = round(self.rate * self.scale * step / 1000)
        sparse = "" if self.shape == "bushy" else "c" if self.streams == 3 else "d"
        made = []
        for number in range(PUSHES_PER_WINDOW * WINDOWS):
            tables = {}
            for name in self.names:
                largest = self.d_max * self.scale * (self.sparse if name == sparse else 1)
                times = np.sort(random.integers(number * step, (number + 1) * step, rows))
                values = {c: random.integers(1, largest + 1, rows).astype(np.int32) for c in self.columns(name)}
                tables[name] = pa.table({"ts": times, **values})
            made.append(tables)
        return made


DEFAULTS = {
    "bushy": Workload("bushy", 6, 20, 1, 200),
    "left-deep": Workload("left-deep", 4, 10, 1, 50),
}


@dataclass
class Measured:
    results: int
    partial: int
    seconds: float
    peak: int
    compared: int
    """Tuples looked at in states."""


def measure(workload: Workload, batches: Sequence[dict[str, pa.Table]], just_in_time: bool | JustInTime) -> Measured:
    """One run over all batches."""
    return measured_run(workload.query(), workload.plan, batches, just_in_time)


def measured_run(
    query: ContinuousQuery,
    plan: str | Plan | None,
    batches: Sequence[dict[str, pa.Table]],
    just_in_time: bool | JustInTime,
) -> Measured:
    """One run over all batches; reading the metrics is not counted."""
    run = query.run_locally(plan, just_in_time=just_in_time)
    results, seconds, peak = 0, 0.0, 0
    gc.collect()
    for batch in batches:
        start = time.process_time()
        results += run.push(batch).num_rows
        seconds += time.process_time() - start
        peak = max(peak, run.metrics()["state_bytes"])
    joins = [o for o in run.metrics()["operators"] if o["kind"] in ("join", "multijoin")]
    partial = sum(join["rows_out"] for join in joins[:-1])
    # What visits an input, or is left out of a visit, is a new row or a partial result.
    partial += sum(join["probes"] + join["suspended"] - join["rows_in"] for join in joins if join["kind"] != "join")
    return Measured(results, partial, seconds, peak, sum(join["compared"] for join in joins))


def compare(workload: Workload) -> dict[str, Any]:
    """REF and just-in-time over a workload."""
    return compare_runs(workload.query(), workload.plan, workload.batches())


def compare_runs(
    query: ContinuousQuery, plan: str | Plan | None, batches: Sequence[dict[str, pa.Table]], repeats: int = REPEATS
) -> dict[str, Any]:
    """REF and just-in-time in turns; of each the least processor time."""
    best: dict[str, Measured] = {}
    for _ in range(repeats):
        for name, chosen in (("REF", False), ("JIT", True)):
            measured = measured_run(query, plan, batches, chosen)
            if name not in best or measured.seconds < best[name].seconds:
                best[name] = measured
    ref, jit = best["REF"], best["JIT"]
    assert ref.results == jit.results, (plan, ref, jit)
    return {
        "results": ref.results,
        **{
            f"{key} {name}": getattr(best[name], key)
            for name in best
            for key in ("partial", "compared", "seconds", "peak")
        },
        "partial results": jit.partial / max(1, ref.partial),
        "compared": jit.compared / max(1, ref.compared),
        "processor time": jit.seconds / ref.seconds,
        "state bytes": jit.peak / ref.peak,
    }


RATIOS = ("partial results", "processor time", "state bytes")


@dataclass(frozen=True)
class Swept:
    """A figure: a parameter of table III with its values."""

    number: int
    shape: str
    parameter: str
    label: str
    values: tuple[float, ...]

    def workload(self, value: float, scale: int) -> Workload:
        number = int(value) if self.parameter in ("streams", "d_max") else value
        return replace(DEFAULTS[self.shape], **{self.parameter: number, "scale": scale})


FIGURES = (
    Swept(10, "bushy", "minutes", "window (minutes)", (10, 15, 20, 25, 30)),
    Swept(11, "bushy", "rate", "rows per second (before scaling)", (0.4, 0.7, 1, 1.3, 1.6)),
    Swept(12, "bushy", "streams", "streams", (4, 5, 6, 7, 8)),
    Swept(13, "bushy", "d_max", "d_max (before scaling)", (100, 150, 200, 250, 300)),
    Swept(14, "left-deep", "minutes", "window (minutes)", (5, 7.5, 10, 12.5, 15)),
    Swept(15, "left-deep", "rate", "rows per second (before scaling)", (0.4, 0.7, 1, 1.3, 1.6)),
    Swept(16, "left-deep", "streams", "streams", (3, 4, 5, 6)),
    Swept(17, "left-deep", "d_max", "d_max (before scaling)", (30, 40, 50, 60, 70)),
)
BARS = {
    (12, 6): (("partial results", 0.45),),
    (12, 8): (("partial results", 0.35),),
    (14, 10): (("partial results", 0.1), ("processor time", 0.5), ("state bytes", 0.5)),
    (14, 15): (("processor time", 0.25),),
}


def sweep(figure: Swept, scale: int = SCALE) -> bool:
    """Measure, draw and keep one figure."""
    points = {value: compare(figure.workload(value, scale)) for value in figure.values}
    figures: dict[str, Any] = {"slowest": max(point["processor time"] for point in points.values())}
    bars = [Bar("slowest", 1.05)]
    for value, point in points.items():
        for ratio in RATIOS:
            figures[f"{ratio} at {value:g}"] = point[ratio]
        for ratio, limit in BARS.get((figure.number, value), ()):
            bars.append(Bar(f"{ratio} at {value:g}", limit))
    drawing, axes = new_figure(f"Yang and Papadias 2008, figure {figure.number} ({figure.shape} plan)", columns=3)
    panels = {"partial": "partial results", "seconds": "processor seconds", "peak": "peak state bytes"}
    for axis, (key, label) in zip(axes[0], panels.items(), strict=True):
        for name, style in (("REF", "o--"), ("JIT", "o-")):
            axis.plot(figure.values, [point[f"{key} {name}"] for point in points.values()], style, label=name)
        axis.set_yscale("log")
        describe(axis, label, figure.label, label)
    least, most = (limit(point["partial results"] for point in points.values()) for limit in (min, max))
    about = PaperFigure(
        f"yang_2008_figure_{figure.number}",
        f"Yang and Papadias 2008, figure {figure.number}",
        f"just-in-time processing against REF by {figure.label}, {figure.shape} plan",
        f"rates and d_max times {scale}, {WINDOWS} windows",
    )
    seen = (
        f"partial results {least:.3f} to {most:.3f} of REF's, processor time "
        f"{min(p['processor time'] for p in points.values()):.2f} to {figures['slowest']:.2f}, state bytes "
        f"{min(p['state bytes'] for p in points.values()):.2f} to {max(p['state bytes'] for p in points.values()):.2f}"
    )
    series = {"points": {f"{value:g}": point for value, point in points.items()}}
    return save_figure(about, drawing, figures, most < 1, seen, series, *bars)


def at_the_papers_rates() -> bool:
    """All points of the figures without scaling: a few rows per push, so what a push costs beside its rows counts."""
    figures: dict[str, Any] = {}
    for figure in FIGURES:
        points = {value: compare(figure.workload(value, 1)) for value in figure.values}
        for ratio in RATIOS:
            shown = ", ".join(f"{point[ratio]:.2f} ({value:g})" for value, point in points.items())
            figures[f"figure {figure.number}, {figure.shape}: {ratio}"] = shown
    return save("yang_2008_at_the_papers_rates", figures)


SMALL = {
    "bushy, 4 streams": Workload("bushy", 4, 1, 1.5, 15, 1),
    "bushy, 6 streams": Workload("bushy", 6, 1, 0.7, 4, 1),
    "left-deep, 4 streams": Workload("left-deep", 4, 1, 1, 9, 1, sparse=1),
}
"""Windows of a minute and so few values that there are results to lose: at the paper's rates there are hardly any."""
WITHOUT_TRIALS = JustInTime(detection="exact", least_share=0.0)


def published_rule() -> bool:
    """What the published rule saves and loses, and what midstream saves on the same rows."""
    figures: dict[str, Any] = {}
    for name, workload in SMALL.items():
        batches = workload.batches()
        reference, published = (_published(workload, batches, suspends) for suspends in (False, True))
        ours = [measure(workload, batches, chosen) for chosen in (False, WITHOUT_TRIALS)]
        assert ours[0].results == ours[1].results == len(reference.found), name
        figures |= {
            f"{name}: results": len(reference.found),
            f"{name}: lost by the published rule": 1 - len(published.found) / max(1, len(reference.found)),
            f"{name}: partial results, published rule": published.partial_results / reference.partial_results,
            f"{name}: partial results, midstream": ours[1].partial / ours[0].partial,
        }
    return save("yang_2008_published_rule", figures, Bar("left-deep, 4 streams: lost by the published rule", 0))


def _published(workload: Workload, batches: Sequence[dict[str, pa.Table]], suspends: bool) -> PublishedRun:
    """The rows, one after the other, through the reference."""
    rows = [
        Row(name, values.pop("ts"), values) for batch in batches for name in batch for values in batch[name].to_pylist()
    ]
    columns = {name: workload.columns(name) for name in workload.names}
    run = PublishedRun(_nested(workload.plan), columns, round(workload.minutes * 60_000), suspends)
    for row in sorted(rows, key=lambda row: row.time):
        run.push(row)
    return run


def _nested(plan: str) -> Any:
    """A join order as nested pairs: "(a b) c" is (("a", "b"), "c")."""
    return ast.literal_eval(f"({re.sub(r'[a-z]', lambda found: repr(found[0]), plan).replace(' ', ', ')})")


def where_it_cannot_help() -> bool:
    """J4, whose partial results are nearly all used: what it costs to find that out."""
    size = j4.SIZES["small"]
    figures = compare_runs(j4.query(size), None, j4.make_batches(size), repeats=5)
    return save("just_in_time_j4", figures, Bar("processor time", 1.05))


BRACES = {
    "left-deep": (3, 4, 5, 6),
    "bushy": (4, 6, 8),
}
"""Streams of the workloads that are joined by braces."""
ROUTINGS: tuple[Routing, ...] = ("fixed", "eddy")


def braces(scale: int = SCALE) -> bool:
    """Multi-way joins with and without just-in-time processing, and J4 by braces, where it cannot help."""
    figures: dict[str, Any] = {}
    size = j4.SIZES["small"]
    cases = {"J4": (j4.query(size), j4.make_batches(size))}
    for shape, counts in BRACES.items():
        for count in counts:
            workload = replace(DEFAULTS[shape], streams=count, scale=scale)
            cases[f"{shape}, {count} streams"] = (workload.query(), workload.batches())
    for name, (query, batches) in cases.items():
        order = " ".join(sorted(alias for leaf in query.plan().leaves() for alias in leaf.relations))
        for routing in ROUTINGS:
            point = compare_runs(query, query.plan(f"{{{order}}}", routing=routing), batches)
            for ratio in (*RATIOS, "compared"):
                figures[f"{name}, {routing}: {ratio}"] = point[ratio]
            figures[f"{name}, {routing}: seconds without"] = point["seconds REF"]
    return save("yang_2008_braces" if scale == SCALE else f"yang_2008_braces_scale_{scale}", figures)


PARTS: dict[str, Callable[[], bool]] = {
    "published_rule": published_rule,
    "at_the_papers_rates": at_the_papers_rates,
    "where_it_cannot_help": where_it_cannot_help,
    "braces": lambda: all([braces(), braces(scale=1)]),
    **{f"figure_{figure.number}": partial(sweep, figure) for figure in FIGURES},
}


def main(*names: str) -> bool:
    """Whether all bars are met, of all parts or of those named."""
    # Compiled code is loaded, and caches are filled, before anything is measured.
    for default in DEFAULTS.values():
        compare(replace(default, scale=2))
    return all([PARTS[name]() for name in names or PARTS])


if __name__ == "__main__":
    run_parts(main)
