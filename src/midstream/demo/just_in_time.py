"""What the release costs if the old plan stays: measured in this process, with and without just-in-time processing."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from midstream.demo.scenario import OLD_ORDER, Size, query, read_batch

__all__ = ["OldPlanFigures", "measure_old_plan"]

BATCHES_BEFORE = 4
"""Batches before the release that are measured; two more fill the windows."""


@dataclass(frozen=True)
class OldPlanFigures:
    """Median seconds per batch with the old plan."""

    before: float
    """Before the release."""
    after: float
    after_just_in_time: float

    def __str__(self) -> str:
        return (
            f"If the old plan stayed, a batch would take {self.after:.2f} s after the release instead of "
            f"{self.before:.2f} s; with just-in-time processing {self.after_just_in_time:.2f} s "
            "(measured in one process, without Spark)."
        )


def measure_old_plan(size: Size, folder: Path) -> OldPlanFigures:
    """Run the old plan over the batches around the release, with and without just-in-time processing in turns."""
    runs = {just_in_time: query().run_locally(OLD_ORDER, just_in_time=just_in_time) for just_in_time in (False, True)}
    seconds: dict[bool, dict[int, float]] = {False: {}, True: {}}
    for number in range(max(0, size.release - BATCHES_BEFORE - 2), size.release + max(1, size.migrate_after)):
        tables = read_batch(folder, number)
        for just_in_time, run in runs.items():
            began = time.perf_counter()
            run.push(tables)
            seconds[just_in_time][number] = time.perf_counter() - began

    def median(just_in_time: bool, *, after: bool) -> float:
        # The first batches fill the windows.
        first = size.release if after else min(seconds[just_in_time]) + 2
        chosen = [
            taken
            for number, taken in seconds[just_in_time].items()
            if number >= first and (number >= size.release) == after
        ]
        return statistics.median(chosen or list(seconds[just_in_time].values()))

    return OldPlanFigures(median(False, after=False), median(False, after=True), median(True, after=True))
