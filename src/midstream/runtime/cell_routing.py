"""Which cells a window's rows go to: a partitioning's keys, evaluated and hashed.

Equal keys of a dimension have equal codes (``engine/codes``), and so one coordinate, in whichever window and whichever
process they are; nothing here depends on Python's hashes. Each dimension mixes the codes in its own way: two that
happen to have the same key still spread over the whole grid. NULLs have one code, and so one coordinate: those of a
group meet.

>>> from midstream.algebra.stream import Stream
>>> from midstream.algebra.window_spec import WindowSpec
>>> from midstream.planning.partitioning import partition
>>> bids = Window(Stream("bids", pa.schema({"ts": pa.int64()}), "ts"), "b", WindowSpec(9))
>>> times = np.array([1, 2, 3, 1])
>>> grid = partition(bids, cells=4)
>>> cells_of(grid, bids, lambda column: pa.array(times), 4)
array([[1, 2, 1, 1]])
>>> for cell, rows in rows_by_cell(grid, bids, Rows(times, {"ts": pa.array(times)})).items():
...     print(cell, rows.times)
1 [1 3 1]
2 [2]
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.algebra.expressions import Column
from midstream.algebra.plan import Window
from midstream.engine.codes import encode
from midstream.engine.expressions.evaluate import evaluate
from midstream.engine.kernels import Ints
from midstream.engine.state.window_store import Rows
from midstream.planning.partitioning import Partitioning

__all__ = ["cells_of", "rows_by_cell"]


def cells_of(partitioning: Partitioning, window: Window, column: Callable[[Column], pa.Array], count: int) -> Ints:
    """The cells that each of ``count`` rows goes to: one row of the matrix per copy, one column per row.

    ``column`` gives the columns of the window's rows, of the types that the window's schema says.
    """
    cells = np.zeros(count, np.int64)
    for number, (dimension, stride) in enumerate(zip(partitioning.dimensions, partitioning.strides, strict=True)):
        key = dimension.keys.get(window.identity)
        if key is not None:
            codes, _ = encode(evaluate(key, column, count))
            cells += (_mixed(codes, number) % np.uint64(dimension.share)).astype(np.int64) * stride
    return cells + np.array(partitioning.replicas(window.identity), np.int64)[:, None]


def rows_by_cell(partitioning: Partitioning, window: Window, rows: Rows) -> dict[int, Rows]:
    """The rows that go to each cell, in the order they came; cells without rows are left out."""
    copies = cells_of(partitioning, window, lambda column: rows.columns[column.name], len(rows))
    # All rows of a cell are in the same copy, so that a stable sort leaves them in their order.
    order = np.argsort(copies, axis=None, kind="stable")
    cells, starts = np.unique(copies.ravel()[order], return_index=True)
    places = order % max(1, len(rows))
    columns = {name: values.take(pa.array(places)) for name, values in rows.columns.items()}
    routed = {}
    for cell, (start, end) in zip(cells.tolist(), pairwise([*starts, len(places)]), strict=True):
        own = {name: values.slice(start, end - start) for name, values in columns.items()}
        routed[cell] = Rows(rows.times[places[start:end]], own)
    return routed


def _mixed(codes: Ints, number: int) -> npt.NDArray[np.uint64]:
    """Words whose bits all depend on all bits of the codes and on the dimension's number (splitmix64)."""
    words = codes.view(np.uint64) + np.uint64((number + 1) * 0x9E3779B97F4A7C15 % 2**64)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
