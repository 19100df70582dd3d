"""``midstream deploy``: start a deployment's coordinator and sites on this machine, and keep them running.

Each is a process of its own. One that ends by itself is started again and goes on from what it has stored.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from midstream.cli.deployment_status import read_status, summary
from midstream.cli.failures import DONE
from midstream.cli.output import Output, escape
from midstream.deployment.protocol.coordinator import Coordinator
from midstream.deployment.protocol.coordinator_requests import DeployQuery
from midstream.deployment.sites.deployment_directory import COORDINATOR, DeploymentDirectory
from midstream.deployment.sites.deployment_file import DeploymentFile, read_deployment
from midstream.deployment.sites.durable_files import holder
from midstream.deployment.sites.file_names import file_name
from midstream.errors import AlreadyRunning, BadArgument, SparkFailed, did_you_mean

__all__ = ["deploy"]

LOOK_SECONDS = 0.5
MOST_STARTS = 5
"""A process that ends so often within a minute is not started again."""
STOP_SECONDS = 20.0
LARGEST_LOG = 10_000_000
"""Bytes of a process's log. What it has is put aside then, and replaces what was put aside before."""


def deploy(
    file: Path | None, directory: Path, only: str | None, resume: bool, remove_feeds: bool, output: Output
) -> int:
    """Begin or resume a deployment, and run it until the user interrupts it."""
    if (file is None) != resume:
        raise BadArgument(
            "the deployment file is missing" if file is None else "--resume takes no deployment file",
            hint="Write midstream deploy FILE DIRECTORY, or midstream deploy --resume DIRECTORY.",
        )
    if file is not None:
        asked = read_deployment(file)
        if only is not None and only not in (COORDINATOR, *asked.sites):
            raise BadArgument(f'there is no site "{only}"', hint=did_you_mean(only, asked.sites))
        paths = _begin(asked, directory)
        output.say(f"deployment of {escape(str(file))} in {escape(str(paths.path))}")
        for query in asked.queries:
            output.say(escape(f"  results of {query.name}: {paths.results(query.name)}"))
        for stream, node in sorted({(s, n) for q in asked.queries for s, nodes in q.sources.items() for n in nodes}):
            output.say(escape(f"  rows of {stream} at {node}: {paths.feed(node, stream)}"))
    else:
        paths = DeploymentDirectory(directory)
        paths.layout()
    if only is not None:
        return _run_one(paths, only, remove_feeds)
    already = [name for name, runs in paths.running().items() if runs]
    if already:
        raise AlreadyRunning(
            f"{already[0]} of {paths.path} is running already",
            detail=holder(paths.lock(already[0])),
            hint="Stop it first, or run what is missing with --only.",
        )
    processes = _Processes(paths, remove_feeds)
    processes.start()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _watch(paths, processes, output)
    except KeyboardInterrupt:
        output.note("stopping")
    finally:
        processes.stop()
    output.document({"directory": str(paths.path), "state": "stopped"})
    return DONE


def _begin(asked: DeploymentFile, directory: Path) -> DeploymentDirectory:
    """Make the directory, and ask for the queries. What cannot be placed is refused before anything is made."""
    trial = Coordinator(asked.topology)
    for query in asked.queries:
        trial.deploy(query.stages())
    requests = [
        DeployQuery(tuple(query.stages()), tuple(field.name for field in query.plan.schema)) for query in asked.queries
    ]
    return DeploymentDirectory.create(directory, asked.topology, asked.sites, requests=requests)


def _run_one(paths: DeploymentDirectory, name: str, remove_feeds: bool) -> int:
    """Run the coordinator or one site in this process."""
    if name == COORDINATOR:
        from midstream.deployment.sites.coordinator_process import run_coordinator

        run_coordinator(paths.path)
    else:
        from midstream.spark.site import run_site

        run_site(paths.path, name, keep_feeds=not remove_feeds)
    return DONE


@dataclass
class _Process:
    """A process, and when it was started."""

    name: str
    popen: subprocess.Popen[bytes]
    starts: list[float] = field(default_factory=list)


class _Processes:
    """The coordinator and the sites, as processes of this one."""

    def __init__(self, paths: DeploymentDirectory, remove_feeds: bool = False) -> None:
        self._paths = paths
        self._options = ["--remove-feeds"] if remove_feeds else []
        self._running: dict[str, _Process] = {}

    def start(self) -> None:
        """Start all of them."""
        for name in self._paths.running():
            self._running[name] = _Process(name, self._start(name), [time.monotonic()])

    def restart_ended(self, note: Callable[[str], None]) -> None:
        """Start those again that have ended by themselves."""
        for process in list(self._running.values()):
            code = process.popen.poll()
            if code is None:
                continue
            if process.name != COORDINATOR and self._paths.given_up(process.name).exists():
                note(f"{process.name} was given up: its stages run elsewhere")
                del self._running[process.name]
                continue
            now = time.monotonic()
            process.starts = [*(start for start in process.starts if now - start < 60), now]
            if len(process.starts) > MOST_STARTS:
                raise SparkFailed(
                    f"{process.name} ends again and again (exit code {code})",
                    detail=_tail(self._log(process.name)),
                    hint=f"Its log is {self._log(process.name)}.",
                )
            note(f"{process.name} has ended (exit code {code}) and is started again")
            process.popen = self._start(process.name)

    def bound_logs(self) -> None:
        """Put aside what large logs have. Spark writes some lines for every micro-batch."""
        for name in self._running:
            log = self._log(name)
            if log.exists() and log.stat().st_size > LARGEST_LOG:
                shutil.copyfile(log, log.with_suffix(".old.log"))
                # The process appends to the same file.
                os.truncate(log, 0)

    def stop(self) -> None:
        """End all of them, politely at first."""
        for process in self._running.values():
            if process.popen.poll() is None:
                process.popen.send_signal(signal.SIGTERM)
        until = time.monotonic() + STOP_SECONDS
        for process in self._running.values():
            try:
                process.popen.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.popen.kill()
                process.popen.wait()

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        log = self._log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        if name == COORDINATOR:
            module = ["midstream.deployment.sites.coordinator_process", str(self._paths.path)]
        else:
            module = ["midstream.spark.site", str(self._paths.path), name, *self._options]
        with open(log, "ab") as file:
            return subprocess.Popen(
                [sys.executable, "-m", *module], stdout=file, stderr=file, env=_environment(), start_new_session=True
            )

    def _log(self, name: str) -> Path:
        return self._paths.path / "logs" / f"{file_name(name)}.log"


def _environment() -> Mapping[str, str]:
    """The children import what this process does."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _watch(paths: DeploymentDirectory, processes: _Processes, output: Output) -> None:
    """Say what changes."""
    said = ""
    while True:
        processes.restart_ended(lambda text: output.note(escape(text)))
        processes.bound_logs()
        status = read_status(paths)
        line = "" if status is None else summary(status)
        if line and line != said:
            output.say(escape(line))
            said = line
        time.sleep(LOOK_SECONDS)


def _tail(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return "It has no log."
    return " / ".join(lines[-3:])
