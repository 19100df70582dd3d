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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from midstream.algebra.plan import Plan
from midstream.algebra.windows import BEGINNING, NEVER
from midstream.engine.batch import Batch
from midstream.engine.box import CHUNK_ROWS
from midstream.engine.ingest import Ingest
from midstream.engine.output import output_schema, to_record_batches
from midstream.engine.window_store import Rows
from midstream.errors import DecreasingWatermark, FinishedRun, MigrationRefused, PushedTypeMismatch
from midstream.migration.cell import Cell
from midstream.migration.state_matching import Completion

__all__ = ["LocalRun", "Planner"]

Planner = Callable[[str | Plan | None], Plan]
"""Gives the plan that a user names: a join order, a plan (checked to be the query's own), or None for the default."""


class LocalRun:
    """A query at work. Not thread-safe: one push at a time."""

    def __init__(self, plan: Plan, planner: Planner, chunk_rows: int = CHUNK_ROWS) -> None:
        self._cell = Cell(plan, planner(None), chunk_rows)
        self._planner = planner
        self._ingest = Ingest({window.stream.name: window.stream for window in plan.windows()})
        self._schema = output_schema(plan)
        self._finished = False

    @property
    def plan(self) -> Plan:
        """The plan in force; while the run is migrating, the one it is migrating to."""
        return self._cell.plan

    @property
    def migrating(self) -> bool:
        """Whether a change of the plan is under way, or states are still to be completed (jisc)."""
        return self._cell.is_migrating

    @property
    def output_schema(self) -> pa.Schema:
        """The schema of the results: the select list, ``valid_from``, ``valid_to``."""
        return self._schema

    @property
    def watermark(self) -> int | None:
        """The watermark in ticks; None before every stream has had a row."""
        return None if self._ingest.watermark == BEGINNING else self._ingest.watermark

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
        reads = self._ingest.check(tables)
        if ticks is not None and ticks < self._ingest.watermark:
            raise DecreasingWatermark(
                f"the watermark cannot move back from {self._ingest.watermark} to {ticks}",
                hint="Leave it out, or give one that is not earlier.",
            )
        rows = self._ingest.accept(reads)
        return self._work(rows, self._ingest.advance(ticks))

    def finish(self) -> pa.Table:
        """The end of all streams: everything still held."""
        self._check_usable()
        results = pa.Table.from_batches(self._work({}, self._ingest.advance(NEVER)), self._schema)
        self._finished = True
        return results

    def migrate(self, plan: str | Plan, strategy: str = "jisc", **options: Any) -> None:
        """Replace the plan while the query runs.

        ``plan`` is a join order (``"o (p s)"``) or one of the query's plans. Results stay what they would have been:
        for joins every row once, for other operators the same rows at every instant (where they are cut in time may
        differ). Raises, and changes nothing, if the plan is not one of this query's or the strategy cannot make the
        change. Migrating to the plan in force does nothing. See ``docs/migration.md``.
        """
        self._check_usable()
        self._cell.migrate(self._planner(plan), strategy, **options)

    def rebuild(self, completion: str = "moving-state") -> None:
        """Throw away everything that was derived from the rows in their windows, and compute it again.

        That is what happens after a crash: results go on as if nothing had been. ``completion`` is "moving-state" (at
        once) or "jisc" (on demand).
        """
        self._check_usable()
        try:
            chosen = Completion(completion)
        except ValueError:
            raise MigrationRefused(
                f"a run cannot be rebuilt by {completion!r}", detail='There are "moving-state" and "jisc".'
            ) from None
        self._cell.rebuild(chosen)

    def metrics(self) -> dict[str, Any]:
        """Counts since the start: per stream, per operator, per migration, and in all."""
        streams = {name: asdict(counters) for name, counters in self._ingest.counters.items()}
        return {"streams": streams, "watermark": self.watermark, **self._cell.metrics()}

    def _work(self, rows: Mapping[str, Rows], watermark: int) -> Iterator[pa.RecordBatch]:
        return self._converted(self._cell.push(self._cell.windows.of_streams(rows), watermark))

    def _converted(self, results: Iterator[Batch]) -> Iterator[pa.RecordBatch]:
        for batch in results:
            yield from to_record_batches(batch, self._schema)

    def _check_usable(self) -> None:
        if self._finished:
            raise FinishedRun("the run has been finished", hint="Start another one with run_locally().")
        self._cell.settle()

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
