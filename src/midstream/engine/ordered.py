"""Results of more than one box, brought into one order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from midstream.algebra.plan import Field
from midstream.engine.batch import Batch, Layout, concatenate

__all__ = ["in_one_order", "lasting", "merged"]


def in_one_order(fields: Sequence[Field], batches: Iterable[Batch]) -> Batch:
    """All tuples in the order of ``valid_from``; values are looked up if the batches refer to different stores."""
    kept = [lasting(batch) for batch in batches if len(batch)]
    if kept and any(batch.layout != kept[0].layout for batch in kept):
        kept = [_valued(batch) for batch in kept]
        if any(batch.layout != kept[0].layout for batch in kept):
            kept = [Batch.of_arrays(Layout(tuple(fields)), b.valid_from, b.valid_to, b.columns()) for b in kept]
    return concatenate(kept[0].layout if kept else Layout(tuple(fields)), kept).in_order()


def lasting(batch: Batch) -> Batch:
    """The batch as it is if its rows stay; otherwise with all values looked up."""
    return batch if all(store.is_lasting for store in batch.layout.stores) else _valued(batch)


def _valued(batch: Batch) -> Batch:
    """The batch with all values looked up, and references to windows only."""
    origins = batch.layout.origin_stores
    if not all(store.is_lasting for store in origins):
        return Batch.of_arrays(Layout(batch.layout.fields), batch.valid_from, batch.valid_to, batch.columns())
    layout = Layout(batch.layout.fields, origins, (), has_origin=batch.layout.has_origin)
    return Batch(layout, batch.valid_from, batch.valid_to, batch.origins(), dict(enumerate(batch.columns())))


def merged(first: Batch, rest: Iterator[Batch]) -> Iterator[Batch]:
    """One stream of batches in order from a batch and a stream, each in order."""
    for batch in rest:
        if len(batch) == 0:
            continue
        while len(first) and first.valid_from[0] < batch.valid_from[-1]:
            ready = int(np.searchsorted(batch.valid_from, first.valid_from[0], "right"))
            yield batch.sliced(0, ready)
            batch = batch.sliced(ready, len(batch))
            passed = int(np.searchsorted(first.valid_from, batch.valid_from[0], "left"))
            yield first.sliced(0, passed)
            first = first.sliced(passed, len(first))
        yield batch
    yield first
