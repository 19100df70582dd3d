"""Executors without a tree: what multi-way joins hold and cost, beside trees of joins. Figures for docs/executors.md.

- *Memory*: the join state per window row, against the indexes that two-way joins of the same streams hold, which are
  run apart: braces must hold nothing else. Beside it, what the process has allocated.
- *J4* (see ``j4``): braces with fixed routing and as an eddy against the planner's tree.
- *Star of six* (see ``Star``): a hub and five spokes, where which join is selective and which one multiplies changes
  every tenth of a window; an eddy against the best of all static trees without cross products.

All in processor time; ratios within one run, medians of repetitions in turns.
"""

from __future__ import annotations

import gc
import itertools
import statistics
import time
import tracemalloc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import j4
from benchmarks.measuring import Bar, save
from benchmarks.migrating import left_deep
from midstream import ContinuousQuery, Stream
from midstream.algebra.plan import Plan

Batches = list[dict[str, pa.Table]]

REPEATS = 5
FACTORS = [10, 30, 100]
JOIN_KINDS = ("join", "multijoin")


@dataclass(frozen=True)
class Star:
    """A hub h with the keys k1 to k5, and the spokes a to e, each joined by its own key; equal rates, equal windows.

    Time has phases of a tenth of a window. In each phase hub and spoke draw the keys of their join uniformly, and
    independently, from a pool of keys which only this phase has. With n rows per stream and phase, the pool has

    - n keys for three of the joins: a row meets one partner of its phase, on average;
    - 100 n keys for the selective one: a hundredth of a partner;
    - n / ``factor`` keys for the one that multiplies: ``factor`` partners.

    There are 20 ways to choose the last two among five joins. Each has one phase, in random order, so that no order
    of the joins is better than another in the long run. A push is half a phase; phases change in the middle of one.
    """

    rows: int
    """Per stream and phase."""
    factor: int

    SPOKES = "abcde"

    @property
    def window(self) -> int:
        return 10 * self.rows

    def query(self) -> ContinuousQuery:
        """All six joined."""
        names = ["h", *self.SPOKES]
        hub = pa.schema({"ts": pa.int64(), **{f"k{number}": pa.int64() for number in range(1, 6)}})
        spoke = pa.schema({"ts": pa.int64(), "k": pa.int64()})
        selected = ", ".join(f"{name}.ts AS {name}_ts" for name in names)
        windows = ", ".join(f"{name} [RANGE {self.window}]" for name in names)
        joined = " AND ".join(f"h.k{number} = {name}.k" for number, name in enumerate(self.SPOKES, 1))
        streams = [Stream(name, hub if name == "h" else spoke, event_time="ts") for name in names]
        return ContinuousQuery(f"SELECT {selected} FROM {windows} WHERE {joined}", streams)

    def batches(self) -> Batches:
        """The whole input: two windows, push by push."""
        random = np.random.default_rng(0)
        roles = random.permutation(list(itertools.permutations(range(5), 2)))
        hub: list[list[np.ndarray[Any, Any]]] = [[] for _ in self.SPOKES]
        spokes: list[list[np.ndarray[Any, Any]]] = [[] for _ in self.SPOKES]
        for phase, (selective, multiplying) in enumerate(roles):
            for join in range(5):
                pool = self.rows
                pool = 100 * pool if join == selective else pool // self.factor if join == multiplying else pool
                for keys in (hub[join], spokes[join]):
                    keys.append(phase * 100 * self.rows + random.integers(0, pool, self.rows))
        times = np.arange(len(roles) * self.rows)
        columns = {"h": {"ts": times, **{f"k{number}": np.concatenate(keys) for number, keys in enumerate(hub, 1)}}}
        for name, keys in zip(self.SPOKES, spokes, strict=True):
            columns[name] = {"ts": times, "k": np.concatenate(keys)}
        tables = {name: pa.table(of_stream) for name, of_stream in columns.items()}
        cuts = [0, *range(self.rows // 4, len(times), self.rows // 2), len(times)]
        return [
            {name: table.slice(start, end - start) for name, table in tables.items()}
            for start, end in itertools.pairwise(cuts)
        ]

    def trees(self) -> list[str]:
        """All join orders without cross products: the hub takes in one spoke after the other."""
        return [left_deep(["h", *order]) for order in itertools.permutations(self.SPOKES)]


def run(query: ContinuousQuery, plan: Plan, batches: Batches) -> tuple[float, int, Any]:
    """Processor time of all pushes, the number of results, and the run."""
    running = query.run_locally(plan)
    gc.collect()
    gc.disable()
    try:
        start = time.process_time()
        results = sum(running.push(batch).num_rows for batch in batches)
        return time.process_time() - start, results, running
    finally:
        gc.enable()


def in_turns(query: ContinuousQuery, plans: Mapping[str, Plan], batches: Batches, repeats: int) -> dict[str, float]:
    """Median processor time of each plan, run in turns, after one round to warm up; all give as many results."""
    seconds: dict[str, list[float]] = {name: [] for name in plans}
    for repeat in range(repeats + 1):
        counts = set()
        for name, plan in plans.items():
            taken, results, _ = run(query, plan, batches)
            counts.add(results)
            if repeat:
                seconds[name].append(taken)
        assert len(counts) == 1, counts
    return {name: statistics.median(values) for name, values in seconds.items()}


# Memory


def join_bytes(query: ContinuousQuery, plan: Plan, batches: Batches) -> tuple[int, int]:
    """The bytes of join states at the end, and the rows in windows."""
    metrics = run(query, plan, batches)[2].metrics()
    held = sum(operator["state_bytes"] for operator in metrics["operators"] if operator["kind"] in JOIN_KINDS)
    return held, metrics["window_rows"]


def index_bytes(query: ContinuousQuery, pairs: list[str], batches: Batches) -> int:
    """What two-way joins hold, each a query of its own: ``pairs`` are the FROM and WHERE clauses."""
    total = 0
    for clauses in pairs:
        names = [part.split()[0] for part in clauses.split(" WHERE ")[0].split(", ")]
        two = ContinuousQuery(
            f"SELECT {names[0]}.ts FROM {clauses}", [each for each in query.streams if each.name in names]
        )
        total += join_bytes(
            two, two.plan(" ".join(names)), [{name: batch[name] for name in names} for batch in batches]
        )[0]
    return total


def allocated_bytes(query: ContinuousQuery, plan: Plan, batches: Batches) -> int:
    """What a run has allocated at the end, in Python's memory and Arrow's, windows and room to grow included."""
    run(query, plan, batches)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes()
    running = run(query, plan, batches)[2]
    gc.collect()
    after = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes()
    tracemalloc.stop()
    del running
    return after - before


def memory() -> dict[str, float]:
    """State bytes per window row on J4 (one key) and on the star (the hub has an index for each of its keys)."""
    size, star = j4.SIZES["small"], Star(4_000, 10)
    window, spokes = f"[RANGE {size.window}]", f"[RANGE {star.window}]"
    cases: dict[str, tuple[ContinuousQuery, Batches, str, str, list[str]]] = {
        "J4": (
            j4.query(size),
            j4.make_batches(size),
            "(a b) (c d)",
            "{a b c d}",
            [f"{x} {window}, {y} {window} WHERE {x}.k = {y}.k" for x, y in ("ab", "cd")],
        ),
        "star": (
            star.query(),
            star.batches(),
            left_deep("habcde"),
            "{h a b c d e}",
            [f"h {spokes}, {y} {spokes} WHERE h.k{n} = {y}.k" for n, y in enumerate(star.SPOKES, 1)],
        ),
    }
    figures = {}
    for name, (query, batches, tree, braces, pairs) in cases.items():
        held, rows = join_bytes(query, query.plan(braces), batches)
        figures[f"memory, {name}: bytes per window row, braces"] = held / rows
        figures[f"memory, {name}: bytes per window row, eddy"] = (
            join_bytes(query, query.plan(braces, routing="eddy"), batches)[0] / rows
        )
        figures[f"memory, {name}: bytes per window row, tree"] = join_bytes(query, query.plan(tree), batches)[0] / rows
        figures[f"memory, {name}: braces / sum of indexes"] = held / index_bytes(query, pairs, batches)
        for what, plan in (("eddy", query.plan(braces, routing="eddy")), ("tree", query.plan(tree))):
            allocated = allocated_bytes(query, plan, batches)
            figures[f"memory, {name}: bytes allocated per window row, windows included, {what}"] = allocated / rows
    return figures


# Speed


def speed_on_j4() -> dict[str, float]:
    """J4, small: the speed of braces to that of the planner's tree."""
    size = j4.SIZES["small"]
    query = j4.query(size)
    plans = {
        "tree": query.plan(),
        "left-deep tree": query.plan("((a b) c) d"),
        "fixed": query.plan("{a b c d}"),
        "eddy": query.plan("{a b c d}", routing="eddy"),
    }
    seconds = in_turns(query, plans, j4.make_batches(size), REPEATS)
    ratios = {f"J4: speed, {name} / tree": seconds["tree"] / seconds[name] for name in plans if name != "tree"}
    return {**{f"J4: seconds, {name}": value for name, value in seconds.items()}, **ratios}


def finalists(most: int = 2) -> list[str]:
    """The trees that a trial of all on a shorter stream finds fastest, and those that make the fewest tuples in it."""
    trial = Star(1_000, FACTORS[1])
    query, batches = trial.query(), trial.batches()
    seconds, compared = {}, {}
    for tree in trial.trees():
        seconds[tree], _, running = run(query, query.plan(tree), batches)
        compared[tree] = sum(operator["compared"] for operator in running.metrics()["operators"])
    by_time, by_tuples = (sorted(measured, key=measured.__getitem__)[:most] for measured in (seconds, compared))
    return list(dict.fromkeys(by_time + by_tuples))


def star_of_six(factor: int, trees: list[str]) -> tuple[dict[str, Any], dict[str, float]]:
    """The eddy and fixed braces against the best static tree; and all seconds."""
    star = Star(8_000, factor)
    query = star.query()
    plans = {"eddy": query.plan("{h a b c d e}", routing="eddy"), "fixed": query.plan("{h a b c d e}")}
    plans |= {tree: query.plan(tree) for tree in trees}
    seconds = in_turns(query, plans, star.batches(), 3)
    best = min(trees, key=seconds.__getitem__)
    name = f"star, ×{factor}"
    return {
        f"{name}: best tree": best,
        f"{name}: seconds, best tree": seconds[best],
        f"{name}: seconds, eddy": seconds["eddy"],
        f"{name}: speed, eddy / best tree": seconds[best] / seconds["eddy"],
        f"{name}: speed, fixed braces / best tree": seconds[best] / seconds["fixed"],
    }, seconds


def main() -> bool:
    """Memory, J4, and the star for each factor."""
    figures: dict[str, Any] = {**memory(), **speed_on_j4()}
    all_seconds = {}
    trees = finalists()
    for factor in FACTORS:
        measured, all_seconds[factor] = star_of_six(factor, trees)
        figures |= measured
    bars = [
        *(Bar(f"memory, {name}: braces / sum of indexes", 1.1) for name in ("J4", "star")),
        Bar("J4: speed, fixed / tree", 0.3, at_least=True),
        Bar("J4: speed, eddy / tree", 0.3, at_least=True),
        *(Bar(f"star, ×{factor}: speed, eddy / best tree", 2.0, at_least=True) for factor in FACTORS),
    ]
    return save("executors", figures, *bars, details={"star, seconds by factor and plan": all_seconds})


if __name__ == "__main__":
    main()
