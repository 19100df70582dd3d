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
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.accumulators import AccumulatorParam

from midstream.algebra.plan import Plan
from midstream.algebra.plan_json import plan_from_json
from midstream.spark.control import ControlDirectory
from midstream.spark.progress import Progress

__all__ = ["Figures", "Report"]

SHOWN_MIGRATIONS = 50
"""Migrations in ``status.json``, the latest ones."""
_LOG = logging.getLogger(__name__)


class Report:
    """The plan in force, the migrations and the figures of a query; kept up to date while it runs."""

    def __init__(
        self, first_plan: Plan, control: ControlDirectory | None, progress: Progress, idle_after: float | None
    ) -> None:
        self._first_plan = first_plan
        self._control = control
        self._progress = progress
        self._idle_after = idle_after
        self._plans: dict[int, Plan] = {}
        self._texts: dict[int, str] = {}
        self._writes = _Later()

    @property
    def plan(self) -> Plan:
        """The plan in force, as far as the cells have told; during a migration, the one it leads to."""
        if self._control is None:
            return self._first_plan
        told = self._progress.plan_text() or (self._control.status() or {}).get("plan")
        if told is None or told == self._first_plan.explain():
            return self._first_plan
        for command in reversed(self._migrations()):
            if self._text_of(command) == told:
                return self._plan_of(command)
        # A query that was started again may have been given another plan than it was begun with.
        begun_with = self._restored((self._control.query() or {})["first_plan"])
        return begun_with if begun_with.explain() == told else self._first_plan

    def metrics(self) -> dict[str, Any]:
        """Counts of all cells together, and of each."""
        return self._progress.metrics()

    def history(self, latest: int | None = None) -> list[dict[str, Any]]:
        """The migrations asked for, in order, or the latest ones; and what became of each."""
        told = self._progress.outcomes()
        last_told = max(told, default=0)
        commands = self._migrations()
        return [
            {
                "id": command["id"],
                "plan": self._text_of(command),
                "strategy": command["strategy"],
                "options": command["options"],
                "written": command["written"],
                "state": _state(told.get(command["id"], []), is_past=command["id"] < last_told),
                "cells": told.get(command["id"], []),
            }
            for command in (commands if latest is None else commands[-latest:])
        ]

    def take(self, figures: list[str]) -> None:
        """A task has ended, and tells of its cells. Spark's scheduler waits for this: what takes time comes later."""
        self._progress.take([json.loads(text) for text in figures])
        self._writes.do(self._write)

    def _write(self) -> None:
        assert self._control is not None, "a query over batches tells nothing"
        if self._idle_after is not None:
            for stream, rows in self._progress.fallen_silent(self._idle_after).items():
                self._control.write({"kind": "idle", "stream": stream, "rows": rows})
        self._control.write_status(
            {
                "plan": self.plan.explain(),
                "history": self.history(SHOWN_MIGRATIONS),
                "metrics": self.metrics(),
                "told": time.time(),
            }
        )

    def _migrations(self) -> list[dict[str, Any]]:
        """The commands to migrate, in order."""
        commands = [] if self._control is None else self._control.commands()
        return [command for command in commands if command.get("kind") == "migrate"]

    def _plan_of(self, command: Mapping[str, Any]) -> Plan:
        if command["id"] not in self._plans:
            self._plans[command["id"]] = self._restored(command["plan"])
        return self._plans[command["id"]]

    def _text_of(self, command: Mapping[str, Any]) -> str:
        if command["id"] not in self._texts:
            self._texts[command["id"]] = self._plan_of(command).explain()
        return self._texts[command["id"]]

    def _restored(self, described: Mapping[str, Any]) -> Plan:
        plan = plan_from_json(described)
        plan.mark_as_derived_from(self._first_plan.derived_from)
        return plan


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


def _state(outcomes: list[dict[str, Any]], is_past: bool) -> str:
    """What became of a command, from what the cells say; of old ones they remember nothing but that they are done."""
    if not outcomes:
        return "ended" if is_past else "written"
    for state in ("refused", "unchanged"):
        if any(outcome["outcome"] == state for outcome in outcomes):
            return state
    under_way = any(outcome["record"] is not None and not outcome["record"]["is_over"] for outcome in outcomes)
    return "begun" if under_way else "ended"
