"""A continuous query: text and stream declarations in; explained, planned and run.

>>> import pyarrow as pa
>>> from midstream import ContinuousQuery, Stream
>>> schema = pa.schema({"ts": pa.int64(), "id": pa.int64()})
>>> query = ContinuousQuery(
...     "SELECT o.id FROM orders [RANGE 10] o, payments [RANGE 10] p WHERE o.id = p.id",
...     streams=[Stream("orders", schema, "ts"), Stream("payments", schema, "ts")])
>>> print(query.plan("p o").explain())
Project o.id AS id
└─ Join o.id = p.id
   ├─ Project p.id
   │  └─ Window payments AS p [RANGE 10]
   └─ Project o.id
      └─ Window orders AS o [RANGE 10]
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from midstream.algebra.bounded_state import check_bounded_state
from midstream.algebra.plan import Plan
from midstream.algebra.stream import Stream
from midstream.cql import parse
from midstream.engine.box import CHUNK_ROWS
from midstream.errors import BadPlan, BadStreamDeclaration, SparkMissing
from midstream.installation import install_command
from midstream.planning import default_plan, equivalent_plans, plan_with_join_order
from midstream.run import LocalRun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from midstream.spark.live_query import LiveQuery

__all__ = ["ContinuousQuery"]


class ContinuousQuery:
    """A query over declared streams. Bad text raises a ``midstream.errors.QueryError`` that says where and why."""

    def __init__(self, text: str, streams: Sequence[Stream]) -> None:
        if isinstance(streams, Iterable) and not isinstance(streams, str | Mapping):
            streams = tuple(streams)
        if not (isinstance(streams, tuple) and all(isinstance(stream, Stream) for stream in streams)):
            raise BadStreamDeclaration(
                "the streams of a query are a list of Stream declarations",
                hint='Write streams=[Stream("orders", schema, event_time="ts"), ...].',
            )
        self.text = text
        self.streams = streams
        self._bound = parse(text, self.streams)
        check_bounded_state(self._bound)
        self._default: Plan | None = None

    def explain(self) -> str:
        """The default plan as a tree."""
        return self.plan().explain()

    def plan(self, join_order: str | None = None) -> Plan:
        """The default plan, or the one with the join order given by aliases and parentheses: ``"(o p) s"``."""
        if join_order is not None:
            return self._own(plan_with_join_order(self._bound, join_order))
        if self._default is None:
            self._default = self._own(default_plan(self._bound))
        return self._default

    def plans(self) -> Iterator[Plan]:
        """Equivalent plans that the rules can reach, lazily; the first is the default plan."""
        return (self._own(plan) for plan in equivalent_plans(self._bound))

    def run_locally(self, plan: str | Plan | None = None, *, chunk_rows: int = CHUNK_ROWS) -> LocalRun:
        """Start the query in this process. ``chunk_rows`` bounds the results in the making at once."""
        if isinstance(chunk_rows, bool) or not isinstance(chunk_rows, int) or chunk_rows < 1:
            raise BadPlan(f"chunk_rows is {chunk_rows!r}", hint="Give a whole number of 1 or more.")
        return LocalRun(self.chosen(plan), self.chosen, chunk_rows)

    def run_on_spark(
        self, frames: Mapping[str, DataFrame], plan: str | Plan | None = None, **options: Any
    ) -> LiveQuery:
        """Start the query on Spark, over streaming (or batch) DataFrames by stream name.

        Options: ``control_dir`` (where plan changes are written; needed to restart or to migrate from another process),
        ``cells`` (into how many the rows are spread), ``rates`` (relative rows per second by stream, for spreading),
        ``idle_after`` (a stream that is silent for so long does not hold back the watermark).
        """
        try:
            live_query = importlib.import_module("midstream.spark.live_query")
        except ModuleNotFoundError as missing:
            raise SparkMissing(
                f"Spark is not installed: {missing}", hint=f"Install it with {install_command('spark')}."
            ) from None
        live: LiveQuery = live_query.LiveQuery(self, frames, plan, **options)
        return live

    def chosen(self, plan: str | Plan | None) -> Plan:
        """The plan that a user means."""
        if plan is None or isinstance(plan, str):
            plan = self.plan(plan)
        self._check_own(plan)
        return plan

    def _own(self, plan: Plan) -> Plan:
        plan.mark_as_derived_from(self._bound.identity)
        return plan

    def _check_own(self, plan: Plan) -> None:
        if not isinstance(plan, Plan) or plan.derived_from != self._bound.identity:
            raise BadPlan(
                "the plan is not one of this query's",
                detail=f"It produces {', '.join(f.name for f in plan.schema)}." if isinstance(plan, Plan) else None,
                hint="Take it from plan() or plans() of this query, or name a join order.",
            )

    def __repr__(self) -> str:
        return f"ContinuousQuery({self.text!r})"
