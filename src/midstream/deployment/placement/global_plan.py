"""The global query plan: the stages of all deployed queries, and the edges along which rows pass between them.

A *stage* is a piece of a query's plan that is placed on a node as a whole: a physical source, an operator that keeps
state (with the stateless ones above it), or the sink where a query's results leave. (ISQD §2 calls it an operator of
the global query plan.) Every stage but a sink has exactly one consumer, so the stages of a query are a tree whose root
is the sink, and an edge is named by the stage that produces its rows. Which stages run on one node, and so form a
fragment, is decided by ``placement``; what a stage computes is in ``stage_plans``.

This module knows no plans, no rows and no topology.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["GlobalPlan", "NodeId", "Stage", "StageId"]

StageId = str
"""Unique among all queries of a deployment, and the same wherever the stage runs: ``"trains/join 1"``."""
NodeId = str
"""The name of a node of the topology."""


@dataclass(frozen=True)
class Stage:
    """A piece of a query's plan that is placed as a whole."""

    id: StageId
    query: str
    inputs: tuple[StageId, ...]
    """The stages whose rows it takes."""
    pinned_to: NodeId | None = None
    """The only node that it can run on: a source is where its rows arise, a sink where results are wanted."""
    is_stateful: bool = False
    """Whether it keeps rows from one batch for the next, which must follow it when it moves."""


class GlobalPlan:
    """The stages of all queries. Immutable: a change gives another one."""

    def __init__(self, stages: Iterable[Stage]) -> None:
        self._stages = {stage.id: stage for stage in stages}
        self._consumers: dict[StageId, StageId] = {}
        self._queries: dict[str, list[StageId]] = {}
        self._sinks: dict[str, StageId] = {}
        seen: set[StageId] = set()
        for stage in self._stages.values():
            seen.add(stage.id)
            self._queries.setdefault(stage.query, []).append(stage.id)
            for producer in stage.inputs:
                assert producer in seen, f"{producer} does not come before its consumer, {stage.id}"
                assert producer not in self._consumers, f"{producer} has two consumers"
                assert self._stages[producer].query == stage.query, f"{producer} belongs to another query"
                self._consumers[producer] = stage.id
        for query, own in self._queries.items():
            (self._sinks[query],) = (stage for stage in own if stage not in self._consumers)

    @property
    def stages(self) -> Mapping[StageId, Stage]:
        return MappingProxyType(self._stages)

    @property
    def queries(self) -> Iterable[str]:
        return self._queries.keys()

    def stages_of(self, query: str) -> list[StageId]:
        """The stages of one query, producers before their consumer."""
        return list(self._queries[query])

    def sink_of(self, query: str) -> StageId:
        """The stage where the results of a query leave."""
        return self._sinks[query]

    def consumer_of(self, stage: StageId) -> StageId | None:
        """The stage that takes this one's rows; None for a sink."""
        return self._consumers.get(stage)

    def with_query(self, stages: Iterable[Stage]) -> GlobalPlan:
        """This plan and the stages of one more query."""
        return GlobalPlan([*self._stages.values(), *stages])

    def without_query(self, query: str) -> GlobalPlan:
        """This plan without a query."""
        return GlobalPlan(stage for stage in self._stages.values() if stage.query != query)
