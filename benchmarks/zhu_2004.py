"""Figures 9 to 16 of Zhu et al. 2004 (moving state, parallel track), with the settings of Table 2.

Four streams with Poisson arrivals, each join on a pair of attributes of its own with 1/σ values, so that σ is the share
of pairs that match. ((A B) C) D becomes A ((B C) D), figure 4 of the paper, after 10,000 ms. Times are milliseconds.

The length of parallel track's migration is event time: the stream has to flow. Moving state's is computing time, which
is why a faster machine shifts where both cross (figure 12).
"""

from __future__ import annotations

import gc
import statistics
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.figures import PaperFigure, describe, fitted_power, new_figure, save_figure
from benchmarks.measuring import Bar
from benchmarks.migrating import WAYS, Recorded, run_and_record
from midstream import ContinuousQuery, Stream

OLD, NEW = "((a b) c) d", "a ((b c) d)"
CHANGE_AT, END = 10_000, 50_000
COLUMNS = {"a": ["ab"], "b": ["ab", "bc"], "c": ["bc", "cd"], "d": ["cd"]}


@dataclass(frozen=True)
class Setting:
    """A column of Table 2: window and mean times between arrivals in ms, reduction factors."""

    window: int
    between: dict[str, float]
    factors: dict[str, float]

    def query(self) -> ContinuousQuery:
        """The query of figure 4."""
        windows = ", ".join(f"{name} [RANGE {self.window - 1}]" for name in COLUMNS)
        joined = " AND ".join(f"{pair[0]}.{pair} = {pair[1]}.{pair}" for pair in self.factors)
        schemas = {
            name: pa.schema([("ts", pa.int64()), *((c, pa.int64()) for c in columns)])
            for name, columns in COLUMNS.items()
        }
        text = f"SELECT a.ts AS a, b.ts AS b, c.ts AS c, d.ts AS d FROM {windows} WHERE {joined}"
        return ContinuousQuery(text, [Stream(name, schema, event_time="ts") for name, schema in schemas.items()])

    def heartbeats(self, end: int, step: int, coarse: int | None = None) -> list[int]:
        """The time at the end of each push: rows come when they happen, so that all streams have reached it."""
        return [*range(coarse or step, CHANGE_AT, coarse or step), *range(CHANGE_AT, end + 1, step)]

    def batches(self, end: int, step: int, coarse: int | None = None) -> list[dict[str, pa.Table]]:
        """The streams until ``end``, pushed every ``step`` ms, or every ``coarse`` before the change."""
        random = np.random.default_rng(0)
        cuts = [0, *self.heartbeats(end, step, coarse)]
        batches: list[dict[str, pa.Table]] = [{} for _ in cuts[1:]]
        for name, columns in COLUMNS.items():
            count = int(2 * end / self.between[name]) + 100
            times = np.cumsum(random.exponential(self.between[name], count)).astype(np.int64)
            drawn = {c: random.integers(0, round(1 / self.factors[c]), count) for c in columns}
            places = np.searchsorted(times, cuts)
            for batch, start, stop in zip(batches, places[:-1], places[1:], strict=True):
                batch[name] = pa.table({"ts": times[start:stop], **{c: v[start:stop] for c, v in drawn.items()}})
        return batches


def setting(window: int, between: dict[str, float] | float, ab: float, bc: float, cd: float) -> Setting:
    """A setting with the same time between arrivals for all streams, or one for each."""
    if not isinstance(between, dict):
        between = dict.fromkeys(COLUMNS, between)
    return Setting(window, between, {"ab": ab, "bc": bc, "cd": cd})


SET_1 = setting(1000, 100, 0.1, 0.05, 0.02)
SET_2 = setting(1000, 50, 0.1, 0.05, 0.02)
SET_3 = setting(1000, {"a": 100, "b": 12, "c": 12, "d": 12}, 0.1, 0.1, 0.1)
LOW = setting(1000, 100, 0.1, 0.02, 0.02)
HIGH = setting(2000, 50, 0.2, 0.05, 0.05)
STEP = 50


def track_length(its: Setting, name: str) -> int:
    """Event time in ms that a parallel-track migration lasts."""
    query = its.query()
    end, first = CHANGE_AT + 2 * its.window + 2 * STEP, CHANGE_AT // 1000
    batches, beats = its.batches(end, STEP, coarse=1000), its.heartbeats(end, STEP, coarse=1000)
    change = (query.plan(NEW), WAYS[name])
    _, after = run_and_record(query, OLD, batches[:first], batches[first:], change=change, heartbeats=beats)
    return after.event_time


def moving_state(its: Setting, repeats: int) -> dict[str, float]:
    """Milliseconds that ``migrate`` takes (the median), and how many tuples it computes, which never varies."""
    query = its.query()
    to = query.plan(NEW)
    batches = its.batches(CHANGE_AT, CHANGE_AT, coarse=1000)
    seconds = []
    record: dict[str, Any] = {}
    for _ in range(repeats + 1):
        run = query.run_locally(OLD)
        for batch, beat in zip(batches, its.heartbeats(CHANGE_AT, CHANGE_AT, coarse=1000), strict=True):
            for _ in run.push_in_chunks(batch, beat):
                pass
        gc.collect()
        start = time.perf_counter()
        run.migrate(to, "moving-state")
        seconds.append(time.perf_counter() - start)
        (record,) = run.metrics()["migrations"]
    return {"ms": 1000 * statistics.median(seconds[1:]), "rows": record["rows_recomputed"]}


def vary_window(windows: list[int], repeats: int) -> bool:
    """Figures 9 and 10: set 1."""
    tracks = {
        name: [track_length(replace(SET_1, window=w), name) for w in windows]
        for name in ("as-published", "parallel-track")
    }
    moved = [moving_state(replace(SET_1, window=w), repeats) for w in windows]
    ms, rows = [m["ms"] for m in moved], [m["rows"] for m in moved]

    drawing, axes = new_figure("Zhu 2004, figure 9: length of parallel track against the window", width=6.5)
    for name, factor in (("as-published", 2), ("parallel-track", 1)):
        style = {"color": WAYS[name].colour}
        axes[0, 0].plot(windows, tracks[name], "o", label=f"measured: {WAYS[name].label}", **style)
        axes[0, 0].plot(
            windows, factor * np.array(windows), ":", label=f"estimated: {factor if factor > 1 else ''}W", **style
        )
    describe(axes[0, 0], "set 1", "W (ms)", "migration time (ms of stream)")
    off = {
        name: max(abs(t / (factor * w) - 1) for t, w in zip(tracks[name], windows, strict=True))
        for name, factor in (("as-published", 2), ("parallel-track", 1))
    }
    slope = {name: float(np.polyfit(windows, lengths, 1)[0]) for name, lengths in tracks.items()}
    figures = {
        "slope as published": slope["as-published"],
        "slope of our default": slope["parallel-track"],
        "greatest deviation from 2 W": off["as-published"],
        "greatest deviation from W": off["parallel-track"],
    }
    seen = (
        f"as published {slope['as-published']:.2f} W, at most {100 * off['as-published']:.0f} % off 2 W; our default, "
        f"which purges by watermark, {slope['parallel-track']:.2f} W at any height."
    )
    paper = PaperFigure(
        "zhu_2004_figure_09",
        "Zhu 2004, fig. 9",
        "T_PT is linear in W, 2 W for this plan of height 3",
        f"Table 2, set 1; pushes of {STEP} ms, which is how exactly lengths are known",
    )
    bars = [Bar("greatest deviation from 2 W", 0.1), Bar("greatest deviation from W", 0.1)]
    linear = save_figure(paper, drawing, figures, off["as-published"] < 0.1, seen, {"W": windows, **tracks}, *bars)

    drawing, axes = new_figure("Zhu 2004, figure 10: moving state against the window", 1, 2)
    power = fitted_power(windows[-5:], rows[-5:])
    smooth = np.linspace(windows[0], windows[-1], 100)
    axes[0, 0].plot(windows, ms, "o", color=WAYS["moving-state"].colour, label="measured")
    axes[0, 0].plot(smooth, np.polyval(np.polyfit(windows, ms, 3), smooth), ":", color="black", label="polynomial")
    describe(axes[0, 0], "set 1: time of migrate()", "W (ms)", "ms")
    axes[0, 1].plot(windows, rows, "o", color=WAYS["moving-state"].colour, label="counted")
    axes[0, 1].plot(smooth, np.polyval(np.polyfit(windows, rows, 3), smooth), ":", color="black", label="polynomial")
    describe(axes[0, 1], "set 1: tuples computed", "W (ms)", "tuples")
    growth = ms[-1] / ms[0]
    figures = {
        "power of W, tuples": power,
        "ms, largest W / smallest": growth,
        "tuples, largest W / smallest": rows[-1] / rows[0],
    }
    seen = (
        f"tuples computed grow as W^{power:.1f}; the time grows only {growth:.1f} times from W = {windows[0]} to "
        f"{windows[-1]}, because {rows[-1]} tuples cost less than setting up the plan (see fig. 12 for larger states)."
    )
    paper = PaperFigure(
        "zhu_2004_figure_10", "Zhu 2004, fig. 10", "T_MS is a polynomial in W", f"Table 2, set 1; medians of {repeats}"
    )
    bars = [Bar("power of W, tuples", 1.5, at_least=True)]
    series = {"W": windows, "ms": ms, "tuples": rows}
    return save_figure(paper, drawing, figures, power > 1.5 and growth > 2, seen, series, *bars) and linear


def vary_rate(between: list[float], repeats: int) -> bool:
    """Figure 11: set 2."""
    settings = [replace(SET_2, between={**SET_2.between, "b": each}) for each in between]
    rates = [1000 / each for each in between]
    tracks = {name: [track_length(each, name) for each in settings] for name in ("as-published", "parallel-track")}
    moved = [moving_state(each, repeats) for each in settings]
    ms, rows = [m["ms"] for m in moved], [m["rows"] for m in moved]
    drawing, axes = new_figure("Zhu 2004, figure 11: against the input rate of B", 1, 3, width=4.4)
    for name, lengths in tracks.items():
        axes[0, 0].plot(rates, lengths, "o-", color=WAYS[name].colour, label=WAYS[name].label)
    describe(axes[0, 0], "parallel track", "λB (rows a second)", "migration time (ms of stream)")
    axes[0, 1].plot(rates, ms, "o-", color=WAYS["moving-state"].colour, label="moving state")
    describe(axes[0, 1], "moving state: time", "λB (rows a second)", "ms")
    axes[0, 2].plot(rates, rows, "o-", color=WAYS["moving-state"].colour, label="moving state")
    describe(axes[0, 2], "moving state: tuples computed", "λB (rows a second)", "tuples")
    # Times of about a millisecond: four runs gave 0.8 to 1.2 times, so that less than 1.5 says nothing.
    spread = max(tracks["as-published"]) / min(tracks["as-published"])
    figures = {
        "T_PT, greatest / least": spread,
        "T_MS, highest rate / lowest": ms[-1] / ms[0],
        "tuples, highest rate / lowest": rows[-1] / rows[0],
    }
    seen = (
        f"T_PT varies by a factor of {spread:.2f} while λB grows {rates[-1] / rates[0]:.0f} times; moving state "
        f"computes {rows[-1] / rows[0]:.1f} times as many tuples in {ms[-1] / ms[0]:.2f} times the time (so few that "
        "setting up the plan dominates)."
    )
    paper = PaperFigure(
        "zhu_2004_figure_11",
        "Zhu 2004, fig. 11",
        "T_MS grows with λB, T_PT does not",
        f"Table 2, set 2; medians of {repeats}",
    )
    bars = [Bar("T_PT, greatest / least", 1.1), Bar("tuples, highest rate / lowest", 2.0, at_least=True)]
    series = {"rate": rates, **tracks, "ms": ms, "tuples": rows}
    return save_figure(paper, drawing, figures, spread < 1.1 and ms[-1] > 1.5 * ms[0], seen, series, *bars)


def crossover(windows: list[int], repeats: int) -> bool:
    """Figure 12: set 3."""
    settings = [replace(SET_3, window=w) for w in windows]
    # Parallel track holds results back for as long as 2 W: beyond 3000 ms they are tens of millions.
    tracked = [w for w in windows if w <= 3000]
    tracks = {
        name: [track_length(each, name) for each in settings[: len(tracked)]]
        for name in ("as-published", "parallel-track")
    }
    moved = [moving_state(each, repeats) for each in settings]
    ms, rows = [m["ms"] for m in moved], [m["rows"] for m in moved]
    # Equation 8: squares and cubes of W, above a fixed cost.
    cubic = np.linalg.lstsq(np.stack([np.ones(len(windows)), np.array(windows) ** 3.0], axis=1), ms, rcond=None)[0]
    where = {
        name: next((w for w in range(1000, 10_000_000, 1000) if cubic[0] + cubic[1] * w**3 > factor * w), None)
        for name, factor in (("as-published", 2), ("parallel-track", 1))
    }
    power = fitted_power(windows[-4:], rows[-4:])
    drawing, axes = new_figure("Zhu 2004, figure 12: moving state and parallel track", 1, 2)
    reach = np.geomspace(windows[0], 3 * (where["as-published"] or windows[-1]), 100)
    for panel, x in ((axes[0, 0], np.linspace(windows[0], windows[-1], 100)), (axes[0, 1], reach)):
        for name, factor in (("as-published", 2), ("parallel-track", 1)):
            style = {"color": WAYS[name].colour}
            panel.plot(tracked, tracks[name], "o", label=f"{WAYS[name].label} (ms of stream)", **style)
            panel.plot(x, factor * x, ":", **style)
        panel.plot(windows, ms, "o", color=WAYS["moving-state"].colour, label="moving state (ms of computing)")
        panel.plot(x, cubic[0] + cubic[1] * x**3, ":", color=WAYS["moving-state"].colour, label="fixed cost + cubic")
    axes[0, 1].set_xscale("log")
    axes[0, 1].set_yscale("log")
    describe(axes[0, 0], "set 3, measured", "W (ms)", "migration time (ms)")
    describe(axes[0, 1], "extrapolated", "W (ms)", "migration time (ms)")
    figures = {
        "power of W, tuples": power,
        "T_MS / 2 W at the largest W": ms[-1] / (2 * windows[-1]),
        "W of the crossover with 2 W, extrapolated": where["as-published"],
        "W of the crossover with W, extrapolated": where["parallel-track"],
    }
    factor = (where["as-published"] or 0) / windows[-1]
    seen = (
        f"tuples computed grow as W^{power:.1f} and T_MS with them, but at W = {windows[-1]} ms it is "
        f"{ms[-1]:.0f} ms against {2 * windows[-1]} ms: no crossover where we measured. The fit puts it "
        f"at about W = {where['as-published']} ms (2 W) and {where['parallel-track']} ms (W), {factor:.0f} times "
        "beyond the largest window measured: an extrapolation that leaves out that such states would not fit in memory."
    )
    paper = PaperFigure(
        "zhu_2004_figure_12",
        "Zhu 2004, fig. 12",
        "with growing W, moving state is at first faster, then slower than parallel track",
        f"Table 2, set 3, W to {windows[-1]} ms (parallel track to {tracked[-1]} ms); medians of {repeats}",
    )
    bars = [Bar("power of W, tuples", 2.0, at_least=True)]
    series = {"W": windows, **tracks, "ms": ms, "tuples": rows, "fit": cubic}
    crossed = ms[-1] > 2 * windows[-1]
    return save_figure(paper, drawing, figures, crossed, seen, series, *bars)


def intermediate(numbers: tuple[int, int], load: str, its: Setting) -> bool:
    """Figures 13 and 14 (low load) or 15 and 16 (high load)."""
    step = 500
    query, batches, beats = its.query(), its.batches(END, step), its.heartbeats(END, step)
    first = CHANGE_AT // step
    cases: dict[str, tuple[str, str | None]] = {
        "moving state": (OLD, "moving-state"),
        "parallel track, as published": (OLD, "as-published"),
        "parallel track": (OLD, "parallel-track"),
        "new plan only": (NEW, None),
        "old plan only": (OLD, None),
    }
    looks = {"new plan only": ("black", ":"), "old plan only": ("#777777", "-")}
    series: dict[str, dict[str, Any]] = {}
    for case, (plan, name) in cases.items():
        change = None if name is None else (query.plan(NEW), WAYS[name])
        parts = run_and_record(
            query, plan, batches[:first], batches[first:], change=change, watch=True, heartbeats=beats
        )
        series[case] = {
            key: [value for part in parts for value in getattr(part, key)] for key in ("state_rows", "rows", "seconds")
        }
        series[case]["migrate ms"] = 1000 * parts[1].migrate_seconds
        series[case]["length"] = _length(parts[1])
    assert len({sum(each["rows"]) for each in series.values()}) == 1
    times = step * np.arange(1, len(batches) + 1)
    met = []
    settled = slice(CHANGE_AT // step + 2 * its.window // step + 2, None)
    mean = {case: float(np.mean(each["state_rows"][settled])) for case, each in series.items()}
    during = slice(first, first + 2 * its.window // step)
    peak = {case: max(each["state_rows"][during]) for case, each in series.items()}
    slowest = max(1000 * max(each["seconds"][first:]) for each in series.values())
    for number, key, what in ((numbers[0], "state_rows", "tuples in join states"), (numbers[1], "rows", "results")):
        drawing, axes = new_figure(f"Zhu 2004, figure {number}: {what}, {load} load", 1, 2, width=5.6)
        for panel, (start, end) in zip(
            axes[0], ((0, END), (CHANGE_AT - 2000, CHANGE_AT + 4 * its.window)), strict=True
        ):
            for case, (_, name) in cases.items():
                colour, dashes = looks[case] if name is None else (WAYS[name].colour, WAYS[name].dashes)
                values = np.array(series[case][key]) * (1000 / step if key == "rows" else 1)
                shown = (times >= start) & (times <= end)
                panel.plot(times[shown], values[shown], dashes, color=colour, label=case, linewidth=1.1)
            panel.axvline(CHANGE_AT, color="black", linewidth=0.8, linestyle="--")
            describe(
                panel,
                "whole run" if start == 0 else "around the change",
                "time (ms)",
                what if key == "state_rows" else "results per second",
            )
        paper_says = {
            13: "the new plan has far fewer intermediate tuples; moving state reaches its count first",
            14: "no strong advantage of either strategy",
            15: "parallel track has fewer intermediate tuples during the migration: the system is overloaded",
            16: "moving state is silent from 10,000 to 20,000 ms; parallel track gives results earlier",
        }[number]
        settings = f"Table 2, section 6.3, {load}; pushes of {step} ms; our system is not overloaded by either"
        paper = PaperFigure(f"zhu_2004_figure_{number}", f"Zhu 2004, fig. {number}", paper_says, settings)
        kept = {case: each[key] for case, each in series.items()} | {"times": times}
        if key == "state_rows":
            ratio = mean["old plan only"] / mean["new plan only"]
            same = max(abs(mean[case] / mean["new plan only"] - 1) for case in list(cases)[:3])
            figures = {
                "old plan / new plan, tuples": ratio,
                "after migrating, off the new plan's count": same,
                "peak during migration": peak,
            }
            seen = (
                f"the old plan holds {ratio:.2f} times the new one's tuples, all ways end at the new plan's count; in "
                f"the 2 W after the change at most {peak['moving state']} with moving state, "
                f"{peak['parallel track, as published']} with parallel track as published, {peak['parallel track']} by "
                f"default"
                + ("." if load == "low" else ": without overload moving state stays lower, unlike the paper.")
            )
            holds = (
                ratio > 1
                and same < 0.01
                and (load == "low") == (peak["moving state"] < peak["parallel track, as published"])
            )
            bars = [
                Bar("old plan / new plan, tuples", 1.0, at_least=True),
                Bar("after migrating, off the new plan's count", 0.01),
            ]
        else:
            silence = series["moving state"]["migrate ms"]
            held = {
                case: _silent(each["rows"], first, series["old plan only"]["rows"], step)
                for case, each in series.items()
            }
            figures = {
                "moving state: ms of silence": silence,
                "slowest push, ms": slowest,
                "ms without results where the old plan has some": held,
            }
            seen = (
                f"moving state is silent for {silence:.1f} ms of computing; parallel track as published gives no "
                f"result for {held['parallel track, as published']} ms of stream in which there are some, our default "
                f"for {held['parallel track']} ms; a push of {step} ms takes at most {slowest:.1f} ms, nothing queues"
                + ("." if load == "low" else ": the paper's silence of moving state came of an overloaded machine.")
            )
            # Low: nobody is silent for longer than a push. High: moving state is, and for longer than parallel track.
            silent = held["parallel track, as published"]
            holds = max(silent, silence) <= step if load == "low" else silence > max(silent, step)
            bars = [Bar("moving state: ms of silence", float(step))]
        met.append(save_figure(paper, drawing, figures, holds, seen, kept, *bars))
    return all(met)


def _length(record: Recorded) -> int | None:
    return record.event_time if record.migration else None


def _silent(rows: list[int], first: int, usual: list[int], step: int) -> int:
    """Milliseconds after the change in which others have results and this has none."""
    return step * sum(not mine and bool(theirs) for mine, theirs in zip(rows[first:], usual[first:], strict=True))


def main() -> bool:
    """All figures."""
    return all(
        [
            vary_window([500, 1000, 2000, 3000, 4000, 5000, 6000, 7000], 7),
            vary_rate([50, 25, 16, 12, 8, 5], 7),
            crossover([500, 1000, 1500, 2000, 3000, 4000, 5000], 3),
            intermediate((13, 14), "low", LOW),
            intermediate((15, 16), "high", HIGH),
        ]
    )


if __name__ == "__main__":
    main()
