"""Competitors' processes: started with a task, watched for memory and time, and ended whatever happens."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.peers.environments import ROOT
from benchmarks.peers.task import Task, hand_over, outcome_of

_NUMBERS = itertools.count()
SHORTEST_PAUSE = 0.1
PAUSE_TO_SAMPLE = 20
"""How many times longer to wait between two samples of the memory than a sample takes: they must not cost time."""
SHARE_OF_MEMORY = 0.8
"""How much of the memory that is free before it starts a competitor may take: the machine must live on."""


class CompetitorFailed(Exception):
    """A competitor's process did not do its task; the message says why."""


@dataclass(frozen=True)
class Run:
    """What came of a task, the seconds of the whole process, and the peak memory of it and its children."""

    outcome: dict[str, Any]
    seconds: float
    peak_mebibytes: float


def run_in_process(
    module: str, task: Task, python: Path | None = None, variables: Mapping[str, str] | None = None
) -> Run:
    """Run ``python -m module`` on a task, in a session of its own; all its processes are gone afterwards."""
    path = Path(task.scratch) / f"task_{next(_NUMBERS)}.json"
    hand_over(task, path)
    command = [str(python or sys.executable), "-m", module, str(path)]
    log = path.with_suffix(".log")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]), **(variables or {})}
    most = SHARE_OF_MEMORY * psutil.virtual_memory().available / 2**20
    began = time.perf_counter()
    with log.open("w") as written:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=written, stderr=subprocess.STDOUT, start_new_session=True
        )
    peak, was_in_time, seconds = 0.0, True, 0.0
    seen: set[psutil.Process] = set()
    try:
        while process.poll() is None and was_in_time and peak <= most:
            sampled = time.perf_counter()
            alive = _tree(process.pid)
            seen.update(alive)
            peak = max(peak, _mebibytes(alive))
            pause = max(SHORTEST_PAUSE, PAUSE_TO_SAMPLE * (time.perf_counter() - sampled))
            was_in_time = time.perf_counter() - began < task.seconds
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(pause)
        seconds = time.perf_counter() - began
    finally:
        # Also what a process leaves behind when it ends by itself, and what began a session of its own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for left in seen:
            with contextlib.suppress(psutil.Error):
                left.kill()
        process.wait()
    if not was_in_time:
        raise CompetitorFailed(f"not done within {task.seconds:.0f} s")
    if peak > most:
        raise CompetitorFailed(
            f"stopped: it took more than {most / 1024:.1f} GiB of memory, {seconds:.0f} s after it began"
        )
    if process.returncode:
        raise CompetitorFailed(_reason(log.read_text(errors="replace"), process.returncode))
    return Run(outcome_of(path), seconds, peak)


def _tree(root: int) -> list[psutil.Process]:
    """A process and all below it."""
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(root)
        return [parent, *parent.children(recursive=True)]
    return []


def _mebibytes(processes: list[psutil.Process]) -> float:
    """The memory of all of them; pages that several share count once."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total / 2**20


def _reason(log: str, code: int) -> str:
    """The last thing a failed process said that looks like a reason."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    reasons = [
        line for line in lines if not line.startswith("at ") and ("Error" in line or "Exception" in line)
    ] or lines
    return f"ended with {code}: {reasons[-1][:300] if reasons else 'no word'}"
