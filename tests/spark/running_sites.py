"""A deployment on this machine: its coordinator and its sites are processes, which can be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import psutil

from midstream.deployment.protocol.coordinator_requests import Request
from midstream.deployment.sites.coordinator_process import CoordinatorStatus
from midstream.deployment.sites.deployment_directory import DeploymentDirectory

COORDINATOR = "coordinator"


class RunningSites:
    """The processes of a deployment, by site; the coordinator is one of them."""

    def __init__(
        self, directory: DeploymentDirectory, logs: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.starts: dict[str, int] = {}
        self.started: dict[str, float] = {}
        """When each process was last started."""
        self._logs = logs
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(environment or {})}
        logs.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> RunningSites:
        return self

    def __exit__(self, *problem: object) -> None:
        for name in list(self.processes):
            self.kill(name)

    def start(self, *names: str) -> None:
        """Start processes that do not run."""
        for name in names or [COORDINATOR, *self.directory.layout().sites]:
            if name in self.processes and self.processes[name].poll() is None:
                continue
            self.starts[name] = self.starts.get(name, 0) + 1
            self.started[name] = time.time()
            module = (
                ["midstream.deployment.sites.coordinator_process"] if name == COORDINATOR else ["midstream.spark.site"]
            )
            site = [] if name == COORDINATOR else [name]
            with open(self._logs / f"{name}-{self.starts[name]}.log", "wb") as log:
                self.processes[name] = subprocess.Popen(
                    [sys.executable, "-m", *module, str(self.directory.path), *site],
                    stdout=log,
                    stderr=log,
                    env=self._environment,
                )

    def kill(self, name: str) -> None:
        """Kill a process, its Java and its Python workers, at once."""
        process = self.processes.pop(name)
        with contextlib.suppress(psutil.NoSuchProcess):
            tree = psutil.Process(process.pid)
            for each in [tree, *tree.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.send_signal(signal.SIGKILL)
        process.wait()

    def check(self) -> None:
        """Fail if a process has ended by itself."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                log = (self._logs / f"{name}-{self.starts[name]}.log").read_text(errors="replace")
                raise AssertionError(f"{name} ended with {process.returncode}:\n{log[-4000:]}")

    # What it does

    def ask(self, request: Request, seconds: float = 600) -> None:
        """Ask the coordinator something, and wait until it has taken it."""
        name = self.directory.submit(request)
        self.wait(lambda: self.directory.outcome(name) is not None, seconds, f"request {name} is not taken")
        assert self.directory.outcome(name) == ""

    def status(self) -> CoordinatorStatus | None:
        if not self.directory.status.exists():
            return None
        return msgspec.json.decode(self.directory.status.read_bytes(), type=CoordinatorStatus)

    def wait_until_idle(self, seconds: float = 600) -> CoordinatorStatus:
        """Wait until no generation is under way."""
        self.wait(lambda: (status := self.status()) is not None and status.is_idle, seconds, "a generation stays open")
        status = self.status()
        assert status is not None
        return status

    def wait(self, is_so: Callable[[], bool], seconds: float, problem: str) -> None:
        """Wait for something, and fail if it does not come or a process ends."""
        until = time.monotonic() + seconds
        while not is_so():
            self.check()
            assert time.monotonic() < until, problem
            time.sleep(0.1)

    def wait_for_results(self, query: str, count: int, seconds: float = 600) -> None:
        """Wait until a query has so many results."""

        def are_there() -> bool:
            return self.result_count(query) >= count

        self.wait(are_there, seconds, f"{query} has {self.result_count(query)} results, not {count}")

    def result_count(self, query: str) -> int:
        results = self.directory.read_results(query)
        return 0 if results is None else results.num_rows
