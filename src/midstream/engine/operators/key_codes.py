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
        parts, flags = [], None
        for key in self._keys:
            codes, valid = self._codes(key, batch)
            parts.append(codes)
            if valid is not None:
                flags = valid if flags is None else flags & valid
        return combine_codes(parts) if parts else np.zeros(len(batch), np.int64), flags

    def _codes(self, key: Expression, batch: Batch) -> tuple[Ints, Flags | None]:
        if isinstance(key, Column):
            position = self._layout.position(key)
            # Values that are at hand are used, unless they would have to be hashed once more.
            if position not in batch.materialized or not is_exact(key.type):
                store, column = self._layout.places[position]
                return self._layout.stores[store].gather_codes(column, batch.references[store])
        return encode(evaluate(key, batch.column, len(batch)))
