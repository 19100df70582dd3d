"""Figures 4 to 6 of Krämer et al. 2006 (GenMig), and how long migrations last.

Section 5's settings: four streams of 5000 rows, 100 a second, uniform values 0..500 (A, B) and 0..1000 (C, D), joined
by value within 10 s; ((A B) C) D becomes A (B (C D)) after 20 s. A push is one second of stream.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.figures import PaperFigure, describe, new_figure, save_figure
from benchmarks.measuring import Bar
from benchmarks.migrating import WAYS, Recorded, in_step, run_and_record
from midstream import ContinuousQuery, Stream

SECONDS, PER_SECOND, WINDOW_SECONDS, CHANGE_AFTER = 50, 100, 10, 20
STEP_MS = 1000 // PER_SECOND
GREATEST = {"a": 500, "b": 500, "c": 1000, "d": 1000}
OLD, NEW = "((a b) c) d", "a (b (c d))"
SETTINGS = "as in section 5 (4 streams of 5000 rows, 100 a second, window 10 s, change after 20 s); a push per second"
SCHEMA = pa.schema({"ts": pa.int64(), "v": pa.int64()})


def query(*, expensive: bool = False, short: bool = False) -> ContinuousQuery:
    """Joined by equality, or by a condition as true that no index serves: all pairs are compared, as in nested loops.

    A window holds 1000 rows exactly; ``short`` windows a fifth, all but that of a.
    """

    def window(name: str) -> int:
        return (WINDOW_SECONDS * 1000 // 5 if short and name != "a" else WINDOW_SECONDS * 1000) - STEP_MS

    windows = ", ".join(f"{name} [RANGE {window(name)}]" for name in GREATEST)
    condition = "({x}.v - {y}.v) * ({x}.v - {y}.v) + ABS({x}.v - {y}.v) < 1" if expensive else "{x}.v = {y}.v"
    joined = " AND ".join(condition.format(x=x, y=y) for x, y in ("ab", "bc", "cd"))
    columns = ", ".join(f"{name}.v AS {name}" for name in GREATEST)
    streams = [Stream(name, SCHEMA, event_time="ts") for name in GREATEST]
    return ContinuousQuery(f"SELECT {columns} FROM {windows} WHERE {joined}", streams)


def make_batches() -> list[dict[str, pa.Table]]:
    """A batch per second; times in milliseconds."""
    random = np.random.default_rng(0)
    batches: list[dict[str, pa.Table]] = []
    for second in range(SECONDS):
        times = 1000 * second + STEP_MS * np.arange(PER_SECOND)
        drawn = {name: random.integers(0, last, PER_SECOND, endpoint=True) for name, last in GREATEST.items()}
        batches.append({name: pa.table({"ts": times, "v": values}) for name, values in drawn.items()})
    return batches


def recorded(name: str) -> tuple[Recorded, Recorded]:
    """The run with this way to change, its state watched."""
    its_query, batches = query(), make_batches()
    change = (its_query.plan(NEW), WAYS[name])
    return run_and_record(its_query, OLD, batches[:CHANGE_AFTER], batches[CHANGE_AFTER:], change=change, watch=True)


def watched(ways: list[str]) -> dict[str, dict[str, Any]]:
    """What each push gives and leaves, by way; the results must be as many."""
    series: dict[str, dict[str, Any]] = {}
    for name in ways:
        before, after = recorded(name)
        held = np.array([*before.buffered, *after.buffered])
        state_bytes = np.array([*before.state_bytes, *after.state_bytes])
        series[name] = {
            "rows": [*before.rows, *after.rows],
            "state_rows": [*before.state_rows, *after.state_rows],
            "state_bytes": state_bytes.tolist(),
            "buffered": held.tolist(),
            # A buffered result is four row numbers and two times.
            "memory": (state_bytes + held * 8 * (len(GREATEST) + 2)).tolist(),
            "ms": after.event_time,
            "rows_buffered": after.migration["rows_buffered"],
        }
    assert len({sum(each["rows"]) for each in series.values()}) == 1
    return series


def output_rate(series: dict[str, dict[str, Any]]) -> bool:
    """Figure 4."""
    ways = ["as-published", "parallel-track", "coalesce"]
    drawing, axes = new_figure("GenMig 2006, figure 4: output rate around a migration", 1, 3, width=4.6)
    during: dict[str, dict[str, float]] = {}
    for panel, name in zip(axes[0], ways, strict=True):
        rows, length = series[name]["rows"], series[name]["ms"] // 1000
        panel.bar(np.arange(SECONDS) + 0.5, rows, width=1, color=WAYS[name].colour)
        panel.axvspan(CHANGE_AFTER, CHANGE_AFTER + length, color="black", alpha=0.08, label="migration")
        panel.set_yscale("symlog", linthresh=1000)
        panel.set_ylim(0, 20_000)
        describe(panel, WAYS[name].label, "time (s)", "results per second (linear to 1000)", from_zero=False)
        usual = float(np.median(rows[WINDOW_SECONDS:CHANGE_AFTER]))
        stage = rows[CHANGE_AFTER : CHANGE_AFTER + length + 1]
        during[name] = {
            "silent seconds": sum(count < 0.05 * usual for count in stage),
            "least": min(stage) / usual,
            "burst": max(stage) / usual,
            "length": length,
        }
    published, default, genmig = (during[name] for name in ways)
    figures = {
        "parallel track as published: silent seconds": published["silent seconds"],
        "parallel track as published: greatest second / usual": published["burst"],
        "parallel track: silent seconds": default["silent seconds"],
        "parallel track: greatest second / usual": default["burst"],
        "gen-mig: silent seconds": genmig["silent seconds"],
        "gen-mig: least second / usual": genmig["least"],
        "gen-mig: greatest second / usual": genmig["burst"],
    }
    holds = genmig["least"] > 0.5 and genmig["burst"] < 2 and published["silent seconds"] >= 8
    seen = (
        f"parallel track as published fades out within W, is silent for {published['silent seconds']} s and releases "
        f"{published['burst']:.0f} times a usual second at the end; our default, which ends after W, is silent for "
        f"{default['silent seconds']} s and releases {default['burst']:.0f} times; GenMig stays between "
        f"{genmig['least']:.1f} and {genmig['burst']:.1f} times the usual rate."
    )
    paper = PaperFigure(
        "kraemer_2006_figure_4",
        "GenMig 2006, fig. 4",
        "output rate: parallel track falls silent for w, then a burst at 2 w; GenMig steady",
        SETTINGS,
    )
    bars = [
        Bar("parallel track as published: silent seconds", 8, at_least=True),
        Bar("gen-mig: silent seconds", 0),
        Bar("gen-mig: greatest second / usual", 2.0),
    ]
    return save_figure(paper, drawing, figures, holds, seen, series, *bars)


def memory(series: dict[str, dict[str, Any]]) -> bool:
    """Figure 5."""
    ways = ["as-published", "parallel-track", "coalesce", "reference-point"]
    drawing, axes = new_figure("GenMig 2006, figure 5: memory around a migration", 1, 2)
    seconds = np.arange(1, SECONDS + 1)
    for name in ways:
        style = {"color": WAYS[name].colour, "linestyle": WAYS[name].dashes, "label": WAYS[name].label}
        axes[0, 0].plot(seconds, np.array(series[name]["memory"]) / 1024, **style)
        rows = np.array(series[name]["state_rows"]) + series[name]["buffered"]
        axes[0, 1].plot(seconds, rows, **style)
    for panel in axes[0]:
        panel.axvline(CHANGE_AFTER, color="black", linewidth=0.8, linestyle=":")
    describe(axes[0, 0], "windows, join states and buffered results", "time (s)", "KiB")
    describe(axes[0, 1], "tuples in join states and buffered results", "time (s)", "rows")
    peaks = {name: max(series[name]["memory"][CHANGE_AFTER:]) for name in ways}
    means = {name: float(np.mean(series[name]["memory"][CHANGE_AFTER : CHANGE_AFTER + 20])) for name in ways}
    tuples = {
        name: int((np.array(series[name]["state_rows"]) + series[name]["buffered"])[CHANGE_AFTER:].max())
        for name in ways
    }
    figures = {
        "peak KiB": {name: round(peak / 1024) for name, peak in peaks.items()},
        "peak tuples": tuples,
        "gen-mig / parallel track as published, peak": peaks["coalesce"] / peaks["as-published"],
        "gen-mig / parallel track, peak": peaks["coalesce"] / peaks["parallel-track"],
        "gen-mig / parallel track as published, mean of 2 w": means["coalesce"] / means["as-published"],
        "gen-mig / parallel track as published, peak tuples": tuples["coalesce"] / tuples["as-published"],
    }
    holds = figures["gen-mig / parallel track, peak"] < 1
    seen = (
        f"GenMig's peak is {figures['gen-mig / parallel track as published, peak']:.2f} of parallel track's as "
        f"published and {figures['gen-mig / parallel track, peak']:.2f} of our default's; mean over 2 w "
        f"{figures['gen-mig / parallel track as published, mean of 2 w']:.2f} of it as published."
    )
    paper = PaperFigure(
        "kraemer_2006_figure_5",
        "GenMig 2006, fig. 5",
        "memory during migration: parallel track always above GenMig",
        SETTINGS + "; buffered results count as 48 bytes each",
    )
    bars = [
        Bar("gen-mig / parallel track as published, peak", 1.0),
        Bar("gen-mig / parallel track, peak", 1.0),
    ]
    return save_figure(paper, drawing, figures, holds, seen, {name: series[name] for name in ways}, *bars)


def length_with_a_quiet_stream(name: str) -> float:
    """Seconds that the migration lasts if stream a fell silent 6 s before; the others' windows are 2 s long."""
    its_query, batches = query(short=True), make_batches()
    run = its_query.run_locally(OLD)
    for second, batch in enumerate(batches[:40]):
        if second == CHANGE_AFTER:
            run.migrate(its_query.plan(NEW), WAYS[name].strategy, **WAYS[name].options)
        given = {key: table for key, table in batch.items() if key != "a" or second < CHANGE_AFTER - 6}
        run.push(given, watermark=1000 * (second + 1) - STEP_MS)
    (record,) = run.metrics()["migrations"]
    return float(record["ended_at"] - record["began_at"]) / 1000


def durations(series: dict[str, dict[str, Any]]) -> bool:
    """How long each migration lasts in event time."""
    quiet = {name: length_with_a_quiet_stream(name) for name in ("coalesce", "shortened")}
    lengths = {name: each["ms"] / 1000 for name, each in series.items()}
    drawing, axes = new_figure("GenMig 2006, section 5: length of the migration stage", 1, 1, width=7)
    names = list(lengths)
    axes[0, 0].barh(
        [WAYS[name].label for name in names], [lengths[n] for n in names], color=[WAYS[n].colour for n in names]
    )
    for factor, label in ((1, "w"), (2, "2 w")):
        axes[0, 0].axvline(factor * WINDOW_SECONDS, color="black", linewidth=0.8, linestyle=":")
        axes[0, 0].text(factor * WINDOW_SECONDS + 0.1, len(names) - 0.65, label)
    describe(axes[0, 0], "", "event time from the change to its end (s)", "", legend=False, from_zero=False)
    figures = {
        "as published / w": lengths["as-published"] / WINDOW_SECONDS,
        "gen-mig / w": lengths["coalesce"] / WINDOW_SECONDS,
        "seconds": lengths,
        "shortened / plain with a quiet stream": quiet["shortened"] / quiet["coalesce"],
    }
    holds = 1.9 < figures["as published / w"] / figures["gen-mig / w"] < 2.1
    seen = (
        f"GenMig {figures['gen-mig / w']:.1f} w, parallel track as published {figures['as published / w']:.1f} w; our "
        f"parallel track, which purges by watermark, {lengths['parallel-track'] / WINDOW_SECONDS:.1f} w; GenMig "
        f"shortened {lengths['shortened'] / WINDOW_SECONDS:.1f} w, as steady streams leave nothing to be gained; if "
        f"the stream with the long window fell silent 6 s ago, {quiet['shortened']:.0f} s instead of "
        f"{quiet['coalesce']:.0f} s."
    )
    paper = PaperFigure(
        "kraemer_2006_durations",
        "GenMig 2006, § 5",
        "the migration lasts w with GenMig, 2 w with parallel track",
        SETTINGS + "; lengths are whole pushes",
    )
    bars = [Bar("gen-mig / w", 1.0), Bar("as published / w", 2.0, at_least=True)]
    return save_figure(paper, drawing, figures, holds, seen, {"seconds": lengths, "with a quiet stream": quiet}, *bars)


def total_time(repeats: int) -> bool:
    """Figure 6. Coalesce runs twice: how far both differ is what the machine's noise amounts to."""
    names = ["as-published", "parallel-track", "coalesce", "reference-point"]
    ways = {name: WAYS[name] for name in names} | {"coalesce again": WAYS["coalesce"]}
    its_query, batches = query(expensive=True), make_batches()
    to = its_query.plan(NEW)
    in_step(its_query, OLD, batches[:12], {8: to}, ways, 1)
    measured = in_step(its_query, OLD, batches, {CHANGE_AFTER: to}, ways, repeats)
    assert len({sum(rows) for rows in measured.rows.values()}) == 1
    pushes = {name: measured.pushes(name) for name in ways}
    drawing, axes = new_figure("GenMig 2006, figure 6: results over elapsed time at full speed", 1, 2, width=5.6)
    for name in names:
        style = {"color": WAYS[name].colour, "linestyle": WAYS[name].dashes, "label": WAYS[name].label}
        axes[0, 0].plot(np.cumsum(pushes[name]), np.cumsum(measured.rows[name]), **style)
        axes[0, 1].plot(np.arange(1, SECONDS + 1), 1000 * pushes[name], **style)
    axes[0, 1].axvline(CHANGE_AFTER, color="black", linewidth=0.8, linestyle=":")
    describe(axes[0, 0], "results so far", "elapsed time (s)", "results")
    describe(axes[0, 1], "time of each push", "stream time (s)", "ms per second of stream")
    totals = {name: float(each.sum()) for name, each in pushes.items()}
    since = {name: float(each[CHANGE_AFTER:].sum()) for name, each in pushes.items()}
    before = {name: float(each[:CHANGE_AFTER].sum()) for name, each in pushes.items()}
    # Equal work, measured as the ratios are: coalesce twice, and all ways before the change.
    noise = max(
        abs(totals["coalesce again"] / totals["coalesce"] - 1),
        abs(since["coalesce again"] / since["coalesce"] - 1),
        max(before.values()) / min(before.values()) - 1,
    )
    compared = {name: sum(operator["compared"] for operator in measured.metrics[name]["operators"]) for name in names}
    figures = {
        "seconds": {name: round(total, 4) for name, total in totals.items()},
        "seconds since the change": {name: round(each, 4) for name, each in since.items()},
        "gen-mig coalesce / parallel track as published": totals["coalesce"] / totals["as-published"],
        "gen-mig coalesce / parallel track": totals["coalesce"] / totals["parallel-track"],
        "gen-mig reference point / coalesce": totals["reference-point"] / totals["coalesce"],
        "gen-mig reference point / coalesce, since the change": since["reference-point"] / since["coalesce"],
        "noise: equal work differs by": noise,
    }
    first, second = totals["coalesce"] / totals["as-published"], totals["reference-point"] / totals["coalesce"]
    told_apart = "" if abs(second - 1) > noise else ", which the noise does not allow to tell apart"
    seen = (
        f"total time of GenMig coalesce is {first:.2f} of parallel track's as published "
        f"({figures['gen-mig coalesce / parallel track']:.2f} of our default's, which runs both plans half as long), "
        f"reference point {second:.2f} of coalesce{told_apart}; equal work differs by up to {100 * noise:.0f} %."
    )
    holds = first < 1 - noise and second < 1 - noise
    paper = PaperFigure(
        "kraemer_2006_figure_6",
        "GenMig 2006, fig. 6",
        "total run time at full speed with a more expensive predicate: parallel track > GenMig coalesce > GenMig "
        "reference point",
        SETTINGS + f"; the predicate is (x − y)² + |x − y| < 1, compared for all pairs; all in step, each push by the "
        f"median of {repeats} repetitions",
    )
    bars = [
        Bar("gen-mig coalesce / parallel track as published", 1.0, noise="noise: equal work differs by"),
        Bar("gen-mig reference point / coalesce", 1.0, noise="noise: equal work differs by"),
    ]
    series = {name: {"seconds": pushes[name], "rows": measured.rows[name]} for name in ways}
    return save_figure(paper, drawing, figures, holds, seen, {**series, "compared at the end": compared}, *bars)


def main() -> bool:
    """All figures."""
    series = watched(
        ["as-published", "parallel-track", "coalesce", "reference-point", "positive-negative", "shortened"]
    )
    return all([total_time(5), output_rate(series), memory(series), durations(series)])


if __name__ == "__main__":
    main()
