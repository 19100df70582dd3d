"""Static plans and adaptation on the same streams: regret, migrations, delay of the change, q-error, overhead."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from itertools import islice
from typing import Any

import msgspec

from benchmarks.adaptation.workloads import WINDOW_PUSHES, Workload, workloads
from benchmarks.measuring import Bar, save
from midstream.adaptation import Adaptation, calibrate
from midstream.adaptation.controller import join_orders_text
from midstream.algebra.plan import Join, Plan
from midstream.runtime.local_run import LocalRun

__all__ = ["main"]

MOST_PLANS = 15
SEEDS = 10
STEADY_WINDOWS = 50


def main(arguments: Sequence[str] = ()) -> bool:
    """Run, print and keep the evaluation; whether all bars were met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adaptation", description=__doc__)
    parser.add_argument("--only", nargs="*", default=None, help="names of workloads, or their beginnings")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="runs in which nothing changes")
    options = parser.parse_args(list(arguments))
    coefficients = calibrate()
    policy = Adaptation(coefficients=coefficients)
    found = []
    for workload in workloads():
        if options.only is None or any(workload.name.startswith(name) for name in options.only):
            found.append(evaluated(workload, policy))
            print(line(found[-1]), flush=True)
    if options.only is not None:
        return True
    steady = nothing_changes(policy, options.seeds)
    figures, bars = _figures(found, steady)
    details = {"workloads": found, "steady": steady, "coefficients": msgspec.structs.asdict(coefficients)}
    return save("adaptation", figures, *bars, details=details)


def evaluated(workload: Workload, policy: Adaptation) -> dict[str, Any]:
    """All static plans and the adaptive query, by phase."""
    plans = _static_plans(workload)
    default = join_orders_text(workload.query.plan())
    static = {join_orders_text(plan): _phase_seconds(workload, _times(workload, plan=plan)[0]) for plan in plans}
    times, run = _times(workload, adapt=policy)
    adaptive = _phase_seconds(workload, times)
    best_by_phase = [min(seconds[phase] for seconds in static.values()) for phase in range(len(workload.phases))]
    totals = {name: sum(seconds) for name, seconds in static.items()}
    decisions = run.decisions()
    changes = [decision.push for decision in decisions if decision.outcome == "changed"]
    errors = [join.q_error for decision in decisions for join in decision.joins if join.q_error is not None]
    return {
        "workload": workload.name,
        "has_bar": workload.bars,
        "plans": len(static),
        "adaptive": sum(adaptive),
        "adaptive_by_phase": adaptive,
        "best_by_phase": best_by_phase,
        "regret": sum(adaptive) / sum(best_by_phase) - 1,
        "best_static": min(totals.values()),
        "worst_static": max(totals.values()),
        "default_static": totals[default],
        "against_best_static": sum(adaptive) / min(totals.values()),
        "migrations": len(changes),
        "delays_in_windows": _delays(workload, changes),
        "slowest_push": max(times),
        "median_q_error": statistics.median(errors) if errors else None,
    }


def nothing_changes(policy: Adaptation, seeds: int) -> dict[str, Any]:
    """The same streams for a long time, from the best plan on: false migrations, and what watching costs."""
    (steps,) = [workload for workload in workloads() if workload.name == "steps"]
    pushes = STEADY_WINDOWS * WINDOW_PUSHES
    steady = Workload("nothing changes", steps.query, pushes, (0,), lambda _: steps.values(0))
    best = min(_static_plans(steady), key=lambda plan: sum(_times(steady, plan=plan, pushes=4 * WINDOW_PUSHES)[0]))
    migrations, overheads = [], []
    for seed in range(seeds):
        alone, _ = _times(steady, plan=best, seed=seed)
        watched, run = _times(steady, plan=best, adapt=policy, seed=seed)
        migrations.append(len(run.history()))
        overheads.append(sum(watched) / sum(alone) - 1)
    return {"migrations": migrations, "overhead": statistics.median(overheads), "overheads": overheads}


def _static_plans(workload: Workload) -> list[Plan]:
    """The plans without a cross product; of many, the default and others spread over all."""
    plans = list(islice(workload.query.plans(), 2_000))
    linked = [plan for plan in plans if not _has_cross_product(plan)]
    if len(linked) <= MOST_PLANS:
        return linked
    step = len(linked) / MOST_PLANS
    return [linked[int(place * step)] for place in range(MOST_PLANS)]


def _has_cross_product(plan: Plan) -> bool:
    return any(isinstance(node, Join) and not node.predicates for node in plan.walk())


def _times(
    workload: Workload, plan: Plan | None = None, adapt: Any = "off", seed: int = 1, pushes: int | None = None
) -> tuple[list[float], LocalRun]:
    """Processor seconds of each push, and the run."""
    run = workload.query.run_locally(plan, adapt=adapt)
    times = []
    for number, tables in enumerate(workload.tables(seed)):
        if pushes is not None and number >= pushes:
            break
        began = time.process_time()
        for _ in run.push_in_chunks(tables):
            pass
        times.append(time.process_time() - began)
    return times, run


def _phase_seconds(workload: Workload, times: list[float]) -> list[float]:
    ends = [*workload.phases[1:], workload.pushes]
    return [sum(times[first:last]) for first, last in zip(workload.phases, ends, strict=True)]


def _delays(workload: Workload, changes: list[int]) -> list[float]:
    """For each step: how many windows passed until the plan was changed, if it was before the next one."""
    found = []
    ends = [*workload.phases[1:], workload.pushes]
    for first, last in zip(workload.phases, ends, strict=True):
        after = [push for push in changes if first < push <= last]
        if after:
            found.append((after[0] - first) / WINDOW_PUSHES)
    return found


def line(result: dict[str, Any]) -> str:
    """One workload in a line."""
    delays = ", ".join(f"{delay:.1f}" for delay in result["delays_in_windows"]) or "none"
    parts = [
        f"{result['workload']:34} adaptive {result['adaptive']:6.2f} s",
        f"best of each phase {sum(result['best_by_phase']):6.2f} s (regret {result['regret']:6.1%})",
        f"best static {result['best_static']:6.2f} s",
        f"default {result['default_static']:6.2f} s",
        f"worst {result['worst_static']:6.2f} s",
        f"{result['migrations']} migrations",
        f"delays in windows {delays}",
        f"q-error {result['median_q_error'] or 0:.2f}",
    ]
    return ", ".join(parts)


def _figures(found: list[dict[str, Any]], steady: dict[str, Any]) -> tuple[dict[str, Any], list[Bar]]:
    """The figures with a bar, and their bars."""
    figures: dict[str, Any] = {}
    bars: list[Bar] = []

    def add(figure: str, value: float, limit: float, at_least: bool = False) -> None:
        figures[figure] = value
        bars.append(Bar(figure, limit, at_least))

    for result in found:
        if result["has_bar"]:
            add(f"regret, {result['workload']}", result["regret"], 0.10)
    add("against the best static plan, worst workload", max(r["against_best_static"] for r in found), 1.15)
    gain = sum(r["default_static"] for r in found) / sum(r["adaptive"] for r in found)
    add("times as fast as the default plan, whole suite", gain, 2.0, at_least=True)
    delays = [delay for result in found if result["has_bar"] for delay in result["delays_in_windows"][1:]]
    add("longest delay of a change after a step, in windows", max(delays), 1.0)
    add("median delay of a change after a step, in windows", statistics.median(delays), 0.5)
    quiet = sum(count == 0 for count in steady["migrations"]) / len(steady["migrations"])
    add("share of runs without a migration where nothing changes", quiet, 0.9, at_least=True)
    add("overhead where nothing changes", steady["overhead"], 0.02)
    return figures, bars
