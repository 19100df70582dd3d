"""What is known of a deployment at one moment, as data: for people who watch it, and for programs."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from midstream.deployment.placement.global_plan import NodeId, StageId
from midstream.deployment.protocol.coordinator import Coordinator
from midstream.deployment.protocol.messages import Data
from midstream.deployment.protocol.node_runtime import NodeRuntime

__all__ = [
    "DeploymentStatus",
    "FragmentStatus",
    "NodeStatus",
    "QueryStatus",
    "node_status",
    "query_statuses",
    "status_of",
]


class FragmentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A fragment and where it runs."""

    id: str
    version: int
    node: NodeId
    stages: list[StageId]
    route: list[NodeId]
    """The way of the rows that leave it; empty for a sink."""


class QueryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A query: its fragments, and what is being changed."""

    name: str
    generation: int
    phase: str
    """``settled``, or what the generation under way waits for: ``prepare``, ``mark`` or ``commit``."""
    fragments: list[FragmentStatus]
    cut_off: list[StageId]
    """Edges without a route: their rows wait where they are produced."""
    refusals: dict[StageId, str]
    """Stages that refused the last change of their plan, and why."""
    problem: str | None
    """Why it waits for room: a stage must move, and no node has a free slot for it."""


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A node: what runs on it and what waits there."""

    name: NodeId
    kind: str | None
    slots: int | None
    """As the topology says; None on sites, which do not know it."""
    running: list[StageId]
    held: list[StageId]
    """Stages that have ended here and whose snapshot is kept until they run elsewhere for certain."""
    awaited: list[StageId]
    """Stages whose state has not come yet."""
    buffered_rows: int
    """Rows that their consumer has not confirmed."""
    unclaimed_rows: int
    """Rows that arose here before a source of their stream."""
    refusal: str | None
    """Why rows that arose here, or the snapshot of an awaited stage, were last refused."""


class DeploymentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at one moment."""

    queries: list[QueryStatus]
    nodes: list[NodeStatus]


def query_statuses(coordinator: Coordinator) -> list[QueryStatus]:
    """What the coordinator knows of its queries."""
    phases = {generation.query: generation.phase for generation in coordinator.under_way()}
    return [
        QueryStatus(
            name=query,
            generation=coordinator.generation(query),
            phase=phases.get(query, "settled"),
            fragments=[
                FragmentStatus(
                    id=fragment.id,
                    version=fragment.version,
                    node=fragment.node,
                    stages=list(fragment.stages),
                    route=list(fragment.route or ()),
                )
                for fragment in coordinator.deployed(query).fragments.values()
            ],
            cut_off=sorted(coordinator.placement.of(query).cut_off),
            refusals=dict(coordinator.refusals(query)),
            problem=coordinator.problem(query),
        )
        for query in coordinator.plan.queries
    ]


def status_of(coordinator: Coordinator, nodes: Mapping[NodeId, NodeRuntime]) -> DeploymentStatus:
    """What the coordinator and the nodes know."""
    topology = coordinator.topology
    return DeploymentStatus(
        queries=query_statuses(coordinator),
        nodes=[
            node_status(nodes[name], node.kind, node.slots) for name, node in topology.nodes.items() if name in nodes
        ],
    )


def node_status(node: NodeRuntime, kind: str | None = None, slots: int | None = None) -> NodeStatus:
    """What a node knows of itself."""
    waiting = [*node.running.values(), *(held.instance for held in node.held.values())]
    buffered = sum(
        len(message.rows) for instance in waiting for message in instance.output.messages if isinstance(message, Data)
    )
    return NodeStatus(
        name=node.name,
        kind=kind,
        slots=slots,
        running=sorted(node.running),
        held=sorted(node.held),
        awaited=sorted(node.awaiting),
        buffered_rows=buffered,
        unclaimed_rows=sum(0 if a.table is None else a.table.num_rows for a in node.unclaimed),
        refusal=node.last_refusal,
    )
