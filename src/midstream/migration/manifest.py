"""A running query as data: what must be stored, besides the rows in their windows, to resume it elsewhere.

A cell's manifest names the plans at work, how boxes are nested (a migration in progress is a box that holds two) and
the migrations that are not over. It is small, and changes only when a migration starts, completes or is in progress:
everything that grows with the rows is derived from the windows. It is plain JSON, so that it can lie in a checkpoint
for years.

    {"plans": [plan, ...],
     "box": {"kind": "plan", "plan": 0, ...},
     "migrations": 3,
     "running": [{"part": 0, "record": {"strategy": "jisc", ...}}]}

Executor 0 is the outermost one, and the parts of an executor are counted as ``Executor.parts`` gives them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from midstream.algebra.plan import Plan
from midstream.algebra.plan_json import plan_from_json, plan_to_json
from midstream.engine.state.window_store import WindowStore
from midstream.execution.executor import Executor
from midstream.execution.just_in_time import JustInTime
from midstream.execution.plan_executor import PlanExecutor
from midstream.migration.gen_mig import GEN_MIG_BOXES
from midstream.migration.parallel_track import ParallelTrackBox
from midstream.migration.record import MigrationRecord
from midstream.migration.two_boxes import TwoBoxes

__all__ = ["PlanList", "executor_from_manifest", "plans_from_manifest"]

_KINDS: list[type[TwoBoxes]] = [ParallelTrackBox, *GEN_MIG_BOXES]
_MIGRATIONS = {box.kind: box for box in _KINDS}


class PlanList:
    """The plans that a manifest names, each once."""

    def __init__(self) -> None:
        self._plans: list[Plan] = []

    def number_of(self, plan: Plan) -> int:
        """The plan's place in the list, where it is put if it is not there yet."""
        if plan not in self._plans:
            self._plans.append(plan)
        return self._plans.index(plan)

    def as_json(self) -> list[dict[str, Any]]:
        return [plan_to_json(plan) for plan in self._plans]


def plans_from_manifest(manifest: Mapping[str, Any], derived_from: str | None) -> list[Plan]:
    """The plans that a manifest names."""
    return [_plan(json.dumps(plan), derived_from) for plan in manifest["plans"]]


@lru_cache(maxsize=128)
def _plan(text: str, derived_from: str | None) -> Plan:
    """Kept, because the cells of a query, or one cell again and again, are made from the same plans."""
    return plan_from_json(json.loads(text), derived_from)


def executor_from_manifest(
    manifest: Mapping[str, Any],
    plans: Sequence[Plan],
    make: Callable[[Plan, JustInTime | None], PlanExecutor],
    windows: WindowStore,
    watermark: int,
    records: Mapping[int, MigrationRecord],
) -> Executor:
    """The executor that a manifest describes, without any derived state: it is to be rebuilt before it is used."""
    if manifest["kind"] == "plan":
        options = manifest.get("just_in_time")
        executor = make(plans[manifest["plan"]], None if options is None else JustInTime(**options))
        executor.completion_budget = manifest["completion_budget"]
        for operator, emits_from in zip(executor.final_operators, manifest["emits_from"], strict=True):
            operator.emits_from = emits_from
        executor.advance(watermark)
        return executor
    old, new = (
        executor_from_manifest(manifest[side], plans, make, windows, watermark, records) for side in ("old", "new")
    )
    assert isinstance(new, PlanExecutor)
    kind = _MIGRATIONS[manifest["kind"]]
    return kind.from_manifest(manifest, old, new, windows, records[manifest["record"]])
