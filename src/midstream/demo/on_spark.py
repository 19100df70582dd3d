"""The demo's query on Spark: parquet files in, a parquet sink out, and metrics after each micro-batch.

Each micro-batch reads one file per stream. Spark reports how long a batch took and midstream what it did; the two
reports arrive separately and are matched by the batch's number.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from midstream.adaptation.decisions import Decision
from midstream.adaptation.policy import Adaptation
from midstream.demo.recording import Batch, join_states
from midstream.demo.scenario import ALIASES, OLD_ORDER, SPARK_SCHEMAS, Size, query
from midstream.errors import BrokenRun, MidstreamError
from midstream.spark.session import passing_session
from midstream.spark.sink_log import committed_files

__all__ = ["SparkRunner"]

POLL_SECONDS = 0.05
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # DuckDB reads this type as an instant.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


class SparkRunner:
    """The query on a local Spark session, started and stopped here unless one is already active."""

    def __init__(self, size: Size, folder: Path, adapt: Adaptation | None = None) -> None:
        self._size = size
        self._folder = folder
        self._adapt = adapt
        self._metrics: dict[int, dict[str, Any]] = {}
        """By the number of their batch, until the batch ends."""
        self._results = 0
        self._rows = 0
        self._next = 0

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            spark = self._started(opened)
            frames = {
                name: spark.readStream.schema(SPARK_SCHEMAS[name])
                .option("maxFilesPerTrigger", 1)
                .parquet(str(self._folder / "in" / name))
                for name in ALIASES
            }
            self._live = query().run_on_spark(
                frames, plan=OLD_ORDER, cells=1, control_dir=self._folder / "control", adapt=self._adapt
            )
            writer = self._live.results.writeStream.format("parquet")
            self._running = writer.option("checkpointLocation", str(self._folder / "checkpoint")).start(
                str(self._folder / "out")
            )
            opened.callback(self._running.stop)
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def _started(self, opened: contextlib.ExitStack) -> Any:
        """A Spark session. If it does not start, the error quotes the log instead of a stack trace."""
        log = self._folder / "spark.log"
        try:
            return opened.enter_context(passing_session(settings=_SETTINGS, log=log))
        except MidstreamError:
            raise
        except Exception as problem:
            said = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
            raise BrokenRun("Spark did not start", detail=" | ".join(said[-3:]) or str(problem)) from problem

    def batches(self) -> Iterator[Batch | None]:
        while self._rows < self._size.rows_in_all:
            self._record_metrics()
            ended = list(self._ended())
            yield from ended
            if not ended:
                yield None
                self._check_alive()
                time.sleep(POLL_SECONDS)
        self._live.finish()
        try:
            self._running.processAllAvailable()
        except Exception as problem:
            raise _stopped(problem) from problem

    def decisions(self) -> list[Decision]:
        return self._live.decisions()

    def migrate(self, order: str, strategy: str) -> None:
        self._live.migrate(order, strategy)

    def migrations(self) -> list[Mapping[str, Any]]:
        return [migration.as_dict() for migration in self._live.history()]

    def result_files(self) -> list[Path]:
        return committed_files(self._folder / "out")

    def _record_metrics(self) -> None:
        """Keep the latest metrics under the number of their batch."""
        metrics = self._live.metrics()
        if metrics["batches"]:
            self._metrics[metrics["batches"] - 1] = metrics

    def _ended(self) -> Iterator[Batch]:
        """The batches that have ended since the last call."""
        last = self._running.lastProgress
        if last is None or last.batchId < self._next:
            return
        several = last.batchId > self._next
        for progress in self._running.recentProgress if several else [last]:
            if progress.batchId >= self._next and "addBatch" in progress.durationMs:
                self._next = progress.batchId + 1
                yield self._batch(progress.batchId, progress.durationMs["triggerExecution"] / 1000)

    def _batch(self, number: int, seconds: float) -> Batch:
        # A batch's metrics arrive before it ends, and those of the next one much later.
        metrics = self._metrics.get(number) or self._live.metrics()
        self._metrics = {batch: kept for batch, kept in self._metrics.items() if batch > number}
        rows = sum(stream["rows"] for stream in metrics["streams"].values())
        batch = Batch(
            number,
            seconds,
            rows - self._rows,
            metrics["results"] - self._results,
            metrics["cells"][0]["plan"],
            metrics["migrating"],
            metrics["window_rows"],
            join_states(metrics["cells"]),
        )
        self._rows, self._results = rows, metrics["results"]
        return batch

    def _check_alive(self) -> None:
        if not self._running.isActive:
            raise _stopped(self._running.exception())


def _stopped(problem: Exception | None) -> BrokenRun:
    return BrokenRun("the query on Spark has stopped", detail=None if problem is None else str(problem))
