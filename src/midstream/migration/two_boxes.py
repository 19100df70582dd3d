"""A migration that runs the old box and the new one side by side: what parallel track and GenMig have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

from midstream.algebra.window_spec import NEVER
from midstream.engine.batch import Batch
from midstream.engine.state.window_store import WindowStore
from midstream.execution.executor import Executor, NumberOf
from midstream.execution.output_progress import OutputProgress
from midstream.execution.plan_executor import PlanExecutor
from midstream.migration.record import MigrationRecord

__all__ = ["TwoBoxes"]


class TwoBoxes(Executor):
    """Both boxes. The final operators of the old one, which may itself be a migration, show what has been emitted."""

    kind: ClassVar[str]
    """What it is called in a manifest."""

    def __init__(self, old: Executor, new: PlanExecutor, record: MigrationRecord) -> None:
        self.plan = new.plan
        self._old = old
        self._new = new
        self._record = record
        self._is_over = False

    @classmethod
    @abstractmethod
    def from_manifest(
        cls,
        manifest: Mapping[str, Any],
        old: Executor,
        new: PlanExecutor,
        windows: WindowStore,
        record: MigrationRecord,
    ) -> Self:
        """The migration that a manifest describes."""

    def manifest(self, number_of: NumberOf) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "old": self._old.manifest(number_of),
            "new": self._new.manifest(number_of),
            "record": self._record.number,
        }

    def parts(self) -> Iterator[Executor]:
        yield self
        yield from self._old.parts()
        yield from self._new.parts()

    def boxes(self) -> Iterator[PlanExecutor]:
        yield from self._old.boxes()
        yield from self._new.boxes()

    def horizons(self) -> dict[str, int]:
        old, new = self._old.horizons(), self._new.horizons()
        return {window: min(old.get(window, NEVER), new.get(window, NEVER)) for window in old.keys() | new.keys()}

    def hold_final(self, until: int) -> None:
        self._old.hold_final(until)
        self._new.hold_final(until)

    def progress(self) -> OutputProgress:
        return self._old.progress()

    @property
    def is_migrating(self) -> bool:
        return True

    @property
    def buffered(self) -> int:
        return self._old.buffered

    def successor(self) -> Executor:
        return self._new if self._is_over else self

    def _settle_old(self) -> None:
        """After a push: the old box, if it was itself a migration, may have come to its end."""
        self._old = self._old.successor()

    def _counted_old(self, results: Iterator[Batch]) -> Iterator[Batch]:
        for batch in results:
            self._record.old_results += len(batch)
            yield batch

    def _counted_new(self, results: Iterator[Batch]) -> Iterator[Batch]:
        for batch in results:
            self._record.new_results += len(batch)
            yield batch
