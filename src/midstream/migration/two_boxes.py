"""A migration that runs the old box and the new one side by side: what parallel track and GenMig have in common."""

from __future__ import annotations

from collections.abc import Iterator

from midstream.algebra.windows import NEVER
from midstream.engine.batch import Batch
from midstream.engine.box import Box, PlanBox
from midstream.engine.operator import Operator
from midstream.migration.strategy import Switch

__all__ = ["TwoBoxes"]


class TwoBoxes(Box):
    """Both boxes. The old one, which may itself be a migration, knows how far results have been told."""

    def __init__(self, switch: Switch) -> None:
        self.plan = switch.plan
        self.begins = switch.old.begins
        self._old = switch.old
        self._new = switch.empty_box()
        self._record = switch.record
        self._is_over = False

    def parts(self) -> Iterator[Box]:
        yield self
        yield from self._old.parts()
        yield from self._new.parts()

    def boxes(self) -> Iterator[PlanBox]:
        yield from self._old.boxes()
        yield from self._new.boxes()

    def horizons(self) -> dict[str, int]:
        old, new = self._old.horizons(), self._new.horizons()
        return {window: min(old.get(window, NEVER), new.get(window, NEVER)) for window in old.keys() | new.keys()}

    @property
    def root(self) -> Operator:
        return self._old.root

    @property
    def held(self) -> int:
        return self._old.held

    def settled(self) -> Box:
        return self._new if self._is_over else self

    def _settle_old(self) -> None:
        """After a push: the old box, if it was itself a migration, may have come to its end."""
        self._old = self._old.settled()
        self.begins = self._old.begins

    def _counted_old(self, results: Iterator[Batch]) -> Iterator[Batch]:
        for batch in results:
            self._record.old_results += len(batch)
            yield batch

    def _counted_new(self, results: Iterator[Batch]) -> Iterator[Batch]:
        for batch in results:
            self._record.new_results += len(batch)
            yield batch
