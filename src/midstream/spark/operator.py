"""The stateful operator: one call per cell and micro-batch, around a durable cell.

Derived state stays in the memory of the Python worker, under the token of the standing it belongs to; the cell is taken
out before a batch and put back after it, so that a failed attempt leaves nothing half-done behind. If the worker has
none, or one with another token, the cell is made again from Spark's state.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from midstream.spark.durable_cell import CellSetup, DurableCell
from midstream.spark.packing import Pack
from midstream.spark.types import type_for_spark

__all__ = ["METRICS", "CellOperator", "StateShelf"]

METRICS = "__metrics"
"""A column that is NULL in results; a cell's own row of figures has nothing else."""

_LIVING: dict[tuple[str, int], DurableCell] = {}
"""The cells whose derived state is in this process, by query and cell."""


class StateShelf:
    """A shelf in Spark's state store, which commits a micro-batch's changes together."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, key: str) -> bytes | None:
        value = self._state.getValue((key,))
        return None if value is None else bytes(value[0])

    def put(self, key: str, value: bytes) -> None:
        self._state.updateValue((key,), (value,))

    def remove(self, key: str) -> None:
        self._state.removeKey((key,))

    def items(self) -> Iterable[tuple[str, bytes]]:
        for key, value in self._state.iterator():
            yield key[0], bytes(value[0])


class CellOperator(StatefulProcessor):
    """Runs the query in one cell. ``run`` names the running query, so that two in one process stay apart."""

    def __init__(self, setup: CellSetup, run: str, cell_keys: list[int], known_commands: int) -> None:
        self._setup = setup
        self._run = run
        self._cells = {key: cell for cell, key in enumerate(cell_keys)}
        self._known_commands = known_commands

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getMapState("kept", "name string", "value binary")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        began = time.perf_counter()
        number = self._cells[int(key[0])]
        commands, packs = self._received(rows)
        shelf = StateShelf(self._state)
        durable, is_new = self._cell(number, shelf)
        if is_new:
            # A new checkpoint: commands that were given to an earlier run of the query are not for this one.
            commands = [command for command in commands if command["id"] > self._known_commands]
        for batch in durable.work(commands, packs):
            yield _frame(batch)
        durable.save(shelf)
        _LIVING[self._run, number] = durable
        metrics = {"cell": number, **durable.metrics(), "seconds": time.perf_counter() - began}
        durable.rebuild_seconds = None
        yield _metrics_frame(durable.output_schema, metrics)

    def close(self) -> None:
        pass

    def _cell(self, number: int, shelf: StateShelf) -> tuple[DurableCell, bool]:
        token = DurableCell.token_on(shelf)
        living = _LIVING.pop((self._run, number), None)
        if living is not None and living.token == token:
            return living, False
        return DurableCell.from_shelf(self._setup, shelf), token == ""

    def _received(self, rows: Iterator[pd.DataFrame]) -> tuple[list[Mapping[str, Any]], list[Pack]]:
        """Commands in the order they were given, and packs in an order that does not depend on the shuffle."""
        commands: list[Mapping[str, Any]] = []
        packs: list[tuple[int, bytes]] = []
        for frame in rows:
            for kind, place, blob in zip(frame["kind"], frame["place"], frame["blob"], strict=True):
                if kind == "rows":
                    packs.append((int(place), bytes(blob)))
                else:
                    commands.append(json.loads(bytes(blob)))
        commands.sort(key=lambda command: command["id"])
        packs.sort()
        return commands, [Pack.of_bytes(data) for _, data in packs]


def _frame(batch: pa.RecordBatch) -> pd.DataFrame:
    """Results as pandas columns that are Arrow arrays underneath: nothing is converted."""
    arrays = [array.cast(type_for_spark(array.type)) for array in batch.columns]
    return _of_arrays([*arrays, pa.nulls(batch.num_rows, pa.string())])


def _metrics_frame(schema: pa.Schema, metrics: Mapping[str, Any]) -> pd.DataFrame:
    nothing = [pa.nulls(1, type_for_spark(field.type)) for field in schema]
    return _of_arrays([*nothing, pa.array([json.dumps(metrics)])])


def _of_arrays(arrays: list[pa.Array]) -> pd.DataFrame:
    return pd.DataFrame({place: pd.arrays.ArrowExtensionArray(array) for place, array in enumerate(arrays)})
