"""Run the demo, from generating its data to comparing the results."""

from __future__ import annotations

import importlib
import time
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from midstream.adaptation.calibration import calibrate
from midstream.adaptation.policy import Adaptation
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
    strategy: str | None,
    adapt: Adaptation | None,
    spark: bool,
    output: Path,
    console: Console | None,
    folder: Path,
    size: Size = FULL,
) -> int:
    """Run the demo with its files in ``folder``: the query changes its plan by itself, or (``adapt`` is None) by order.

    ``strategy`` is the only one that may be used; by default the query chooses one itself, and an order uses jisc.
    Returns 0 if the results are exact and the plan was replaced after the release, else 1.
    """
    console = console or Console()
    began = time.monotonic()
    by_order = strategy or "jisc"
    shop = query()
    # A strategy that refuses this migration does so before any data is written.
    shop.run_locally(OLD_ORDER).migrate(NEW_ORDER, by_order)
    if adapt is not None and strategy is not None:
        adapt = msgspec.structs.replace(adapt, strategies=(strategy,))
    recording = Recording(
        size,
        "Spark" if spark else "this process",
        shop.plan(OLD_ORDER),
        adapt is not None,
        by_order if adapt is None else strategy,
    )
    output.mkdir(parents=True, exist_ok=True)
    _say(console, TEXT)
    adapt = _prepare(console, size, by_order, adapt, folder / "in")
    if spark:
        _say(console, "starting Spark ...")
    with _runner(spark, size, folder, adapt) as runner:
        with view_for(console) as view:
            _watch(runner, recording, view)
        recording.migrations = runner.migrations()
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
    return 0 if verdict.is_exact and recording.switched_at is not None else 1


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _prepare(console: Console, size: Size, strategy: str, adapt: Adaptation | None, folder: Path) -> Adaptation | None:
    """Write the input, and compile the engine's kernels before a Spark worker needs them.

    Gives back ``adapt`` with the cost coefficients of this machine, unless it has some.
    """
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
        if adapt is not None and adapt.coefficients is None:
            progress.update(task, description="measuring what a join costs on this machine")
            adapt = msgspec.structs.replace(adapt, coefficients=calibrate())
        progress.update(task, description="writing the input")
        for _ in write_input(size, folder):
            progress.advance(task)
    return adapt


def _runner(spark: bool, size: Size, folder: Path, adapt: Adaptation | None) -> Runner:
    if not spark:
        return LocalRunner(size, folder, adapt)
    # Imported late: the demo runs in this process without pyspark.
    runner: Runner = importlib.import_module("midstream.demo.on_spark").SparkRunner(size, folder, adapt)
    return runner


def _watch(runner: Runner, recording: Recording, view: View) -> None:
    """Follow the run to its end. If the query does not adapt, call ``migrate`` when it is due."""
    for batch in runner.batches():
        if batch is not None:
            recording.batches.append(batch)
            if recording.should_migrate:
                runner.migrate(NEW_ORDER, recording.strategy or "jisc")
                recording.requested_at = len(recording.batches)
        # On Spark a batch is reported by its cells, and considered, shortly before it ends.
        ended = len(recording.batches)
        recording.decisions = [decision for decision in runner.decisions() if decision.push <= ended]
        view.show(recording)
    recording.decisions = runner.decisions()


def _summarise(console: Console, recording: Recording) -> None:
    """Throughput in each phase."""
    table = Table(*HEADINGS, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in table.columns[1:]:
        column.justify = "right"
    for row in phase_rows(recording):
        table.add_row(*row)
    console.print(table, highlight=False)
    _say(console, _outcome(recording))
    if recording.old_plan_figures is not None:
        _say(console, str(recording.old_plan_figures))


def _outcome(recording: Recording) -> str:
    if recording.switched_at is None:
        return "The plan was not replaced after the release."
    slowdown, speedup = recording.slowdown(), recording.speedup()
    if slowdown is None or speedup is None:
        # Too few batches: on Spark the decision may come when the input is nearly at its end.
        return f"The new plan was in effect from batch {recording.switched_at + 1} on."
    who = "Nobody called migrate. " if recording.adapts else ""
    return (
        f"After the release a batch took {slowdown:.1f} times as long. {who}The new plan, in effect from batch "
        f"{recording.switched_at + 1} on, is {speedup:.1f} times as fast. The query never stopped."
    )
