"""The codes of a key in a batch: one int64 per tuple, equal for equal keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from midstream.algebra.expressions import Column, Expression
from midstream.engine.batch import Batch, Layout
from midstream.engine.codes import combine_codes, encode, is_exact
from midstream.engine.expressions.evaluate import evaluate
from midstream.engine.kernels import Flags, Ints

__all__ = ["KeyCodes"]


class KeyCodes:
    """Computes the codes of a key of any number of expressions; without any, all tuples have the same code.

    Codes of columns whose values are hashed (text, long decimals) are kept by the store that has the rows.
    """

    def __init__(self, layout: Layout, keys: Sequence[Expression]) -> None:
        self._layout = layout
        self._keys = list(keys)
        for key in keys:
            if isinstance(key, Column) and not is_exact(key.type):
                store, column = layout.places[layout.position(key)]
                layout.stores[store].keep_codes(column)

    def of(self, batch: Batch) -> tuple[Ints, Flags | None]:
        """The codes, and which keys have no NULL in them (None: all)."""
        found: dict[int, tuple[Ints, Flags | None]] = {}
        stored: dict[int, list[tuple[int, int]]] = {}
        for place, key in enumerate(self._keys):
            position = self._layout.position(key) if isinstance(key, Column) else None
            # Values that are at hand are used, unless they would have to be hashed once more.
            if position is None or (position in batch.materialized and is_exact(key.type)):
                found[place] = encode(evaluate(key, batch.column, len(batch)))
            else:
                store, column = self._layout.places[position]
                stored.setdefault(store, []).append((place, column))
        for store, wanted in stored.items():
            codes = self._layout.stores[store].gather_codes([column for _, column in wanted], batch.references[store])
            found.update(zip((place for place, _ in wanted), codes, strict=True))
        parts = [found[place] for place in range(len(self._keys))]
        flags = [valid for _, valid in parts if valid is not None]
        return (
            combine_codes([codes for codes, _ in parts]) if parts else np.zeros(len(batch), np.int64),
            np.logical_and.reduce(flags) if flags else None,
        )
