"""A deployment on real Spark sites of this machine, for benchmarks: its coordinator and its sites are processes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from midstream.deployment.protocol.coordinator_requests import Request
from midstream.deployment.sites.coordinator_process import CoordinatorStatus
from midstream.deployment.sites.deployment_directory import DeploymentDirectory

__all__ = ["Results", "SparkSites"]

POLL_SECONDS = 0.02


class SparkSites:
    """The processes of a deployment, from start to end of a ``with`` block; ``spark_process`` has the approaches."""

    def __init__(
        self, directory: DeploymentDirectory, approach: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self._approach = approach
        self._settings = [f"{name}={value}" for name, value in (settings or {}).items()]
        self._logs = directory.path.with_name(f"{directory.path.name}.logs")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._restarts_left = 4
        """Until something is deployed: on a busy machine Spark gives up on Python workers that start slowly."""

    def __enter__(self) -> SparkSites:
        self._logs.mkdir(parents=True, exist_ok=True)
        for name in ("coordinator", *self.directory.layout().sites):
            self._start(name)
        return self

    def _start(self, name: str) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        arguments = [self._approach, str(self.directory.path), name, *self._settings]
        with open(self._logs / f"{name}.log", "ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.isqd.spark_process", *arguments],
                stdout=log,
                stderr=log,
                env=environment,
            )

    def __exit__(self, *problem: object) -> None:
        for process in self._processes.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                tree = psutil.Process(process.pid)
                for each in [tree, *tree.children(recursive=True)]:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        each.kill()
            process.wait()

    def ask(self, request: Request, seconds: float = 900.0) -> float:
        """Ask the coordinator something, and wait until it has taken it. When it was asked, in seconds of the epoch."""
        asked = time.time()
        name = self.directory.submit(request)
        self.wait(lambda: self.directory.outcome(name) is not None, seconds, f"request {name} is not taken")
        refusal = self.directory.outcome(name)
        if refusal:
            raise RuntimeError(refusal)
        return asked

    def status(self) -> CoordinatorStatus | None:
        """What the coordinator last said."""
        with contextlib.suppress(FileNotFoundError):
            return msgspec.json.decode(self.directory.status.read_bytes(), type=CoordinatorStatus)
        return None

    def deploy(self, *requests: Request) -> None:
        """Deploy queries, and wait until they run. From now on every process must stay."""
        for request in requests:
            self.ask(request)
        self.wait_until_idle()
        self._restarts_left = 0

    def counts(self) -> dict[str, Any]:
        """What the coordinator has counted."""
        counted: dict[str, Any] = json.loads(self.directory.status.with_name("counts.json").read_bytes())
        return counted

    def wait_until_idle(self, seconds: float = 900.0) -> CoordinatorStatus:
        """Wait until no change is under way."""
        self.wait(lambda: (s := self.status()) is not None and s.is_idle, seconds, "a change stays open")
        status = self.status()
        assert status is not None
        return status

    def wait(self, is_so: Callable[[], bool], seconds: float, problem: str) -> None:
        """Wait for something. Raises if it does not come or if a process ends."""
        until = time.monotonic() + seconds
        while not is_so():
            for name, process in self._processes.items():
                if process.poll() is not None and self._restarts_left:
                    self._restarts_left -= 1
                    self._start(name)
                    break
                if process.poll() is not None:
                    log = (self._logs / f"{name}.log").read_text(errors="replace")
                    raise RuntimeError(f"{name} ended with {process.returncode}:\n{log[-4000:]}")
            if time.monotonic() > until:
                raise TimeoutError(problem)
            time.sleep(POLL_SECONDS)


class Results:
    """The results of a query as they come, each file once, with the moment at which it was complete."""

    def __init__(self, directory: DeploymentDirectory, query: str) -> None:
        self._folder: Path = directory.results(query)
        self._seen: set[str] = set()
        self.found: list[tuple[float, pa.Table]] = []

    def look(self) -> list[tuple[float, pa.Table]]:
        """All that has come so far, in the order in which it was found."""
        names = {path.name for path in self._folder.glob("[!_]*.parquet")} if self._folder.exists() else set()
        for name in sorted(names - self._seen):
            path = self._folder / name
            self.found.append((path.stat().st_mtime, pq.read_table(path)))
        self._seen |= names
        return self.found

    def arrival(self, column: str, value: int) -> float | None:
        """When the first result with this value was complete; None if it has not come."""
        for moment, table in self.look():
            if value in table[column].to_pylist():
                return moment
        return None
