"""What adaptation competes with: static plans, multi-way joins, eddies and STAIRs, and a clairvoyant that migrates.

The clairvoyant knows the best static plan of each phase and migrates to it when the phase begins. It pays only for the
migrations, by the strategy that turns out to be the cheapest in total. What it takes beyond the best static plans is
regret that no controller can avoid that migrates at once. One that waits may pay less: windows are full of rows of the
phase before then, and what the new plan would have made of them must be computed.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any

from benchmarks.adaptation.workloads import WINDOW_PUSHES, Tables, Workload
from midstream.algebra.plan import Plan
from midstream.planning.join_order.reorder_joins import join_graphs
from midstream.runtime.local_run import LocalRun

__all__ = ["Measured", "clairvoyant", "measured", "phase_run", "phase_seconds", "self_routing", "table"]

STRATEGIES: dict[str, tuple[str, dict[str, bool]]] = {
    "jisc": ("jisc", {}),
    "jisc as published": ("jisc", {"as_published": True}),
    "moving-state": ("moving-state", {}),
}


@dataclass
class Measured:
    """A run, with the processor seconds of each push and the most that its state took."""

    run: LocalRun
    times: list[float] = field(default_factory=list)
    most_state_bytes: int = 0

    @property
    def seconds(self) -> float:
        return sum(self.times)

    @classmethod
    def typical(cls, runs: Sequence[Measured]) -> Measured:
        """Repetitions of a run as one: each push takes the median of its times."""
        times = [statistics.median(pushes) for pushes in zip(*(run.times for run in runs), strict=True)]
        return cls(runs[0].run, times, max(run.most_state_bytes for run in runs))

    def push(
        self, pushes: Iterable[Tables], plans: Mapping[int, Plan] | None = None, strategy: str = "jisc"
    ) -> Measured:
        """Push all tables; before those with these numbers, migrate by the strategy. That is part of the time."""
        gc.collect()
        name, options = STRATEGIES[strategy]
        for number, tables in enumerate(pushes):
            began = time.process_time()
            if plans and number in plans and plans[number] != self.run.plan:
                self.run.migrate(plans[number], name, **options)
            for _ in self.run.push_in_chunks(tables):
                pass
            self.times.append(time.process_time() - began)
            self.most_state_bytes = max(self.most_state_bytes, self.run.metrics()["state_bytes"])
        return self


def measured(
    workload: Workload, plan: Plan | None = None, adapt: Any = "off", seed: int = 1, pushes: int | None = None
) -> Measured:
    """A run of a workload."""
    return Measured(workload.query.run_locally(plan, adapt=adapt)).push(islice(workload.tables(seed), pushes))


def phase_run(workload: Workload, plan: Plan, phase: int) -> Measured:
    """A run of a static plan in one phase: it begins a window earlier, which does not count."""
    first = workload.phases[phase]
    last = [*workload.phases[1:], workload.pushes][phase]
    earlier = max(0, first - WINDOW_PUSHES)
    run = Measured(workload.query.run_locally(plan)).push(islice(workload.tables(1), earlier, last))
    run.times = run.times[first - earlier :]
    return run


def phase_seconds(workload: Workload, times: list[float]) -> list[float]:
    """The time of each phase."""
    ends = [*workload.phases[1:], workload.pushes]
    return [sum(times[first:last]) for first, last in zip(workload.phases, ends, strict=True)]


def self_routing(workload: Workload) -> dict[str, Measured]:
    """Executors without a tree of joins: a multi-way join with default probe orders, an eddy, and STAIRs."""
    names = next(join_graphs(workload.query.plan())).names
    braces = "{" + " ".join(names) + "}"
    found = {"fixed M-join": measured(workload, workload.query.plan(braces))}
    for routing in ("eddy", "stairs"):
        found[routing] = measured(workload, workload.query.plan(f"{braces}:{routing}"))
    return found


def clairvoyant(workload: Workload, best: Sequence[str], plans: Mapping[str, Plan], repeats: int) -> dict[str, Any]:
    """Runs that migrate to the best static plan of each phase when it begins."""
    chosen = {first: plans[name] for first, name in zip(workload.phases, best, strict=True)}

    def run(strategy: str) -> Measured:
        return Measured(workload.query.run_locally(plans[best[0]])).push(workload.tables(1), chosen, strategy)

    runs = {strategy: run(strategy) for strategy in (STRATEGIES if len(set(best)) > 1 else ["moving-state"])}
    cheapest = min(runs, key=lambda strategy: runs[strategy].seconds)
    runs[cheapest] = Measured.typical([runs[cheapest], *(run(cheapest) for _ in range(repeats - 1))])
    return {
        "seconds": runs[cheapest].seconds,
        "most_state_bytes": runs[cheapest].most_state_bytes,
        "strategy": cheapest,
        "seconds_by_strategy": {strategy: run.seconds for strategy, run in runs.items()},
        "migrations": sum(one != other for one, other in pairwise(best)),
        "plans": list(best),
    }


def table(result: Mapping[str, Any]) -> str:
    """One workload as a table: total time, and regret against the best static plan of each phase."""
    lines = [f"  {'':24}{'seconds':>9}{'regret':>9}{'state MB':>10}"]
    for name, figures in result["competitors"].items():
        detail = f"  ({figures['strategy']}, {figures['migrations']} migrations)" if "strategy" in figures else ""
        seconds, regret, state = figures["seconds"], figures["regret"], figures["most_state_bytes"] / 1e6
        lines.append(f"  {name:24}{seconds:9.2f}{regret:9.1%}{state:10.1f}{detail}")
    return "\n".join(lines)
