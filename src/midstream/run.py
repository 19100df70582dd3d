"""A continuous query running in this process: tables in, results out.

>>> import pyarrow as pa
>>> from midstream import ContinuousQuery, Stream
>>> bids = Stream("bids", pa.schema({"ts": pa.int64(), "item": pa.string()}), event_time="ts")
>>> run = ContinuousQuery("SELECT a.item FROM bids [RANGE 5] a, bids [NOW] b WHERE a.item = b.item",
...                       streams=[bids]).run_locally()
>>> run.push({"bids": pa.table({"ts": [1, 4], "item": ["pen", "pen"]})}).to_pylist()  # doctest: +NORMALIZE_WHITESPACE
[{'item': 'pen', 'valid_from': 1, 'valid_to': 2},
 {'item': 'pen', 'valid_from': 4, 'valid_to': 5},
 {'item': 'pen', 'valid_from': 4, 'valid_to': 5}]
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from midstream.algebra.plan import Plan
from midstream.algebra.windows import BEGINNING, NEVER
from midstream.engine.batch import Batch
from midstream.engine.box import CHUNK_ROWS, Box, Rows
from midstream.engine.intake import Intake
from midstream.engine.output import output_schema, to_record_batches
from midstream.errors import BrokenRun, DecreasingWatermark, FinishedRun, PushedTypeMismatch

__all__ = ["LocalRun"]


class LocalRun:
    """A query at work. Not thread-safe: one push at a time."""

    def __init__(self, plan: Plan, chunk_rows: int = CHUNK_ROWS) -> None:
        self._box = Box(plan, chunk_rows)
        self._intake = Intake({window.stream.name: window.stream for window in plan.windows()})
        self._schema = output_schema(plan)
        self._results = 0
        self._finished = False
        self._failure: BaseException | None = None
        self._pending: Iterator[Batch] = iter(())

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._box.plan

    @property
    def output_schema(self) -> pa.Schema:
        """The schema of the results: the select list, ``valid_from``, ``valid_to``."""
        return self._schema

    @property
    def watermark(self) -> int | None:
        """The watermark in ticks; None before every stream has had a row."""
        return None if self._intake.watermark == BEGINNING else self._intake.watermark

    def push(
        self,
        tables: Mapping[str, pa.Table | pa.RecordBatch],
        watermark: int | datetime.datetime | None = None,
    ) -> pa.Table:
        """Take new rows and give the results they cause, ordered by ``valid_from``.

        ``watermark`` (a heartbeat, in ticks or as a datetime) says that no later row will be older.
        Bad input raises before anything changes.
        """
        return pa.Table.from_batches(self.push_in_chunks(tables, watermark), self._schema)

    def push_in_chunks(
        self,
        tables: Mapping[str, pa.Table | pa.RecordBatch],
        watermark: int | datetime.datetime | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Like :meth:`push`, but the results come in bounded pieces, so that a join explosion need not fit in memory.

        The rows are checked when this is called, and become part of the state at the latest with the next push; pieces
        that are not fetched by then are lost.
        """
        self._check_usable()
        ticks = self._ticks(watermark)
        reads = self._intake.check(tables)
        if ticks is not None and ticks < self._intake.watermark:
            raise DecreasingWatermark(
                f"the watermark cannot move back from {self._intake.watermark} to {ticks}",
                hint="Leave it out, or give one that is not earlier.",
            )
        rows = self._intake.accept(reads)
        return self._work(rows, self._intake.advance(ticks))

    def finish(self) -> pa.Table:
        """The end of all streams: everything still held."""
        self._check_usable()
        results = pa.Table.from_batches(self._work({}, self._intake.advance(NEVER)), self._schema)
        self._finished = True
        return results

    def metrics(self) -> dict[str, Any]:
        """Counts since the start: per stream, per operator, and in all."""
        streams = {
            name: {"rows": c.rows, "late": c.late, "without_event_time": c.without_event_time}
            for name, c in self._intake.counters.items()
        }
        return {
            "streams": streams,
            "operators": self._box.metrics(),
            "results": self._results,
            "watermark": self.watermark,
            "state_rows": self._box.state_rows,
            "state_bytes": self._box.state_bytes,
        }

    def _work(self, rows: Mapping[str, Rows], watermark: int) -> Iterator[pa.RecordBatch]:
        self._pending = self._box.push(rows, watermark)
        return self._fetch(self._pending)

    def _fetch(self, pending: Iterator[Batch]) -> Iterator[pa.RecordBatch]:
        try:
            for batch in pending:
                self._results += len(batch)
                yield from to_record_batches(batch, self._schema)
        except GeneratorExit:
            # Whoever fetched the results lost interest: the rows must become part of the state all the same.
            self._drain(pending)
            raise
        except BaseException as failure:
            self._failure = failure
            raise

    def _drain(self, pending: Iterator[Batch]) -> None:
        """Complete a push whose results were not all fetched."""
        try:
            for batch in pending:
                self._results += len(batch)
        except BaseException as failure:
            self._failure = failure
            raise

    def _check_usable(self) -> None:
        if self._finished:
            raise FinishedRun("the run has been finished", hint="Start another one with run_locally().")
        if self._failure is not None:
            raise BrokenRun(
                "an earlier push failed half-way, and the run's state is not to be trusted",
                detail=f"{type(self._failure).__name__}: {self._failure}",
                hint="Start another run and push the rows still inside their windows.",
            )
        self._drain(self._pending)

    def _ticks(self, watermark: int | datetime.datetime | None) -> int | None:
        if watermark is None:
            return None
        if isinstance(watermark, int) and not isinstance(watermark, bool):
            if not BEGINNING < watermark < NEVER:
                raise PushedTypeMismatch(
                    f"the watermark {watermark} is outside int64 ticks", hint="Use finish() to end the streams."
                )
            return watermark
        time_type = self.plan.time_domain.type
        if isinstance(watermark, datetime.datetime) and pat.is_timestamp(time_type):
            zones_agree = (watermark.tzinfo is None) == (time_type.tz is None)
            if zones_agree:
                return int(pa.scalar(watermark, pa.timestamp("us", time_type.tz)).value)
        raise PushedTypeMismatch(
            f"the watermark {watermark!r} does not fit event times of type {time_type}",
            hint="Give ticks, or a datetime with a time zone exactly if the event times have one.",
        )
