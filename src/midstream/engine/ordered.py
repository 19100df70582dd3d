"""Results of more than one box, brought into one order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from midstream.algebra.plan import Field
from midstream.engine.batch import Batch, Layout, concatenate
from midstream.engine.row_store import RowStore

__all__ = ["in_one_order", "merged"]


_ORIGINS = RowStore(())
"""Stands for the windows in batches whose references are only kept to trace tuples back."""


def in_one_order(fields: Sequence[Field], batches: Sequence[Batch]) -> Batch:
    """All tuples in the order of ``valid_from``; values are looked up if the batches refer to different stores."""
    batches = [batch for batch in batches if len(batch)]
    if batches and all(batch.layout == batches[0].layout for batch in batches):
        return concatenate(batches[0].layout, batches).in_order()
    layout = Layout(tuple(fields))
    origins = [np.empty((0, len(batch)), np.int64) for batch in batches]
    if batches and all(batch.layout.has_origin for batch in batches):
        origins = [batch.origins() for batch in batches]
        layout = Layout(tuple(fields), (_ORIGINS,) * len(origins[0]), has_origin=True)
    valued = [
        Batch(layout, batch.valid_from, batch.valid_to, references, dict(enumerate(batch.columns())))
        for batch, references in zip(batches, origins, strict=True)
    ]
    return concatenate(layout, valued).in_order()


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
