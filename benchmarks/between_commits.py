"""Is this commit as fast as another one? The engine of two clones, measured in turns.

    python -m benchmarks.between_commits path/to/another/clone

Each round starts one process per clone and task, the clones in turns, so that a busy machine disturbs both alike. What
counts is processor time, and of all rounds the least: the work is the same each time, and noise only adds to it. Bar:
at most 5 % more than the other clone.

- ``small``, ``large``: J4 (see ``j4``), all batches.
- ``pushes``: 2,000 pushes of two rows into a three-way join: what a push costs beside its rows.
- ``jisc``: a migration of a four-way join with 40,000 rows in their windows, and the push after it.
- ``aggregates``: sliding aggregates over a join, with three migrations.
- ``spark tiny``, ``spark small``, ``spark large`` (only if named): J4 on Spark, the median duration of a micro-batch in
  steady state, by the clock. They need a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.j4 import SIZES, make_batches, query
from benchmarks.measuring import Bar, save
from midstream import ContinuousQuery, Stream

ROUNDS = 5
SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64()})
Work = Callable[[], Any]


def _rows(start: int, count: int, keys: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table({"ts": start + np.arange(count), "k": random.integers(0, keys, count)})


def _declared(text: str, names: str) -> ContinuousQuery:
    return ContinuousQuery(text, [Stream(name, SCHEMA, event_time="ts") for name in names])


def j4(size: str) -> Work:
    """All batches of J4."""
    batches = make_batches(SIZES[size])

    def work() -> None:
        run = query(SIZES[size]).run_locally()
        for batch in batches:
            run.push(batch)
        run.finish()

    return work


def pushes() -> Work:
    """Many small pushes."""
    text = "SELECT a.k FROM a [RANGE 50] a, b [RANGE 50] b, c [RANGE 50] c WHERE a.k = b.k AND b.k = c.k"
    tables = [{"abc"[n % 3]: _rows(n, 2, 20, n)} for n in range(2000)]

    def work() -> None:
        run = _declared(text, "abc").run_locally()
        for table in tables:
            run.push(table, watermark=next(iter(table.values()))["ts"][0].as_py())

    return work


def jisc() -> Work:
    """One migration and the push after it; what comes before is not measured."""
    text = (
        "SELECT a.ts FROM a [RANGE 10000] a, b [RANGE 10000] b, c [RANGE 10000] c, d [RANGE 10000] d "
        "WHERE a.k = b.k AND b.k = c.k AND c.k = d.k"
    )
    runs = [_declared(text, "abcd").run_locally("((a b) c) d") for _ in range(5)]
    for run in runs:
        run.push({name: _rows(0, 10_000, 10_000, seed) for seed, name in enumerate("abcd")})

    def work() -> None:
        run = runs.pop()
        run.migrate("((d c) b) a")
        run.push({name: _rows(10_000, 1_000, 10_000, seed) for seed, name in enumerate("abcd")})

    return work


def aggregates() -> Work:
    """Sliding aggregates over a join whose plan changes three times."""
    text = (
        "SELECT a.k, COUNT(*) AS n FROM a [RANGE 900 SLIDE 300] a, b [RANGE 900 SLIDE 300] b, c [RANGE 300] c "
        "WHERE a.k = b.k AND b.k = c.k GROUP BY a.k"
    )
    tables = [{name: _rows(300 * n, 300, 60, n) for name in "abc"} for n in range(20)]

    def work() -> None:
        query = _declared(text, "abc")
        run = query.run_locally("(a b) c")
        for number, table in enumerate(tables):
            if number in (5, 10, 15):
                run.migrate(("a (b c)", "(a c) b", "(a b) c")[number // 5 - 1])
            run.push(table)
        run.finish()

    return work


TASKS: dict[str, Callable[[], Work]] = {
    "small": lambda: j4("small"),
    "large": lambda: j4("large"),
    "pushes": pushes,
    "jisc": jisc,
    "aggregates": aggregates,
}


def spark_batch(size: str) -> float:
    """Seconds of a micro-batch of J4 on Spark, without a sink."""
    from benchmarks.spark_j4 import FULL, TINY_WARM_UP, in_process, sized, tiny
    from benchmarks.spark_native_j4 import write_input

    with tempfile.TemporaryDirectory() as temporary:
        write_input(tiny() if size == "tiny" else sized(size), Path(temporary) / "in")
        run = in_process("midstream", Path(temporary), "--size", size)
    batches = [batch["milliseconds"] for batch in run["batches"] if batch["input_rows"]]
    return statistics.median(batches[TINY_WARM_UP if size == "tiny" else FULL :]) / 1000


SPARK_TASKS = tuple(f"spark {size}" for size in ("tiny", "small", "large"))


def measure(task: str) -> None:
    """In the process of a clone: print the least processor time of three runs, after one to warm up."""
    if task in SPARK_TASKS:
        print(spark_batch(task.removeprefix("spark ")))
        return
    work = TASKS[task]()
    work()
    seconds = []
    for _ in range(3):
        gc.collect()
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    print(min(seconds))


def main(other: Path, tasks: list[str], rounds: int = ROUNDS) -> bool:
    here = Path(__file__).parent.parent
    clones = {"this": here, "other": other.resolve()}
    least: dict[tuple[str, str], float] = {}
    for number in range(rounds):
        for task in tasks:
            for name in sorted(clones, reverse=bool(number % 2)):
                environment = {**os.environ, "PYTHONPATH": f"{clones[name] / 'src'}{os.pathsep}{here}"}
                command = [sys.executable, "-m", "benchmarks.between_commits", "--measure", task]
                # From here: the other clone may have no such benchmark. Its midstream is found first all the same.
                done = subprocess.run(command, env=environment, cwd=here, check=True, capture_output=True, text=True)
                seconds = float(done.stdout.split()[-1])
                least[task, name] = min(seconds, least.get((task, name), seconds))
    described = subprocess.run(
        ["git", "describe", "--always"], cwd=other, check=False, capture_output=True, text=True
    ).stdout.strip()
    figures: dict[str, Any] = {"other_commit": described, "rounds": rounds}
    for task in tasks:
        figures |= {f"{task}_seconds": least[task, "this"], f"{task}_other_seconds": least[task, "other"]}
        figures[f"{task}_ratio"] = least[task, "this"] / least[task, "other"]
    name = "between_commits_on_spark" if set(tasks) <= set(SPARK_TASKS) else "between_commits"
    return save(name, figures, *(Bar(f"{task}_ratio", 1.05) for task in tasks))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", nargs="?", type=Path, help="a clone of the repository at another commit")
    parser.add_argument("--only", choices=[*TASKS, *SPARK_TASKS], action="append", help="measure this task alone")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each task is measured in each clone")
    parser.add_argument("--measure", choices=[*TASKS, *SPARK_TASKS], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure)
    elif arguments.other is None:
        parser.error("name a clone to compare with")
    else:
        sys.exit(0 if main(arguments.other, arguments.only or list(TASKS), arguments.rounds) else 1)
