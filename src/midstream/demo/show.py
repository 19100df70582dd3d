"""Run the demo, from generating its data to comparing the results."""

from __future__ import annotations

import importlib
import time
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from midstream.demo.checking import compare_with_duckdb
from midstream.demo.just_in_time import measure_old_plan
from midstream.demo.recording import Recording
from midstream.demo.report import HEADINGS, phase_rows, write_report
from midstream.demo.runner import LocalRunner, Runner
from midstream.demo.scenario import FULL, NEW_ORDER, OLD_ORDER, TEXT, Size, make_batch, query, write_input
from midstream.demo.view import View, view_for

__all__ = ["show_demo"]

_SMALL = Size(rows=200, visits=50, known=20, batches=4, release=2, migrate_after=0)
"""Enough rows to compile every kernel that the demo uses."""


def show_demo(
    strategy: str, spark: bool, output: Path, console: Console | None, folder: Path, size: Size = FULL
) -> int:
    """Run the demo with its files in ``folder``. Returns 0 if the results are exact, else 1."""
    console = console or Console()
    began = time.monotonic()
    shop = query()
    recording = Recording(
        size, strategy, "Spark" if spark else "this process", shop.plan(OLD_ORDER), shop.plan(NEW_ORDER)
    )
    # A strategy that refuses this migration does so before any data is written.
    shop.run_locally(OLD_ORDER).migrate(NEW_ORDER, strategy)
    output.mkdir(parents=True, exist_ok=True)
    _say(console, TEXT)
    _prepare(console, size, strategy, folder / "in")
    if spark:
        _say(console, "starting Spark ...")
    with _runner(spark, size, folder) as runner:
        with view_for(console) as view:
            _watch(runner, recording, view)
        recording.migration = runner.migration()
    _say(console, f"comparing with DuckDB over all {sum(batch.rows for batch in recording.batches):,} rows ...")
    verdict = compare_with_duckdb(folder / "in", runner.result_files(), folder / "duckdb")
    recording.old_plan_figures = measure_old_plan(size, folder / "in")
    picture, page = write_report(recording, verdict, output)
    _summarise(console, recording)
    rows = sum(batch.rows for batch in recording.batches)
    console.print(
        f"{rows:,} rows in, {verdict}", style="bold green" if verdict.is_exact else "bold red", highlight=False
    )
    _say(console, f"{time.monotonic() - began:.0f} s in total; report:\n  {picture}\n  {page}")
    return 0 if verdict.is_exact else 1


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _prepare(console: Console, size: Size, strategy: str, folder: Path) -> None:
    """Write the input, and compile the engine's kernels before a Spark worker needs them."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("compiling kernels (slower the first time)", total=size.batches + _SMALL.batches)
        run, just_in_time = query().run_locally(OLD_ORDER), query().run_locally(OLD_ORDER, just_in_time=True)
        for number in range(_SMALL.batches):
            if number == _SMALL.release:
                run.migrate(NEW_ORDER, strategy)
            batch = make_batch(_SMALL, number)
            run.push(batch)
            just_in_time.push(batch)
            progress.advance(task)
        progress.update(task, description="writing the input")
        for _ in write_input(size, folder):
            progress.advance(task)


def _runner(spark: bool, size: Size, folder: Path) -> Runner:
    if not spark:
        return LocalRunner(size, folder)
    # Imported late: the demo runs in this process without pyspark.
    runner: Runner = importlib.import_module("midstream.demo.on_spark").SparkRunner(size, folder)
    return runner


def _watch(runner: Runner, recording: Recording, view: View) -> None:
    """Follow the run to its end, and request the migration when it is due."""
    for batch in runner.batches():
        if batch is not None:
            recording.batches.append(batch)
            if recording.should_migrate:
                runner.migrate(NEW_ORDER, recording.strategy)
                recording.requested_at = len(recording.batches)
        view.show(recording)


def _summarise(console: Console, recording: Recording) -> None:
    """Throughput in each phase."""
    table = Table(*HEADINGS, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in table.columns[1:]:
        column.justify = "right"
    for row in phase_rows(recording):
        table.add_row(*row)
    console.print(table, highlight=False)
    slowdown, speedup = recording.slowdown(), recording.speedup()
    if slowdown is not None and speedup is not None:
        _say(
            console,
            f"After the release a batch took {slowdown:.1f} times as long. The new plan, in effect from batch "
            f"{(recording.switched_at or 0) + 1} on, is {speedup:.1f} times as fast. The query never stopped.",
        )
    if recording.old_plan_figures is not None:
        _say(console, str(recording.old_plan_figures))
