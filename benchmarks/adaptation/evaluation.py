"""Static plans and adaptation on the same streams: regret, migrations, delay of changes, overhead, ablations."""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from itertools import islice
from multiprocessing import get_context
from typing import Any

import msgspec

from benchmarks.adaptation.competitors import (
    Measured,
    clairvoyant,
    measured,
    phase_run,
    phase_seconds,
    self_routing,
    table,
)
from benchmarks.adaptation.parts import Parts
from benchmarks.adaptation.report import write_readme
from benchmarks.adaptation.workloads import WINDOW_PUSHES, Adversary, Workload, steady, workloads
from benchmarks.measuring import Bar, save
from midstream.adaptation import Adaptation, calibrate
from midstream.algebra.plan import Join, Plan
from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.shapes import join_orders_text

__all__ = ["main"]

MOST_PLANS = 15
REPEATS = 3
"""How often the runs are repeated that figures compare."""
SEEDS = 10
STEADY_WINDOWS = 50
EXACT = 1 << 20
"""A sample that has all rows of a span."""
ABLATIONS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "16 rows of each input": {"sample_rows": 16},
    "64 rows of each input": {"sample_rows": 64},
    "1,024 rows of each input": {"sample_rows": 1_024},
    "all rows of a span": {"sample_rows": EXACT},
    "no confidence bound": {"deviations": 0.0},
    "no regret rule": {"regret": 0.0},
    "neither": {"deviations": 0.0, "regret": 0.0, "least_gain": 1.0, "least_saving": 0.0},
}
_ADVERSARY = "alternating, by an adversary"
ABLATED = ("steps", "bursts", "alternating, every 0.2 windows", "steps, Zipf 1")


def main(arguments: Sequence[str] = ()) -> bool:
    """Run, print and keep the evaluation; whether all bars were met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adaptation", description=__doc__)
    parser.add_argument(
        "--only",
        nargs="*",
        default=None,
        help="names of parts, or their beginnings; the others are used as they are kept, whenever they were measured",
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help="runs in which nothing changes")
    parser.add_argument("--processes", type=int, default=2, help="at once; processor time is measured")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="use parts again that are kept in benchmarks/results/adaptation, if the sources are as they were then",
    )
    options = parser.parse_args(list(arguments))
    coefficients = calibrate()
    policy = Adaptation(coefficients=coefficients)
    names = [workload.name for workload in workloads()]
    parts = Parts("adaptation", options.resume)
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        work: dict[str, Callable[[], Any]] = {name: partial(evaluated, name, policy) for name in names}
        work[_ADVERSARY] = partial(against_adversary, policy)
        work |= {f"nothing changes {seed}": partial(nothing_changes, seed, policy) for seed in range(options.seeds)}
        work |= {f"ablations, {name}": partial(ablations, name, policy) for name in ABLATED}
        known = {part: parts.known(part) for part in work}
        if options.only is not None:
            chosen = {part for part in work if part.startswith(tuple(options.only))}
            known = {part: None if part in chosen else parts.kept(part) for part in work}
            work = {part: task for part, task in work.items() if part in chosen}
        for part, result in known.items():
            if result is not None and options.only is None:
                _show(part, result)
        running = {pool.submit(task): part for part, task in work.items() if known[part] is None}
        for done in as_completed(running):
            part = running[done]
            known[part] = parts.keep(part, done.result())
            _show(part, known[part])
    if any(result is None for result in known.values()):
        return True
    found = [known[part] for part in (*names, _ADVERSARY)]
    quiet = _together([known[f"nothing changes {seed}"] for seed in range(options.seeds)])
    ablated = {
        name: {policy_name: _beside(known[name], *each) for policy_name, each in known[f"ablations, {name}"].items()}
        for name in ABLATED
    }
    figures, bars = _figures(found, quiet)
    details = {
        "workloads": found,
        "nothing changes": quiet,
        "ablations": ablated,
        "coefficients": msgspec.structs.asdict(coefficients),
        "commits": parts.commits(),
    }
    write_readme(found, quiet, ablated, figures, bars, parts.commits())
    return save("adaptation", figures, *bars, details=details)


def _show(part: str, result: Any) -> None:
    print(f"{line(result)}\n{table(result)}" if "workload" in result else f"{part}: {result}", flush=True)


def _workload(name: str) -> Workload:
    """A workload, in a process that may have run none: compiled kernels are loaded by the first query."""
    measured(steady(2 * WINDOW_PUSHES), adapt=Adaptation(coefficients=CostCoefficients()))
    return next(workload for workload in workloads() if workload.name == name)


def evaluated(name: str, policy: Adaptation) -> dict[str, Any]:
    """All static plans and the adaptive query on a workload, by phase."""
    workload = _workload(name)
    return _compared(workload, lambda: measured(workload, adapt=policy))


def against_adversary(policy: Adaptation) -> dict[str, Any]:
    """Streams that turn against every plan that was chosen."""
    adversary = Adversary()
    run = adversary.query.run_locally(adapt=policy)
    Measured(run).push(adversary.tables(1, lambda: len(run.history())))
    # The same rows again give the same decisions.
    workload = adversary.workload()
    return _compared(workload, lambda: measured(workload, adapt=policy))


def _compared(workload: Workload, adaptive_run: Callable[[], Measured]) -> dict[str, Any]:
    """What an adaptive run did, beside all static plans.

    Each static plan is run once. What bars compare is then run several times, in turn, because a machine is not equally
    fast all the time: the adaptive query, and the best plan of each phase in that phase, or else the best single plan.
    """
    default = join_orders_text(workload.query.plan())
    plans = {join_orders_text(plan): plan for plan in _static_plans(workload)}
    by_plan = {name: measured(workload, plan=plan) for name, plan in plans.items()}
    static = {name: phase_seconds(workload, run.times) for name, run in by_plan.items()}
    phases = range(len(workload.phases))
    best_names = [min(static, key=lambda name: static[name][phase]) for phase in phases]
    best_by_phase = [static[name][phase] for phase, name in enumerate(best_names)]
    totals = {name: run.seconds for name, run in by_plan.items()}
    best_name = min(totals, key=lambda name: totals[name])
    best_static = by_plan[best_name]
    if workload.kind in ("steps", "drift"):
        ours, repeated = _repeated(
            adaptive_run, [partial(phase_run, workload, plans[best_names[p]], p) for p in phases]
        )
        best_by_phase = [run.seconds for run in repeated]
    else:
        ours, (best_static,) = _repeated(adaptive_run, [lambda: measured(workload, plan=plans[best_name])])
        if len(phases) == 1:
            best_by_phase = [best_static.seconds]
    adaptive = phase_seconds(workload, ours.times)
    runs = {"adaptive": ours, "best static plan": best_static, "default plan": by_plan[default]}
    runs |= self_routing(workload)
    competitors = {"clairvoyant": clairvoyant(workload, best_names, plans, REPEATS)}
    competitors |= {name: {"seconds": r.seconds, "most_state_bytes": r.most_state_bytes} for name, r in runs.items()}
    for figures in competitors.values():
        figures["regret"] = figures["seconds"] / sum(best_by_phase) - 1
    decisions = ours.run.decisions()
    changes = [decision for decision in decisions if decision.outcome == "changed"]
    switching = [decision.migration for decision in changes]
    errors: dict[int, list[float]] = defaultdict(list)
    for decision in decisions:
        for join in decision.joins:
            # What all inputs together produce is counted, not estimated.
            if join.q_error is not None and len(join.inputs) < len(workload.query.streams):
                errors[len(join.inputs)].append(join.q_error)
    return {
        "workload": workload.name,
        "kind": workload.kind,
        "plans": len(static),
        "adaptive": sum(adaptive),
        "adaptive_by_phase": adaptive,
        "best_by_phase": best_by_phase,
        "regret": sum(adaptive) / sum(best_by_phase) - 1,
        "regret_without_switching": (sum(adaptive) - sum(switching)) / sum(best_by_phase) - 1,
        "best_static": best_static.seconds,
        "competitors": dict(sorted(competitors.items(), key=lambda item: item[1]["seconds"])),
        "worst_static": max(totals.values()),
        "default_static": totals[default],
        "against_best_static": sum(adaptive) / best_static.seconds,
        "migrations": len(changes),
        "switching_by_model": switching,
        "delays_in_windows": _delays(workload, [decision.push for decision in changes]),
        "slowest_push": max(ours.times),
        "slowest_push_of_best_static": max(best_static.times),
        "most_state_bytes": ours.most_state_bytes,
        "most_state_bytes_of_best_static": best_static.most_state_bytes,
        "median_q_error": statistics.median(e for found in errors.values() for e in found) if errors else None,
        "median_q_error_by_inputs": {inputs: statistics.median(found) for inputs, found in sorted(errors.items())},
    }


def _repeated(
    adaptive_run: Callable[[], Measured], others: list[Callable[[], Measured]]
) -> tuple[Measured, list[Measured]]:
    """All of these runs, several times in turn, each push by the median of its times."""
    rounds = [[run() for run in (adaptive_run, *others)] for _ in range(REPEATS)]
    ours, *theirs = (Measured.typical(runs) for runs in zip(*rounds, strict=True))
    return ours, theirs


def nothing_changes(seed: int, policy: Adaptation) -> tuple[int, float]:
    """The same streams for a long time, from the best plan on: false migrations, and what watching costs."""
    always = steady(STEADY_WINDOWS * WINDOW_PUSHES)
    best = min(_static_plans(always), key=lambda p: measured(always, plan=p, pushes=4 * WINDOW_PUSHES).seconds)
    watched, (alone,) = _repeated(
        lambda: measured(always, plan=best, adapt=policy, seed=seed), [lambda: measured(always, plan=best, seed=seed)]
    )
    return len(watched.run.history()), watched.seconds / alone.seconds - 1


def _together(runs: list[tuple[int, float]]) -> dict[str, Any]:
    overheads = [overhead for _, overhead in runs]
    migrations = [count for count, _ in runs]
    return {"migrations": migrations, "overhead": statistics.median(overheads), "overheads": overheads}


def ablations(name: str, policy: Adaptation) -> dict[str, tuple[float, int]]:
    """Other policies on a workload: seconds and migrations."""
    workload = _workload(name)
    found = {}
    for ablation, options in ABLATIONS.items():
        ours = measured(workload, adapt=msgspec.structs.replace(policy, **options))
        found[ablation] = ours.seconds, len(ours.run.history())
    return found


def _beside(best: dict[str, Any], seconds: float, migrations: int) -> dict[str, Any]:
    """Another policy beside the static plans that were measured before."""
    return {
        "regret": seconds / sum(best["best_by_phase"]) - 1,
        "against_best_static": seconds / best["best_static"],
        "migrations": migrations,
    }


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


def _delays(workload: Workload, changes: list[int]) -> list[float]:
    """For each phase: how many windows passed until the plan was changed, if it was before the next one."""
    found = []
    ends = [*workload.phases[1:], workload.pushes]
    for first, last in zip(workload.phases, ends, strict=True):
        after = [push for push in changes if first < push <= last]
        if after:
            found.append((after[0] - first) / WINDOW_PUSHES)
    return found


def line(result: dict[str, Any]) -> str:
    """One workload in a line."""
    delays = ", ".join(f"{delay:.1f}" for delay in result["delays_in_windows"][:5]) or "none"
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


def _figures(found: list[dict[str, Any]], quiet: dict[str, Any]) -> tuple[dict[str, Any], list[Bar]]:
    """The figures with a bar, and their bars."""
    figures: dict[str, Any] = {}
    bars: list[Bar] = []

    def add(figure: str, value: float, limit: float, at_least: bool = False) -> None:
        figures[figure] = value
        bars.append(Bar(figure, limit, at_least))

    for result in found:
        if result["kind"] in ("steps", "drift"):
            add(f"regret, {result['workload']}", result["regret"], 0.10)
        if result["kind"] == "alternating":
            add(f"against the best static plan, {result['workload']}", result["against_best_static"], 1.5)
    others = [r["against_best_static"] for r in found if r["kind"] != "alternating"]
    add("against the best static plan, worst workload", max(others), 1.15)
    gain = sum(r["default_static"] for r in found) / sum(r["adaptive"] for r in found)
    add("times as fast as the default plan, whole suite", gain, 2.0, at_least=True)
    # The first phase has no step.
    delays = [
        delay for r in found if r["kind"] == "steps" for delay in r["delays_in_windows"][-len(r["best_by_phase"]) + 1 :]
    ]
    add("longest delay of a change after a step, in windows", max(delays), 1.0)
    add("median delay of a change after a step, in windows", statistics.median(delays), 0.5)
    unchanged = sum(count == 0 for count in quiet["migrations"]) / len(quiet["migrations"])
    add("share of runs without a migration where nothing changes", unchanged, 0.9, at_least=True)
    add("overhead where nothing changes", quiet["overhead"], 0.02)
    skewed = next(r for r in found if r["workload"] == "steps, Zipf 1")
    add("median q-error, Zipf 1", skewed["median_q_error"], 2.0)
    return figures, bars
