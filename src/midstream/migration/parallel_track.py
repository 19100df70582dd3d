"""Parallel track: old and new plan side by side until the old one holds nothing old.

Zhu et al. 2004, section 4.2 and algorithm 3. At the start of the migration all rows in the windows are *old*; what
comes later is *new* and goes to both boxes. The old box gives every result with an old part; results of new parts only
are left out there, at its root and nowhere below (section 4.2.2), because the new box gives them. Marks cost nothing
here: rows are numbered as they come, so that "new" is a row number. The new box's results are buffered until the old
box goes.

The old box goes when it holds no old tuple. A tuple with an old part ends no later than that part, and states are
purged by the watermark: that is when the last old row ends, a window's length W after the start, however high the plan
is. In the paper a state is purged by the tuples of the other input; combined ones lag by up to W, so that it takes 2 W
where a join sits on a join (equation 4). ``as_published=True`` waits as long.

Distinct, aggregates and differences give results that are neither old nor new (Krämer et al. 2006, section 3.2), so
that plans with them are refused.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Self

import numpy as np

from midstream.algebra.plan import Join, MultiJoin, Plan
from midstream.algebra.window_spec import NEVER
from midstream.engine.batch import Batch
from midstream.engine.operators.state_handle import StateInventory
from midstream.engine.ordered import in_one_order, lasting
from midstream.engine.state.window_store import InputBatches, WindowStore
from midstream.errors import MigrationRefused
from midstream.execution.executor import Executor, NumberOf, Rebuild
from midstream.execution.plan_executor import PlanExecutor
from midstream.migration.record import MigrationRecord
from midstream.migration.strategy import (
    MigrationContext,
    MigrationStart,
    check_flag,
    other_stateful_operators,
    refuse_endless_windows,
)
from midstream.migration.two_boxes import TwoBoxes

__all__ = ["ParallelTrack", "ParallelTrackBox"]


@dataclass(frozen=True)
class ParallelTrack:
    """Both plans run until the old one holds no old tuple; the new one's results are buffered until then."""

    name: ClassVar[str] = "parallel-track"
    runs_both_plans: ClassVar[bool] = True

    as_published: bool = False
    """Wait for as long as the paper's way to purge states takes: 2 W where a join sits on a join."""

    def __post_init__(self) -> None:
        check_flag(self.name, "as_published", self.as_published)

    def check(self, old: Plan, new: Plan) -> None:
        others = other_stateful_operators(new)
        if others:
            raise MigrationRefused(
                f"parallel-track cannot change a plan with {' and '.join(others)}",
                detail="Their results are neither old nor new: some would be given twice.",
                hint="Use gen-mig, which can change any plan in the same gradual way, or jisc or moving-state.",
            )
        refuse_endless_windows(self.name, new)

    def begin(self, context: MigrationContext) -> MigrationStart:
        windows = context.windows
        if context.is_trivial:
            context.record.end(context.watermark)
            return context.empty(), []
        ends_at = max(windows.latest_end, context.watermark)
        if self.as_published and any(_join_on_join(box.plan) for box in context.old.boxes()):
            ends_at = min(ends_at + windows.longest, NEVER)
        box = ParallelTrackBox(
            context.old, context.empty(), context.record, windows, windows.ends(), context.watermark, ends_at
        )
        return box, []


class ParallelTrackBox(TwoBoxes):
    """A parallel-track migration in progress."""

    kind = "parallel-track"

    def __init__(
        self,
        old: Executor,
        new: PlanExecutor,
        record: MigrationRecord,
        windows: WindowStore,
        oldest_new: Mapping[str, int],
        began_at: int,
        ends_at: int,
    ) -> None:
        super().__init__(old, new, record)
        self._windows = windows
        self._oldest_new = oldest_new
        self._began_at = began_at
        self._ends_at = ends_at
        self._buffered: list[Batch] = []
        self._buffers = True

    @classmethod
    def from_manifest(
        cls,
        manifest: Mapping[str, Any],
        old: Executor,
        new: PlanExecutor,
        windows: WindowStore,
        record: MigrationRecord,
    ) -> Self:
        box = cls(old, new, record, windows, manifest["oldest_new"], manifest["began_at"], manifest["ends_at"])
        box._buffers = manifest["buffers"]
        return box

    def manifest(self, number_of: NumberOf) -> dict[str, Any]:
        return super().manifest(number_of) | {
            "oldest_new": dict(self._oldest_new),
            "began_at": self._began_at,
            "ends_at": self._ends_at,
            "buffers": self._buffers,
        }

    def push(self, arrived: InputBatches, watermark: int) -> Iterator[Batch]:
        self._buffered += map(lasting, self._counted_new(self._new.push(arrived, watermark)))
        self._record.rows_buffered = max(self._record.rows_buffered, self.buffered)
        self._is_over = watermark >= self._ends_at
        old = self._old.push(arrived, watermark)
        if self._is_over:
            old = chain(old, self._old.release_buffered())
        results = self._counted_old(map(self._with_old_parts, old))
        if self._is_over or not self._buffers:
            yield in_one_order(self.plan.schema, chain(self._buffered, results))
            self._buffered = []
        else:
            yield from results
        self._settle_old()

    def _with_old_parts(self, batch: Batch) -> Batch:
        """The old box's results without those of which all parts are new: these are the new box's."""
        numbers = [self._windows.number_in(store, self._oldest_new) for store in batch.layout.origin_stores]
        origins = batch.origins()
        is_old = (origins >= 0) & (origins < np.array(numbers, np.int64)[:, None])
        return batch.filtered(np.logical_or.reduce(is_old, axis=0))

    def horizons(self) -> dict[str, int]:
        """Buffered results may consist of rows as old as the migration."""
        oldest = self._began_at if self._buffers else NEVER
        return {window: min(horizon, oldest) for window, horizon in super().horizons().items()}

    def states(self) -> StateInventory:
        """The old box knows all rows, the new one only new ones."""
        return self._old.states()

    @property
    def buffered(self) -> int:
        return sum(len(batch) for batch in self._buffered) + self._old.buffered

    def release_buffered(self) -> list[Batch]:
        buffered, self._buffered = [*map(self._with_old_parts, self._old.release_buffered()), *self._buffered], []
        self._buffers = False
        return buffered

    def emit_open(self) -> list[Batch]:
        return [*self.release_buffered(), *self._old.emit_open()]

    def rebuilt(self, rebuild: Rebuild, rows: InputBatches) -> Executor:
        box = copy.copy(self)
        box._old = self._old.rebuilt(rebuild, rows)
        since = {key: b.filtered(b.references[0] >= self._oldest_new[key]) for key, b in rows.items()}
        box._new = self._new.empty()
        buffered = [lasting(batch) for batch in box._new.push(since, self._new.watermark)]
        box._buffered = buffered if self._buffers else []
        box._new.reset_counters()
        return box


def _join_on_join(plan: Plan) -> bool:
    return any(
        isinstance(node, Join | MultiJoin)
        and any(isinstance(below, Join | MultiJoin) for child in node.inputs for below in child.walk())
        for node in plan.walk()
    )
