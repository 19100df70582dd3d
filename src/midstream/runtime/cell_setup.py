"""What every cell of a query must know before its first row."""

from __future__ import annotations

import json

import msgspec

from midstream.adaptation.policy import Adaptation
from midstream.algebra.plan import Plan
from midstream.algebra.plan_json import plan_from_json, plan_to_json
from midstream.execution.just_in_time import JustInTime
from midstream.planned_query import PlannedQuery
from midstream.planning.partitioning import Partitioning
from midstream.runtime.query_fingerprint import QueryFingerprint

__all__ = ["CellSetup"]


class CellSetup(msgspec.Struct, frozen=True):
    """Small, because it is sent to every task; turned into plans only where a cell begins."""

    query: QueryFingerprint
    """What a checkpoint must agree with."""
    first_plan: str
    """As JSON text."""
    default_plan: str
    lateness: dict[str, int]
    """By stream, in ticks."""
    just_in_time: JustInTime | None = None
    """How the first plan is run."""
    adaptation: Adaptation | None = None
    """How a cell that begins measures its joins; None: it does not."""

    @classmethod
    def of(
        cls,
        query: PlannedQuery,
        first_plan: Plan,
        partitioning: Partitioning,
        just_in_time: JustInTime | None = None,
    ) -> CellSetup:
        """The setup of a query that begins with this plan and is spread in this way."""
        default = query.plan()
        streams = {window.stream.name: window.stream for window in default.windows()}
        return cls(
            QueryFingerprint.of(query, partitioning),
            json.dumps(plan_to_json(first_plan)),
            json.dumps(plan_to_json(default)),
            {name: streams[name].lateness_ticks for name in sorted(streams)},
            just_in_time,
        )

    @property
    def derived_from(self) -> str:
        """The identity of the query, which all its plans share."""
        return self.query.identity

    def plan(self, text: str) -> Plan:
        """A plan of this query from its JSON."""
        return plan_from_json(json.loads(text), self.derived_from)
