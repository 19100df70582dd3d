"""Tables and files of results, as cells and drivers would make them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from midstream.delta.commits import TableWriter, epoch_of
from midstream.delta.delta_types import delta_schema
from midstream.delta.location import TableLocation
from midstream.delta.result_files import ResultFile, ResultTarget, results_as_files
from midstream.delta.table import open_table, prepare_table
from midstream.errors import TableConflict

__all__ = [
    "APPLICATION",
    "OTHER",
    "SCHEMA",
    "Driver",
    "between_check_and_commit",
    "check_race",
    "names_on_disk",
    "rows_of",
]

APPLICATION, OTHER = "a1" * 16, "b2" * 16
SCHEMA = pa.schema({"k": pa.int64(), "v": pa.string()})


class Driver:
    """One run of a query: cells write files for it, it commits them."""

    def __init__(
        self, path: Path | TableLocation, application: str = APPLICATION, partition_by: Sequence[str] = ()
    ) -> None:
        self.location = path if isinstance(path, TableLocation) else TableLocation.of(path)
        schema = delta_schema(SCHEMA)
        self.table = prepare_table(self.location, schema, partition_by)
        self.application = application
        self.partition_by = tuple(partition_by)
        self.epoch = epoch_of(self.table) + 1
        self.writer = TableWriter(
            self.table, self.location, delta_schema(SCHEMA), partition_by, application, self.epoch
        )

    def write(self, batch: int, *values: int, cell: int = 0) -> list[ResultFile]:
        """An attempt at a micro-batch in one cell: a file with these rows."""
        rows = pa.record_batch({"k": values, "v": [f"batch {batch}"] * len(values)}, schema=SCHEMA)
        target = ResultTarget(self.location, self.application, self.epoch, batch, cell, self.partition_by)
        return [file for file in results_as_files([rows], target) if isinstance(file, ResultFile)]

    def run(self, batch: int, *values: int) -> bool:
        """A whole micro-batch."""
        return self.writer.commit(batch, self.write(batch, *values))


def between_check_and_commit(monkeypatch: Any, driver: Driver, *actions: Callable[[], object]) -> list[Any]:
    """Do something each time the driver has checked the table and not yet committed; what is left to do."""
    check, left = driver.writer.is_complete, [*actions]

    def slowly() -> bool:
        is_complete = check()
        if left:
            left.pop()()
        return is_complete

    monkeypatch.setattr(driver.writer, "is_complete", slowly)
    return left


def check_race(monkeypatch: Any, place: Path | TableLocation) -> None:
    """Of two drivers of one batch, the other commits after this one has checked the table, and before it commits."""
    one, other = Driver(place), Driver(place)
    files = one.write(0, 1)
    raced: list[bool] = []
    between_check_and_commit(monkeypatch, one, lambda: raced.append(other.run(0, 1)))
    with pytest.raises(TableConflict):
        one.writer.commit(0, files)
    assert raced == [True]
    assert rows_of(place) == [1]


def rows_of(path: Path | TableLocation) -> list[int]:
    """The values in the table, in order."""
    table = open_table(path if isinstance(path, TableLocation) else TableLocation.of(path))
    assert isinstance(table, DeltaTable)
    return sorted(table.to_pyarrow_table().column("k").to_pylist())


def names_on_disk(path: Path) -> set[str]:
    """Paths of files in the table's directory."""
    return {str(file.relative_to(path)) for file in path.rglob("*.parquet") if "_delta_log" not in file.parts}
