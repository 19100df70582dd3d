"""GenMig: the old plan answers for all instants before a split time, the new plan for all from it on.

Krämer et al. 2006, section 4. The split time T lies past every instant in the old box, so that nothing the old box
holds concerns the new one: both are black boxes, and any plans will do. Rows that are valid on both sides of T are
split (algorithm 2), the results that were split are put together again (algorithm 3). When all inputs have passed T,
the input of the old box ends, and the box is dropped.

    rows ──▶ split at T ─┬─ [from, T) ──▶ old box ──▶ [from, T) ─┐
                         └─ [T, to)   ──▶ new box ──▶ [T, to)   ─┴─▶ coalesce ──▶ results

T is the latest start seen plus the longest window, or, ``shortened``, the latest end of the rows seen (optimisation 2).
Time is discrete and T may be the start or end of a row (the paper's ε is there to prevent that), so that ties are
decided by which tuples they are: pieces are put together if they were made of the same rows, or, where operators make
rows of their own, if they are equal; then it makes no difference at any instant. A result and its other piece come out
in the same push, because a row enters both boxes at once: nothing is buffered. Where they do not (aggregates emit when
results are final), the pieces are emitted as they are.

Variants:

- ``coalesce``: as above.
- ``reference-point`` (optimisation 1): the old box gets rows that begin before T with their whole validity, and answers
  for all results that begin before T; of the new box's, those that begin at T are left out, or rather one tick before:
  rows are cut at T − 1 for the new box, so that a result that truly begins at T is not taken for one that was cut. Only
  the results of joins begin with the latest of their rows, so that plans with other stateful operators are refused.
- ``positive-negative`` (section 4.6): results are signed elements. Those before T are the old box's, those from T on
  the new one's, which gets all rows uncut.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Self

import numpy as np

from midstream.algebra.plan import Field, Plan
from midstream.algebra.window_spec import BEGINNING, NEVER
from midstream.engine.batch import Batch, Layout, concatenate
from midstream.engine.kernels import Ints
from midstream.engine.operators.state_handle import StateInventory
from midstream.engine.ordered import in_one_order, lasting
from midstream.engine.state.window_store import InputBatches, WindowStore
from midstream.errors import MigrationRefused, did_you_mean, quoted
from midstream.execution.executor import Executor, NumberOf, Rebuild
from midstream.execution.plan_executor import PlanExecutor
from midstream.migration.positive_negative import Signed, from_signed, pairs, to_signed, tuple_keys
from midstream.migration.record import MigrationRecord
from midstream.migration.strategy import (
    MigrationContext,
    MigrationStart,
    check_flag,
    other_stateful_operators,
    refuse_endless_windows,
)
from midstream.migration.two_boxes import TwoBoxes

__all__ = ["GEN_MIG_BOXES", "GenMig", "GenMigBox"]


@dataclass(frozen=True)
class GenMig:
    """Split time in two: the old plan answers for what is before, the new one for what is after."""

    name: ClassVar[str] = "gen-mig"
    runs_both_plans: ClassVar[bool] = True

    variant: str = "coalesce"
    """"coalesce", "reference-point" or "positive-negative"."""
    shortened: bool = False
    """Split at the latest end of the rows seen, instead of the latest that could be."""

    def __post_init__(self) -> None:
        check_flag(self.name, "shortened", self.shortened)
        if not isinstance(self.variant, str) or self.variant not in _VARIANTS:
            raise MigrationRefused(
                f"gen-mig has no variant {self.variant!r}",
                detail=f"There are {quoted(_VARIANTS)}.",
                hint=did_you_mean(str(self.variant), _VARIANTS),
            )

    def check(self, old: Plan, new: Plan) -> None:
        others = other_stateful_operators(new)
        if others and self.variant == "reference-point":
            raise MigrationRefused(
                f"gen-mig with reference points cannot change a plan with {' and '.join(others)}",
                detail="Only the results of joins begin when the latest of their rows begins.",
                hint='Use variant="coalesce".',
            )
        refuse_endless_windows(self.name, new)

    def begin(self, context: MigrationContext) -> MigrationStart:
        windows = context.windows
        if context.is_trivial:
            context.record.end(context.watermark)
            return context.empty(), []
        split_at = windows.latest_end if self.shortened else windows.latest_start + windows.longest
        # The old plan must not have gone beyond the split: windows that slide are ahead of the watermark.
        ahead = max(frontier for box in context.old.boxes() for frontier in box.progress().source_frontiers)
        split_at = min(max(split_at, windows.latest_end, context.watermark, ahead + 1), NEVER)
        # The pieces of a result must come from both boxes at once.
        buffered = context.old.release_buffered()
        return _VARIANTS[self.variant](context.old, context.empty(), context.record, split_at), buffered


class GenMigBox(TwoBoxes):
    """A GenMig migration in progress: what is common to its variants."""

    def __init__(self, old: Executor, new: PlanExecutor, record: MigrationRecord, split_at: int) -> None:
        super().__init__(old, new, record)
        self._split_at = split_at
        self.hold_final(NEVER)

    def hold_final(self, until: int) -> None:
        """While both boxes run, neither emits a final result that ends at the split because it was cut there.

        Windows that slide are ahead of the watermark: without this, their aggregates could be beyond the split already
        while others are before it.
        """
        self._limit = until
        self._old.hold_final(min(until, self._split_at - 1))
        self._new.hold_final(min(until, self._split_at))

    @classmethod
    def from_manifest(
        cls,
        manifest: Mapping[str, Any],
        old: Executor,
        new: PlanExecutor,
        windows: WindowStore,
        record: MigrationRecord,
    ) -> Self:
        return cls(old, new, record, manifest["split_at"])

    def manifest(self, number_of: NumberOf) -> dict[str, Any]:
        return super().manifest(number_of) | {"split_at": self._split_at}

    def push(self, arrived: InputBatches, watermark: int) -> Iterator[Batch]:
        self._is_over = watermark >= self._split_at
        if self._is_over:
            self._old.hold_final(NEVER)
            self._new.hold_final(self._limit)
        new = self._new.push(self._for_new(arrived), watermark)
        old: Iterator[Batch] = self._old.push(self._for_old(arrived), watermark)
        if self._is_over:
            old = self._with_the_end(old)
        for batch in self._combined(self._counted_old(old), self._counted_new(new)):
            if len(batch):
                yield batch
        if not self._is_over:
            self._settle_old()

    def _with_the_end(self, results: Iterator[Batch]) -> Iterator[Batch]:
        last = [lasting(batch) for batch in results]
        self._settle_old()
        yield in_one_order(self.plan.schema, chain(last, self._old.push({}, NEVER)))

    def _for_old(self, arrived: InputBatches) -> InputBatches:
        """Rows that begin before the split, cut there."""
        return {window: _cut(batch, BEGINNING, self._split_at) for window, batch in arrived.items()}

    def _for_new(self, arrived: InputBatches) -> InputBatches:
        raise NotImplementedError

    def _combined(self, old: Iterator[Batch], new: Iterator[Batch]) -> Iterator[Batch]:
        """The results of both boxes in order: what the old box gives begins before the split."""
        raise NotImplementedError

    def successor(self) -> Executor:
        """What the new box emits later may begin before the split: that part was emitted by the old box."""
        if not self._is_over:
            return self
        self._new.skip_final(self._split_at)
        return self._new

    def states(self) -> StateInventory:
        """Neither box knows the rows as they are."""
        return {}

    def release_buffered(self) -> list[Batch]:
        return self._old.release_buffered()

    def emit_open(self) -> list[Batch]:
        return [*self.release_buffered(), *self._old.emit_open()]

    def rebuilt(self, rebuild: Rebuild, rows: InputBatches) -> Executor:
        box = copy.copy(self)
        box._old = self._old.rebuilt(rebuild, self._for_old(rows))
        box._new = self._new.rebuilt(rebuild, self._for_new(rows))
        return box


class _CoalesceBox(GenMigBox):
    kind = "gen-mig coalesce"

    def _for_new(self, arrived: InputBatches) -> InputBatches:
        return {window: _cut(batch, self._split_at, NEVER) for window, batch in arrived.items()}

    def _combined(self, old: Iterator[Batch], new: Iterator[Batch]) -> Iterator[Batch]:
        pieces, later = self._beginning_at_split(new)
        for batch in old:
            yield self._extended(batch, pieces)
        yield pieces.rest()
        yield from later

    def _beginning_at_split(self, new: Iterator[Batch]) -> tuple[_Pieces, Iterator[Batch]]:
        """The results that begin at the split, which come first, and the others."""
        at_split: list[Batch] = []
        for batch in new:
            count = int(np.searchsorted(batch.valid_from, self._split_at, "right"))
            if count:
                at_split.append(lasting(batch.sliced(0, count)))
            if count < len(batch):
                return _Pieces(at_split, self.plan.schema), chain([batch.sliced(count, len(batch))], new)
        return _Pieces(at_split, self.plan.schema), iter(())

    def _extended(self, batch: Batch, pieces: _Pieces) -> Batch:
        """The old box's results; those that were cut at the split with the end that the new box knows."""
        cut = np.flatnonzero(batch.valid_to == self._split_at)
        if len(cut) == 0 or len(pieces.batch) == 0:
            return batch
        places, ends = pieces.matched(batch.taken(cut))
        valid_to = batch.valid_to.copy()
        valid_to[cut[places]] = ends
        return Batch(batch.layout, batch.valid_from, valid_to, batch.references, batch.materialized)


class _Pieces:
    """Results of the new box that begin at the split, to be matched with the old box's that end there."""

    def __init__(self, batches: list[Batch], fields: Sequence[Field]) -> None:
        self.batch = concatenate(batches[0].layout if batches else Layout(tuple(fields)), batches)
        self._is_free = np.ones(len(self.batch), np.bool_)

    def matched(self, old: Batch) -> tuple[Ints, Ints]:
        """Places of old results and the ends of the pieces that continue them."""
        free = np.flatnonzero(self._is_free)
        old_keys, new_keys = tuple_keys([old, self.batch.taken(free)])
        places, found = pairs(old_keys, new_keys)
        self._is_free[free[found]] = False
        return places, self.batch.valid_to[free[found]]

    def rest(self) -> Batch:
        return self.batch.filtered(self._is_free)


class _ReferencePointBox(GenMigBox):
    kind = "gen-mig reference-point"

    def _for_old(self, arrived: InputBatches) -> InputBatches:
        return {window: batch.filtered(batch.valid_from < self._split_at) for window, batch in arrived.items()}

    def _for_new(self, arrived: InputBatches) -> InputBatches:
        reaching = {window: batch.filtered(batch.valid_to > self._split_at) for window, batch in arrived.items()}
        return {window: _cut(batch, self._split_at - 1, NEVER) for window, batch in reaching.items()}

    def _combined(self, old: Iterator[Batch], new: Iterator[Batch]) -> Iterator[Batch]:
        yield from old
        for batch in new:
            start = int(np.searchsorted(batch.valid_from, self._split_at))
            yield batch.sliced(start, len(batch))


class _PositiveNegativeBox(GenMigBox):
    kind = "gen-mig positive-negative"

    def _for_new(self, arrived: InputBatches) -> InputBatches:
        return arrived

    def _combined(self, old: Iterator[Batch], new: Iterator[Batch]) -> Iterator[Batch]:
        """Signed elements before the split from the old box, from it on from the new one, put together as intervals.

        A + whose − is not certain yet ends at the split, and the − will begin there.
        """
        sides = [in_one_order(self.plan.schema, results) for results in (old, new)]
        signed = [to_signed(batch) for batch in sides]
        elements = [
            signed[0].taken(signed[0].times < self._split_at),
            signed[1].taken(signed[1].times >= self._split_at),
        ]
        keys = [key[side.tuples] for key, side in zip(tuple_keys(sides), elements, strict=True)]
        shift = len(sides[0])
        together = Signed(
            np.concatenate([elements[0].tuples, elements[1].tuples + shift]),
            np.concatenate([elements[0].times, elements[1].times]),
            np.concatenate([elements[0].is_positive, elements[1].is_positive]),
        )
        tuples, begins, ends, left = from_signed(together, np.concatenate(keys))
        tuples = np.concatenate([tuples, left.tuples])
        begins = np.concatenate([begins, np.where(left.is_positive, left.times, self._split_at)])
        ends = np.concatenate([ends, np.where(left.is_positive, self._split_at, left.times)])
        some = begins < ends
        tuples, begins, ends = tuples[some], begins[some], ends[some]
        chosen = []
        for batch, start in zip(sides, (0, shift), strict=True):
            own = (tuples >= start) & (tuples < start + len(batch))
            taken = batch.taken(tuples[own] - start)
            chosen.append(Batch(taken.layout, begins[own], ends[own], taken.references, taken.materialized))
        yield in_one_order(self.plan.schema, chosen)


def _cut(batch: Batch, first: int, last: int) -> Batch:
    """The rows that are valid in [first, last), there."""
    batch = batch.filtered((batch.valid_from < last) & (batch.valid_to > first))
    valid_from, valid_to = np.maximum(batch.valid_from, first), np.minimum(batch.valid_to, last)
    return Batch(batch.layout, valid_from, valid_to, batch.references, batch.materialized)


_VARIANTS: dict[str, type[GenMigBox]] = {
    "coalesce": _CoalesceBox,
    "reference-point": _ReferencePointBox,
    "positive-negative": _PositiveNegativeBox,
}
GEN_MIG_BOXES: list[type[TwoBoxes]] = list(_VARIANTS.values())
