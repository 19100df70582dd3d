"""What the stateful operator does in one call, for one cell and micro-batch: the work of a durable cell.

Derived state stays in the memory of the Python worker (``cell_cache``), or of a host that all workers of a machine
share (``cell_host``), stored under the version of the progress it belongs to. If it is missing, the cell is restored
from Spark's state.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.types as pat
from pyspark import TaskContext
from pyspark.accumulators import Accumulator

from midstream.delta.file_names import application_of
from midstream.delta.result_files import ResultFile, TableTarget, results_as_files
from midstream.errors import MidstreamError
from midstream.runtime.cell_cache import CellCache
from midstream.runtime.cell_host import HostedCell
from midstream.runtime.cell_setup import CellSetup
from midstream.runtime.control import Claims, read_command
from midstream.runtime.durable_cell import DurableCell
from midstream.runtime.file_reading import FileReading
from midstream.runtime.messages import CellFigures, Command, encode
from midstream.runtime.pack import Pack
from midstream.runtime.state_backend import CellsBegun, stored_version
from midstream.spark.packed import COMMAND, FILE, ROWS
from midstream.spark.python_workers import freeze_loaded
from midstream.spark.spark_types import as_type, type_for_spark

__all__ = ["CellWork", "SparkStateBackend"]

_LOG = logging.getLogger(__name__)
_CELLS = CellCache()


class SparkStateBackend:
    """A state backend in Spark's state store, which commits a micro-batch's changes together."""

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


class CellWork:
    """Runs the query in one cell. ``run`` names the running query, to keep two queries in one process apart.

    Figures go to the driver through an accumulator at the end of the task: as rows among the results, they would have
    to be told apart from results, row by row.
    """

    def __init__(
        self,
        setup: CellSetup,
        run: str,
        cell_keys: list[int],
        claims: Claims,
        begun: CellsBegun,
        figures: Accumulator[list[str]],
        is_hosted: bool,
        target: TableTarget | None = None,
        reading: FileReading | None = None,
    ) -> None:
        """With a ``target``, results are written to files of a table, and the operator returns a row for each file.

        ``reading`` reads input files, if the cell reads them itself.
        """
        self._setup = setup
        self._figures = figures
        self._run = run
        self._cells = {key: cell for cell, key in enumerate(cell_keys)}
        self._claims = claims
        self._begun = begun
        self._is_hosted = is_hosted
        self._target = target
        self._reading = reading

    def __call__(self, key: int, rows: Iterator[pd.DataFrame], backend: SparkStateBackend) -> Iterator[pd.DataFrame]:
        """Process a micro-batch of the cell with this key."""
        freeze_loaded()
        cell = self._cells[key]
        commands, packs = _received(rows, self._reading)
        query = _query_id()
        commands = [command for command in commands if self._claims.is_for(command, query)]
        version = stored_version(backend)
        self._begun.check(query, cell, version)
        target = None if self._target is None else self._target.of(application_of(query), _batch_number(), cell)
        results: Iterator[pa.RecordBatch | ResultFile | CellFigures]
        if self._is_hosted:
            sent = [pack for pack in packs if isinstance(pack, bytes)]
            assert len(sent) == len(packs), "only a cell that is alone reads files itself"
            results = HostedCell(self._run, cell).work(self._setup, version, backend, commands, sent, target)
        else:
            restore = partial(DurableCell.from_backend, self._setup, backend)
            worked = _CELLS.work((self._run, cell), version, restore, backend, commands, packs)
            results = worked if target is None else results_as_files(worked, target)
        files = []
        for result in results:
            if isinstance(result, CellFigures):
                figures = msgspec.structs.replace(result, cell=cell, query=query)
                self._figures.add([encode(figures).decode()])
            elif isinstance(result, ResultFile):
                files.append(encode(result).decode())
            else:
                yield _frame(result)
        if files:
            yield pd.DataFrame({"file": files})


def _query_id() -> str | None:
    """Spark's id of the streaming query that this task belongs to; it stays with the query's checkpoint."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty("sql.streaming.queryId")


def _batch_number() -> int:
    """The micro-batch that this task belongs to."""
    number = TaskContext.get().getLocalProperty("streaming.sql.batchId")  # type: ignore[union-attr]
    assert number is not None, "Spark tells every task which micro-batch it is of"
    return int(number)


def _received(
    rows: Iterator[pd.DataFrame], reading: FileReading | None = None
) -> tuple[list[Command], list[Pack | bytes]]:
    """Commands in the order of submission, and packs in an order that does not depend on the shuffle.

    Files are read here: one that cannot be read fails the task before it has touched the cell.
    """
    commands: list[Command] = []
    packs: list[tuple[int, Pack | bytes]] = []
    for frame in rows:
        for kind, place, blob in zip(frame["kind"], frame["place"], frame["blob"], strict=True):
            if kind == ROWS:
                packs.append((int(place), bytes(blob)))
            elif kind == FILE:
                assert reading is not None, "who asks for files knows how they are read"
                packs += [(at, pack) for _, at, pack in reading.packs(int(place), os.fsdecode(bytes(blob)))]
            else:
                assert kind == COMMAND, kind
                try:
                    commands.append(read_command(bytes(blob), f"command {place}"))
                except MidstreamError as problem:
                    # Anyone may put a file into the folder: an invalid one must not end the query.
                    _LOG.warning("ignored: %s", problem)
    commands.sort(key=lambda command: command.number)
    # Packs read from a file are already in order.
    packs.sort(key=lambda pack: (pack[0], pack[1] if isinstance(pack[1], bytes) else b""))
    return commands, [pack for _, pack in packs]


def _frame(batch: pa.RecordBatch) -> pd.DataFrame:
    """Results as pandas columns that are Arrow arrays underneath: nothing is converted."""
    arrays = [as_type(array, type_for_spark(array.type)) for array in batch.columns]
    return pd.DataFrame({place: _column(array) for place, array in enumerate(arrays)})


def _column(array: pa.Array) -> pd.arrays.ArrowExtensionArray:
    return _NestedColumn(array) if pat.is_nested(array.type) else pd.arrays.ArrowExtensionArray(array)


class _NestedColumn(pd.arrays.ArrowExtensionArray):  # type: ignore[misc]
    """Arrays, maps and structs: Spark would convert them to Python objects one by one, and fail on NULLs."""

    def map(self, mapper: Any, na_action: Any = None) -> _NestedColumn:
        return self

    def __arrow_array__(self, type: pa.DataType | None = None) -> pa.Array:
        array = self._pa_array.combine_chunks()
        return array if type is None else as_type(array, type)
