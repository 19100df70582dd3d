"""All that a coordinator knows while nothing is under way, as JSON: what its log is compacted to.

A snapshot is as large as the topology and the queries that are deployed, however much has happened to them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from midstream.algebra.plan_json import plan_from_json, plan_to_json
from midstream.deployment.placement.fragments import DeployedQuery
from midstream.deployment.placement.global_plan import NodeId, StageId
from midstream.deployment.placement.placement import QueryPlacement
from midstream.deployment.placement.stage_plans import stage_plan_from_json, stage_plan_to_json
from midstream.deployment.protocol.coordinator import Coordinator
from midstream.deployment.protocol.query_state import QueryState
from midstream.deployment.topology.topology import Link, Node, Topology

__all__ = ["CoordinatorSnapshot"]


class _Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """As in ``QueryState``, without what is under way."""

    plans: list[dict[str, Any]]
    current: dict[StageId, dict[str, Any]]
    deployed: DeployedQuery
    placed: QueryPlacement
    generation: int
    begun: list[StageId]
    lost_with: dict[StageId, NodeId]
    migrations: int
    refusals: dict[StageId, str]
    problem: str | None


class CoordinatorSnapshot(msgspec.Struct, frozen=True, tag="snapshot", forbid_unknown_fields=True):
    """What a coordinator knows."""

    entries: int
    """How many entries of the log led to it."""
    nodes: list[Node]
    links: list[Link]
    losses: dict[NodeId, int]
    queries: list[_Query]
    committed: int
    given_up: int

    @classmethod
    def of(cls, coordinator: Coordinator, entries: int) -> CoordinatorSnapshot:
        """Only while nothing is under way, and no node is leaving."""
        assert coordinator.can_be_compacted
        topology = coordinator.topology
        return cls(
            entries,
            list(topology.nodes.values()),
            list(topology.links()),
            dict(coordinator.losses),
            [
                _Query(
                    [stage_plan_to_json(plan) for plan in known.plans.values()],
                    {stage: plan_to_json(plan) for stage, plan in known.current.items()},
                    known.deployed,
                    coordinator.placement.of(query),
                    known.generation,
                    sorted(known.begun),
                    known.lost_with,
                    known.migrations,
                    known.refusals,
                    known.problem,
                )
                for query, known in coordinator.queries.items()
            ],
            coordinator.committed,
            coordinator.given_up,
        )

    def coordinator(self) -> Coordinator:
        """A coordinator that knows this."""
        made = Coordinator(Topology(self.nodes, self.links))
        made.losses = Counter(self.losses)
        made.committed, made.given_up = self.committed, self.given_up
        for query in self.queries:
            plans = [stage_plan_from_json(plan) for plan in query.plans]
            by_stage = {plan.stage.id: plan for plan in plans}
            made.plan = made.plan.with_query([plan.stage for plan in plans])
            made.placement.put(query.placed)
            known = made.queries[query.deployed.query] = QueryState(by_stage, query.deployed, query.generation)
            for stage, current in query.current.items():
                began_with = by_stage[stage].plan
                assert began_with is not None
                known.current[stage] = plan_from_json(current, began_with.derived_from)
            known.begun, known.lost_with = set(query.begun), dict(query.lost_with)
            known.migrations, known.refusals, known.problem = query.migrations, dict(query.refusals), query.problem
        return made
