"""Slices of event time: how the topmost join of a plan keeps a huge result out of memory.

The new tuples of a push are cut into slices of event time when they would produce more than a chunk of results at once.
Cutting is allowed because results do not depend on how input is cut into batches. A slice that turns out too large is
undone and halved. Results leave in the order of ``valid_from``: those that a later slice may still precede wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from midstream.algebra.window_spec import NEVER
from midstream.engine.batch import Batch, Layout, concatenate

__all__ = ["in_slices"]

Slice = tuple[Batch, ...]
"""The new tuples of each input, in the order of ``valid_from``."""


def in_slices(
    layout: Layout,
    inputs: Sequence[Batch],
    expected: int,
    chunk_rows: int,
    attempt: Callable[[Slice], list[Batch] | None],
) -> Iterator[Batch]:
    """The results in order, about ``chunk_rows`` at a time; ``expected`` is a guess of how many there are.

    ``attempt`` gives the results of a slice, or None, with all states as before, if they are too many.
    """
    held: list[Batch] = []
    pending: list[Slice] = [tuple(batch.in_order() for batch in inputs)]
    while expected > chunk_rows:
        pending = [half for whole in pending for half in _halves(whole)]
        expected //= 2
    pending.reverse()
    while pending:
        slice_ = pending.pop()
        results = attempt(slice_)
        if results is None:
            pending += reversed(_halves(slice_))
            continue
        together = concatenate(layout, [*held, *results]).in_order()
        boundary = min((_first(waiting) for waiting in pending), default=NEVER)
        ready = int(np.searchsorted(together.valid_from, boundary, "right"))
        held = [together.sliced(ready, len(together))] if ready < len(together) else []
        yield together.sliced(0, ready)


def _first(slice_: Slice) -> int:
    return min(int(batch.valid_from[0]) for batch in slice_ if len(batch))


def _last(slice_: Slice) -> int:
    return max(int(batch.valid_from[-1]) for batch in slice_ if len(batch))


def _halves(slice_: Slice) -> list[Slice]:
    """All inputs cut at the middle of their event times, or of their rows where all are equal."""
    if sum(len(batch) for batch in slice_) < 2:
        return [slice_]
    longest = max(slice_, key=len).valid_from
    first, last = _first(slice_), _last(slice_)
    middle = int(longest[len(longest) // 2])
    if first == middle < last:
        middle += 1
    if first < middle:
        cuts = [int(np.searchsorted(batch.valid_from, middle)) for batch in slice_]
    elif len(longest) > 1:
        cuts = [len(batch) // 2 for batch in slice_]
    else:
        # One tuple each, all at the same time: some inputs before the others.
        filled = [place for place, batch in enumerate(slice_) if len(batch)]
        before = set(filled[: (len(filled) + 1) // 2])
        cuts = [len(batch) if place in before else 0 for place, batch in enumerate(slice_)]
    return [
        tuple(batch.sliced(0, cut) for batch, cut in zip(slice_, cuts, strict=True)),
        tuple(batch.sliced(cut, len(batch)) for batch, cut in zip(slice_, cuts, strict=True)),
    ]
