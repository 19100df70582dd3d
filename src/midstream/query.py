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

from collections.abc import Iterator, Sequence

from midstream.algebra.bounded_state import check_bounded_state
from midstream.algebra.plan import Plan
from midstream.algebra.stream import Stream
from midstream.cql import parse
from midstream.engine.box import CHUNK_ROWS
from midstream.errors import BadPlan
from midstream.planning import default_plan, equivalent_plans, plan_with_join_order
from midstream.run import LocalRun

__all__ = ["ContinuousQuery"]


class ContinuousQuery:
    """A query over declared streams. Bad text raises a :class:`QueryError` that says where and why."""

    def __init__(self, text: str, streams: Sequence[Stream]) -> None:
        self.text = text
        self.streams = tuple(streams)
        self._bound = parse(text, self.streams)
        check_bounded_state(self._bound)
        self._default: Plan | None = None

    def explain(self) -> str:
        """The default plan as a tree."""
        return self.plan().explain()

    def plan(self, join_order: str | None = None) -> Plan:
        """The default plan, or the one with the join order given by aliases and parentheses: ``"(o p) s"``."""
        if join_order is not None:
            return plan_with_join_order(self._bound, join_order)
        if self._default is None:
            self._default = default_plan(self._bound)
        return self._default

    def plans(self) -> Iterator[Plan]:
        """Equivalent plans that the rules can reach, lazily, best first; the first is the default plan."""
        return equivalent_plans(self._bound)

    def run_locally(self, plan: str | Plan | None = None, *, chunk_rows: int = CHUNK_ROWS) -> LocalRun:
        """Start the query in this process. ``chunk_rows`` bounds the results in the making at once."""
        if not isinstance(plan, Plan):
            plan = self.plan(plan)
        if plan.schema != self._bound.schema:
            raise BadPlan(
                "the plan does not produce what the query asks for",
                detail=f"It has the columns {', '.join(f.name for f in plan.schema)}.",
                hint="Take a plan from plan() or plans() of the same query.",
            )
        check_bounded_state(plan)
        return LocalRun(plan, chunk_rows)

    def __repr__(self) -> str:
        return f"ContinuousQuery({self.text!r})"
