"""Who takes part, and how a competitor is run at one rate."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.latency.load import LONGEST_WARM_UP_SECONDS, STREAMS, WINDOW_MS, Load
from benchmarks.latency.outcome import Outcome, differences_from_duckdb, latencies
from benchmarks.latency.stages import LONGEST_DRAIN_SECONDS
from benchmarks.latency.visibility import commits, visible_files
from benchmarks.peers.competitors import FLINK_VARIABLES
from benchmarks.peers.environments import FLINK, ROOT, Environment, EnvironmentFailed
from benchmarks.peers.processes import CompetitorFailed, Run, run_in_process
from benchmarks.peers.task import Task, hand_over, outcome_of

START_SECONDS = 120.0
"""What an engine may take to start and to stop."""


@dataclass(frozen=True)
class Competitor:
    """An engine, what its files are, and what its sink is; ``options`` are for its module."""

    name: str
    module: str
    sink: str
    form: str = "parquet"
    environment: Environment | None = None
    options: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    def run(self, task: Task) -> Run:
        """One task in a process of its own; its environment is made if need be."""
        if self.environment is not None:
            self.environment.make()
        python = None if self.environment is None else self.environment.python
        variables = {key: value.format(scratch=task.scratch) for key, value in self.variables.items()}
        return run_in_process(f"benchmarks.latency.{self.module}", task, python, variables)


COMPETITORS = (
    Competitor("midstream", "midstream_on_spark", "Delta by the cells"),
    Competitor("midstream-kafka", "midstream_on_spark", "Delta by the cells, rows from Kafka", "kafka"),
    Competitor("native-spark", "native_spark", "parquet"),
    Competitor(
        "flink",
        "flink_sql",
        "CSV, a checkpoint every second",
        "csv",
        FLINK,
        {"checkpoints": "1 s"},
        FLINK_VARIABLES,
    ),
    Competitor(
        "flink-often",
        "flink_sql",
        "CSV, a checkpoint every 250 ms",
        "csv",
        FLINK,
        {"checkpoints": "250 ms"},
        FLINK_VARIABLES,
    ),
)
"""Flink twice: its results are visible with the next checkpoint. A second is common; 250 ms is our micro-batch."""


def compete(competitor: Competitor, load: Load) -> Outcome:
    """Feed a competitor and see what comes of it; a failure is part of the outcome."""
    load = replace(load, form=competitor.form)
    with tempfile.TemporaryDirectory(prefix="latency_") as temporary:
        directory = Path(temporary)
        for stream in STREAMS:
            (directory / "in" / stream).mkdir(parents=True)
        (directory / "scratch").mkdir()
        seconds = START_SECONDS + max(load.warm_up, LONGEST_WARM_UP_SECONDS) + load.measured + LONGEST_DRAIN_SECONDS
        inputs, output = directory / "in", directory / "results"
        task = Task(str(inputs), 0, WINDOW_MS, str(directory / "scratch"), seconds, str(output))
        try:
            with _broker(competitor.form, directory / "broker") as known:
                task = replace(task, options={**competitor.options, **known})
                with _Generator(task, load, directory / "generator.json") as generator:
                    run = competitor.run(task)
                    written = generator.outcome()
        except (CompetitorFailed, EnvironmentFailed, OSError) as error:
            return Outcome(load, failure=str(error))
        visible = visible_files(output)
        return Outcome(
            load,
            engine=run.outcome["engine"],
            peak_mebibytes=run.peak_mebibytes,
            latest_file=written["latest"],
            measured_from=written["measured from"],
            commits=commits(visible),
            results=latencies(visible, written["renamed"], load),
            differences=differences_from_duckdb(inputs, list(visible), load),
        )


@contextlib.contextmanager
def _broker(form: str, directory: Path) -> Iterator[dict[str, Any]]:
    """What a task knows of the broker, if rows come from one: the one of the tests, with a topic for each stream."""
    if form != "kafka":
        yield {}
        return
    from tests.kafka.broker import Broker
    from tests.kafka.packages import Unreachable, connector_jars

    try:
        jars = connector_jars()
        broker = Broker(directory)
    except Unreachable as problem:
        raise CompetitorFailed(str(problem)) from None
    with broker:
        for stream in STREAMS:
            broker.create(stream)
        yield {"broker": broker.address, "jars": jars}


class _Generator:
    """The process that writes the input of a task; gone at the end, whatever happens."""

    def __init__(self, task: Task, load: Load, path: Path) -> None:
        self._path = path
        hand_over(replace(task, options={**task.options, "load": asdict(load)}), path)

    def __enter__(self) -> _Generator:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
        command = [sys.executable, "-m", "benchmarks.latency.generator", str(self._path)]
        self._process = subprocess.Popen(command, cwd=ROOT, env=environment)
        return self

    def outcome(self) -> dict[str, Any]:
        """What it wrote, and when."""
        if self._process.wait(START_SECONDS):
            raise CompetitorFailed(f"the generator ended with {self._process.returncode}")
        return outcome_of(self._path)

    def __exit__(self, *problem: object) -> None:
        self._process.kill()
        self._process.wait()
