"""The interface through which the demo runs its query, and its implementation in this process.

The implementation on Spark is in ``on_spark``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq

from midstream.adaptation.decisions import Decision
from midstream.adaptation.policy import Adaptation
from midstream.demo.recording import Batch, join_states
from midstream.demo.scenario import OLD_ORDER, Size, query, read_batch

__all__ = ["LocalRunner", "Runner"]


class Runner(Protocol):
    """A query that runs over files, batch by batch."""

    def batches(self) -> Iterator[Batch | None]:
        """Yield each micro-batch when it has ended, up to the end of the input; None while waiting for one."""

    def decisions(self) -> list[Decision]:
        """What the query considered so far; nothing if it does not adapt."""

    def migrate(self, order: str, strategy: str) -> None:
        """Replace the plan while the query runs."""

    def migrations(self) -> list[Mapping[str, Any]]:
        """The records of the migrations."""

    def result_files(self) -> list[Path]:
        """The parquet files with the results, once the run has finished."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LocalRunner:
    """The query in this process. A batch's time excludes reading the input and writing the results."""

    def __init__(self, size: Size, folder: Path, adapt: Adaptation | None = None) -> None:
        self._size = size
        self._input = folder / "in"
        self._output = folder / "out"
        self._output.mkdir()
        self._run = query().run_locally(OLD_ORDER, adapt="off" if adapt is None else adapt)
        self._files: list[Path] = []
        self._migrate_seconds = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def batches(self) -> Iterator[Batch]:
        for number in range(self._size.batches):
            tables = read_batch(self._input, number)
            plan = self._run.plan
            results, seconds, metrics = self._pushed(tables)
            # A strategy may do its work inside migrate(): that time counts towards the batch that waited for it.
            seconds += self._migrate_seconds
            self._migrate_seconds = 0.0
            self._write(results)
            if metrics is None or self._run.plan == plan:
                metrics = self._run.metrics()
            yield Batch(
                number,
                seconds,
                sum(table.num_rows for table in tables.values()),
                results.num_rows,
                plan.explain(),
                self._run.migrating,
                metrics["window_rows"],
                join_states([metrics]),
            )
        self._write(self._run.finish())

    def _pushed(self, tables: Mapping[str, pa.Table]) -> tuple[pa.Table, float, dict[str, Any] | None]:
        """The results of a push, the seconds it took, and the metrics with the last results.

        A query that adapts may replace its plan at the end of a push: later metrics are those of the new plan.
        """
        pieces, metrics, looking = [], None, 0.0
        began = time.perf_counter()
        for piece in self._run.push_in_chunks(tables):
            pieces.append(piece)
            looked = time.perf_counter()
            metrics = self._run.metrics()
            looking += time.perf_counter() - looked
        seconds = time.perf_counter() - began - looking
        return pa.Table.from_batches(pieces, self._run.output_schema), seconds, metrics

    def decisions(self) -> list[Decision]:
        return self._run.decisions()

    def migrate(self, order: str, strategy: str) -> None:
        began = time.perf_counter()
        self._run.migrate(order, strategy)
        self._migrate_seconds = time.perf_counter() - began

    def migrations(self) -> list[Mapping[str, Any]]:
        return [migration.as_dict() for migration in self._run.history()]

    def result_files(self) -> list[Path]:
        return self._files

    def _write(self, results: Any) -> None:
        if results.num_rows:
            path = self._output / f"{len(self._files):05d}.parquet"
            pq.write_table(results, path)
            self._files.append(path)
