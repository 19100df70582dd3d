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

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from midstream.adaptation.policy import Adaptation
from midstream.algebra.plan import Plan
from midstream.errors import BadPlan, SparkMissing
from midstream.execution.just_in_time import JustInTime
from midstream.execution.plan_executor import CHUNK_ROWS
from midstream.installation import install_command
from midstream.planned_query import PlannedQuery
from midstream.runtime.local_run import LocalRun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from midstream.spark.file_stream import FileStream
    from midstream.spark.live_query import LiveQuery

__all__ = ["ContinuousQuery"]


class ContinuousQuery(PlannedQuery):
    """A query over declared streams. Bad text raises a ``midstream.errors.QueryError`` that says where and why."""

    def run_locally(
        self,
        plan: str | Plan | None = None,
        *,
        just_in_time: bool | JustInTime = False,
        adapt: str | Adaptation = "off",
        chunk_rows: int = CHUNK_ROWS,
    ) -> LocalRun:
        """Start the query in this process.

        ``just_in_time``: make partial results only when somebody can use them (see ``docs/just_in_time.md``).
        ``adapt``: "auto" lets the query change its plan by itself, "advise" only says what it would do; all options
        are those of ``Adaptation`` (see ``docs/adaptation.md``).
        ``chunk_rows`` bounds the results in the making at once.
        """
        if isinstance(chunk_rows, bool) or not isinstance(chunk_rows, int) or chunk_rows < 1:
            raise BadPlan(f"chunk_rows is {chunk_rows!r}", hint="Give a whole number of 1 or more.")
        return LocalRun(self.chosen(plan), self.chosen, chunk_rows, just_in_time, adapt, self.shapes)

    def run_on_spark(
        self, frames: Mapping[str, DataFrame | FileStream], plan: str | Plan | None = None, **options: Any
    ) -> LiveQuery:
        """Start the query on Spark, over streaming (or batch) DataFrames by stream name.

        Parquet files that appear in a directory are better given as a ``midstream.spark.FileStream``, which is read in
        a defined order and without passing through Spark's rows.

        Options: ``control_dir`` (where plan changes are written; needed to restart or to migrate from another process),
        ``cells`` (into how many the rows are spread), ``rates`` (relative rows per second by stream, for spreading),
        ``idle_after`` (a stream that is silent for so long does not hold back the watermark), ``just_in_time`` (as for
        ``run_locally``; a restart continues with what was chosen last), ``adapt`` (as for ``run_locally``; a restart
        without it continues with what was chosen last, and with a plan that a person has chosen).
        """
        try:
            from midstream.spark.live_query import LiveQuery
        except ModuleNotFoundError as missing:
            raise SparkMissing(
                f"Spark is not installed: {missing}", hint=f"Install it with {install_command('spark')}."
            ) from None
        return LiveQuery(self, frames, plan, **options)
