"""A query over batch DataFrames: all rows are there, so the cell is fed in order of time and then finished.

Slices of event time keep the windows as small as they would be in a stream; where the slices are cut makes no
difference (batch invariance). No row is late.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from midstream.algebra.window_spec import NEVER
from midstream.delta.result_files import TableTarget, results_as_files
from midstream.engine.output import to_record_batches
from midstream.engine.state.window_store import Rows
from midstream.runtime.cell_setup import CellSetup
from midstream.runtime.durable_cell import DurableCell
from midstream.spark.spark_types import as_type, type_for_spark

__all__ = ["Backfill"]

SLICE_ROWS = 1 << 18
"""About how many rows are taken at once."""


class Backfill:
    """Runs the query in one cell over all its rows: a function for ``applyInArrow``.

    With a ``target``, results are written to files of a table, under the name of an application, and a row for each
    file is given.
    """

    def __init__(self, setup: CellSetup, target: TableTarget | None = None, application: str = "") -> None:
        self._setup = setup
        self._target = target
        self._application = application

    def __call__(self, key: tuple[Any, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        results = self._results(batches)
        if self._target is not None:
            target = self._target.of(self._application, 0, int(key[0].as_py()))
            files = [msgspec.json.encode(file).decode() for file in results_as_files(results, target)]
            yield pa.record_batch({"file": pa.array(files, pa.string())})
            return
        for result in results:
            arrays = [as_type(array, type_for_spark(array.type)) for array in result.columns]
            yield pa.RecordBatch.from_arrays(arrays, names=[str(place) for place in range(len(arrays))])

    def _results(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        durable = DurableCell(self._setup)
        packs = [blob.as_buffer() for batch in batches for blob in batch.column("blob")]
        rows = {window: _in_order(these) for window, these in durable.rows_of(packs).items()}
        for part, watermark in _slices(rows):
            for batch in durable.cell.push(part, watermark):
                yield from to_record_batches(batch, durable.output_schema)


def _in_order(rows: Rows) -> Rows:
    order = np.argsort(rows.times, kind="stable")
    places = pa.array(order)
    return Rows(rows.times[order], {name: column.take(places) for name, column in rows.columns.items()})


def _slices(rows: dict[str, Rows]) -> Iterator[tuple[dict[str, Rows], int]]:
    """The rows in slices of time, each with the watermark that holds after it: the beginning of the next."""
    times = np.sort(np.concatenate([np.empty(0, np.int64), *(these.times for these in rows.values())]))
    cuts = np.unique(times[SLICE_ROWS::SLICE_ROWS])
    ends = {window: [*np.searchsorted(these.times, cuts), len(these)] for window, these in rows.items()}
    starts = dict.fromkeys(rows, 0)
    for number, watermark in enumerate([*cuts.tolist(), NEVER]):
        part = {}
        for window, these in rows.items():
            start, end = starts[window], int(ends[window][number])
            columns = {name: column.slice(start, end - start) for name, column in these.columns.items()}
            part[window] = Rows(these.times[start:end], columns)
            starts[window] = end
        yield part, watermark
