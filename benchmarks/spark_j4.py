"""J4 on Spark, end to end from parquet: midstream against native stream-stream joins, and what a micro-batch costs.

Native joins run as a chain, as most people would write them, and as the tree that we found to be faster; both keep
their state in memory, which is faster than RocksDB. Each competitor runs in a process of its own, one after the other
in one run. Steady state is the median of the micro-batches once windows are full; the throughput is a batch's input
rows by its whole duration, as Spark reports it. Both read the same files; results are counted, and with the parquet
sink compared with DuckDB's, row by row.

With the Delta sink, cells write the files of a table themselves (``docs/delta.md``); it is compared with Spark's
parquet sink on both sides (``--only delta``, or ``--only delta --size large``; ``--size trial`` shows within minutes
whether everything works). There native results are compared row by row, too.

"Spark alone" is the same query with an operator that computes nothing: it takes what Spark brings it and hands out as
many rows of zeros as the join has results. What midstream takes beyond that is its own; nothing that runs in a Python
operator can be faster.

Java compiles what it runs in the first two dozen micro-batches, which is most of a short run. What a micro-batch costs
after that, and where the time goes, is ``--only warm``.

Bars: at least 15 times native's throughput on the small size, 20 on the large one (12 batches each), with either sink;
with Delta 15 times the chain's and 9 times the tree's on the small size, 25 and 12 times on the large one; a
micro-batch of 1,000 rows at most 250 ms and 1.2 times a trivial operator's; a batch during a jisc migration at most
1.5 times an ordinary one. State bytes written per batch, and what a second cell and a second executor bring, are
reported.

    python -m benchmarks.spark_j4 --only small
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from benchmarks.j4 import COLUMNS, SIZES, STREAMS, TRIAL, Size, query
from benchmarks.measuring import Bar, save
from benchmarks.peers import checking
from benchmarks.peers.task import Task
from midstream.runtime.messages import CellFigures

BATCHES = 12
FULL = 4
"""Batches after which windows are full and the first compilations are over."""
TINY_BATCHES = 120
TINY_WARM_UP = 40
WARM_BATCHES = 50
WARM_UP = 25
"""Batches in which Java still compiles much of what it runs."""
BY_TCP = "spark.python.unix.domain.socket.enabled=false"
FIRST_COMPILER = "spark.driver.extraJavaOptions=-XX:+UseParallelGC -XX:TieredStopAtLevel=1"
MEMORY = "6g"
RESULTS_PER_ROW = 8
"""Results of J4 for each input row once windows are full, of either size."""


def sized(name: str) -> Size:
    """The twelve batches of a size, or of a trial."""
    return TRIAL if name == "trial" else replace(SIZES[name], batches=BATCHES, results=None)


# One competitor, in a process of its own


def run_midstream(chosen: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """The query on midstream; figures of each micro-batch."""
    from midstream.spark import FileStream, live_query, session

    size = tiny() if chosen.size == "tiny" else sized(chosen.size)
    spark = session(
        chosen.master,
        chosen.cells,
        {
            "spark.driver.memory": MEMORY,
            "spark.executor.memory": "3g",
            "spark.executor.cores": "1",
            "spark.sql.streaming.numRecentProgressUpdates": "10000",
            **dict(setting.split("=", 1) for setting in chosen.setting),
        },
    )
    columns, folders = "ts long, k long, v double", {stream: directory / "in" / stream for stream in STREAMS}
    frames: dict[str, Any]
    if chosen.reader == "files":
        frames = {stream: FileStream(spark, folder, columns, 1) for stream, folder in folders.items()}
    else:
        reader = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1)
        frames = {stream: reader.parquet(str(folder)) for stream, folder in folders.items()}
    out = Path(tempfile.mkdtemp(dir=directory))
    if chosen.no_work:
        live_query.CellWork = zeros_work(RESULTS_PER_ROW * len(STREAMS) * size.rows)  # type: ignore[misc]
    live = query(size).run_on_spark(frames, plan="((a b) c) d", cells=chosen.cells, control_dir=out / "control")
    reported: dict[int, list[dict[str, Any]]] = {}
    progress = live._report._progress
    take = progress.take

    def note(cells: list[CellFigures]) -> None:
        for cell in cells:
            reported.setdefault(cell.batches - 1, []).append(msgspec.to_builtins(cell))
        take(cells)

    progress.take = note  # type: ignore[method-assign]
    if chosen.sink == "delta":
        writer = live.delta_writer(out / "out", out / "checkpoint")
    else:
        writer = live.results.writeStream.format(chosen.sink).option("checkpointLocation", str(out / "checkpoint"))
    if chosen.sink == "parquet":
        writer = writer.option("path", str(out / "out"))
    began = time.perf_counter()
    if chosen.migrate:
        # A run over what is available reads only commands that were there when it began.
        running = writer.start()
        while running.lastProgress is None or running.lastProgress.batchId < BATCHES // 2:
            time.sleep(0.02)
        live.migrate("a (b (c d))")
        running.processAllAvailable()
        running.stop()
    else:
        running = writer.trigger(availableNow=True).start()
        running.awaitTermination()
    seconds = time.perf_counter() - began
    batches = []
    for progress in running.recentProgress:
        if "addBatch" not in progress.durationMs:
            continue
        cells = reported.get(progress.batchId, [])
        batches.append(
            {
                "batch": progress.batchId,
                "input_rows": rows_of(progress.numInputRows, chosen, size),
                "milliseconds": progress.durationMs["triggerExecution"],
                "durations": dict(progress.durationMs),
                "operator_milliseconds": max((1000 * cell["seconds"] for cell in cells), default=0),
                "bytes_written": sum(cell["bytes_written"] for cell in cells),
                "results": sum(cell["results"] for cell in cells),
                "rebuilt": sum(cell["rebuild_seconds"] is not None for cell in cells),
                "commands": max((len(cell["commands"]) for cell in cells), default=0),
                "migrating": any(cell["migrating"] for cell in cells),
            }
        )
    if chosen.sink in ("parquet", "delta") and chosen.check:
        check(size, directory / "in", out / "out")
    state = state_bytes(out / "checkpoint")
    spark.stop()
    return {"seconds": seconds, "batches": batches, "results": batches[-1]["results"], "state_bytes": state}


def rows_of(counted: int, chosen: argparse.Namespace, size: Size) -> int:
    """The input rows of a micro-batch by Spark's count; of a source that gives packs, it counts those."""
    return counted if chosen.reader == "spark" else size.rows * (counted // chosen.cells)


def zeros_work(results: int) -> Any:
    """The work of an operator that gives so many rows of zeros, in pieces. Made here, so that workers get it whole."""
    from midstream.runtime.durable_cell import PIECE_ROWS
    from midstream.spark.cell_work import CellWork

    class ZerosWork(CellWork):
        def __call__(self, key: int, rows: Any, backend: Any) -> Any:
            import pandas as pd

            for _ in rows:
                pass
            for start in range(0, results, PIECE_ROWS):
                count = min(PIECE_ROWS, results - start)
                integers = pd.arrays.ArrowExtensionArray(pa.array(np.zeros(count, np.int64)))
                numbers = pd.arrays.ArrowExtensionArray(pa.array(np.zeros(count)))
                is_number = [name.endswith("_v") for name in (column.split(" AS ")[1] for column in COLUMNS)]
                columns = [numbers if chosen else integers for chosen in [*is_number, False, False]]
                yield pd.DataFrame(dict(enumerate(columns)))

    return ZerosWork


def run_native_here(chosen: argparse.Namespace, directory: Path) -> dict[str, Any]:
    from benchmarks.spark_native_j4 import FASTEST, local_session, run_native

    size = sized(chosen.size)
    spark = local_session(MEMORY)
    out = Path(tempfile.mkdtemp(dir=directory))
    began = time.perf_counter()
    inputs = {stream: directory / "in" / stream for stream in STREAMS}
    batches = run_native(
        spark,
        inputs,
        size.window,
        chosen.sink,
        out / "checkpoint",
        out / "out",
        settings=replace(FASTEST, shape=chosen.shape),
    )
    seconds = time.perf_counter() - began
    spark.stop()
    if chosen.sink == "parquet" and chosen.check:
        check(size, directory / "in", out / "out")
    return {"seconds": seconds, "batches": [asdict(b) for b in batches], "results": sum(b.results for b in batches)}


def run_trivial_here(chosen: argparse.Namespace, directory: Path) -> dict[str, Any]:
    from benchmarks.spark_native_j4 import local_session
    from benchmarks.spark_trivial_count import run_trivial

    spark = local_session(MEMORY)
    inputs = [directory / "in" / stream for stream in STREAMS]
    milliseconds = run_trivial(spark, inputs, Path(tempfile.mkdtemp(dir=directory)), chosen.cells, discard=TINY_WARM_UP)
    spark.stop()
    return {"milliseconds": milliseconds}


def tiny() -> Size:
    """1,000 rows per micro-batch, of four streams."""
    return Size(250, TINY_BATCHES, 500, 250)


def check(size: Size, inputs: Path, out: Path) -> None:
    """Raise unless the rows below ``out`` are exactly DuckDB's."""
    with tempfile.TemporaryDirectory() as scratch:
        found = checking.run(Task(str(inputs), size.batches, size.window, scratch, 0, options={"found": str(out)}))
    assert not any(found[name] for name in ("missing", "repeated", "wrong")), found


def state_bytes(checkpoint: Path) -> list[int]:
    from benchmarks.spark_native_j4 import state_bytes_written

    return [count for _, count in sorted(state_bytes_written(checkpoint).items())]


# All of them


def in_process(kind: str, directory: Path, *options: str, cores: str | None = None) -> dict[str, Any]:
    """Run a competitor in a process of its own, on some cores only if they are named."""
    target = Path(tempfile.mkstemp(dir=directory, suffix=".json")[1])
    command = [sys.executable, "-m", "benchmarks.spark_j4", "--run", kind, "--directory", str(directory)]
    command += ["--target", str(target), *options]
    if cores is not None:
        command = ["taskset", "-c", cores, *command]
    log = subprocess.run(command, capture_output=True, text=True, check=False)
    if log.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{log.stdout[-2000:]}\n{log.stderr[-4000:]}")
    figures: dict[str, Any] = json.loads(target.read_text())
    return figures


def steady(run: dict[str, Any]) -> float:
    """Input rows per second once windows are full."""
    batches = [batch for batch in run["batches"] if batch["input_rows"]]
    return batches[-1]["input_rows"] / statistics.median(batch["milliseconds"] for batch in batches[FULL:]) * 1000


def compare(name: str, expected: int) -> bool:
    """One size: native and midstream, both sinks."""
    from benchmarks.spark_native_j4 import write_input

    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        write_input(sized(name), directory / "in")
        figures: dict[str, Any] = {}
        details: dict[str, Any] = {}
        bars = []
        for sink in ("noop", "parquet"):
            options = ("--size", name, "--sink", sink)
            native = in_process("native", directory, *options)
            chain = in_process("native", directory, *options, "--shape", "chain")
            one = in_process("midstream", directory, *options, "--check")
            two = in_process("midstream", directory, *options, "--cells", "2")
            alone = in_process("midstream", directory, *options, "--no-work")
            for label, run in (("native", native), ("native chain", chain), ("1 cell", one), ("2 cells", two)):
                assert run["results"] == expected, (label, run["results"], expected)
                figures[f"{sink}, {label}: rows/s"] = round(steady(run))
                figures[f"{sink}, {label}: seconds in all"] = run["seconds"]
                details[f"{sink}, {label}"] = run["batches"]
            figures[f"{sink}, Spark alone: rows/s"] = round(steady(alone))
            details[f"{sink}, Spark alone"] = alone["batches"]
            best = max(steady(one), steady(two))
            figures[f"{sink}: Spark alone, times native chain"] = steady(alone) / steady(chain)
            figures[f"{sink}: times native"] = best / steady(native)
            figures[f"{sink}: times native chain"] = best / steady(chain)
            figures[f"{sink}: 2 cells to 1"] = steady(two) / steady(one)
            bars.append(Bar(f"{sink}: times native chain", 15 if name == "small" else 20, at_least=True))
        written = statistics.median(one["state_bytes"][FULL:])
        native_written = statistics.median(b["state_bytes"] for b in native["batches"][FULL:] if b["input_rows"])
        figures["state bytes per batch"] = written
        figures["native: state bytes per batch"] = native_written
        figures["state bytes, native to midstream"] = native_written / written
        return save(f"spark_j4_{name}", figures, *bars, details=details)


def compare_delta(name: str, expected: int) -> bool:
    """Durable, exactly-once sinks: a Delta table by the cells against parquet by Spark, native and ours."""
    from benchmarks.spark_native_j4 import write_input

    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        write_input(sized(name), directory / "in")
        size = ("--size", name)
        runs = {
            "delta, 1 cell": in_process("midstream", directory, *size, "--sink", "delta", "--check"),
            "delta, 2 cells": in_process("midstream", directory, *size, "--sink", "delta", "--cells", "2", "--check"),
            "delta, 1 cell, Spark reads": in_process(
                "midstream", directory, *size, "--sink", "delta", "--reader", "spark"
            ),
            "noop, 1 cell": in_process("midstream", directory, *size, "--sink", "noop"),
            "parquet, 1 cell": in_process("midstream", directory, *size, "--sink", "parquet"),
            "native tree, parquet": in_process("native", directory, *size, "--sink", "parquet", "--check"),
            "native chain, parquet": in_process(
                "native", directory, *size, "--sink", "parquet", "--shape", "chain", "--check"
            ),
        }
        figures: dict[str, Any] = {}
        for label, run in runs.items():
            assert run["results"] == expected, (label, run["results"], expected)
            figures[f"{label}: rows/s"] = round(steady(run))
            figures[f"{label}: seconds in all"] = run["seconds"]
        best = max(steady(runs["delta, 1 cell"]), steady(runs["delta, 2 cells"]))
        figures["delta: times native chain"] = best / steady(runs["native chain, parquet"])
        figures["delta: times native tree"] = best / steady(runs["native tree, parquet"])
        figures["delta to parquet, 1 cell"] = steady(runs["delta, 1 cell"]) / steady(runs["parquet, 1 cell"])
        figures["delta, midstream reads to Spark reads"] = steady(runs["delta, 1 cell"]) / steady(
            runs["delta, 1 cell, Spark reads"]
        )
        figures["delta to noop, 1 cell"] = steady(runs["delta, 1 cell"]) / steady(runs["noop, 1 cell"])
        is_small = name == "small"
        bars = [
            Bar("delta: times native chain", 15 if is_small else 25, at_least=True),
            Bar("delta: times native tree", 9 if is_small else 12, at_least=True),
        ]
        if name == "trial":
            print(*(f"{figure}: {value}" for figure, value in figures.items()), sep="\n")
            return True
        details = {label: run["batches"] for label, run in runs.items()}
        return save(f"spark_j4_delta_{name}", figures, *bars, details=details)


def compare_tiny() -> bool:
    """The fixed cost of a micro-batch."""
    from benchmarks.spark_native_j4 import write_input

    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        write_input(tiny(), directory / "in")
        figures = {}
        for cells in ("1", "2"):
            trivial = in_process("trivial", directory, "--cells", cells)["milliseconds"]
            ours = in_process("midstream", directory, "--size", "tiny", "--cells", cells)["batches"]
            own = [batch["milliseconds"] for batch in ours if batch["input_rows"]][TINY_WARM_UP:]
            figures[f"{cells} partitions: trivial, ms"] = statistics.median(trivial)
            figures[f"{cells} partitions: midstream, ms"] = statistics.median(own)
            figures[f"{cells} partitions: times trivial"] = statistics.median(own) / statistics.median(trivial)
        others = {"Spark reads the files": ("--reader", "spark"), "Python workers by TCP": ("--setting", BY_TCP)}
        for label, options in others.items():
            batches = in_process("midstream", directory, "--size", "tiny", *options)["batches"]
            own = [batch["milliseconds"] for batch in batches if batch["input_rows"]][TINY_WARM_UP:]
            figures[f"1 partitions: midstream, {label}, ms"] = statistics.median(own)
        bars = [Bar("1 partitions: times trivial", 1.2), Bar("1 partitions: midstream, ms", 250)]
        return save("spark_fixed_cost", figures, *bars)


def compare_warm() -> bool:
    """What a micro-batch costs once Java has compiled what it runs: J4 small to a Delta table, one cell, in turns."""
    from benchmarks.spark_native_j4 import write_input

    ways: dict[str, tuple[str, ...]] = {
        "the cell reads": (),
        "the cell reads, Python workers by TCP": ("--setting", BY_TCP),
        "Spark reads": ("--reader", "spark"),
        "the cell reads, Java's first compiler only": ("--setting", FIRST_COMPILER),
    }
    early: dict[str, list[dict[str, Any]]] = {label: [] for label in ways}
    runs: dict[str, list[dict[str, Any]]] = {label: [] for label in ways}
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        write_input(replace(sized("small"), batches=WARM_BATCHES), directory / "in")
        for _ in range(2):
            for label, options in ways.items():
                run = in_process("midstream", directory, "--size", "small", "--sink", "delta", *options)
                batches = [batch for batch in run["batches"] if batch["input_rows"]]
                early[label] += batches[FULL:BATCHES]
                runs[label] += batches[WARM_UP:]
    figures: dict[str, Any] = {}
    for label, batches in runs.items():
        durations = [batch["durations"] for batch in batches]
        figures[f"{label}: ms"] = statistics.median(batch["milliseconds"] for batch in batches)
        figures[f"{label}: ms, of the first {BATCHES}"] = statistics.median(b["milliseconds"] for b in early[label])
        figures[f"{label}: operator, ms"] = statistics.median(batch["operator_milliseconds"] for batch in batches)
        figures[f"{label}: job and commit, ms"] = statistics.median(one["addBatch"] for one in durations)
        figures[f"{label}: planning, ms"] = statistics.median(one["queryPlanning"] for one in durations)
        figures[f"{label}: offsets, ms"] = statistics.median(
            sum(one.get(part, 0) for part in ("latestOffset", "getBatch", "walCommit", "commitOffsets"))
            for one in durations
        )
        figures[f"{label}: rows/s"] = round(1000 * batches[-1]["input_rows"] / figures[f"{label}: ms"])
    return save("spark_warm_batches", figures, details=runs)


def compare_migration() -> bool:
    """A batch during a jisc migration against the batches before it."""
    from benchmarks.spark_native_j4 import write_input

    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        write_input(sized("large"), directory / "in")
        run = in_process("midstream", directory, "--size", "large", "--migrate")
        batches = [batch for batch in run["batches"] if batch["input_rows"]]
        first = next(place for place, batch in enumerate(batches) if batch["commands"])
        before = statistics.median(batch["milliseconds"] for batch in batches[FULL:first])
        during = [b["milliseconds"] for b in batches[first:] if b["migrating"]] or [batches[first]["milliseconds"]]
        figures = {
            "ordinary batch, ms": before,
            "batches migrating": len(during),
            "slowest batch during jisc, ms": max(during),
            "slowest during jisc to ordinary": max(during) / before,
        }
        return save(
            "spark_migration", figures, Bar("slowest during jisc to ordinary", 1.5), details={"batches": batches}
        )


def compare_cores() -> bool:
    """What the second core brings on one machine, and a second executor of one core."""
    from benchmarks.spark_native_j4 import write_input

    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        write_input(sized("large"), directory / "in")
        figures = {}
        for sink in ("noop", "parquet"):
            options = ("--size", "large", "--sink", sink)
            rates = {
                "1 core, 1 cell": steady(in_process("midstream", directory, *options, cores="0")),
                "2 cores, 1 cell": steady(in_process("midstream", directory, *options)),
                "2 cores, 2 cells": steady(in_process("midstream", directory, *options, "--cells", "2")),
                "1 executor": steady(
                    in_process("midstream", directory, *options, "--master", "local-cluster[1,1,4096]")
                ),
                "2 executors": steady(
                    in_process("midstream", directory, *options, "--cells", "2", "--master", "local-cluster[2,1,4096]")
                ),
            }
            figures |= {f"{sink}, {label}: rows/s": round(rate) for label, rate in rates.items()}
            best = max(rates["2 cores, 1 cell"], rates["2 cores, 2 cells"])
            figures[f"{sink}: second core brings"] = best / rates["1 core, 1 cell"]
            figures[f"{sink}: second executor brings"] = rates["2 executors"] / rates["1 executor"]
        return save("spark_cores", figures, Bar("noop: second executor brings", 1.4, at_least=True))


def compare_settings() -> bool:
    """What settings that a user may choose bring, with two cells on the large size."""
    from benchmarks.spark_native_j4 import write_input

    g1 = "spark.driver.extraJavaOptions=-XX:+UseG1GC"
    # With the parallel collector, which the session has by itself, where nothing else is said.
    ways: dict[str, tuple[str, ...]] = {
        "noop, G1 collector": ("noop", g1),
        "noop, parallel collector": ("noop",),
        "parquet, G1 collector": ("parquet", g1),
        "parquet, parallel collector": ("parquet",),
        "parquet, no dictionary": ("parquet", "spark.hadoop.parquet.enable.dictionary=false"),
    }
    rates: dict[str, list[float]] = {label: [] for label in ways}
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        write_input(sized("large"), directory / "in")
        # Twice, in turns: the machine is not always as quick.
        for _ in range(2):
            for label, (sink, *settings) in ways.items():
                given = [option for setting in settings for option in ("--setting", setting)]
                run = in_process("midstream", directory, "--size", "large", "--cells", "2", "--sink", sink, *given)
                rates[label].append(steady(run))
    mean = {label: statistics.mean(seen) for label, seen in rates.items()}
    figures: dict[str, Any] = {f"{label}: rows/s": round(value) for label, value in mean.items()}
    for sink in ("noop", "parquet"):
        to_g1 = mean[f"{sink}, parallel collector"] / mean[f"{sink}, G1 collector"]
        figures[f"{sink}: parallel collector to G1"] = to_g1
    figures["parquet: no dictionary to dictionary"] = (
        mean["parquet, no dictionary"] / mean["parquet, parallel collector"]
    )
    return save("spark_settings", figures)


def main(only: str | None = None, delta_sizes: tuple[str, ...] = ("small", "large")) -> bool:
    """All comparisons, or one; whether all bars are met."""
    from benchmarks.spark_native_j4 import expected_results

    met = True
    if only in (None, "delta"):
        for name in delta_sizes:
            met &= compare_delta(name, expected_results(sized(name)))
    if only in (None, "tiny"):
        met &= compare_tiny()
    if only in (None, "warm"):
        met &= compare_warm()
    for name in ("small", "large"):
        if only in (None, name):
            met &= compare(name, expected_results(sized(name)))
    if only in (None, "migration"):
        met &= compare_migration()
    if only in (None, "cores"):
        met &= compare_cores()
    if only in (None, "settings"):
        met &= compare_settings()
    return met


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["tiny", "warm", "delta", "small", "large", "migration", "cores", "settings"])
    parser.add_argument("--run", choices=["midstream", "native", "trivial"], help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--target", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--size", choices=["tiny", "small", "large", "trial"], help="with --only delta: only this size")
    parser.add_argument("--sink", default="noop", help=argparse.SUPPRESS)
    parser.add_argument("--cells", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--reader", choices=["files", "spark"], default="files", help=argparse.SUPPRESS)
    parser.add_argument("--shape", choices=["tree", "chain"], default="tree", help=argparse.SUPPRESS)
    parser.add_argument("--master", default="local[2]", help=argparse.SUPPRESS)
    parser.add_argument("--setting", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--no-work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--migrate", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is None:
        sizes = ("small", "large") if arguments.size is None else (arguments.size,)
        sys.exit(0 if main(arguments.only, sizes) else 1)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    arguments.size = arguments.size or "small"
    runs = {"midstream": run_midstream, "native": run_native_here, "trivial": run_trivial_here}
    arguments.target.write_text(json.dumps(runs[arguments.run](arguments, arguments.directory)))
