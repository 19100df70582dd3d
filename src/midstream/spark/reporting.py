"""What a running query tells of itself: figures that its tasks send, what became of commands, the plan in force.

    task ends ─▶ accumulator ─▶ Progress ─▶ LiveQuery.metrics(), history(), plan
                                   └──────▶ status.json, for other processes

Spark's scheduler calls as a task ends, before its micro-batch is committed: a figure may tell of a batch that fails
after all, and is then told again. The report outlives the ``LiveQuery`` that made it, as the running query does.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from pyspark.accumulators import AccumulatorParam

from midstream.algebra.plan import Plan
from midstream.algebra.plan_json import plan_to_json
from midstream.spark.control import ControlDirectory
from midstream.spark.plan_changes import PlanChanges
from midstream.spark.progress import Progress, Rates

__all__ = ["Figures", "Report"]

SHOWN_MIGRATIONS = 50
"""Migrations in ``status.json``, the latest ones."""
_LOG = logging.getLogger(__name__)


class Report:
    """The plan in force, the migrations and the figures of a query; kept up to date while it runs."""

    def __init__(
        self,
        first_plan: Plan,
        progress: Progress,
        control: ControlDirectory | None = None,
        changes: PlanChanges | None = None,
        idle_after: float | None = None,
    ) -> None:
        """Without a control directory it is of a query over batches: nothing changes, and nothing is told."""
        self._first_plan = first_plan
        self._progress = progress
        self._control = control
        self._changes = changes
        self._idle_after = idle_after
        self._rates = Rates()
        self._writes = _Later()
        self._writing = threading.Lock()
        self._has_ended = False
        self._claimed_for: str | None = None

    @property
    def plan(self) -> Plan:
        """The plan in force, as far as the cells have told; during a migration, the one it leads to."""
        if self._control is None or self._changes is None:
            return self._first_plan
        return self._changes.in_force(self._progress.plan() or (self._control.status() or {}).get("plan_json"))

    def metrics(self) -> dict[str, Any]:
        """Counts of all cells together, and of each."""
        return self._progress.metrics()

    def history(self, latest: int | None = None) -> list[dict[str, Any]]:
        """The migrations asked for, in order, or the latest ones; and what became of each."""
        told = self._progress.outcomes()
        last_told = max(told, default=0)
        if self._changes is None:
            return []
        commands = self._changes.commands()
        return [
            {
                "id": command["id"],
                "plan": self._changes.text_of(command),
                "strategy": command["strategy"],
                "options": command["options"],
                "written": command["written"],
                "state": _state(told.get(command["id"], []), self._progress.cells, command["id"] < last_told),
                "cells": told.get(command["id"], []),
            }
            for command in (commands if latest is None else commands[-latest:])
        ]

    def rates(self) -> dict[str, float | None]:
        """Rows and results per second."""
        return self._rates.after(self.metrics())

    def take(self, figures: list[str]) -> None:
        """A task has ended, and tells of its cells. Spark's scheduler waits for this: what takes time comes later."""
        self._progress.take([json.loads(text) for text in figures])
        self._writes.do(self.write)

    def end(self) -> None:
        """All is committed, the end of the streams too: only now another process may take the run for complete."""
        self._has_ended = True
        self.write()

    def write(self) -> None:
        """Write ``status.json``, and commands about streams that have fallen silent."""
        assert self._control is not None, "a query over batches tells nothing"
        # One at a time: else what is older may be written later.
        with self._writing:
            if not self._progress.has_begun:
                # What an earlier run told still holds.
                return
            if self._idle_after is not None:
                for stream, rows in self._progress.fallen_silent(self._idle_after).items():
                    self._control.write({"kind": "idle", "stream": stream, "rows": rows}, self.metrics()["query"])
                    self._progress.asked(stream, rows)
            metrics = self.metrics()
            if metrics["query"] not in (None, self._claimed_for):
                self._control.claim(metrics["query"])
                self._claimed_for = metrics["query"]
            plan = self.plan
            self._control.write_status(
                {
                    "plan": plan.explain(),
                    "plan_json": plan_to_json(plan),
                    "history": self.history(SHOWN_MIGRATIONS),
                    "metrics": metrics,
                    "has_ended": self._has_ended,
                    "rates": self._rates.after(metrics),
                    "told": time.time(),
                }
            )


class Figures(AccumulatorParam[list[str]]):
    """How figures come to the driver: gathered in a task, and handed on there instead of being kept."""

    def __init__(self, take: Callable[[list[str]], None] | None = None) -> None:
        self._take = take

    def __reduce__(self) -> tuple[type[Figures], tuple[()]]:
        return Figures, ()

    def zero(self, value: list[str]) -> list[str]:
        return []

    def addInPlace(self, value1: list[str], value2: list[str]) -> list[str]:
        if self._take is None:
            return value1 + value2
        if value2:
            self._take(value2)
        return []


class _Later:
    """Something to be done soon in a thread of its own; once, however often it is asked for meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: Callable[[], None] | None = None
        self._is_busy = False

    def do(self, action: Callable[[], None]) -> None:
        with self._lock:
            self._waiting = action
            if self._is_busy:
                return
            self._is_busy = True
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                action, self._waiting = self._waiting, None
                if action is None:
                    self._is_busy = False
                    return
            try:
                action()
            except Exception:
                # It is tried again after the next micro-batch.
                _LOG.exception("what the query tells of itself could not be written")


def _state(outcomes: list[dict[str, Any]], cells: int, is_past: bool) -> str:
    """What became of a command, from what so many cells say; of old ones they know nothing but that they are done."""
    if not outcomes:
        return "ended" if is_past else "written"
    for state in ("refused", "unchanged"):
        if any(outcome["outcome"] == state for outcome in outcomes):
            return state
    under_way = any(outcome["record"] is not None and not outcome["record"]["is_over"] for outcome in outcomes)
    return "begun" if under_way or len(outcomes) < cells else "ended"
