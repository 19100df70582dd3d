"""Fragments: what is deployed on a node as a whole (ISQD's decomposed query plans).

A fragment is a maximal connected set of stages of one query on one node. As the stages of a query are a tree, so is a
fragment, and its rows leave through one stage, the last. Rows that come in name the edge that they belong to, so a
producer needs to know the route to its consumer's node and a consumer the nodes of its producers, but neither knows
the other's fragment.

A fragment keeps its id while it stays on its node. Its version counts the changes of its stages and neighbours.

A deployment is valid (ISQD §2) if

1. every stage of a fragment is placed on the fragment's node,
2. every edge between two nodes has a path in the topology that is its route (or none exists and the edge is cut off),
3. every stage has the state of its whole history. Here that means: a stage that moves takes its state along.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from midstream.deployment.placement.global_plan import GlobalPlan, NodeId, StageId
from midstream.deployment.placement.placement import QueryPlacement
from midstream.deployment.placement.placement_amendment import QueryAmendment
from midstream.deployment.topology.topology import Route, Topology
from midstream.errors import InvalidPlacement, quoted

__all__ = ["DeployedQuery", "Fragment", "FragmentId", "check_deployment", "check_state_paths", "decompose"]

FragmentId = str
"""Unique among all fragments that a query ever has: ``"trains#3"``."""


@dataclass(frozen=True)
class Fragment:
    """Connected stages of one query on one node."""

    id: FragmentId
    version: int
    query: str
    node: NodeId
    stages: tuple[StageId, ...]
    """Producers before their consumer, so the last one is where rows leave."""
    inputs: Mapping[StageId, NodeId] = field(default_factory=dict)
    """The edges along which rows come from other fragments, and the nodes where they are produced."""
    route: Route | None = None
    """The way of the rows that leave; None for a sink, or if no route is known as yet."""

    @property
    def output(self) -> StageId:
        """The edge along which rows leave; a sink has none in spite of its name."""
        return self.stages[-1]


@dataclass(frozen=True)
class DeployedQuery:
    """The fragments of one query."""

    query: str
    fragments: Mapping[FragmentId, Fragment] = field(default_factory=dict)
    next_number: int = 1
    """The number of the next new fragment: ids are never used again."""

    def fragment_of(self, stage: StageId) -> Fragment | None:
        """The fragment that a stage is part of; None if the stage has no node."""
        return next((fragment for fragment in self.fragments.values() if stage in fragment.stages), None)


def decompose(plan: GlobalPlan, placement: QueryPlacement) -> list[tuple[NodeId, tuple[StageId, ...]]]:
    """The maximal connected sets of stages on one node, each with its node; producers before consumers."""
    open_parts: dict[StageId, list[StageId]] = {}
    """By their last stage, those that may go on with its consumer."""
    for stage in plan.stages_of(placement.query):
        node = placement.nodes.get(stage)
        if node is not None:
            joined = [producer for producer in plan.stages[stage].inputs if placement.nodes.get(producer) == node]
            open_parts[stage] = [*(before for producer in joined for before in open_parts.pop(producer)), stage]
    return [(placement.nodes[last], tuple(part)) for last, part in open_parts.items()]


def check_deployment(
    plan: GlobalPlan, placement: QueryPlacement, fragments: Iterable[Fragment], topology: Topology
) -> None:
    """InvalidPlacement if conditions 1 or 2 do not hold, or if a fragment is not connected or not maximal."""
    deployed = list(fragments)
    for fragment in deployed:
        for stage in fragment.stages:
            if placement.nodes.get(stage) != fragment.node:
                raise InvalidPlacement(
                    f'fragment "{fragment.id}" on node "{fragment.node}" has stage "{stage}", '
                    f"which is placed on {_named(placement.nodes.get(stage))}",
                    detail="Condition 1: every stage of a fragment is placed on the fragment's node.",
                )
    expected = sorted(decompose(plan, placement))
    found = sorted((fragment.node, fragment.stages) for fragment in deployed)
    if found != expected:
        stages = [stage for node, part in expected if (node, part) not in found for stage in part]
        raise InvalidPlacement(
            f'the fragments of query "{placement.query}" are not its maximal connected parts',
            detail=f"Stages {quoted(stages)}." if stages else "There is a fragment too many.",
        )
    for edge in plan.stages_of(placement.query):
        consumer = plan.consumer_of(edge)
        if consumer is None:
            continue
        ends = placement.nodes.get(edge), placement.nodes.get(consumer)
        route = placement.routes.get(edge)
        if route is None:
            path = None if ends[0] is None or ends[1] is None else topology.path(ends[0], ends[1])
            if edge in placement.cut_off and path is None:
                continue
        elif (route[0], route[-1]) == ends and topology.is_route(route):
            continue
        raise InvalidPlacement(
            f'edge "{edge}" → "{consumer}" has no valid route from {_named(ends[0])} to {_named(ends[1])}',
            detail="Condition 2: every edge between two nodes has a path."
            + ("" if route is None else f" Its route is {quoted(route)}."),
        )


def check_state_paths(plan: GlobalPlan, amendment: QueryAmendment) -> None:
    """InvalidPlacement if a stage that keeps state moves without it (condition 3), unless the state is lost."""
    for move in amendment.moves:
        if not plan.stages[move.stage].is_stateful or move.source is None or move.stage in amendment.lost_state:
            continue
        path = move.state_path
        if path is None or (path[0], path[-1]) != (move.source, move.target):
            raise InvalidPlacement(
                f'stage "{move.stage}" moves from {_named(move.source)} to {_named(move.target)} without its state',
                detail="Condition 3: every stage has the state of its whole history.",
            )


def _named(node: NodeId | None) -> str:
    return "no node" if node is None else f'node "{node}"'
