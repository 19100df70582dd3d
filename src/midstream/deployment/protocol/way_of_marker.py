"""The way of a marker through a query: where it enters, and which stages pass it on.

It enters at every stage that is to act and to which no other stage will bring it, judged by the topology as it is now;
so it never has to cross a link that is gone. It goes no further than the last stage that is to act.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from midstream.deployment.placement.global_plan import GlobalPlan, NodeId, StageId
from midstream.deployment.placement.placement import QueryPlacement
from midstream.deployment.topology.topology import Topology

__all__ = ["entry_stages", "passing_on"]


def passing_on(plan: GlobalPlan, query: str, acting: Iterable[StageId]) -> frozenset[StageId]:
    """The stages that have an acting one after them."""
    passing: set[StageId] = set()
    for stage in reversed(plan.stages_of(query)):
        consumer = plan.consumer_of(stage)
        if consumer is not None and (consumer in acting or consumer in passing):
            passing.add(stage)
    return frozenset(passing)


def entry_stages(
    plan: GlobalPlan,
    topology: Topology,
    before: QueryPlacement,
    after: QueryPlacement,
    acting: Mapping[StageId, NodeId],
    passing: frozenset[StageId],
) -> dict[NodeId, tuple[StageId, ...]]:
    """Where the marker enters: at the acting stages to which no other stage will bring it."""
    entered: dict[NodeId, tuple[StageId, ...]] = {}
    met: set[StageId] = set()
    for stage in plan.stages_of(before.query):
        is_brought = any(
            producer in met and producer in passing and _still_leads(topology, before, after, producer, stage)
            for producer in plan.stages[stage].inputs
        )
        if stage in acting and not is_brought:
            entered[acting[stage]] = (*entered.get(acting[stage], ()), stage)
        if is_brought or stage in acting:
            met.add(stage)
    return entered


def _still_leads(
    topology: Topology, before: QueryPlacement, after: QueryPlacement, producer: StageId, consumer: StageId
) -> bool:
    """Whether what a producer sends from now on reaches the consumer where it has been so far."""
    moves = before.nodes.get(producer) != after.nodes.get(producer)
    # A stage that has ended goes on sending on its old route.
    route = (before if moves else after).routes.get(producer)
    return route is not None and route[-1] == before.nodes.get(consumer) and topology.is_route(route)
